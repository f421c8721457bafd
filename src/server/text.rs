//! Strings of the server.

use std::ptr::NonNull;
use std::slice;

use redis_module::raw::RedisModuleString;

use super::Api;

/// A string object of the server, held by one reference.
pub(crate) struct Text {
    api: &'static Api,
    string: NonNull<RedisModuleString>,
}

// SAFETY: a server string is plain memory with a count that is not atomic; every use of a Text happens on the server's
// thread, which is the only one that this module has. Needed for the field names, which are kept in a static.
unsafe impl Send for Text {}
// SAFETY: as above.
unsafe impl Sync for Text {}

impl Text {
    /// Copies `bytes` into a new string.
    pub(crate) fn new(api: &'static Api, bytes: &[u8]) -> Text {
        // SAFETY: pointer and length are of one slice. Without a context the string is owned by the caller alone. The
        // server ends the process rather than answer null when memory is out.
        let string = unsafe { (api.create_string)(std::ptr::null_mut(), bytes.as_ptr().cast(), bytes.len()) };
        // SAFETY: not null, as said.
        Text { api, string: unsafe { NonNull::new_unchecked(string) } }
    }

    /// Takes over a reference that the API handed out; `None` for null.
    ///
    /// # Safety
    /// `string` is null or a string whose reference is the caller's to give away.
    pub(super) unsafe fn from_raw(api: &'static Api, string: *mut RedisModuleString) -> Option<Text> {
        Some(Text { api, string: NonNull::new(string)? })
    }

    pub(super) fn as_ptr(&self) -> *mut RedisModuleString {
        self.string.as_ptr()
    }

    /// The bytes of the string.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        // SAFETY: the string lives as long as self, and nobody writes to it meanwhile.
        unsafe { bytes_of(self.api, self.string.as_ptr()) }
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        // SAFETY: self owned this reference.
        unsafe { (self.api.free_string)(std::ptr::null_mut(), self.string.as_ptr()) }
    }
}

/// The bytes of a server string.
///
/// # Safety
/// `string` is a live string that is neither freed nor written during `'a`.
pub(super) unsafe fn bytes_of<'a>(api: &Api, string: *const RedisModuleString) -> &'a [u8] {
    let mut len = 0;
    // SAFETY: a live string, by the caller's promise, and a place for its length.
    let start = unsafe { (api.string_ptr_len)(string, &mut len) };
    if start.is_null() {
        return &[];
    }
    // SAFETY: the server answered that `len` bytes are there.
    unsafe { slice::from_raw_parts(start.cast(), len) }
}
