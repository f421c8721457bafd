//! The report, as Markdown.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use hdrhistogram::Histogram;

use crate::buckets::{Buckets, CLIENTS};
use crate::history::{Call, Failover, History};
use crate::load;
use crate::verdict::Verdict;

/// Calls of a violation that are shown, from its beginning and from its end; all are in the history.
const SHOWN: usize = 6;

pub(crate) struct Report<'a> {
    pub(crate) server: String,
    pub(crate) minutes: f64,
    pub(crate) history: &'a History,
    pub(crate) buckets: &'a Buckets,
    pub(crate) verdict: &'a Verdict,
    /// What [`crate::failover::compare`] said.
    pub(crate) replicas: &'a Result<usize, String>,
}

impl Report<'_> {
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text).expect("a string takes all");
        text
    }

    fn write(&self, text: &mut String) -> fmt::Result {
        let calls = &self.history.calls;
        writeln!(
            text,
            "# Soak\n\n{}, three masters with a replica each, {:.1} minutes, {CLIENTS} clients at {} calls a second \
             each: {} calls.",
            self.server,
            self.minutes,
            load::RATE,
            calls.len()
        )?;
        self.outcomes(text)?;
        self.failovers(text)?;
        self.invariants(text)?;
        self.latency(text)
    }

    fn outcomes(&self, text: &mut String) -> fmt::Result {
        let mut counts = BTreeMap::new();
        for call in &self.history.calls {
            *counts.entry((call.kind, call.outcome.name())).or_insert(0) += 1;
        }
        writeln!(
            text,
            "\n## Calls\n\n| command | allowed | denied | unknown | refused | error |\n|---|--:|--:|--:|--:|--:|"
        )?;
        let mut kinds: Vec<_> = counts.keys().map(|key| key.0).collect();
        kinds.dedup();
        for kind in kinds {
            write!(text, "| {} |", kind.command())?;
            for name in ["allowed", "denied", "unknown", "refused", "error"] {
                write!(text, " {} |", counts.get(&(kind, name)).unwrap_or(&0))?;
            }
            writeln!(text)?;
        }
        writeln!(text, "\nUnknown: sent, and no answer came. Refused: no node took it within 0.1 s.")
    }

    fn failovers(&self, text: &mut String) -> fmt::Result {
        writeln!(
            text,
            "\n## Failovers\n\n| at | shard | what | promoted after | longest without an answer | settled after | \
             tokens lost, at most (of one bucket) | ledger operations lost |\n|--:|--:|---|--:|--:|--:|--:|--:|"
        )?;
        let begin = self.history.calls.first().map_or(0, |call| call.start);
        for (index, failover) in self.history.failovers.iter().enumerate() {
            let loss = self.verdict.losses.get(&index).copied().unwrap_or_default();
            let seconds = |time: u64| (time - failover.start) as f64 / 1e6;
            writeln!(
                text,
                "| {:.0} s | {} | {} | {:.2} s | {:.2} s | {:.2} s | {} ({}) | {} |",
                (failover.start - begin) as f64 / 1e6,
                failover.shard,
                failover.name(),
                seconds(failover.promoted),
                self.silence(failover) as f64 / 1e6,
                seconds(failover.settled),
                loss.tokens,
                loss.most,
                loss.operations,
            )?;
        }
        Ok(())
    }

    /// The longest time in µs, around a failover, in which no call to the shard was answered.
    fn silence(&self, failover: &Failover) -> u64 {
        let shard = |call: &Call| self.buckets.all[call.parts[0].bucket].shard;
        let mut answers: Vec<u64> = self
            .history
            .calls
            .iter()
            .filter(|call| call.outcome.is_answer() && shard(call) == failover.shard)
            .map(|call| call.end)
            .filter(|end| (failover.start - 1_000_000..failover.settled + 1_000_000).contains(end))
            .collect();
        answers.sort_unstable();
        answers.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
    }

    fn invariants(&self, text: &mut String) -> fmt::Result {
        let verdict = self.verdict;
        writeln!(text, "\n## Invariants\n")?;
        if verdict.violations.is_empty() && self.replicas.is_ok() {
            let compared = self.replicas.as_ref().unwrap_or(&0);
            writeln!(
                text,
                "All held: {} replies in range; {} calls after a denial, none of them allowed too early or denied \
                 too late; {} ledger operations, none of them applied twice or lost other than by a kill; {compared} \
                 buckets the same on master and replica at the end; and in every interval no more granted than \
                 capacity + rate * t + lost. {} buckets needed what was lost.\n",
                verdict.replies, verdict.denials, verdict.operations, verdict.beyond
            )?;
        }
        writeln!(text, "| bucket | tokens granted | least room under the bound |\n|---|--:|--:|")?;
        for (key, room) in &verdict.rooms {
            writeln!(text, "| `{key}` | {} | {:.3} |", room.granted, room.least)?;
        }
        if let Err(what) = self.replicas {
            writeln!(text, "\nVIOLATION: {what}")?;
        }
        for violation in &verdict.violations {
            writeln!(text, "\nVIOLATION: {}\n", violation.what)?;
            let (first, last) = violation.calls.split_at(violation.calls.len().min(SHOWN));
            let (left_out, last) = last.split_at(last.len().saturating_sub(SHOWN));
            self.lines(text, first)?;
            if !left_out.is_empty() {
                writeln!(text, "    ... {} more", left_out.len())?;
            }
            self.lines(text, last)?;
        }
        Ok(())
    }

    fn lines(&self, text: &mut String, calls: &[usize]) -> fmt::Result {
        calls.iter().try_for_each(|&call| {
            let key = |bucket: usize| self.buckets.all[bucket].key.clone();
            writeln!(text, "    {}", self.history.calls[call].line(key))
        })
    }

    fn latency(&self, text: &mut String) -> fmt::Result {
        let mut histograms =
            [(); 2].map(|()| Histogram::<u64>::new_with_bounds(1, 60_000_000, 3).expect("three digits"));
        for call in self.history.calls.iter().filter(|call| call.outcome.is_answer()) {
            let during = |failover: &Failover| call.end >= failover.start && call.asked <= failover.settled;
            let histogram = &mut histograms[usize::from(self.history.failovers.iter().any(during))];
            histogram.saturating_record(call.end - call.asked);
        }
        writeln!(
            text,
            "\n## Latency of answered calls, ms\n\n| | calls | p50 | p99 | p99.9 | max |\n|---|--:|--:|--:|--:|--:|"
        )?;
        for (name, histogram) in
            ["outside failovers", "from a failover's start until settled"].iter().zip(&histograms)
        {
            let millis = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
            let (p50, p99, p999, max) =
                (millis(0.5), millis(0.99), millis(0.999), histogram.max() as f64 / 1e3);
            writeln!(text, "| {name} | {} | {p50:.2} | {p99:.2} | {p999:.2} | {max:.2} |", histogram.len())?;
        }
        Ok(())
    }
}
