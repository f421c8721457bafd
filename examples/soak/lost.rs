//! How many tokens of a bucket were lost with its master: granted, known to the caller, and not on the replica.
//!
//! Replication is one stream in the master's order, so a replica has a beginning of it. When its link breaks
//! after the kill, and before it is promoted, it has applied all that it ever got; its bucket then holds T
//! tokens at S ms, as written by the last take that survived. The lost takes came after that one. A take is
//! counted as lost unless it is proven to have come no later:
//!
//! - it ended before the millisecond S began; or
//! - it left more tokens than any take after the last survivor can have left: T + refill from S to its end -
//!   its own cost.
//!
//! So this is an upper bound, and the exact number where calls are so quick that nothing refills meanwhile.
//! That the bound of a bucket holds with it is checked apart, in `bound.rs`; and `ledger.rs` measures exactly,
//! on other buckets, what the same kill lost.

use crate::buckets::Bucket;
use crate::history::{Failover, History, Survivor};

/// Tokens lost, at most.
pub(crate) fn at_most(history: &History, failover: &Failover, bucket: &Bucket, survivor: &Survivor) -> u64 {
    let since = survivor.ts * 1000;
    let previous = history
        .failovers
        .iter()
        .filter(|other| other.shard == failover.shard && other.start < failover.start)
        .map(|other| other.start)
        .max();
    let lost = history.calls.iter().filter_map(|call| {
        let part = call.part(survivor.bucket)?;
        let before_the_kill =
            call.start <= failover.down && previous.is_none_or(|previous| call.start > previous);
        if !call.is_grant() || !before_the_kill || call.end < since {
            return None;
        }
        let refill =
            (call.end - since) as f64 / 1e6 * bucket.limit.tokens as f64 / bucket.limit.seconds as f64;
        let left_if_lost = (survivor.tokens + refill).min(bucket.limit.capacity as f64) - part.cost as f64;
        // The margin is for the float, far above its error and far below a nanotoken's meaning here.
        let survived = part.reply.is_some_and(|reply| reply[1] as f64 > left_if_lost + 1e-6);
        (!survived).then_some(part.cost)
    });
    lost.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Call;
    use crate::made_up::{bucket, grant, kill};

    fn left(start: u64, remaining: i64) -> Call {
        let mut call = grant(start, start + 200, 1);
        call.parts[0].reply = Some([1, remaining, 0, 0]);
        call
    }

    fn lost(tokens: f64, ts: u64) -> u64 {
        // A bucket of 5 with 10 a second; takes at 1.0, 1.3, 1.6 and 3.1 ms, the kill at 4 ms.
        let calls = vec![left(1000, 4), left(1300, 3), left(1600, 2), left(3100, 1)];
        let history = History::new(calls, vec![kill(4000, 9000)]);
        at_most(&history, &history.failovers[0], &bucket(5, 10), &Survivor { bucket: 0, tokens, ts })
    }

    #[test]
    fn nothing_is_lost_if_the_replica_has_the_last_take() {
        assert_eq!(lost(1.02, 3), 0);
    }

    #[test]
    fn takes_after_the_last_survivor_are_lost_also_within_its_millisecond() {
        assert_eq!(lost(2.0, 1), 1);
        assert_eq!(lost(3.0, 1), 2);
        assert_eq!(lost(4.0, 1), 3);
    }

    #[test]
    fn takes_of_a_former_master_are_not_lost_again() {
        let calls = vec![left(1000, 4), left(9500, 3)];
        let history = History::new(calls, vec![kill(4000, 9000), kill(9800, 12_000)]);
        let survivor = Survivor { bucket: 0, tokens: 4.0, ts: 0 };
        assert_eq!(at_most(&history, &history.failovers[1], &bucket(5, 10), &survivor), 1);
    }
}
