//! `RL.CHARGE key capacity rate amount`

use redis_token_bucket_core::Tokens;

use super::{SETTLE_ARGS, count_hot, reply_settled};
use crate::clock;
use crate::request::Request;
use crate::server::{Call, Command, Description, Error, Mode};
use crate::stats::STATS;
use crate::store::Slot;

pub(crate) struct Charge;

impl Command for Charge {
    const DESCRIPTION: Description = Description {
        name: c"rl.charge",
        summary: c"Takes tokens whether they are there or not; the balance may go below zero.",
        complexity: c"O(1)",
        since: c"0.1.0",
        arity: 5,
        flags: c"write deny-oom fast",
        acl_categories: c"write fast",
        keys: (1, 1, 1),
        args: SETTLE_ARGS,
    };

    fn run(call: &Call<'_>) -> Result<(), Error> {
        let Request { key, limit, amount } = Request::settle(call)?;
        let slot = Slot::open(call, key, Mode::Write)?;
        let now = clock::now();
        let after = limit.level(slot.bucket(), now).minus(amount);
        let decision = after.decision(after.outcome(Tokens::ONE));
        if amount != Tokens::ZERO {
            slot.write(&after, &decision, now);
        }
        count_hot(call, key, amount, true);
        STATS.charges.add_one();
        reply_settled(call, &decision);
        Ok(())
    }

    fn count_error() {
        STATS.charge_errors.add_one();
    }
}
