//! What a decision costs besides time: bytes to replicas and to the AOF, and memory per bucket.

use harness::Server;

use crate::figures::Measured;
use rivals::{Requests, Wire, builder, prepare, run};

/// Few enough keys that each is called often: what is written on a first call only counts little, as in use.
const KEYS: usize = 100;
const CALLS: usize = 10_000;
const BATCH: usize = 100;

/// The buckets whose memory is measured.
pub(crate) const BUCKETS: usize = 1_000_000;

/// Replication and AOF of every contender, on a master with a replica. Once: there is no chance in it but the number of
/// expiries set.
pub(crate) fn written(all: &mut [Measured], mut progress: impl FnMut()) {
    let master = builder()
        .config("appendonly", "yes")
        .config("auto-aof-rewrite-percentage", "0")
        // The offset is to count commands alone.
        .config("repl-ping-replica-period", "3600")
        .start();
    let replica = builder().start_replica_of(&master);
    let mut wires = [Wire::connect(&master)];
    prepare(&mut master.connection());
    for measured in all {
        let contender = &measured.contender;
        let first = contender.first();
        run(&mut wires, &first, &Requests::new(&first, KEYS, KEYS), BATCH);
        replica.await_offset_of(&master);
        let before = (master.replication_offset(), aof_size(&master));
        run(&mut wires, contender, &Requests::new(contender, KEYS, CALLS), BATCH);
        replica.await_offset_of(&master);
        let after = (master.replication_offset(), aof_size(&master));
        measured.replication.push((after.0 - before.0) as f64 / CALLS as f64);
        measured.aof.push((after.1 - before.1) as f64 / CALLS as f64);
        progress();
    }
}

/// The server writes its AOF before it sleeps, and so before it answers the next command.
fn aof_size(server: &Server) -> u64 {
    let size = server.info("persistence", "aof_current_size");
    size.parse().unwrap_or_else(|_| panic!("aof_current_size is {size:?}"))
}

/// Memory per bucket of the contenders that keep one, each on a server of its own. Each bucket is called twice, the second
/// time when part of a token has come back: that is what buckets in use look like.
pub(crate) fn memory(all: &mut [Measured], mut progress: impl FnMut()) {
    for measured in all.iter_mut().filter(|measured| measured.contender.keeps) {
        let server = builder().start();
        prepare(&mut server.connection());
        let mut wires = [Wire::connect(&server)];
        let before = server.used_memory();
        for contender in [&measured.contender.first(), &measured.contender] {
            run(&mut wires, contender, &Requests::new(contender, BUCKETS, BUCKETS), BATCH);
        }
        let keys = server.info("keyspace", "db0");
        assert!(keys.starts_with(&format!("keys={BUCKETS},")), "{}: {keys:?}", measured.contender.label());
        measured.memory.push((server.used_memory() - before) as f64 / BUCKETS as f64);
        progress();
    }
}
