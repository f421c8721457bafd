//! MULTI, scripts, functions, pipelines, WATCH, client-side caching, RESP2 and RESP3.

use harness::redis::{self, Value, cmd, pipe};
use harness::{Ask, server_version};

use crate::bucket::{Bench, expire_at};

#[test]
fn a_take_works_in_a_transaction() {
    let mut bench = Bench::new();
    let replies: Vec<[i64; 4]> = pipe()
        .atomic()
        .cmd("RL.TAKE")
        .arg(&["k", "5", "1/h", "3"])
        .cmd("RL.TAKE")
        .arg(&["k", "5", "1/h", "3"])
        .cmd("RL.PEEK")
        .arg(&["k", "5", "1/h", "2"])
        .query(&mut bench.connection)
        .unwrap();
    let allowed: Vec<_> = replies.iter().map(|reply| reply[0]).collect();
    assert_eq!(allowed, [1, 0, 1]);
}

#[test]
fn a_take_works_in_a_pipeline() {
    let mut bench = Bench::new();
    let mut batch = pipe();
    for _ in 0..1000 {
        batch.cmd("RL.TAKE").arg(&["k", "300", "1/h"]);
    }
    let replies: Vec<[i64; 4]> = batch.query(&mut bench.connection).unwrap();
    assert_eq!(replies.iter().map(|reply| reply[0]).sum::<i64>(), 300);
}

/// "PTTL nonsense when called from a script"
#[test]
fn a_take_in_a_script_is_as_one_outside() {
    let mut bench = Bench::new();
    let script = "return redis.call('RL.TAKE', KEYS[1], ARGV[1], ARGV[2], ARGV[3])";
    let reply: [i64; 4] =
        cmd("EVAL").arg(&[script, "1", "in", "10", "1", "4"]).query(&mut bench.connection).unwrap();
    assert_eq!(reply, [1, 6, 0, 4000]);
    assert_eq!(bench.take("out 10 1 4"), [1, 6, 0, 4000]);
    let (inside, outside): (i64, i64) = (bench.connection.ask("PTTL in"), bench.connection.ask("PTTL out"));
    assert!((8000..=9000).contains(&inside) && (8000..=9000).contains(&outside), "{inside} and {outside}");
}

#[test]
fn time_passes_within_a_script() {
    let mut bench = Bench::new();
    let script = "local calls = 0
        repeat
            calls = calls + 1
            local reply = redis.call('RL.TAKE', KEYS[1], 1, '200', 1)
        until (reply[1] == 1 and calls > 1) or calls > 5000000
        return calls";
    let calls: i64 = cmd("EVAL").arg(&[script, "1", "k"]).query(&mut bench.connection).unwrap();
    assert!((2..5_000_000).contains(&calls), "{calls} calls");
}

#[test]
fn a_take_in_a_script_replicates_its_effects() {
    let mut bench = Bench::on(harness::Server::builder().tcp().start());
    let mut replica = Bench::on(harness::Server::builder().start_replica_of(&bench.server));
    let script = "return redis.call('RL.TAKE', KEYS[1], 10, 1, 1)";
    let _: Value = cmd("EVAL").arg(&[script, "1", "k"]).query(&mut bench.connection).unwrap();
    replica.server.await_offset_of(&bench.server);
    assert_eq!(replica.everything(), bench.everything());
    assert_eq!(replica.server.command_stats("eval").0, 0);
    assert!(expire_at(&mut replica.connection, b"k") > 0);
}

#[test]
fn a_take_works_in_a_function() {
    if !server_version().has_redis(7, 0) {
        return; // Redis 6.2 has no functions.
    }
    let mut bench = Bench::new();
    let library = "#!lua name=limits\nredis.register_function('take', function(keys, args)
        return redis.call('RL.TAKE', keys[1], args[1], args[2]) end)";
    let _: String = cmd("FUNCTION").arg(&["LOAD", library]).query(&mut bench.connection).unwrap();
    let reply: [i64; 4] = bench.connection.ask("FCALL take 1 k 5 1");
    assert_eq!(reply, [1, 4, 0, 1000]);
}

#[test]
fn errors_in_a_script_are_the_modules_own() {
    let mut bench = Bench::new();
    let script = "return redis.pcall('RL.TAKE', KEYS[1], 'x', 1)";
    let error =
        cmd("EVAL").arg(&[script, "1", "k"]).query::<Value>(&mut bench.connection).expect_err("an error");
    assert!(error.to_string().contains("capacity must be a number"), "{error}");
    assert_eq!(bench.connection.ask::<String>("PING"), "PONG");
}

#[test]
fn the_reply_is_the_same_in_resp3() {
    let bench = Bench::new();
    let ask = |mut connection: redis::Connection, key: &str| -> Value {
        connection.ask(&format!("RL.TAKE {key} 5 1"))
    };
    let expected = Value::Array([1, 4, 0, 1000].map(Value::Int).to_vec());
    assert_eq!(ask(bench.server.connection(), "resp2"), expected);
    assert_eq!(ask(bench.server.connection_resp3(), "resp3"), expected);
}

/// Runs `line` between WATCH and EXEC, and says whether the transaction went through.
pub(crate) fn survives(bench: &mut Bench, line: &str) -> bool {
    let mut watcher = bench.server.connection();
    watcher.ask::<()>("WATCH k");
    bench.connection.ask::<Value>(line);
    watcher.ask::<()>("MULTI");
    watcher.ask::<()>("PING");
    watcher.ask::<Value>("EXEC") != Value::Nil
}

#[test]
fn watch_is_broken_by_a_take_and_not_by_a_denial_or_a_peek() {
    let mut bench = Bench::new();
    bench.take("k 5 1/h 3");
    assert!(survives(&mut bench, "RL.TAKE k 5 1/h 3"), "a denial broke WATCH");
    assert!(survives(&mut bench, "RL.PEEK k 5 1/h 1"), "a peek broke WATCH");
    assert!(survives(&mut bench, "RL.TAKE k 5 1/h 0"), "a take of nothing broke WATCH");
    assert!(!survives(&mut bench, "RL.TAKE k 5 1/h 1"), "a take did not break WATCH");
    assert!(!survives(&mut bench, "RL.TAKE k 5 1/d 5"), "a longer expiry did not break WATCH");
}

#[test]
fn client_side_caching_is_told_of_a_take_and_not_of_a_denial() {
    let mut bench = Bench::new();
    bench.take("k 5 1/h 3");
    // Invalidations of a RESP2 connection go to a second one that subscribes.
    let mut listener = bench.server.connection();
    let id: i64 = listener.ask("CLIENT ID");
    let mut caching = bench.server.connection();
    caching.ask::<()>(&format!("CLIENT TRACKING ON REDIRECT {id}"));
    let mut subscription = listener.as_pubsub();
    subscription.subscribe("__redis__:invalidate").unwrap();
    let mut told_of = |bench: &mut Bench, line: &str| -> bool {
        caching.ask::<Value>("HGETALL k");
        bench.connection.ask::<Value>(line);
        // The channel is in order: what comes before the marker came from `line`.
        caching.ask::<Value>("GET marker");
        bench.connection.ask::<()>("SET marker 1");
        let mut told = false;
        loop {
            let keys: Vec<String> = subscription.get_message().unwrap().get_payload().unwrap();
            if keys == ["marker"] {
                return told;
            }
            told = true;
        }
    };
    assert!(!told_of(&mut bench, "RL.TAKE k 5 1/h 3"), "told of a denial");
    assert!(!told_of(&mut bench, "RL.PEEK k 5 1/h 3"), "told of a peek");
    assert!(told_of(&mut bench, "RL.TAKE k 5 1/h 1"), "not told of a take");
}
