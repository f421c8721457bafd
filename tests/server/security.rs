//! What a caller who means harm can do: no more than the ACL lets him, no work for the server that others would feel, no line
//! in a log or a reply that he wrote.

use harness::redis::{Connection, ConnectionLike, RedisError, RedisResult, Value, cmd};
use harness::{Ask, server_version};

use crate::bucket::Bench;
use crate::throttle::{bench, builder};

/// Every command as a call on the key `K`, a stack with it in another place, too; and whether it writes.
const CALLS: &[(&str, &str, bool)] = &[
    ("rl.take", "K 5 1/h 1", true),
    ("rl.peek", "K 5 1/h 1", false),
    ("rl.takeall", "K 5 1/h 1", true),
    ("rl.takeall", "rl:in 5 1/h 1 K 5 1/h 1", true),
    ("rl.give", "K 5 1/h 1", true),
    ("rl.charge", "K 5 1/h 1", true),
    ("rl.hot", "DENIED COUNT 5", false),
    ("cl.throttle", "K 15 30 60 1", true),
];

/// The words of a call, on this key.
fn on_key<'a>(arguments: &'a str, key: &'a [u8]) -> Vec<&'a [u8]> {
    arguments.split(' ').map(|word| if word == "K" { key } else { word.as_bytes() }).collect()
}

/// A call for each argument, with `word` in its place.
fn with_each_argument<'a>(arguments: &'a str, word: &'a [u8]) -> impl Iterator<Item = Vec<&'a [u8]>> {
    let words = on_key(arguments, b"k");
    (0..words.len()).map(move |position| {
        let mut words = words.clone();
        words[position] = word;
        words
    })
}

fn user(bench: &mut Bench, rules: &str) -> Connection {
    bench.connection.ask::<()>(&format!("ACL SETUSER user reset on nopass {rules}"));
    let mut connection = bench.server.connection();
    connection.ask::<()>("AUTH user any");
    connection
}

#[track_caller]
fn assert_permitted(connection: &mut Connection, line: &str, permitted: bool) {
    let reply: RedisResult<Value> = connection.try_ask(line);
    let refused = reply.as_ref().err().and_then(RedisError::code) == Some("NOPERM");
    assert!(refused != permitted && (refused || reply.is_ok()), "{line}: {reply:?}");
}

#[test]
fn an_acl_grants_commands_one_by_one() {
    let mut bench = bench();
    for (granted, ..) in CALLS {
        let mut user = user(&mut bench, &format!("~rl:* +{granted}"));
        for (command, arguments, _) in CALLS {
            let line = format!("{command} {}", arguments.replace('K', "rl:x"));
            assert_permitted(&mut user, &line, command == granted);
        }
    }
}

#[test]
fn an_acl_grants_keys_by_pattern_every_one_of_a_stack() {
    let mut bench = bench();
    let mut user = user(&mut bench, "~rl:* +@all");
    for (command, arguments, _) in CALLS {
        assert_permitted(&mut user, &format!("{command} {}", arguments.replace('K', "rl:x")), true);
        if arguments.contains('K') {
            assert_permitted(&mut user, &format!("{command} {}", arguments.replace('K', "other")), false);
        }
    }
    assert!(!bench.exists("other"));
}

#[test]
fn an_acl_can_grant_keys_for_reading_alone() {
    if !server_version().has_redis(7, 0) {
        return; // %R~ came with Redis 7.0.
    }
    let mut bench = bench();
    let mut user = user(&mut bench, "%R~* +@all");
    for (command, arguments, writes) in CALLS {
        assert_permitted(&mut user, &format!("{command} {}", arguments.replace('K', "rl:x")), !writes);
    }
}

#[test]
fn an_acl_grants_and_takes_by_category() {
    let mut bench = bench();
    let categories: Vec<String> = bench.connection.ask("ACL CAT");
    let own = categories.iter().any(|category| category == "ratelimit");
    // Redis before 7.2 lets no module name categories; 7.0 and 6.2 take them from the flags, partly.
    let built_in = server_version().has_redis(7, 2);
    for (command, arguments, writes) in CALLS {
        let line = format!("{command} {}", arguments.replace('K', "rl:x"));
        if own {
            assert_permitted(&mut user(&mut bench, "~* +@ratelimit"), &line, true);
            assert_permitted(&mut user(&mut bench, "~* +@all -@ratelimit"), &line, false);
        }
        if built_in {
            assert_permitted(&mut user(&mut bench, "~* +@write"), &line, *writes);
            assert_permitted(&mut user(&mut bench, "~* +@read"), &line, !writes);
        }
    }
}

/// How long the server worked on the last calls of `command`, in ms; forgotten after.
fn millis_of(bench: &mut Bench, command: &str) -> u64 {
    let (_, micros) = bench.server.command_stats(command);
    bench.connection.ask::<()>("CONFIG RESETSTAT");
    micros / 1000
}

#[test]
fn arguments_of_half_a_gigabyte_are_refused_without_being_read() {
    let mut bench = bench();
    // A number, if one reads that far; as a key too long, too.
    let number = |len: usize| [vec![b'0'; len - 1], vec![b'5']].concat();
    let (largest, large) = (number(512 << 20), number((1 << 20) + 1));
    for (command, arguments, _) in CALLS {
        for (position, mut words) in with_each_argument(arguments, &large).enumerate() {
            // The largest that a server takes costs a second to send; a few of them are enough.
            if let ("rl.take", 0..2) | ("rl.hot" | "cl.throttle", 2) = (*command, position) {
                words[position] = &largest;
            }
            let reply = cmd(command).arg(&words).query::<Value>(&mut bench.connection);
            let error = reply.expect_err(&format!("{command} took a huge argument {position}"));
            assert_eq!(error.code(), Some("ERR"), "{command}: {error}");
            let millis = millis_of(&mut bench, command);
            assert!(millis < 100, "{command} worked {millis} ms on a huge argument {position}");
        }
    }
    assert!(bench.everything().is_empty());
}

#[test]
fn a_key_of_more_than_a_mebibyte_is_refused_and_a_shorter_one_is_not() {
    let mut bench = bench();
    for (command, arguments, _) in CALLS.iter().filter(|(_, arguments, _)| arguments.contains('K')) {
        let mut call =
            |key: &[u8]| cmd(command).arg(on_key(arguments, key)).query::<Value>(&mut bench.connection);
        call(&vec![b'k'; 1 << 20]).unwrap_or_else(|error| panic!("{command}: {error}"));
        let error = call(&vec![b'k'; (1 << 20) + 1]).expect_err(command).to_string();
        assert!(error.contains("key must be at most 1048576 bytes"), "{command}: {error}");
    }
}

#[test]
fn a_stack_of_a_million_arguments_is_refused_at_the_65th_bucket() {
    let mut bench = bench();
    for count in [1_000_000, 1_000_001] {
        let mut call = cmd("RL.TAKEALL");
        for index in 0..count {
            match index % 4 {
                0 => call.arg(index),
                _ => call.arg(1),
            };
        }
        let error = call.query::<Value>(&mut bench.connection).expect_err("an error").to_string();
        let expected = if count % 4 == 0 { "at most 64 buckets" } else { "wrong number of arguments" };
        assert!(error.contains(expected), "{count} arguments: {error}");
        let millis = millis_of(&mut bench, "rl.takeall");
        assert!(millis < 100, "worked {millis} ms on {count} arguments");
    }
    assert!(bench.everything().is_empty());
}

#[test]
fn no_reply_carries_what_the_caller_wrote() {
    let mut bench = bench();
    let evil = b"x\r\n-ERR injected\r\n+OK\r\n";
    for (command, arguments, _) in CALLS {
        for (position, mut words) in with_each_argument(arguments, evil).enumerate() {
            // A key may be anything; the argument that follows it may not.
            if matches!(arguments.split(' ').nth(position), Some("K" | "rl:in")) {
                words[position + 1] = b"x";
            }
            let packed = cmd(command).arg(&words).get_packed_command();
            let reply = bench.connection.req_packed_commands(&packed, 0, 1);
            let [Value::ServerError(error)] = &reply.expect("a reply")[..] else {
                panic!("{command}: no error")
            };
            let text = format!("{} {}", error.code(), error.details().unwrap_or_default());
            assert!(!text.contains("injected") && !text.contains(['\r', '\n']), "{command}: {text:?}");
            // More replies than one would be read as those of the next command.
            assert_eq!(bench.connection.ask::<String>("PING"), "PONG");
        }
    }
}

#[test]
fn no_log_has_a_key_or_an_argument_in_it() {
    let mut bench = Bench::on(builder().config("loglevel", "debug").start());
    bench.connection.ask::<()>("SET hidden:string hidden");
    for (command, arguments, _) in CALLS {
        for key in ["hidden:bucket", "hidden:string"] {
            let right = on_key(arguments, key.as_bytes());
            for words in with_each_argument(arguments, b"hidden").chain([right]) {
                // An error is as good: it is the log that is looked at.
                let _: RedisResult<Value> = cmd(command).arg(&words).query(&mut bench.connection);
            }
        }
    }
    // A panic is the one thing that the module logs while it runs.
    let _: RedisResult<Value> = bench.connection.try_ask("RL.PANIC hidden");
    bench.connection.ask_error("RL.PANIC");
    let log = bench.server.log();
    assert!(log.contains("RL.PANIC was called"), "the log is not the one that was meant:\n{log}");
    assert!(!log.contains("hidden"), "a key is in the log:\n{log}");
}
