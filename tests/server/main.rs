//! The module in a real server: `RL_SERVER`, or the installed redis-server.
//!
//! Time is moved by moving a bucket's `ts` into the past. What passes by itself between two calls shortens a wait that is
//! answered, so such an answer is compared with a range as wide as the time that really passed: see [`bucket::Timed`].

mod access;
mod arguments;
mod bucket;
mod cases;
mod cluster;
mod concurrency;
mod document;
mod hot;
mod introspection;
mod migration;
mod options;
mod persistence;
mod redis_cell;
mod replication;
mod security;
mod settle;
mod slots;
mod state;
mod takeall;
mod takeover;
mod throttle;
mod transactions;
mod upgrade;
