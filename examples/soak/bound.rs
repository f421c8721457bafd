//! Checks that no bucket grants more than capacity + rate * t + what was lost, over every interval that the
//! history can tell.
//!
//! Only takes that the caller knows to be allowed count as granted. One whose [start, end] lies within an
//! interval was executed within it; so for each pair of a start and an end, those between are summed and
//! compared. Among n takes there are n²/2 such pairs; a tree that keeps, for each start, the sum up to the
//! present end makes it n log n. All sums are exact: units of a token divided by a million and by the seconds
//! of the rate.
//!
//! A loss (`lost.rs`) is allowed for in those intervals alone that begin before the promotion and end after the
//! kill: what was lost was granted before the one and can be granted again only after the other.

use crate::buckets::Bucket;
use crate::history::{History, Violation};

/// What the tree holds for a stretch of starts: the largest value, and where.
#[derive(Clone, Copy)]
struct Node {
    most: (i64, usize),
    /// Added to all of the stretch, and not yet contained in those below.
    pending: i64,
}

/// Values by position; all up to a position can be raised, and the largest up to a position found, in log n.
struct Tree {
    nodes: Vec<Node>,
    leaves: usize,
}

impl Tree {
    fn new(values: &[i64]) -> Tree {
        let leaves = values.len().next_power_of_two();
        let mut nodes = vec![Node { most: (i64::MIN / 2, 0), pending: 0 }; 2 * leaves];
        for (index, &value) in values.iter().enumerate() {
            nodes[leaves + index].most = (value, index);
        }
        for node in (1..leaves).rev() {
            nodes[node].most = nodes[2 * node].most.max(nodes[2 * node + 1].most);
        }
        Tree { nodes, leaves }
    }

    /// Adds `amount` to the first `count` values.
    fn raise(&mut self, count: usize, amount: i64) {
        self.raise_in(1, self.leaves, count, amount);
    }

    fn raise_in(&mut self, node: usize, width: usize, count: usize, amount: i64) {
        if count == 0 {
            return;
        }
        if count >= width {
            self.nodes[node].most.0 += amount;
            self.nodes[node].pending += amount;
            return;
        }
        let half = width / 2;
        self.raise_in(2 * node, half, count.min(half), amount);
        self.raise_in(2 * node + 1, half, count.saturating_sub(half), amount);
        let below = self.nodes[2 * node].most.max(self.nodes[2 * node + 1].most);
        self.nodes[node].most = (below.0 + self.nodes[node].pending, below.1);
    }

    /// The largest of the first `count` values, at least one, and its position.
    fn most(&self, count: usize) -> (i64, usize) {
        self.most_in(1, self.leaves, count)
    }

    fn most_in(&self, node: usize, width: usize, count: usize) -> (i64, usize) {
        if count >= width {
            return self.nodes[node].most;
        }
        let half = width / 2;
        let mut most = self.most_in(2 * node, half, count.min(half));
        if count > half {
            most = most.max(self.most_in(2 * node + 1, half, count - half));
        }
        (most.0 + self.nodes[node].pending, most.1)
    }
}

/// How near a bucket came to its bound: in the interval with the least room left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Tokens granted in the whole run.
    pub(crate) granted: u64,
    /// Tokens that could still have been granted in that interval.
    pub(crate) least: f64,
}

/// `losses`: tokens lost with the master, by position of the failover.
///
/// # Errors
/// The first interval, by its end, with more than the bound.
pub(crate) fn check(
    history: &History,
    position: usize,
    bucket: &Bucket,
    losses: &[(usize, u64)],
) -> Result<Room, Violation> {
    // (time, first the losses, what)
    let mut events: Vec<(u64, bool, usize)> =
        losses.iter().map(|&(failover, _)| (history.failovers[failover].start, false, failover)).collect();
    let mut starts = Vec::new();
    for (index, call) in history.calls.iter().enumerate() {
        if call.is_grant() && call.part(position).is_some() {
            starts.push(call.start);
            events.push((call.end, true, index));
        }
    }
    events.sort_unstable();
    let Some(&first) = starts.first() else {
        return Ok(Room { granted: 0, least: bucket.limit.capacity as f64 });
    };
    let unit = 1_000_000 * bucket.limit.seconds as i64;
    let refill = |time: u64| (time - first) as i64 * bucket.limit.tokens as i64;
    let capacity = bucket.limit.capacity as i64 * unit;
    let values: Vec<i64> = starts.iter().map(|&start| refill(start)).collect();
    let mut tree = Tree::new(&values);
    let (mut granted, mut least) = (0, capacity);
    for (time, is_grant, index) in events {
        if !is_grant {
            let before = starts.partition_point(|&start| start <= history.failovers[index].promoted);
            let lost: u64 = losses.iter().filter(|loss| loss.0 == index).map(|loss| loss.1).sum();
            tree.raise(before, -(lost as i64 * unit));
            continue;
        }
        let call = &history.calls[index];
        let cost = call.part(position).expect("chosen so").cost;
        let until = starts.partition_point(|&start| start <= call.start);
        tree.raise(until, cost as i64 * unit);
        granted += cost;
        let (most, from) = tree.most(until);
        let room = capacity + refill(time) - most;
        least = least.min(room);
        if room < 0 {
            let within: Vec<usize> = (0..history.calls.len())
                .filter(|&index| {
                    let call = &history.calls[index];
                    call.is_grant()
                        && call.part(position).is_some()
                        && call.start >= starts[from]
                        && call.end <= time
                })
                .collect();
            let sum: u64 = within
                .iter()
                .map(|&index| history.calls[index].part(position).expect("chosen so").cost)
                .sum();
            let what = format!(
                "{} granted {sum} tokens in {:.6} s, {:.6} more than capacity {} + {} tokens per {} s \
                 and what was lost",
                bucket.key,
                (time - starts[from]) as f64 / 1e6,
                -room as f64 / unit as f64,
                bucket.limit.capacity,
                bucket.limit.tokens,
                bucket.limit.seconds,
            );
            return Err(Violation { what, calls: within });
        }
    }
    Ok(Room { granted, least: least as f64 / unit as f64 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::{bucket, grant, kill, planned};

    /// A bucket of 5 that gives 10 a second.
    fn verdict(history: &History, lost: u64) -> Result<Room, Violation> {
        let losses: Vec<(usize, u64)> = if lost == 0 { Vec::new() } else { vec![(0, lost)] };
        check(history, 0, &bucket(5, 10), &losses)
    }

    fn grants(times: &[u64]) -> Vec<crate::history::Call> {
        times.iter().map(|&millis| grant(millis * 1000, millis * 1000 + 100, 1)).collect()
    }

    #[test]
    fn a_burst_and_then_the_rate_is_within_the_bound_with_no_room_left() {
        let mut calls = grants(&[0, 0, 0, 0, 0]);
        // Exactly one token after each 100 ms, by the last end that a call can have had.
        calls.extend((1..50).map(|count| grant(count * 100_000, count * 100_000, 1)));
        let room = verdict(&History::new(calls, Vec::new()), 0).expect("as it should be");
        assert_eq!(room.granted, 54);
        assert_eq!(room.least, 0.0);
    }

    #[test]
    fn one_microsecond_too_early_is_a_violation() {
        let mut calls = grants(&[0, 0, 0, 0, 0]);
        calls.push(grant(99_999, 99_999, 1));
        let violation = verdict(&History::new(calls, Vec::new()), 0).expect_err("six of five");
        assert_eq!(violation.calls.len(), 6);
        assert!(violation.what.contains("granted 6 tokens in 0.099999 s"), "{}", violation.what);
    }

    #[test]
    fn an_excess_after_a_long_rest_is_found() {
        // One in the first hour; then, with a full bucket, six at once.
        let calls = grants(&[0, 3_600_000, 3_600_000, 3_600_000, 3_600_000, 3_600_000, 3_600_000]);
        let violation = verdict(&History::new(calls, Vec::new()), 0).expect_err("six of five");
        assert_eq!(violation.calls, [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn a_slow_rise_above_the_rate_is_found() {
        // A token each 99 ms where 100 ms are right: five of the capacity last for 500 of them.
        let calls: Vec<_> = (0..1000).map(|count| grant(count * 99_000, count * 99_000 + 50, 1)).collect();
        let violation = verdict(&History::new(calls, Vec::new()), 0).expect_err("1 % too fast");
        assert!((390..=510).contains(&violation.calls.len()), "{}", violation.calls.len());
    }

    #[test]
    fn calls_that_took_long_are_not_held_against_the_bucket() {
        let mut calls = grants(&[0, 0, 0, 0, 0]);
        // Executed at any time up to its end.
        calls.push(grant(1_000, 100_000, 1));
        verdict(&History::new(calls, Vec::new()), 0).expect("it may have been executed at 100 ms");
    }

    #[test]
    fn denials_unknown_calls_and_other_buckets_grant_nothing() {
        let mut calls = grants(&[0, 0, 0, 0, 0]);
        for outcome in [crate::history::Outcome::Denied, crate::history::Outcome::Unknown] {
            calls.push(crate::history::Call { outcome, ..grant(10, 20, 3) });
        }
        let mut other = grant(10, 20, 3);
        other.parts[0].bucket = 1;
        calls.push(other);
        assert_eq!(verdict(&History::new(calls, Vec::new()), 0).expect("nothing more").granted, 5);
    }

    #[test]
    fn what_a_kill_lost_may_be_granted_again_and_no_more() {
        // Five before the kill at 10 ms, the promotion at 30 ms, then as many as were lost.
        for (again, lost, holds) in [(2, 2, true), (3, 2, false), (1, 0, false)] {
            let mut calls = grants(&[0, 0, 0, 0, 0]);
            calls.extend(grants(&vec![40; again]));
            let verdict = verdict(&History::new(calls, vec![kill(10_000, 30_000)]), lost);
            assert_eq!(verdict.is_ok(), holds, "{again} again of {lost} lost: {verdict:?}");
        }
    }

    #[test]
    fn a_loss_does_not_excuse_intervals_after_it_or_before_it() {
        for times in [[100; 6], [1; 6]] {
            let history = History::new(grants(&times), vec![kill(10_000, 30_000)]);
            verdict(&history, 3).expect_err("six of five, all on one side of the kill");
        }
    }

    #[test]
    fn a_planned_failover_that_fills_the_bucket_is_a_violation() {
        let calls = grants(&[0, 0, 0, 0, 0, 40, 40, 40, 40, 40]);
        verdict(&History::new(calls, vec![planned(10_000, 30_000)]), 0).expect_err("ten of five");
    }

    #[test]
    fn the_tree_agrees_with_a_sum_over_every_interval() {
        let mut random = fastrand::Rng::with_seed(1);
        let (mut good, mut bad) = (0, 0);
        for _ in 0..500 {
            let mut at = 0;
            let calls: Vec<_> = (0..random.u64(1..30))
                .map(|_| {
                    at += random.u64(0..150_000);
                    grant(at, at + random.u64(0..100_000), random.u64(1..4))
                })
                .collect();
            let history = History::new(calls, Vec::new());
            let holds = history.calls.iter().all(|first| {
                history.calls.iter().filter(|last| last.end >= first.start).all(|last| {
                    let within =
                        history.calls.iter().filter(|call| call.start >= first.start && call.end <= last.end);
                    let sum: u64 = within.map(|call| call.parts[0].cost).sum();
                    sum * 1_000_000 <= 5_000_000 + (last.end - first.start) * 10
                })
            });
            assert_eq!(verdict(&history, 0).is_ok(), holds, "{history:?}");
            *(if holds { &mut good } else { &mut bad }) += 1;
        }
        assert!(good > 50 && bad > 50, "{good} good and {bad} bad histories");
    }
}
