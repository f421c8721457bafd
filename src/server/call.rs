//! One running command: its arguments, its reply, what it replicates.

use std::ffi::CStr;
use std::ops::RangeInclusive;

use redis_module::raw::{RedisModuleCtx, RedisModuleString};

use super::text::bytes_of;
use super::{Api, Error, Key, Mode, Text};

/// A command that the server is executing now.
pub(crate) struct Call<'c> {
    pub(super) api: &'static Api,
    pub(super) ctx: *mut RedisModuleCtx,
    argv: &'c [*mut RedisModuleString],
}

impl<'c> Call<'c> {
    /// # Safety
    /// `ctx` and the strings of `argv` are those that the server passed to the running command, and outlive `'c`.
    pub(super) unsafe fn new(
        api: &'static Api,
        ctx: *mut RedisModuleCtx,
        argv: &'c [*mut RedisModuleString],
    ) -> Call<'c> {
        Call { api, ctx, argv }
    }

    /// The number of arguments, the command's name included.
    pub(crate) fn arity(&self) -> usize {
        self.argv.len()
    }

    /// Refuses a number of arguments outside `allowed`.
    pub(crate) fn check_arity(&self, allowed: RangeInclusive<usize>) -> Result<(), Error> {
        if allowed.contains(&self.arity()) { Ok(()) } else { Err(Error::WrongArity) }
    }

    /// The bytes of argument `index` (0 is the command's name), if there is one.
    pub(crate) fn arg(&self, index: usize) -> Option<&'c [u8]> {
        let string = *self.argv.get(index)?;
        // SAFETY: the server keeps the arguments, unchanged, until the command returns.
        Some(unsafe { bytes_of(self.api, string) })
    }

    /// Opens the key that argument `index` names; `None` if there is no such argument.
    pub(crate) fn open_key(&self, index: usize, mode: Mode) -> Option<Key<'_>> {
        let name = *self.argv.get(index)?;
        // SAFETY: `name` is a live argument of this call.
        Some(unsafe { Key::open(self, name, mode) })
    }

    /// A new string holding `bytes`.
    pub(crate) fn text(&self, bytes: &[u8]) -> Text {
        Text::new(self.api, bytes)
    }

    /// Answers an array; its `len` elements follow.
    pub(crate) fn reply_array(&self, len: usize) {
        let len = len.try_into().unwrap_or(0);
        // SAFETY: the context of the running command.
        unsafe { (self.api.reply_with_array)(self.ctx, len) };
    }

    /// Answers an integer.
    pub(crate) fn reply_integer(&self, value: i64) {
        // SAFETY: the context of the running command.
        unsafe { (self.api.reply_with_long_long)(self.ctx, value) };
    }

    /// Answers a string of any bytes.
    pub(crate) fn reply_bytes(&self, bytes: &[u8]) {
        // SAFETY: the context of the running command; pointer and length are of one slice, which is copied.
        unsafe { (self.api.reply_with_string_buffer)(self.ctx, bytes.as_ptr().cast(), bytes.len()) };
    }

    /// Answers `OK`.
    pub(crate) fn reply_ok(&self) {
        // SAFETY: the context of the running command; the text is copied.
        unsafe { (self.api.reply_with_simple_string)(self.ctx, c"OK".as_ptr()) };
    }

    pub(super) fn reply_error(&self, error: Error) {
        match error {
            // SAFETY: the context of the running command.
            Error::WrongArity => unsafe { (self.api.wrong_arity)(self.ctx) },
            // SAFETY: as above; the text is copied.
            Error::Message(message) => unsafe {
                (self.api.reply_with_error)(self.ctx, CStr::as_ptr(message))
            },
        };
    }
}
