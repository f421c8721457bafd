//! `RL.TAKE key capacity rate [cost]`

use redis_token_bucket_core::Tokens;

use super::{TAKE_ARGS, count_hot, reply_decision};
use crate::clock;
use crate::request::Request;
use crate::server::{Call, Command, Description, Error, Mode};
use crate::stats::STATS;
use crate::store::Slot;

pub(crate) struct Take;

impl Command for Take {
    const DESCRIPTION: Description = Description {
        name: c"rl.take",
        summary: c"Takes tokens from a bucket, or nothing if it holds too few.",
        complexity: c"O(1)",
        since: c"0.1.0",
        arity: -4,
        flags: c"write deny-oom fast",
        acl_categories: c"write fast",
        keys: (1, 1, 1),
        args: TAKE_ARGS,
    };

    fn run(call: &Call<'_>) -> Result<(), Error> {
        let Request { key, limit, amount: cost } = Request::take(call)?;
        let slot = Slot::open(call, key, Mode::Write)?;
        let now = clock::now();
        let level = limit.level(slot.bucket(), now);
        let (decision, left) = level.take(cost);
        match left {
            // A cost of 0 is a peek.
            _ if cost == Tokens::ZERO => {}
            Some(left) => slot.write(&left, &decision, now),
            None if level.repaired() => slot.write(&level, &decision, now),
            None => slot.keep(&decision, now),
        }
        count_hot(call, key, cost, left.is_some());
        let count = if left.is_some() { &STATS.take_allowed } else { &STATS.take_denied };
        count.add_one();
        reply_decision(call, &decision);
        Ok(())
    }

    fn count_error() {
        STATS.take_errors.add_one();
    }
}
