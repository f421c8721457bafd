//! What becomes of a panic: an error reply and a line in the server's log.

use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::ptr;

use super::{Api, Error};

/// Runs `handler`; a panic becomes an error. One that left the handler would end the server process.
///
/// A handler writes nothing until it has computed everything, so a panic leaves the data as they were.
pub(super) fn contain(handler: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    catch_unwind(AssertUnwindSafe(handler)).unwrap_or(Err(Error::Message(
        c"ERR internal error in module rl, nothing was changed; see the server log",
    )))
}

/// Sends messages of panics to the server's log.
///
/// std's own hook must not run in a server: with RUST_BACKTRACE=1 it takes a backtrace, which frees with one allocator
/// what another gave when the server opens modules with RTLD_DEEPBIND and links its allocator as a shared library
/// (Debian's Valkey 8.1 and 9.1). The hook is this library's alone, since a cdylib carries its own std.
pub(super) fn log_panics(api: &'static Api) {
    set_hook(Box::new(move |panic| {
        let message = CString::new(panic.to_string().replace(['\n', '\0'], " ")).unwrap_or_default();
        // SAFETY: a null context is allowed and stands for no module; the format takes one C string.
        unsafe {
            (api.log)(ptr::null_mut(), c"warning".as_ptr(), c"rl: %s".as_ptr(), message.as_ptr());
        }
    }));
}

/// Drops the hook before the library is unmapped.
pub(super) fn forget_hook() {
    drop(take_hook());
}
