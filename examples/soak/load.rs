//! The clients: mixed calls at a steady rate, each recorded.
//!
//! A client knows the two nodes of each shard and asks the other one when the first says that it is not the
//! master or does not answer. It never sends a call again that may have been executed. A cluster client would
//! do so after a lost connection, and a history of its calls could not be judged.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use harness::redis::{self, Client, Cmd, Connection, ErrorKind, RedisError, ServerErrorKind, Value};

use crate::buckets::{Buckets, SHARDS};
use crate::history::{Call, Kind, Outcome, Part, Reply, now};
use crate::ledger;

/// Calls of one client in a second.
pub(crate) const RATE: u64 = 100;
/// How long a call looks for a node that takes it.
const PATIENCE: Duration = Duration::from_millis(100);
/// Far above any stall of a living node: a call that is given up must not be executed later, after the client
/// has looked.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

/// The calls of all clients, as they come.
pub(crate) type Record = Mutex<Vec<Call>>;

/// The two nodes of a shard.
struct Shard {
    ports: [u16; 2],
    connections: [Option<Connection>; 2],
    /// The one asked first.
    master: usize,
    /// A connection broke: what the ledgers hold has to be looked up.
    broke: bool,
}

enum Answer {
    Replied(Value),
    Unknown,
    Refused,
    Error(String),
}

impl Shard {
    /// The answer, and between which times it was made.
    fn ask(&mut self, cmd: &Cmd) -> (u64, u64, Answer) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let start = now();
            let answer = self.try_ask(cmd);
            let end = now() + 1;
            match answer {
                Some(answer) => return (start, end, answer),
                None if Instant::now() >= deadline => return (start, end, Answer::Refused),
                None => thread::sleep(PAUSE),
            }
            self.master = 1 - self.master;
        }
    }

    /// Nothing if it was certainly not executed.
    fn try_ask(&mut self, cmd: &Cmd) -> Option<Answer> {
        let connection = &mut self.connections[self.master];
        if connection.is_none() {
            *connection = connect(self.ports[self.master]).ok();
        }
        let error = match cmd.query(connection.as_mut()?) {
            Ok(value) => return Some(Answer::Replied(value)),
            Err(error) => error,
        };
        match error.kind() {
            ErrorKind::Server(
                ServerErrorKind::Moved
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::BusyLoading
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ReadOnly
                | ServerErrorKind::TryAgain,
            ) => None,
            ErrorKind::Io => {
                *connection = None;
                self.broke = true;
                self.master = 1 - self.master;
                Some(Answer::Unknown)
            }
            _ => Some(Answer::Error(error.to_string())),
        }
    }
}

fn connect(port: u16) -> Result<Connection, RedisError> {
    let client = Client::open(format!("redis://127.0.0.1:{port}"))?;
    let connection = client.get_connection_with_timeout(PATIENCE)?;
    connection.set_read_timeout(Some(REPLY_TIMEOUT))?;
    connection.set_write_timeout(Some(REPLY_TIMEOUT))?;
    Ok(connection)
}

pub(crate) struct Caller<'a> {
    client: usize,
    buckets: &'a Buckets,
    record: &'a Record,
    shards: Vec<Shard>,
    /// Operations applied to this client's ledger of each shard; not known at first and after a broken
    /// connection.
    ledgers: [Option<u64>; SHARDS],
    /// When the bucket of its own will give the next token, if that was told.
    due: u64,
    random: fastrand::Rng,
}

impl<'a> Caller<'a> {
    /// `ports`: of the two nodes of each shard.
    pub(crate) fn new(
        client: usize,
        buckets: &'a Buckets,
        record: &'a Record,
        ports: &[[u16; 2]],
    ) -> Caller<'a> {
        let shard = |&ports: &[u16; 2]| Shard { ports, connections: [None, None], master: 0, broke: false };
        Caller {
            client,
            buckets,
            record,
            shards: ports.iter().map(shard).collect(),
            ledgers: [None; SHARDS],
            due: 0,
            random: fastrand::Rng::with_seed(client as u64),
        }
    }

    /// Calls at [`RATE`] until told to stop. What an outage held up is not made up for.
    pub(crate) fn run(&mut self, stop: &AtomicBool) {
        let interval = Duration::from_micros(1_000_000 / RATE);
        let mut next = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            self.call_something();
            next = (next + interval).max(Instant::now() - 10 * interval);
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }

    fn call_something(&mut self) {
        let hot = self.buckets.hot[self.random.usize(..self.buckets.hot.len())];
        match self.random.u32(..100) {
            0..45 => {
                let cost = self.random.u64(1..=5);
                self.call(Kind::Take, &[(hot, cost)]);
            }
            45..60 => {
                let [tenant, route] = self.buckets.stacks[self.random.usize(..SHARDS)];
                let costs = (self.random.u64(1..=2), self.random.u64(1..=2));
                self.call(Kind::TakeAll, &[(tenant, costs.0), (route, costs.1)]);
            }
            60..70 => {
                let cost = self.random.u64(1..=5);
                self.call(Kind::Peek, &[(hot, cost)]);
            }
            70..80 => self.take_alone(),
            _ => self.keep_ledger(),
        }
    }

    /// Takes from its own bucket: half of the time as soon as it was told, else at once.
    fn take_alone(&mut self) {
        let early_by = self.due.saturating_sub(now());
        if early_by > 0 && self.random.bool() {
            thread::sleep(Duration::from_micros(early_by));
        }
        if let Some(reply) = self.call(Kind::Take, &[(self.buckets.alone[self.client], 1)]) {
            self.due = now() + reply[2].unsigned_abs() * 1000;
        }
    }

    fn keep_ledger(&mut self) {
        let shard = self.random.usize(..SHARDS);
        let bucket = self.buckets.ledgers[self.client][shard];
        let (kind, amount) = match self.ledgers[shard] {
            Some(operations) if !self.shards[shard].broke => ledger::next(operations),
            _ => (Kind::Peek, 0),
        };
        let reply = self.call(kind, &[(bucket, amount)]);
        if reply.is_some() {
            self.shards[shard].broke = false;
        }
        let used = reply.and_then(|reply| {
            self.buckets.all[bucket].limit.capacity.checked_sub(u64::try_from(reply[1]).ok()?)
        });
        self.ledgers[shard] = used.and_then(ledger::operations);
    }

    /// Calls and records; the reply about the first bucket, if there is one.
    fn call(&mut self, kind: Kind, of: &[(usize, u64)]) -> Option<Reply> {
        let mut cmd = redis::cmd(kind.command());
        for &(bucket, cost) in of {
            let bucket = &self.buckets.all[bucket];
            let rate = format!("{}/{}", bucket.limit.tokens, bucket.limit.seconds);
            cmd.arg(&bucket.key).arg(bucket.limit.capacity).arg(rate).arg(cost);
        }
        let asked = now();
        let (start, end, answer) = self.shards[self.buckets.all[of[0].0].shard].ask(&cmd);
        let (outcome, replies) = match answer {
            Answer::Replied(value) => read(kind, of.len(), value)
                .unwrap_or_else(|text| (Outcome::Error(format!("an odd reply: {text}")), Vec::new())),
            Answer::Unknown => (Outcome::Unknown, Vec::new()),
            Answer::Refused => (Outcome::Refused, Vec::new()),
            Answer::Error(text) => (Outcome::Error(text), Vec::new()),
        };
        let part = |(index, &(bucket, cost)): (usize, &(usize, u64))| Part {
            bucket,
            cost,
            reply: replies.get(index).copied(),
        };
        let parts = of.iter().enumerate().map(part).collect();
        let call = Call { client: self.client, kind, asked, start, end, outcome, parts };
        self.record.lock().expect("no client panicked").push(call);
        replies.first().copied()
    }
}

/// The outcome and the reply about each bucket.
fn read(kind: Kind, buckets: usize, value: Value) -> Result<(Outcome, Vec<Reply>), String> {
    let shown = format!("{value:?}");
    let outcome = |allowed: i64| if allowed == 1 { Outcome::Allowed } else { Outcome::Denied };
    let fail = |error: &dyn std::fmt::Display| format!("{shown}: {error}");
    if kind != Kind::TakeAll {
        let reply: Reply = redis::from_redis_value(value).map_err(|error| fail(&error))?;
        return Ok((outcome(reply[0]), vec![reply]));
    }
    let Value::Array(items) = value else { return Err(shown) };
    let mut items = items.into_iter();
    let mut number =
        || items.next().and_then(|item| redis::from_redis_value::<i64>(item).ok()).ok_or(shown.clone());
    let (allowed, retry) = (number()?, number()?);
    let replies: Vec<Reply> =
        items.map(redis::from_redis_value).collect::<Result<_, _>>().map_err(|error| fail(&error))?;
    let longest = replies.iter().filter(|reply| reply[0] == 0).map(|reply| reply[2]).max().unwrap_or(0);
    if replies.len() == buckets && retry == longest { Ok((outcome(allowed), replies)) } else { Err(shown) }
}
