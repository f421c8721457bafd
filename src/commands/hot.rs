//! `RL.HOT [DENIED] [COUNT n]`, `RL.HOT RESET`

use super::integer;
use crate::hot::{self, HotKey};
use crate::request::HotRequest;
use crate::server::{Arg, ArgKind, Call, Command, Description, Error};
use crate::stats::STATS;

pub(crate) struct Hot;

impl Command for Hot {
    const DESCRIPTION: Description = Description {
        name: c"rl.hot",
        summary: c"Lists the keys that were taken from, or denied, most since the last reset.",
        complexity: c"O(N) where N is the number of keys returned",
        since: c"0.1.0",
        arity: -1,
        // It looks at nothing that a loading or stale data set could spoil.
        flags: c"readonly allow-loading allow-stale",
        // Dangerous as KEYS is: it shows keys whatever key patterns the caller is confined to.
        acl_categories: c"read slow dangerous",
        keys: (0, 0, 0),
        args: ARGS,
    };

    fn run(call: &Call<'_>) -> Result<(), Error> {
        match HotRequest::read(call)? {
            HotRequest::Reset => {
                hot::reset();
                call.reply_ok();
            }
            HotRequest::List { denied, count } => hot::read(|counted| {
                let sketch = if denied { &counted.denied } else { &counted.taken };
                call.reply_array(sketch.len().min(count));
                for HotKey { key, key_len, count, error } in sketch.top().take(count) {
                    call.reply_array(4);
                    call.reply_bytes(key);
                    call.reply_integer(integer(count));
                    call.reply_integer(integer(error));
                    call.reply_integer(key_len.try_into().unwrap_or(i64::MAX));
                }
            })
            .ok_or(OFF)?,
        }
        Ok(())
    }

    fn count_error() {
        STATS.hot_errors.add_one();
    }
}

const OFF: Error = Error::Message(c"ERR hot keys are off, set rl.hot-keys to 1 or more");

/// `[DENIED] [COUNT count]`, or `RESET` alone.
const ARGS: &[Arg] = &[Arg {
    name: c"action",
    kind: ArgKind::OneOf(&[
        Arg {
            name: c"list",
            kind: ArgKind::Group(&[
                Arg { name: c"denied", kind: ArgKind::Word(c"DENIED"), optional: true },
                Arg { name: c"count", kind: ArgKind::IntegerAfter(c"COUNT"), optional: true },
            ]),
            optional: false,
        },
        Arg { name: c"reset", kind: ArgKind::Word(c"RESET"), optional: false },
    ]),
    optional: true,
}];
