//! Histories for the tests of the checks.

use crate::buckets::{Bucket, Limit, Use};
use crate::history::{Call, Failover, How, Kind, Outcome, Part};

pub(crate) fn bucket(capacity: u64, tokens: u64) -> Bucket {
    let limit = Limit { capacity, tokens, seconds: 1 };
    Bucket { key: "b".to_owned(), shard: 0, purpose: Use::Shared, limit }
}

/// An allowed take from bucket 0.
pub(crate) fn grant(start: u64, end: u64, cost: u64) -> Call {
    let parts = vec![Part { bucket: 0, cost, reply: None }];
    Call { client: 0, kind: Kind::Take, asked: start, start, end, outcome: Outcome::Allowed, parts }
}

pub(crate) fn kill(start: u64, promoted: u64) -> Failover {
    Failover {
        shard: 0,
        how: How::Killed,
        start,
        down: start,
        promoted,
        settled: promoted,
        survivors: Vec::new(),
    }
}

pub(crate) fn planned(start: u64, promoted: u64) -> Failover {
    Failover { how: How::Planned, ..kill(start, promoted) }
}
