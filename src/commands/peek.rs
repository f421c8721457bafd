//! `RL.PEEK key capacity rate [cost]`

use super::{TAKE_ARGS, reply_decision};
use crate::clock;
use crate::request::Request;
use crate::server::{Call, Command, Description, Error, Mode};
use crate::stats::STATS;
use crate::store::Slot;

pub(crate) struct Peek;

impl Command for Peek {
    const DESCRIPTION: Description = Description {
        name: c"rl.peek",
        summary: c"Returns what RL.TAKE would return now; changes nothing.",
        complexity: c"O(1)",
        since: c"0.1.0",
        arity: -4,
        flags: c"readonly fast",
        acl_categories: c"read fast",
        keys: (1, 1, 1),
        args: TAKE_ARGS,
    };

    fn run(call: &Call<'_>) -> Result<(), Error> {
        let Request { key, limit, amount: cost } = Request::take(call)?;
        let slot = Slot::open(call, key, Mode::Read)?;
        let (decision, _) = limit.level(slot.bucket(), clock::now()).take(cost);
        STATS.peeks.add_one();
        reply_decision(call, &decision);
        Ok(())
    }

    fn count_error() {
        STATS.peek_errors.add_one();
    }
}
