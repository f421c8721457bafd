//! What users of other limiters reported, on a real server. The exact figures of each are in the core crate's tests.

use std::time::{Duration, Instant};

use harness::Ask;

use crate::bucket::{Bench, Reply, Timed};

/// Two takes in one transaction, between which next to no time passes.
fn take_twice(bench: &mut Bench, words: &[&str]) -> [Reply; 2] {
    let mut transaction = harness::redis::pipe();
    transaction.atomic().cmd("RL.TAKE").arg(words).cmd("RL.TAKE").arg(words);
    let (first, second) = transaction.query(&mut bench.connection).unwrap();
    [first, second]
}

/// redis-cell#50
#[test]
fn thousands_a_second_are_limited_and_expire_after_a_second() {
    let mut bench = Bench::new();
    let timed = Timed::start();
    let [first, second] = take_twice(&mut bench, &["k", "6001", "6000", "1"]);
    assert_eq!(first[1], 6000);
    // Six tokens a millisecond come back.
    assert!((5999..=6000).contains(&second[1]), "{second:?}");
    timed.assert_millis(bench.connection.ask("PTTL k"), 1002);
}

/// redis-cell#12, for as long as the report says, as fast as the server answers.
#[test]
fn a_hundred_a_second_lets_no_more_through() {
    let mut bench = Bench::new();
    let mut batch = harness::redis::pipe();
    for _ in 0..100 {
        batch.cmd("RL.TAKE").arg(&["k", "11", "100", "1"]);
    }
    let start = Instant::now();
    let (mut granted, mut lost, mut sent) = (0, 0.0, start);
    while start.elapsed() < Duration::from_millis(1000) {
        let before = sent;
        sent = Instant::now();
        let replies: Vec<[i64; 4]> = batch.query(&mut bench.connection).unwrap();
        granted += replies.iter().map(|reply| reply[0]).sum::<i64>();
        // Each batch empties the bucket, which is full again when the client is held up for long enough.
        lost += (before.elapsed().as_secs_f64() * 100.0 - 11.0).max(0.0);
    }
    let most = 11 + (start.elapsed().as_secs_f64() * 100.0) as i64;
    let least = 10 + ((sent - start).as_secs_f64() * 100.0 - lost) as i64;
    assert!((least..=most).contains(&granted), "{granted} granted, not {least} to {most}");
}

/// redis#14826
#[test]
fn a_wait_of_a_tenth_of_a_second_is_told() {
    let mut bench = Bench::new();
    let timed = Timed::start();
    let [_, [allowed, _, retry, _]] = take_twice(&mut bench, &["k", "1", "10", "1"]);
    assert_eq!(allowed, 0);
    timed.assert_millis(retry, 100);
}

/// redis-cell#56
#[test]
fn waiting_as_told_never_meets_a_second_denial() {
    let mut bench = Bench::new();
    let timed = Timed::start();
    bench.take("k 1 0.4 1");
    let [allowed, _, retry, _] = bench.take("k 1 0.4 1");
    assert_eq!(allowed, 0);
    timed.assert_millis(retry, 2500);
    bench.pass("k", retry);
    assert_eq!(bench.take("k 1 0.4 1")[0], 1);
}

/// dragonfly#8288
#[test]
fn whole_seconds_get_no_second_added() {
    assert_eq!(Bench::new().take("k 1 0.5 1"), [1, 0, 0, 2000]);
}

/// dragonfly#5682
#[test]
fn more_than_a_thousand_a_second_is_a_rate() {
    assert_eq!(Bench::new().take("k 11 1001 1"), [1, 10, 0, 1]);
}

/// spring-cloud-gateway#87
#[test]
fn less_than_one_a_second_is_a_rate() {
    let mut bench = Bench::new();
    let timed = Timed::start();
    bench.take("k 1 0.1 1");
    timed.assert_millis(bench.take("k 1 0.1 1")[2], 10_000);
    bench.pass("k", 2000);
    timed.assert_millis(bench.take("k 1 0.1 1")[2], 8000);
    bench.pass("k", 8000);
    assert_eq!(bench.take("k 1 0.1 1")[0], 1);
}

/// pulsar#25262
#[test]
fn hundreds_of_millions_do_not_overflow() {
    let mut bench = Bench::new();
    assert_eq!(bench.take("k 980000000 98000000 1")[1], 979_999_999);
    bench.pass("k", 10_000);
    assert_eq!(bench.take("k 980000000 98000000 1")[1], 979_999_999);
}

/// bucket4j#88
#[test]
fn a_part_grown_token_shortens_the_wait() {
    let mut bench = Bench::new();
    let timed = Timed::start();
    bench.take("k 1 1 1");
    bench.pass("k", 200);
    timed.assert_millis(bench.take("k 1 1 1")[2], 800);
}

/// valkey-go#173
#[test]
fn sums_do_not_drift() {
    let mut bench = Bench::new();
    for call in 0..300 {
        assert_eq!(bench.take("k 100 3 1")[0], 1, "call {call}");
        bench.pass("k", 333 + i64::from(call % 3 == 2));
    }
    assert!(bench.peek("k 100 3 1")[1] >= 98, "{:?}", bench.fields("k"));
}

/// symfony#47676
#[test]
fn refill_does_not_wait_for_a_whole_second() {
    let mut bench = Bench::new();
    bench.take("k 10 2 1");
    bench.pass("k", 600);
    assert_eq!(bench.take("k 10 2 10")[..2], [1, 0]);
}

/// redis-gcra#3
#[test]
fn it_does_not_open_half_an_interval_early() {
    let mut bench = Bench::new();
    let timed = Timed::start();
    for _ in 0..6 {
        assert_eq!(bench.take("k 6 0.1 1")[0], 1);
    }
    timed.assert_millis(bench.take("k 6 0.1 1")[2], 10_000);
    bench.pass("k", 5000);
    timed.assert_millis(bench.take("k 6 0.1 1")[2], 5000);
}

/// No floor anywhere.
#[test]
fn a_pace_below_the_rate_is_never_denied() {
    let mut bench = Bench::new();
    for call in 0..1000 {
        assert_eq!(bench.take("k 10 1 1")[0], 1, "call {call}");
        bench.pass("k", 1100);
    }
}

/// redis#15113
#[test]
fn a_cost_above_capacity_is_never_allowed_and_makes_no_key() {
    let mut bench = Bench::new();
    assert_eq!(bench.take("k 6 1/60 10"), [0, 6, -1, 0]);
    assert!(!bench.exists("k"));
}

/// bucket4j#220
#[test]
fn never_is_not_a_number_of_milliseconds() {
    assert_eq!(Bench::new().take("k 3 1.5 4")[2], -1);
}

/// dragonfly#7128
#[test]
fn a_cost_of_0_makes_no_key_and_replicates_nothing() {
    let master = harness::Server::builder().tcp().start();
    let _replica = harness::Server::builder().start_replica_of(&master);
    let mut bench = Bench::on(master);
    let before = bench.server.replication_offset();
    assert_eq!(bench.take("k 5 1 0"), [1, 5, 0, 0]);
    assert!(!bench.exists("k"));
    assert_eq!(bench.server.replication_offset(), before);
}

/// redis-cell#22, for RL.TAKE
#[test]
fn a_negative_cost_mints_no_tokens() {
    let mut bench = Bench::new();
    bench.take("k 5 1 5");
    let before = bench.everything();
    let error = bench.connection.ask_error("RL.TAKE k 5 1 -100");
    assert_eq!(error, "ERR cost must be a number from 0 to 9007199254740991");
    assert_eq!(bench.everything(), before);
}

/// redis-cell#41, redis-cell#42
#[test]
fn limits_of_0_are_an_error_or_a_closed_bucket_and_the_server_lives() {
    let mut bench = Bench::new();
    let rate = "ERR rate must be tokens per second above 0, or tokens/period such as 100/m";
    assert_eq!(bench.connection.ask_error("RL.TAKE k 0 0 1"), rate);
    assert_eq!(bench.connection.ask_error("RL.TAKE k 5 0 1"), rate);
    assert_eq!(bench.take("k 0 1 1"), [0, 0, -1, 0]);
    assert_eq!(bench.connection.ask::<String>("PING"), "PONG");
}

/// node-rate-limiter-flexible#286
#[test]
fn a_denial_leaves_the_bucket_as_it_was() {
    let mut bench = Bench::new();
    let allowed = ["7", "7", "3"].map(|cost| bench.take(&format!("k 10 1 {cost}"))[0]);
    assert_eq!(allowed, [1, 0, 1]);
}

/// redis_rate#24. The 30 s are moved through in steps of 100 ms.
#[test]
fn the_bound_is_capacity_plus_refill() {
    let mut bench = Bench::new();
    let timed = Instant::now();
    let mut granted = 0;
    for _ in 0..300 {
        granted += bench.take("k 17 17/30 1")[0];
        bench.pass("k", 100);
    }
    let bound = 17 + (17.0 / 30.0 * (30.0 + timed.elapsed().as_secs_f64())) as i64;
    assert!(granted <= bound, "{granted} granted, {bound} is the bound");
    assert!(granted >= 33, "only {granted} granted");
}

/// tbmq#355
#[test]
fn new_limits_apply_at_once() {
    let mut bench = Bench::new();
    let start = Instant::now();
    bench.take("k 5 1 5");
    bench.pass("k", 1000);
    let [allowed, remaining, ..] = bench.take("k 50 10 1");
    // Ten for the second, and what really passed.
    let most = 9 + (start.elapsed().as_secs_f64() * 10.0) as i64;
    assert!(allowed == 1 && (9..=most).contains(&remaining), "{allowed} {remaining}, at most {most}");
}

/// bucket4j#419
#[test]
fn a_raised_capacity_leaves_the_balance() {
    let mut bench = Bench::new();
    bench.take("k 100 1/h 60");
    assert_eq!(bench.peek("k 200 1/h 0")[1], 40);
    bench.pass("k", 3_600_000);
    assert_eq!(bench.peek("k 200 1/h 0")[1], 41);
}

/// redis#15093
#[test]
fn a_bucket_that_fills_within_a_millisecond_is_still_there() {
    let mut bench = Bench::new();
    bench.take("k 2 10000 1");
    assert!(bench.exists("k"));
}

/// apisix#12605. Waits for real, since what is tested is that the key does not expire.
#[test]
fn a_bucket_does_not_expire_before_it_is_full() {
    let mut bench = Bench::new();
    let timed = Timed::start();
    bench.take("k 1 0.1 1");
    let start = Instant::now();
    harness::wait::until(Duration::from_secs(10), "two seconds to pass", || {
        if start.elapsed() >= Duration::from_secs(2) { Ok(()) } else { Err(format!("{:?}", start.elapsed())) }
    });
    let reply = bench.take("k 1 0.1 1");
    assert_eq!(reply[0], 0);
    timed.assert_millis(reply[2], 10_000);
    assert!(reply[2] <= 8000, "{reply:?}");
}

/// redis-gcra#6
#[test]
fn the_expiry_is_in_milliseconds() {
    let mut bench = Bench::new();
    bench.take("k 5 1 1");
    let ttl: i64 = bench.connection.ask("PTTL k");
    assert!((2000..=3000).contains(&ttl), "PTTL is {ttl}");
}

/// node-ratelimiter#11
#[test]
fn a_fast_bucket_is_not_inert() {
    let mut bench = Bench::new();
    let replies = take_twice(&mut bench, &["k", "1", "10", "1"]);
    assert_eq!(replies.map(|[allowed, ..]| allowed), [1, 0]);
}

/// glide-mq#281
#[test]
fn idle_time_at_full_is_no_credit() {
    let mut bench = Bench::new();
    bench.take("k 5 1 1");
    bench.pass("k", 86_400_000);
    let timed = Timed::start();
    assert_eq!(bench.take("k 5 1 5")[0], 1);
    let reply = bench.take("k 5 1 5");
    assert_eq!(reply[0], 0);
    timed.assert_millis(reply[2], 5000);
}
