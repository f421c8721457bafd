//! All checks on a history, by what it is about.

use std::collections::BTreeMap;

use crate::buckets::{Buckets, Use};
use crate::history::{History, Violation};
use crate::{bound, ledger, lost, replies};

/// What one kill lost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Loss {
    /// Tokens granted from the buckets that clients take from; at most.
    pub(crate) tokens: u64,
    /// The most of one bucket.
    pub(crate) most: u64,
    /// Operations on ledgers; exact.
    pub(crate) operations: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) violations: Vec<Violation>,
    /// By position of the failover.
    pub(crate) losses: BTreeMap<usize, Loss>,
    /// Key, tokens granted, tokens that could still have been granted in the interval with the least room.
    pub(crate) rooms: Vec<(String, bound::Room)>,
    /// Buckets that granted more than capacity + rate * t in some interval, by no more than was lost.
    pub(crate) beyond: usize,
    pub(crate) replies: u64,
    pub(crate) denials: u64,
    pub(crate) operations: u64,
}

pub(crate) fn judge(history: &History, buckets: &Buckets) -> Verdict {
    let mut verdict = Verdict::default();
    match replies::check_ranges(history, &buckets.all) {
        Ok(checked) => verdict.replies = checked,
        Err(violation) => verdict.violations.push(violation),
    }
    for (position, bucket) in buckets.all.iter().enumerate() {
        if bucket.purpose == Use::Ledger {
            match ledger::check(history, position, bucket) {
                Ok(ledger) => {
                    verdict.operations += ledger.acknowledged;
                    for (failover, operations) in ledger.lost {
                        verdict.losses.entry(failover).or_default().operations += operations;
                    }
                }
                Err(violation) => verdict.violations.push(violation),
            }
            continue;
        }
        let mut losses = Vec::new();
        for (index, kill) in history.kills(bucket.shard) {
            let survivor = kill.survivors.iter().find(|survivor| survivor.bucket == position);
            let survivor = survivor.expect("every bucket of the shard was read");
            let tokens = lost::at_most(history, kill, bucket, survivor);
            let loss = verdict.losses.entry(index).or_default();
            loss.tokens += tokens;
            loss.most = loss.most.max(tokens);
            losses.push((index, tokens));
        }
        match bound::check(history, position, bucket, &losses) {
            Ok(room) => {
                verdict.rooms.push((bucket.key.clone(), room));
                verdict.beyond += usize::from(bound::check(history, position, bucket, &[]).is_err());
            }
            Err(violation) => verdict.violations.push(violation),
        }
        match replies::check_denials(history, position, bucket) {
            Ok(tested) => verdict.denials += tested,
            Err(violation) => verdict.violations.push(violation),
        }
    }
    verdict
}
