//! What `INFO rl` tells.

use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::hot;
use crate::server::{InfoSection, Report};

/// The crate's version.
pub(crate) const VERSION: &CStr = c_str(concat!(env!("CARGO_PKG_VERSION"), "\0"));

/// `text`, which ends in its only NUL, as a C string.
const fn c_str(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => c"",
    }
}

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
    pub(crate) fn add_one(&self) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

/// Declares the counts once: as fields, at zero, and by their names in INFO.
macro_rules! counts {
    ($($name:ident)*) => {
        /// All counts, by command.
        pub(crate) struct Stats {
            $(pub(crate) $name: Count,)*
        }

        pub(crate) static STATS: Stats = Stats { $($name: Count(AtomicU64::new(0)),)* };

        impl Report for Stats {
            const SECTION: &'static CStr = c"stats";

            fn report(section: &InfoSection) {
                section.text(c"version", VERSION);
                $(section.count(c_str(concat!(stringify!($name), "\0")), STATS.$name.0.load(Ordering::Relaxed));)*
                hot::report(section);
            }
        }
    };
}

counts! {
    take_allowed take_denied take_errors
    peeks peek_errors
    takeall_allowed takeall_denied takeall_errors
    gives give_errors
    charges charge_errors
    hot_errors
    throttle_allowed throttle_denied throttle_errors
}
