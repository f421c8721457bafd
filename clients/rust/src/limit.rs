//! A capacity and a rate, and how they are cut into shards.
//!
//! ```
//! use redis_token_bucket_client::limit::Limit;
//! use std::time::Duration;
//!
//! let limit: Limit = "50 burst, 20/s".parse()?;
//! assert_eq!(limit, Limit::new(50, 20, Duration::from_secs(1))?);
//! assert_eq!(limit.time_to_fill(), Duration::from_millis(2500));
//!
//! // In whole tokens, and in sum the limit: 50 over 4 is 13, 13, 12, 12.
//! assert_eq!(limit.shard(1, 4)?.capacity().whole(), 13);
//! assert_eq!(limit.shard(2, 4)?.rate(), "20/4");
//! # Ok::<(), redis_token_bucket_client::limit::LimitError>(())
//! ```

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use redis_token_bucket_core as core;
use redis_token_bucket_core::{Rate, Tokens};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Units of a period, longest first, in ms.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// What is wrong with a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitError {
    /// Not of the form `50 burst, 20/s`.
    Form,
    /// The capacity is not a number from 0 to 9007199254740991.
    Capacity,
    /// The rate is not tokens per second above 0 or tokens per period, or its period is not in whole milliseconds.
    Rate,
    /// Capacity / rate is more than 100 years.
    Fill,
    /// With so many shards, one of them would hold no whole token.
    Shards(u32),
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LimitError::Form => f.write_str("limit must be a capacity and a rate such as `50 burst, 20/s`"),
            LimitError::Capacity => write!(f, "capacity must be a number from 0 to {}", core::MAX_TOKENS),
            LimitError::Rate => f.write_str(
                "rate must be tokens per second above 0, or tokens/period such as 100/m, in whole ms",
            ),
            LimitError::Fill => fmt::Display::fmt(&core::LimitError, f),
            LimitError::Shards(shards) => {
                write!(f, "capacity is less than one whole token for each of {shards} shards")
            }
        }
    }
}

impl std::error::Error for LimitError {}

/// The limit of a bucket: the capacity, most tokens it holds, and the rate at which it refills.
///
/// Its text form, also in serde, is `"50 burst, 20/s"`: the capacity, then the rate as the server takes it (`20`,
/// `100/m`, `5/15m`, `3/250ms`).
#[derive(Clone, Debug)]
pub struct Limit {
    limit: core::Limit,
    /// Tokens per period as they were written; a decimal is not touched, because the server reads its digits.
    tokens: Box<str>,
    period_ms: u64,
    /// Tokens per millisecond, nearly: for beliefs and hints, not for decisions.
    per_ms: f64,
    /// The capacity's whole tokens and the nanotokens beyond them.
    whole: u64,
    fraction: i128,
}

/// Equal if capacity, tokens and period are.
impl PartialEq for Limit {
    fn eq(&self, other: &Limit) -> bool {
        self.capacity() == other.capacity()
            && self.tokens == other.tokens
            && self.period_ms == other.period_ms
    }
}

impl Limit {
    /// A bucket that holds `capacity` tokens and refills by `tokens` every `period`.
    ///
    /// # Errors
    /// If capacity or tokens are above 9007199254740991, tokens or period are 0, the period is not in whole milliseconds,
    /// or the bucket would take more than 100 years to fill.
    pub fn new(capacity: u64, tokens: u64, period: Duration) -> Result<Limit, LimitError> {
        let whole_ms =
            u64::try_from(period.as_millis()).ok().filter(|&ms| Duration::from_millis(ms) == period);
        Limit::checked(&capacity.to_string(), &tokens.to_string(), whole_ms.ok_or(LimitError::Rate)?)
    }

    fn checked(capacity: &str, tokens: &str, period_ms: u64) -> Result<Limit, LimitError> {
        let capacity = Tokens::parse(capacity.as_bytes()).ok_or(LimitError::Capacity)?;
        let rate = Rate::parse(rate_text(tokens, period_ms).as_bytes()).ok_or(LimitError::Rate)?;
        let limit = core::Limit::new(capacity, rate).map_err(|_| LimitError::Fill)?;
        let per_ms = tokens.parse::<f64>().map_err(|_| LimitError::Rate)? / period_ms as f64;
        let fraction = capacity.nanos() - i128::from(capacity.whole()) * NANOS;
        Ok(Limit { limit, tokens: tokens.into(), period_ms, per_ms, whole: capacity.whole(), fraction })
    }

    /// The most tokens the bucket holds.
    pub fn capacity(&self) -> Tokens {
        self.limit.capacity()
    }

    /// The time from empty to full, rounded up to a microsecond.
    pub fn time_to_fill(&self) -> Duration {
        Duration::from_micros(self.limit.fill_micros())
    }

    /// The same limit for the code that decides.
    pub(crate) fn exact(&self) -> &core::Limit {
        &self.limit
    }

    /// How many of `count` shards, counted from the first, can ever hold `cost`.
    ///
    /// # Errors
    /// Like [`Limit::shard`].
    pub(crate) fn shards_that_hold(&self, cost: u64, count: u32) -> Result<u32, LimitError> {
        let whole = self.whole;
        if count > 1 && whole < u64::from(count) {
            return Err(LimitError::Shards(count));
        }
        let (each, more) = (whole / u64::from(count), whole % u64::from(count));
        Ok(match cost {
            cost if cost <= each => count,
            // Below count, because it is a remainder of it.
            cost if cost == each + 1 => more as u32,
            _ => 0,
        })
    }

    /// What shard `index` of `count` holds. The shards add up to the limit.
    ///
    /// # Errors
    /// If there would be a shard without a whole token; a limit that is not cut (`count` 1) may have any capacity.
    ///
    /// # Panics
    /// If `index` is not below `count`.
    pub fn shard(&self, index: u32, count: u32) -> Result<Shard<'_>, LimitError> {
        assert!(index < count, "shard {index} of {count}");
        if count > 1 && self.capacity().whole() < u64::from(count) {
            return Err(LimitError::Shards(count));
        }
        Ok(self.part(index, count))
    }

    /// [`Limit::shard`] for a number of shards that was checked before.
    pub(crate) fn part(&self, index: u32, count: u32) -> Shard<'_> {
        Shard { limit: self, index, count }
    }
}

/// One shard's part of a [`Limit`].
#[derive(Clone, Copy, Debug)]
pub struct Shard<'a> {
    limit: &'a Limit,
    index: u32,
    count: u32,
}

impl Shard<'_> {
    /// The most tokens this shard holds. Whole tokens go round the shards; a fraction of a token goes to the first shard
    /// that got fewer, so no later shard ever holds more than an earlier one.
    pub fn capacity(&self) -> Tokens {
        if self.count == 1 {
            return self.limit.capacity();
        }
        let Limit { whole, fraction, .. } = *self.limit;
        let (each, more) = (whole / u64::from(self.count), whole % u64::from(self.count));
        let index = u64::from(self.index);
        let nanos = i128::from(each + u64::from(index < more)) * NANOS;
        Tokens::from_nanos(if index == more { nanos + fraction } else { nanos })
    }

    /// The rate of this shard as the server takes it: the tokens of the limit in `count` times its period.
    pub fn rate(&self) -> String {
        rate_text(&self.limit.tokens, self.period_ms())
    }

    /// The rate in pieces, for writing it without an allocation: tokens, the number after the slash, the unit after it.
    /// Tokens per second have no slash.
    pub(crate) fn rate_pieces(&self) -> (&str, Option<(u64, &'static str)>) {
        (&self.limit.tokens, period_pieces(self.period_ms()))
    }

    /// The capacity, nearly: for beliefs and hints.
    pub(crate) fn tokens(&self) -> f64 {
        let Limit { whole, fraction, .. } = *self.limit;
        if self.count == 1 && fraction == 0 {
            return whole as f64;
        }
        let (each, more) = (whole / u64::from(self.count), whole % u64::from(self.count));
        let tokens = (each + u64::from(u64::from(self.index) < more)) as f64;
        if fraction != 0 && u64::from(self.index) == more { tokens + fraction as f64 / 1e9 } else { tokens }
    }

    /// What this shard holds more than the smallest, at most a token.
    pub(crate) fn surplus(&self) -> f64 {
        self.tokens() - Shard { index: self.count - 1, ..*self }.tokens()
    }

    /// Tokens per millisecond, nearly.
    pub(crate) fn per_ms(&self) -> f64 {
        self.limit.per_ms / f64::from(self.count)
    }

    fn period_ms(&self) -> u64 {
        self.limit.period_ms * u64::from(self.count)
    }
}

/// `50 burst, 20/s`
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, unit_ms) =
            UNITS.iter().find(|(_, ms)| self.period_ms.is_multiple_of(*ms)).unwrap_or(&("ms", 1));
        write!(f, "{} burst, {}/", self.capacity(), self.tokens)?;
        match self.period_ms / unit_ms {
            1 => f.write_str(unit),
            number => write!(f, "{number}{unit}"),
        }
    }
}

impl FromStr for Limit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Limit, LimitError> {
        let (capacity, rate) = text.split_once(" burst,").ok_or(LimitError::Form)?;
        let (tokens, period) = match rate.trim_start_matches(' ').split_once('/') {
            Some((tokens, period)) => (tokens, parse_period(period).ok_or(LimitError::Rate)?),
            None => (rate.trim_start_matches(' '), 1_000),
        };
        Limit::checked(capacity, tokens, period)
    }
}

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Limit, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(|error| de::Error::custom(format_args!("{text:?}: {error}")))
    }
}

/// The period after the slash in ms: a number, a unit, or both; seconds if there is no unit.
fn parse_period(text: &str) -> Option<u64> {
    let number = text.trim_end_matches(|char: char| char.is_ascii_lowercase());
    let unit = &text[number.len()..];
    let unit_ms = match unit {
        "" => 1_000,
        unit => UNITS.iter().find(|(name, _)| *name == unit)?.1,
    };
    if number.is_empty() {
        return (!unit.is_empty()).then_some(unit_ms);
    }
    let nanos = Tokens::parse(number.as_bytes())?.nanos().checked_mul(i128::from(unit_ms))?;
    let whole = nanos / NANOS;
    let ms = u64::try_from(whole).ok().filter(|_| whole * NANOS == nanos)?;
    // So that no number of shards overflows it. No bucket takes that long to fill anyway.
    (1..=core::MAX_MILLIS / 1_000).contains(&ms).then_some(ms)
}

/// Nanotokens in a token.
const NANOS: i128 = Tokens::ONE.nanos();

fn period_pieces(period_ms: u64) -> Option<(u64, &'static str)> {
    match period_ms {
        1_000 => None,
        ms if ms.is_multiple_of(1_000) => Some((ms / 1_000, "")),
        ms => Some((ms, "ms")),
    }
}

fn rate_text(tokens: &str, period_ms: u64) -> String {
    match period_pieces(period_ms) {
        None => tokens.to_owned(),
        Some((number, unit)) => format!("{tokens}/{number}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(text: &str) -> Limit {
        text.parse().unwrap_or_else(|error| panic!("{text:?}: {error}"))
    }

    #[test]
    fn a_limit_reads_its_own_text_again() {
        for (text, printed) in [
            ("50 burst, 20/s", "50 burst, 20/s"),
            ("50 burst,20", "50 burst, 20/s"),
            ("0.5 burst, 1e1/m", "0.5 burst, 1e1/m"),
            ("100 burst, 5/900", "100 burst, 5/15m"),
            ("16 burst, 3/250ms", "16 burst, 3/250ms"),
            ("16 burst, 3/1.5s", "16 burst, 3/1500ms"),
            ("1 burst, 1000/24h", "1 burst, 1000/d"),
            ("0 burst, 1/s", "0 burst, 1/s"),
        ] {
            assert_eq!(limit(text).to_string(), printed, "{text:?}");
            assert_eq!(limit(printed), limit(text), "{text:?} and {printed:?}");
        }
    }

    #[test]
    fn a_limit_that_the_server_would_refuse_is_refused() {
        for (text, error) in [
            ("", LimitError::Form),
            ("50", LimitError::Form),
            ("20/s", LimitError::Form),
            ("-1 burst, 20/s", LimitError::Capacity),
            (" 5 burst, 20/s", LimitError::Capacity),
            ("9007199254740992 burst, 20/s", LimitError::Capacity),
            ("nan burst, 20/s", LimitError::Capacity),
            ("50 burst, 0/s", LimitError::Rate),
            ("50 burst, 20/", LimitError::Rate),
            ("50 burst, 20/0s", LimitError::Rate),
            ("50 burst, 20/w", LimitError::Rate),
            ("50 burst, /s", LimitError::Rate),
            ("50 burst, 20/s ", LimitError::Rate),
            ("50 burst, 20/0.5ms", LimitError::Rate),
            ("50 burst, 1/99999999999999999999d", LimitError::Rate),
            ("1000 burst, 1/365d", LimitError::Fill),
        ] {
            assert_eq!(text.parse::<Limit>().map(|limit| limit.to_string()), Err(error), "{text:?}");
        }
        assert_eq!(Limit::new(1, 0, Duration::from_secs(1)), Err(LimitError::Rate), "no tokens");
        assert_eq!(Limit::new(1, 1, Duration::ZERO), Err(LimitError::Rate), "no period");
        assert_eq!(Limit::new(1, 1, Duration::from_micros(1500)), Err(LimitError::Rate), "part of a ms");
    }

    #[test]
    fn a_limit_comes_out_of_a_config_file_or_says_why_not() {
        assert_eq!(serde_json::from_str::<Limit>(r#""50 burst, 20/s""#).unwrap(), limit("50 burst, 20/s"));
        assert_eq!(serde_json::to_string(&limit("50 burst, 20/s")).unwrap(), r#""50 burst, 20/s""#);
        let error = serde_json::from_str::<Limit>(r#""50 burst, 0/s""#).unwrap_err().to_string();
        assert!(error.contains("50 burst, 0/s") && error.contains("rate must be"), "{error}");
    }

    #[test]
    fn a_cost_fits_the_shards_that_have_the_capacity_for_it() {
        let whole = limit("10 burst, 20/s");
        for cost in 0..12 {
            let fit =
                (0..4).filter(|&index| whole.shard(index, 4).unwrap().capacity().whole() >= cost).count();
            assert_eq!(
                whole.shards_that_hold(cost, 4),
                Ok(fit as u32),
                "cost {cost} on shards of 3, 3, 2, 2"
            );
        }
        assert_eq!(whole.shards_that_hold(1, 11), Err(LimitError::Shards(11)));
    }

    #[test]
    fn every_shard_rate_means_exactly_a_share_of_the_limit() {
        for text in ["20 burst, 0.1111111111111111/s", "100 burst, 100/m", "64 burst, 3/250ms"] {
            let whole = limit(text);
            let shard = whole.shard(0, 16).unwrap();
            let rate =
                Rate::parse(shard.rate().as_bytes()).unwrap_or_else(|| panic!("{text}: {}", shard.rate()));
            // The time that a sixteenth of the tokens takes at a sixteenth of the rate is the limit's own.
            let tokens = Tokens::from_nanos(whole.capacity().nanos() / 16);
            let part = core::Limit::new(tokens, rate).unwrap();
            assert_eq!(part.fill_micros(), whole.limit.fill_micros(), "{text} over 16 is {}", shard.rate());
        }
    }
}
