//! What `INFO rl` tells.

use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::server::{InfoSection, Report};

/// The crate's version.
pub(crate) const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => c"",
    };

/// The crate's version as MODULE LIST shows it: 10203 for 1.2.3.
pub(crate) const VERSION_NUMBER: c_int = version_number(VERSION.to_bytes());

#[expect(clippy::arithmetic_side_effects, clippy::indexing_slicing, reason = "evaluated by the compiler")]
const fn version_number(text: &[u8]) -> c_int {
    let (mut number, mut part, mut i) = (0, 0, 0);
    while i < text.len() && text[i] != b'-' {
        if text[i] == b'.' {
            number = (number + part) * 100;
            part = 0;
        } else {
            part = part * 10 + (text[i] - b'0') as c_int;
        }
        i += 1;
    }
    number + part
}

/// A count of events since the module was loaded. Atomic for safe sharing only: the server runs commands one at a time, so
/// a locked increment would buy nothing.
pub(crate) struct Count(AtomicU64);

impl Count {
    const fn zero() -> Count {
        Count(AtomicU64::new(0))
    }

    pub(crate) fn add_one(&self) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

/// All counts, by command.
pub(crate) struct Stats {
    pub(crate) take_allowed: Count,
    pub(crate) take_denied: Count,
    pub(crate) take_errors: Count,
    pub(crate) peeks: Count,
    pub(crate) peek_errors: Count,
    pub(crate) takeall_allowed: Count,
    pub(crate) takeall_denied: Count,
    pub(crate) takeall_errors: Count,
    pub(crate) gives: Count,
    pub(crate) give_errors: Count,
    pub(crate) charges: Count,
    pub(crate) charge_errors: Count,
}

pub(crate) static STATS: Stats = Stats {
    take_allowed: Count::zero(),
    take_denied: Count::zero(),
    take_errors: Count::zero(),
    peeks: Count::zero(),
    peek_errors: Count::zero(),
    takeall_allowed: Count::zero(),
    takeall_denied: Count::zero(),
    takeall_errors: Count::zero(),
    gives: Count::zero(),
    give_errors: Count::zero(),
    charges: Count::zero(),
    charge_errors: Count::zero(),
};

impl Report for Stats {
    const SECTION: &'static CStr = c"stats";

    fn report(section: &InfoSection) {
        section.text(c"version", VERSION);
        for (name, count) in [
            (c"take_allowed", &STATS.take_allowed),
            (c"take_denied", &STATS.take_denied),
            (c"take_errors", &STATS.take_errors),
            (c"peeks", &STATS.peeks),
            (c"peek_errors", &STATS.peek_errors),
            (c"takeall_allowed", &STATS.takeall_allowed),
            (c"takeall_denied", &STATS.takeall_denied),
            (c"takeall_errors", &STATS.takeall_errors),
            (c"gives", &STATS.gives),
            (c"give_errors", &STATS.give_errors),
            (c"charges", &STATS.charges),
            (c"charge_errors", &STATS.charge_errors),
        ] {
            section.count(name, count.0.load(Ordering::Relaxed));
        }
    }
}
