//! Files of one server, read by another: upgrades, downgrades, moves between Redis and Valkey, with and without the module.
//!
//! The servers are those of target/servers and the installed one. Who cannot read a file must say so: a newer format of
//! RDB, or Valkey's own, is refused by name, and then nothing can be said about the module.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use harness::redis::Connection;
use harness::{Ask, Server};

use crate::load::{everything, servers};

type State = BTreeMap<String, (BTreeMap<String, String>, i64)>;

/// What a server has left behind.
struct Left {
    name: String,
    /// The version of the RDB file's format.
    format: u32,
    rdb: PathBuf,
    aof: PathBuf,
    state: State,
    _server: Server,
}

/// Uses buckets in all ways on a server, and keeps what it wrote.
fn write(name: &str, binary: &Path) -> Left {
    let mut server = Server::builder()
        .binary(binary)
        .config("appendonly", "yes")
        .config("appendfsync", "always")
        // Commands alone, which every server reads, in one file, which every server takes for its own.
        .config("aof-use-rdb-preamble", "no")
        .start();
    let mut connection = server.connection();
    for line in [
        "RL.TAKE {t}:a 10 1/h 3",
        "RL.TAKE {t}:a 10 1/h 2.5",
        "RL.TAKE {t}:b 1e6 1/m 1000.123456789",
        "RL.TAKEALL {t}:c 10 1/h 1 {t}:d 20 1/h 2",
        "RL.CHARGE {t}:e 10 1/h 25",
        "RL.GIVE {t}:a 10 1/h 1",
        "RL.TAKE {t}:b 1e6 1/m 1e6",
    ] {
        connection.ask::<harness::redis::Value>(line);
    }
    let state = everything(&mut connection);
    connection.ask::<()>("SAVE");
    server.kill();
    let rdb = server.dir().join("dump.rdb");
    let head = fs::read(&rdb).expect("dump.rdb");
    // "REDIS0009", or "VALKEY080" from Valkey 9 on.
    let format = std::str::from_utf8(&head[6..9]).expect("digits").parse().expect("digits");
    Left { name: name.to_owned(), format, rdb, aof: aof_of(&server), state, _server: server }
}

fn vendor(name: &str) -> &str {
    name.split('-').next().unwrap_or(name)
}

/// The file with the commands of a server that was started with one AOF of commands alone.
pub(crate) fn aof_of(server: &Server) -> PathBuf {
    let incremental =
        fs::read_dir(server.dir().join("appendonlydir")).into_iter().flatten().find_map(|entry| {
            let path = entry.expect("an entry").path();
            path.to_string_lossy().ends_with(".incr.aof").then_some(path)
        });
    // Before Redis 7.0 it is one file.
    incremental.unwrap_or_else(|| server.dir().join("appendonly.aof"))
}

fn read(connection: &mut Connection) -> State {
    let state = everything(connection);
    if !state.is_empty() {
        // It is a bucket, not only the same bytes.
        let peek: [i64; 4] = connection.ask("RL.PEEK {t}:e 10 1/h 0");
        assert_eq!(peek[0], 0, "the debt is there");
    }
    state
}

#[test]
#[ignore = "starts some 200 servers, and wants those of target/servers: make test-faults"]
fn each_server_reads_the_files_of_each_other_or_names_the_format_that_it_cannot_read() {
    let servers = servers();
    assert!(
        servers.len() > 1,
        "one server alone: make servers fetches others, and SERVERS, if set, must name more than one"
    );
    let left: Vec<Left> = servers.iter().map(|(name, binary)| write(name, binary)).collect();
    let mut rows = Vec::new();
    for (reader, (name, binary)) in servers.iter().enumerate() {
        for writer in &left {
            let from = format!("{name} reads the RDB of {}", writer.name);
            let started = Server::builder().binary(binary).data(&writer.rdb, "dump.rdb").try_start();
            // Up to 11 the formats are those of both vendors.
            let same_vendor = vendor(name) == vendor(&writer.name);
            let old_enough = writer.format <= left[reader].format && (writer.format <= 11 || same_vendor);
            let rdb = match started {
                Ok(server) => {
                    assert_eq!(read(&mut server.connection()), writer.state, "{from}");
                    "read"
                }
                Err(reason) => {
                    let named =
                        ["RDB format version", "Wrong signature"].iter().any(|words| reason.contains(words));
                    assert!(!old_enough && named, "{from}: {reason}");
                    "refused"
                }
            };
            let from = format!("{name} reads the AOF of {}", writer.name);
            let server = Server::builder()
                .binary(binary)
                .config("appendonly", "yes")
                .data(&writer.aof, "appendonly.aof")
                .start();
            assert_eq!(read(&mut server.connection()), writer.state, "{from}");
            rows.push(format!("{name:22} {:22} RDB {rdb:8} AOF read", writer.name));
        }
    }
    println!("{:22} of\n{}", "reader", rows.join("\n"));
}

#[test]
fn a_server_without_the_module_reads_both_files_and_goes_on_with_the_hash() {
    let installed = std::env::var_os("RL_SERVER").unwrap_or_else(|| "redis-server".into());
    let left = write("installed", Path::new(&installed));
    let plain = || Server::builder().without_module();
    for server in [
        plain().data(&left.rdb, "dump.rdb").start(),
        plain().config("appendonly", "yes").data(&left.aof, "appendonly.aof").start(),
    ] {
        let mut connection = server.connection();
        assert_eq!(everything(&mut connection), left.state);
        assert_eq!(connection.ask::<String>("HINCRBYFLOAT {t}:d tokens -1"), {
            let tokens: f64 = left.state["{t}:d"].0["tokens"].parse().expect("a balance");
            let text: String = connection.ask("HGET {t}:d tokens");
            assert!((text.parse::<f64>().expect("a balance") - (tokens - 1.0)).abs() < 1e-6);
            text
        });
        assert!(connection.ask_error("RL.PEEK {t}:d 20 1/h").contains("unknown command"));
    }
}
