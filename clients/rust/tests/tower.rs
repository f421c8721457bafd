//! The tower layer in an axum service, over real HTTP.

mod fixture;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Extension, Request};
use axum::routing::get;
use fixture::{limiter, policy, server};
use redis_token_bucket_client::policy::OnFailure;
use redis_token_bucket_client::tower::{Ask, RateLimitLayer};
use redis_token_bucket_client::{Connection, Decision, Limiter, Policy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Serves `/search` and `/soft`, each request for the tenant in `x-tenant`; without one it is not limited.
async fn serve(limiter: Limiter) -> SocketAddr {
    let layer = RateLimitLayer::new(Arc::new(limiter), |request: &Request| {
        let header = |name| Some(request.headers().get(name)?.to_str().ok()?.to_owned());
        let cost = header("x-cost").map_or(1, |cost| cost.parse().expect("a number"));
        Some(Ask { tenant: header("x-tenant")?, route: request.uri().path().to_owned(), cost })
    });
    let soft = async |Extension(decision): Extension<Decision>| format!("soft: {}", decision.soft);
    let app = Router::new().route("/search", get(async || "found")).route("/soft", get(soft)).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// The response as text: status line, fields and body.
async fn get_text(address: SocketAddr, path: &str, fields: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response
}

#[tokio::test]
async fn requests_within_the_limit_are_served_and_told_what_remains() {
    let server = server();
    let address = serve(limiter(&server, policy("100 burst, 1/m", "2 burst, 1/m")).await).await;
    let response = get_text(address, "/search", "x-tenant: acme\r\n").await;
    assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with("found"), "{response}");
    assert!(response.contains("\r\nratelimit-policy: \"route\";q=2;w=120\r\n"), "{response}");
    assert!(response.contains("\r\nratelimit: \"route\";r=1;t=60\r\n"), "{response}");
}

#[tokio::test]
async fn requests_over_the_limit_get_429_and_when_to_retry() {
    let server = server();
    let address = serve(limiter(&server, policy("100 burst, 1/m", "2 burst, 1/m")).await).await;
    for _ in 0..2 {
        get_text(address, "/search", "x-tenant: acme\r\n").await;
    }
    let response = get_text(address, "/search", "x-tenant: acme\r\n").await;
    assert!(response.starts_with("HTTP/1.1 429 ") && !response.contains("found"), "{response}");
    assert!(response.contains("\r\nretry-after: 60\r\n"), "{response}");
    assert!(response.contains("\r\nratelimit: \"route\";r=0;t=60\r\n"), "{response}");
    let other = get_text(address, "/search", "x-tenant: emca\r\n").await;
    assert!(other.starts_with("HTTP/1.1 200 "), "another tenant: {other}");
}

#[tokio::test]
async fn a_cost_above_the_capacity_is_not_told_to_retry() {
    let server = server();
    let address = serve(limiter(&server, policy("100 burst, 1/m", "2 burst, 1/m")).await).await;
    let response = get_text(address, "/search", "x-tenant: acme\r\nx-cost: 3\r\n").await;
    assert!(response.starts_with("HTTP/1.1 429 ") && !response.contains("retry-after"), "{response}");
}

#[tokio::test]
async fn requests_that_are_not_asked_about_pass_and_the_handler_sees_the_decision_of_others() {
    let server = server();
    let soft = Policy { soft_limit: 100, ..policy("100 burst, 1/m", "2 burst, 1/m") };
    let address = serve(limiter(&server, soft).await).await;
    let response = get_text(address, "/search", "").await;
    assert!(response.starts_with("HTTP/1.1 200 ") && !response.contains("ratelimit"), "{response}");
    let response = get_text(address, "/soft", "x-tenant: acme\r\n").await;
    assert!(response.ends_with("soft: true"), "{response}");
}

#[tokio::test]
async fn a_closed_failure_policy_answers_503_and_a_request_that_cannot_be_decided_500() {
    let policy =
        Arc::new(Policy { on_failure: OnFailure::Closed, ..policy("100 burst, 1/m", "2 burst, 1/m") });
    let connection = Connection::single("redis://127.0.0.1:1").await.unwrap();
    let address = serve(Limiter::new(connection, move |_, _| Arc::clone(&policy))).await;
    let response = get_text(address, "/search", "x-tenant: acme\r\n").await;
    assert!(
        response.starts_with("HTTP/1.1 503 ") && response.contains("\r\nretry-after: 1\r\n"),
        "{response}"
    );
    let response = get_text(address, "/search", "x-tenant: \r\n").await;
    assert!(response.starts_with("HTTP/1.1 500 "), "an empty tenant: {response}");
}
