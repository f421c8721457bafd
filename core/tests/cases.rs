//! What users of other limiters reported, on the pure code, where time is exact. The same rows run on a real server in the
//! module's tests.

use redis_token_bucket_core::{Bucket, Limit, Outcome, Rate, Tokens};

use Outcome::{Allowed, Never, RetryAfter};

/// One bucket and a clock that the test sets.
struct Sim {
    now: u64,
    stored: Option<Bucket>,
}

impl Sim {
    fn new() -> Sim {
        Sim { now: 1_700_000_000_000_000, stored: None }
    }

    fn wait_ms(&mut self, millis: u64) {
        self.now += millis * 1000;
    }

    /// Takes, and answers outcome, remaining and reset after.
    fn take(&mut self, capacity: &str, rate: &str, cost: &str) -> (Outcome, u64, u64) {
        let limit = limit(capacity, rate);
        let level = limit.level(self.stored, self.now);
        let (decision, left) = level.take(tokens(cost));
        if let Some(left) = left {
            self.stored = Some(left.stored());
        }
        (decision.outcome, decision.remaining, decision.reset_after_ms)
    }

    fn outcome(&mut self, capacity: &str, rate: &str, cost: &str) -> Outcome {
        self.take(capacity, rate, cost).0
    }
}

fn tokens(text: &str) -> Tokens {
    Tokens::parse(text.as_bytes()).unwrap_or_else(|| panic!("{text:?} is no amount"))
}

fn limit(capacity: &str, rate: &str) -> Limit {
    let rate = Rate::parse(rate.as_bytes()).unwrap_or_else(|| panic!("{rate:?} is no rate"));
    Limit::new(tokens(capacity), rate).expect("a bucket that fills in time")
}

/// redis-cell#50
#[test]
fn thousands_a_second_are_limited() {
    let mut sim = Sim::new();
    assert_eq!(sim.take("6001", "6000", "1").1, 6000);
    assert_eq!(sim.take("6001", "6000", "1").1, 5999);
}

/// redis-cell#12
#[test]
fn a_hundred_a_second_lets_no_more_through() {
    let mut sim = Sim::new();
    let end = sim.now + 3_660_000;
    let mut granted = 0;
    while sim.now <= end {
        granted += u32::from(sim.outcome("11", "100", "1") == Allowed);
        sim.now += 50;
    }
    assert_eq!(granted, 11 + 366);
}

/// redis#14826
#[test]
fn a_wait_of_a_tenth_of_a_second_is_told() {
    let mut sim = Sim::new();
    sim.take("1", "10", "1");
    assert_eq!(sim.outcome("1", "10", "1"), RetryAfter(100));
}

/// redis-cell#56
#[test]
fn waiting_as_told_never_meets_a_second_denial() {
    let mut sim = Sim::new();
    sim.take("1", "0.4", "1");
    assert_eq!(sim.outcome("1", "0.4", "1"), RetryAfter(2500));
    sim.wait_ms(2499);
    assert_eq!(sim.outcome("1", "0.4", "1"), RetryAfter(1));
    sim.wait_ms(1);
    assert_eq!(sim.outcome("1", "0.4", "1"), Allowed);
}

/// dragonfly#8288
#[test]
fn whole_seconds_get_no_second_added() {
    assert_eq!(Sim::new().take("1", "0.5", "1"), (Allowed, 0, 2000));
}

/// dragonfly#5682
#[test]
fn more_than_a_thousand_a_second_is_a_rate() {
    assert_eq!(Sim::new().take("11", "1001", "1").1, 10);
}

/// spring-cloud-gateway#87
#[test]
fn less_than_one_a_second_is_a_rate() {
    let mut sim = Sim::new();
    sim.take("1", "0.1", "1");
    assert_eq!(sim.outcome("1", "0.1", "1"), RetryAfter(10_000));
    sim.wait_ms(2000);
    assert_eq!(sim.outcome("1", "0.1", "1"), RetryAfter(8000));
    sim.wait_ms(8000);
    assert_eq!(sim.outcome("1", "0.1", "1"), Allowed);
}

/// pulsar#25262
#[test]
fn hundreds_of_millions_do_not_overflow() {
    let mut sim = Sim::new();
    assert_eq!(sim.take("980000000", "98000000", "1").1, 979_999_999);
    sim.wait_ms(10_000);
    assert_eq!(sim.take("980000000", "98000000", "1").1, 979_999_999);
}

/// bucket4j#88
#[test]
fn a_part_grown_token_shortens_the_wait() {
    let mut sim = Sim::new();
    sim.take("1", "1", "1");
    sim.wait_ms(200);
    assert_eq!(sim.outcome("1", "1", "1"), RetryAfter(800));
}

/// valkey-go#173. A third of a second is no whole number of µs: two calls in three come less than a µs early, and the third
/// finds the bucket as full as if none had.
#[test]
fn sums_do_not_drift() {
    let mut sim = Sim::new();
    let start = sim.now;
    for call in 0..300 {
        sim.now = start + call * 1_000_000 / 3;
        let (outcome, remaining, _) = sim.take("100", "3", "1");
        assert_eq!((outcome, remaining), (Allowed, if call % 3 == 0 { 99 } else { 98 }), "call {call}");
    }
}

/// symfony#47676
#[test]
fn refill_does_not_wait_for_a_whole_second() {
    let mut sim = Sim::new();
    assert_eq!(sim.take("10", "2", "1").1, 9);
    sim.wait_ms(600);
    let (outcome, remaining, _) = sim.take("10", "2", "10");
    assert_eq!((outcome, remaining), (Allowed, 0));
}

/// redis-gcra#3
#[test]
fn it_does_not_open_half_an_interval_early() {
    let mut sim = Sim::new();
    for _ in 0..6 {
        assert_eq!(sim.outcome("6", "0.1", "1"), Allowed);
    }
    assert_eq!(sim.outcome("6", "0.1", "1"), RetryAfter(10_000));
    sim.wait_ms(5000);
    assert_eq!(sim.outcome("6", "0.1", "1"), RetryAfter(5000));
}

/// No floor anywhere.
#[test]
fn a_pace_below_the_rate_is_never_denied() {
    let mut sim = Sim::new();
    for call in 0..1000 {
        assert_eq!(sim.outcome("10", "1", "1"), Allowed, "call {call}");
        sim.wait_ms(1100);
    }
}

/// redis#15113
#[test]
fn a_cost_above_capacity_is_never_allowed_and_changes_nothing() {
    let mut sim = Sim::new();
    assert_eq!(sim.take("6", "1/60", "10"), (Never, 6, 0));
    assert_eq!(sim.stored, None);
}

/// bucket4j#220
#[test]
fn never_is_not_a_number_of_milliseconds() {
    assert_eq!(Sim::new().outcome("3", "1.5", "4"), Never);
}

/// redis-cell#41
#[test]
fn capacity_0_is_closed() {
    assert_eq!(Sim::new().take("0", "1", "1"), (Never, 0, 0));
}

/// node-rate-limiter-flexible#286
#[test]
fn a_denial_leaves_the_bucket_as_it_was() {
    let mut sim = Sim::new();
    let outcomes = ["7", "7", "3"].map(|cost| sim.outcome("10", "1", cost) == Allowed);
    assert_eq!(outcomes, [true, false, true]);
}

/// redis_rate#24
#[test]
fn the_bound_is_capacity_plus_refill() {
    let mut sim = Sim::new();
    let end = sim.now + 30_000_000;
    let mut granted = 0;
    while sim.now <= end {
        granted += u32::from(sim.outcome("17", "17/30", "1") == Allowed);
        sim.now += 997;
    }
    assert!((33..=34).contains(&granted), "{granted} granted in 30 s");
}

/// tbmq#355
#[test]
fn new_limits_apply_at_once() {
    let mut sim = Sim::new();
    sim.take("5", "1", "5");
    sim.wait_ms(1000);
    let (outcome, remaining, _) = sim.take("50", "10", "1");
    assert_eq!((outcome, remaining), (Allowed, 9));
}

/// bucket4j#419
#[test]
fn a_raised_capacity_leaves_the_balance_and_a_lowered_one_clips_it() {
    let mut sim = Sim::new();
    sim.take("100", "1", "60");
    assert_eq!(sim.take("200", "1", "0").1, 40);
    sim.wait_ms(1000);
    assert_eq!(sim.take("200", "1", "0").1, 41);
    assert_eq!(sim.take("30", "1", "0").1, 30);
}

/// go-zero#4072
#[test]
fn an_older_clock_grants_nothing_twice() {
    let mut sim = Sim::new();
    let start = sim.now;
    let mut takes = |at_ms: u64, count: u32| -> Vec<Outcome> {
        sim.now = start + at_ms * 1000;
        (0..count).map(|_| sim.outcome("5", "5", "1")).collect()
    };
    assert_eq!(takes(1000, 5), [Allowed; 5]);
    assert_eq!(takes(2000, 4), [Allowed; 4]);
    assert_eq!(takes(1000, 1), [Allowed; 1]);
    assert_eq!(takes(2000, 4), [RetryAfter(200); 4]);
}

/// glide-mq#281
#[test]
fn idle_time_at_full_is_no_credit() {
    let mut sim = Sim::new();
    sim.take("5", "1", "1");
    sim.wait_ms(86_400_000);
    assert_eq!(sim.outcome("5", "1", "5"), Allowed);
    assert_eq!(sim.outcome("5", "1", "5"), RetryAfter(5000));
}

/// The design: one token at 10 000/s really is 10 000 a second, called every 100 µs.
#[test]
fn ten_thousand_a_second_are_ten_thousand() {
    let mut sim = Sim::new();
    for call in 0..10_000 {
        assert_eq!(sim.outcome("1", "10000", "1"), Allowed, "call {call}");
        sim.now += 100;
    }
}

/// A stored time that no clock gave cannot freeze a bucket.
#[test]
fn a_wild_time_is_taken_as_now() {
    let limit = limit("5", "1");
    let now = Sim::new().now;
    let wild = |ahead_ms: u64| Some(Bucket { tokens: Tokens::ZERO, at: now + ahead_ms * 1000 });

    let kept = limit.level(wild(5000), now);
    assert!(!kept.repaired());
    assert_eq!(kept.outcome(tokens("1")), RetryAfter(6000), "the clock may come back to it");

    let repaired = limit.level(wild(5001), now);
    assert!(repaired.repaired());
    assert_eq!(repaired.outcome(tokens("1")), RetryAfter(1000));
    assert_eq!(repaired.stored().at, now);
}
