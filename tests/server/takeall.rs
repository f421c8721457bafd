//! RL.TAKEALL: all buckets of a stack, or none.

use std::cell::RefCell;
use std::thread;

use harness::redis::{FromRedisValue, ParsingError, Value, cmd, from_redis_value_ref};
use harness::{Ask, Cluster, Server};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::bucket::{Bench, Reply, Timed};

/// `[allowed, retry_after_ms, bucket, ...]`
#[derive(Debug, PartialEq)]
struct StackReply {
    allowed: i64,
    retry_after: i64,
    buckets: Vec<Reply>,
}

impl FromRedisValue for StackReply {
    fn from_redis_value(value: Value) -> Result<StackReply, ParsingError> {
        let items: Vec<Value> = from_redis_value_ref(&value)?;
        let [allowed, retry_after, buckets @ ..] = &items[..] else {
            return Err(format!("too short: {items:?}").into());
        };
        Ok(StackReply {
            allowed: from_redis_value_ref(allowed)?,
            retry_after: from_redis_value_ref(retry_after)?,
            buckets: buckets.iter().map(from_redis_value_ref).collect::<Result<_, _>>()?,
        })
    }
}

#[test]
fn a_stack_that_allows_takes_from_every_bucket() {
    let mut bench = Bench::new();
    let reply: StackReply = bench.connection.ask("RL.TAKEALL a 10 1 3 b 5 1 1");
    assert_eq!(
        reply,
        StackReply { allowed: 1, retry_after: 0, buckets: vec![[1, 7, 0, 3000], [1, 4, 0, 1000]] }
    );
    assert_eq!(bench.peek("a 10 1 0")[1], 7);
    assert_eq!(bench.peek("b 5 1 0")[1], 4);
}

#[test]
fn a_stack_that_denies_takes_from_none_and_says_which_had_enough() {
    let mut bench = Bench::new();
    let timed = Timed::start();
    bench.take("a 10 1/h 4");
    bench.take("b 5 1 5");
    let before = bench.everything();
    let reply: StackReply = bench.connection.ask("RL.TAKEALL a 10 1/h 3 b 5 1 2 c 3 1 3");
    assert_eq!((reply.allowed, reply.buckets.len()), (0, 3));
    assert_eq!(reply.buckets[0][..3], [1, 6, 0], "a had enough and keeps it");
    assert_eq!(reply.buckets[1][..2], [0, 0]);
    timed.assert_millis(reply.buckets[1][2], 2000);
    assert_eq!(reply.buckets[2], [1, 3, 0, 0]);
    assert_eq!(reply.retry_after, reply.buckets[1][2]);
    assert_eq!(bench.everything(), before);
}

#[test]
fn the_longest_wait_is_told_and_never_is_longer_than_any() {
    let mut bench = Bench::new();
    bench.take("a 1 1/m 1");
    bench.take("b 1 1/h 1");
    let reply: StackReply = bench.connection.ask("RL.TAKEALL a 1 1/m 1 b 1 1/h 1");
    assert_eq!(reply.retry_after, reply.buckets[1][2]);
    assert!(reply.buckets[0][2] < reply.buckets[1][2], "{reply:?}");
    let reply: StackReply = bench.connection.ask("RL.TAKEALL a 1 1/m 1 b 1 1/h 1 c 1 1 2");
    assert_eq!(reply.retry_after, -1);
}

#[test]
fn a_cost_of_0_asks_without_taking() {
    let mut bench = Bench::new();
    let reply: StackReply = bench.connection.ask("RL.TAKEALL a 10 1 0 b 5 1 1");
    assert_eq!(reply.buckets, [[1, 10, 0, 0], [1, 4, 0, 1000]]);
    assert!(!bench.exists("a") && bench.exists("b"));
}

#[test]
fn one_bucket_is_a_stack_too() {
    let mut bench = Bench::new();
    let reply: StackReply = bench.connection.ask("RL.TAKEALL a 10 1 3");
    assert_eq!(reply, StackReply { allowed: 1, retry_after: 0, buckets: vec![[1, 7, 0, 3000]] });
}

#[test]
fn sixty_four_buckets_are_the_most() {
    let mut bench = Bench::new();
    let line = |count: usize| {
        let buckets: Vec<String> = (0..count).map(|index| format!("k{index} 10 1 1")).collect();
        format!("RL.TAKEALL {}", buckets.join(" "))
    };
    let reply: StackReply = bench.connection.ask(&line(64));
    assert_eq!((reply.allowed, reply.buckets.len()), (1, 64));
    let before = bench.everything();
    assert_eq!(bench.connection.ask_error(&line(65)), "ERR at most 64 buckets");
    assert_eq!(bench.everything(), before);
}

#[test]
fn a_wrong_stack_is_refused_and_nothing_taken_anywhere() {
    let mut bench = Bench::new();
    bench.take("a 10 1/h 1");
    bench.connection.ask::<()>("SET string 1");
    bench.connection.ask::<()>("HSET hash a 1");
    let arity = "ERR wrong number of arguments for 'rl.takeall' command";
    for (arguments, error) in [
        ("", arity),
        ("a", arity),
        ("a 10 1", arity),
        ("a 10 1 1 b", arity),
        ("a 10 1 1 b 10 1", arity),
        ("a 10 1 1 a 10 1 1", "ERR a key is given twice"),
        ("a 10 1 1 b 10 1 1 a 5 2 1", "ERR a key is given twice"),
        ("a 10 1 1 b x 1 1", "ERR capacity must be a number from 0 to 9007199254740991"),
        ("a 10 1 1 b 10 0 1", "ERR rate must be tokens per second above 0, or tokens/period such as 100/m"),
        ("a 10 1 1 b 10 1 -1", "ERR cost must be a number from 0 to 9007199254740991"),
        ("a 10 1 1 b 10 1e-30 1", "ERR bucket must fill within 100 years"),
        ("a 10 1 1 string 10 1 1", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("string 10 1 1 a 10 1 1", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("a 10 1 1 hash 10 1 1", "WRONGTYPE the hash at this key is not a token bucket"),
    ] {
        let before = bench.everything();
        let line = format!("RL.TAKEALL {arguments}");
        // Redis 6.2 repeats the command's name as it was typed.
        let answer = bench.connection.ask_error(&line).replace("'RL.TAKEALL'", "'rl.takeall'");
        assert_eq!(answer, error, "{line}");
        assert_eq!(bench.everything(), before, "{line}");
        assert_eq!(bench.connection.ask::<String>("PING"), "PONG");
    }
}

#[test]
fn a_million_arguments_are_refused() {
    let mut bench = Bench::new();
    let mut command = cmd("RL.TAKEALL");
    for index in 0..250_000 {
        command.arg(index).arg(&["10", "1", "1"]);
    }
    let error = command.query::<Value>(&mut bench.connection).expect_err("an error");
    assert_eq!(error.detail(), Some("at most 64 buckets"), "{error}");
    assert_eq!(bench.connection.ask::<i64>("DBSIZE"), 0);
}

#[test]
fn a_denied_stack_extends_an_expiry_that_slower_limits_outlast() {
    let mut bench = Bench::new();
    bench.take("a 10 10 10");
    let fields = bench.fields("a");
    let reply: StackReply = bench.connection.ask("RL.TAKEALL a 10 1/m 10 b 5 1 1");
    assert_eq!(reply.allowed, 0);
    let ttl: i64 = bench.connection.ask("PTTL a");
    assert!(ttl >= 600_000, "PTTL is {ttl}, the bucket fills in ten minutes");
    assert_eq!(bench.fields("a"), fields);
    assert!(!bench.exists("b"));
}

/// redis-cell#30
#[test]
fn every_key_is_found() {
    let mut bench = Bench::new();
    let keys: Vec<String> = bench.connection.ask("COMMAND GETKEYS RL.TAKEALL a 10 1 3 b 5 1 1 c 1 1 1");
    assert_eq!(keys, ["a", "b", "c"]);
}

/// PostHog#60838
#[test]
fn two_slots_in_one_stack_are_refused() {
    let cluster = Cluster::start(3, 0);
    for node in cluster.nodes() {
        let error = node.connection().ask_error("RL.TAKEALL {a}1 10 1 1 {b}1 10 1 1");
        assert!(error.starts_with("CROSSSLOT"), "{error}");
        assert_eq!(node.connection().ask::<i64>("DBSIZE"), 0);
    }
    let mut client = cluster.client().get_connection().expect("a connection");
    let reply: StackReply = client.ask("RL.TAKEALL {a}1 10 1 1 {a}2 10 1 1");
    assert_eq!(reply.allowed, 1);
}

#[test]
fn a_stack_is_replicated_in_one_transaction_and_a_denial_not_at_all() {
    let master = Server::builder().tcp().config("repl-ping-replica-period", "3600").start();
    let mut replica = Bench::on(Server::builder().start_replica_of(&master));
    let mut master = Bench::on(master);
    let reply: StackReply = master.connection.ask("RL.TAKEALL a 10 1/h 3 b 5 1/h 5 c 1 1/h 1");
    assert_eq!(reply.allowed, 1);
    replica.server.await_offset_of(&master.server);
    let stats =
        ["multi", "exec", "hset", "rl.takeall"].map(|command| replica.server.command_stats(command).0);
    assert_eq!(stats, [1, 1, 3, 0]);
    assert_eq!(replica.everything(), master.everything());

    let before = master.server.replication_offset();
    for _ in 0..100 {
        let reply: StackReply = master.connection.ask("RL.TAKEALL a 10 1/h 3 b 5 1/h 5 d 1 1/h 1");
        assert_eq!(reply.allowed, 0);
    }
    assert_eq!(master.server.replication_offset(), before);
}

/// Many clients whose stacks overlap: whatever was allowed was taken from every bucket of the stack, and nothing else was.
#[test]
fn overlapping_stacks_stay_exact_under_concurrency() {
    const STACKS: [&[usize]; 4] = [&[0, 1], &[1, 2], &[0, 2, 3], &[3]];
    const CAPACITIES: [i64; 4] = [300, 400, 500, 250];
    let mut bench = Bench::new();
    let granted: Vec<i64> = thread::scope(|scope| {
        let clients: Vec<_> = (0..40)
            .map(|client| {
                let mut connection = bench.server.connection();
                let stack = STACKS[client % STACKS.len()];
                let buckets: Vec<String> =
                    stack.iter().map(|&bucket| format!("k{bucket} {} 1/d 1", CAPACITIES[bucket])).collect();
                let line = format!("RL.TAKEALL {}", buckets.join(" "));
                scope.spawn(move || (0..60).map(|_| connection.ask::<StackReply>(&line).allowed).sum::<i64>())
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("a client")).collect()
    });
    for (bucket, capacity) in CAPACITIES.iter().enumerate() {
        let users =
            granted.iter().enumerate().filter(|(client, _)| STACKS[client % STACKS.len()].contains(&bucket));
        let taken: i64 = users.map(|(_, granted)| granted).sum();
        let left = bench.peek(&format!("k{bucket} {capacity} 1/d 0"))[1];
        assert_eq!(taken + left, *capacity, "bucket {bucket}: {taken} taken, {left} left");
    }
    assert!(granted.iter().sum::<i64>() > 0, "nothing was granted");
}

/// Takes, gifts and charges on a stack, against integers: at one token in 30 days the test sees no refill.
#[test]
fn random_operations_agree_with_a_model() {
    const KEYS: usize = 5;
    let bench = RefCell::new(Bench::new());
    let operation = (0..10_usize, vec((0..KEYS, 0..6_i64), 1..KEYS));
    let script = (vec(1..12_i64, KEYS), vec(operation, 1..40));
    let mut runner = TestRunner::new(ProptestConfig::with_cases(100));
    let outcome = runner.run(&script, |(capacities, operations)| {
        let mut bench = bench.borrow_mut();
        bench.connection.ask::<()>("FLUSHALL");
        let mut model = capacities.clone();
        for (kind, mut stack) in operations {
            stack.sort_by_key(|(key, _)| *key);
            stack.dedup_by_key(|(key, _)| *key);
            let argument = |&(key, cost): &(usize, i64)| format!("k{key} {} 1/30d {cost}", capacities[key]);
            let (key, amount) = stack[0];
            match kind {
                0 => {
                    model[key] = (model[key] + amount).min(capacities[key]);
                    bench.reply(&format!("RL.GIVE {}", argument(&stack[0])));
                }
                1 => {
                    model[key] -= amount;
                    bench.reply(&format!("RL.CHARGE {}", argument(&stack[0])));
                }
                _ => {
                    let arguments: Vec<String> = stack.iter().map(argument).collect();
                    let reply: StackReply =
                        bench.connection.ask(&format!("RL.TAKEALL {}", arguments.join(" ")));
                    let each: Vec<bool> = stack.iter().map(|&(key, cost)| cost <= model[key]).collect();
                    let all = each.iter().all(|&enough| enough);
                    if all {
                        stack.iter().for_each(|&(key, cost)| model[key] -= cost);
                    }
                    prop_assert_eq!(reply.allowed, i64::from(all));
                    for ((bucket, &enough), &(key, _)) in reply.buckets.iter().zip(&each).zip(&stack) {
                        prop_assert_eq!(&bucket[..2], &[i64::from(enough), model[key].max(0)], "k{}", key);
                    }
                }
            }
        }
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

/// kill -9 in mid-load: a stack's buckets, taken together always, are equal after the restart, and nothing that was
/// answered is lost.
#[test]
fn a_crash_leaves_no_stack_half_taken() {
    let mut server = Server::builder().config("appendonly", "yes").config("appendfsync", "always").start();
    for round in 0..5 {
        let answered: i64 = thread::scope(|scope| {
            let clients: Vec<_> = (0..8)
                .map(|client| {
                    let mut connection = server.connection();
                    scope.spawn(move || {
                        // So slow that no bucket is full, and gone, before it is looked at.
                        let line =
                            format!("RL.TAKEALL a{client}.{round} 1e6 1/m 1 b{client}.{round} 1e6 1/m 1");
                        let mut answered = 0;
                        // Ends when the server is killed.
                        while connection.try_ask::<StackReply>(&line).is_ok_and(|reply| reply.allowed == 1) {
                            answered += 1;
                        }
                        (client, answered)
                    })
                })
                .collect();
            let mut watcher = server.connection();
            let loaded = harness::wait::try_until(harness::wait::PATIENCE, || {
                let size: i64 = watcher.ask("DBSIZE");
                if size >= 16 * (round + 1) { Ok(()) } else { Err(format!("{size} keys")) }
            });
            // Before anything may fail: the clients go on for as long as it runs.
            server.kill();
            loaded.expect("some load");
            let counts: Vec<(usize, i64)> =
                clients.into_iter().map(|client| client.join().expect("a client")).collect();
            server.start_again();
            let mut bench = server.connection();
            for (client, answered) in &counts {
                let fields = |bench: &mut harness::redis::Connection, key: &str| -> Vec<String> {
                    bench.ask(&format!("HMGET {key}{client}.{round} tokens ts"))
                };
                let (a, b) = (fields(&mut bench, "a"), fields(&mut bench, "b"));
                assert_eq!(a, b, "round {round}, client {client}");
                let tokens: f64 = a[0].parse().expect("a balance");
                // A take that was written and not answered may be there besides.
                assert!(
                    tokens < 1e6 - *answered as f64 + 1.0,
                    "round {round}: {answered} answered, {tokens} left"
                );
            }
            counts.iter().map(|(_, answered)| answered).sum()
        });
        assert!(answered > 0, "round {round} had no load");
    }
}

#[test]
fn long_keys_that_differ_in_their_last_byte_are_told_apart() {
    let mut bench = Bench::new();
    let key = |last: usize| format!("{}{last:02}", "k".repeat(100_000));
    let mut stack = |lasts: &[usize]| {
        let mut command = cmd("RL.TAKEALL");
        for &last in lasts {
            command.arg(key(last)).arg(&["10", "1/h", "1"]);
        }
        command.query::<StackReply>(&mut bench.connection)
    };
    let all: Vec<usize> = (0..64).collect();
    assert_eq!(stack(&all).expect("different keys").allowed, 1);
    let error = stack(&[&all[..63], &[7]].concat()).expect_err("a key is there twice");
    assert_eq!(error.detail(), Some("a key is given twice"));
}

#[test]
fn a_stack_under_out_of_memory_is_refused() {
    let mut bench = Bench::on(Server::builder().config("maxmemory-policy", "noeviction").start());
    bench.connection.ask::<()>("CONFIG SET maxmemory 1");
    let error = bench.connection.ask_error("RL.TAKEALL a 10 1 1 b 10 1 1");
    assert!(error.starts_with("OOM"), "{error}");
}
