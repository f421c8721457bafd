//! The hash, its expiry, and what a script may have left there.

use std::collections::HashMap;

use harness::Ask;

use crate::bucket::{Bench, Timed, expire_at, server_millis};

#[test]
fn a_bucket_is_a_hash_of_tokens_and_ts() {
    let mut bench = Bench::new();
    let before = server_millis(&mut bench);
    bench.take("k 10 1/h 2.5");
    let after = server_millis(&mut bench);
    let fields = bench.fields("k");
    assert_eq!(fields.len(), 2, "{fields:?}");
    let ts: i64 = fields["ts"].parse().expect("ts is whole milliseconds");
    assert!((before..=after).contains(&ts), "ts {ts} is not from {before} to {after}");
    // At 1 token an hour, less than 278 nanotokens belong to the part of a millisecond that ts leaves out.
    let tokens: f64 = fields["tokens"].parse().expect("tokens is a decimal");
    assert!((7.499_999_7..=7.5).contains(&tokens), "{fields:?}");
    let decimals = fields["tokens"].split('.').nth(1).unwrap_or_default();
    assert!(decimals.len() <= 9 && !decimals.ends_with('0'), "{fields:?}");
}

#[test]
fn a_script_and_the_module_share_a_bucket() {
    let mut bench = Bench::new();
    let now = server_millis(&mut bench);
    for (tokens, ts, remaining) in [
        ("4.9999999999999996", format!("{now}"), 4),
        ("3.2000000000000002", format!("{now}.25"), 2),
        ("2e+00", format!("{now}.000"), 1),
        ("1.5E0", format!("{}e-3", now * 1000), 0),
        ("1e15", format!("{now}"), 9),
    ] {
        bench.connection.ask::<()>(&format!("HSET k tokens {tokens} ts {ts}"));
        assert_eq!(bench.take("k 10 1/d 1")[..2], [1, remaining], "tokens {tokens} ts {ts}");
    }
}

#[test]
fn a_negative_balance_is_a_debt_that_refill_pays() {
    let mut bench = Bench::new();
    let timed = Timed::start();
    let now = server_millis(&mut bench);
    bench.connection.ask::<()>(&format!("HSET k tokens -3.5 ts {now}"));
    let reply = bench.take("k 10 1 1");
    assert_eq!(reply[..2], [0, 0]);
    timed.assert_millis(reply[2], 4500);
    timed.assert_millis(reply[3], 13_500);
    bench.pass("k", reply[2]);
    assert_eq!(bench.take("k 10 1 1")[0], 1);
}

#[test]
fn other_fields_of_the_hash_are_left_alone() {
    let mut bench = Bench::new();
    bench.take("k 10 1");
    bench.connection.ask::<()>("HSET k owner alice");
    bench.take("k 10 1");
    assert_eq!(bench.fields("k").get("owner").map(String::as_str), Some("alice"));
}

#[test]
fn a_hash_too_large_for_a_list_is_a_bucket_too() {
    let mut bench = Bench::new();
    bench.take("k 10 1/h");
    for field in 0..600 {
        bench.connection.ask::<()>(&format!("HSET k field{field} {field}"));
    }
    let encoding: String = bench.connection.ask("OBJECT ENCODING k");
    assert_eq!(encoding, "hashtable");
    assert_eq!(bench.take("k 10 1/h")[..2], [1, 8]);
    assert_eq!(bench.connection.ask::<i64>("HLEN k"), 602);
}

#[test]
fn every_bucket_has_an_expiry_of_twice_the_time_to_fill_and_a_second() {
    let mut bench = Bench::new();
    bench.take("k 10 1 4");
    let ttl: i64 = bench.connection.ask("PTTL k");
    assert!((8000..=9000).contains(&ttl), "PTTL is {ttl}");
}

#[test]
fn an_expiry_that_suffices_is_not_written_again() {
    let mut bench = Bench::new();
    bench.take("k 10 1 4");
    let first = expire_at(&mut bench.connection, b"k");
    bench.take("k 10 1 4"); // 8 s to fill, about 9 s left
    assert_eq!(expire_at(&mut bench.connection, b"k"), first);
    bench.take("k 10 1 2"); // 10 s to fill
    assert!(expire_at(&mut bench.connection, b"k") > first);
}

#[test]
fn an_expiry_beyond_what_is_needed_is_left() {
    let mut bench = Bench::new();
    bench.take("k 10 1 1");
    bench.connection.ask::<()>("PEXPIRE k 500000");
    let set = expire_at(&mut bench.connection, b"k");
    bench.take("k 10 1 1");
    assert_eq!(expire_at(&mut bench.connection, b"k"), set);
}

#[test]
fn a_bucket_without_expiry_gets_one() {
    let mut bench = Bench::new();
    for cost in ["1", "10"] {
        bench.take("k 10 1 4");
        bench.connection.ask::<()>("PERSIST k");
        bench.take(&format!("k 10 1 {cost}"));
        let ttl: i64 = bench.connection.ask("PTTL k");
        assert!(ttl > 0, "cost {cost}: PTTL is {ttl}");
    }
}

#[test]
fn a_denial_under_slower_limits_extends_the_expiry_and_nothing_else() {
    let mut bench = Bench::new();
    bench.take("k 10 10 10");
    let (fields, first) = (bench.fields("k"), expire_at(&mut bench.connection, b"k"));
    assert_eq!(bench.take("k 10 1/m 10")[0], 0);
    assert_eq!(bench.fields("k"), fields);
    let ttl: i64 = bench.connection.ask("PTTL k");
    assert!(expire_at(&mut bench.connection, b"k") > first);
    assert!(ttl >= 600_000, "PTTL is {ttl}, the bucket fills in ten minutes");
}

#[test]
fn a_denial_under_the_same_limits_changes_nothing() {
    let mut bench = Bench::new();
    bench.take("k 10 1/h 10");
    let before = bench.everything();
    for _ in 0..1000 {
        assert_eq!(bench.take("k 10 1/h 10")[0], 0);
    }
    assert_eq!(bench.everything(), before);
}

#[test]
fn a_peek_tells_what_a_take_would_and_changes_nothing() {
    let mut bench = Bench::new();
    assert_eq!(bench.peek("k 10 1 3"), [1, 7, 0, 3000]);
    assert!(!bench.exists("k"));
    bench.take("k 10 1/d 3");
    let before = bench.everything();
    assert_eq!(bench.peek("k 10 1/d 3")[..2], [1, 4]);
    assert_eq!(bench.peek("k 10 1/d 8")[..2], [0, 7]);
    assert_eq!(bench.everything(), before);
    assert_eq!(bench.take("k 10 1/d 3")[..2], [1, 4]);
}

#[test]
fn a_clock_that_stepped_back_grants_nothing_twice() {
    let mut bench = Bench::new();
    let timed = Timed::start();
    bench.take("k 10 1 10");
    bench.pass("k", -5000); // the last take was five seconds ahead of now
    let fields = bench.fields("k");
    let reply = bench.take("k 10 1 1");
    assert_eq!(reply[..2], [0, 0]);
    timed.assert_millis(reply[2], 6000);
    assert_eq!(bench.fields("k"), fields, "ts does not move back");
}

#[test]
fn a_wild_ts_cannot_freeze_a_bucket() {
    let mut bench = Bench::new();
    for ts in ["99999999999999", "1e300", "9223372036854775807"] {
        bench.connection.ask::<()>(&format!("HSET k tokens 0 ts {ts}"));
        let timed = Timed::start();
        let reply = bench.take("k 10 1 1");
        assert_eq!(reply[..2], [0, 0], "ts {ts}");
        timed.assert_millis(reply[2], 1000);
        bench.pass("k", reply[2]);
        assert_eq!(bench.take("k 10 1 1")[0], 1, "ts {ts}: {:?}", bench.fields("k"));
    }
}

#[test]
fn extreme_stored_values_are_answered() {
    let mut bench = Bench::new();
    for tokens in [
        "1e308",
        "-1e308",
        "1e-308",
        "-0",
        "0",
        "99999999999999999999999999999999999999999999",
        "-99999999999999999999999999999",
    ] {
        for ts in ["0", "-5", "1e308", "-1e308", "18446744073709551615", "0.000001"] {
            bench.connection.ask::<()>(&format!("HSET k tokens {tokens} ts {ts}"));
            bench.take("k 10 1 1");
            bench.take("k 9007199254740991 9007199254740991 1");
            let fields: HashMap<String, String> = bench.fields("k");
            assert!(fields["tokens"].len() < 45, "tokens {tokens} ts {ts} became {fields:?}");
        }
    }
}

#[test]
fn writes_of_a_thousand_calls_in_a_millisecond_lose_nothing() {
    let mut bench = Bench::new();
    // 1000 takes of a millionth at 1/h: what is left is exactly what was not taken, plus the refill.
    let timed = std::time::Instant::now();
    for _ in 0..1000 {
        bench.take("k 10 1/h 0.000001");
    }
    let tokens: f64 = bench.fields("k")["tokens"].parse().unwrap();
    let refill = timed.elapsed().as_secs_f64() / 3600.0;
    assert!((9.999 - 3e-7..=(9.999 + refill)).contains(&tokens), "{tokens} left");
}
