//! What is left after a fault: processes killed, disks full, memory out, clocks set, files of other servers. `make test-faults`.
//!
//! Each test ends with the same question: are the buckets what the answers said they would be?

mod clock;
mod crash;
mod disk;
mod load;
mod memory;
mod replica;
mod versions;
