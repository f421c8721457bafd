//! How much a tenant in shards gets of its limit when it asks for somewhat more, beside one ideal bucket. (Asked for less, a
//! bucket that starts full denies next to nothing, in shards or not.)

use std::sync::Arc;
use std::time::{Duration, Instant};

use harness::Cluster;
use redis_token_bucket_client::Limiter;
use redis_token_bucket_client::decision::Source;
use redis_token_bucket_core::{Limit as CoreLimit, Rate, Tokens};
use tokio::runtime::Runtime;

use crate::limiter;

const CAPACITY: &str = "160";
const RATE: f64 = 1000.0;
pub(crate) const LIMIT: &str = "160 burst, 1000/s";

/// The part of the rate that is asked for.
pub(crate) const LOAD: f64 = 1.1;
const TIME: Duration = Duration::from_secs(10);

/// Which part of the requests was allowed.
pub(crate) struct Accuracy {
    /// By the shards.
    pub(crate) allowed: f64,
    /// By one bucket, in which the same requests at the same times take without delay.
    pub(crate) ideal: f64,
}

pub(crate) fn measure(cluster: &Cluster, runtime: &Runtime, shards: u32) -> Accuracy {
    let limiter = limiter(cluster, runtime, shards, LIMIT);
    let requests = runtime.block_on(ask(&limiter, &format!("near-{shards}")));
    let allowed = requests.iter().filter(|(_, allowed)| *allowed).count();
    Accuracy { allowed: part(allowed, &requests), ideal: part(ideal(&requests), &requests) }
}

fn part(count: usize, of: &[(Duration, bool)]) -> f64 {
    count as f64 / of.len() as f64
}

/// Asks at random times, as independent users do (exponential gaps), and returns when and with which answer.
async fn ask(limiter: &Arc<Limiter>, tenant: &str) -> Vec<(Duration, bool)> {
    let mut random = fastrand::Rng::with_seed(1);
    let start = Instant::now();
    let mut due = 0.0;
    let mut tasks = Vec::new();
    loop {
        due += -(1.0 - random.f64()).ln() / (RATE * LOAD);
        if due > TIME.as_secs_f64() {
            break;
        }
        tokio::time::sleep_until((start + Duration::from_secs_f64(due)).into()).await;
        let (limiter, tenant) = (Arc::clone(limiter), tenant.to_owned());
        tasks.push(tokio::spawn(async move {
            let at = start.elapsed();
            let decision = limiter.authorize(&tenant, "search", 1).await.expect("a decision");
            assert!(decision.source != Source::FailurePolicy, "the server did not answer: {decision:?}");
            (at, decision.is_allowed())
        }));
    }
    let mut requests = Vec::new();
    for task in tasks {
        requests.push(task.await.expect("no task panicked"));
    }
    requests.sort();
    requests
}

/// How many of the requests one bucket allows.
fn ideal(requests: &[(Duration, bool)]) -> usize {
    let capacity = Tokens::parse(CAPACITY.as_bytes()).expect("a capacity");
    let rate = Rate::parse(RATE.to_string().as_bytes()).expect("a rate");
    let limit = CoreLimit::new(capacity, rate).expect("a limit");
    let mut stored = None;
    let mut allowed = 0;
    for (at, _) in requests {
        let now = u64::try_from(at.as_micros()).expect("a short time");
        if let (_, Some(left)) = limit.level(stored, now).take(Tokens::ONE) {
            stored = Some(left.stored());
            allowed += 1;
        }
    }
    allowed
}
