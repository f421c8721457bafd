//! The token bucket of redis-token-bucket as pure arithmetic: given what is stored, the limit, the time and a cost, it
//! says whether the cost may be taken, what is left, and exactly how long to wait.
//!
//! This crate reads no clock, opens no key and allocates nothing; time and state are arguments. The server module, the
//! Rust helper (for its local bucket) and the fuzzers decide with this same code.
//!
//! ```
//! use redis_token_bucket_core::{Limit, Outcome, Rate, Tokens};
//!
//! let limit = Limit::new(Tokens::parse(b"5").unwrap(), Rate::parse(b"100/m").unwrap()).unwrap();
//! let now = 1_700_000_000_000_000; // Unix time in µs, from whatever clock the caller trusts
//! let level = limit.level(None, now); // nothing stored: a full bucket
//!
//! let five = Tokens::parse(b"5").unwrap();
//! assert_eq!(level.outcome(five), Outcome::Allowed);
//! let empty = level.minus(five);
//! // 100 a minute is a token every 0.6 s.
//! assert_eq!(empty.outcome(Tokens::parse(b"1").unwrap()), Outcome::RetryAfter(600));
//! ```
//!
//! # How exact it is
//!
//! Balances are whole nanotokens (10⁻⁹ token) in an `i128`, rates are ratios of integers, and no float takes part in a
//! decision. Refill is counted on one grid that starts at the Unix epoch, so that cutting a span of time into pieces
//! yields the same tokens as the whole span: see [`Rate`].
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used
    )
)]

mod bucket;
mod number;
mod rate;
mod text;
mod wide;

pub use bucket::{Bucket, Decision, FILL_LIMIT_MICROS, Level, Limit, LimitError, MAX_MILLIS, Outcome};
pub use number::{MAX_NUMBER_LEN, MAX_TOKENS, Tokens, parse_stored_micros};
pub use rate::Rate;
pub use text::NumberText;
