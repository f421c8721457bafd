//! RL.HOT: which keys are taken from, and denied, most.

use std::collections::HashMap;

use harness::redis::{Connection, Value, cmd, pipe};
use harness::{Ask, Cluster, Server, server_version};

use crate::bucket::Bench;

/// `[key, count, error, length of the key]`
type Entry = (Vec<u8>, u64, u64, u64);

const REFUSED: &str = "ERR RL.HOT takes DENIED and COUNT n, or RESET alone";
const COUNT: &str = "ERR count must be a whole number from 1 to 1024";
const OFF: &str = "ERR hot keys are off, set rl.hot-keys to 1 or more";

/// Keys and counts that `line` lists, when none of them is in error or cut.
#[track_caller]
fn exact(connection: &mut Connection, line: &str) -> Vec<(String, u64)> {
    let entries: Vec<Entry> = connection.ask(line);
    let exact = |(key, count, error, len): Entry| {
        assert_eq!((error, len), (0, key.len() as u64), "{line}: error and length of {key:?}");
        (String::from_utf8(key).expect("a text"), count)
    };
    entries.into_iter().map(exact).collect()
}

fn listed(entries: &[(&str, u64)]) -> Vec<(String, u64)> {
    entries.iter().map(|&(key, count)| (key.to_owned(), count)).collect()
}

/// Whether settings of modules are the server's, or only arguments of `loadmodule`.
fn has_settings() -> bool {
    server_version().has_redis(7, 0)
}

#[test]
fn keys_are_listed_by_how_often_they_were_taken_from() {
    let mut bench = Bench::new();
    assert_eq!(exact(&mut bench.connection, "RL.HOT"), []);
    for key in ["a", "b", "a", "c", "c", "a"] {
        bench.take(&format!("{key} 5 1/h"));
    }
    let expected = listed(&[("a", 3), ("c", 2), ("b", 1)]);
    assert_eq!(exact(&mut bench.connection, "RL.HOT"), expected);
    assert_eq!(exact(&mut bench.server.connection_resp3(), "RL.HOT"), expected, "RESP3");
    assert_eq!(exact(&mut bench.connection, "RL.HOT DENIED"), []);
}

#[test]
fn denied_keys_are_listed_apart() {
    let mut bench = Bench::new();
    for key in ["a", "b", "b", "a", "a"] {
        bench.take(&format!("{key} 1 1/h"));
    }
    assert_eq!(exact(&mut bench.connection, "RL.HOT denied"), listed(&[("a", 2), ("b", 1)]));
    assert_eq!(exact(&mut bench.connection, "RL.HOT"), listed(&[("a", 1), ("b", 1)]));
}

#[test]
fn a_stack_counts_each_bucket_taken_from_and_each_that_had_too_few() {
    let mut bench = Bench::new();
    let stack = "RL.TAKEALL tenant 5 1/h 1 route 1 1/h 1 free 5 1/h 0";
    bench.connection.ask::<Value>(stack);
    bench.connection.ask::<Value>(stack);
    bench.connection.ask::<Value>(stack);
    assert_eq!(exact(&mut bench.connection, "RL.HOT"), listed(&[("tenant", 1), ("route", 1)]));
    assert_eq!(exact(&mut bench.connection, "RL.HOT DENIED"), listed(&[("route", 2)]));
}

#[test]
fn a_charge_counts_and_what_takes_nothing_does_not() {
    let mut bench = Bench::new();
    for line in [
        "RL.CHARGE charged 5 1/h 9",
        "RL.CHARGE k 5 1/h 0",
        "RL.TAKE k 5 1/h 0",
        "RL.TAKE charged 5 1/h 0",
        "RL.PEEK k 5 1/h 1",
        "RL.PEEK k 5 1/h 6",
        "RL.GIVE charged 5 1/h 1",
    ] {
        bench.reply(line);
    }
    bench.connection.ask_error("RL.TAKE k 5 never");
    bench.connection.ask::<Value>("SET string 1");
    bench.connection.ask_error("RL.TAKE string 5 1");
    bench.connection.ask_error("RL.TAKEALL k 5 1 1 string 5 1 1");
    assert_eq!(exact(&mut bench.connection, "RL.HOT"), listed(&[("charged", 1)]));
    assert_eq!(exact(&mut bench.connection, "RL.HOT DENIED"), []);
}

#[test]
fn redis_cells_command_counts_as_a_take() {
    let mut bench = Bench::on(Server::builder().module_arguments("cl-throttle yes").start());
    for quantity in ["1", "1", "0", "2", "-1"] {
        bench.connection.ask::<Value>(&format!("CL.THROTTLE k 0 1 3600 {quantity}"));
    }
    assert_eq!(exact(&mut bench.connection, "RL.HOT"), listed(&[("k", 1)]));
    assert_eq!(exact(&mut bench.connection, "RL.HOT DENIED"), listed(&[("k", 2)]));
}

#[test]
fn calls_in_scripts_and_transactions_count() {
    let mut bench = Bench::new();
    let _: () = cmd("EVAL")
        .arg("for i = 1, 3 do redis.call('RL.TAKE', KEYS[1], 2, '1/h') end")
        .arg(&["1", "k"])
        .query(&mut bench.connection)
        .unwrap();
    let mut transaction = pipe();
    transaction.atomic().cmd("RL.TAKE").arg(&["other", "1", "1/h"]).cmd("RL.HOT").arg("DENIED");
    let _: Value = transaction.query(&mut bench.connection).unwrap();
    assert_eq!(exact(&mut bench.connection, "RL.HOT"), listed(&[("k", 2), ("other", 1)]));
    assert_eq!(exact(&mut bench.connection, "RL.HOT DENIED"), listed(&[("k", 1)]));
}

#[test]
fn ten_keys_are_listed_unless_told_otherwise() {
    let mut bench = Bench::new();
    for key in 0..20 {
        bench.take(&format!("k{key} 5 1/h"));
        bench.take(&format!("k{key} 5 1/h 9"));
    }
    for (line, len) in [
        ("RL.HOT", 10),
        ("RL.HOT COUNT 1", 1),
        ("RL.HOT count 15 denied", 15),
        ("RL.HOT DENIED COUNT 1024", 20),
        ("RL.HOT DENIED", 10),
    ] {
        assert_eq!(bench.connection.ask::<Vec<Entry>>(line).len(), len, "{line}");
    }
}

#[test]
fn other_arguments_are_refused_with_what_would_be_right() {
    let mut bench = Bench::new();
    bench.take("k 5 1/h");
    for (line, error) in [
        ("RL.HOT ALLOWED", REFUSED),
        ("RL.HOT DENIED DENIED", REFUSED),
        ("RL.HOT COUNT", REFUSED),
        ("RL.HOT DENIED COUNT", REFUSED),
        ("RL.HOT COUNT DENIED", COUNT),
        ("RL.HOT RESET DENIED", REFUSED),
        ("RL.HOT DENIED RESET", REFUSED),
        ("RL.HOT RESET COUNT 1", REFUSED),
        ("RL.HOT COUNT 1 RESET", REFUSED),
        ("RL.HOT COUNT 0", COUNT),
        ("RL.HOT COUNT 1025", COUNT),
        ("RL.HOT COUNT -1", COUNT),
        ("RL.HOT COUNT +1", COUNT),
        ("RL.HOT COUNT 1.0", COUNT),
        ("RL.HOT COUNT 1e1", COUNT),
        ("RL.HOT COUNT 18446744073709551617", COUNT),
        ("RL.HOT DENIED COUNT 1 1", "ERR wrong number of arguments for 'rl.hot' command"),
    ] {
        let found = bench.connection.ask_error(line).replace("'RL.HOT'", "'rl.hot'");
        assert_eq!(found, error, "{line}");
    }
    let empty = cmd("RL.HOT").arg("COUNT").arg("").query::<Value>(&mut bench.connection);
    assert_eq!(empty.unwrap_err().detail(), COUNT.strip_prefix("ERR "));
    assert_eq!(exact(&mut bench.connection, "RL.HOT"), listed(&[("k", 1)]), "nothing was forgotten");
    assert_eq!(bench.server.info("rl", "rl_hot_errors"), "18");
}

#[test]
fn a_long_key_is_cut_and_told_from_others_that_begin_alike() {
    let mut bench = Bench::new();
    let common = "x".repeat(127);
    let keys = [format!("{common}yz"), format!("{common}yq"), format!("{common}y"), "\u{e9}".to_owned()];
    for (takes, key) in keys.iter().enumerate() {
        for _ in 0..takes + 1 {
            bench.take(&format!("{key} 9 1/h"));
        }
    }
    let binary: &[u8] = b"\0\r\n\xff ";
    let _: Value = cmd("RL.TAKE").arg(binary).arg(&["1", "1", "0.5"]).query(&mut bench.connection).unwrap();
    let entries: Vec<Entry> = bench.connection.ask("RL.HOT");
    let cut = format!("{common}y").into_bytes();
    assert_eq!(entries[0], ("\u{e9}".into(), 4, 0, 2));
    assert_eq!(entries[1], (cut.clone(), 3, 0, 128), "not cut: as long as what is kept");
    assert_eq!(entries[2], (cut.clone(), 2, 0, 129));
    assert_eq!(entries[3], (cut, 1, 0, 129));
    assert_eq!(entries[4], (binary.to_vec(), 1, 0, 5));
}

#[test]
fn a_reset_forgets_everything() {
    let mut bench = Bench::new();
    bench.take("k 1 1/h");
    bench.take("k 1 1/h");
    assert_eq!(bench.connection.ask::<String>("RL.HOT reset"), "OK");
    for line in ["RL.HOT", "RL.HOT DENIED"] {
        assert_eq!(exact(&mut bench.connection, line), [], "{line}");
    }
    assert_eq!(bench.server.info("rl", "rl_hot_taken_total"), "0");
    bench.take("other 1 1/h");
    assert_eq!(exact(&mut bench.connection, "RL.HOT"), listed(&[("other", 1)]));
}

#[test]
fn info_tells_totals_and_the_leading_counts() {
    let mut bench = Bench::new();
    let now: (u64, u64) = bench.connection.ask("TIME");
    bench.connection.ask::<()>("RL.HOT RESET");
    for key in ["a", "a", "a", "b", "c"] {
        bench.take(&format!("{key} 2 1/h"));
    }
    for (field, value) in [
        ("rl_hot_keys", 64),
        ("rl_hot_taken_total", 4),
        ("rl_hot_taken_top_count", 2),
        ("rl_hot_taken_top_error", 0),
        ("rl_hot_denied_total", 1),
        ("rl_hot_denied_top_count", 1),
        ("rl_hot_denied_top_error", 0),
    ] {
        assert_eq!(bench.server.info("rl", field), value.to_string(), "{field}");
    }
    let since: u64 = bench.server.info("rl", "rl_hot_since").parse().unwrap();
    assert!((now.0..now.0 + 60).contains(&since), "reset at {since}, after {now:?}");
}

/// The figures of RL.HOT against exact counts, for a stream of which two in three keys find no counter of their own.
#[test]
fn counts_bound_the_true_ones_on_a_zipfian_stream() {
    const COUNTERS: usize = 64;
    let mut bench = Bench::new();
    let mut exact: HashMap<Vec<u8>, u64> = HashMap::new();
    let mut total = 0;
    // Rank r is taken from 3000/r times, in an order that mixes all.
    for round in 0..3000_u64 {
        let mut batch = pipe();
        for rank in (1..=200).filter(|rank| round % rank == 0) {
            let key = format!("{{tenant{rank}}}:rl:search:0");
            *exact.entry(key.clone().into_bytes()).or_default() += 1;
            total += 1;
            batch.cmd("RL.TAKE").arg(&[&key, "1000000", "1"]).ignore();
        }
        let () = batch.query(&mut bench.connection).unwrap();
    }
    let entries: Vec<Entry> = bench.connection.ask("RL.HOT COUNT 1024");
    assert_eq!(entries.len(), COUNTERS);
    assert!(entries.is_sorted_by(|a, b| a.1 >= b.1), "{entries:?}");
    for (key, count, error, _) in &entries {
        let truth = exact[key];
        assert!((count - error..=*count).contains(&truth), "{truth} is not in {count} - {error}..={count}");
    }
    let least = entries.last().unwrap().1;
    for (key, truth) in &exact {
        let known = entries.iter().any(|entry| entry.0 == *key);
        assert!(known || *truth <= least, "{} has {truth} and is not listed", key.escape_ascii());
    }
    let first: Vec<&[u8]> = entries[..5].iter().map(|entry| &entry.0[..]).collect();
    let expected: Vec<String> = (1..=5).map(|rank| format!("{{tenant{rank}}}:rl:search:0")).collect();
    assert_eq!(first, expected.iter().map(String::as_bytes).collect::<Vec<_>>());
    assert_eq!(bench.server.info("rl", "rl_hot_taken_total"), total.to_string());
}

#[test]
fn the_size_is_an_argument_of_loadmodule() {
    let mut bench = Bench::on(Server::builder().module_arguments("hot-keys 2").start());
    for key in ["a", "a", "a", "b", "b", "c"] {
        bench.take(&format!("{key} 5 1/h"));
    }
    let entries: Vec<Entry> = bench.connection.ask("RL.HOT");
    assert_eq!(entries, [("a".into(), 3, 0, 1), ("c".into(), 3, 2, 1)]);
    assert_eq!(bench.server.info("rl", "rl_hot_keys"), "2");
}

#[test]
fn size_0_is_off() {
    let mut bench = Bench::on(Server::builder().module_arguments("hot-keys 0").start());
    assert_eq!(bench.take("k 1 1/h")[0], 1);
    assert_eq!(bench.take("k 1 1/h")[0], 0);
    for line in ["RL.HOT", "RL.HOT DENIED COUNT 5"] {
        assert_eq!(bench.connection.ask_error(line), OFF, "{line}");
    }
    assert_eq!(bench.connection.ask::<String>("RL.HOT RESET"), "OK", "there is nothing to forget");
    for field in ["rl_hot_keys", "rl_hot_since", "rl_hot_taken_total", "rl_hot_denied_top_count"] {
        assert_eq!(bench.server.info("rl", field), "0", "{field}");
    }
}

#[test]
fn the_size_is_a_setting_that_can_be_changed_and_begins_anew() {
    if !has_settings() {
        return; // Redis 6.2 has no settings of modules.
    }
    let mut bench = Bench::new();
    let get = "CONFIG GET rl.hot-keys";
    assert_eq!(bench.connection.ask::<[String; 2]>(get)[1], "64");
    bench.take("k 5 1/h");
    bench.connection.ask::<()>("CONFIG SET rl.hot-keys 64");
    assert_eq!(exact(&mut bench.connection, "RL.HOT"), listed(&[("k", 1)]), "the size is as before");
    for value in ["1025", "-1", "many", "1.5", ""] {
        let error = cmd("CONFIG").arg(&["SET", "rl.hot-keys", value]).query::<()>(&mut bench.connection);
        assert!(error.is_err(), "{value:?} was taken");
        assert_eq!(bench.connection.ask::<[String; 2]>(get)[1], "64", "{value:?}");
        assert_eq!(exact(&mut bench.connection, "RL.HOT"), listed(&[("k", 1)]), "{value:?}");
    }
    for size in ["1", "1024", "0", "3"] {
        bench.connection.ask::<()>(&format!("CONFIG SET rl.hot-keys {size}"));
        assert_eq!(bench.connection.ask::<[String; 2]>(get)[1], size);
        assert_eq!(bench.server.info("rl", "rl_hot_taken_total"), "0", "size {size}");
        bench.take("other 5 1/h");
        match size {
            "0" => assert_eq!(bench.connection.ask_error("RL.HOT"), OFF),
            _ => assert_eq!(exact(&mut bench.connection, "RL.HOT"), listed(&[("other", 1)]), "size {size}"),
        }
    }
}

#[test]
fn the_setting_survives_a_rewrite_of_the_configuration() {
    if !has_settings() {
        return; // Redis 6.2 has no settings of modules.
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("server.conf");
    std::fs::write(&file, format!("loadmodule {} hot-keys 16\n", harness::module::path().display())).unwrap();
    let start = || Bench::on(Server::builder().with_file(&file).without_module().start());
    let size = |bench: &mut Bench| bench.connection.ask::<[String; 2]>("CONFIG GET rl.hot-keys")[1].clone();

    let mut bench = start();
    assert_eq!(size(&mut bench), "16", "an argument is the default of the setting");
    for chosen in ["128", "64", "16"] {
        bench.connection.ask::<()>(&format!("CONFIG SET rl.hot-keys {chosen}"));
        bench.connection.ask::<()>("CONFIG REWRITE");
        bench = start();
        assert_eq!(size(&mut bench), chosen, "{}", std::fs::read_to_string(&file).unwrap());
    }
}

#[test]
fn a_replica_lists_what_it_took_itself_which_is_nothing() {
    let master = Server::builder().tcp().config("repl-ping-replica-period", "3600").start();
    let mut replica = Bench::on(Server::builder().start_replica_of(&master));
    let mut master = Bench::on(master);
    master.take("k 1 1/h");
    master.take("k 1 1/h");
    replica.server.await_offset_of(&master.server);
    let before = master.server.replication_offset();
    assert_eq!(exact(&mut replica.connection, "RL.HOT"), []);
    assert_eq!(exact(&mut master.connection, "RL.HOT DENIED"), listed(&[("k", 1)]));
    replica.connection.ask::<()>("RL.HOT RESET");
    master.connection.ask::<()>("RL.HOT RESET");
    assert_eq!(master.server.replication_offset(), before, "RL.HOT was replicated");
    // A replica that serves no stale data serves this.
    replica.connection.ask::<()>("CONFIG SET replica-serve-stale-data no");
    replica.connection.ask::<()>("REPLICAOF 127.0.0.1 1");
    assert!(replica.connection.ask_error("RL.PEEK k 1 1").starts_with("MASTERDOWN"));
    assert_eq!(exact(&mut replica.connection, "RL.HOT"), []);
}

#[test]
fn counts_are_not_kept_over_a_restart() {
    let mut bench = Bench::on(Server::builder().config("appendonly", "yes").start());
    bench.take("k 5 1/h");
    bench.server.shutdown();
    bench.server.start_again();
    let mut connection = bench.server.connection();
    assert_eq!(connection.ask::<i64>("EXISTS k"), 1);
    assert_eq!(exact(&mut connection, "RL.HOT"), []);
}

#[test]
fn each_node_of_a_cluster_lists_its_own_keys() {
    let cluster = Cluster::start(3, 0);
    let mut client = cluster.client().get_connection().unwrap();
    for tenant in 0..20 {
        let key = format!("{{tenant{tenant}}}:rl:_tenant:0");
        let _: [i64; 4] = cmd("RL.TAKE").arg(&[&key, "5", "1/h"]).query(&mut client).unwrap();
    }
    let mut all = 0;
    for node in cluster.nodes() {
        let mut connection = node.connection();
        for (key, count) in exact(&mut connection, "RL.HOT COUNT 20") {
            assert_eq!(cluster.master_of_slot(cluster.slot_of(&key)).port(), node.port(), "{key}");
            all += count;
        }
    }
    assert_eq!(all, 20);
}

#[test]
fn out_of_memory_it_is_still_answered() {
    let mut bench = Bench::on(Server::builder().config("maxmemory-policy", "noeviction").start());
    bench.take("k 5 1/h");
    bench.connection.ask::<()>("CONFIG SET maxmemory 1");
    assert_eq!(exact(&mut bench.connection, "RL.HOT"), listed(&[("k", 1)]));
    assert_eq!(bench.connection.ask::<String>("RL.HOT RESET"), "OK");
    bench.connection.ask::<()>("CONFIG SET maxmemory 0");
}

/// It shows keys whatever the key patterns of the caller are, as KEYS does, and like KEYS it is called dangerous.
#[test]
fn it_is_withheld_from_who_is_denied_dangerous_commands() {
    let mut bench = Bench::new();
    bench.take("secret 5 1/h");
    bench.connection.ask::<()>("ACL SETUSER named on nopass ~mine* +rl.hot");
    let mut named = bench.server.connection();
    named.ask::<()>("AUTH named any");
    assert_eq!(exact(&mut named, "RL.HOT"), listed(&[("secret", 1)]), "key patterns do not apply");
    if !server_version().has_redis(7, 2) {
        return; // Before, a module's command is in no category.
    }
    bench.connection.ask::<()>("ACL SETUSER safe on nopass ~* +@all -@dangerous");
    let mut safe = bench.server.connection();
    safe.ask::<()>("AUTH safe any");
    assert_eq!(safe.ask::<[i64; 4]>("RL.TAKE k 5 1/h")[0], 1);
    for line in ["RL.HOT", "RL.HOT RESET"] {
        let error = safe.ask_error(line);
        assert!(error.starts_with("NOPERM"), "{line}: {error}");
    }
}
