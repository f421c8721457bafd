//! x
pub mod choice;
pub mod command;
pub mod decision;
pub mod http;
pub mod keys;
pub mod limit;
pub mod policy;
