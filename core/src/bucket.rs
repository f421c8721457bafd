//! The bucket: what is stored, what it holds now, and what may be taken.
//!
//! A [`Bucket`] is a balance at a time. A [`Limit`] and a clock reading turn it into a [`Level`], on which all questions
//! are asked and from which the next stored bucket is made. Decisions never write, so several levels can be looked at
//! before anything is taken from any.

use crate::number::Tokens;
use crate::rate::Rate;

/// The longest time a bucket may take to fill, in µs: 100 years of 365.25 days.
pub const FILL_LIMIT_MICROS: u64 = 100 * 31_557_600 * 1_000_000;

/// The longest wait that is answered, in ms: 2⁵³ - 1, the largest integer that every client reads exactly. Only a debt of
/// more than 285 000 years reaches it.
pub const MAX_MILLIS: u64 = crate::MAX_TOKENS;

/// The deepest debt kept, in nanotokens: 10²⁸ tokens. It leaves every sum with a capacity or a refill far from overflow,
/// and prints in the digits that are read back.
const DEBT_LIMIT_NANOS: i128 = 10_000_000_000_000_000_000_000_000_000_000_000_000;

const MICROS_PER_MILLI: u64 = 1_000;

/// A capacity and a rate that fit each other.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    capacity: Tokens,
    rate: Rate,
}

/// The bucket would take more than 100 years to fill: see [`FILL_LIMIT_MICROS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitError;

impl core::fmt::Display for LimitError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("bucket must fill within 100 years")
    }
}

impl core::error::Error for LimitError {}

impl Limit {
    /// A bucket that holds `capacity` and refills at `rate`.
    ///
    /// # Errors
    /// If it takes more than 100 years to fill. (A closed bucket, capacity 0, is always full.)
    pub fn new(capacity: Tokens, rate: Rate) -> Result<Limit, LimitError> {
        let nanos = capacity.nanos().max(0).unsigned_abs();
        if rate.brings(nanos, FILL_LIMIT_MICROS) { Ok(Limit { capacity, rate }) } else { Err(LimitError) }
    }

    /// Most tokens the bucket holds.
    pub fn capacity(&self) -> Tokens {
        self.capacity
    }

    /// Time from empty to full in µs, rounded up.
    pub fn fill_micros(&self) -> u64 {
        match self.capacity.nanos().max(0).unsigned_abs() {
            0 => 0,
            nanos => u64::try_from(self.rate.micros_until(0, nanos)).unwrap_or(u64::MAX),
        }
    }

    /// The bucket at `now` that will be full at `full_at` (both Unix time in µs) if nobody takes: what a limiter holds that
    /// remembers only when its bucket is full.
    pub fn bucket_full_at(&self, full_at: u64, now: u64) -> Bucket {
        let missing = i128::try_from(self.rate.refill(now, full_at)).unwrap_or(i128::MAX);
        Bucket { tokens: Tokens::from_nanos(self.capacity.nanos().saturating_sub(missing)), at: now }
    }

    /// What `stored` holds at `now` (Unix time in µs). Nothing stored is a full bucket.
    ///
    /// If the clock stepped back, no time has passed since `stored`. A stored time further ahead than the bucket takes to
    /// fill is no clock's: it counts as now, see [`Level::repaired`].
    pub fn level(&self, stored: Option<Bucket>, now: u64) -> Level<'_> {
        let Some(Bucket { tokens, at: stored_at }) = stored else {
            return Level { limit: self, now, at: now, tokens: self.capacity, repaired: false };
        };
        let repaired = stored_at > now && stored_at.saturating_sub(now) > self.fill_micros();
        let since = if repaired { now } else { stored_at };
        let at = since.max(now);
        let nanos = tokens.nanos().max(-DEBT_LIMIT_NANOS);
        let missing = self.capacity.nanos().saturating_sub(nanos);
        let refill = self.rate.refill(since, at);
        let tokens = match i128::try_from(refill) {
            Ok(refill) if refill < missing => Tokens::from_nanos(nanos.saturating_add(refill)),
            _ => self.capacity,
        };
        Level { limit: self, now, at, tokens, repaired }
    }
}

/// A bucket as it is stored: `tokens` were in it at `at`. Negative tokens are a debt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The balance at `at`.
    pub tokens: Tokens,
    /// Unix time in µs.
    pub at: u64,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There are tokens enough.
    Allowed,
    /// Denied; the fewest ms after which the same cost would be allowed if nobody else takes. At least 1.
    RetryAfter(u64),
    /// Denied for ever: the cost exceeds the capacity.
    Never,
}

impl Outcome {
    /// The outcome of a request that needs both: allowed if both are, else what holds longer.
    ///
    /// ```
    /// use redis_token_bucket_core::Outcome::{Allowed, Never, RetryAfter};
    ///
    /// assert_eq!(Allowed.and(RetryAfter(5)), RetryAfter(5));
    /// assert_eq!(RetryAfter(20).and(RetryAfter(5)), RetryAfter(20));
    /// assert_eq!(Never.and(RetryAfter(5)), Never);
    /// ```
    #[must_use]
    pub fn and(self, other: Outcome) -> Outcome {
        match (self, other) {
            (Outcome::Never, _) | (_, Outcome::Never) => Outcome::Never,
            (Outcome::RetryAfter(left), Outcome::RetryAfter(right)) => Outcome::RetryAfter(left.max(right)),
            (Outcome::Allowed, other) | (other, Outcome::Allowed) => other,
        }
    }
}

/// The answer to one request about one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Allowed, or how long to wait.
    pub outcome: Outcome,
    /// Whole tokens left, rounded down, never below 0.
    pub remaining: u64,
    /// Fewest ms until the bucket is full; 0 when full.
    pub reset_after_ms: u64,
    /// Unix time in ms by which the bucket is full, rounded up. Unlike `reset_after_ms` it stays the same while nobody
    /// takes, which is what an expiry has to be compared with.
    pub full_at_ms: u64,
}

/// A bucket at the moment of a request.
#[derive(Clone, Copy, Debug)]
pub struct Level<'l> {
    limit: &'l Limit,
    now: u64,
    /// The later of now and the stored time.
    at: u64,
    tokens: Tokens,
    repaired: bool,
}

impl<'l> Level<'l> {
    /// Whether `cost` could be taken.
    pub fn outcome(&self, cost: Tokens) -> Outcome {
        let short = cost.nanos().saturating_sub(self.tokens.nanos());
        if short <= 0 {
            Outcome::Allowed
        } else if cost > self.limit.capacity {
            Outcome::Never
        } else {
            Outcome::RetryAfter(millis_until(self.now, self.when_more(short)))
        }
    }

    /// The time in µs, rounded up, until the bucket holds `tokens` if nobody takes; 0 if it does. (More than its capacity it
    /// never will, which is not looked at here.)
    pub fn micros_until(&self, tokens: Tokens) -> u64 {
        match tokens.nanos().saturating_sub(self.tokens.nanos()) {
            ..=0 => 0,
            short => self.when_more(short).saturating_sub(self.now),
        }
    }

    /// The same bucket with `cost` less in it, be it there or not.
    pub fn minus(&self, cost: Tokens) -> Level<'l> {
        let nanos = self.tokens.nanos().saturating_sub(cost.nanos()).max(-DEBT_LIMIT_NANOS);
        Level { tokens: Tokens::from_nanos(nanos), ..*self }
    }

    /// The same bucket with `amount` more in it, as far as its capacity goes.
    pub fn plus(&self, amount: Tokens) -> Level<'l> {
        let nanos = self.tokens.nanos().saturating_add(amount.nanos()).min(self.limit.capacity.nanos());
        Level { tokens: Tokens::from_nanos(nanos), ..*self }
    }

    /// True if it holds its capacity.
    pub fn is_full(&self) -> bool {
        self.tokens >= self.limit.capacity
    }

    /// The answer `outcome` together with what this level holds.
    pub fn decision(&self, outcome: Outcome) -> Decision {
        let missing = self.limit.capacity.nanos().saturating_sub(self.tokens.nanos());
        let full_at = if missing <= 0 { self.now } else { self.when_more(missing) };
        let reset_after_ms = millis_until(self.now, full_at);
        let latest = (self.now / MICROS_PER_MILLI).saturating_add(MAX_MILLIS);
        Decision {
            outcome,
            remaining: self.tokens.whole(),
            reset_after_ms,
            full_at_ms: full_at.div_ceil(MICROS_PER_MILLI).min(latest),
        }
    }

    /// Takes `cost` if it is there: the answer, and what is left to be stored (nothing when denied).
    pub fn take(&self, cost: Tokens) -> (Decision, Option<Level<'l>>) {
        match self.outcome(cost) {
            Outcome::Allowed => {
                let left = self.minus(cost);
                (left.decision(Outcome::Allowed), Some(left))
            }
            denied => (self.decision(denied), None),
        }
    }

    /// True if the stored time was impossible and now was put in its place. Such a bucket has to be stored even when
    /// denied: otherwise every later call would start from now again, and it would never refill.
    pub fn repaired(&self) -> bool {
        self.repaired
    }

    /// The bucket to store: brought back to the whole millisecond, which loses nothing, since refill runs on one grid.
    pub fn stored(&self) -> Bucket {
        let at = self.at.saturating_sub(self.at % MICROS_PER_MILLI);
        let refill = i128::try_from(self.limit.rate.refill(at, self.at)).unwrap_or(i128::MAX);
        Bucket { tokens: Tokens::from_nanos(self.tokens.nanos().saturating_sub(refill)), at }
    }

    /// The time in µs at which `more` nanotokens (above 0) have come in.
    fn when_more(&self, more: i128) -> u64 {
        let micros = self.limit.rate.micros_until(self.at, more.unsigned_abs());
        self.at.saturating_add(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

/// Whole milliseconds from `now` to `then` (both µs), rounded up.
fn millis_until(now: u64, then: u64) -> u64 {
    then.saturating_sub(now).div_ceil(MICROS_PER_MILLI).min(MAX_MILLIS)
}
