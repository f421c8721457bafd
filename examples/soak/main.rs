//! `make soak MINUTES=30`: mixed load on a cluster of three masters and three replicas, with a failover every
//! three minutes, and a check of all that was answered.
//!
//! In turn a master is killed (SIGKILL) and one hands over as planned (CLUSTER FAILOVER). Every call is
//! recorded with its start, end and outcome; then programs that know nothing of servers judge this history:
//!
//! - `bound`: in every interval no bucket granted more than capacity + rate * t + what the kills in it lost;
//! - `lost`: how much that was, from the buckets of the replica before it was promoted; a planned failover may
//!   lose nothing;
//! - `ledger`: on buckets that one client charges and gives, each operation is applied once, and what a kill
//!   lost is counted exactly;
//! - `replies`: replies are in range, and denials are kept, to the millisecond;
//! - and at the end master and replica have the same fields and expiries.
//!
//! The report goes to the terminal and to target/soak/report.md, the failovers and calls to
//! target/soak/history.jsonl. A violation ends it with 1.

mod bound;
mod buckets;
mod failover;
mod history;
mod ledger;
mod load;
mod lost;
#[cfg(test)]
mod made_up;
mod replies;
mod report;
mod verdict;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, mem};

use harness::Cluster;

use crate::buckets::{Buckets, CLIENTS, SHARDS};
use crate::history::{Failover, History};
use crate::load::{Caller, Record};

const FAILOVER_EVERY: Duration = Duration::from_secs(180);
const PROGRESS_EVERY: Duration = Duration::from_secs(15);
/// The ledgers refill one token an hour.
const MOST_MINUTES: f64 = 55.0;

fn main() -> ExitCode {
    let minutes: f64 = match env::var("MINUTES").unwrap_or_else(|_| "5".to_owned()).parse() {
        Ok(minutes) if (0.5..=MOST_MINUTES).contains(&minutes) => minutes,
        _ => {
            eprintln!("soak: MINUTES must be a number from 0.5 to {MOST_MINUTES}");
            return ExitCode::from(2);
        }
    };
    harness::end_all_on_ctrl_c();
    let mut cluster = Cluster::start(SHARDS, 1);
    let shard_of = |slot| {
        let port = cluster.master_of_slot(slot).port();
        cluster.nodes().iter().position(|node| node.port() == port).expect("one of the nodes")
    };
    let buckets = Buckets::new(shard_of);
    let history = run(&mut cluster, &buckets, Duration::from_secs_f64(minutes * 60.0));
    let replicas = failover::compare(&cluster, &buckets);
    let verdict = verdict::judge(&history, &buckets);
    let report = report::Report {
        server: harness::server_version().to_string(),
        minutes,
        history: &history,
        buckets: &buckets,
        verdict: &verdict,
        replicas: &replicas,
    };
    let text = report.text();
    println!("\n{text}");
    let dir = Path::new("target/soak");
    if let Err(error) = write(dir, &text, &history, &buckets) {
        eprintln!("soak: cannot write to {}: {error}", dir.display());
        return ExitCode::from(2);
    }
    println!("Written to {}: report.md, history.jsonl", dir.display());
    if verdict.violations.is_empty() && replicas.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The load, and the failovers meanwhile.
fn run(cluster: &mut Cluster, buckets: &Buckets, time: Duration) -> History {
    let ports: Vec<[u16; 2]> =
        (0..SHARDS).map(|shard| [shard, shard + SHARDS].map(|node| cluster.nodes()[node].port())).collect();
    let record = Record::default();
    let stop = AtomicBool::new(false);
    let failovers = thread::scope(|scope| {
        for client in 0..CLIENTS {
            let mut caller = Caller::new(client, buckets, &record, &ports);
            let stop = &stop;
            scope.spawn(move || caller.run(stop));
        }
        // Also when a wait for the nodes panics, or the clients would hold up its message for ever.
        let _stop = StopOnDrop(&stop);
        fail_over_at_times(cluster, buckets, time, &record)
    });
    let calls = mem::take(&mut *record.lock().expect("no client panicked"));
    History::new(calls, failovers)
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn fail_over_at_times(
    cluster: &mut Cluster,
    buckets: &Buckets,
    time: Duration,
    record: &Record,
) -> Vec<Failover> {
    // All three kinds also in a short run.
    let every = FAILOVER_EVERY.min(time / 4);
    let begin = Instant::now();
    let (mut failovers, mut shown) = (Vec::new(), 0);
    while begin.elapsed() < time {
        thread::sleep(Duration::from_millis(100));
        let count = failovers.len();
        let due = every * (count as u32 + 1);
        if begin.elapsed() >= due && due < time {
            let shard = count % SHARDS;
            let failover = match count % 4 {
                0 => failover::kill(cluster, buckets, shard, false),
                2 => failover::kill(cluster, buckets, shard, true),
                _ => failover::plan(cluster, shard),
            };
            failovers.push(failover);
        }
        let lines = begin.elapsed().as_secs() / PROGRESS_EVERY.as_secs();
        if lines > shown {
            shown = lines;
            let calls = record.lock().expect("no client panicked").len();
            println!(
                "{:4} of {} s: {calls} calls, {} failovers",
                begin.elapsed().as_secs(),
                time.as_secs(),
                failovers.len()
            );
        }
    }
    failovers
}

fn write(dir: &Path, report: &str, history: &History, buckets: &Buckets) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    fs::write(dir.join("report.md"), report)?;
    let mut lines = BufWriter::new(File::create(dir.join("history.jsonl"))?);
    let key = |bucket: usize| buckets.all[bucket].key.clone();
    for failover in &history.failovers {
        writeln!(lines, "{}", failover.line(key))?;
    }
    for call in &history.calls {
        writeln!(lines, "{}", call.line(key))?;
    }
    lines.flush()
}
