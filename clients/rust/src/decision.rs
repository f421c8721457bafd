//! The one answer to every request.

use std::time::Duration;

use redis_token_bucket_core::Outcome;

use crate::command::BucketReply;
use crate::limit::{Limit, Shard};

/// What was decided about one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// Allowed, or why not. In shadow mode this is what would have been decided; see [`Decision::is_allowed`].
    pub verdict: Verdict,
    /// The policy is in shadow mode: the request goes through whatever the verdict.
    pub shadow: bool,
    /// Allowed, with fewer whole tokens left than the policy's soft limit.
    pub soft: bool,
    /// Who decided.
    pub source: Source,
    /// The bucket that matters most: the one that denied, or of the tenant-wide and the route bucket the one with fewer
    /// tokens left. `None` if no bucket was looked at, because the failure policy is open or closed.
    pub quota: Option<Quota>,
}

impl Decision {
    /// Whether the request may go on.
    pub fn is_allowed(&self) -> bool {
        self.shadow || self.verdict == Verdict::Allowed
    }

    /// Why the verdict is a denial; `None` if it is not.
    pub fn reason(&self) -> Option<Reason> {
        match self.verdict {
            Verdict::Allowed => None,
            Verdict::Denied { reason, .. } => Some(reason),
        }
    }

    /// How long to wait before the same request can succeed; `None` if it is allowed or never will be.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.verdict {
            Verdict::Denied { retry: Retry::After(wait), .. } => Some(wait),
            _ => None,
        }
    }
}

/// Allowed or denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The cost was taken from all buckets.
    Allowed,
    /// Nothing was taken from any bucket, or it was given back.
    Denied {
        /// Which limit denied.
        reason: Reason,
        /// When to try again.
        retry: Retry,
    },
}

/// Which limit denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The tenant-wide bucket.
    TenantLimit,
    /// The bucket of the tenant on this route.
    RouteLimit,
    /// The bucket of the cell.
    CellLimit,
    /// No limit: Redis did not answer, and the failure policy is closed.
    Unavailable,
}

impl Reason {
    /// The word for it in metrics and logs: `tenant_limit`, `route_limit`, `cell_limit` or `unavailable`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::TenantLimit => "tenant_limit",
            Reason::RouteLimit => "route_limit",
            Reason::CellLimit => "cell_limit",
            Reason::Unavailable => "unavailable",
        }
    }
}

/// When a denied request can succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Retry {
    /// After this long, if nobody else takes.
    After(Duration),
    /// Never: the cost is above the capacity.
    Never,
}

/// Who decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Redis.
    Server,
    /// A denial that Redis gave to an earlier request and that still holds.
    DenialCache,
    /// Redis did not answer: the failure policy.
    FailurePolicy,
}

impl Source {
    /// The word for it in logs: `server`, `denial_cache` or `failure_policy`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Source::Server => "server",
            Source::DenialCache => "denial_cache",
            Source::FailurePolicy => "failure_policy",
        }
    }
}

/// Which of the three buckets of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The tenant-wide bucket.
    Tenant,
    /// The bucket of the tenant on the route.
    Route,
    /// The bucket of the cell.
    Cell,
}

impl Scope {
    /// The word for it in HTTP fields: `tenant`, `route` or `cell`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Scope::Tenant => "tenant",
            Scope::Route => "route",
            Scope::Cell => "cell",
        }
    }

    pub(crate) const fn reason(self) -> Reason {
        match self {
            Scope::Tenant => Reason::TenantLimit,
            Scope::Route => Reason::RouteLimit,
            Scope::Cell => Reason::CellLimit,
        }
    }
}

/// How a bucket stands after the decision. If it is cut into shards, all but the capacity is an estimate for the whole from
/// the shard that was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Which bucket.
    pub scope: Scope,
    /// Most whole tokens it holds.
    pub capacity: u64,
    /// Time from empty to full.
    pub time_to_fill: Duration,
    /// Whole tokens left, rounded down.
    pub remaining: u64,
    /// Time until one more whole token is there; `None` if it is full.
    pub more_after: Option<Duration>,
    /// Time until it is full.
    pub reset_after: Duration,
}

impl Quota {
    /// From the answer of a shard, one of `count`.
    pub(crate) fn new(
        scope: Scope,
        limit: &Limit,
        shard: Shard<'_>,
        count: u32,
        reply: &BucketReply,
    ) -> Quota {
        let capacity = limit.capacity().whole();
        let reset_after = Duration::from_millis(reply.reset_after_ms);
        // Counted back from full, which the server gave exactly: what will still be missing when the next token is there.
        let missing_then = shard.tokens() - (reply.remaining as f64 + 1.0);
        let ms_then = (missing_then.max(0.0) / shard.per_ms()).floor();
        let more_after = Duration::from_millis(reply.reset_after_ms.saturating_sub(ms_then as u64).max(1));
        Quota {
            scope,
            capacity,
            time_to_fill: limit.time_to_fill(),
            remaining: reply.remaining.saturating_mul(count.into()).min(capacity),
            more_after: (reply.reset_after_ms > 0).then_some(more_after),
            reset_after,
        }
    }
}

/// When a request can succeed that a bucket answered with `outcome`; `None` if it was allowed.
pub(crate) fn retry(outcome: Outcome) -> Option<Retry> {
    match outcome {
        Outcome::Allowed => None,
        Outcome::RetryAfter(ms) => Some(Retry::After(Duration::from_millis(ms))),
        Outcome::Never => Some(Retry::Never),
    }
}
