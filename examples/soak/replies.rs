//! Checks that each reply is in range and agrees with itself, and that denials are kept: never early, and never
//! late where only one client takes.

use crate::buckets::{Bucket, Use};
use crate::history::{Call, History, Outcome, Reply, Violation};

/// Costs of the load are below this.
const COSTS: usize = 8;

/// The numbers of one reply about an ordinary bucket, without debts.
fn in_range(bucket: &Bucket, taken: bool, cost: u64, reply: Reply) -> Result<(), String> {
    let [allowed, remaining, retry, reset] = reply;
    let capacity = bucket.limit.capacity;
    let Some(left) = u64::try_from(remaining).ok().filter(|left| *left <= capacity) else {
        return Err(format!("remaining must be from 0 to {capacity}"));
    };
    // The balance is at least `left` and below one more.
    let waits = |tokens: u64| {
        let most = bucket.limit.millis(tokens);
        let least = bucket.limit.millis(tokens.saturating_sub(1));
        least as i64..=most as i64
    };
    if !waits(capacity - left).contains(&reset) {
        return Err(format!("reset_after_ms must be in {:?}", waits(capacity - left)));
    }
    match allowed {
        1 if retry != 0 => Err("retry_after_ms must be 0 when allowed".to_owned()),
        1 if taken && left + cost > capacity => Err(format!("more than {capacity} - {cost} remain")),
        1 => Ok(()),
        0 if left >= cost => Err(format!("denied, though {left} remain")),
        0 if retry < 1 || !waits(cost - left).contains(&retry) => {
            Err(format!("retry_after_ms must be in {:?} and at least 1", waits(cost - left)))
        }
        0 => Ok(()),
        _ => Err("allowed must be 0 or 1".to_owned()),
    }
}

/// # Errors
/// The first reply out of range, an error that no failover explains, or a stack taken in part.
pub(crate) fn check_ranges(history: &History, buckets: &[Bucket]) -> Result<u64, Violation> {
    let mut checked = 0;
    for (index, call) in history.calls.iter().enumerate() {
        let violation = |what: String| Err(Violation { what, calls: vec![index] });
        if let Outcome::Error(text) = &call.outcome {
            return violation(format!("{} answered {text}", call.kind.command()));
        }
        // A stack that is denied tells of each bucket what it holds, and takes from none.
        let taken = call.outcome == Outcome::Allowed;
        for part in &call.parts {
            let bucket = &buckets[part.bucket];
            let Some(reply) = part.reply else { continue };
            checked += 1;
            if bucket.purpose != Use::Ledger
                && let Err(what) = in_range(bucket, taken, part.cost, reply)
            {
                return violation(format!("{}: {what}", bucket.key));
            }
        }
        let denied = call.parts.iter().any(|part| part.reply.is_some_and(|reply| reply[0] == 0));
        if call.outcome.is_answer() && denied != (call.outcome == Outcome::Denied) {
            return violation(format!(
                "{}: the buckets' answers do not make the call's",
                call.kind.command()
            ));
        }
    }
    Ok(checked)
}

/// Checks the denials of one bucket; how many were followed by a call that put them to the test.
///
/// A take that began after a denial of no more tokens had ended, and ended before that denial's time was over,
/// must not be allowed: other takes can only make the wait longer, and nobody gives to these buckets. After a
/// kill, denials of the dead master say nothing.
///
/// # Errors
/// The first denial that was not kept, with the call that shows it.
pub(crate) fn check_denials(history: &History, position: usize, bucket: &Bucket) -> Result<u64, Violation> {
    // (time, 0 a denial's end, 1 a kill, 2 a take's start; position)
    let mut events: Vec<(u64, u8, usize)> =
        history.kills(bucket.shard).map(|(index, kill)| (kill.start, 1, index)).collect();
    for (index, call) in history.calls.iter().enumerate() {
        match call.part(position).map(|part| part.reply) {
            Some(Some([0, ..])) => events.push((call.end, 0, index)),
            Some(Some(_)) if call.is_grant() => events.push((call.start, 2, index)),
            _ => {}
        }
    }
    events.sort_unstable();
    // By cost: until when it cannot be allowed, and the denial that said so.
    let mut barred = [(0, usize::MAX); COSTS];
    let (mut tested, mut killed_at) = (0, 0);
    for (time, event, index) in events {
        if event == 1 {
            (barred, killed_at) = ([(0, usize::MAX); COSTS], time);
            continue;
        }
        let call = &history.calls[index];
        let part = call.part(position).expect("chosen so");
        let cost = part.cost as usize;
        if event == 0 {
            let retry = part.reply.map_or(0, |reply| reply[2]);
            // One ms less than that is too early, whenever within the call the server read its clock.
            let until = call.start + (retry.max(1) as u64 - 1) * 1000;
            if call.start > killed_at || killed_at == 0 {
                barred[cost] = barred[cost].max((until, index));
            }
        } else if let Some(&(until, denial)) = barred[..=cost].iter().max() {
            tested += u64::from(denial != usize::MAX);
            if call.end <= until {
                let what = format!("{} allowed {} µs before a denial was over", bucket.key, until - call.end);
                return Err(Violation { what, calls: vec![denial, index] });
            }
        }
    }
    if bucket.purpose == Use::Alone {
        tested += check_never_late(history, position, bucket)?;
    }
    Ok(tested)
}

fn check_never_late(history: &History, position: usize, bucket: &Bucket) -> Result<u64, Violation> {
    let calls = history
        .calls
        .iter()
        .enumerate()
        .filter_map(|(index, call)| Some((index, call, call.part(position)?)));
    let mut tested = 0;
    let mut denial: Option<(usize, &Call, u64, i64)> = None;
    for (index, call, part) in calls {
        if let Some((denied_by, denied, cost, retry)) = denial
            && part.cost <= cost
            && call.outcome.is_answer()
            && call.start >= denied.end + retry.unsigned_abs() * 1000
        {
            tested += 1;
            if call.outcome == Outcome::Denied {
                let what = format!("{} denied after waiting the {retry} ms that a denial told", bucket.key);
                return Err(Violation { what, calls: vec![denied_by, index] });
            }
        }
        denial = match part.reply {
            Some([0, _, retry, _]) => Some((index, call, part.cost, retry)),
            _ => None,
        };
    }
    Ok(tested)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Kind, Part};
    use crate::made_up::{bucket, grant, kill};

    fn take(start: u64, cost: u64, reply: Reply) -> Call {
        let outcome = if reply[0] == 1 { Outcome::Allowed } else { Outcome::Denied };
        let mut call = Call { outcome, ..grant(start, start + 100, cost) };
        call.parts[0].reply = Some(reply);
        call
    }

    #[test]
    fn replies_that_agree_are_in_range_and_others_are_not() {
        // A bucket of 5 that gives 10 a second.
        for (cost, reply, holds) in [
            (1, [1, 4, 0, 100], true),
            (1, [1, 4, 0, 1], true),
            (1, [1, 5, 0, 0], false),
            (1, [1, -1, 0, 600], false),
            (1, [1, 4, 0, 101], false),
            (1, [1, 4, 5, 100], false),
            (1, [0, 0, 100, 500], true),
            (1, [0, 0, 0, 500], false),
            (1, [0, 0, 101, 500], false),
            (3, [0, 1, 200, 400], true),
            (3, [0, 1, 99, 400], false),
            (3, [0, 3, 1, 200], false),
            (1, [2, 4, 0, 100], false),
        ] {
            let history = History::new(vec![take(0, cost, reply)], Vec::new());
            assert_eq!(check_ranges(&history, &[bucket(5, 10)]).is_ok(), holds, "cost {cost}: {reply:?}");
        }
    }

    #[test]
    fn a_stack_is_denied_by_a_bucket_that_has_too_few_and_takes_from_none_then() {
        // 1 of each of two buckets of 5 that give 10 a second.
        let (full, empty, taken) = ([1, 5, 0, 0], [0, 0, 100, 500], [1, 4, 0, 100]);
        for (outcome, replies, holds) in [
            (Outcome::Allowed, [taken, taken], true),
            (Outcome::Denied, [full, empty], true),
            (Outcome::Denied, [taken, empty], true),
            (Outcome::Allowed, [taken, full], false),
            (Outcome::Allowed, [taken, empty], false),
            (Outcome::Denied, [taken, taken], false),
        ] {
            let part = |(bucket, reply)| Part { bucket, cost: 1, reply: Some(reply) };
            let parts = replies.into_iter().enumerate().map(part).collect();
            let call = Call { kind: Kind::TakeAll, outcome: outcome.clone(), parts, ..grant(0, 100, 1) };
            let verdict =
                check_ranges(&History::new(vec![call], Vec::new()), &[bucket(5, 10), bucket(5, 10)]);
            assert_eq!(verdict.is_ok(), holds, "{outcome:?} {replies:?}: {verdict:?}");
        }
    }

    #[test]
    fn an_error_is_a_violation() {
        let call = Call { outcome: Outcome::Error("ERR no".to_owned()), ..grant(0, 1, 1) };
        check_ranges(&History::new(vec![call], Vec::new()), &[bucket(5, 10)]).expect_err("an error");
    }

    #[test]
    fn a_grant_before_a_denial_is_over_is_a_violation() {
        // Denied at 0 to 0.1 ms for 50 ms: allowed from 50 ms on, so a call that ended at 49 was too early.
        for (end, cost, holds) in [(48_900, 1, false), (49_100, 1, true), (48_900, 3, false)] {
            let calls = vec![take(0, 1, [0, 0, 50, 450]), take(end - 100, cost, [1, 0, 0, 500])];
            let verdict = check_denials(&History::new(calls, Vec::new()), 0, &bucket(5, 10));
            assert_eq!(verdict.is_ok(), holds, "until {end} for {cost}: {verdict:?}");
        }
    }

    #[test]
    fn a_denial_of_more_does_not_bar_less_and_a_kill_ends_it() {
        let bars = |failovers| {
            let calls = vec![
                take(0, 3, [0, 1, 150, 350]),
                take(1000, 1, [1, 0, 0, 500]),
                take(20_000, 3, [1, 0, 0, 500]),
            ];
            check_denials(&History::new(calls, failovers), 0, &bucket(5, 10)).is_err()
        };
        assert!(bars(Vec::new()));
        assert!(!bars(vec![kill(10_000, 15_000)]));
        assert!(bars(vec![kill(30_000, 35_000)]));
    }

    #[test]
    fn a_denial_after_the_wait_that_was_told_is_a_violation_where_one_client_takes() {
        let alone = Bucket { purpose: Use::Alone, ..bucket(5, 10) };
        let verdict = |start| {
            let calls = vec![take(0, 1, [0, 0, 50, 450]), take(start, 1, [0, 0, 1, 401])];
            check_denials(&History::new(calls, Vec::new()), 0, &alone)
        };
        assert_eq!(verdict(50_000).expect("it may have come 0.1 ms too early"), 0);
        verdict(50_100).expect_err("late");
    }
}
