//! docs/migrating.md: what it tells the reader to type is typed here, and what it shows for an answer must come.

use std::time::Instant;

use harness::redis::{Cmd, Connection, Value};
use harness::{Ask, Server, server_version};

const DOCUMENT: &str = include_str!("../../docs/migrating.md");

/// The fenced blocks: what stands behind the fence, and the lines.
fn blocks() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut blocks = Vec::new();
    let mut lines = DOCUMENT.lines();
    while let Some(line) = lines.next() {
        if let Some(kind) = line.strip_prefix("```") {
            blocks.push((kind, lines.by_ref().take_while(|line| *line != "```").collect()));
        }
    }
    blocks
}

/// The lines of the one block of a kind.
#[track_caller]
pub(crate) fn block(kind: &str) -> Vec<&'static str> {
    let mut found = blocks().into_iter().filter(|block| block.0 == kind);
    let (_, lines) = found.next().unwrap_or_else(|| panic!("no block of {kind}"));
    assert!(found.next().is_none(), "several blocks of {kind}");
    lines
}

/// A command's words, as redis-cli splits them: at blanks that are not between double quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, part) in line.split('"').enumerate() {
        match index % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

/// Sends a command; the reply as redis-cli prints it.
fn typed(connection: &mut Connection, line: &str) -> Vec<String> {
    let command = words(line).into_iter().fold(Cmd::new(), |mut command, word| {
        command.arg(word);
        command
    });
    match command.query(connection) {
        Ok(reply) => printed(&reply),
        Err(error) => {
            let code = error.code().unwrap_or_default();
            vec![format!("(error) {code} {}", error.detail().unwrap_or_default())]
        }
    }
}

fn printed(reply: &Value) -> Vec<String> {
    match reply {
        Value::Int(integer) => vec![format!("(integer) {integer}")],
        Value::BulkString(bytes) => vec![format!("\"{}\"", bytes.escape_ascii())],
        Value::SimpleString(text) => vec![text.clone()],
        Value::Okay => vec!["OK".to_owned()],
        Value::Array(items) => {
            let lines = items.iter().enumerate();
            lines.map(|(index, item)| format!("{}) {}", index + 1, printed(item).join(" "))).collect()
        }
        other => vec![format!("{other:?}")],
    }
}

/// Whether `got` is what is `shown`. Of a bucket's answer the last two integers are times, which `passed_ms` has shortened.
fn is_shown(line: &str, shown: &[&str], got: &[String], passed_ms: i64) -> bool {
    let integer = |line: &str| -> Option<i64> { line.split_once(") (integer) ")?.1.parse().ok() };
    let times = if line.starts_with("RL.") && got.len() == 4 { 2 } else { 4 };
    got.len() == shown.len()
        && got.iter().zip(shown).enumerate().all(|(index, (got, shown))| {
            match (integer(got), integer(shown)) {
                (Some(got), Some(shown)) if index >= times && shown > 0 => {
                    (shown - passed_ms..=shown).contains(&got)
                }
                _ => got == shown,
            }
        })
}

#[test]
fn every_command_is_answered_as_shown() {
    let server = Server::builder().module_arguments("cl-throttle yes").start();
    let mut connection = server.connection();
    let mut typed_lines = 0;
    for (kind, lines) in blocks() {
        match kind {
            "redis" => {}
            "redis 8.8" if server_version().has_redis(8, 8) => {}
            "redis 8.8" | "conf" | "lua" => continue,
            _ => panic!("a block of {kind:?}, which no test runs"),
        }
        connection.ask::<()>("FLUSHALL");
        let start = Instant::now();
        let mut lines = lines.into_iter().peekable();
        while let Some(line) = lines.next() {
            let line = line.strip_prefix("> ").unwrap_or_else(|| panic!("no command: {line}"));
            let mut shown = Vec::new();
            while let Some(reply) = lines.next_if(|line| !line.starts_with("> ")) {
                shown.push(reply);
            }
            let got = typed(&mut connection, line);
            let passed = start.elapsed().as_millis() as i64 + 1;
            assert!(is_shown(line, &shown, &got, passed), "{line}\nis answered\n{}", got.join("\n"));
            typed_lines += 1;
        }
    }
    assert!(typed_lines > 20, "only {typed_lines} commands were found");
}

#[test]
fn the_line_for_the_configuration_loads_the_module() {
    let lines = block("conf");
    let [line] = lines.as_slice() else { panic!("one line was expected: {lines:?}") };
    let arguments = line.strip_prefix("loadmodule /usr/local/lib/libredis_token_bucket.so ");
    let server = Server::builder().module_arguments(arguments.expect("the line that loads it")).start();
    assert_eq!(server.connection().ask::<[i64; 5]>("CL.THROTTLE k 15 30 60"), [0, 16, 15, -1, 2]);
}
