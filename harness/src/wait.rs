//! Waiting with a deadline.

use std::env;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long a server may take to start, a replica to catch up, a cluster to agree. Reached only when something is wrong.
pub const PATIENCE: Duration = Duration::from_secs(20);

const PAUSE: Duration = Duration::from_millis(5);

/// `span`, times RL_PATIENCE where that is set: under valgrind a server takes thirty times as long for everything.
pub(crate) fn scaled(span: Duration) -> Duration {
    static FACTOR: OnceLock<u32> = OnceLock::new();
    span * *FACTOR.get_or_init(|| match env::var("RL_PATIENCE") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("RL_PATIENCE is {text:?}, not a whole number")),
        Err(_) => 1,
    })
}

/// Asks `probe` until it is `Ok`, and returns what it gave.
///
/// # Panics
/// When `patience` has passed, with `what` was awaited and the last error of `probe`.
#[track_caller]
pub fn until<T>(patience: Duration, what: &str, probe: impl FnMut() -> Result<T, String>) -> T {
    try_until(patience, probe)
        .unwrap_or_else(|last| panic!("waited {:?} for {what}; last seen: {last}", scaled(patience)))
}

/// As [`until`], but returns the last error of `probe` instead of panicking.
pub fn try_until<T>(patience: Duration, mut probe: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    let deadline = Instant::now() + scaled(patience);
    loop {
        match probe() {
            Ok(value) => return Ok(value),
            Err(last) if Instant::now() >= deadline => return Err(last),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}
