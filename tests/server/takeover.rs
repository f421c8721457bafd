//! The strings that redis-cell has left become buckets.

use std::fs;
use std::path::PathBuf;

use harness::redis::cmd;
use harness::{Ask, Server};

use crate::bucket::{Bench, Timed};
use crate::throttle::{WRONG_TYPE, bench, builder};
use crate::transactions::survives;

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
    // Ten tokens of two minutes are missing: a restart may take some seconds.
    bench.arrival("k", 1_200_000);
    bench.server.kill();
    let files = append_only_files(&bench.server);
    let [file] = files.as_slice() else { panic!("one file was expected, not {files:?}") };
    let mut log = fs::read(file).expect("the append-only file");
    let call = cmd("CL.THROTTLE").arg(&["k", "15", "30", "3600", "2"]).get_packed_command();
    log.extend_from_slice(&call);
    fs::write(file, log).expect("the file as redis-cell leaves it");
    bench.server.start_again();
    let mut bench = Bench::on(bench.server);
    assert_eq!(bench.throttle("k 15 30 3600 0")[..3], [0, 16, 4]);
}
