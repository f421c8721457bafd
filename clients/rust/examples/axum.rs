//! An HTTP service with rate limits on 127.0.0.1:3000, over the server at `REDIS_URL` (default: redis://127.0.0.1:6379):
//! `cargo run -p redis-token-bucket-client --features tower --example axum`, then
//! `for i in 1 2 3 4 5 6 7; do curl -si -H 'x-tenant: acme' localhost:3000/search | head -5; done`.

use std::env;
use std::error::Error;
use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request};
use axum::routing::get;
use redis_token_bucket_client::tower::{Ask, RateLimitLayer};
use redis_token_bucket_client::{Connection, Limiter, Policy};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let listen = env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());

    let policy = Arc::new(Policy::new("1000 burst, 200/s".parse()?, "5 burst, 2/s".parse()?));
    let connection = Connection::single(&url).await?;
    let limiter = Arc::new(Limiter::new(connection, move |_tenant, _route| Arc::clone(&policy)));

    // A real service takes the tenant from what the client has proved to be, such as its API key.
    let limit = RateLimitLayer::new(limiter, |request: &Request| {
        let tenant = request.headers().get("x-tenant")?.to_str().ok()?.to_owned();
        let route = request.extensions().get::<MatchedPath>()?.as_str().to_owned();
        Some(Ask { tenant, route, cost: 1 })
    });
    // A `route_layer`, so that the route is known when the limiter is asked, and unknown paths are not limited.
    let app = Router::new().route("/search", get(async || "found\n")).route_layer(limit);

    let listener = tokio::net::TcpListener::bind(&listen).await?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
