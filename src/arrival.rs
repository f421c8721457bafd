//! What redis-cell stores: a string with the theoretical arrival time of its next evenly spaced request.
//!
//! That is the time at which the bucket is full again, in nanoseconds since 1970, in decimal. Nothing else is stored: the
//! limit comes with each call.

/// The longest that is read, in bytes: what 64 bits need.
pub(crate) const MAX_LEN: usize = 20;

/// 2001-09-09. Any server's clock is later, and so is every arrival time; a smaller number is some other program's counter,
/// which redis-cell would read as a bucket that has long been full, and overwrite.
const EARLIEST_NANOS: u64 = 1_000_000_000_000_000_000;

const NANOS_PER_MICRO: u64 = 1_000;

/// Reads an arrival time as µs, rounded up, since a bucket that is full later grants nothing twice; `None` if it is none.
pub(crate) fn parse_micros(text: &[u8]) -> Option<u64> {
    let [b'1'..=b'9', rest @ ..] = text else { return None };
    if !rest.iter().all(u8::is_ascii_digit) {
        return None; // a sign or a zero in front would be read below
    }
    let nanos: u64 = str::from_utf8(text).ok()?.parse().ok()?;
    (nanos >= EARLIEST_NANOS).then_some(nanos.div_ceil(NANOS_PER_MICRO))
}
