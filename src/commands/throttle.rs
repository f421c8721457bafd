//! `CL.THROTTLE key max_burst count period [quantity]`
//!
//! redis-cell's command with its reply, for callers that go over one by one. The bucket is an ordinary one of capacity
//! max_burst + 1 and rate count/period. Where redis-cell 0.5.0 answers, this answers the same; docs/migrating.md lists
//! where it does not.

use redis_token_bucket_core::{Outcome, Tokens};

use super::{KEY, count_hot, integer};
use crate::clock;
use crate::request;
use crate::server::{Arg, ArgKind, Call, Command, Description, Error};
use crate::stats::STATS;
use crate::store::Slot;

pub(crate) struct Throttle;

impl Command for Throttle {
    const DESCRIPTION: Description = Description {
        name: c"cl.throttle",
        summary: c"Takes tokens from a bucket with redis-cell's arguments and reply.",
        complexity: c"O(1)",
        since: c"0.1.0",
        arity: -5,
        flags: c"write deny-oom fast",
        acl_categories: c"write fast",
        keys: (1, 1, 1),
        args: ARGS,
    };

    fn run(call: &Call<'_>) -> Result<(), Error> {
        let request::Throttle { key, limit, quantity } = request::Throttle::read(call)?;
        let (slot, arrival) = Slot::open_with_arrival(call, key)?;
        let now = clock::now();
        let stored = arrival.map(|full_at| limit.bucket_full_at(full_at, now)).or(slot.bucket());
        let level = limit.level(stored, now);
        let amount = Tokens::from_whole(quantity.unsigned_abs());
        let outcome = if quantity < 0 { Outcome::Allowed } else { level.outcome(amount) };
        let after = match outcome {
            Outcome::Allowed if quantity < 0 => level.plus(amount),
            Outcome::Allowed => level.minus(amount),
            _ => level,
        };
        let decision = after.decision(outcome);
        let retry_after = match outcome {
            Outcome::RetryAfter(_) => seconds(level.micros_until(amount)),
            Outcome::Allowed | Outcome::Never => -1,
        };
        let reset_after = seconds(after.micros_until(limit.capacity()));

        let allowed = outcome == Outcome::Allowed;
        match quantity {
            0 => {} // a peek
            // A full bucket takes nothing more and need not be written, unless a string is to become one.
            ..0 if level.is_full() && arrival.is_none() => {}
            _ if allowed || level.repaired() || arrival.is_some() => {
                slot.without_string().write(&after, &decision, now);
            }
            _ => slot.keep(&decision, now),
        }
        if quantity > 0 {
            count_hot(call, key, amount, allowed);
        }
        let count = if allowed { &STATS.throttle_allowed } else { &STATS.throttle_denied };
        count.add_one();
        call.reply_array(5);
        call.reply_integer((!allowed).into());
        call.reply_integer(integer(limit.capacity().whole()));
        call.reply_integer(integer(decision.remaining));
        call.reply_integer(retry_after);
        call.reply_integer(reset_after);
        Ok(())
    }

    fn count_error() {
        STATS.throttle_errors.add_one();
    }
}

/// Whole seconds as redis-cell rounds them: up, but a part below a millisecond is dropped first.
fn seconds(micros: u64) -> i64 {
    integer((micros / 1000).div_ceil(1000))
}

const MAX_BURST: Arg = Arg { name: c"max_burst", kind: ArgKind::Integer, optional: false };
const COUNT: Arg = Arg { name: c"count", kind: ArgKind::Integer, optional: false };
const PERIOD: Arg = Arg { name: c"period", kind: ArgKind::Integer, optional: false };
const QUANTITY: Arg = Arg { name: c"quantity", kind: ArgKind::Integer, optional: true };

const ARGS: &[Arg] = &[KEY, MAX_BURST, COUNT, PERIOD, QUANTITY];
