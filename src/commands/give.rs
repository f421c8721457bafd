//! `RL.GIVE key capacity rate amount`

use redis_token_bucket_core::Tokens;

use super::{SETTLE_ARGS, reply_settled};
use crate::clock;
use crate::request::Request;
use crate::server::{Call, Command, Description, Error, Mode};
use crate::stats::STATS;
use crate::store::Slot;

pub(crate) struct Give;

impl Command for Give {
    const DESCRIPTION: Description = Description {
        name: c"rl.give",
        summary: c"Gives tokens back to a bucket, never above its capacity.",
        complexity: c"O(1)",
        since: c"0.1.0",
        arity: 5,
        // Not deny-oom: what was taken can be given back when memory is out. It never makes a key.
        flags: c"write fast",
        acl_categories: c"write fast",
        keys: (1, 1, 1),
        args: SETTLE_ARGS,
    };

    fn run(call: &Call<'_>) -> Result<(), Error> {
        let Request { key, limit, amount } = Request::settle(call)?;
        let slot = Slot::open(call, key, Mode::Write)?;
        let now = clock::now();
        let level = limit.level(slot.bucket(), now);
        // A full bucket, as every missing one is, takes nothing more and need not be written.
        let gives = amount != Tokens::ZERO && !level.is_full();
        let after = if gives { level.plus(amount) } else { level };
        let decision = after.decision(after.outcome(Tokens::ONE));
        if gives {
            slot.write(&after, &decision, now);
        }
        STATS.gives.add_one();
        reply_settled(call, &decision);
        Ok(())
    }

    fn count_error() {
        STATS.give_errors.add_one();
    }
}
