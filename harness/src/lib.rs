//! Throw-away Redis and Valkey servers, alone or as a cluster, for the tests, the benches and the demo.
//!
//! A [`Server`] listens in a directory of its own, has the module loaded, and ends with its owner, be it by a panic. The
//! environment says which: `RL_SERVER` names the server binary (default: `redis-server`), `RL_MODULE` the module's library
//! (default: the one built with the running test). RL_PATIENCE multiplies every deadline, for servers under valgrind.
//!
//! Nothing here sleeps and hopes: whatever is waited for goes through [`wait::until`], which has a deadline and tells the
//! last thing it saw.

mod ask;
mod binary;
mod cluster;
mod expiry;
pub mod module;
mod port;
mod running;
pub mod script;
mod server;
pub mod wait;

pub use ask::Ask;
pub use binary::{Vendor, Version, server_version};
pub use cluster::Cluster;
pub use expiry::expire_at;
pub use redis;
pub use running::end_all_on_ctrl_c;
pub use server::{Builder, Server};
