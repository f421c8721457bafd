//! What is counted and logged.

mod fixture;

use std::io::Write;
use std::sync::{Arc, Mutex};

use fixture::{limiter, policy, server};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use redis_token_bucket_client::log::DecisionLog;
use redis_token_bucket_client::policy::OnFailure;
use redis_token_bucket_client::{Connection, Limiter, Policy};

/// Counters as lines: name, labels, value.
fn counters(snapshotter: &Snapshotter) -> Vec<String> {
    let line = |(key, _, _, value): (metrics_util::CompositeKey, _, _, DebugValue)| {
        let (_, key) = key.into_parts();
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let DebugValue::Counter(count) = value else { panic!("{} is not a counter", key.name()) };
        format!("{} {} {count}", key.name(), labels.join(" "))
    };
    let mut lines: Vec<String> = snapshotter.snapshot().into_vec().into_iter().map(line).collect();
    lines.sort();
    lines
}

/// Requests of every outcome that one policy can have.
async fn exercise(limiter: &Limiter) {
    limiter.authorize("acme", "search", 2).await.unwrap();
    limiter.authorize("acme", "search", 7).await.unwrap();
    limiter.authorize("acme", "search", 2).await.unwrap();
    limiter.authorize("acme", "upload", 4).await.unwrap();
    // None of these is a decision.
    limiter.peek("acme", "search", 1).await.unwrap();
    limiter.give("acme", "search", 1).await.unwrap();
    limiter.charge("acme", "search", 1).await.unwrap();
}

fn limits() -> Policy {
    Policy { soft_limit: 2, ..policy("12 burst, 1/d", "10 burst, 1/d") }
}

#[tokio::test]
async fn every_decision_is_counted_with_tenant_route_and_reason() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let server = server();
    exercise(&limiter(&server, limits()).await).await;
    assert_eq!(
        counters(&snapshotter),
        [
            "rate_limit.allow tenant=acme route=search reason=soft 1",
            "rate_limit.allow tenant=acme route=search reason=within_limit 1",
            "rate_limit.deny tenant=acme route=search reason=route_limit 1",
            "rate_limit.deny tenant=acme route=upload reason=tenant_limit 1",
        ]
    );
}

#[tokio::test]
async fn the_tenant_label_can_be_left_out() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let server = server();
    let limiter = limiter(&server, limits()).await.without_tenant_label();
    limiter.authorize("acme", "search", 1).await.unwrap();
    limiter.authorize("emca", "search", 1).await.unwrap();
    assert_eq!(counters(&snapshotter), ["rate_limit.allow route=search reason=within_limit 2"]);
}

#[tokio::test]
async fn a_denial_that_shadow_mode_lets_pass_is_counted_as_a_denial() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let server = server();
    let limiter = limiter(&server, Policy { shadow: true, ..limits() }).await;
    assert!(limiter.authorize("acme", "search", 11).await.unwrap().is_allowed());
    assert_eq!(counters(&snapshotter), ["rate_limit.deny tenant=acme route=search reason=route_limit 1"]);
}

#[tokio::test]
async fn failures_are_counted_beside_the_decisions_made_without_redis() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let policy = Arc::new(Policy { on_failure: OnFailure::Closed, ..limits() });
    let connection = Connection::single("redis://127.0.0.1:1").await.unwrap();
    let limiter = Limiter::new(connection, move |_, _| Arc::clone(&policy));
    limiter.authorize("acme", "search", 1).await.unwrap();
    assert_eq!(
        counters(&snapshotter),
        [
            "rate_limit.deny tenant=acme route=search reason=unavailable 1",
            "rate_limit.unavailable tenant=acme route=search reason=connection 1",
        ]
    );
}

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn the_decision_log_has_every_decision_gift_and_charge_in_order() {
    let server = server();
    let memory = Memory::default();
    let limiter = limiter(&server, limits()).await.with_decision_log(DecisionLog::new(memory.clone(), 100));
    exercise(&limiter).await;
    drop(limiter);
    let text = String::from_utf8(memory.0.lock().unwrap().clone()).unwrap();
    let summary: Vec<String> = text
        .lines()
        .map(|line| {
            let line: serde_json::Value =
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            let word = |name: &str| {
                line.get(name).map_or("-".to_owned(), |value| value.to_string().replace('"', ""))
            };
            ["event", "tenant", "route", "tokens", "allowed", "reason", "remaining"].map(word).join(" ")
        })
        .collect();
    assert_eq!(
        summary,
        [
            "authorize acme search 2 true null 8",
            "authorize acme search 7 true null 1",
            "authorize acme search 2 false route_limit 1",
            "authorize acme upload 4 false tenant_limit 3",
            "give acme search 1 true - -",
            "charge acme search 1 true - -",
        ]
    );
}
