//! Decisions against a naive oracle: the contract in exact rational arithmetic, with no thought of speed.

mod exact;

use num_rational::BigRational;
use proptest::collection::vec;
use proptest::prelude::*;
use redis_token_bucket_core::{Bucket, Limit, Outcome, Rate, Tokens};

use exact::{Operation, START, Step, compare, exact, ratio};

fn tokens(text: &str) -> Tokens {
    Tokens::parse(text.as_bytes()).unwrap_or_else(|| panic!("{text:?} is no amount"))
}

/// A rate as text and as the ratio that it is.
fn rates() -> impl Strategy<Value = (String, BigRational)> {
    let units = prop_oneof![
        Just(("ms", 1)),
        Just(("s", 1_000)),
        Just(("m", 60_000)),
        Just(("h", 3_600_000)),
        Just(("d", 86_400_000))
    ];
    prop_oneof![
        (1..=1_000_000_i128).prop_map(|n| (n.to_string(), ratio(n, 1))),
        (1..=1_000_000_i128, 1..=9_u32).prop_map(|(n, e)| (format!("{n}e-{e}"), ratio(n, 10_i128.pow(e)))),
        (1..=1_000_000_i128, 1..=100_i128, units)
            .prop_map(|(n, k, (unit, ms))| (format!("{n}/{k}{unit}"), ratio(n * 1000, k * ms))),
        (1..=9_007_199_254_740_991_i128).prop_map(|n| (n.to_string(), ratio(n, 1))),
    ]
}

fn amounts() -> impl Strategy<Value = Tokens> {
    prop_oneof![
        4 => (0..=200_i128).prop_map(|n| Tokens::from_nanos(n * 1_000_000_000)),
        2 => (0..=50_000_000_000_i128).prop_map(Tokens::from_nanos),
        1 => (0..=Tokens::MAX.nanos()).prop_map(Tokens::from_nanos),
    ]
}

/// Limits that the contract accepts.
fn limits() -> impl Strategy<Value = (Tokens, String, BigRational)> {
    (amounts(), rates())
        .prop_map(|(capacity, (text, rate))| (capacity, text, rate))
        .prop_filter("fills within 100 years", |(capacity, _, rate)| {
            exact(*capacity) / rate <= ratio(3_155_760_000, 1)
        })
}

/// Steps of the clock in µs: mostly forward, sometimes back, on and off the whole millisecond.
fn steps() -> impl Strategy<Value = i64> {
    prop_oneof![
        3 => 0..5_000_i64,
        3 => 0..5_000_000_i64,
        2 => (0..10_000_i64).prop_map(|ms| ms * 1000),
        1 => 0..1_000_000_000_000_i64,
        1 => -3_000_000..0_i64,
    ]
}

fn operations() -> impl Strategy<Value = Operation> {
    prop_oneof![4 => Just(Operation::Take), 1 => Just(Operation::Give), 1 => Just(Operation::Charge)]
}

fn scripts(changing: bool) -> impl Strategy<Value = Vec<Step>> {
    let limit = prop::option::weighted(0.2, limits());
    vec((steps(), operations(), amounts(), limit), 1..60).prop_map(move |steps| {
        let step = |(wait, operation, cost, limit): (_, _, _, Option<_>)| Step {
            wait,
            operation,
            cost,
            limit: limit.filter(|_| changing),
        };
        steps.into_iter().map(step).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn every_answer_is_the_exact_one_to_within_a_nanotoken(limit in limits(), script in scripts(false)) {
        compare(limit, script).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn limits_may_change_at_every_call(limit in limits(), script in scripts(true)) {
        compare(limit, script).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn it_is_denied_until_exactly_retry_after_and_then_allowed(
        (capacity, text, _) in limits(), takes in vec((steps(), amounts()), 1..20), cost in amounts()
    ) {
        let limit = Limit::new(capacity, Rate::parse(text.as_bytes()).unwrap()).unwrap();
        let (mut now, mut stored) = (START, None);
        for (wait, cost) in takes {
            now = now.saturating_add_signed(wait);
            if let (_, Some(left)) = limit.level(stored, now).take(cost.min(capacity)) {
                stored = Some(left.stored());
            }
        }
        let level = limit.level(stored, now);
        if level.repaired() {
            stored = Some(level.stored());
        }
        if let Outcome::RetryAfter(millis) = level.outcome(cost) {
            let then = now + millis * 1000;
            prop_assert_eq!(limit.level(stored, then).outcome(cost), Outcome::Allowed);
            prop_assert_eq!(limit.level(stored, then - 1000).outcome(cost), Outcome::RetryAfter(1));
        }
        let reset = limit.level(stored, now).decision(Outcome::Allowed).reset_after_ms;
        let reset_at = |millis: u64| limit.level(stored, now + millis * 1000).decision(Outcome::Allowed).reset_after_ms;
        prop_assert_eq!(reset_at(reset), 0);
        if reset > 0 {
            prop_assert_eq!(reset_at(reset - 1), 1);
        }
    }

    #[test]
    fn no_span_of_time_grants_more_than_capacity_and_refill(
        (capacity, text, rate) in limits(), takes in vec((0..3_000_000_u64, amounts()), 1..100)
    ) {
        let limit = Limit::new(capacity, Rate::parse(text.as_bytes()).unwrap()).unwrap();
        let (mut now, mut stored) = (START, None);
        let mut granted: Vec<(u64, BigRational)> = Vec::new();
        for (wait, cost) in takes {
            now += wait;
            if let (_, Some(left)) = limit.level(stored, now).take(cost) {
                stored = Some(left.stored());
                granted.push((now, exact(cost)));
            }
        }
        for (i, (start, _)) in granted.iter().enumerate() {
            let mut sum = ratio(0, 1);
            for (end, cost) in &granted[i..] {
                sum += cost;
                let elapsed = ratio((end - start).into(), 1_000_000);
                let bound = exact(capacity) + &rate * elapsed + ratio(1, 1_000_000_000);
                prop_assert!(sum <= bound, "{} granted where {} is the bound", sum, bound);
            }
        }
    }

    #[test]
    fn any_stored_value_and_time_is_answered(
        nanos: i128, at: u64, now: u64, (capacity, text, _) in limits(), cost in amounts()
    ) {
        let limit = Limit::new(capacity, Rate::parse(text.as_bytes()).unwrap()).unwrap();
        let level = limit.level(Some(Bucket { tokens: Tokens::from_nanos(nanos), at }), now);
        let (decision, left) = level.take(cost);
        prop_assert_eq!(decision.outcome == Outcome::Allowed, left.is_some());
        let stored = left.unwrap_or(level).stored();
        prop_assert!(stored.at % 1000 == 0 && stored.tokens <= capacity);
        let text = stored.tokens.text();
        prop_assert_eq!(Tokens::parse_stored(text.as_bytes()), Some(stored.tokens));
    }
}

#[test]
fn a_million_calls_lose_nothing_of_the_refill() {
    // A seventh of a token a second, asked every 7 µs: each call refills a nanotoken, not 1.0 nor 0.
    let limit = Limit::new(tokens("10"), Rate::parse(b"1/7").unwrap()).unwrap();
    let mut stored = limit.level(None, START).minus(tokens("10")).stored();
    for call in 1..=1_000_000 {
        let level = limit.level(Some(stored), START + call * 7);
        stored = level.minus(Tokens::ZERO).stored();
    }
    let level = limit.level(Some(stored), START + 7_000_000);
    assert_eq!(level.outcome(tokens("1")), Outcome::Allowed, "seven seconds must refill one token");
    assert_ne!(level.outcome(tokens("1.000000001")), Outcome::Allowed, "and not a nanotoken more");
}

proptest! {
    /// The bucket of a limiter that stores only when it is full, as redis-cell does.
    #[test]
    fn a_bucket_known_by_when_it_is_full_lacks_what_comes_in_until_then(
        capacity in 1..=1_000_000_u64,
        count in 1..=1_000_000_000_u64,
        period in 1..=100_000_u64,
        ahead in 0..=100_000_000_000_u64,
    ) {
        let rate = Rate::per_seconds(count.try_into().unwrap(), period.try_into().unwrap());
        let Ok(limit) = Limit::new(Tokens::from_whole(capacity), rate) else { return Ok(()) };
        let bucket = limit.bucket_full_at(START + ahead, START);
        let missing = ratio(ahead.into(), 1_000_000) * ratio(count.into(), period.into());
        let error = ratio(capacity.into(), 1) - missing - exact(bucket.tokens);
        prop_assert!(error < ratio(1, 1_000_000_000) && error > ratio(-1, 1_000_000_000), "{error} tokens off");

        let full_at = |at: u64| limit.level(Some(bucket), at).is_full();
        prop_assert!(full_at(START + ahead));
        let until_full = limit.level(Some(bucket), START).micros_until(limit.capacity());
        prop_assert!(until_full <= ahead && full_at(START + until_full));
        prop_assert!(until_full == 0 || !full_at(START + until_full - 1));

        let written = Limit::new(limit.capacity(), Rate::parse(format!("{count}/{period}").as_bytes()).unwrap());
        prop_assert_eq!(written.unwrap().bucket_full_at(START + ahead, START), bucket);
    }
}
