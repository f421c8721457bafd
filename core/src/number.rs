//! Decimals <-> fixed point.
//!
//! Two grammars are read. Arguments are strict: digits, at most one point with digits on both sides, an optional exponent
//! (what languages print for a float), no sign, no blank, no name such as `inf`. Stored fields may besides carry a minus,
//! since a balance can be in debt. Floats are never used: `str::parse::<f64>` would bring `inf`, lose digits above 2⁵³,
//! and round the ninth decimal place of a large balance.

use core::fmt;

use crate::text::NumberText;

/// The largest capacity, cost or amount, in tokens: 2⁵³ - 1, the largest integer that a double and hence every client
/// language holds exactly.
pub const MAX_TOKENS: u64 = 9_007_199_254_740_991;

/// The longest text read as a number, in bytes. The exact decimal expansion of any double is shorter; a longer text is
/// refused before it is scanned.
pub const MAX_NUMBER_LEN: usize = 1100;

/// Decimal places kept: a nanotoken is the unit of every balance.
const PLACES: i32 = 9;
const NANOS_PER_TOKEN: u64 = 1_000_000_000;
const WIDE_NANOS_PER_TOKEN: u128 = NANOS_PER_TOKEN as u128;

/// Significant digits that are sure to fit a `u128`.
const MAX_DIGITS: usize = 38;

const POWERS: [u128; MAX_DIGITS + 1] = powers();
/// Digits gathered before they are appended: what fits a `u64`.
const CHUNK: usize = 18;

const DIGITS_LIMIT: u128 = 100_000_000_000_000_000_000_000_000_000_000_000_000;

#[allow(clippy::arithmetic_side_effects, clippy::indexing_slicing, reason = "evaluated by the compiler")]
const fn powers() -> [u128; MAX_DIGITS + 1] {
    let mut table = [1; MAX_DIGITS + 1];
    let mut i = 1;
    while i < table.len() {
        table[i] = table[i - 1] * 10;
        i += 1;
    }
    table
}

/// 10 to the `exponent`, if it is a whole number that fits.
pub(crate) fn power_of_ten(exponent: i32) -> Option<u128> {
    POWERS.get(usize::try_from(exponent).ok()?).copied()
}

/// Reads a whole number of at most 15 digits, which is what nearly all numbers are: four of the five that a request reads.
/// Everything else goes through [`Decimal`], which is right for these too and takes several times as long.
#[inline]
pub(crate) fn parse_whole(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 15 {
        return None;
    }
    let mut value = 0_u64;
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.wrapping_mul(10).wrapping_add(digit.into()); // below 10^15
    }
    Some(value)
}

/// `digits` · 10^`exponent`, never negative; at most 38 digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    pub(crate) digits: u128,
    pub(crate) exponent: i32,
}

impl Decimal {
    /// Reads `5`, `0.25`, `1e3`, `1E-05`; anything else is `None`.
    pub(crate) fn parse(text: &[u8]) -> Option<Decimal> {
        match Decimal::parse_prefix(text)? {
            (number, []) => Some(number),
            _ => None,
        }
    }

    /// Reads the number that `text` begins with, and returns what follows it.
    pub(crate) fn parse_prefix(text: &[u8]) -> Option<(Decimal, &[u8])> {
        if text.len() > MAX_NUMBER_LEN {
            return None;
        }
        let mut number = Decimal { digits: 0, exponent: 0 };
        // Digits are gathered in a u64, whose arithmetic costs a fraction of a u128's: five numbers are read per request.
        let (mut chunk, mut len) = (0_u64, 0_usize);
        let (mut point, mut end) = (None, text.len());
        for (at, byte) in text.iter().enumerate() {
            let digit = byte.wrapping_sub(b'0');
            if digit <= 9 {
                if len == CHUNK {
                    number.append(chunk, len);
                    (chunk, len) = (0, 0);
                }
                chunk = chunk.wrapping_mul(10).wrapping_add(digit.into()); // below 10^18
                // A leading zero is no digit to keep: it must not take the room of one.
                len = len.wrapping_add(usize::from(chunk != 0 || number.digits != 0));
            } else if *byte == b'.' && point.is_none() {
                point = Some(at);
            } else {
                end = at;
                break;
            }
        }
        number.append(chunk, len);
        let (whole, places) = match point {
            None => (end, 0),
            Some(at) => (at, end.checked_sub(at.saturating_add(1)).filter(|&places| places > 0)?),
        };
        if whole == 0 {
            return None;
        }
        number.exponent = number.exponent.saturating_sub_unsigned(places as u32); // at most MAX_NUMBER_LEN
        let mut rest = text.get(end..)?;
        if let [b'e' | b'E', exponent @ ..] = rest {
            let (exponent, after) = parse_exponent(exponent)?;
            number.exponent = number.exponent.saturating_add(exponent);
            rest = after;
        }
        Some((number, rest))
    }

    /// Appends `len` digits, at most [`CHUNK`], or counts them where there is no room: at least the first 36 digits that
    /// count are kept, of any balance and argument all that its nine places need.
    fn append(&mut self, chunk: u64, len: usize) {
        let grown = match self.digits {
            0 => Some(u128::from(chunk)),
            digits => power_of_ten(len as i32)
                .and_then(|power| digits.checked_mul(power))
                .and_then(|digits| digits.checked_add(u128::from(chunk)))
                .filter(|&digits| digits < DIGITS_LIMIT),
        };
        match grown {
            Some(digits) => self.digits = digits,
            None => self.exponent = self.exponent.saturating_add(len as i32),
        }
    }

    /// The value in units of 10^-`places`, rounded to nearest (a half goes up); `u128::MAX` when it does not fit.
    fn fixed(self, places: i32) -> u128 {
        let shift = self.exponent.saturating_add(places);
        if self.digits == 0 {
            0
        } else if shift >= 0 {
            power_of_ten(shift).and_then(|power| self.digits.checked_mul(power)).unwrap_or(u128::MAX)
        } else {
            // With 39 or more places to drop, the at most 38 digits are less than a tenth of a unit.
            power_of_ten(shift.saturating_neg())
                .and_then(|power| self.digits.saturating_add(power >> 1).checked_div(power))
                .unwrap_or(0)
        }
    }
}

/// Reads the exponent that `text` begins with, and returns what follows it.
fn parse_exponent(text: &[u8]) -> Option<(i32, &[u8])> {
    let (negative, text) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(end)?;
    if digits.is_empty() {
        return None;
    }
    // Beyond 10^100000 one exponent is as good as another; this keeps the sums that follow far from overflow.
    let size = digits.iter().fold(0_i32, |sum, digit| {
        sum.saturating_mul(10).saturating_add(i32::from(digit.wrapping_sub(b'0'))).min(100_000)
    });
    Some((if negative { size.saturating_neg() } else { size }, rest))
}

/// Reads a signed decimal in units of 10^-`places`, clamped to the `i128` range.
fn parse_signed(text: &[u8], places: i32) -> Option<i128> {
    let (negative, text) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let size = i128::try_from(Decimal::parse(text)?.fixed(places)).unwrap_or(i128::MAX);
    Some(if negative { size.saturating_neg() } else { size })
}

/// Reads a stored `ts` (Unix time in ms, possibly with decimals) as µs; `None` if it is not a number. A time before 1970
/// counts as 1970, one that does not fit as the last that does.
pub fn parse_stored_micros(text: &[u8]) -> Option<u64> {
    if let Some(millis) = parse_whole(text) {
        return Some(millis.wrapping_mul(1000)); // below 10^18
    }
    let micros = parse_signed(text, 3)?;
    Some(u64::try_from(micros.max(0)).unwrap_or(u64::MAX))
}

/// An amount of tokens, in whole nanotokens. Negative only as the balance of a bucket in debt.
///
/// ```
/// use redis_token_bucket_core::Tokens;
///
/// let amount = Tokens::parse(b"2.5e-1").unwrap();
/// assert_eq!(amount.nanos(), 250_000_000);
/// assert_eq!(amount.text().as_bytes(), b"0.25");
/// assert_eq!(Tokens::parse(b"-1"), None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tokens(i128);

impl Tokens {
    /// No tokens.
    pub const ZERO: Tokens = Tokens(0);
    /// One token.
    pub const ONE: Tokens = Tokens(NANOS_PER_TOKEN as i128);
    /// The largest amount an argument may name: [`MAX_TOKENS`].
    pub const MAX: Tokens = Tokens(MAX_TOKENS as i128 * NANOS_PER_TOKEN as i128);

    /// An amount given in nanotokens.
    pub const fn from_nanos(nanos: i128) -> Tokens {
        Tokens(nanos)
    }

    /// A whole number of tokens.
    pub const fn from_whole(tokens: u64) -> Tokens {
        Tokens((tokens as i128).wrapping_mul(NANOS_PER_TOKEN as i128)) // 64 bits by 30 bits
    }

    /// The amount in nanotokens.
    pub const fn nanos(self) -> i128 {
        self.0
    }

    /// Whole tokens, rounded down, never below 0.
    pub fn whole(self) -> u64 {
        let nanos = self.0.max(0).unsigned_abs();
        match u64::try_from(nanos) {
            Ok(small) => small / NANOS_PER_TOKEN,
            Err(_) => u64::try_from(nanos / WIDE_NANOS_PER_TOKEN).unwrap_or(u64::MAX),
        }
    }

    /// Reads a capacity, cost or amount: a decimal from 0 to [`MAX_TOKENS`], rounded to nine places. `None` for anything
    /// else, and for a value above 0 that would round to 0.
    pub fn parse(text: &[u8]) -> Option<Tokens> {
        if let Some(whole) = parse_whole(text) {
            return Some(Tokens::from_whole(whole));
        }
        let decimal = Decimal::parse(text)?;
        let nanos = i128::try_from(decimal.fixed(PLACES)).ok()?;
        let vanished = nanos == 0 && decimal.digits != 0;
        (nanos <= Tokens::MAX.0 && !vanished).then_some(Tokens(nanos))
    }

    /// Reads a stored balance: any decimal, negative ones too, clamped to what fits. `None` if it is not a number.
    pub fn parse_stored(text: &[u8]) -> Option<Tokens> {
        parse_signed(text, PLACES).map(Tokens)
    }

    /// The shortest exact decimal: at most nine places, no trailing zeros.
    pub fn text(self) -> NumberText {
        let nanos = self.0.unsigned_abs();

        let (whole, fraction) = match u64::try_from(nanos) {
            Ok(small) => (u128::from(small / NANOS_PER_TOKEN), small % NANOS_PER_TOKEN),
            Err(_) => (nanos / WIDE_NANOS_PER_TOKEN, (nanos % WIDE_NANOS_PER_TOKEN) as u64),
        };
        let mut text = NumberText::EMPTY;
        if fraction != 0 {
            let (mut fraction, mut places) = (fraction, PLACES);
            while fraction.is_multiple_of(10) {
                fraction /= 10;
                places = places.saturating_sub(1);
            }
            for _ in 0..places {
                text.push_front(b'0'.wrapping_add((fraction % 10) as u8));
                fraction /= 10;
            }
            text.push_front(b'.');
        }
        text.push_front_integer(whole);
        if self.0 < 0 {
            text.push_front(b'-');
        }
        text
    }
}

impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(text: &str) -> Option<i128> {
        Tokens::parse(text.as_bytes()).map(Tokens::nanos)
    }

    #[test]
    fn arguments_read_what_languages_print_for_a_number() {
        for (text, expected) in [
            ("0", 0),
            ("5", 5_000_000_000),
            ("0.25", 250_000_000),
            ("005.50", 5_500_000_000),
            ("1e3", 1_000_000_000_000),
            ("1E-05", 10_000),
            ("1.5e+2", 150_000_000_000),
            ("0.0000000005", 1),
            ("0.0000000014999", 1),
            ("9007199254740991", 9_007_199_254_740_991_000_000_000),
            ("9007199254740990.9999999999", 9_007_199_254_740_991_000_000_000),
            ("0e99999999999", 0),
            ("0.1000000000000000055511151231257827021181583404541015625", 100_000_000),
            ("12345678901234567890123456789012345678901e-35", 123_456_789_012_346),
            // Found by the fuzzer: zeros in front took the room of the last places.
            ("0000000000000009007199254740990.12345678900000000000000", 9_007_199_254_740_990_123_456_789),
        ] {
            assert_eq!(nanos(text), Some(expected), "{text:?}");
        }
    }

    #[test]
    fn whole_numbers_read_the_same_by_the_short_way() {
        for text in ["0", "7", "007", "999999999999999", "123456789012345"] {
            let decimal = Decimal::parse(text.as_bytes()).map(|decimal| decimal.digits);
            assert_eq!(parse_whole(text.as_bytes()).map(u128::from), decimal, "{text}");
        }
        for text in ["", "1000000000000000", "1.0", "1e3", "-1", " 1"] {
            assert_eq!(parse_whole(text.as_bytes()), None, "{text:?} is for the long way");
        }
    }

    #[test]
    fn arguments_refuse_everything_else() {
        for text in [
            "",
            " ",
            "5 ",
            " 5",
            "+5",
            "-5",
            "-0",
            "nan",
            "inf",
            "Infinity",
            "0x10",
            "5x",
            "5.",
            ".5",
            ".",
            "e5",
            "1e",
            "1e+",
            "1e-",
            "1e5.0",
            "1e1e1",
            "1.2.3",
            "1,5",
            "1_000",
            "\u{0665}",
            "5\n",
            "5\0",
            "0.0000000004",
            "1e-99999999999",
            "9007199254740991.1",
            "9007199254740992",
            "1e16",
            "1e99999999999",
            "--5",
            "5/1",
        ] {
            assert_eq!(nanos(text), None, "{text:?}");
        }
        let long = [b'0'; MAX_NUMBER_LEN + 1];
        assert_eq!(Tokens::parse(&long), None);
        assert_eq!(Tokens::parse(&long[1..]), Some(Tokens::ZERO));
    }

    #[test]
    fn stored_fields_read_what_scripts_write() {
        for (text, expected) in [
            ("-3.25", Some(-3_250_000_000)),
            ("4.9999999999999996", Some(5_000_000_000)),
            ("1e+15", Some(1_000_000_000_000_000_000_000_000)),
            ("-1e300", Some(-i128::MAX)),
            ("1e-300", Some(0)),
            ("nan", None),
            ("-inf", None),
            ("-", None),
            ("", None),
        ] {
            assert_eq!(Tokens::parse_stored(text.as_bytes()).map(Tokens::nanos), expected, "{text:?}");
        }
        for (text, expected) in [
            ("1700000000000", Some(1_700_000_000_000_000)),
            ("1700000000000.1234", Some(1_700_000_000_000_123)),
            ("1.7e+12", Some(1_700_000_000_000_000)),
            ("-5", Some(0)),
            ("1e300", Some(u64::MAX)),
            ("soon", None),
        ] {
            assert_eq!(parse_stored_micros(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn balances_print_with_at_most_nine_places_and_no_trailing_zero() {
        for (nanos, expected) in [
            (0, "0"),
            (1, "0.000000001"),
            (-1, "-0.000000001"),
            (10, "0.00000001"),
            (1_500_000_000, "1.5"),
            (-12_000_000_000, "-12"),
            (9_007_199_254_740_991_000_000_000, "9007199254740991"),
            (i128::MAX, "170141183460469231731687303715.884105727"),
            (i128::MIN, "-170141183460469231731687303715.884105728"),
        ] {
            assert_eq!(Tokens::from_nanos(nanos).text().as_str(), expected);
        }
        assert_eq!(NumberText::integer(u64::MAX).as_str(), "18446744073709551615");
        assert_eq!(NumberText::integer(0).as_str(), "0");
    }
}
