//! Arguments -> checked requests. Every range, and the words that refuse what is outside it, are in this file.
//!
//! Everything is checked before a key is opened, so a refused request has changed nothing.

use redis_token_bucket_core::{Limit, Rate, Tokens};

use crate::server::{Call, Error};

// The largest number is redis_token_bucket_core::MAX_TOKENS, the longest time FILL_LIMIT_MICROS.
const CAPACITY: Error = Error::Message(c"ERR capacity must be a number from 0 to 9007199254740991");
const COST: Error = Error::Message(c"ERR cost must be a number from 0 to 9007199254740991");
const RATE: Error =
    Error::Message(c"ERR rate must be tokens per second above 0, or tokens/period such as 100/m");
const FILL: Error = Error::Message(c"ERR bucket must fill within 100 years");

/// `capacity rate [cost]`: what is asked of one bucket.
pub(crate) struct Request {
    pub(crate) limit: Limit,
    pub(crate) cost: Tokens,
}

impl Request {
    /// Reads `key capacity rate [cost]`, whose key is argument 1; `cost` is 1 when left out.
    pub(crate) fn read(call: &Call<'_>) -> Result<Request, Error> {
        call.check_arity(4..=5)?;
        let limit = limit(call, 2)?;
        let cost = if call.arity() == 5 { amount(call, 4, COST)? } else { Tokens::ONE };
        Ok(Request { limit, cost })
    }
}

/// Reads `capacity rate` at argument `index` and the next.
fn limit(call: &Call<'_>, index: usize) -> Result<Limit, Error> {
    let capacity = amount(call, index, CAPACITY)?;
    let rate = call.arg(index.saturating_add(1)).and_then(Rate::parse).ok_or(RATE)?;
    Limit::new(capacity, rate).map_err(|_| FILL)
}

fn amount(call: &Call<'_>, index: usize, refusal: Error) -> Result<Tokens, Error> {
    call.arg(index).and_then(Tokens::parse).ok_or(refusal)
}
