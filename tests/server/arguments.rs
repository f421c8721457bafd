//! Every error text; after each the server answers and the data set is byte for byte as before.

use harness::redis::cmd;
use harness::{Ask, Server, redis};

use crate::bucket::Bench;

const CAPACITY: &str = "ERR capacity must be a number from 0 to 9007199254740991";
const COST: &str = "ERR cost must be a number from 0 to 9007199254740991";
const RATE: &str = "ERR rate must be tokens per second above 0, or tokens/period such as 100/m";
const FILL: &str = "ERR bucket must fill within 100 years";
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NOT_A_BUCKET: &str = "WRONGTYPE the hash at this key is not a token bucket";

/// Sends `arguments` to RL.TAKE and RL.PEEK and expects `error` of both, and nothing else to have happened.
#[track_caller]
fn assert_refused(bench: &mut Bench, arguments: &[&[u8]], error: &str) {
    let before = bench.everything();
    for command in ["RL.TAKE", "RL.PEEK"] {
        let reply = cmd(command).arg(arguments).query::<redis::Value>(&mut bench.connection);
        let shown: Vec<_> = arguments.iter().map(|bytes| String::from_utf8_lossy(bytes)).collect();
        let text = match reply {
            Err(error) => {
                format!("{} {}", error.code().unwrap_or_default(), error.detail().unwrap_or_default())
            }
            Ok(value) => panic!("{command} {shown:?} was answered {value:?}"),
        };
        assert_eq!(text, error, "{command} {shown:?}");
        assert_eq!(bench.connection.ask::<String>("PING"), "PONG");
    }
    assert_eq!(bench.everything(), before);
}

/// A server that holds one of everything a refused call could damage.
fn furnished() -> Bench {
    let mut bench = Bench::new();
    bench.take("k 10 1/h 3");
    for line in [
        "SET string 1",
        "RPUSH list 1",
        "SADD set 1",
        "ZADD zset 1 1",
        "XADD stream * a 1",
        "HSET other_hash a 1",
        "HSET only_tokens tokens 1",
        "HSET only_ts ts 1",
        "HSET bad_tokens tokens many ts 1",
        "HSET bad_ts tokens 1 ts now",
        "HSET nan tokens nan ts 1",
        "HSET inf tokens 1 ts inf",
    ] {
        bench.connection.ask::<redis::Value>(line);
    }
    let _: () =
        cmd("HSET").arg(&["empty_field", "tokens", "", "ts", "1"]).query(&mut bench.connection).unwrap();
    bench
}

#[test]
fn what_is_not_a_number_is_refused_with_the_same_words_each_time() {
    let mut bench = furnished();
    for text in [
        "",
        " ",
        "-1",
        "+1",
        "-0",
        " 1",
        "1 ",
        "1\n",
        "nan",
        "inf",
        "-inf",
        "infinity",
        "0x10",
        "1x",
        "1.",
        ".5",
        "1e",
        "e1",
        "1,5",
        "1_0",
        "9007199254740992",
        "1e400",
        "1e-400",
        "0.0000000001",
        "\u{663}",
        "1/2",
        "--1",
        "1e1.5",
    ] {
        assert_refused(&mut bench, &[b"k", text.as_bytes(), b"1", b"1"], CAPACITY);
        assert_refused(&mut bench, &[b"k", b"1", b"1", text.as_bytes()], COST);
    }
    assert_refused(&mut bench, &[b"k", b"1\0", b"1", b"1"], CAPACITY);
    assert_refused(&mut bench, &[b"k", b"\xff\xfe", b"1", b"1"], CAPACITY);
}

#[test]
fn what_is_not_a_rate_above_0_is_refused() {
    let mut bench = furnished();
    for text in [
        "", " ", "0", "0.0", "-1", "+1", "0/m", "1/0", "1/0s", "/", "1/", "/s", "1//s", "1/s/s", "1/x",
        "1/sec", "1/M", "1 /s", "1/ s", "1/-1", "nan", "inf", "1/inf", "0x1", "1s", "1/1.s",
    ] {
        assert_refused(&mut bench, &[b"k", b"1", text.as_bytes(), b"1"], RATE);
    }
    assert_refused(&mut bench, &[b"k", b"1", b"1/s\0", b"1"], RATE);
}

#[test]
fn a_bucket_that_fills_in_more_than_100_years_is_refused() {
    let mut bench = furnished();
    for (capacity, rate) in
        [("1", "1/36526d"), ("9007199254740991", "1"), ("1", "1e-300"), ("0.000000001", "1e-30")]
    {
        assert_refused(&mut bench, &[b"k", capacity.as_bytes(), rate.as_bytes()], FILL);
    }
    assert_eq!(bench.take("century 1 1/36525d")[0], 1);
    assert_eq!(bench.take("closed 0 1e-300")[2], -1);
}

#[test]
fn a_wrong_number_of_arguments_gets_the_servers_own_words() {
    let mut bench = furnished();
    for command in ["rl.take", "rl.peek"] {
        let error = format!("ERR wrong number of arguments for '{command}' command");
        for arguments in ["", "k", "k 1", "k 1 1 1 1", "k 1 1 1 1 1 1"] {
            let before = bench.everything();
            let line = format!("{} {arguments}", command.to_uppercase());
            // Redis 6.2 repeats the command's name as it was typed.
            assert_eq!(bench.connection.ask_error(&line).to_lowercase(), error.to_lowercase(), "{line}");
            assert_eq!(bench.everything(), before, "{line}");
        }
    }
}

#[test]
fn a_key_of_another_type_is_refused() {
    let mut bench = furnished();
    for key in ["string", "list", "set", "zset", "stream"] {
        assert_refused(&mut bench, &[key.as_bytes(), b"5", b"1"], WRONG_TYPE);
    }
}

#[test]
fn a_hash_that_is_not_a_bucket_is_refused() {
    let mut bench = furnished();
    for key in ["other_hash", "only_tokens", "only_ts", "bad_tokens", "bad_ts", "nan", "inf", "empty_field"] {
        assert_refused(&mut bench, &[key.as_bytes(), b"5", b"1"], NOT_A_BUCKET);
    }
}

#[test]
fn arguments_are_checked_before_the_key_is_opened() {
    let mut bench = furnished();
    assert_refused(&mut bench, &[b"string", b"x", b"1"], CAPACITY);
    assert_refused(&mut bench, &[b"string", b"x", b"x", b"x"], CAPACITY);
    assert_refused(&mut bench, &[b"string", b"1", b"x", b"x"], RATE);
}

#[test]
fn numbers_may_be_written_as_languages_print_them() {
    let mut bench = Bench::new();
    for (index, arguments) in [
        "5.0 1 1",
        "5e0 1.0 1.0",
        "0.5e+1 1e0 1E0",
        "5 60/m 1",
        "5 3600/1h 1.000000000",
        "50E-1 1000/1000s 1",
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(bench.take(&format!("k{index} {arguments}")), [1, 4, 0, 1000], "{arguments}");
    }
    assert_eq!(bench.take("ninth 1 0.1111111111111111"), [1, 0, 0, 9000]);
    assert_eq!(bench.take("exact_ninth 1 1/9"), [1, 0, 0, 9000]);
    assert_eq!(bench.take("largest 9007199254740991 9007199254740991 9007199254740990")[..2], [1, 1]);
}

#[test]
fn the_cost_is_1_when_left_out() {
    let mut bench = Bench::new();
    assert_eq!(bench.take("k 5 1"), [1, 4, 0, 1000]);
    assert_eq!(bench.peek("k 5 1")[1], 3);
}

#[test]
fn keys_are_bytes() {
    let mut bench = Bench::new();
    let long = vec![b'k'; 100_000];
    for key in [&b""[..], b"\0", b"\xff\xfe", b"a b\r\nc", "\u{1f600}".as_bytes(), b"{}", &long] {
        let reply: [i64; 4] = cmd("RL.TAKE").arg(key).arg(&["5", "1"]).query(&mut bench.connection).unwrap();
        assert_eq!(reply, [1, 4, 0, 1000], "{key:?}");
        let kind: String = cmd("TYPE").arg(key).query(&mut bench.connection).unwrap();
        assert_eq!(kind, "hash");
    }
}

#[test]
fn an_endless_number_is_refused_without_being_read() {
    let mut bench = Bench::new();
    let digits = vec![b'1'; 10_000_000];
    assert_refused(&mut bench, &[b"k", &digits, b"1"], CAPACITY);
    assert_refused(&mut bench, &[b"k", b"1", &digits], RATE);
}

/// In a debug build of the module, RL.PANIC panics in its handler.
#[test]
fn a_panic_in_a_handler_is_an_error_and_the_server_lives() {
    let mut bench = Bench::on(Server::start());
    let error = bench.connection.ask_error("RL.PANIC");
    assert_eq!(error, "ERR internal error in module rl, nothing was changed; see the server log");
    assert_eq!(bench.take("k 5 1"), [1, 4, 0, 1000]);
    let log = bench.server.log();
    assert!(log.contains("RL.PANIC was called"), "no line in the log:\n{log}");
}
