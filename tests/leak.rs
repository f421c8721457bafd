//! Memory that is lost call by call, or load by load. `make leak` runs it with more calls (RL_LEAK_CALLS of each).
#![cfg(target_os = "linux")]

use std::fs;

use harness::redis::{Cmd, Connection, ConnectionLike, Value, cmd};
use harness::{Ask, Server, server_version};

/// Each command in the ways that take different paths: allowed, denied, refused before and after a key is opened. 1000
/// buckets stand for every `KEY`.
const COMMANDS: &[&[&str]] = &[
    &["RL.TAKE KEY 1000000 1000000 1", "RL.TAKE {KEY} 5 1/7d 5", "RL.TAKE KEY 5 x 1", "RL.TAKE string 5 1 1"],
    &["RL.PEEK KEY 5 1/h 2", "RL.PEEK KEY 5 1/h 6", "RL.PEEK string 5 1 1"],
    &[
        "RL.TAKEALL KEY 1000000 1000000 1 {KEY} 1000000 1000000 1",
        "RL.TAKEALL KEY 1000000 1000000 1 {KEY} 0 1 1",
        "RL.TAKEALL KEY 5 1 1 KEY 5 1 1",
    ],
    &["RL.GIVE KEY 10 1/7d 0.000001", "RL.GIVE KEY 10 1/7d -1"],
    &["RL.CHARGE KEY 10 1000000 1", "RL.CHARGE string 10 1 1"],
    &["CL.THROTTLE KEY 15 1000 1", "CL.THROTTLE {KEY} 0 1 3600", "CL.THROTTLE KEY 15 30 x"],
    &["RL.HOT", "RL.HOT DENIED COUNT 3", "RL.HOT COUNT 0"],
];

const BATCH: usize = 1000;

/// What RSS may grow by for reasons of its own, such as a page that was not touched before. Of
/// 50 000 calls it is ten bytes each, less than the smallest allocation.
const NOISE: i64 = 512 << 10;

/// Memory as the kernel counts it and as the server counts its own, in bytes.
#[derive(Clone, Copy, Debug)]
struct Memory {
    resident: i64,
    used: i64,
}

fn memory(server: &Server) -> Memory {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("the server's status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    let kilobytes: i64 = line.trim().trim_end_matches(" kB").parse().expect("kilobytes");
    Memory { resident: kilobytes * 1024, used: server.used_memory() }
}

#[track_caller]
fn assert_flat(what: &str, before: Memory, after: Memory, times: usize) {
    let resident = after.resident - before.resident;
    let used = after.used - before.used;
    println!("{what}: RSS {:+} KiB, used_memory {used:+} B in {times} times", resident / 1024);
    assert!(resident < NOISE, "{what}: RSS grew by {resident} B in {times} times: {before:?}, {after:?}");
    assert!(used < NOISE, "{what}: used_memory grew by {used} B in {times} times: {before:?}, {after:?}");
}

fn send(connection: &mut Connection, packed: &[u8]) {
    let replies = connection.req_packed_commands(packed, 0, BATCH).expect("replies");
    for reply in replies {
        let refused = matches!(&reply, Value::ServerError(error) if error.code() != "ERR" && error.code() != "WRONGTYPE");
        assert!(!refused, "{reply:?}");
    }
}

#[test]
fn no_call_leaves_memory_behind() {
    let calls: usize = match std::env::var("RL_LEAK_CALLS") {
        Ok(text) => text.parse().expect("RL_LEAK_CALLS is a whole number"),
        Err(_) => 50_000,
    };
    for ways in COMMANDS {
        let server = Server::builder().module_arguments("cl-throttle yes").start();
        let mut connection = server.connection();
        connection.ask::<()>("SET string 1");
        if ways[0].starts_with("RL.GIVE") {
            // A gift to a bucket that does not exist makes none.
            send(&mut connection, &packed("RL.CHARGE KEY 10 1/7d 10"));
        }
        let batches: Vec<Vec<u8>> = ways.iter().map(|way| packed(way)).collect();
        // The first batches make the buckets and the buffers.
        for batch in batches.iter().cycle().take(20) {
            send(&mut connection, batch);
        }
        let before = memory(&server);
        for batch in batches.iter().cycle().take(calls / BATCH) {
            send(&mut connection, batch);
        }
        let name = ways[0].split(' ').next().unwrap_or_default();
        assert_flat(name, before, memory(&server), calls);
    }
}

/// One call for each of the buckets.
fn packed(line: &str) -> Vec<u8> {
    let mut packed = Vec::new();
    for number in 0..BATCH {
        let mut cmd = Cmd::new();
        for word in line.split(' ') {
            cmd.arg(word.replace("KEY", &format!("bucket{number}")));
        }
        packed.extend(cmd.get_packed_command());
    }
    packed
}

#[test]
fn no_load_leaves_memory_behind() {
    let mut builder = Server::builder();
    if server_version().has_redis(7, 0) {
        builder = builder.config("enable-module-command", "yes");
    }
    let server = builder.start();
    let mut connection = server.connection();
    let path = harness::module::path();
    let mut cycle = || {
        connection.ask::<()>("MODULE UNLOAD rl");
        let _: () = cmd("MODULE").arg("LOAD").arg(path.to_str()).query(&mut connection).expect("MODULE LOAD");
        connection.ask::<[i64; 4]>("RL.TAKE bucket 5 1");
    };
    (0..10).for_each(|_| cycle());
    let before = memory(&server);
    (0..50).for_each(|_| cycle());
    assert_flat("MODULE UNLOAD, MODULE LOAD, RL.TAKE", before, memory(&server), 50);
}
