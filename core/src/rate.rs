//! The rate of refill as an exact ratio, and time <-> tokens at that rate.

use core::num::NonZero;

use crate::number::{Decimal, parse_whole, power_of_ten};
use crate::wide::mul_add_div;

/// A double and its shortest text are each within 2⁻⁵³ of what they stand for; together within 2⁻⁵².
const FLOAT_PRECISION_BITS: u32 = 52;
/// The least 16-digit number. Decimals with 16 digits or more are a float's; with fewer they are a person's, and mean
/// exactly what they say.
const FLOAT_DIGITS: u128 = 1_000_000_000_000_000;
/// The largest denominator that a float is taken to stand for. Covers a day in seconds (86 400) with room; a float within
/// 2⁻⁵² of a fraction this simple by chance is one in thousands, and then means that fraction to within its own error.
const FLOAT_DENOMINATOR: u128 = 1_000_000;

/// Nanotokens per µs at which the largest bucket fills within one µs; above it, all rates are alike.
const MAX_NANOS_PER_MICRO: u128 = crate::MAX_TOKENS as u128 * 1_000_000_000;

/// A rate of refill: `nanos` nanotokens every `micros` µs, exactly.
///
/// Tokens accrue on a grid fixed to the Unix epoch: the refill between two moments is R(to) - R(from), where
/// R(t) = ⌊t · nanos / micros⌋ nanotokens. Rounding down each span by itself would lose up to a nanotoken per call, a
/// million a second on a busy bucket; differences of R telescope, so however a span is cut, its pieces add up to the
/// whole, and a balance never strays a full nanotoken from the exact rational one. Nothing besides the two stored fields
/// has to be remembered for that. Where the sum does not telescope, because another rate goes on from a balance or because
/// now was put in place of an impossible time, the balance may stray by one nanotoken more.
///
/// Invariant: `micros` is 1, or `nanos` fits 64 bits. (So products with a balance are exact in `mul_add_div`.)
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    nanos: NonZero<u128>,
    micros: NonZero<u64>,
}

impl Rate {
    /// Reads tokens per second (`20`, `0.4`), or tokens per period: `100/m`, `5/15m`, `3/250ms`, `20/16` (no unit:
    /// seconds). Units: `ms` `s` `m` `h` `d`. `None` if it is neither, or not above 0.
    ///
    /// A decimal of 16 or more digits is what a language prints for a float, and stands for the fraction that the float
    /// stands for, if that is a simple one:
    ///
    /// ```
    /// use redis_token_bucket_core::{Limit, Rate, Tokens};
    ///
    /// let fill = |rate: &str| Limit::new(Tokens::ONE, Rate::parse(rate.as_bytes()).unwrap()).unwrap().fill_micros();
    /// assert_eq!(fill("0.1111111111111111"), 9_000_000); // 1/9
    /// assert_eq!(fill("20/m"), 3_000_000);
    /// assert!(Rate::parse(b"0").is_none());
    /// ```
    pub fn parse(text: &[u8]) -> Option<Rate> {
        if let Some(tokens) = parse_whole(text) {
            let nanos = NonZero::new(u128::from(tokens.wrapping_mul(1000)))?; // below 10^18
            return Some(Rate { nanos, micros: NonZero::<u64>::MIN });
        }
        let (tokens, period, unit) = match Decimal::parse_prefix(text)? {
            (tokens, []) => (tokens, ONE, SECOND),
            (tokens, [b'/', period @ ..]) => {
                let (period, unit) = match period {
                    [b'0'..=b'9', ..] => Decimal::parse_prefix(period)?,
                    [_, ..] => (ONE, period),
                    [] => return None,
                };
                (tokens, period, unit_micros(unit)?)
            }
            _ => return None,
        };
        if tokens.digits == 0 || period.digits == 0 {
            return None;
        }
        let tokens = shorten(tokens);
        let period = shorten(period);
        let (digits, exponent, divisor) = match float_fraction(tokens) {
            Some((numerator, denominator)) => (numerator, 0, denominator),
            None => (tokens.digits, tokens.exponent, 1),
        };
        // Both shortened numbers are below 10^19, the float's denominator is at most 10^6, a unit's digits below 10^3.
        let micros = period.digits.saturating_mul(unit.digits).saturating_mul(divisor);
        // 9 for nanotokens; the other powers of ten stand below the line.
        let exponent =
            exponent.saturating_add(9).saturating_sub(period.exponent).saturating_sub(unit.exponent);
        let (nanos, micros) = scale(digits, micros, exponent);
        Some(Rate::from_ratio(nanos, micros))
    }

    /// `tokens` every `seconds`.
    ///
    /// ```
    /// use core::num::NonZero;
    /// use redis_token_bucket_core::{Limit, Rate, Tokens};
    ///
    /// let rate = Rate::per_seconds(NonZero::new(30).unwrap(), NonZero::new(60).unwrap());
    /// assert_eq!(Limit::new(Tokens::ONE, rate).unwrap().fill_micros(), 2_000_000);
    /// ```
    pub fn per_seconds(tokens: NonZero<u64>, seconds: NonZero<u64>) -> Rate {
        // 10^9 nanotokens and 10^6 µs have 10^6 in common.
        Rate::from_ratio(u128::from(tokens.get()).saturating_mul(1000), seconds.get().into())
    }

    /// `nanos`/`micros`, or the nearest ratio that keeps the invariant.
    fn from_ratio(nanos: u128, micros: u128) -> Rate {
        const U64_MAX: u128 = u64::MAX as u128;
        let (nanos, micros) = if nanos <= U64_MAX && micros <= U64_MAX {
            (nanos, micros)
        } else {
            match nanos.checked_div(micros).unwrap_or(u128::MAX) {
                0..=U64_MAX => convergents(nanos, micros)
                    .take_while(|&(p, q)| p <= U64_MAX && q <= U64_MAX)
                    .last()
                    .filter(|&(p, _)| p > 0)
                    .unwrap_or((1, U64_MAX)),
                whole => (whole.min(MAX_NANOS_PER_MICRO), 1),
            }
        };
        Rate {
            nanos: NonZero::new(nanos).unwrap_or(NonZero::<u128>::MIN),
            micros: u64::try_from(micros).ok().and_then(NonZero::new).unwrap_or(NonZero::<u64>::MIN),
        }
    }

    /// Nanotokens that accrue from `from` to `to` (Unix time in µs); 0 if `to` is not after `from`.
    pub(crate) fn refill(&self, from: u64, to: u64) -> u128 {
        let elapsed = to.saturating_sub(from);
        mul_add_div(elapsed.into(), self.nanos.get(), self.phase(from), self.micros.into())
    }

    /// The first µs, counted from `from`, by which `amount` nanotokens have accrued; `amount` above 0.
    pub(crate) fn micros_until(&self, from: u64, amount: u128) -> u128 {
        // The least t with t·nanos + phase >= amount·micros, that is ⌈(amount·micros - phase) / nanos⌉. Since phase is
        // below micros, (amount - 1)·micros + (micros - phase) is the same numerator without a negative step.
        let micros = u128::from(self.micros.get());
        let round_up = self.nanos.get().saturating_sub(1);
        let plus = micros.saturating_sub(self.phase(from)).saturating_add(round_up);
        mul_add_div(amount.saturating_sub(1), micros, plus, self.nanos)
    }

    /// True if `amount` nanotokens accrue within `micros`, by multiplication alone: every call asks this of its limit.
    pub(crate) fn brings(&self, amount: u128, micros: u64) -> bool {
        match (amount.checked_mul(self.micros.get().into()), self.nanos.get().checked_mul(micros.into())) {
            // `nanos` is over 64 bits then, so by the invariant `self.micros` is 1, and any amount is the smaller side.
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(needed), Some(brought)) => needed <= brought,
        }
    }

    /// How far R has come towards its next nanotoken at `at`: (`at`·nanos) mod micros.
    fn phase(&self, at: u64) -> u128 {
        if self.micros == NonZero::<u64>::MIN {
            return 0;
        }
        // By the invariant nanos fits 64 bits here; remainders below 2^64 have a product below 2^128.
        let at = at % self.micros;
        let nanos = self.nanos.get() as u64 % self.micros;
        match at.checked_mul(nanos) {
            Some(product) => (product % self.micros).into(),
            None => u128::from(at).saturating_mul(nanos.into()) % NonZero::<u128>::from(self.micros),
        }
    }
}

const ONE: Decimal = Decimal { digits: 1, exponent: 0 };
/// A second in µs; the power of ten apart, so that the common rates need no division.
const SECOND: Decimal = Decimal { digits: 1, exponent: 6 };

/// A unit of time in µs; no unit is a second.
fn unit_micros(text: &[u8]) -> Option<Decimal> {
    let (digits, exponent) = match text {
        b"ms" => (1, 3),
        b"s" | b"" => return Some(SECOND),
        b"m" => (6, 7),
        b"h" => (36, 8),
        b"d" => (864, 8),
        _ => return None,
    };
    Some(Decimal { digits, exponent })
}

/// Cuts a decimal to 19 significant digits, so that two of them can be multiplied.
fn shorten(decimal: Decimal) -> Decimal {
    let Decimal { mut digits, mut exponent } = decimal;
    while digits > 9_999_999_999_999_999_999 {
        digits /= 10;
        exponent = exponent.saturating_add(1);
    }
    Decimal { digits, exponent }
}

/// The fraction that a printed float stands for, if there is a simple one.
fn float_fraction(decimal: Decimal) -> Option<(u128, u128)> {
    if decimal.digits < FLOAT_DIGITS || decimal.exponent >= 0 {
        return None;
    }
    let denominator = power_of_ten(decimal.exponent.checked_neg()?)?;
    convergents(decimal.digits, denominator).take_while(|&(_, q)| q <= FLOAT_DENOMINATOR).find(|&(p, q)| {
        // |p/q - value| <= value · 2^-52; with digits below 10^19 and q at most 10^6 only the power may be too large.
        match (p.checked_mul(denominator), q.checked_mul(decimal.digits)) {
            (Some(left), Some(right)) => p > 0 && left.abs_diff(right) <= right >> FLOAT_PRECISION_BITS,
            _ => false,
        }
    })
}

/// The convergents p/q of the continued fraction of `numerator`/`denominator`, simplest first, the last one equal to it.
fn convergents(mut numerator: u128, mut denominator: u128) -> impl Iterator<Item = (u128, u128)> {
    let (mut before, mut last) = ((0_u128, 1_u128), (1_u128, 0_u128));
    core::iter::from_fn(move || {
        let quotient = numerator.checked_div(denominator)?;
        let rest = numerator.checked_rem(denominator)?;
        let p = quotient.checked_mul(last.0)?.checked_add(before.0)?;
        let q = quotient.checked_mul(last.1)?.checked_add(before.1)?;
        (numerator, denominator) = (denominator, rest);
        (before, last) = (last, (p, q));
        Some(last)
    })
}

/// `nanos`·10^`exponent` / `micros` as a ratio of integers. What leaves 128 bits is cut at the far end, where it is worth
/// less than the 19 digits that were kept.
fn scale(mut nanos: u128, mut micros: u128, exponent: i32) -> (u128, u128) {
    let power = power_of_ten(exponent.saturating_abs());
    let (whole, cut) = if exponent >= 0 { (nanos, micros) } else { (micros, nanos) };
    if let Some(grown) = power.and_then(|power| whole.checked_mul(power)) {
        return if exponent >= 0 { (grown, cut) } else { (cut, grown) };
    }
    for _ in 0..exponent.unsigned_abs() {
        let (grow, shrink) = if exponent > 0 { (&mut nanos, &mut micros) } else { (&mut micros, &mut nanos) };
        if shrink.is_multiple_of(10) {
            *shrink /= 10;
        } else if let Some(grown) = grow.checked_mul(10) {
            *grow = grown;
        } else {
            *shrink /= 10;
        }
        if *shrink == 0 {
            break;
        }
    }
    (nanos, micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str) -> Rate {
        Rate::parse(text.as_bytes()).unwrap_or_else(|| panic!("{text:?} was refused"))
    }

    fn same(left: Rate, right: Rate) -> bool {
        left.nanos.get() * u128::from(right.micros.get()) == right.nanos.get() * u128::from(left.micros.get())
    }

    #[test]
    fn a_period_is_the_same_rate_as_its_tokens_per_second() {
        for (left, right) in [
            ("60/m", "1"),
            ("5/15m", "1/180"),
            ("1000/1h", "1000/3600s"),
            ("3/250ms", "12"),
            ("20/16", "1.25"),
            ("1/d", "1/86400"),
            ("2.5/0.5", "5"),
            ("1e3", "1000"),
            ("1e-3/1e-3s", "1"),
            ("1e30/1e30", "1"),
            ("0.1000000000000000055511151231257827021181583404541015625", "0.1"),
        ] {
            assert!(same(rate(left), rate(right)), "{left}: {:?}, {right}: {:?}", rate(left), rate(right));
        }
    }

    #[test]
    fn a_printed_float_is_the_fraction_it_stands_for() {
        for (numerator, denominator) in
            [(1, 9), (1, 3), (2, 3), (17, 30), (1, 60), (100, 60), (1, 86_400), (1_234_567, 86_400)]
        {
            let float = f64::from(numerator) / f64::from(denominator);
            let exact = rate(&format!("{numerator}/{denominator}"));
            for text in [format!("{float}"), format!("{float:e}"), format!("{float:.16e}")] {
                assert!(same(rate(&text), exact), "{text} is {:?}, not {exact:?}", rate(&text));
            }
        }
    }

    #[test]
    fn a_written_decimal_keeps_fifteen_digits() {
        assert!(same(rate("0.333333333333333"), Rate::from_ratio(333_333_333_333_333, 1_000_000_000_000)));
        assert!(same(rate("123456789.012345"), Rate::from_ratio(123_456_789_012_345, 1_000)));
        let odd = rate("0.1234567890123456");
        assert!(same(odd, Rate::from_ratio(1_234_567_890_123_456, 10_000_000_000_000)), "{odd:?}");
    }

    #[test]
    fn what_is_not_a_rate_above_0_is_refused() {
        for text in [
            "", "0", "0.0", "0/s", "-1", "+1", "1/", "/1", "/", "1/0", "1/0s", "1//1", "1/s1", "1/sec",
            "1/M", "1/S", "1 /s", "1/ s", "1/-1", "1/mss", "1/1/1", "1/w", "nan", "inf", "1/inf", "0x1",
            "1s", "1/1.s", "1/us", "ms",
        ] {
            assert!(Rate::parse(text.as_bytes()).is_none(), "{text:?} was read as a rate");
        }
    }

    #[test]
    fn extreme_rates_keep_the_invariant_and_their_value() {
        for text in [
            "1e300",
            "9007199254740991/1ms",
            "1e-300",
            "1/1e300",
            "1.2345678901234567e-10",
            "9007199254740991/9007199254740991d",
            "1e19/3",
            "0.333/1e-9ms",
        ] {
            let rate = rate(text);
            assert!(rate.micros.get() == 1 || u64::try_from(rate.nanos.get()).is_ok(), "{text}: {rate:?}");
        }
        assert_eq!(rate("9007199254740991/1ms").refill(0, 1000), 9_007_199_254_740_991_000_000_000);
        assert!(same(rate("1e300"), rate("1e200/d")));
        let small = rate("1.2345678901234567e-10");
        let value = small.nanos.get() as f64 / small.micros.get() as f64;
        assert!((value / 1.2345678901234567e-7 - 1.0).abs() < 1e-15, "{small:?} is {value}");
    }

    #[test]
    fn the_pieces_of_a_span_add_up_to_the_whole() {
        let rate = rate("1/7");
        let start = 1_700_000_000_123_456;
        let pieces: u128 = (0..7_000_000).step_by(7).map(|at| rate.refill(start + at, start + at + 7)).sum();
        assert_eq!(pieces, 1_000_000_000, "a token in seven seconds, in a million pieces");
    }
}
