//! What was measured.

use serde_json::{Value, json};

use rivals::Contender;

/// One figure, measured once a round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figure {
    rounds: Vec<f64>,
}

impl Figure {
    pub(crate) fn push(&mut self, value: f64) {
        self.rounds.push(value);
    }

    pub(crate) fn is_measured(&self) -> bool {
        !self.rounds.is_empty()
    }

    pub(crate) fn median(&self) -> f64 {
        median(self.rounds.clone())
    }

    pub(crate) fn least(&self) -> f64 {
        self.rounds.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub(crate) fn most(&self) -> f64 {
        self.rounds.iter().copied().fold(0.0, f64::max)
    }

    /// How many times the other this is: the median of the ratios within a round, where a slow spell of the machine slows
    /// both.
    pub(crate) fn over(&self, other: &Figure) -> f64 {
        median(self.rounds.iter().zip(&other.rounds).map(|(ours, theirs)| ours / theirs).collect())
    }

    fn json(&self) -> Value {
        json!(self.rounds)
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Latency in µs at half of the contender's own highest load.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latency {
    /// Decisions per second that were asked for.
    pub(crate) load: Figure,
    pub(crate) p50: Figure,
    pub(crate) p99: Figure,
    pub(crate) p999: Figure,
    /// How late the client itself sent, 99 of 100 times less: part of the latencies above, not of the server.
    pub(crate) late_p99: Figure,
}

impl Latency {
    fn json(&self) -> Value {
        json!({
            "decisions_per_s": self.load.json(),
            "p50": self.p50.json(),
            "p99": self.p99.json(),
            "p99.9": self.p999.json(),
            "client_late_p99": self.late_p99.json(),
        })
    }
}

/// What depends on how many keys there are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Speed {
    /// The server's CPU time in µs per decision.
    pub(crate) cpu: Figure,
    /// Decisions per second, many under way on each connection.
    pub(crate) pipelined: Figure,
    /// Decisions per second over 50 connections with one under way on each.
    pub(crate) single: Figure,
    pub(crate) latency: Latency,
}

impl Speed {
    fn json(&self) -> Value {
        json!({
            "cpu_us_per_decision": self.cpu.json(),
            "pipelined_decisions_per_s": self.pipelined.json(),
            "unpipelined_decisions_per_s": self.single.json(),
            "latency_us": self.latency.json(),
        })
    }
}

/// All that is known of one contender.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) contender: Contender,
    /// With one key, and with [`crate::MANY`] keys.
    pub(crate) hot: Speed,
    pub(crate) many: Speed,
    pub(crate) reply_bytes: f64,
    /// Bytes per decision, in steady use.
    pub(crate) replication: Figure,
    pub(crate) aof: Figure,
    /// Bytes of memory per bucket.
    pub(crate) memory: Figure,
}

impl Measured {
    pub(crate) fn new(contender: Contender) -> Measured {
        Measured {
            contender,
            hot: Speed::default(),
            many: Speed::default(),
            reply_bytes: 0.0,
            replication: Figure::default(),
            aof: Figure::default(),
            memory: Figure::default(),
        }
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "name": self.contender.name,
            "outcome": self.contender.outcome.word(),
            "hot_key": self.hot.json(),
            "many_keys": self.many.json(),
            "reply_bytes": self.reply_bytes,
            "replication_bytes_per_decision": self.replication.json(),
            "aof_bytes_per_decision": self.aof.json(),
            "memory_bytes_per_bucket": self.memory.json(),
        })
    }
}
