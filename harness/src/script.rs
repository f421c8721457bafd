//! Callers of a token-bucket script, alone or beside callers of the module, on one bucket.

use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use redis::{Connection, cmd};

use crate::ask::Ask;
use crate::server::Server;

/// The script of the common kind that the benches measure: it decides with the clock of whoever calls it.
pub const SCRIPT: &str = include_str!("../../benches/token_bucket.lua");

/// Where [`SCRIPT`] stores what it decided.
const STORE: &str = "redis.call('HMSET', KEYS[1], 'tokens', tokens, 'ts', now)";
/// The same, but never an earlier time than is there: what docs/migrating.md asks to change first.
pub const MENDED_STORE: &str = "redis.call('HMSET', KEYS[1], 'tokens', tokens, 'ts', math.max(now, ts))";

/// [`SCRIPT`] with [`MENDED_STORE`].
///
/// # Panics
/// If the script has no such line.
pub fn mended() -> String {
    assert!(SCRIPT.contains(STORE), "the script stores in another way");
    SCRIPT.replace(STORE, MENDED_STORE)
}

/// A bucket as script and module are told of it.
#[derive(Clone, Copy, Debug)]
pub struct Bucket<'a> {
    /// Its key.
    pub key: &'a str,
    /// Most tokens it holds.
    pub capacity: i64,
    /// Tokens per second.
    pub rate: f64,
}

impl Bucket<'_> {
    /// Takes `cost` by `script` for a caller whose clock shows `now`, Unix time in ms; whether it allowed.
    ///
    /// # Panics
    /// If the script fails.
    #[track_caller]
    pub fn take_by_script(&self, connection: &mut Connection, script: &str, now: i64, cost: i64) -> bool {
        let mut call = cmd("EVAL");
        call.arg(script).arg(1).arg(self.key);
        call.arg(self.capacity).arg(self.rate / 1000.0).arg(now).arg(cost);
        let reply: (i64, i64) =
            call.query(connection).unwrap_or_else(|error| panic!("the script failed: {error}"));
        reply.0 == 1
    }

    fn take(&self, connection: &mut Connection) -> bool {
        let Bucket { key, capacity, rate } = self;
        connection.ask::<[i64; 4]>(&format!("RL.TAKE {key} {capacity} {rate}"))[0] == 1
    }
}

/// Callers that take one token at a time, as fast as they can.
#[derive(Clone, Copy, Debug)]
pub struct Callers<'a> {
    /// The script that some of them call.
    pub script: &'a str,
    /// How many call it.
    pub by_script: i64,
    /// How many call RL.TAKE.
    pub by_module: i64,
    /// How far, in ms, the clocks of those that call the script are off at most, evenly spread on either side.
    pub skew: i64,
    /// How often each of them calls, at least.
    pub calls: u32,
    /// For how long each of them calls, at least.
    pub time: Duration,
}

impl Callers<'_> {
    /// Lets them take from one bucket; the sum granted, and the seconds that it took.
    ///
    /// # Panics
    /// If one of them is answered an error.
    pub fn take_from(&self, server: &Server, bucket: &Bucket<'_>) -> (i64, f64) {
        let start = Instant::now();
        let granted = thread::scope(|scope| {
            let callers: Vec<_> = (0..self.by_script + self.by_module)
                .map(|caller| {
                    let mut connection = server.connection();
                    scope.spawn(move || {
                        let (mut granted, mut called) = (0, 0);
                        while called < self.calls || start.elapsed() < self.time {
                            called += 1;
                            granted += i64::from(if caller < self.by_script {
                                let now = millis() + self.skew_of(caller);
                                bucket.take_by_script(&mut connection, self.script, now, 1)
                            } else {
                                bucket.take(&mut connection)
                            });
                        }
                        granted
                    })
                })
                .collect();
            callers.into_iter().map(|caller| caller.join().expect("a caller")).sum()
        });
        (granted, start.elapsed().as_secs_f64())
    }

    /// From `-skew` for the first to `skew` for the last.
    fn skew_of(&self, caller: i64) -> i64 {
        match self.by_script {
            ..=1 => 0,
            callers => 2 * self.skew * caller / (callers - 1) - self.skew,
        }
    }
}

fn millis() -> i64 {
    UNIX_EPOCH.elapsed().expect("a clock after 1970").as_millis() as i64
}
