//! Decides about a few requests against the server at `REDIS_URL` (default: redis://127.0.0.1:6379), which has the module
//! loaded: `cargo run -p redis-token-bucket-client --example authorize`.

use std::env;
use std::error::Error;
use std::sync::Arc;

use redis_token_bucket_client::{Connection, Limiter, Policy};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());

    // Each tenant: 1000 requests at once and 200 a second in all, 5 at once and 2 a second on each route.
    let policy = Arc::new(Policy::new("1000 burst, 200/s".parse()?, "5 burst, 2/s".parse()?));
    let connection = Connection::single(&url).await?;
    let limiter = Limiter::new(connection, move |_tenant, _route| Arc::clone(&policy));

    for number in 1..=7 {
        let decision = limiter.authorize("acme", "search", 1).await?;
        match decision.retry_after() {
            Some(wait) => println!("request {number}: denied, try again in {} ms", wait.as_millis()),
            None if decision.is_allowed() => {
                let remaining = decision.quota.map_or(0, |quota| quota.remaining);
                println!("request {number}: allowed by {}, {remaining} left", decision.source.as_str());
            }
            None => println!("request {number}: denied for good"),
        }
    }
    Ok(())
}
