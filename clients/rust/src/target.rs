//! One of the buckets of a request: its keys and memory with the limit that the policy gives it.

use std::time::Duration;

use redis_token_bucket_core as core;
use redis_token_bucket_core::{Outcome, Tokens};

use crate::command::{Bucket, BucketReply};
use crate::decision::{Quota, Retry, Scope, Source, retry};
use crate::known::Known;
use crate::limit::{Limit, Shard};

/// A bucket with its limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) scope: Scope,
    pub(crate) known: &'a Known,
    pub(crate) limit: &'a Limit,
}

/// A bucket that said no.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Denied {
    pub(crate) retry: Retry,
    pub(crate) quota: Quota,
    pub(crate) source: Source,
}

/// A shard that said no before, and still does. Small, because most decisions from the denial cache look at several and
/// answer with one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held<'a> {
    target: Target<'a>,
    index: u32,
    pub(crate) retry_ms: u64,
    /// Tokens that are believed to be there.
    believed: f64,
}

impl Held<'_> {
    /// The same as an answer.
    pub(crate) fn denied(&self) -> Denied {
        let shard = self.target.shard(self.index);
        let missing = shard.tokens() - self.believed;
        let reply = BucketReply {
            outcome: Outcome::RetryAfter(self.retry_ms),
            remaining: self.believed as u64,
            reset_after_ms: (missing / shard.per_ms()).ceil() as u64,
        };
        let retry = Retry::After(Duration::from_millis(self.retry_ms));
        Denied { retry, quota: self.target.quota(self.index, &reply), source: Source::DenialCache }
    }
}

impl<'a> Target<'a> {
    pub(crate) fn shard(&self, index: u32) -> Shard<'a> {
        self.limit.part(index, self.known.shards())
    }

    pub(crate) fn bucket(&self, index: u32) -> Bucket<'a> {
        Bucket { key: self.known.key(index), shard: self.shard(index) }
    }

    pub(crate) fn fullness(&self, index: u32, now: u64) -> f64 {
        self.known.fullness(index, self.shard(index), now)
    }

    pub(crate) fn saw(&self, index: u32, cost: u64, reply: &BucketReply, now: u64) {
        self.known.saw(index, self.shard(index), cost, reply, now);
    }

    pub(crate) fn quota(&self, index: u32, reply: &BucketReply) -> Quota {
        Quota::new(self.scope, self.limit, self.shard(index), self.known.shards(), reply)
    }

    /// The denial that a reply of the server is, if it is one.
    pub(crate) fn denied(&self, index: u32, reply: &BucketReply) -> Option<Denied> {
        let retry = retry(reply.outcome)?;
        Some(Denied { retry, quota: self.quota(index, reply), source: Source::Server })
    }

    /// The denial that an earlier reply of the server is, if it still holds.
    #[inline]
    pub(crate) fn held(&self, index: u32, cost: u64, now: u64) -> Option<Held<'a>> {
        let (retry_ms, believed) = self.known.denied(index, self.shard(index), cost, now)?;
        Some(Held { target: *self, index, retry_ms, believed })
    }

    /// What the bucket in this process holds, with the whole limit. `stored` is what [`Known::local`] keeps.
    pub(crate) fn local_level(&self, stored: Option<core::Bucket>, now: u64) -> core::Level<'a> {
        self.limit.exact().level(stored, now)
    }

    /// What the bucket in this process says to a cost: how it would stand after it, or why not.
    pub(crate) fn ask_local(&self, level: core::Level, cost: u64) -> Result<Quota, Denied> {
        let tokens = Tokens::from_nanos(i128::from(cost) * Tokens::ONE.nanos());
        let (decision, _) = level.take(tokens);
        let reply = BucketReply {
            outcome: decision.outcome,
            remaining: decision.remaining,
            reset_after_ms: decision.reset_after_ms,
        };
        let quota = Quota::new(self.scope, self.limit, self.limit.part(0, 1), 1, &reply);
        match retry(decision.outcome) {
            None => Ok(quota),
            Some(retry) => Err(Denied { retry, quota, source: Source::FailurePolicy }),
        }
    }
}

/// Of two denials by buckets that must both allow, the one that lasts longer.
pub(crate) fn longer(one: Option<Denied>, other: Option<Denied>) -> Option<Denied> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other.retry > one.retry { other } else { one }),
        (one, other) => one.or(other),
    }
}

/// Of two denials by shards of which one must allow, the one that is over sooner.
pub(crate) fn sooner(one: Option<Denied>, other: Denied) -> Denied {
    match one {
        Some(one) if one.retry <= other.retry => one,
        _ => other,
    }
}
