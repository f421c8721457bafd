//! Rate limits for services over redis-token-bucket: tenants and their routes, tenants too big for one node, shared
//! downstreams, and what to do when Redis is away.
//!
//! [`Limiter::authorize`] decides about one request: it takes the cost from the tenant's bucket and from the bucket of the
//! tenant on the route, both or neither, in one round trip to one node; then, if the policy has one, from the bucket of the
//! cell, the downstream that many tenants share.
//!
//! ```no_run
//! use redis_token_bucket_client::{Connection, Limiter, Policy};
//! use std::sync::Arc;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! // 1000 at once and 200 a second for a tenant in all, 50 at once and 20 a second on each route.
//! let policy = Arc::new(Policy::new("1000 burst, 200/s".parse()?, "50 burst, 20/s".parse()?));
//! let connection = Connection::single("redis://127.0.0.1:6379").await?;
//! let limiter = Limiter::new(connection, move |_tenant, _route| Arc::clone(&policy));
//!
//! let decision = limiter.authorize("acme", "search", 1).await?;
//! println!("{}: {:?}", decision.is_allowed(), decision.quota);
//! # Ok(())
//! # }
//! ```
//!
//! | module | what for |
//! |---|---|
//! | [`policy`], [`limit`] | what is allowed to whom |
//! | [`decision`], [`http`], `tower` (feature) | the answer, also as HTTP says it |
//! | [`log`] | decisions as JSON lines, for billing |
//! | [`keys`], [`command`], [`choice`] | the parts without I/O, for another client crate |
//!
//! # Metrics and events
//!
//! Every decision is counted through the `metrics` facade, and is a `tracing` event at debug level; failures of Redis are
//! events at warn level, at most one a second, and a server without the module is one at error level, once.
//!
//! | counter | counts | labels |
//! |---|---|---|
//! | `rate_limit.allow` | decisions to allow | tenant, route, reason: `within_limit`, `soft`, `unavailable` (by the failure policy) |
//! | `rate_limit.deny` | decisions to deny, also those that shadow mode lets through | tenant, route, reason: `tenant_limit`, `route_limit`, `cell_limit`, `unavailable` |
//! | `rate_limit.unavailable` | times that Redis did not answer | tenant, route, reason: `timeout`, `connection`, `server_error`, `no_module` |
//! | `rate_limit.log_dropped` | lines that the decision log lost | |

mod ask;
mod connection;
mod fallback;
mod known;
mod limiter;
mod meter;
mod reply;
mod settle;
mod target;

pub mod choice;
pub mod command;
pub mod decision;
pub mod http;
pub mod keys;
pub mod limit;
pub mod log;
pub mod policy;
#[cfg(feature = "tower")]
pub mod tower;

pub use connection::Connection;
pub use decision::Decision;
pub use limit::Limit;
pub use limiter::{Error, Limiter};
pub use policy::Policy;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
