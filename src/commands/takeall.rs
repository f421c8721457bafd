//! `RL.TAKEALL key capacity rate cost [key capacity rate cost ...]`

use arrayvec::ArrayVec;
use redis_token_bucket_core::{Decision, Level, Outcome, Tokens};

use super::{CAPACITY, COST, KEY, RATE, count_hot, reply_decision, retry_after};
use crate::clock;
use crate::request::{MAX_BUCKETS, Request};
use crate::server::{Arg, ArgKind, Call, Command, Description, Error, Mode};
use crate::stats::STATS;
use crate::store::Slot;

pub(crate) struct TakeAll;

impl Command for TakeAll {
    const DESCRIPTION: Description = Description {
        name: c"rl.takeall",
        summary: c"Takes tokens from every one of several buckets, or from none.",
        complexity: c"O(N) where N is the number of buckets",
        since: c"0.1.0",
        arity: -5,
        flags: c"write deny-oom",
        acl_categories: c"write slow",
        keys: (1, -1, 4),
        args: ARGS,
    };

    fn run(call: &Call<'_>) -> Result<(), Error> {
        let mut requests = Stack::new();
        Request::stack(call, &mut requests)?;
        let mut slots: Stack<Slot<'_>> = Stack::new();
        for request in &requests {
            slots.push(Slot::open(call, request.key, Mode::Write)?);
        }
        // One reading for all: the stack is judged at one moment.
        let now = clock::now();
        let mut verdict = Outcome::Allowed;
        let mut judged: Stack<(Level<'_>, Outcome)> = Stack::new();
        for (slot, request) in slots.iter().zip(&requests) {
            let level = request.limit.level(slot.bucket(), now);
            let outcome = level.outcome(request.amount);
            verdict = verdict.and(outcome);
            judged.push((level, outcome));
        }
        let allowed = verdict == Outcome::Allowed;
        let mut results: Stack<(Level<'_>, Decision)> = Stack::new();
        for ((level, outcome), request) in judged.iter().zip(&requests) {
            let after = if allowed { level.minus(request.amount) } else { *level };
            results.push((after, after.decision(*outcome)));
        }

        // All is computed; from here on nothing can fail, and the buckets stay together.
        for ((slot, request), (level, decision)) in slots.iter().zip(&requests).zip(&results) {
            match request.amount {
                Tokens::ZERO => {}
                _ if allowed || level.repaired() => slot.write(level, decision, now),
                _ => slot.keep(decision, now),
            }
        }
        for (request, (_, outcome)) in requests.iter().zip(&judged) {
            if allowed || *outcome != Outcome::Allowed {
                count_hot(call, request.key, request.amount, allowed);
            }
        }
        let count = if allowed { &STATS.takeall_allowed } else { &STATS.takeall_denied };
        count.add_one();
        call.reply_array(results.len().saturating_add(2));
        call.reply_integer(allowed.into());
        call.reply_integer(retry_after(verdict));
        for (_, decision) in &results {
            reply_decision(call, decision);
        }
        Ok(())
    }

    fn count_error() {
        STATS.takeall_errors.add_one();
    }
}

/// One of something for each bucket, without an allocation.
type Stack<T> = ArrayVec<T, MAX_BUCKETS>;

const ARGS: &[Arg] =
    &[Arg { name: c"bucket", kind: ArgKind::Groups(&[KEY, CAPACITY, RATE, COST]), optional: false }];
