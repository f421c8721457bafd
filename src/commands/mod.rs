//! The commands, a file each. Each handler goes the same way: number of arguments, parse, open, decide, write, reply.

mod charge;
mod give;
mod hot;
mod peek;
mod take;
mod takeall;
mod throttle;

#[cfg(debug_assertions)]
mod panic;

pub(crate) use charge::Charge;
pub(crate) use give::Give;
pub(crate) use hot::Hot;
#[cfg(debug_assertions)]
pub(crate) use panic::Panic;
pub(crate) use peek::Peek;
pub(crate) use take::Take;
pub(crate) use takeall::TakeAll;
pub(crate) use throttle::Throttle;

use redis_token_bucket_core::{Decision, Outcome, Tokens};

use crate::server::{Arg, ArgKind, Call};

const KEY: Arg = Arg { name: c"key", kind: ArgKind::Key, optional: false };
const CAPACITY: Arg = Arg { name: c"capacity", kind: ArgKind::Number, optional: false };
const RATE: Arg = Arg { name: c"rate", kind: ArgKind::Text, optional: false };
const COST: Arg = Arg { name: c"cost", kind: ArgKind::Number, optional: false };
const AMOUNT: Arg = Arg { name: c"amount", kind: ArgKind::Number, optional: false };

/// `key capacity rate [cost]`
const TAKE_ARGS: &[Arg] = &[KEY, CAPACITY, RATE, Arg { optional: true, ..COST }];
/// `key capacity rate amount`
const SETTLE_ARGS: &[Arg] = &[KEY, CAPACITY, RATE, AMOUNT];

/// Counts that `amount` was taken from the bucket that argument `key` names, or denied. An amount of 0 was neither.
fn count_hot(call: &Call<'_>, key: usize, amount: Tokens, allowed: bool) {
    if amount != Tokens::ZERO
        && let Some(key) = call.arg(key)
    {
        crate::hot::count(key, allowed);
    }
}

/// Replies `[allowed, remaining, retry_after_ms, reset_after_ms]`.
fn reply_decision(call: &Call<'_>, decision: &Decision) {
    reply_bucket(call, decision.outcome == Outcome::Allowed, decision);
}

/// As [`reply_decision`], for what was done whatever the bucket held; the outcome is that of taking one token next.
fn reply_settled(call: &Call<'_>, decision: &Decision) {
    reply_bucket(call, true, decision);
}

fn reply_bucket(call: &Call<'_>, allowed: bool, decision: &Decision) {
    call.reply_array(4);
    call.reply_integer(allowed.into());
    call.reply_integer(integer(decision.remaining));
    call.reply_integer(retry_after(decision.outcome));
    call.reply_integer(integer(decision.reset_after_ms));
}

/// 0 when allowed, -1 for never, else the ms to wait.
fn retry_after(outcome: Outcome) -> i64 {
    match outcome {
        Outcome::Allowed => 0,
        Outcome::RetryAfter(millis) => integer(millis),
        Outcome::Never => -1,
    }
}

fn integer(value: u64) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}
