//! What the fuzzers check, as functions of bytes. `fuzz_targets/` hands these to libFuzzer; the test below runs them over the
//! committed corpus, so that what was found once is tested ever after by any compiler.
//!
//! Each compares with something naive: numbers are read again by a reader in big rationals, decisions are made again by the
//! oracle of the core's property tests.
#![forbid(unsafe_code)]

#[path = "../../core/tests/exact/mod.rs"]
mod exact;
mod naive;
mod operations;

use num_rational::BigRational;
use redis_token_bucket_core::{
    Bucket, FILL_LIMIT_MICROS, Limit, MAX_TOKENS, Outcome, Rate, Tokens, parse_stored_micros,
};

use exact::{exact, ratio};
pub use operations::operations;

/// A capacity, cost, amount or stored number: read as the grammar says, to the last nanotoken, and printed so that it is read
/// again as the same.
pub fn number(text: &[u8]) {
    let shown = text.escape_ascii();
    let value = naive::signed_decimal(text);

    let argument = value.clone().filter(|_| !text.starts_with(b"-")).and_then(|value| {
        let nanos = naive::round(&(&value * ratio(1_000_000_000, 1)));
        let vanishes = nanos == ratio(0, 1) && value > ratio(0, 1);
        (nanos <= ratio(i128::from(MAX_TOKENS) * 1_000_000_000, 1) && !vanishes).then_some(nanos)
    });
    let parsed = Tokens::parse(text);
    assert_eq!(parsed.map(|tokens| ratio(tokens.nanos(), 1)), argument, "argument {shown}");

    let stored = Tokens::parse_stored(text);
    assert_eq!(stored.is_some(), value.is_some(), "stored tokens {shown}");
    let micros = parse_stored_micros(text);
    assert_eq!(micros.is_some(), value.is_some(), "stored ts {shown}");
    if let (Some(value), Some(stored), Some(micros)) = (value, stored, micros) {
        // 36 digits are kept of any number; that is every nanotoken of a balance that a bucket can hold.
        let nanos = naive::clamp(&(&value * ratio(1_000_000_000, 1)), i128::MIN + 1, i128::MAX);
        let error = naive::distance(&ratio(stored.nanos(), 1), &nanos);
        let size = naive::distance(&nanos, &ratio(0, 1));
        assert!(
            error <= ratio(1, 2) || error * ratio(10_i128.pow(35), 1) <= size,
            "stored tokens {shown}: {stored}"
        );
        let exact = naive::clamp(&naive::round(&(value * ratio(1000, 1))), 0, i128::from(u64::MAX));
        assert_eq!(ratio(micros.into(), 1), exact, "stored ts {shown}");
        // As far as a debt goes, and further than a capacity.
        if stored.nanos().unsigned_abs() <= 10_u128.pow(37) {
            assert_eq!(Tokens::parse_stored(stored.text().as_bytes()), Some(stored), "printed {stored}");
        }
    }
}

/// `capacity rate cost`, separated by blanks: accepted exactly when the contract does, and filling in exactly the time that the
/// ratio says.
pub fn request(text: &[u8]) {
    let mut words = text.split(|byte| *byte == b' ');
    let (Some(capacity), Some(rate_text), Some(cost)) = (words.next(), words.next(), words.next()) else {
        return;
    };
    let shown = text.escape_ascii();
    let exact_rate = naive::rate(rate_text);
    let rate = Rate::parse(rate_text);
    assert_eq!(rate.is_some(), exact_rate.is_some(), "rate of {shown}");
    let (Some(rate), Some(exact_rate)) = (rate, exact_rate) else { return };
    let (Some(capacity), Some(cost)) = (Tokens::parse(capacity), Tokens::parse(cost)) else { return };

    let fill = exact(capacity) / &exact_rate.value * ratio(1_000_000, 1);
    // What a rate may be off by: see README, "rate".
    let allowed = |fill: &BigRational| fill * &exact_rate.relative_error;
    let longest = ratio(FILL_LIMIT_MICROS.into(), 1);
    let Ok(limit) = Limit::new(capacity, rate) else {
        assert!(&fill + allowed(&fill) > longest, "{shown} was refused, but fills in {fill} µs");
        return;
    };
    assert!(&fill - allowed(&fill) <= longest, "{shown} was accepted, but fills in {fill} µs");
    let micros = ratio(limit.fill_micros().into(), 1);
    let (early, late) = (&fill - allowed(&fill), &fill + allowed(&fill));
    assert!(
        early <= micros && micros < late + ratio(1, 1),
        "{shown} fills in {micros} µs, exactly in {fill}"
    );

    let level = limit.level(None, exact::START);
    let (decision, left) = level.take(cost);
    let expected = if cost <= capacity { Outcome::Allowed } else { Outcome::Never };
    assert_eq!(decision.outcome, expected, "{shown} of a full bucket");
    let held = if left.is_some() { exact(capacity) - exact(cost) } else { exact(capacity) };
    assert_eq!(ratio(decision.remaining.into(), 1), held.floor(), "{shown}: remaining");
}

/// `tokens ts`, separated by a blank, as a script may have left them: whatever they are, there is an answer, what is stored
/// next is a sound bucket, and a denial's wait is the right one.
pub fn stored(text: &[u8]) {
    let mut words = text.split(|byte| *byte == b' ');
    let (Some(tokens), Some(ts)) = (words.next(), words.next()) else { return };
    let (Some(tokens), Some(at)) = (Tokens::parse_stored(tokens), parse_stored_micros(ts)) else { return };
    let shown = text.escape_ascii();
    let bucket = Some(Bucket { tokens, at });
    for (capacity, rate) in
        [("10", "1"), ("9007199254740991", "9007199254740991"), ("0.5", "1/7d"), ("0", "3/m")]
    {
        let capacity = Tokens::parse(capacity.as_bytes()).expect("a capacity");
        let limit = Limit::new(capacity, Rate::parse(rate.as_bytes()).expect("a rate")).expect("a limit");
        let level = limit.level(bucket, exact::START);
        for cost in [Tokens::ZERO, Tokens::from_nanos(1), Tokens::ONE, capacity] {
            let (decision, left) = level.take(cost);
            assert_eq!(decision.outcome == Outcome::Allowed, left.is_some(), "{shown}");
            assert!(decision.remaining <= capacity.whole(), "{shown}: {} remain", decision.remaining);
            let after = left.unwrap_or(level).stored();
            assert!(after.tokens <= capacity && after.at % 1000 == 0, "{shown} is stored as {after:?}");
            assert_eq!(Tokens::parse_stored(after.tokens.text().as_bytes()), Some(after.tokens), "{shown}");
            if let Outcome::RetryAfter(millis) = decision.outcome {
                assert!(cost <= capacity && millis > 0, "{shown}");
                // Where even the longest wait is too short, there is no moment to test.
                let kept = if level.repaired() { Some(level.stored()) } else { bucket };
                if millis < redis_token_bucket_core::MAX_MILLIS {
                    let then = exact::START + millis * 1000;
                    assert_eq!(
                        limit.level(kept, then).outcome(cost),
                        Outcome::Allowed,
                        "{shown} after {millis} ms"
                    );
                    let before = limit.level(kept, then - 1000).outcome(cost);
                    assert_eq!(before, Outcome::RetryAfter(1), "{shown} a ms before {millis} ms");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    fn replay(target: &str, run: impl Fn(&[u8])) {
        let mut inputs = 0;
        for kind in ["corpus", "found"] {
            let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(kind).join(target);
            for entry in fs::read_dir(&dir).into_iter().flatten() {
                let path = entry.expect("an entry of the corpus").path();
                run(&fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
                inputs += 1;
            }
        }
        assert!(inputs > 10, "only {inputs} inputs for {target}: is the corpus there?");
    }

    #[test]
    fn the_corpus_of_numbers_holds() {
        replay("number", super::number);
    }

    #[test]
    fn the_corpus_of_requests_holds() {
        replay("request", super::request);
    }

    #[test]
    fn the_corpus_of_stored_fields_holds() {
        replay("stored", super::stored);
    }

    #[test]
    fn the_corpus_of_operations_holds() {
        replay("operations", super::operations);
    }
}
