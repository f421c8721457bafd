//! CL.THROTTLE: redis-cell's command on ordinary buckets, and the strings that redis-cell has left.

use std::fs;
use std::path::PathBuf;

use harness::redis::{Value, cmd, pipe};
use harness::{Ask, Builder, Server, server_version};

use crate::bucket::{Bench, Timed, server_millis};

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NOT_A_BUCKET: &str = "WRONGTYPE the hash at this key is not a token bucket";

fn builder() -> Builder {
    Server::builder().module_arguments("cl-throttle yes")
}

fn bench() -> Bench {
    Bench::on(builder().start())
}

impl Bench {
    /// `[limited, limit, remaining, retry_after, reset_after]`
    #[track_caller]
    fn throttle(&mut self, arguments: &str) -> [i64; 5] {
        let reply: Vec<i64> = self.connection.ask(&format!("CL.THROTTLE {arguments}"));
        reply.try_into().unwrap_or_else(|reply| panic!("{arguments}: not five integers but {reply:?}"))
    }

    /// Puts a string at `key` as redis-cell does: full in `millis` from now, and expiring then.
    #[track_caller]
    fn arrival(&mut self, key: &str, millis: i64) {
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
fn a_string_of_redis_cell_is_taken_over_with_what_it_holds() {
    let mut bench = bench();
    let timed = Timed::start();
    bench.arrival("k", 20_000); // ten tokens of two seconds are missing
    assert_eq!(bench.throttle("k 15 30 60 2"), [0, 16, 4, -1, 24]);
    let [allowed, remaining, _, reset] = bench.peek("k 16 30/60 0");
    assert_eq!([allowed, remaining], [1, 4]);
    timed.assert_millis(reset, 24_000);
    let ttl: i64 = bench.connection.ask("PTTL k");
    assert!((24_000..=49_000).contains(&ttl), "PTTL is {ttl}");
}

#[test]
fn a_denial_takes_a_string_over_too() {
    let mut bench = bench();
    bench.arrival("empty", 32_000);
    assert_eq!(bench.throttle("empty 15 30 60"), [1, 16, 0, 2, 32]);
    // Its limit was higher when redis-cell wrote it: what is missing beyond the capacity is a debt.
    bench.arrival("debt", 40_000);
    assert_eq!(bench.throttle("debt 15 30 60"), [1, 16, 0, 10, 40]);
    for key in ["empty", "debt"] {
        assert_eq!(bench.connection.ask::<String>(&format!("TYPE {key}")), "hash");
    }
    assert_eq!(bench.throttle("debt 15 30 60"), [1, 16, 0, 10, 40]);
}

#[test]
fn a_string_whose_time_has_come_is_a_full_bucket() {
    let mut bench = bench();
    // Without an expiry, as an error of redis-cell leaves it.
    bench.connection.ask::<()>("SET k 1700000000000000000");
    assert_eq!(bench.throttle("k 15 30 60"), [0, 16, 15, -1, 2]);
    bench.connection.ask::<()>("SET k 1700000000000000000");
    assert_eq!(bench.throttle("k 15 30 60 -3"), [0, 16, 16, -1, 0]);
    assert_eq!(bench.connection.ask::<String>("TYPE k"), "hash");
    let ttl: i64 = bench.connection.ask("PTTL k");
    assert!(ttl > 0, "PTTL is {ttl}");
}

#[test]
fn a_string_from_the_far_future_is_a_debt_and_the_server_lives() {
    let mut bench = bench();
    for rate in ["1 1", "9223372036854775807 1", "1 3000000000"] {
        bench.connection.ask::<()>("SET k 18446744073709551615");
        let reply = bench.throttle(&format!("k 0 {rate}"));
        assert_eq!(reply[..3], [1, 1, 0], "{rate}");
        assert!(reply[3] > 0 && reply[4] > 0, "{rate}: {reply:?}");
    }
}

#[test]
fn a_string_that_is_no_arrival_time_is_refused_and_left() {
    let mut bench = bench();
    for text in [
        "",
        "0",
        "37",
        "1796105163460",
        "999999999999999999",
        "1796105163460000000x",
        "+1796105163460000000",
        "-1796105163460000000",
        "01796105163460000000",
        " 1796105163460000000",
        "1796105163.460000000",
        "18446744073709551616",
        "179610516346000000000",
        "a session token",
    ] {
        let _: () = cmd("SET").arg("k").arg(text).query(&mut bench.connection).unwrap();
        for ttl in ["PERSIST k", "PEXPIRE k 100000"] {
            bench.connection.ask::<i64>(ttl);
            let before = bench.everything();
            for quantity in ["1", "0", "-1"] {
                let line = format!("CL.THROTTLE k 15 30 60 {quantity}");
                assert_eq!(bench.connection.ask_error(&line), WRONG_TYPE, "{text:?}, {line}");
            }
            assert_eq!(bench.everything(), before, "{text:?}");
        }
    }
}

#[test]
fn other_commands_do_not_read_a_string_of_redis_cell() {
    let mut bench = bench();
    bench.arrival("k", 20_000);
    let before = bench.everything();
    for line in ["RL.TAKE k 16 30/60", "RL.PEEK k 16 30/60", "RL.GIVE k 16 30/60 1", "RL.CHARGE k 16 30/60 1"]
    {
        assert_eq!(bench.connection.ask_error(line), WRONG_TYPE, "{line}");
    }
    assert_eq!(bench.everything(), before);
}

#[test]
fn a_takeover_is_replicated_as_one_transaction_of_effects() {
    let master = builder().tcp().config("repl-ping-replica-period", "3600").start();
    let replica = Server::builder().start_replica_of(&master);
    let (mut master, mut replica) = (Bench::on(master), Bench::on(replica));
    master.arrival("k", 20_000);
    replica.server.await_offset_of(&master.server);
    replica.connection.ask::<()>("CONFIG RESETSTAT");
    master.throttle("k 15 30 60");
    replica.server.await_offset_of(&master.server);
    let calls = |command| replica.server.command_stats(command).0;
    let expiries = calls("pexpireat") + calls("pexpire");
    assert_eq!((calls("del"), calls("hset"), expiries, calls("cl.throttle")), (1, 1, 1, 0));
    assert_eq!((calls("multi"), calls("exec")), (1, 1));
    assert_eq!(replica.everything(), master.everything());

    let before = master.server.replication_offset();
    for _ in 0..100 {
        master.throttle("k 15 30 60 16");
        master.throttle("k 15 30 60 0");
    }
    assert_eq!(master.server.replication_offset(), before, "a denial or a peek was replicated");
}

fn survives(bench: &mut Bench, line: &str) -> bool {
    let mut watcher = bench.server.connection();
    watcher.ask::<()>("WATCH k");
    bench.connection.ask::<Value>(line);
    watcher.ask::<()>("MULTI");
    watcher.ask::<()>("PING");
    watcher.ask::<Value>("EXEC") != Value::Nil
}

#[test]
fn watch_is_broken_by_a_takeover_and_not_by_a_denial_or_a_peek() {
    let mut bench = bench();
    bench.arrival("k", 32_000);
    assert!(survives(&mut bench, "CL.THROTTLE k 15 30 60 0"), "a peek broke WATCH");
    assert!(!survives(&mut bench, "CL.THROTTLE k 15 30 60 16"), "a takeover did not break WATCH");
    assert!(survives(&mut bench, "CL.THROTTLE k 15 30 60 16"), "a denial broke WATCH");
    assert!(!survives(&mut bench, "CL.THROTTLE k 15 30 60 -1"), "a gift did not break WATCH");
}

/// The files to which `server` appends commands.
fn append_only_files(server: &Server) -> Vec<PathBuf> {
    let dirs = [server.dir().to_owned(), server.dir().join("appendonlydir")];
    let files = dirs.iter().filter_map(|dir| fs::read_dir(dir).ok()).flatten();
    let paths = files.map(|entry| entry.expect("a file").path());
    paths
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.ends_with(".incr.aof") || name == "appendonly.aof"
        })
        .collect()
}

#[test]
fn a_takeover_is_the_same_after_the_append_only_file_is_read_again() {
    let mut bench = Bench::on(builder().config("appendonly", "yes").config("appendfsync", "always").start());
    bench.arrival("k", 20_000);
    bench.throttle("k 15 30 60");
    let before = bench.everything();
    bench.server.kill();
    bench.server.start_again();
    let mut bench = Bench::on(bench.server);
    assert_eq!(bench.everything(), before);
}

/// redis-cell appends its calls as they are, so that they run again when a server loads the file.
#[test]
fn calls_in_an_append_only_file_of_redis_cell_are_run() {
    let mut bench = Bench::on(builder().config("appendonly", "yes").start());
    bench.arrival("k", 20_000);
    bench.server.kill();
    let files = append_only_files(&bench.server);
    let [file] = files.as_slice() else { panic!("one file was expected, not {files:?}") };
    let mut log = fs::read(file).expect("the append-only file");
    let call = cmd("CL.THROTTLE").arg(&["k", "15", "30", "60", "2"]).get_packed_command();
    log.extend_from_slice(&call);
    fs::write(file, log).expect("the file as redis-cell leaves it");
    bench.server.start_again();
    let mut bench = Bench::on(bench.server);
    assert_eq!(bench.throttle("k 15 30 60 0")[..3], [0, 16, 4]);
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
