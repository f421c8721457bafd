//! `RL.PANIC`, in debug builds only: how the tests see on a real server that a panic is an error reply.

use crate::server::{Call, Command, Description, Error};

pub(crate) struct Panic;

impl Command for Panic {
    const DESCRIPTION: Description = Description {
        name: c"rl.panic",
        summary: c"Panics. Only in debug builds.",
        complexity: c"O(1)",
        since: c"0.1.0",
        arity: 1,
        flags: c"readonly fast",
        acl_categories: c"read fast",
        keys: (0, 0, 0),
        args: &[],
    };

    #[expect(clippy::panic, reason = "what the command is for")]
    fn run(_: &Call<'_>) -> Result<(), Error> {
        panic!("RL.PANIC was called");
    }

    fn count_error() {}
}
