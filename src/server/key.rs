//! An open key, as far as a bucket needs one: two hash fields and an expiry; and the string that a bucket may replace.

use std::ffi::{c_int, c_longlong};
use std::{ptr, slice};

use redis_module::raw::{
    REDISMODULE_HASH_NONE, REDISMODULE_KEYTYPE_EMPTY, REDISMODULE_KEYTYPE_HASH, REDISMODULE_KEYTYPE_STRING,
    REDISMODULE_OK, REDISMODULE_READ, REDISMODULE_WRITE, RedisModuleKey, RedisModuleString,
};

use super::{Call, Text};

/// What a key is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Reading only; allowed on a replica.
    Read,
    /// Reading and writing.
    Write,
}

/// What is at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    Missing,
    Hash,
    String,
    Other,
}

/// An open key; closed on drop.
pub(crate) struct Key<'c> {
    call: &'c Call<'c>,
    name: *mut RedisModuleString,
    /// Null for a missing key opened to read.
    handle: *mut RedisModuleKey,
    kind: KeyKind,
}

impl<'c> Key<'c> {
    /// # Safety
    /// `name` is an argument of `call`.
    pub(super) unsafe fn open(call: &'c Call<'c>, name: *mut RedisModuleString, mode: Mode) -> Key<'c> {
        let flags = match mode {
            Mode::Read => REDISMODULE_READ,
            Mode::Write => REDISMODULE_READ | REDISMODULE_WRITE,
        };
        // SAFETY: context and name of the running command.
        let handle = unsafe { (call.api.open_key)(call.ctx, name, flags as c_int) };
        // SAFETY: the handle just opened; null is answered as an empty key.
        let kind = match unsafe { (call.api.key_type)(handle) } as isize {
            REDISMODULE_KEYTYPE_EMPTY => KeyKind::Missing,
            REDISMODULE_KEYTYPE_HASH => KeyKind::Hash,
            REDISMODULE_KEYTYPE_STRING => KeyKind::String,
            _ => KeyKind::Other,
        };
        Key { call, name, handle, kind }
    }

    pub(crate) fn kind(&self) -> KeyKind {
        self.kind
    }

    /// The bytes of a string of at most `longest` bytes; `None` for a longer one and for no string.
    ///
    /// Longer ones are not even looked at: to show its bytes, a server turns a compact string into one that takes more
    /// memory, and leaves it so.
    pub(crate) fn short_string(&self, longest: usize) -> Option<&[u8]> {
        let api = self.call.api;
        // SAFETY: an open key.
        if self.kind != KeyKind::String || unsafe { (api.value_length)(self.handle) } > longest {
            return None;
        }
        let mut len = 0;
        // SAFETY: an open string, and a place for its length.
        let start = unsafe { (api.string_dma)(self.handle, &mut len, REDISMODULE_READ as c_int) };
        if start.is_null() {
            return None;
        }
        // SAFETY: the server answered that `len` bytes are there. They stay while nobody writes to the key: this module's
        // only way to, `delete`, takes the key away from whoever holds them.
        Some(unsafe { slice::from_raw_parts(start.cast(), len) })
    }

    /// Deletes what is at the key, and replicates `DEL key`; the key then is a missing one.
    ///
    /// Nothing happens to one opened to read.
    pub(crate) fn delete(mut self) -> Key<'c> {
        let (api, ctx) = (self.call.api, self.call.ctx);
        // SAFETY: an open key; the server refuses one that was not opened to write.
        if unsafe { (api.delete_key)(self.handle) } == REDISMODULE_OK as c_int {
            // SAFETY: a string, as the format says.
            unsafe { (api.replicate)(ctx, c"DEL".as_ptr(), c"s".as_ptr(), self.name) };
            self.kind = KeyKind::Missing;
        }
        self
    }

    /// The values of two fields, each `None` where there is no such field (or no hash).
    pub(crate) fn hash_get(&self, fields: [&Text; 2]) -> [Option<Text>; 2] {
        if self.kind != KeyKind::Hash {
            return [None, None];
        }
        let api = self.call.api;
        let (mut first, mut second) =
            (ptr::null_mut::<RedisModuleString>(), ptr::null_mut::<RedisModuleString>());
        // SAFETY: an open hash; pairs of a field name and a place for its value, ended by null. The names are strings, as
        // asked for by the absence of REDISMODULE_HASH_CFIELDS.
        unsafe {
            (api.hash_get)(
                self.handle,
                REDISMODULE_HASH_NONE as c_int,
                fields[0].as_ptr(),
                &mut first as *mut *mut RedisModuleString,
                fields[1].as_ptr(),
                &mut second as *mut *mut RedisModuleString,
                ptr::null_mut::<RedisModuleString>(),
            )
        };
        // SAFETY: without automatic memory, which this module never turns on, the values are the caller's.
        [unsafe { Text::from_raw(api, first) }, unsafe { Text::from_raw(api, second) }]
    }

    /// Sets two fields, creating the hash if the key is missing, and replicates `HSET key field value field value`.
    ///
    /// Nothing happens to a key of another type or one opened to read.
    pub(crate) fn hash_set(&self, fields: [&Text; 2], values: [&Text; 2]) {
        if self.handle.is_null() || !matches!(self.kind, KeyKind::Missing | KeyKind::Hash) {
            return;
        }
        let api = self.call.api;
        let [(f0, v0), (f1, v1)] =
            [(fields[0].as_ptr(), values[0].as_ptr()), (fields[1].as_ptr(), values[1].as_ptr())];
        // SAFETY: an open hash or empty key; pairs of a field name and a value, both copied, ended by null.
        unsafe {
            (api.hash_set)(
                self.handle,
                REDISMODULE_HASH_NONE as c_int,
                f0,
                v0,
                f1,
                v1,
                ptr::null_mut::<RedisModuleString>(),
            )
        };
        // SAFETY: five strings, as the format says; the server takes references of its own.
        unsafe {
            (api.replicate)(self.call.ctx, c"HSET".as_ptr(), c"sssss".as_ptr(), self.name, f0, v0, f1, v1)
        };
    }

    /// The Unix time in ms at which the key expires, if it does.
    pub(crate) fn expire_at(&self) -> Option<u64> {
        if self.handle.is_null() {
            return None;
        }
        let api = self.call.api;
        let at = match api.get_abs_expire {
            // SAFETY: an open key.
            Some(get_abs_expire) => unsafe { get_abs_expire(self.handle) },
            // Redis 6.2.0 and 6.2.1 tell only the time left, which they count from this same clock.
            // SAFETY: an open key.
            None => match unsafe { (api.get_expire)(self.handle) } {
                left if left < 0 => left,
                // SAFETY: takes nothing.
                left => left.saturating_add(unsafe { (api.milliseconds)() }),
            },
        };
        u64::try_from(at).ok() // "no expiry" is -1
    }

    /// Sets the Unix time in ms at which the key expires, and replicates `PEXPIREAT key at`.
    pub(crate) fn set_expire_at(&self, at: u64) {
        if self.handle.is_null() {
            return;
        }
        let (api, ctx) = (self.call.api, self.call.ctx);
        let at = c_longlong::try_from(at).unwrap_or(c_longlong::MAX);
        if let Some(set_abs_expire) = api.set_abs_expire {
            // SAFETY: a key opened to write; on any other the server only answers an error.
            unsafe { set_abs_expire(self.handle, at) };
        } else {
            // SAFETY: a string and an integer, as the format says. Without `!` the call itself is not replicated.
            let reply = unsafe { (api.call)(ctx, c"PEXPIREAT".as_ptr(), c"sl".as_ptr(), self.name, at) };
            if !reply.is_null() {
                // SAFETY: the reply is the caller's.
                unsafe { (api.free_call_reply)(reply) };
            }
        }
        // SAFETY: a string and an integer, as the format says.
        unsafe { (api.replicate)(ctx, c"PEXPIREAT".as_ptr(), c"sl".as_ptr(), self.name, at) };
    }

    /// Tells WATCH and client-side caching that the key was changed. The module turned off the server's own signal, which
    /// would be sent for every key that was opened to write, denied or not.
    pub(crate) fn signal_modified(&self) {
        // SAFETY: context and name of the running command.
        unsafe { (self.call.api.signal_modified_key)(self.call.ctx, self.name) };
    }
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        // SAFETY: opened by self and not closed since; null is allowed.
        unsafe { (self.call.api.close_key)(self.handle) }
    }
}
