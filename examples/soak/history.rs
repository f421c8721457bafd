//! What was called and answered, and what was done to the nodes meanwhile.
//!
//! Times are Unix time in µs by the clock that the servers read too: all of them run on this machine.

use std::time::{SystemTime, UNIX_EPOCH};

/// `[allowed, remaining, retry_after_ms, reset_after_ms]`
pub(crate) type Reply = [i64; 4];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Take,
    TakeAll,
    Peek,
    Give,
    Charge,
}

impl Kind {
    pub(crate) fn command(self) -> &'static str {
        match self {
            Kind::Take => "RL.TAKE",
            Kind::TakeAll => "RL.TAKEALL",
            Kind::Peek => "RL.PEEK",
            Kind::Give => "RL.GIVE",
            Kind::Charge => "RL.CHARGE",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    Allowed,
    Denied,
    /// It was sent and no answer came: it may have been executed.
    Unknown,
    /// No node took it in time: it was not executed.
    Refused,
    /// An error that no failover explains, or a reply of another shape.
    Error(String),
}

impl Outcome {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Outcome::Allowed => "allowed",
            Outcome::Denied => "denied",
            Outcome::Unknown => "unknown",
            Outcome::Refused => "refused",
            Outcome::Error(_) => "error",
        }
    }

    pub(crate) fn is_answer(&self) -> bool {
        matches!(self, Outcome::Allowed | Outcome::Denied)
    }
}

/// One bucket of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// Position in [`crate::buckets::Buckets::all`].
    pub(crate) bucket: usize,
    /// Cost or amount.
    pub(crate) cost: u64,
    pub(crate) reply: Option<Reply>,
}

#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) client: usize,
    pub(crate) kind: Kind,
    /// When the caller wanted it: before the first attempt.
    pub(crate) asked: u64,
    /// It was executed, if at all, between `start`, rounded down, and `end`, rounded up.
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) outcome: Outcome,
    pub(crate) parts: Vec<Part>,
}

impl Call {
    /// Whether it took tokens, and the caller knows.
    pub(crate) fn is_grant(&self) -> bool {
        matches!(self.kind, Kind::Take | Kind::TakeAll) && self.outcome == Outcome::Allowed
    }

    /// What it says about one bucket.
    pub(crate) fn part(&self, bucket: usize) -> Option<&Part> {
        self.parts.iter().find(|part| part.bucket == bucket)
    }

    pub(crate) fn line(&self, key: impl Fn(usize) -> String) -> String {
        let parts: Vec<_> = self
            .parts
            .iter()
            .map(|part| serde_json::json!({"key": key(part.bucket), "cost": part.cost, "reply": part.reply}))
            .collect();
        let mut line = serde_json::json!({
            "client": self.client, "command": self.kind.command(), "asked": self.asked, "start": self.start, "end": self.end,
            "outcome": self.outcome.name(), "buckets": parts,
        });
        if let Outcome::Error(text) = &self.outcome {
            line["error"] = text.as_str().into();
        }
        line.to_string()
    }
}

/// A bucket on the replica after its master's death, when it had applied all that it ever got and was not yet
/// promoted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Survivor {
    pub(crate) bucket: usize,
    pub(crate) tokens: f64,
    /// Unix time in ms.
    pub(crate) ts: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// `CLUSTER FAILOVER`.
    Planned,
    /// SIGKILL.
    Killed,
    /// SIGKILL a moment after the link to the replica was cut, so that there is something to lose.
    Cut,
}

#[derive(Clone, Debug)]
pub(crate) struct Failover {
    pub(crate) shard: usize,
    pub(crate) how: How,
    pub(crate) start: u64,
    /// The master was certainly dead.
    pub(crate) down: u64,
    /// The replica called itself master.
    pub(crate) promoted: u64,
    /// All nodes agreed and the former master was a linked replica.
    pub(crate) settled: u64,
    /// None when planned.
    pub(crate) survivors: Vec<Survivor>,
}

impl Failover {
    pub(crate) fn name(&self) -> &'static str {
        match self.how {
            How::Planned => "CLUSTER FAILOVER",
            How::Killed => "kill -9",
            How::Cut => "link cut, 0.2 s later kill -9",
        }
    }

    pub(crate) fn line(&self, key: impl Fn(usize) -> String) -> String {
        let survivors: Vec<_> = self
            .survivors
            .iter()
            .map(|bucket| serde_json::json!({"key": key(bucket.bucket), "tokens": bucket.tokens, "ts": bucket.ts}))
            .collect();
        let line = serde_json::json!({
            "failover": self.name(), "shard": self.shard, "start": self.start, "down": self.down,
            "promoted": self.promoted, "settled": self.settled, "replica": survivors,
        });
        line.to_string()
    }
}

/// All calls in the order of their `start`.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) calls: Vec<Call>,
    pub(crate) failovers: Vec<Failover>,
}

impl History {
    pub(crate) fn new(mut calls: Vec<Call>, failovers: Vec<Failover>) -> History {
        calls.sort_by_key(|call| call.start);
        History { calls, failovers }
    }

    /// The deaths of a shard's masters, with their positions.
    pub(crate) fn kills(&self, shard: usize) -> impl Iterator<Item = (usize, &Failover)> {
        self.failovers
            .iter()
            .enumerate()
            .filter(move |(_, failover)| failover.shard == shard && failover.how != How::Planned)
    }
}

/// Something that must not be, and the positions of the calls that show it.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) what: String,
    pub(crate) calls: Vec<usize>,
}

/// Unix time in µs, rounded down.
pub(crate) fn now() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    u64::try_from(elapsed.as_micros()).expect("a clock before the year 586000")
}
