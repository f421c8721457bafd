//! Arguments -> checked requests. Every range, and the words that refuse what is outside it, are in this file.
//!
//! Everything is checked before a key is opened, so a refused request has changed nothing.

use std::collections::HashSet;
use std::num::NonZero;
use std::ops::RangeInclusive;
use std::str::FromStr;

use arrayvec::ArrayVec;
use redis_token_bucket_core::{Limit, MAX_NUMBER_LEN, Rate, Tokens};

use crate::server::{Call, Error};

// The largest number is redis_token_bucket_core::MAX_TOKENS, the longest time FILL_LIMIT_MICROS.
const KEY: Error = Error::Message(c"ERR key must be at most 1048576 bytes");
const CAPACITY: Error = Error::Message(c"ERR capacity must be a number from 0 to 9007199254740991");
const COST: Error = Error::Message(c"ERR cost must be a number from 0 to 9007199254740991");
const RATE: Error =
    Error::Message(c"ERR rate must be tokens per second above 0, or tokens/period such as 100/m");
const FILL: Error = Error::Message(c"ERR bucket must fill within 100 years");

const AMOUNT: Error = Error::Message(c"ERR amount must be a number from 0 to 9007199254740991");
const TOO_MANY: Error = Error::Message(c"ERR at most 64 buckets");
const TWICE: Error = Error::Message(c"ERR a key is given twice");

const HOT: Error = Error::Message(c"ERR RL.HOT takes DENIED and COUNT n, or RESET alone");
const HOT_COUNT: Error = Error::Message(c"ERR count must be a whole number from 1 to 1024");
const MAX_BURST: Error = Error::Message(c"ERR max_burst must be an integer from -1 to 9007199254740990");
const COUNT: Error = Error::Message(c"ERR count must be an integer above 0");
const PERIOD: Error = Error::Message(c"ERR period must be an integer of seconds above 0");
const QUANTITY: Error = Error::Message(c"ERR quantity must be an integer");

/// Most buckets in one RL.TAKEALL. Enough for any stack of limits, and few enough to keep all on the stack.
pub(crate) const MAX_BUCKETS: usize = 64;

/// The longest key, in bytes. No limit needs one of more than a few hundred, and with 512 MB, which a server takes, an allowed
/// take of a new bucket kept it busy for two seconds.
const MAX_KEY_LEN: usize = 1 << 20;

/// Arguments of one bucket: `key capacity rate cost`.
const BUCKET_ARGUMENTS: usize = 4;

/// Most keys that RL.HOT lists, and how many when it is not told.
pub(crate) const MAX_HOT_KEYS: u16 = 1024;
const DEFAULT_HOT_COUNT: u16 = 10;

/// What is asked of one bucket.
pub(crate) struct Request {
    /// The position of its key among the arguments.
    pub(crate) key: usize,
    pub(crate) limit: Limit,
    /// Tokens to take, give or charge.
    pub(crate) amount: Tokens,
}

impl Request {
    /// Reads `key capacity rate [cost]`; the cost is 1 when left out.
    pub(crate) fn take(call: &Call<'_>) -> Result<Request, Error> {
        call.check_arity(4..=5)?;
        Request::read(call, 1, COST)
    }

    /// Reads `key capacity rate amount`.
    pub(crate) fn settle(call: &Call<'_>) -> Result<Request, Error> {
        call.check_arity(5..=5)?;
        Request::read(call, 1, AMOUNT)
    }

    /// Reads `key capacity rate cost [key capacity rate cost ...]`, all of different keys.
    ///
    /// Into a vector of the caller's: to return one would copy its whole capacity.
    pub(crate) fn stack(call: &Call<'_>, requests: &mut ArrayVec<Request, MAX_BUCKETS>) -> Result<(), Error> {
        let arguments = call.arity().saturating_sub(1);
        if arguments == 0 || !arguments.is_multiple_of(BUCKET_ARGUMENTS) {
            return Err(Error::WrongArity);
        }
        let mut keys = ArrayVec::<&[u8], MAX_BUCKETS>::new();
        for key in (1..=arguments).step_by(BUCKET_ARGUMENTS) {
            if requests.is_full() {
                return Err(TOO_MANY);
            }
            requests.push(Request::read(call, key, COST)?);
            keys.extend(call.arg(key));
        }
        if has_twice(&keys) { Err(TWICE) } else { Ok(()) }
    }

    fn read(call: &Call<'_>, key: usize, refusal: Error) -> Result<Request, Error> {
        check_key(call, key)?;
        let arg = |offset: usize| call.arg(key.saturating_add(offset));
        let capacity = arg(1).and_then(Tokens::parse).ok_or(CAPACITY)?;
        let rate = arg(2).and_then(Rate::parse).ok_or(RATE)?;
        let amount = match arg(3) {
            None => Tokens::ONE,
            Some(text) => Tokens::parse(text).ok_or(refusal)?,
        };
        let limit = Limit::new(capacity, rate).map_err(|_| FILL)?;
        Ok(Request { key, limit, amount })
    }
}

fn check_key(call: &Call<'_>, index: usize) -> Result<(), Error> {
    if call.arg(index).is_some_and(|key| key.len() > MAX_KEY_LEN) { Err(KEY) } else { Ok(()) }
}

/// The longest key that is compared with each other one.
const SHORT_KEY: usize = 1024;

/// Whether a key is there twice.
///
/// Usual keys are compared pair by pair, which is faster than any hash of a few. Long ones may have nearly all of their bytes
/// in common: the pairs of 64 keys of a megabyte would take a good part of a second, so each is hashed once.
fn has_twice(keys: &[&[u8]]) -> bool {
    if keys.iter().any(|key| key.len() > SHORT_KEY) {
        let mut seen = HashSet::new();
        return !keys.iter().all(|key| seen.insert(key));
    }
    let mut rest = keys;
    while let [key, later @ ..] = rest {
        if later.contains(key) {
            return true;
        }
        rest = later;
    }
    false
}

/// What is asked of RL.HOT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HotRequest {
    List { denied: bool, count: usize },
    Reset,
}

impl HotRequest {
    /// Reads `[DENIED] [COUNT n]`, in either order, or `RESET`.
    pub(crate) fn read(call: &Call<'_>) -> Result<HotRequest, Error> {
        call.check_arity(1..=4)?;
        let is =
            |index: usize, word: &[u8]| call.arg(index).is_some_and(|arg| arg.eq_ignore_ascii_case(word));
        if call.arity() == 2 && is(1, b"RESET") {
            return Ok(HotRequest::Reset);
        }
        let (mut denied, mut count) = (false, None);
        let mut index = 1;
        while index < call.arity() {
            if is(index, b"DENIED") && !denied {
                denied = true;
                index = index.saturating_add(1);
            } else if is(index, b"COUNT") && count.is_none() {
                count = Some(call.arg(index.saturating_add(1)).ok_or(HOT)?);
                index = index.saturating_add(2);
            } else {
                return Err(HOT);
            }
        }
        let count = match count {
            None => DEFAULT_HOT_COUNT,
            Some(text) => whole_number(text, 1..=MAX_HOT_KEYS).ok_or(HOT_COUNT)?,
        };
        Ok(HotRequest::List { denied, count: count.into() })
    }
}

/// Reads digits alone, with a value in `range`.
pub(crate) fn whole_number(text: &[u8], range: RangeInclusive<u16>) -> Option<u16> {
    let number = parse_integer(text)?;
    (!text.starts_with(b"+") && range.contains(&number)).then_some(number)
}

/// Reads digits with an optional sign, as redis-cell does; of no more bytes than the core reads of a number.
fn parse_integer<N: FromStr>(text: &[u8]) -> Option<N> {
    if text.len() > MAX_NUMBER_LEN {
        return None;
    }
    str::from_utf8(text).ok()?.parse().ok()
}

/// What redis-cell's command asks of one bucket, in its own terms.
pub(crate) struct Throttle {
    /// The position of the key among the arguments.
    pub(crate) key: usize,
    pub(crate) limit: Limit,
    /// Tokens to take; to give back if it is negative.
    pub(crate) quantity: i64,
}

impl Throttle {
    /// Reads `key max_burst count period [quantity]`; the quantity is 1 when left out.
    pub(crate) fn read(call: &Call<'_>) -> Result<Throttle, Error> {
        call.check_arity(5..=6)?;
        check_key(call, 1)?;
        let integer = |index: usize| call.arg(index).and_then(parse_integer::<i64>);
        // The burst comes on top of one request that is always there: -1 is a closed bucket.
        let capacity = integer(2)
            .and_then(|burst| u64::try_from(burst.checked_add(1)?).ok())
            .map(Tokens::from_whole)
            .filter(|capacity| *capacity <= Tokens::MAX)
            .ok_or(MAX_BURST)?;
        let count = integer(3).and_then(above_0).ok_or(COUNT)?;
        let period = integer(4).and_then(above_0).ok_or(PERIOD)?;
        let quantity = match call.arg(5) {
            None => 1,
            Some(text) => parse_integer(text).ok_or(QUANTITY)?,
        };
        let limit = Limit::new(capacity, Rate::per_seconds(count, period)).map_err(|_| FILL)?;
        Ok(Throttle { key: 1, limit, quantity })
    }
}

fn above_0(value: i64) -> Option<NonZero<u64>> {
    NonZero::new(u64::try_from(value).ok()?)
}
