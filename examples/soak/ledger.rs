//! Checks buckets that one client charges and gives in turn, and counts exactly what a kill lost of them.
//!
//! A ledger's operations are CHARGE 3, GIVE 1, CHARGE 3, ... The tokens used are then 0, 3, 2, 5, 4, 7, 6, ...,
//! all different: any balance tells how many operations were applied. Without a kill, each answer must show all
//! operations before it, and one without an answer at most once. After a kill, the first answer may show fewer:
//! so many operations were lost. It must still be a beginning of what was sent, and nothing may be applied
//! twice. A client that got no answer peeks before it goes on.

use crate::buckets::Bucket;
use crate::history::{History, Kind, Outcome, Violation};

pub(crate) const CHARGE: u64 = 3;
pub(crate) const GIVE: u64 = 1;

/// How many operations leave `used` tokens used.
pub(crate) fn operations(used: u64) -> Option<u64> {
    match used {
        1 => None,
        even if even % 2 == 0 => Some(even),
        odd => Some(odd - 2),
    }
}

/// The operation that follows so many.
pub(crate) fn next(operations: u64) -> (Kind, u64) {
    if operations.is_multiple_of(2) { (Kind::Charge, CHARGE) } else { (Kind::Give, GIVE) }
}

/// What was counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    /// Operations that were answered.
    pub(crate) acknowledged: u64,
    /// Operations lost, by position of the failover.
    pub(crate) lost: Vec<(usize, u64)>,
}

/// # Errors
/// The first answer that shows what was not sent, or was lost without a kill.
pub(crate) fn check(history: &History, position: usize, bucket: &Bucket) -> Result<Ledger, Violation> {
    let mut ledger = Ledger::default();
    // Operations that were certainly applied, whether one more may be, and when that was known.
    let (mut applied, mut one_more, mut known_at) = (0, false, 0);
    let mut last = Vec::new();
    for (index, call) in history.calls.iter().enumerate() {
        let Some(part) = call.part(position) else { continue };
        last.push(index);
        let reply = match (&call.outcome, part.reply) {
            (Outcome::Unknown, _) if call.kind != Kind::Peek => {
                one_more = true;
                continue;
            }
            (Outcome::Allowed, Some(reply)) => reply,
            _ => continue,
        };
        let shown = u64::try_from(reply[1])
            .ok()
            .and_then(|left| bucket.limit.capacity.checked_sub(left))
            .and_then(operations);
        let is_operation = call.kind != Kind::Peek;
        let before = shown.and_then(|shown| shown.checked_sub(u64::from(is_operation)));
        let violation = |what: String| {
            let from = last.len().saturating_sub(4);
            Err(Violation { what: format!("{}: {what}", bucket.key), calls: last[from..].to_vec() })
        };
        let Some(before) = before else { return violation("a balance that no operations leave".to_owned()) };
        if is_operation && next(before) != (call.kind, part.cost) {
            return violation(format!("{} shows {before} operations before it", call.kind.command()));
        }
        if before < applied {
            let kill = history
                .kills(bucket.shard)
                .filter(|(_, kill)| kill.start <= call.end && known_at <= kill.down)
                .last();
            let Some((kill, _)) = kill else {
                return violation(format!(
                    "{applied} operations were answered, {before} are left, and no master was killed"
                ));
            };
            ledger.lost.push((kill, applied - before));
        } else if before > applied + u64::from(one_more) {
            return violation(format!("{applied} operations were answered, and {before} were applied"));
        }
        applied = before + u64::from(is_operation);
        ledger.acknowledged += u64::from(is_operation);
        (one_more, known_at) = (false, call.start);
    }
    Ok(ledger)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Call, Failover, Part};
    use crate::made_up::{bucket, grant, kill, planned};

    /// An operation at `at` that leaves `used` used; or no answer.
    fn call(at: u64, kind: Kind, cost: u64, used: Option<i64>) -> Call {
        let reply = used.map(|used| [1, 1000 - used, 0, 0]);
        let outcome = if used.is_some() { Outcome::Allowed } else { Outcome::Unknown };
        Call { kind, outcome, parts: vec![Part { bucket: 0, cost, reply }], ..grant(at, at + 5, cost) }
    }

    fn verdict(then: Vec<Call>, failovers: Vec<Failover>) -> Result<Ledger, Violation> {
        let mut calls = vec![
            call(10, Kind::Charge, 3, Some(3)),
            call(20, Kind::Give, 1, Some(2)),
            call(30, Kind::Charge, 3, Some(5)),
        ];
        calls.extend(then);
        check(&History::new(calls, failovers), 0, &bucket(1000, 1))
    }

    #[test]
    fn every_balance_tells_the_operations() {
        let mut used = 0;
        for count in 0..100 {
            assert_eq!(operations(used), Some(count));
            used = match next(count) {
                (Kind::Charge, amount) => used + amount,
                (_, amount) => used - amount,
            };
        }
    }

    #[test]
    fn all_there_is_good() {
        assert_eq!(
            verdict(vec![call(40, Kind::Give, 1, Some(4))], Vec::new()).expect("good").acknowledged,
            4
        );
    }

    #[test]
    fn an_unanswered_operation_may_be_applied_or_not_but_not_twice() {
        for (used, holds) in [(5, true), (4, true), (7, false)] {
            let then = vec![call(40, Kind::Give, 1, None), call(50, Kind::Peek, 0, Some(used))];
            assert_eq!(verdict(then, Vec::new()).is_ok(), holds, "{used} used");
        }
    }

    #[test]
    fn what_a_kill_lost_is_counted() {
        let then = vec![call(50, Kind::Peek, 0, Some(3)), call(60, Kind::Give, 1, Some(2))];
        assert_eq!(verdict(then, vec![kill(40, 45)]).expect("a loss").lost, [(0, 2)]);
    }

    #[test]
    fn a_loss_without_a_kill_is_a_violation() {
        let then = || vec![call(50, Kind::Peek, 0, Some(3))];
        verdict(then(), Vec::new()).expect_err("two operations are gone");
        verdict(then(), vec![planned(40, 45)]).expect_err("a planned failover loses nothing");
        let elsewhere = Failover { shard: 1, ..kill(40, 45) };
        verdict(then(), vec![elsewhere]).expect_err("another shard's kill is no reason");
        verdict(then(), vec![kill(22, 26)]).expect_err("all were seen after that kill");
    }

    #[test]
    fn more_than_was_sent_is_a_violation() {
        verdict(vec![call(40, Kind::Give, 1, Some(6))], Vec::new()).expect_err("one was applied twice");
        verdict(vec![call(40, Kind::Peek, 0, Some(1))], Vec::new())
            .expect_err("no operations leave one used");
    }
}
