//! CL.THROTTLE: redis-cell's command on ordinary buckets.

use harness::redis::{Value, cmd, pipe};
use harness::{Ask, Builder, Server, server_version};

use crate::bucket::{Bench, server_millis};

pub(crate) const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NOT_A_BUCKET: &str = "WRONGTYPE the hash at this key is not a token bucket";

pub(crate) fn builder() -> Builder {
    Server::builder().module_arguments("cl-throttle yes")
}

pub(crate) fn bench() -> Bench {
    Bench::on(builder().start())
}

impl Bench {
    /// `[limited, limit, remaining, retry_after, reset_after]`
    #[track_caller]
    pub(crate) fn throttle(&mut self, arguments: &str) -> [i64; 5] {
        let reply: Vec<i64> = self.connection.ask(&format!("CL.THROTTLE {arguments}"));
        reply.try_into().unwrap_or_else(|reply| panic!("{arguments}: not five integers but {reply:?}"))
    }

    /// Puts a string at `key` as redis-cell does: full in `millis` from now, and expiring then.
    #[track_caller]
    pub(crate) fn arrival(&mut self, key: &str, millis: i64) {
        let at = server_millis(self) + millis;
        self.connection.ask::<()>(&format!("SET {key} {at}000000 PX {}", millis.max(1)));
    }
}

#[test]
fn the_command_is_there_only_when_asked_for() {
    let mut plain = Bench::on(Server::builder().module_arguments("cl-throttle no").start());
    let error = plain.connection.ask_error("CL.THROTTLE k 15 30 60");
    assert!(error.starts_with("ERR unknown command"), "{error}");
    assert_eq!(bench().throttle("k 15 30 60"), [0, 16, 15, -1, 2]);
}

#[test]
fn a_burst_a_denial_and_the_wait_are_told_in_seconds() {
    let mut bench = bench();
    for left in (0..3).rev() {
        assert_eq!(bench.throttle("k 2 1 10"), [0, 3, left, -1, (3 - left) * 10]);
    }
    assert_eq!(bench.throttle("k 2 1 10"), [1, 3, 0, 10, 30]);
    bench.pass("k", 1_100);
    assert_eq!(bench.throttle("k 2 1 10 3"), [1, 3, 0, 29, 29]);
    bench.pass("k", 8_900);
    assert_eq!(bench.throttle("k 2 1 10"), [0, 3, 0, -1, 30]);
}

#[test]
fn what_never_fits_is_denied_without_a_wait() {
    let mut bench = bench();
    assert_eq!(bench.throttle("k 2 1 10 4"), [1, 3, 3, -1, 0]);
    assert_eq!(bench.throttle("k 2 1 10 9223372036854775807"), [1, 3, 3, -1, 0]);
    assert_eq!(bench.throttle("k -1 1 10"), [1, 0, 0, -1, 0]);
    assert!(!bench.exists("k"));
}

#[test]
fn the_bucket_is_an_ordinary_one() {
    let mut bench = bench();
    bench.throttle("k 15 30 60 6");
    assert_eq!(bench.peek("k 16 30/60 0")[..2], [1, 10]);
    bench.take("k 16 0.5 4");
    assert_eq!(bench.throttle("k 15 30 60 0")[..3], [0, 16, 6]);
    let mut fields: Vec<String> = bench.fields("k").into_keys().collect();
    fields.sort();
    assert_eq!(fields, ["tokens", "ts"]);
    let ttl: i64 = bench.connection.ask("PTTL k");
    assert!((20_000..=41_000).contains(&ttl), "PTTL is {ttl}, the bucket fills in 20 s");
}

#[test]
fn a_quantity_of_0_asks_and_writes_nothing() {
    let mut bench = bench();
    assert_eq!(bench.throttle("missing 15 30 60 0"), [0, 16, 16, -1, 0]);
    bench.throttle("k 15 30 60 16");
    bench.arrival("string", 20_000);
    let before = bench.everything();
    assert_eq!(bench.throttle("k 15 30 60 0"), [0, 16, 0, -1, 32]);
    assert_eq!(bench.throttle("string 15 30 60 0"), [0, 16, 6, -1, 20]);
    assert_eq!(bench.everything(), before);
}

/// redis-cell#22: there a gift to a full bucket is an error, and leaves a key that never expires.
#[test]
fn a_negative_quantity_gives_back_up_to_the_capacity() {
    let mut bench = bench();
    assert_eq!(bench.throttle("k 15 30 60 -5"), [0, 16, 16, -1, 0]);
    assert!(!bench.exists("k"));
    bench.throttle("k 15 30 60 10");
    assert_eq!(bench.throttle("k 15 30 60 -4"), [0, 16, 10, -1, 12]);
    assert_eq!(bench.throttle("k 15 30 60 -9223372036854775808"), [0, 16, 16, -1, 0]);
    assert_eq!(bench.throttle("k 15 30 60 17"), [1, 16, 16, -1, 0]);
    let ttl: i64 = bench.connection.ask("PTTL k");
    assert!(ttl > 0, "PTTL is {ttl}");
}

#[test]
fn a_debt_is_paid_before_anything_is_allowed() {
    let mut bench = bench();
    bench.reply("RL.CHARGE k 16 30/60 20");
    assert_eq!(bench.throttle("k 15 30 60 0"), [1, 16, 0, 8, 40]);
    assert_eq!(bench.throttle("k 15 30 60"), [1, 16, 0, 10, 40]);
    assert_eq!(bench.throttle("k 15 30 60 -1"), [0, 16, 0, -1, 38]);
}

#[test]
fn a_denial_writes_nothing() {
    let mut bench = bench();
    bench.throttle("k 15 1 86400 16");
    let before = bench.everything();
    for quantity in ["1", "16", "17", "0"] {
        bench.throttle(&format!("k 15 1 86400 {quantity}"));
    }
    assert_eq!(bench.everything(), before);
}

#[test]
fn arguments_are_refused_with_what_would_be_right_and_nothing_is_changed() {
    let mut bench = bench();
    bench.throttle("k 15 30 60");
    bench.arrival("string", 20_000);
    let before = bench.everything();
    let burst = "ERR max_burst must be an integer from -1 to 9007199254740990";
    let count = "ERR count must be an integer above 0";
    let period = "ERR period must be an integer of seconds above 0";
    let quantity = "ERR quantity must be an integer";
    for (arguments, error) in [
        ("k -2 30 60", burst),
        ("k 9007199254740991 30 60", burst),
        ("k 9223372036854775807 30 60", burst),
        ("k 9223372036854775808 30 60", burst),
        ("k 1.5 30 60", burst),
        ("k x 30 60", burst),
        ("k 15 0 60", count),
        ("k 15 -30 -60", count),
        ("k 15 30/m 60", count),
        ("k 15 30 0", period),
        ("k 15 30 -60", period),
        ("k 15 30 60s", period),
        ("k 15 30 60 x", quantity),
        ("k 15 30 60 9223372036854775808", quantity),
        ("k 15 30 60 0x1", quantity),
        ("k 15 1 3155760000", "ERR bucket must fill within 100 years"),
        ("k 15 30", "ERR wrong number of arguments for 'cl.throttle' command"),
        ("k 15 30 60 1 1", "ERR wrong number of arguments for 'cl.throttle' command"),
    ] {
        for key in ["k", "string", "missing"] {
            let line = format!("CL.THROTTLE {}", arguments.replacen('k', key, 1));
            // Redis 6.2 repeats the command's name as it was typed.
            let got = bench.connection.ask_error(&line).replace("CL.THROTTLE", "cl.throttle");
            assert_eq!(got, error, "{line}");
        }
    }
    assert_eq!(bench.everything(), before);
}

#[test]
fn integers_may_be_written_as_redis_cell_reads_them() {
    assert_eq!(bench().throttle("k +15 0030 60 +1"), [0, 16, 15, -1, 2]);
    assert_eq!(bench().throttle("k 15 30 60 -0"), [0, 16, 16, -1, 0]);
}

/// There each of these ends the server process.
#[test]
fn keys_of_another_type_and_of_any_bytes_leave_the_server_alive() {
    let mut bench = bench();
    for line in ["RPUSH list 1", "SADD set 1", "ZADD zset 1 1", "XADD stream * a 1", "HSET hash a 1"] {
        bench.connection.ask::<Value>(line);
    }
    let before = bench.everything();
    for key in ["list", "set", "zset", "stream"] {
        assert_eq!(bench.connection.ask_error(&format!("CL.THROTTLE {key} 15 30 60")), WRONG_TYPE);
    }
    assert_eq!(bench.connection.ask_error("CL.THROTTLE hash 15 30 60"), NOT_A_BUCKET);
    assert_eq!(bench.everything(), before);
    let reply: [i64; 5] =
        cmd("CL.THROTTLE").arg(&b"\xff\0"[..]).arg(&["15", "30", "60"]).query(&mut bench.connection).unwrap();
    assert_eq!(reply, [0, 16, 15, -1, 2]);
}

#[test]
fn it_runs_in_scripts_and_transactions() {
    let mut bench = bench();
    let script = "return redis.call('CL.THROTTLE', KEYS[1], 2, 1, 60)";
    let reply: [i64; 5] =
        cmd("EVAL").arg(script).arg(1).arg("k").query(&mut bench.connection).expect("a reply");
    assert_eq!(reply, [0, 3, 2, -1, 60]);
    let replies: Vec<[i64; 5]> = pipe()
        .atomic()
        .cmd("CL.THROTTLE")
        .arg(&["k", "2", "1", "60", "2"])
        .cmd("CL.THROTTLE")
        .arg(&["k", "2", "1", "60"])
        .query(&mut bench.connection)
        .expect("replies");
    assert_eq!(replies, [[0, 3, 0, -1, 180], [1, 3, 0, 60, 180]]);
}

#[test]
fn it_is_described_counted_and_permitted_as_the_others() {
    let mut bench = bench();
    let keys: Vec<String> = bench.connection.ask("COMMAND GETKEYS CL.THROTTLE the:key 15 30 60");
    assert_eq!(keys, ["the:key"]);
    let info: Vec<Vec<Value>> = bench.connection.ask("COMMAND INFO cl.throttle");
    let flags: Vec<String> = harness::redis::from_redis_value_ref(&info[0][2]).unwrap();
    for flag in ["write", "denyoom", "fast"] {
        assert!(flags.iter().any(|name| name == flag), "{flag} is missing: {flags:?}");
    }
    if server_version().has_redis(7, 0) {
        let docs: String = format!("{:?}", bench.connection.ask::<Value>("COMMAND DOCS cl.throttle"));
        for word in ["max_burst", "count", "period", "quantity", "integer", "summary"] {
            assert!(docs.contains(word), "no {word} in {docs}");
        }
    }
    for quantity in ["2", "16", "-1", "0", "x"] {
        let _ = bench.connection.try_ask::<Value>(&format!("CL.THROTTLE k 15 1 86400 {quantity}"));
    }
    for (field, count) in
        [("rl_throttle_allowed", "3"), ("rl_throttle_denied", "1"), ("rl_throttle_errors", "1")]
    {
        assert_eq!(bench.server.info("rl", field), count, "{field}");
    }
    bench.connection.ask::<()>("ACL SETUSER limiter on nopass ~user:* +cl.throttle");
    let mut limited = bench.server.connection();
    limited.ask::<()>("AUTH limiter any");
    assert_eq!(limited.ask::<[i64; 5]>("CL.THROTTLE user:1 15 30 60"), [0, 16, 15, -1, 2]);
    let error = limited.ask_error("CL.THROTTLE other 15 30 60");
    assert!(error.starts_with("NOPERM"), "{error}");
    if bench.connection.try_ask::<()>("ACL SETUSER all on nopass ~* +@ratelimit").is_ok() {
        let mut limited = bench.server.connection();
        limited.ask::<()>("AUTH all any");
        assert_eq!(limited.ask::<[i64; 5]>("CL.THROTTLE user:1 15 30 60")[2], 14);
    }
}
