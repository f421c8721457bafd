//! RL.GIVE and RL.CHARGE: what is done whatever the bucket holds.

use harness::{Ask, Server};

use crate::bucket::{Bench, Timed};

const AMOUNT: &str = "ERR amount must be a number from 0 to 9007199254740991";

/// "refund above the cap"
#[test]
fn giving_stops_at_the_capacity() {
    let mut bench = Bench::new();
    assert_eq!(bench.reply("RL.GIVE k 10 1 3"), [1, 10, 0, 0]);
    bench.take("k 10 1/h 1");
    assert_eq!(bench.reply("RL.GIVE k 10 1/h 3"), [1, 10, 0, 0]);
    assert_eq!(bench.peek("k 10 1/h 0")[1], 10);
}

#[test]
fn what_was_given_can_be_taken() {
    let mut bench = Bench::new();
    let timed = Timed::start();
    bench.take("k 10 1/h 10");
    let reply = bench.reply("RL.GIVE k 10 1/h 2.5");
    assert_eq!(reply[..3], [1, 2, 0]);
    timed.assert_millis(reply[3], 27_000_000);
    assert_eq!(bench.take("k 10 1/h 2")[0], 1);
    assert_eq!(bench.take("k 10 1/h 1")[0], 0);
}

#[test]
fn giving_less_than_a_token_tells_how_long_one_takes() {
    let mut bench = Bench::new();
    let timed = Timed::start();
    bench.take("k 10 1 10");
    let reply = bench.reply("RL.GIVE k 10 1 0.25");
    assert_eq!(reply[..2], [1, 0]);
    timed.assert_millis(reply[2], 750);
}

#[test]
fn giving_to_a_missing_or_full_bucket_writes_nothing() {
    let master = Server::builder().tcp().config("repl-ping-replica-period", "3600").start();
    let _replica = Server::builder().start_replica_of(&master);
    let mut bench = Bench::on(master);
    let before = bench.server.replication_offset();
    assert_eq!(bench.reply("RL.GIVE k 10 1 3"), [1, 10, 0, 0]);
    assert!(!bench.exists("k"));
    assert_eq!(bench.server.replication_offset(), before);

    bench.take("k 10 1/h 1");
    bench.pass("k", 3_600_000);
    let before = (bench.everything(), bench.server.replication_offset());
    assert_eq!(bench.reply("RL.GIVE k 10 1/h 3"), [1, 10, 0, 0]);
    bench.reply("RL.GIVE k 10 1/h 0");
    assert_eq!((bench.everything(), bench.server.replication_offset()), before);
}

#[test]
fn giving_works_out_of_memory_and_charging_does_not() {
    let mut bench = Bench::on(Server::builder().config("maxmemory-policy", "noeviction").start());
    bench.take("k 10 1/h 10");
    bench.connection.ask::<()>("CONFIG SET maxmemory 1");
    assert_eq!(bench.reply("RL.GIVE k 10 1/h 4")[..2], [1, 4]);
    let error = bench.connection.ask_error("RL.CHARGE k 10 1/h 4");
    assert!(error.starts_with("OOM"), "{error}");
    assert_eq!(bench.peek("k 10 1/h 0")[1], 4);
}

#[test]
fn a_charge_is_taken_whatever_is_there() {
    let mut bench = Bench::new();
    let timed = Timed::start();
    assert_eq!(bench.reply("RL.CHARGE k 10 1 4"), [1, 6, 0, 4000]);
    let reply = bench.reply("RL.CHARGE k 10 1 20");
    assert_eq!(reply[..2], [1, 0]);
    timed.assert_millis(reply[2], 15_000);
    timed.assert_millis(reply[3], 24_000);
    let debt: f64 = bench.connection.ask("HGET k tokens");
    // A token a second; stored as of the whole millisecond before.
    timed.assert_millis((-debt * 1000.0).ceil() as i64, 14_001);
}

#[test]
fn a_debt_denies_with_the_right_wait_and_the_expiry_covers_it() {
    let mut bench = Bench::new();
    let timed = Timed::start();
    bench.reply("RL.CHARGE k 10 1 30");
    let ttl: i64 = bench.connection.ask("PTTL k");
    assert!((60_000..=61_000).contains(&ttl), "PTTL is {ttl}, the bucket is full in 30 s");
    let reply = bench.take("k 10 1 2");
    assert_eq!(reply[..2], [0, 0]);
    timed.assert_millis(reply[2], 22_000);
    bench.pass("k", reply[2]);
    assert_eq!(bench.take("k 10 1 2")[0], 1);
}

#[test]
fn giving_and_refill_pay_a_debt() {
    let mut bench = Bench::new();
    bench.reply("RL.CHARGE k 10 1/h 15");
    assert_eq!(bench.take("k 10 1/h 1")[0], 0);
    assert_eq!(bench.reply("RL.GIVE k 10 1/h 3")[..2], [1, 0]);
    bench.pass("k", 2 * 3_600_000);
    assert_eq!(bench.take("k 10 1/h 1")[0], 0, "5 in debt, 3 given, 2 refilled: nothing is there yet");
    assert_eq!(bench.reply("RL.GIVE k 10 1/h 1")[..2], [1, 1]);
    assert_eq!(bench.take("k 10 1/h 1")[0], 1);
}

#[test]
fn a_charge_above_the_capacity_and_of_the_largest_amount_is_a_debt() {
    let mut bench = Bench::new();
    for _ in 0..3 {
        assert_eq!(bench.reply("RL.CHARGE k 10 1 9007199254740991")[..2], [1, 0]);
    }
    let reply = bench.take("k 10 1 1");
    assert_eq!(reply[..3], [0, 0, 9_007_199_254_740_991], "the longest wait that is told");
    assert!(bench.fields("k")["tokens"].starts_with("-2702159776422296"), "{:?}", bench.fields("k"));
    let ttl: i64 = bench.connection.ask("PTTL k");
    assert!(ttl > 9_007_199_254_740_991, "PTTL is {ttl}");
}

#[test]
fn a_charge_of_0_writes_nothing() {
    let mut bench = Bench::new();
    assert_eq!(bench.reply("RL.CHARGE k 10 1 0"), [1, 10, 0, 0]);
    assert!(!bench.exists("k"));
}

#[test]
fn a_bucket_that_never_holds_a_token_says_so() {
    let mut bench = Bench::new();
    assert_eq!(bench.reply("RL.CHARGE k 0.5 1 0.25"), [1, 0, -1, 250]);
}

/// redis-cell#22
#[test]
fn wrong_amounts_are_refused_and_nothing_changed() {
    let mut bench = Bench::new();
    bench.take("k 10 1/h 5");
    bench.connection.ask::<()>("SET string 1");
    bench.connection.ask::<()>("HSET hash a 1");
    for command in ["RL.GIVE", "RL.CHARGE"] {
        let arity = format!("ERR wrong number of arguments for '{}' command", command.to_lowercase());
        for (arguments, error) in [
            ("k 5 1 -1", AMOUNT),
            ("k 5 1 nan", AMOUNT),
            ("k 5 1 9007199254740992", AMOUNT),
            ("k x 1 1", "ERR capacity must be a number from 0 to 9007199254740991"),
            ("k 5 0 1", "ERR rate must be tokens per second above 0, or tokens/period such as 100/m"),
            ("k 5 1e-20 1", "ERR bucket must fill within 100 years"),
            ("string 5 1 1", "WRONGTYPE Operation against a key holding the wrong kind of value"),
            ("hash 5 1 1", "WRONGTYPE the hash at this key is not a token bucket"),
            ("k 5 1", &arity),
            ("k 5 1 1 1", &arity),
        ] {
            let before = bench.everything();
            let line = format!("{command} {arguments}");
            let answer = bench.connection.ask_error(&line).replace(command, &command.to_lowercase());
            assert_eq!(answer, error, "{line}");
            assert_eq!(bench.everything(), before, "{line}");
        }
    }
}

#[test]
fn gifts_and_charges_are_replicated_as_effects() {
    let master = Server::builder().tcp().start();
    let mut replica = Bench::on(Server::builder().start_replica_of(&master));
    let mut master = Bench::on(master);
    for line in
        ["RL.CHARGE a 10 1/h 25.5", "RL.GIVE a 10 1/h 3", "RL.CHARGE b 10 7/m 1", "RL.GIVE b 10 7/m 0.5"]
    {
        master.reply(line);
    }
    replica.server.await_offset_of(&master.server);
    assert_eq!(replica.everything(), master.everything());
    for command in ["RL.GIVE a 10 1 1", "RL.CHARGE a 10 1 1", "RL.TAKEALL a 10 1 1"] {
        assert!(replica.connection.ask_error(command).starts_with("READONLY"), "{command}");
    }
    assert_eq!(replica.server.command_stats("hset").0, 4);
}

#[test]
fn give_and_charge_are_declared_as_they_are() {
    let mut bench = Bench::new();
    for line in ["RL.GIVE the:key 5 1 1", "RL.CHARGE the:key 5 1 1"] {
        let keys: Vec<String> = bench.connection.ask(&format!("COMMAND GETKEYS {line}"));
        assert_eq!(keys, ["the:key"], "{line}");
    }
    for line in ["RL.GIVE k 5 1 1", "RL.CHARGE k 5 1 1", "RL.CHARGE k 5 1 1"] {
        bench.reply(line);
    }
    bench.connection.ask::<harness::redis::Value>("RL.TAKEALL k 5 1 1");
    bench.connection.ask::<harness::redis::Value>("RL.TAKEALL k 5 1 6");
    bench.connection.ask_error("RL.TAKEALL k 5 1 x");
    for (field, count) in [
        ("gives", "1"),
        ("charges", "2"),
        ("give_errors", "0"),
        ("takeall_allowed", "1"),
        ("takeall_denied", "1"),
        ("takeall_errors", "1"),
    ] {
        assert_eq!(bench.server.info("rl", &format!("rl_{field}")), count, "{field}");
    }
}
