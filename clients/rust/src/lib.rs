//! x
pub mod keys;
pub mod limit;
