//! What is allowed to whom, and what happens when Redis is away.
//!
//! A policy is looked up for every call by a function of the caller, so that limits can change at run time. It comes from
//! code or, through serde, from a config file:
//!
//! ```
//! use redis_token_bucket_client::policy::{OnFailure, Policy};
//!
//! let policy: Policy = serde_json::from_str(r#"{
//!     "tenant": "1000 burst, 200/s",
//!     "route": "50 burst, 20/s",
//!     "soft_limit": 10,
//!     "on_failure": "local"
//! }"#)?;
//! assert_eq!(policy.route.time_to_fill().as_millis(), 2500);
//! assert_eq!((policy.on_failure, policy.timeout.as_millis()), (OnFailure::Local, 50));
//! # Ok::<(), serde_json::Error>(())
//! ```

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::limit::Limit;

/// The limits of one tenant on one route, and how to decide on them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// The limit of the tenant over all its routes. Give every route of a tenant the same one: they share the bucket, and
    /// the limit of the latest call counts.
    pub tenant: Limit,
    /// The limit of the tenant on this route.
    pub route: Limit,
    /// The limit of a downstream that many tenants share; none by default. In a config file: `{"name": ..., "limit": ...}`.
    #[serde(default)]
    pub cell: Option<Cell>,
    /// An allowed decision is marked `soft` when fewer whole tokens than this remain in the tenant-wide or the route
    /// bucket. 0, the default, marks none.
    #[serde(default)]
    pub soft_limit: u64,
    /// How many shards the tenant's buckets are cut into: 1, the default, for all but a tenant too big for one node; from 1
    /// to 16384, and no more than the whole tokens of either capacity. Changing it starts from full buckets.
    #[serde(default = "one")]
    pub shards: u32,
    /// How long to wait for Redis, all round trips of a decision together: 50 ms by default, and at most 500 ms. In a
    /// config file: `timeout_ms`, whole milliseconds.
    #[serde(default = "default_timeout", rename = "timeout_ms", with = "milliseconds")]
    pub timeout: Duration,
    /// What to answer when Redis does not; open by default.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// Decide and count as always, but allow every request: to see what new limits would deny. Off by default.
    #[serde(default)]
    pub shadow: bool,
    /// Whether a bucket that denied is left alone until its retry after has passed, and further requests are denied without
    /// a round trip; on by default. Tokens that another process gives back in the meantime are then not seen.
    #[serde(default = "yes")]
    pub denial_cache: bool,
}

/// The limit of a downstream that many tenants share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// Which downstream; any text but the empty one.
    pub name: String,
    /// What it bears in all, from all tenants.
    pub limit: Limit,
    /// How many shards its bucket is cut into, like [`Policy::shards`]; 1 by default.
    #[serde(default = "one")]
    pub shards: u32,
}

/// What to answer when Redis cannot within the timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// Allow every request.
    #[default]
    Open,
    /// Deny every request.
    Closed,
    /// Decide by buckets in this process, with the same limits. They start full when Redis first fails, and n processes
    /// together allow up to n times the limit.
    Local,
}

impl Policy {
    /// A policy of these two limits, and the defaults for all else.
    pub fn new(tenant: Limit, route: Limit) -> Policy {
        Policy {
            tenant,
            route,
            cell: None,
            soft_limit: 0,
            shards: one(),
            timeout: default_timeout(),
            on_failure: OnFailure::default(),
            shadow: false,
            denial_cache: yes(),
        }
    }
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

fn default_timeout() -> Duration {
    Duration::from_millis(50)
}

mod milliseconds {
    use super::*;

    pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_in_a_file_has_the_defaults_of_one_in_code() {
        let file: Policy =
            serde_json::from_str(r#"{"tenant": "100 burst, 10/s", "route": "50 burst, 20/s"}"#).unwrap();
        let code = Policy::new("100 burst, 10/s".parse().unwrap(), "50 burst, 20/s".parse().unwrap());
        assert_eq!(file, code);
        let again: Policy = serde_json::from_str(&serde_json::to_string(&code).unwrap()).unwrap();
        assert_eq!(again, code, "written and read again");
    }

    #[test]
    fn a_misspelt_field_is_refused() {
        let error = serde_json::from_str::<Policy>(
            r#"{"tenant": "100 burst, 10/s", "route": "50 burst, 20/s", "time_out": 5}"#,
        );
        assert!(error.unwrap_err().to_string().contains("time_out"), "the error names the field");
    }
}
