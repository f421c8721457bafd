//! The ways to limit a rate that the module is compared with, and the client that measures them all alike.

mod contender;
mod wire;

pub use contender::{Contender, Outcome, builder, contenders, prepare};
pub use wire::{Inbox, Requests, Run, Wire, run, stream};
