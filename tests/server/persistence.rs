//! What is on disk is the bucket, whatever wrote it and whoever reads it.

use harness::redis::cmd;
use harness::{Ask, Server, redis, wait};

use crate::bucket::{Bench, expire_at};

/// Takes from a few buckets in different ways.
fn use_buckets(bench: &mut Bench) {
    for arguments in [
        "a 10 1/h 3",
        "a 10 1/h 2.5",
        "b 10 1/m 10",
        "b 10 1/m 1",
        "c 1e6 1/s 1000.123456789",
        "d 5 1/d 5",
        "d 5 1/9d 5",
    ] {
        bench.take(arguments);
    }
}

/// redis#14905
#[test]
fn a_reload_from_rdb_keeps_value_and_expiry() {
    let mut bench = Bench::new();
    use_buckets(&mut bench);
    let before = bench.everything();
    bench.connection.ask::<()>("DEBUG RELOAD");
    assert_eq!(bench.everything(), before);
}

#[test]
fn a_restart_from_rdb_keeps_value_and_expiry() {
    let mut bench = Bench::on(Server::builder().config("save", "3600 1").start());
    use_buckets(&mut bench);
    let before = bench.everything();
    bench.server.shutdown();
    bench.server.start_again();
    bench.connection = bench.server.connection();
    assert_eq!(bench.everything(), before);
}

#[test]
fn a_restart_from_aof_keeps_value_and_expiry() {
    let mut bench =
        Bench::on(Server::builder().config("appendonly", "yes").config("appendfsync", "always").start());
    use_buckets(&mut bench);
    let before = bench.everything();
    bench.server.kill();
    bench.server.start_again();
    bench.connection = bench.server.connection();
    assert_eq!(bench.everything(), before);
    assert_eq!(bench.server.command_stats("rl.take").0, 0, "the file must hold effects, not calls");
}

/// "NOSCRIPT after a restart"
#[test]
fn a_take_works_right_after_a_restart() {
    let mut bench = Bench::new();
    assert_eq!(bench.take("k 5 1/h")[0], 1);
    bench.server.kill();
    bench.server.start_again();
    bench.connection = bench.server.connection();
    assert_eq!(bench.take("k 5 1/h")[0], 1);
}

#[test]
fn a_rewritten_aof_keeps_value_and_expiry() {
    for preamble in ["yes", "no"] {
        let builder = Server::builder().config("appendonly", "yes").config("aof-use-rdb-preamble", preamble);
        let mut bench = Bench::on(builder.start());
        use_buckets(&mut bench);
        let before = bench.everything();
        bench.connection.ask::<redis::Value>("BGREWRITEAOF");
        wait::until(wait::PATIENCE, "the rewrite", || {
            let state = ["aof_rewrite_in_progress", "aof_rewrite_scheduled", "aof_last_bgrewrite_status"]
                .map(|field| bench.server.info("persistence", field));
            if state == ["0", "0", "ok"] { Ok(()) } else { Err(format!("{state:?}")) }
        });
        bench.server.shutdown();
        bench.server.start_again();
        bench.connection = bench.server.connection();
        assert_eq!(bench.everything(), before, "aof-use-rdb-preamble {preamble}");
    }
}

#[test]
fn dump_and_restore_keep_a_bucket() {
    let mut bench = Bench::new();
    use_buckets(&mut bench);
    let dump: Vec<u8> = bench.connection.ask("DUMP a");
    let at = expire_at(&mut bench.connection, b"a");
    let (fields, peek) = (bench.fields("a"), bench.peek("a 10 1/h 1"));
    bench.connection.ask::<()>("DEL a");
    let _: () = cmd("RESTORE").arg("a").arg(at).arg(dump).arg("ABSTTL").query(&mut bench.connection).unwrap();
    assert_eq!(bench.fields("a"), fields);
    assert_eq!(expire_at(&mut bench.connection, b"a"), at);
    assert_eq!(bench.peek("a 10 1/h 1")[..2], peek[..2]);
}

#[test]
fn a_server_without_the_module_loads_the_data() {
    for (name, value) in [("save", "3600 1"), ("appendonly", "yes")] {
        let mut bench = Bench::on(Server::builder().config(name, value).start());
        use_buckets(&mut bench);
        let before = bench.everything();
        bench.server.shutdown();
        bench.server.start_again_without_module();
        bench.connection = bench.server.connection();
        assert_eq!(bench.everything(), before, "{name}");
        let error = bench.connection.ask_error("RL.TAKE a 10 1");
        assert!(error.starts_with("ERR unknown command"), "{error}");
    }
}

/// redis#14178
#[test]
fn a_rewritten_configuration_loads_the_module_once() {
    let dir = tempfile::tempdir().expect("a directory for the file");
    let path = dir.path().join("redis.conf");
    std::fs::write(&path, format!("loadmodule {}\n", harness::module::path().display()))
        .expect("the file is written");
    let mut server = Server::builder().without_module().with_file(&path).start();
    server.connection().ask::<()>("CONFIG REWRITE");
    let lines = std::fs::read_to_string(&path).expect("the file is there");
    assert_eq!(lines.matches("libredis_token_bucket").count(), 1, "{lines}");

    server.kill();
    server.start_again();
    assert_eq!(Bench::on(server).take("k 5 1"), [1, 4, 0, 1000]);
}
