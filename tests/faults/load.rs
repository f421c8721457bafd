//! Callers that take for as long as a server answers, and what they must have left.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use harness::redis::{Connection, cmd};
use harness::{Ask, Server, expire_at};

/// So much that nobody is denied, refilled so slowly that nothing comes back while a test runs: the balance is a count.
const LIMIT: [&str; 2] = ["1000000", "1/m"];
const CAPACITY: f64 = 1e6;
const CALLERS: usize = 8;

/// Callers at work, each on a bucket of its own.
pub(crate) struct Load {
    callers: Vec<JoinHandle<Vec<Instant>>>,
}

impl Load {
    /// Starts callers who stop at the first error.
    pub(crate) fn start(server: &Server) -> Load {
        let caller = |caller: usize| {
            let mut connection = server.connection();
            thread::spawn(move || {
                let mut answers = Vec::new();
                while take(&mut connection, &key(caller)).is_ok() {
                    answers.push(Instant::now());
                }
                answers
            })
        };
        Load { callers: (0..CALLERS).map(caller).collect() }
    }

    /// Waits for all to stop, and says when each was allowed.
    pub(crate) fn join(self) -> Vec<Vec<Instant>> {
        self.callers.into_iter().map(|caller| caller.join().expect("a caller does not panic")).collect()
    }
}

fn key(caller: usize) -> String {
    format!("caller:{caller}")
}

/// Takes one token, which is there.
pub(crate) fn take(connection: &mut Connection, key: &str) -> Result<(), String> {
    let [allowed, ..]: [i64; 4] = cmd("RL.TAKE")
        .arg(key)
        .arg(&LIMIT)
        .query(connection)
        .map_err(|error| error.detail().map_or_else(|| error.to_string(), str::to_owned))?;
    assert_eq!(allowed, 1, "{key}: denied, with a million tokens");
    Ok(())
}

/// Takes until that many were allowed on a server that answers.
pub(crate) fn take_times(connection: &mut Connection, key: &str, times: u32) {
    for _ in 0..times {
        take(connection, key).unwrap_or_else(|error| panic!("{key}: {error}"));
    }
}

/// Checks that each caller's bucket lacks what was allowed: all of it but what was answered within `lost` before the last
/// answer of all, and beyond it at most the one take whose answer did not arrive.
pub(crate) fn assert_buckets(connection: &mut Connection, answers: &[Vec<Instant>], lost: Duration) {
    let end = answers.iter().flatten().max().expect("some take was allowed");
    for (caller, answers) in answers.iter().enumerate() {
        let least = answers.iter().filter(|&&at| at + lost <= *end).count() as u32;
        let most = answers.len() as u32 + 1;
        let missing = missing(connection, &key(caller));
        assert!(
            (least..=most).contains(&missing),
            "caller {caller} was allowed {} times, {least} of them in time, and its bucket lacks {missing}",
            most - 1
        );
        let expires = expire_at(connection, key(caller).as_bytes());
        assert!(missing == 0 || expires > 0, "caller {caller}: the bucket has no expiry");
    }
}

/// How many whole tokens a bucket lacks.
pub(crate) fn missing(connection: &mut Connection, key: &str) -> u32 {
    let tokens: Option<f64> = connection.ask(&format!("HGET {key} tokens"));
    // What refilled since is below half a token.
    tokens.map_or(0, |tokens| (CAPACITY - tokens).round() as u32)
}

/// All keys with their fields and expiries: equal on two servers if the data are.
pub(crate) fn everything(connection: &mut Connection) -> BTreeMap<String, (BTreeMap<String, String>, i64)> {
    let mut keys: Vec<String> = connection.ask("KEYS *");
    keys.sort();
    let mut state = |key: String| {
        let fields = connection.ask(&format!("HGETALL {key}"));
        let expires = expire_at(connection, key.as_bytes());
        (key, (fields, expires))
    };
    keys.into_iter().map(&mut state).collect()
}

/// Name and path of every server that there is.
pub(crate) fn servers() -> Vec<(String, PathBuf)> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/servers");
    let output = Command::new(&script).arg("--list").output().expect("scripts/servers runs");
    let list = String::from_utf8(output.stdout).expect("text");
    let line = |line: &str| line.split_once(' ').map(|(name, path)| (name.to_owned(), path.into()));
    list.lines().filter_map(line).collect()
}
