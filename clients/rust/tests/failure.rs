//! What happens when Redis does not answer, or answers something else.

mod fixture;

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fixture::proxy::Proxy;
use fixture::scripted::Scripted;
use fixture::{balance, limiter, policy, server, url};
use harness::{Ask, Server};
use redis_token_bucket_client::decision::{Decision, Reason, Source, Verdict};
use redis_token_bucket_client::policy::{Cell, OnFailure};
use redis_token_bucket_client::{Connection, Error, Limiter, Policy};

const SLOW: &str = "10 burst, 1/d";
/// A port that nothing listens on.
const NOWHERE: &str = "redis://127.0.0.1:1";

async fn limiter_at(url: &str, policy: Policy) -> Limiter {
    let policy = Arc::new(policy);
    Limiter::new(Connection::single(url).await.unwrap(), move |_, _| Arc::clone(&policy))
}

fn failing(on_failure: OnFailure) -> Policy {
    Policy { on_failure, ..policy("15 burst, 1/d", SLOW) }
}

/// Calls until `accept` says yes, for ten seconds.
async fn eventually(limiter: &Limiter, what: &str, accept: impl Fn(&Decision) -> bool) -> Decision {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let decision = limiter.authorize("acme", "search", 1).await.unwrap();
        if accept(&decision) {
            return decision;
        }
        assert!(Instant::now() < deadline, "no decision that is {what} in 10 s; the last: {decision:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn without_a_server_an_open_policy_allows_and_says_that_it_was_not_redis() {
    let limiter = limiter_at(NOWHERE, failing(OnFailure::Open)).await;
    let decision = limiter.authorize("acme", "search", 1).await.unwrap();
    assert_eq!((decision.verdict, decision.source), (Verdict::Allowed, Source::FailurePolicy));
    assert_eq!(decision.quota, None, "no bucket was looked at");
}

#[tokio::test]
async fn without_a_server_a_closed_policy_denies_for_no_limit() {
    let limiter = limiter_at(NOWHERE, failing(OnFailure::Closed)).await;
    let decision = limiter.authorize("acme", "search", 1).await.unwrap();
    assert_eq!((decision.reason(), decision.source), (Some(Reason::Unavailable), Source::FailurePolicy));
}

#[tokio::test]
async fn without_a_server_local_buckets_keep_the_limits_both_or_neither() {
    let limiter = limiter_at(NOWHERE, failing(OnFailure::Local)).await;
    let reason = async |route, cost| {
        let decision = limiter.authorize("acme", route, cost).await.unwrap();
        assert_eq!(decision.source, Source::FailurePolicy);
        decision.reason()
    };
    assert_eq!(reason("search", 8).await, None);
    assert_eq!(reason("search", 3).await, Some(Reason::RouteLimit));
    assert_eq!(reason("upload", 8).await, Some(Reason::TenantLimit), "7 of the tenant's 15 remain");
    assert_eq!(reason("upload", 7).await, None, "neither denial took a token");
}

#[tokio::test]
async fn local_buckets_keep_the_limit_of_the_cell_too() {
    let cell = Cell { name: "db".to_owned(), limit: "3 burst, 1/d".parse().unwrap(), shards: 1 };
    let limiter = limiter_at(NOWHERE, Policy { cell: Some(cell), ..failing(OnFailure::Local) }).await;
    for _ in 0..3 {
        assert!(limiter.authorize("acme", "search", 1).await.unwrap().is_allowed());
    }
    let denied = limiter.authorize("emca", "search", 1).await.unwrap();
    assert_eq!(denied.reason(), Some(Reason::CellLimit), "three of any tenant");
}

#[tokio::test]
async fn give_and_charge_say_that_redis_did_not_confirm() {
    let limiter = limiter_at(NOWHERE, failing(OnFailure::Open)).await;
    assert!(matches!(limiter.give("acme", "search", 1).await, Err(Error::Unavailable(_))));
    assert!(matches!(limiter.charge("acme", "search", 1).await, Err(Error::Unavailable(_))));
}

#[tokio::test]
async fn a_stalled_server_is_not_waited_for_longer_than_the_timeout() {
    let server = server();
    let timeout = Duration::from_millis(50);
    let limiter = limiter(&server, Policy { timeout, ..failing(OnFailure::Closed) }).await;
    eventually(&limiter, "the server's", |decision| decision.source == Source::Server).await;
    server.signal("STOP");
    let mut waits = Vec::new();
    for _ in 0..21 {
        let start = Instant::now();
        let decision = limiter.authorize("acme", "search", 1).await.unwrap();
        waits.push(start.elapsed());
        assert_eq!(decision.source, Source::FailurePolicy);
    }
    server.signal("CONT");
    waits.sort();
    // The median, because another program can keep this one from the processor at any single time.
    assert!(waits[10] <= timeout + Duration::from_millis(10), "answers came after {waits:?}");
    eventually(&limiter, "the server's again", |decision| decision.source == Source::Server).await;
}

#[tokio::test]
async fn a_server_that_comes_back_decides_again() {
    let mut server = server();
    let limiter = limiter(&server, failing(OnFailure::Open)).await;
    assert_eq!(limiter.authorize("acme", "search", 1).await.unwrap().source, Source::Server);
    server.kill();
    let decision = limiter.authorize("acme", "search", 1).await.unwrap();
    assert_eq!((decision.is_allowed(), decision.source), (true, Source::FailurePolicy));
    server.start_again();
    eventually(&limiter, "the server's", |decision| decision.source == Source::Server).await;
}

#[tokio::test]
async fn a_service_that_starts_before_its_server_gets_to_it_later() {
    let mut server = server();
    server.kill();
    let limiter = limiter(&server, failing(OnFailure::Open)).await;
    assert_eq!(limiter.authorize("acme", "search", 1).await.unwrap().source, Source::FailurePolicy);
    server.start_again();
    eventually(&limiter, "the server's", |decision| decision.source == Source::Server).await;
}

#[tokio::test]
async fn a_take_whose_reply_is_lost_is_not_sent_again() {
    let server = server();
    let port = server.port();
    let proxy = Proxy::start(move || port).await;
    let limiter = limiter_at(&format!("redis://127.0.0.1:{}", proxy.port), failing(OnFailure::Open)).await;
    limiter.authorize("acme", "search", 1).await.unwrap();
    proxy.lose_replies(true);
    let lost = limiter.authorize("acme", "search", 2).await.unwrap();
    assert_eq!(lost.source, Source::FailurePolicy);
    proxy.lose_replies(false);
    let decision = eventually(&limiter, "the server's", |decision| decision.source == Source::Server).await;
    assert!(decision.is_allowed());
    assert_eq!(
        balance(&server, "{acme}:rl:search:0"),
        Some(6),
        "1 + 2 + 1 of 10: the lost take counted once"
    );
}

#[tokio::test]
async fn a_take_whose_reply_is_lost_is_not_sent_again_in_a_cluster() {
    let target = Arc::new(Mutex::new(0));
    let shared = Arc::clone(&target);
    let proxy = Proxy::start(move || *shared.lock().unwrap()).await;
    let announced = proxy.port.to_string();
    // A cluster of one node, which every client reaches through the proxy.
    let server = Server::builder()
        .tcp()
        .config("cluster-enabled", "yes")
        .config("cluster-announce-ip", "127.0.0.1")
        .config("cluster-announce-port", &announced)
        .start();
    *target.lock().unwrap() = server.port();
    let slots: Vec<String> = (0..16_384).map(|slot| slot.to_string()).collect();
    let _: String = server.connection().ask(&format!("CLUSTER ADDSLOTS {}", slots.join(" ")));
    harness::wait::until(harness::wait::PATIENCE, "the cluster to be well", || {
        let info: String = server.connection().ask("CLUSTER INFO");
        if info.contains("cluster_state:ok") { Ok(()) } else { Err(info) }
    });
    let url = format!("redis://127.0.0.1:{announced}");
    let policy = Arc::new(failing(OnFailure::Open));
    let limiter =
        Limiter::new(Connection::cluster([url.as_str()]).await.unwrap(), move |_, _| Arc::clone(&policy));
    assert_eq!(limiter.authorize("acme", "search", 1).await.unwrap().source, Source::Server);
    proxy.lose_replies(true);
    assert_eq!(limiter.authorize("acme", "search", 2).await.unwrap().source, Source::FailurePolicy);
    proxy.lose_replies(false);
    eventually(&limiter, "the server's", |decision| decision.source == Source::Server).await;
    assert_eq!(
        balance(&server, "{acme}:rl:search:0"),
        Some(6),
        "1 + 2 + 1 of 10: the lost take counted once"
    );
}

#[tokio::test]
async fn a_take_that_the_server_says_it_did_not_carry_out_is_sent_again() {
    let granted = "*4\r\n:1\r\n:0\r\n*4\r\n:1\r\n:9\r\n:0\r\n:1\r\n*4\r\n:1\r\n:9\r\n:0\r\n:1";
    for refusal in ["-LOADING wait", "-TRYAGAIN wait", "-CLUSTERDOWN wait", "-MASTERDOWN wait"] {
        let server = Scripted::start(&[refusal, refusal, granted]).await;
        let limiter = limiter_at(&server.url, failing(OnFailure::Closed)).await;
        let decision = limiter.authorize("acme", "search", 1).await.unwrap();
        assert_eq!(
            (decision.verdict, decision.source),
            (Verdict::Allowed, Source::Server),
            "after {refusal}"
        );
        assert_eq!(server.seen().len(), 3, "{refusal}: {:?}", server.seen());
    }
}

#[tokio::test]
async fn an_error_of_the_server_is_left_to_the_failure_policy_at_once() {
    for refusal in
        ["-OOM no memory", "-NOPERM no", "-READONLY replica", "-ERR no", "-WRONGTYPE no", "+OK", ":1"]
    {
        let server = Scripted::start(&[refusal]).await;
        let limiter = limiter_at(&server.url, failing(OnFailure::Closed)).await;
        let decision = limiter.authorize("acme", "search", 1).await.unwrap();
        assert_eq!(decision.source, Source::FailurePolicy, "{refusal}");
        assert_eq!(server.seen().len(), 1, "{refusal}: {:?}", server.seen());
    }
}

#[tokio::test]
async fn out_of_memory_is_left_to_the_failure_policy_and_passes() {
    let server = server();
    let limiter = limiter(&server, failing(OnFailure::Open)).await;
    let _: String = server.connection().ask("CONFIG SET maxmemory 1");
    assert_eq!(limiter.authorize("acme", "search", 1).await.unwrap().source, Source::FailurePolicy);
    let _: String = server.connection().ask("CONFIG SET maxmemory 0");
    assert_eq!(limiter.authorize("acme", "search", 1).await.unwrap().source, Source::Server);
}

#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_server_without_the_module_is_reported_once_and_then_the_policy_decides() {
    let captured = Captured::default();
    let writer = captured.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .finish();
    // For the whole program: with a subscriber for one thread, what another thread meets first may stay switched off.
    tracing::subscriber::set_global_default(subscriber).expect("no other test sets one");
    let server = Server::builder().tcp().without_module().start();
    let limiter = limiter_at(&url(&server), failing(OnFailure::Local)).await;
    for _ in 0..5 {
        assert_eq!(limiter.authorize("acme", "search", 1).await.unwrap().source, Source::FailurePolicy);
    }
    let text = String::from_utf8(captured.0.lock().unwrap().clone()).unwrap();
    let reports = text.matches("does not have the rate limit module").count();
    assert_eq!(reports, 1, "reported:\n{text}");
}
