//! Numbers as the contract describes them, read with no thought of speed.

use num_bigint::BigInt;
use num_rational::BigRational;

use crate::exact::ratio;

/// Beyond this power of ten either way, a number of at most 1100 digits is out of every range; more would only cost time.
const FAR: i64 = 3000;

/// Exponents beyond this are all alike, also where two of them are divided. (So the core says.)
const LARGEST_EXPONENT: i64 = 100_000;

/// The longest text that is read.
const LONGEST: usize = 1100;

/// A rate in tokens per second.
pub struct NaiveRate {
    pub value: BigRational,
    /// How far the value that is used may be from it.
    pub relative_error: BigRational,
}

/// `5`, `-0.25`, `1e3`.
pub fn signed_decimal(text: &[u8]) -> Option<BigRational> {
    let (negative, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (value, rest) = decimal_prefix(digits)?;
    let value = BigRational::from(value.digits) * power_of_ten(value.exponent);
    (rest.is_empty() && digits.len() <= LONGEST).then_some(if negative { -value } else { value })
}

struct Decimal {
    digits: BigInt,
    exponent: i64,
    /// Digits from the first that is not 0.
    significant: usize,
}

fn decimal_prefix(text: &[u8]) -> Option<(Decimal, &[u8])> {
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (whole, mut rest) = text.split_at(digits(text));
    let mut places: &[u8] = &[];
    if let Some(after) = rest.strip_prefix(b".") {
        (places, rest) = after.split_at(digits(after));
        if places.is_empty() {
            return None;
        }
    }
    if whole.is_empty() {
        return None;
    }
    let mut exponent = 0;
    if let [b'e' | b'E', after @ ..] = rest {
        let (sign, after) = match after {
            [b'-', after @ ..] => (-1, after),
            [b'+', after @ ..] => (1, after),
            after => (1, after),
        };
        let (power, after) = after.split_at(digits(after));
        if power.is_empty() {
            return None;
        }
        let size =
            power.iter().fold(0_i64, |sum, digit| (sum * 10 + i64::from(digit - b'0')).min(LARGEST_EXPONENT));
        exponent = sign * size;
        rest = after;
    }
    let all = [whole, places].concat();
    let significant = all.iter().skip_while(|digit| **digit == b'0').count();
    Some((
        Decimal {
            digits: BigInt::parse_bytes(&all, 10)?,
            exponent: exponent - places.len() as i64,
            significant,
        },
        rest,
    ))
}

fn power_of_ten(exponent: i64) -> BigRational {
    let power = BigRational::from(BigInt::from(10).pow(exponent.unsigned_abs().min(FAR as u64) as u32));
    if exponent < 0 { power.recip() } else { power }
}

/// `20`, `100/m`, `5/15m`, `20/16`.
pub fn rate(text: &[u8]) -> Option<NaiveRate> {
    if text.len() > LONGEST {
        return None;
    }
    let (tokens, rest) = decimal_prefix(text)?;
    let (period, unit) = match rest {
        [] => (None, &b"s"[..]),
        [b'/', period @ ..] if period.first().is_some_and(u8::is_ascii_digit) => {
            let (period, unit) = decimal_prefix(period)?;
            (Some(period), if unit.is_empty() { b"s" } else { unit })
        }
        [b'/', unit @ ..] => (None, unit),
        _ => return None,
    };
    let unit_millis = match unit {
        b"ms" => 1,
        b"s" => 1_000,
        b"m" => 60_000,
        b"h" => 3_600_000,
        b"d" => 86_400_000,
        _ => return None,
    };
    let period = period.unwrap_or(Decimal { digits: 1.into(), exponent: 0, significant: 1 });
    if tokens.significant == 0 || period.significant == 0 {
        return None;
    }
    let value = BigRational::new(tokens.digits, period.digits)
        * ratio(1000, unit_millis)
        * power_of_ten(tokens.exponent - period.exponent);
    // A float stands for the fraction near it, and 19 digits are kept of each number.
    let is_float = tokens.significant >= 16 && tokens.exponent < 0;
    let relative_error = if is_float { ratio(1, 1 << 51) } else { ratio(1, 10_i128.pow(17)) };
    Some(NaiveRate { value, relative_error })
}

/// To the nearest integer, a half away from zero.
pub fn round(value: &BigRational) -> BigRational {
    let half = ratio(1, 2);
    if *value < ratio(0, 1) { -(-value + half).floor() } else { (value + half).floor() }
}

pub fn clamp(value: &BigRational, low: i128, high: i128) -> BigRational {
    value.clone().max(ratio(low, 1)).min(ratio(high, 1))
}

pub fn distance(left: &BigRational, right: &BigRational) -> BigRational {
    if left > right { left - right } else { right - left }
}
