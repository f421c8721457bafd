//! x
mod ask;
mod connection;
mod fallback;
mod known;
mod limiter;
mod meter;
mod reply;
mod settle;
mod target;

pub mod choice;
pub mod command;
pub mod decision;
pub mod http;
pub mod keys;
pub mod limit;
pub mod log;
pub mod policy;

pub use connection::Connection;
pub use limiter::{Error, Limiter};
pub use policy::Policy;
