//! As many decisions as helper and cluster make, and what they cost the nodes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use harness::{Cluster, Server};
use redis_token_bucket_client::Limiter;
use redis_token_bucket_client::decision::Source;
use tokio::runtime::Runtime;

use crate::{WIDE, limiter};

/// Decisions under way at once.
const AT_A_TIME: usize = 128;
const TIME: Duration = Duration::from_secs(3);
const WARM_UP: Duration = Duration::from_millis(500);

/// What was measured with one number of shards.
pub(crate) struct Pressure {
    decisions: u64,
    time: Duration,
    /// CPU time of each node, in seconds.
    cpu: Vec<f64>,
}

impl Pressure {
    pub(crate) fn per_second(&self) -> f64 {
        self.decisions as f64 / self.time.as_secs_f64()
    }

    /// The nodes' CPU time per decision: the whole process, network included.
    pub(crate) fn micros_per_decision(&self) -> f64 {
        1e6 * self.cpu.iter().sum::<f64>() / self.decisions as f64
    }

    /// Which part of the nodes' CPU time was spent by each.
    pub(crate) fn parts(&self) -> Vec<f64> {
        let sum: f64 = self.cpu.iter().sum();
        self.cpu.iter().map(|cpu| cpu / sum).collect()
    }
}

/// A tenant whose limits allow everything.
pub(crate) fn measure(cluster: &Cluster, runtime: &Runtime, shards: u32) -> Pressure {
    let limiter = limiter(cluster, runtime, shards, WIDE);
    let run = |time| runtime.block_on(decide(&limiter, &format!("mega-{shards}"), time));
    run(WARM_UP);
    let before = cpu_seconds(cluster);
    let start = Instant::now();
    let decisions = run(TIME);
    let time = start.elapsed();
    let cpu = cpu_seconds(cluster).iter().zip(before).map(|(after, before)| after - before).collect();
    Pressure { decisions, time, cpu }
}

/// Decides for a time, some at once, and says how often.
async fn decide(limiter: &Arc<Limiter>, tenant: &str, time: Duration) -> u64 {
    let end = Instant::now() + time;
    let tasks: Vec<_> = (0..AT_A_TIME)
        .map(|_| {
            let (limiter, tenant) = (Arc::clone(limiter), tenant.to_owned());
            tokio::spawn(async move {
                let mut decisions = 0;
                while Instant::now() < end {
                    let decision = limiter.authorize(&tenant, "search", 1).await.expect("a decision");
                    let source = decision.source;
                    assert!(decision.is_allowed() && source == Source::Server, "{decision:?}");
                    decisions += 1;
                }
                decisions
            })
        })
        .collect();
    let mut decisions = 0;
    for task in tasks {
        decisions += task.await.expect("no task panicked");
    }
    decisions
}

fn cpu_seconds(cluster: &Cluster) -> Vec<f64> {
    let cpu = |node: &Server| -> f64 {
        let seconds = |field| node.info("cpu", field).parse::<f64>().expect("seconds");
        seconds("used_cpu_user") + seconds("used_cpu_sys")
    };
    cluster.nodes().iter().map(cpu).collect()
}
