//! Decisions against one real server.

mod fixture;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fixture::{balance, limiter, policy, server, url};
use harness::Ask;
use redis_token_bucket_client::decision::{Reason, Retry, Scope, Source, Verdict};
use redis_token_bucket_client::policy::Cell;
use redis_token_bucket_client::{Connection, Error, Limiter, Policy};

/// Limits that refill so slowly that no test sees a token come.
const SLOW: &str = "10 burst, 1/d";

fn cell(limit: &str, shards: u32) -> Option<Cell> {
    Some(Cell { name: "db".to_owned(), limit: limit.parse().unwrap(), shards })
}

#[tokio::test]
async fn authorize_takes_from_the_tenant_and_from_the_route() {
    let server = server();
    let limiter = limiter(&server, policy("100 burst, 1/d", SLOW)).await;
    let decision = limiter.authorize("acme", "search", 3).await.unwrap();
    assert_eq!((decision.verdict, decision.source), (Verdict::Allowed, Source::Server));
    let quota = decision.quota.expect("the server told how the buckets stand");
    assert_eq!((quota.scope, quota.capacity, quota.remaining), (Scope::Route, 10, 7));
    limiter.authorize("acme", "upload", 4).await.unwrap();
    assert_eq!(balance(&server, "{acme}:rl:_tenant:0"), Some(93), "both routes count");
    assert_eq!(balance(&server, "{acme}:rl:search:0"), Some(7));
    assert_eq!(balance(&server, "{acme}:rl:upload:0"), Some(6));
}

#[tokio::test]
async fn a_denial_by_one_bucket_takes_nothing_from_the_other() {
    let server = server();
    let limiter = limiter(&server, policy("12 burst, 1/d", SLOW)).await;
    let reason = |decision: redis_token_bucket_client::Decision| decision.reason();
    assert_eq!(reason(limiter.authorize("acme", "search", 8).await.unwrap()), None);
    assert_eq!(reason(limiter.authorize("acme", "search", 3).await.unwrap()), Some(Reason::RouteLimit));
    assert_eq!(balance(&server, "{acme}:rl:_tenant:0"), Some(4), "after the route denied");
    assert_eq!(reason(limiter.authorize("acme", "upload", 5).await.unwrap()), Some(Reason::TenantLimit));
    assert_eq!(balance(&server, "{acme}:rl:upload:0"), None, "after the tenant-wide bucket denied");
    assert_eq!(
        reason(limiter.authorize("acme", "upload", 4).await.unwrap()),
        None,
        "what is left can be taken"
    );
}

#[tokio::test]
async fn a_denial_says_when_to_retry_or_that_it_never_will_succeed() {
    let server = server();
    let limiter = limiter(&server, policy("100 burst, 1/s", "5 burst, 1/s")).await;
    assert!(limiter.authorize("acme", "search", 5).await.unwrap().is_allowed());
    let wait = limiter.authorize("acme", "search", 4).await.unwrap().retry_after().expect("a wait");
    assert!(wait <= Duration::from_secs(4) && wait > Duration::from_secs(2), "{wait:?} for 4 tokens at 1/s");
    let never = limiter.authorize("acme", "search", 6).await.unwrap();
    assert_eq!(never.verdict, Verdict::Denied { reason: Reason::RouteLimit, retry: Retry::Never });
}

#[tokio::test]
async fn a_bucket_that_denied_is_not_asked_again() {
    let server = server();
    let limiter = limiter(&server, policy("100 burst, 1/d", "2 burst, 1/d")).await;
    limiter.authorize("acme", "search", 2).await.unwrap();
    let denied = limiter.authorize("acme", "search", 1).await.unwrap();
    assert_eq!((denied.reason(), denied.source), (Some(Reason::RouteLimit), Source::Server));
    let calls = server.command_stats("rl.takeall").0;
    for _ in 0..20 {
        let again = limiter.authorize("acme", "search", 1).await.unwrap();
        assert_eq!((again.reason(), again.source), (Some(Reason::RouteLimit), Source::DenialCache));
        assert!(again.retry_after() <= denied.retry_after(), "{again:?} after {denied:?}");
    }
    assert_eq!(server.command_stats("rl.takeall").0, calls, "the server was asked");
    let other = limiter.authorize("acme", "upload", 1).await.unwrap();
    assert_eq!((other.is_allowed(), other.source), (true, Source::Server), "another route of the tenant");
}

#[tokio::test]
async fn a_bucket_that_denied_is_asked_as_soon_as_its_retry_after_has_passed() {
    let server = server();
    let limiter = limiter(&server, policy("100 burst, 1/d", "2 burst, 4/s")).await;
    limiter.authorize("acme", "search", 2).await.unwrap();
    let wait =
        limiter.authorize("acme", "search", 1).await.unwrap().retry_after().expect("a denial that passes");
    // As a client would: this wait is what the answer promised.
    tokio::time::sleep(wait).await;
    let after = limiter.authorize("acme", "search", 1).await.unwrap();
    assert_eq!((after.verdict, after.source), (Verdict::Allowed, Source::Server), "after {wait:?}");
}

#[tokio::test]
async fn without_the_denial_cache_every_request_asks_the_server() {
    let server = server();
    let limiter = limiter(&server, Policy { denial_cache: false, ..policy(SLOW, SLOW) }).await;
    for _ in 0..15 {
        assert_eq!(limiter.authorize("acme", "search", 1).await.unwrap().source, Source::Server);
    }
    assert_eq!(server.command_stats("rl.takeall").0, 15);
}

#[tokio::test]
async fn soft_is_set_when_less_than_the_soft_limit_remains() {
    let server = server();
    let limiter = limiter(&server, Policy { soft_limit: 7, ..policy("9 burst, 1/d", SLOW) }).await;
    let first = limiter.authorize("acme", "search", 2).await.unwrap();
    assert!(!first.soft, "7 of 9 remain: {first:?}");
    let second = limiter.authorize("acme", "search", 1).await.unwrap();
    assert!(second.soft && second.is_allowed(), "6 of 9 remain: {second:?}");
}

#[tokio::test]
async fn a_cell_denial_returns_the_tokens_of_tenant_and_route() {
    let server = server();
    let limiter = limiter(&server, Policy { cell: cell("3 burst, 1/d", 1), ..policy(SLOW, SLOW) }).await;
    assert!(limiter.authorize("acme", "search", 2).await.unwrap().is_allowed());
    let denied = limiter.authorize("acme", "search", 2).await.unwrap();
    assert_eq!((denied.reason(), denied.source), (Some(Reason::CellLimit), Source::Server));
    assert_eq!(denied.quota.map(|quota| quota.scope), Some(Scope::Cell));
    let tenant = balance(&server, "{acme}:rl:_tenant:0");
    assert_eq!(tenant, Some(8), "the tenant-wide bucket after the cell denied");
    assert_eq!(balance(&server, "{acme}:rl:search:0"), Some(8), "the route's bucket");
    let other = limiter.authorize("emca", "search", 1).await.unwrap();
    assert!(other.is_allowed(), "the cell has one token left for anyone: {other:?}");
}

#[tokio::test]
async fn a_cell_known_to_deny_takes_nothing_from_the_tenant() {
    let server = server();
    let limiter = limiter(&server, Policy { cell: cell("4 burst, 1/d", 2), ..policy(SLOW, SLOW) }).await;
    for _ in 0..4 {
        assert!(limiter.authorize("acme", "search", 1).await.unwrap().is_allowed());
    }
    assert_eq!(limiter.authorize("acme", "search", 1).await.unwrap().source, Source::Server);
    let calls = server.command_stats("rl.takeall").0;
    let denied = limiter.authorize("acme", "search", 1).await.unwrap();
    assert_eq!((denied.reason(), denied.source), (Some(Reason::CellLimit), Source::DenialCache));
    assert_eq!(server.command_stats("rl.takeall").0, calls, "the tenant's buckets were asked all the same");
}

#[tokio::test]
async fn shadow_mode_decides_and_lets_pass() {
    let server = server();
    let limiter = limiter(&server, Policy { shadow: true, ..policy(SLOW, SLOW) }).await;
    limiter.authorize("acme", "search", 10).await.unwrap();
    let decision = limiter.authorize("acme", "search", 1).await.unwrap();
    assert!(decision.is_allowed() && decision.shadow);
    assert!(decision.reason().is_some(), "what would have been decided is told: {decision:?}");
}

#[tokio::test]
async fn peek_answers_as_authorize_would_and_takes_nothing() {
    let server = server();
    let limiter = limiter(&server, Policy { cell: cell(SLOW, 1), ..policy("100 burst, 1/d", SLOW) }).await;
    assert!(limiter.peek("acme", "search", 10).await.unwrap().is_allowed());
    let keys: Vec<String> = server.connection().ask("KEYS *");
    assert_eq!(keys, [""; 0], "a peek made keys");
    limiter.authorize("acme", "search", 7).await.unwrap();
    assert_eq!(limiter.peek("acme", "search", 4).await.unwrap().reason(), Some(Reason::RouteLimit));
    assert!(limiter.peek("acme", "search", 3).await.unwrap().is_allowed());
    assert_eq!(balance(&server, "{acme}:rl:search:0"), Some(3));
}

#[tokio::test]
async fn give_and_charge_reach_every_bucket_of_a_request() {
    let server = server();
    let limiter = limiter(&server, Policy { cell: cell(SLOW, 1), ..policy("20 burst, 1/d", SLOW) }).await;
    let quota = limiter.charge("acme", "search", 12).await.unwrap();
    assert_eq!((quota.scope, quota.remaining), (Scope::Route, 0), "12 of 10 were charged");
    let cell_key = redis_token_bucket_client::keys::CellKeys::new("db", 1).unwrap().key(0);
    for (key, tokens) in [("{acme}:rl:_tenant:0", 8), ("{acme}:rl:search:0", -2), (&cell_key, -2)] {
        assert_eq!(balance(&server, key), Some(tokens), "{key} after the charge");
    }
    limiter.give("acme", "search", 5).await.unwrap();
    for (key, tokens) in [("{acme}:rl:_tenant:0", 13), ("{acme}:rl:search:0", 3), (&cell_key, 3)] {
        assert_eq!(balance(&server, key), Some(tokens), "{key} after the gift");
    }
    limiter.give("acme", "search", 100).await.unwrap();
    assert_eq!(balance(&server, "{acme}:rl:search:0"), Some(10), "never above capacity");
}

#[tokio::test]
async fn a_gift_ends_a_denial_that_was_remembered() {
    let server = server();
    let limiter = limiter(&server, policy(SLOW, SLOW)).await;
    limiter.authorize("acme", "search", 10).await.unwrap();
    assert!(!limiter.authorize("acme", "search", 1).await.unwrap().is_allowed());
    limiter.give("acme", "search", 2).await.unwrap();
    let decision = limiter.authorize("acme", "search", 1).await.unwrap();
    assert!(decision.is_allowed(), "{decision:?}");
}

#[tokio::test]
async fn limits_change_while_the_service_runs() {
    let server = server();
    let current = Arc::new(Mutex::new(Arc::new(policy("1000 burst, 1/d", SLOW))));
    let seen_by_limiter = Arc::clone(&current);
    let connection = Connection::single(&url(&server)).await.unwrap();
    let limiter = Limiter::new(connection, move |_, _| Arc::clone(&seen_by_limiter.lock().unwrap()));
    limiter.authorize("acme", "search", 10).await.unwrap();
    assert!(!limiter.authorize("acme", "search", 1).await.unwrap().is_allowed());
    // The balance stays, so a higher capacity alone gives nothing; a higher rate does.
    *current.lock().unwrap() = Arc::new(policy("1000 burst, 1/d", "500 burst, 9007199254740991/s"));
    let decision = limiter.authorize("acme", "search", 400).await.unwrap();
    assert!(decision.is_allowed(), "under the new limit: {decision:?}");
}

#[tokio::test]
async fn a_request_that_can_never_be_decided_is_an_error_and_not_a_denial() {
    let server = server();
    let limiter = limiter(&server, Policy { shards: 4, ..policy("40 burst, 1/s", "10 burst, 1/s") }).await;
    let error =
        async |tenant, route, cost| limiter.authorize(tenant, route, cost).await.unwrap_err().to_string();
    assert_eq!(error("", "search", 1).await, "tenant must not be empty");
    assert_eq!(error("acme", "", 1).await, "route must not be empty");
    assert_eq!(error("acme", "search", 4).await, "cost 4 is above the capacity of each of 4 shards");
    let huge = limiter.authorize("acme", "search", u64::MAX).await.unwrap_err();
    assert_eq!(huge, Error::Cost(u64::MAX));
    let three = fixture::limiter(&server, Policy { shards: 4, ..policy(SLOW, "3 burst, 1/s") }).await;
    let error = three.authorize("acme", "search", 1).await.unwrap_err().to_string();
    assert_eq!(error, "capacity is less than one whole token for each of 4 shards");
}

#[tokio::test]
async fn the_shards_of_a_tenant_grant_the_limit_and_no_more() {
    let server = server();
    let policy = Policy { shards: 4, denial_cache: false, ..policy("1000 burst, 1/d", "103 burst, 1/d") };
    let limiter = limiter(&server, policy).await;
    let mut allowed = 0;
    // Two shards are asked per call: each of the four is found out to be empty well within this many.
    for _ in 0..400 {
        let decision = limiter.authorize("mega", "search", 1).await.unwrap();
        let quota = decision.quota.expect("a quota");
        assert!(quota.remaining <= 103, "an estimate above the capacity: {quota:?}");
        allowed += u32::from(decision.is_allowed());
    }
    assert_eq!(allowed, 103);
    let keys: Vec<String> = server.connection().ask("KEYS *search*");
    assert_eq!(keys.len(), 4, "{keys:?}");
}
