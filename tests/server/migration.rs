//! A script of the common kind and the module on the same buckets at once, and back to the script.
//!
//! The script is `benches/token_bucket.lua`: it decides with the clock of whoever calls it, and stores that clock's time.

use std::time::{Duration, Instant};

use harness::Ask;
use harness::script::{Bucket, Callers, MENDED_STORE, SCRIPT, mended};

use crate::bucket::{Bench, server_millis};
use crate::document;

/// Half of them call the script, with clocks up to 200 ms off on either side; half call the module.
const CALLERS: Callers<'static> =
    Callers { script: SCRIPT, by_script: 11, by_module: 11, skew: 200, calls: 100, time: Duration::ZERO };

/// At this rate the callers' clocks make less than a hundredth of a token; what is left is that nothing is granted twice.
#[test]
fn a_script_and_the_module_together_grant_what_the_bucket_holds() {
    let mut bench = Bench::new();
    let day = 1.0 / 86_400.0;
    let bucket = Bucket { key: "k", capacity: 1234, rate: day };
    let (granted, _) = CALLERS.take_from(&bench.server, &bucket);
    assert_eq!(granted, 1234, "of 1100 scripts and 1100 takes");
    assert_eq!(bench.peek(&format!("k 1234 {day} 0"))[1], 0);
}

/// The script's own error: it stores the time of a slow clock over that of a faster one, and the next caller is granted
/// the time between the two again.
#[test]
fn the_script_grants_the_difference_between_two_clocks_again_at_each_change() {
    let mut bench = Bench::new();
    let bucket = Bucket { key: "k", capacity: 1000, rate: 10.0 };
    let now = server_millis(&mut bench);
    bench.connection.ask::<()>(&format!("HSET k tokens 0 ts {}", now + 200));
    for _ in 0..10 {
        for skew in [-200, 200] {
            assert!(!bucket.take_by_script(&mut bench.connection, SCRIPT, now + skew, 1000));
        }
    }
    let tokens: f64 = bench.fields("k")["tokens"].parse().expect("a number");
    assert!((tokens - 40.0).abs() < 1e-6, "ten times 400 ms at 10 a second are 40 tokens, not {tokens}");
}

#[test]
fn the_module_grants_no_time_twice_whatever_the_script_stored() {
    let mut bench = Bench::new();
    let bucket = Bucket { key: "k", capacity: 1000, rate: 10.0 };
    for skew in [-200, 200] {
        bench.connection.ask::<()>("DEL k");
        let start = Instant::now();
        let now = server_millis(&mut bench);
        bench.connection.ask::<()>(&format!("HSET k tokens 0 ts {now}"));
        assert!(!bucket.take_by_script(&mut bench.connection, SCRIPT, now + skew, 1000));
        // Takes of half a token: denied or allowed, they see the 200 ms of the script's clock at most once.
        let taken: i64 = (0..200).map(|_| bench.take("k 1000 10 0.5")[0]).sum();
        let bound = (0.2 + start.elapsed().as_secs_f64()) * 10.0 / 0.5;
        assert!(taken as f64 <= bound, "skew {skew}: {taken} takes, {bound:.1} is the bound");
        assert!(taken >= 4, "skew {skew}: {taken} takes, 200 ms were 4");
    }
}

/// The line that docs/migrating.md asks to change first.
#[test]
fn a_script_that_never_stores_an_earlier_time_errs_once_by_the_spread_of_the_clocks() {
    assert_eq!(document::block("lua"), [MENDED_STORE]);
    let bench = Bench::new();
    let bucket = Bucket { key: "k", capacity: 100, rate: 100.0 };
    let callers = Callers { script: &mended(), calls: 0, time: Duration::from_millis(1500), ..CALLERS };
    let (granted, seconds) = callers.take_from(&bench.server, &bucket);
    let bound = 100.0 + 100.0 * (seconds + 0.4);
    assert!(granted as f64 <= bound, "{granted} granted in {seconds:.3} s, {bound:.0} is the bound");
    assert!(granted as f64 >= 100.0 + 100.0 * 1.4, "only {granted} granted in {seconds:.3} s");
}

#[test]
fn back_on_the_script_a_debt_is_paid_first() {
    let mut bench = Bench::new();
    bench.reply("RL.CHARGE k 10 1 13.5");
    let now = server_millis(&mut bench);
    let bucket = Bucket { key: "k", capacity: 10, rate: 1.0 };
    for (later, allowed) in [(0, false), (4_300, false), (4_510, true), (4_600, false)] {
        let got = bucket.take_by_script(&mut bench.connection, SCRIPT, now + later, 1);
        assert_eq!(got, allowed, "{later} ms later");
    }
}

#[test]
fn back_on_the_script_every_balance_that_the_module_stores_is_read() {
    let mut bench = Bench::new();
    for arguments in [
        "10 7/9 0.123456789",
        "1 10000 1", // below zero: the part of a millisecond that ts leaves out is taken off
        "9007199254740991 1e7 1",
        "10000 1/d 9999.999999999",
    ] {
        bench.connection.ask::<()>("DEL k");
        bench.take(&format!("k {arguments}"));
        let before: f64 = bench.fields("k")["tokens"].parse().expect("a number");
        let (capacity, _) = arguments.split_once(' ').expect("a capacity first");
        let capacity: i64 = capacity.parse().expect("a whole number");
        let bucket = Bucket { key: "k", capacity, rate: capacity as f64 / 10.0 };
        // No time passes and nothing is taken: the script stores what it has read.
        let ts = bench.fields("k")["ts"].parse().expect("a time");
        bucket.take_by_script(&mut bench.connection, SCRIPT, ts, 0);
        let after: f64 = bench.fields("k")["tokens"].parse().expect("a number");
        assert!((after - before).abs() <= before.abs() * 1e-15, "{arguments}: {before} became {after}");
    }
}

/// Many scripts set 60 s whatever the bucket needs.
#[test]
fn an_expiry_that_a_script_cut_short_is_mended_by_the_next_take_denied_or_not() {
    let mut bench = Bench::new();
    for (cost, allowed) in [("1", 1), ("10", 0)] {
        bench.connection.ask::<()>("DEL k");
        bench.take("k 10 1/m 5");
        bench.connection.ask::<()>("PEXPIRE k 60000");
        assert_eq!(bench.take(&format!("k 10 1/m {cost}"))[0], allowed);
        let ttl: i64 = bench.connection.ask("PTTL k");
        assert!(ttl > 290_000, "PTTL is {ttl}, the bucket fills in five minutes");
    }
}
