//! What the server tells of the module: COMMAND, INFO, MODULE LIST.

use std::collections::HashMap;

use harness::redis::{Value, cmd};
use harness::{Ask, Server, server_version};

use crate::bucket::Bench;

#[test]
fn commands_declare_their_flags_and_keys() {
    let mut bench = Bench::new();
    for (command, flags, keys) in [
        ("rl.take", &["write", "denyoom", "fast"][..], [1, 1, 1]),
        ("rl.peek", &["readonly", "fast"], [1, 1, 1]),
        ("rl.takeall", &["write", "denyoom"], [1, -1, 4]),
        ("rl.give", &["write", "fast"], [1, 1, 1]),
        ("rl.charge", &["write", "denyoom", "fast"], [1, 1, 1]),
        ("rl.hot", &["readonly", "loading", "stale"], [0, 0, 0]),
    ] {
        let reply: Vec<Vec<Value>> = bench.connection.ask(&format!("COMMAND INFO {command}"));
        let info = &reply[0];
        let declared: Vec<String> = harness::redis::from_redis_value_ref(&info[2]).unwrap();
        for flag in flags {
            assert!(declared.iter().any(|name| name == flag), "{command} lacks {flag}: {declared:?}");
        }
        let known = ["write", "readonly", "denyoom", "fast", "loading", "stale"];
        let ours: Vec<&str> =
            declared.iter().map(String::as_str).filter(|flag| known.contains(flag)).collect();
        assert_eq!(ours.len(), flags.len(), "{command}: {declared:?}");
        assert_eq!(info[3..6], keys.map(Value::Int), "{command}: first key, last key, step");
    }
}

/// redis-cell#30
#[test]
fn the_key_is_argument_1() {
    let mut bench = Bench::new();
    for line in ["RL.TAKE the:key 5 1 1", "RL.PEEK the:key 5 1"] {
        let keys: Vec<String> = bench.connection.ask(&format!("COMMAND GETKEYS {line}"));
        assert_eq!(keys, ["the:key"], "{line}");
    }
}

#[test]
fn commands_are_documented() {
    if !server_version().has_redis(7, 0) {
        return; // Redis 6.2 has no COMMAND DOCS.
    }
    let mut bench = Bench::new();
    for (command, names) in [
        ("rl.take", &["key", "capacity", "rate", "cost"][..]),
        ("rl.peek", &["key", "capacity", "rate", "cost"]),
        ("rl.takeall", &["bucket"]),
        ("rl.give", &["key", "capacity", "rate", "amount"]),
        ("rl.charge", &["key", "capacity", "rate", "amount"]),
        ("rl.hot", &["action"]),
    ] {
        let docs: HashMap<String, HashMap<String, Value>> =
            bench.connection.ask(&format!("COMMAND DOCS {command}"));
        let docs = &docs[command];
        for field in ["summary", "since", "complexity", "arguments", "module"] {
            assert!(docs.contains_key(field), "{command} has no {field}: {docs:?}");
        }
        let arguments: Vec<HashMap<String, Value>> =
            harness::redis::from_redis_value_ref(&docs["arguments"]).unwrap();
        let documented: Vec<String> = arguments
            .iter()
            .map(|argument| harness::redis::from_redis_value_ref(&argument["name"]).unwrap())
            .collect();
        assert_eq!(documented, names, "{command}");
    }
}

/// An argument as `name:type`, with its word, `?` if it may be left out, `*` if it may come again, and what it consists of.
fn outline(argument: &Value) -> String {
    let fields: HashMap<String, Value> = harness::redis::from_redis_value_ref(argument).expect("a map");
    let text = |field: &str| -> String {
        fields.get(field).map_or(String::new(), |value| harness::redis::from_redis_value_ref(value).unwrap())
    };
    let list = |field: &str| -> Vec<Value> {
        fields.get(field).map_or(Vec::new(), |value| harness::redis::from_redis_value_ref(value).unwrap())
    };
    let flags: Vec<String> = list("flags")
        .iter()
        .map(|flag| harness::redis::from_redis_value_ref(flag).unwrap())
        .map(|flag: String| flag.replace("optional", "?").replace("multiple", "*"))
        .collect();
    let parts: Vec<String> = list("arguments").iter().map(outline).collect();
    let parts = if parts.is_empty() { String::new() } else { format!("({})", parts.join(" ")) };
    format!("{}:{}{}{}{parts}", text("name"), text("type"), text("token"), flags.concat())
}

#[test]
fn words_groups_and_alternatives_are_documented() {
    if !server_version().has_redis(7, 0) {
        return; // Redis 6.2 has no COMMAND DOCS.
    }
    let mut bench = Bench::new();
    for (command, expected) in [
        ("rl.takeall", "bucket:block*(key:key capacity:double rate:string cost:double)"),
        (
            "rl.hot",
            "action:oneof?(list:block(denied:pure-tokenDENIED? count:integerCOUNT?) reset:pure-tokenRESET)",
        ),
    ] {
        let docs: HashMap<String, HashMap<String, Value>> =
            bench.connection.ask(&format!("COMMAND DOCS {command}"));
        let arguments: Vec<Value> =
            harness::redis::from_redis_value_ref(&docs[command]["arguments"]).unwrap();
        let found: Vec<String> = arguments.iter().map(outline).collect();
        assert_eq!(found, [expected], "{command}");
    }
}

#[test]
fn info_counts_by_command_and_outcome() {
    let mut bench = Bench::new();
    for arguments in ["k 5 1/h 3", "k 5 1/h 3", "k 5 1/h 2", "k 5 1/h 6"] {
        bench.take(arguments);
    }
    bench.peek("k 5 1");
    bench.connection.ask_error("RL.TAKE k x 1");
    bench.connection.ask_error("RL.PEEK k 1 x");
    bench.connection.ask_error("RL.PEEK k 1 x");
    for (field, count) in [
        ("rl_take_allowed", "2"),
        ("rl_take_denied", "2"),
        ("rl_take_errors", "1"),
        ("rl_peeks", "1"),
        ("rl_peek_errors", "2"),
        ("rl_version", env!("CARGO_PKG_VERSION")),
    ] {
        assert_eq!(bench.server.info("rl", field), count, "{field}");
    }
    let text: String = bench.connection.ask("INFO rl");
    assert!(text.starts_with("# rl_stats\r\n"), "{text}");
}

#[test]
fn the_module_is_listed_with_its_version() {
    let mut bench = Bench::new();
    let modules: Vec<HashMap<String, Value>> = bench.connection.ask("MODULE LIST");
    let of = |field: &str, module: &HashMap<String, Value>| -> Option<String> {
        harness::redis::from_redis_value_ref(module.get(field)?).ok()
    };
    let ours =
        modules.iter().find(|module| of("name", module).as_deref() == Some("rl")).expect("rl is loaded");
    let parts: Vec<i64> = env!("CARGO_PKG_VERSION").split('.').map(|part| part.parse().unwrap()).collect();
    let number = parts[0] * 10_000 + parts[1] * 100 + parts[2];
    assert_eq!(of("ver", ours), Some(number.to_string()));
}

#[test]
fn the_module_can_be_unloaded_and_loaded_again() {
    let mut builder = Server::builder();
    if server_version().has_redis(7, 0) {
        builder = builder.config("enable-module-command", "yes");
    }
    let mut bench = Bench::on(builder.start());
    let path = harness::module::path();
    for _ in 0..3 {
        bench.take("k 5 1/h");
        bench.connection.ask::<()>("MODULE UNLOAD rl");
        let _: () = cmd("MODULE").arg("LOAD").arg(path.to_str()).query(&mut bench.connection).unwrap();
    }
    assert_eq!(bench.peek("k 5 1/h 0")[1], 2, "the buckets are the server's, and stay");
    // The category outlives an unload, and the commands must be in it again.
    if bench.connection.try_ask::<()>("ACL SETUSER limiter on nopass ~* +@ratelimit").is_ok() {
        let mut limited = bench.server.connection();
        limited.ask::<()>("AUTH limiter any");
        assert_eq!(limited.ask::<[i64; 4]>("RL.TAKE k 5 1/h")[..2], [1, 1]);
    }
}

/// RediSearch#2476: servers refuse a library without the execute bit.
#[cfg(unix)]
#[test]
fn the_library_has_the_execute_bit() {
    use std::os::unix::fs::PermissionsExt;
    let path = harness::module::path();
    let mode = std::fs::metadata(&path).expect("the library").permissions().mode();
    assert_eq!(mode & 0o111, 0o111, "{} has mode {mode:o}", path.display());
}
