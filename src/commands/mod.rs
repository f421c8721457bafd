//! The commands, a file each. Each handler goes the same way: number of arguments, parse, open, decide, write, reply.

mod peek;
mod take;

#[cfg(debug_assertions)]
mod panic;

#[cfg(debug_assertions)]
pub(crate) use panic::Panic;
pub(crate) use peek::Peek;
pub(crate) use take::Take;

use redis_token_bucket_core::{Decision, Outcome};

use crate::server::{Arg, ArgKind, Call};

/// The arguments of a command about one bucket and a cost.
const BUCKET_AND_COST: &[Arg] = &[
    Arg { name: c"key", kind: ArgKind::Key, optional: false },
    Arg { name: c"capacity", kind: ArgKind::Number, optional: false },
    Arg { name: c"rate", kind: ArgKind::Text, optional: false },
    Arg { name: c"cost", kind: ArgKind::Number, optional: true },
];

/// Replies `[allowed, remaining, retry_after_ms, reset_after_ms]`.
fn reply_decision(call: &Call<'_>, decision: &Decision) {
    call.reply_array(4);
    call.reply_integer((decision.outcome == Outcome::Allowed).into());
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
