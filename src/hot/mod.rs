//! Which keys are hot: taken from most, and denied most, on this server since the last reset. Neither replicated nor kept.
//!
//! What is counted is calls, not tokens. Taken: each bucket of an allowed RL.TAKE or RL.TAKEALL, and of RL.CHARGE. Denied: the
//! bucket of a denied RL.TAKE, and those of a denied RL.TAKEALL that had too few. A cost of 0 asks and takes nothing; it is
//! not counted, as RL.PEEK and RL.GIVE are not. CL.THROTTLE counts as RL.TAKE.

mod sketch;
#[cfg(test)]
mod tests;

pub(crate) use sketch::{HotKey, Sketch};

use std::ffi::CStr;
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::clock;
use crate::request::MAX_HOT_KEYS;
use crate::server::{InfoSection, NumericConfig};

/// What was counted since the last reset.
pub(crate) struct Counted {
    pub(crate) taken: Sketch,
    pub(crate) denied: Sketch,
    /// When counting began, in Unix time in µs.
    pub(crate) since: u64,
    capacity: u16,
}

/// `None` when off.
static COUNTED: Mutex<Option<Counted>> = Mutex::new(None);

/// Nobody waits for the lock: commands run one at a time. Only a crash report may find it taken, by the very thread that
/// crashed, and goes without.
fn lock() -> Option<MutexGuard<'static, Option<Counted>>> {
    match COUNTED.try_lock() {
        Ok(counted) => Some(counted),
        Err(TryLockError::Poisoned(poisoned)) => Some(PoisonError::into_inner(poisoned)),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Counts `key` among those taken from, or those denied.
pub(crate) fn count(key: &[u8], taken: bool) {
    if let Some(counted) = lock().as_deref_mut().and_then(Option::as_mut) {
        let sketch = if taken { &mut counted.taken } else { &mut counted.denied };
        sketch.count(key);
    }
}

/// Shows what was counted to `reader`; `None` when off.
pub(crate) fn read<T>(reader: impl FnOnce(&Counted) -> T) -> Option<T> {
    lock().as_deref()?.as_ref().map(reader)
}

/// Adds what was counted to INFO; zeros when off.
pub(crate) fn report(section: &InfoSection) {
    let list = |sketch: &Sketch| {
        let top = sketch.top().next();
        [sketch.total(), top.map_or(0, |top| top.count), top.map_or(0, |top| top.error)]
    };
    let figures = read(|counted| {
        let Counted { taken, denied, since, capacity } = counted;
        ([u64::from(*capacity), since / 1_000_000], list(taken), list(denied))
    });
    let (size, taken, denied) = figures.unwrap_or_default();
    let names = [
        [c"hot_taken_total", c"hot_taken_top_count", c"hot_taken_top_error"],
        [c"hot_denied_total", c"hot_denied_top_count", c"hot_denied_top_error"],
    ];
    for (name, figure) in [c"hot_keys", c"hot_since"].iter().zip(size) {
        section.count(name, figure);
    }
    for (name, figure) in names.as_flattened().iter().zip([taken, denied].as_flattened()) {
        section.count(name, *figure);
    }
}

/// Forgets what was counted and begins anew.
pub(crate) fn reset() {
    if let Some(counted) = lock().as_deref_mut().and_then(Option::as_mut) {
        *counted = Counted::new(counted.capacity);
    }
}

/// Gives the memory back.
pub(crate) fn turn_off() {
    HotKeys::set(0);
}

impl Counted {
    fn new(capacity: u16) -> Counted {
        Counted { taken: Sketch::new(capacity), denied: Sketch::new(capacity), since: clock::now(), capacity }
    }
}

/// `rl.hot-keys`: how many keys are listed at most; 0 is off.
pub(crate) struct HotKeys;

impl NumericConfig for HotKeys {
    const NAME: &'static CStr = c"hot-keys";
    const RANGE: RangeInclusive<i64> = 0..=MAX_HOT_KEYS as i64;

    fn get() -> i64 {
        read(|counted| counted.capacity.into()).unwrap_or(0)
    }

    /// Another size begins counting anew. Counts that were carried over would have larger errors, and the list of a server
    /// that is worth looking at fills within moments.
    fn set(value: i64) {
        if value == HotKeys::get() {
            return;
        }
        if let Some(mut counted) = lock() {
            *counted = u16::try_from(value).ok().filter(|&capacity| capacity > 0).map(Counted::new);
        }
    }
}
