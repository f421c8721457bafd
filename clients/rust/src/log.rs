//! A log of decisions, for quotas that are billed: one JSON line each, to any writer, without ever blocking a decision.
//!
//! Lines go through a queue to a thread of their own. When the writer falls behind and the queue is full, or the writer
//! fails, lines are dropped and counted, in [`DecisionLog::dropped`] and as `rate_limit.log_dropped`.
//!
//! ```
//! use redis_token_bucket_client::log::DecisionLog;
//!
//! let log = DecisionLog::new(std::io::stderr(), 10_000);
//! assert_eq!(log.dropped(), 0);
//! ```
//!
//! A line: `{"time_ms":1764567890123,"event":"authorize","tenant":"acme","route":"search","tokens":1,"allowed":true,`
//! `"reason":null,"soft":false,"shadow":false,"source":"server","remaining":49,"retry_after_ms":null}`. The event is
//! `authorize`, `give` or `charge`; for the last two there is no decision, and the fields from `reason` on are absent.

use std::io::{BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::decision::Decision;

/// The log. Dropping it writes what is queued and waits for that.
#[derive(Debug)]
pub struct DecisionLog {
    queue: Option<SyncSender<Line>>,
    dropped: Arc<AtomicU64>,
    writer: Option<JoinHandle<()>>,
}

#[derive(Debug, Serialize)]
struct Line {
    time_ms: u64,
    event: &'static str,
    tenant: Box<str>,
    route: Box<str>,
    tokens: u64,
    allowed: bool,
    #[serde(flatten)]
    detail: Option<Detail>,
}

#[derive(Debug, Serialize)]
struct Detail {
    reason: Option<&'static str>,
    soft: bool,
    shadow: bool,
    source: &'static str,
    remaining: Option<u64>,
    retry_after_ms: Option<u64>,
}

impl DecisionLog {
    /// A log that writes to `writer`, with room for `queue` lines that are not written yet. The writer is flushed whenever
    /// the queue has been emptied.
    pub fn new(writer: impl Write + Send + 'static, queue: usize) -> DecisionLog {
        let (sender, receiver) = sync_channel(queue);
        let dropped = Arc::new(AtomicU64::new(0));
        let counts = Arc::clone(&dropped);
        let writer = std::thread::spawn(move || write_lines(&receiver, BufWriter::new(writer), &counts));
        DecisionLog { queue: Some(sender), dropped, writer: Some(writer) }
    }

    /// How many lines were lost since the start.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(crate) fn decided(&self, tenant: &str, route: &str, cost: u64, decision: &Decision) {
        let millis = |wait: std::time::Duration| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let detail = Detail {
            reason: decision.reason().map(|reason| reason.as_str()),
            soft: decision.soft,
            shadow: decision.shadow,
            source: decision.source.as_str(),
            remaining: decision.quota.map(|quota| quota.remaining),
            retry_after_ms: decision.retry_after().map(millis),
        };
        self.push("authorize", tenant, route, cost, decision.is_allowed(), Some(detail));
    }

    pub(crate) fn settled(&self, event: &'static str, tenant: &str, route: &str, amount: u64) {
        self.push(event, tenant, route, amount, true, None);
    }

    fn push(
        &self,
        event: &'static str,
        tenant: &str,
        route: &str,
        tokens: u64,
        allowed: bool,
        detail: Option<Detail>,
    ) {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time_ms = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX);
        let line =
            Line { time_ms, event, tenant: tenant.into(), route: route.into(), tokens, allowed, detail };
        if self.queue.as_ref().is_some_and(|queue| queue.try_send(line).is_err()) {
            count_dropped(&self.dropped, 1);
        }
    }
}

impl Drop for DecisionLog {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

/// Writes lines until the queue is closed and empty. Lines of a batch that cannot be written are lost together, because a
/// writer does not say how far it got.
fn write_lines(queue: &Receiver<Line>, mut writer: BufWriter<impl Write>, dropped: &AtomicU64) {
    let mut batch = 0;
    while let Ok(line) = queue.recv() {
        let mut next = Ok(line);
        let mut result = Ok(());
        while let Ok(line) = next {
            batch += 1;
            result = result.and_then(|()| {
                serde_json::to_writer(&mut writer, &line)?;
                writer.write_all(b"\n")
            });
            next = match queue.try_recv() {
                Err(TryRecvError::Disconnected) => Err(TryRecvError::Empty),
                other => other,
            };
        }
        if let Err(error) = result.and_then(|()| writer.flush()) {
            tracing::error!(%error, lines = batch, "the decision log cannot be written");
            count_dropped(dropped, batch);
        }
        batch = 0;
    }
}

fn count_dropped(dropped: &AtomicU64, lines: u64) {
    dropped.fetch_add(lines, Ordering::Relaxed);
    metrics::counter!("rate_limit.log_dropped").increment(lines);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::{Reason, Retry, Source, Verdict};
    use std::io;
    use std::sync::Mutex;
    use std::sync::mpsc::{Sender, channel};
    use std::time::Duration;

    const DENIED: Decision = Decision {
        verdict: Verdict::Denied {
            reason: Reason::RouteLimit,
            retry: Retry::After(Duration::from_millis(250)),
        },
        shadow: false,
        soft: false,
        source: Source::DenialCache,
        quota: None,
    };

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn every_decision_and_settlement_is_a_line_of_json() {
        let memory = Memory::default();
        let log = DecisionLog::new(memory.clone(), 10);
        log.decided("ac\"me\n", "search", 3, &DENIED);
        log.settled("charge", "acme", "search", 7);
        drop(log);
        let text = String::from_utf8(memory.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert_eq!(lines[0]["tenant"], "ac\"me\n");
        assert_eq!(lines[0]["tokens"], 3);
        assert_eq!(lines[0]["reason"], "route_limit");
        assert_eq!(lines[0]["retry_after_ms"], 250);
        assert_eq!(lines[0]["source"], "denial_cache");
        assert_eq!((&lines[1]["event"], &lines[1]["tokens"]), (&"charge".into(), &7.into()));
        assert_eq!(lines[1].get("reason"), None, "a charge has no decision: {text}");
    }

    /// Says when it is written to, and waits until the other end is dropped.
    struct Stuck {
        entered: Sender<()>,
        release: Receiver<()>,
    }

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.entered.send(());
            let _ = self.release.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_writer_that_falls_behind_costs_lines_and_they_are_counted() {
        let (entered, on_entered) = channel();
        let (release, on_release) = channel::<()>();
        let log = DecisionLog::new(Stuck { entered, release: on_release }, 5);
        log.decided("acme", "search", 1, &DENIED);
        on_entered.recv_timeout(Duration::from_secs(10)).expect("the first line does not reach the writer");
        for _ in 0..12 {
            log.decided("acme", "search", 1, &DENIED);
        }
        assert_eq!(log.dropped(), 7, "5 of 12 fit into the queue");
        drop(release);
    }

    struct Broken;

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::other("disk full"))
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let log = DecisionLog::new(Broken, 10);
        let dropped = Arc::clone(&log.dropped);
        for _ in 0..3 {
            log.decided("acme", "search", 1, &DENIED);
        }
        drop(log);
        assert_eq!(dropped.load(Ordering::Relaxed), 3);
    }
}
