//! A server with a bucket, as most tests need it.

use std::collections::HashMap;
use std::time::Instant;

pub(crate) use harness::expire_at;
use harness::redis::Connection;
use harness::{Ask, Server};

/// `[allowed, remaining, retry_after_ms, reset_after_ms]`
pub(crate) type Reply = [i64; 4];

/// A server and a connection to it.
pub(crate) struct Bench {
    pub(crate) connection: Connection,
    pub(crate) server: Server,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench::on(Server::start())
    }

    pub(crate) fn on(server: Server) -> Bench {
        Bench { connection: server.connection(), server }
    }

    #[track_caller]
    pub(crate) fn take(&mut self, arguments: &str) -> Reply {
        self.reply(&format!("RL.TAKE {arguments}"))
    }

    #[track_caller]
    pub(crate) fn peek(&mut self, arguments: &str) -> Reply {
        self.reply(&format!("RL.PEEK {arguments}"))
    }

    #[track_caller]
    pub(crate) fn reply(&mut self, line: &str) -> Reply {
        let reply: Vec<i64> = self.connection.ask(line);
        reply.try_into().unwrap_or_else(|reply| panic!("{line}: not four integers but {reply:?}"))
    }

    /// Lets `millis` pass for the bucket at `key`.
    #[track_caller]
    pub(crate) fn pass(&mut self, key: &str, millis: i64) {
        let ts: i64 = self.connection.ask(&format!("HGET {key} ts"));
        let added: i64 = self.connection.ask(&format!("HSET {key} ts {}", ts - millis));
        assert_eq!(added, 0, "{key} had no ts");
    }

    pub(crate) fn fields(&mut self, key: &str) -> HashMap<String, String> {
        self.connection.ask(&format!("HGETALL {key}"))
    }

    pub(crate) fn exists(&mut self, key: &str) -> bool {
        self.connection.ask(&format!("EXISTS {key}"))
    }

    /// Everything in the data set, expiries included, in comparable form.
    pub(crate) fn everything(&mut self) -> Vec<String> {
        let mut keys: Vec<Vec<u8>> = self.connection.ask("KEYS *");
        keys.sort();
        let describe = |key: Vec<u8>| {
            let dump: Vec<u8> =
                harness::redis::cmd("DUMP").arg(&key).query(&mut self.connection).expect("DUMP");
            let expire_at = expire_at(&mut self.connection, &key);
            format!("{key:?} {dump:?} {expire_at}")
        };
        keys.into_iter().map(describe).collect()
    }
}

/// The server's clock: Unix time in ms.
pub(crate) fn server_millis(bench: &mut Bench) -> i64 {
    let (seconds, micros): (i64, i64) = bench.connection.ask("TIME");
    seconds * 1000 + micros / 1000
}

/// A stretch of real time, to compare answers that it shortens.
pub(crate) struct Timed(Instant);

impl Timed {
    pub(crate) fn start() -> Timed {
        Timed(Instant::now())
    }

    /// Asserts that `millis` is `expected`, less at most what has really passed since the start.
    #[track_caller]
    pub(crate) fn assert_millis(&self, millis: i64, expected: i64) {
        let passed = self.0.elapsed().as_millis() as i64 + 1;
        assert!(
            (expected - passed..=expected).contains(&millis),
            "{millis} ms, where {expected} less at most {passed} was expected"
        );
    }
}
