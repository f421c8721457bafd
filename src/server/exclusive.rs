//! State of the module that its commands change.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// A value that the server's thread alone uses, one frame at a time.
///
/// Not a Mutex: each of its two locked instructions waits until all writes before it have reached the cache, which takes
/// longer than what is done in between.
pub(crate) struct Exclusive<T> {
    in_use: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the module runs on the server's thread alone, as the head of server/mod.rs says, so that no two threads use the
// value. A crash report, which may be written by another thread, does not touch it: see InfoSection::is_crash_report.
unsafe impl<T: Send> Sync for Exclusive<T> {}

impl<T> Exclusive<T> {
    pub(crate) const fn new(value: T) -> Exclusive<T> {
        Exclusive { in_use: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Gives the value to `use_it`; `None` if a caller's caller is using it.
    pub(crate) fn with<R>(&self, use_it: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.in_use.load(Ordering::Relaxed) {
            return None;
        }
        self.in_use.store(true, Ordering::Relaxed);
        let _release = Release(&self.in_use);
        // SAFETY: no other thread is here, and on this one nobody holds a reference: `in_use` was false.
        Some(use_it(unsafe { &mut *self.value.get() }))
    }
}

/// On drop, so that a panic releases it too.
struct Release<'e>(&'e AtomicBool);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}
