//! Loading and unloading.

use std::ffi::{CStr, CString, c_int};
use std::slice;

use redis_module::raw::{
    Export_RedisModule_Init, REDISMODULE_APIVER_1, REDISMODULE_ERR, REDISMODULE_OK,
    REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED, REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD,
    RedisModuleCtx, RedisModuleString,
};

use super::text::bytes_of;
use super::{Api, panic};

/// Valkey 9: without it CLUSTER MIGRATESLOTS refuses to run on a server that has the module loaded. The buckets are plain
/// hashes, which migrate like all others. Not in redis-module's bindings; on Redis the bit has no such meaning.
const VALKEY_HANDLE_ATOMIC_SLOT_MIGRATION: c_int = 1 << 5;

/// The module while it is being loaded.
pub(crate) struct Loader {
    pub(super) api: &'static Api,
    pub(super) ctx: *mut RedisModuleCtx,
}

/// Runs `register` in the frame of the server's OnLoad, with the arguments that the module is loaded with; the answer is the
/// server's status.
///
/// # Safety
/// `ctx`, `argv` and `argc` are what the server passed to the running OnLoad.
pub(crate) unsafe fn load(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
    name: &'static CStr,
    version: c_int,
    register: fn(&Loader, &[&[u8]]) -> Result<(), String>,
) -> c_int {
    // SAFETY: the caller's context, and a name that lives for ever.
    let status =
        unsafe { Export_RedisModule_Init(ctx, name.as_ptr(), version, REDISMODULE_APIVER_1 as c_int) };
    if status == REDISMODULE_ERR as c_int {
        return status;
    }
    // SAFETY: Init succeeded, on the server's thread.
    let api = match unsafe { Api::read() } {
        Ok(api) => Api::keep(api),
        // Without the API there is no log to write to; the server says that the module failed to load.
        Err(missing) => {
            eprintln!("rl: the server lacks {missing}; Redis 6.2 or Valkey 8.0 is the oldest supported");
            return REDISMODULE_ERR as c_int;
        }
    };
    panic::log_panics(api);
    let loader = Loader { api, ctx };
    // SAFETY: the caller's arguments, which the server keeps until OnLoad returns.
    let arguments = unsafe { arguments(api, argv, argc) };
    let mut registered = Err("a panic, see the line above".to_owned());
    // The answer of `contain` is an error reply, which nobody waits for here; `registered` stays as it is after a panic.
    let _ = panic::contain(|| {
        loader.set_options();
        loader.add_acl_category();
        registered = register(&loader, &arguments);
        Ok(())
    });
    match registered {
        Ok(()) => REDISMODULE_OK as c_int,
        Err(reason) => {
            loader.log_warning(&format!("not loaded: {reason}"));
            REDISMODULE_ERR as c_int
        }
    }
}

/// The bytes of the arguments, the module's path left out.
///
/// # Safety
/// `argv` and `argc` are what the server passed to the running OnLoad, which lasts for `'a`.
unsafe fn arguments<'a>(api: &Api, argv: *mut *mut RedisModuleString, argc: c_int) -> Vec<&'a [u8]> {
    let Ok(argc @ 1..) = usize::try_from(argc) else {
        return Vec::new(); // argv is null then
    };
    // SAFETY: the server passes `argc` strings.
    let argv = unsafe { slice::from_raw_parts(argv, argc) };
    // SAFETY: each is a live string for as long.
    argv.iter().map(|&argument| unsafe { bytes_of(api, argument) }).collect()
}

/// What is left to do before the library is unmapped.
pub(crate) fn unload(unregister: fn()) -> c_int {
    // Like a panic in a handler, one here must not reach the server.
    let _ = panic::contain(|| {
        unregister();
        Ok(())
    });
    panic::forget_hook();
    REDISMODULE_OK as c_int
}

impl Loader {
    pub(crate) fn api(&self) -> &'static Api {
        self.api
    }

    fn set_options(&self) {
        // A key is signalled as modified by hand, see Key::signal_modified. The module keeps nothing in memory about keys,
        // so that a replica may go on answering reads while it loads a new data set.
        let mut options = REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED as c_int
            | REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD as c_int;
        if self.is_valkey() {
            // SAFETY: takes nothing.
            let known = self.api.get_module_options_all.map_or(0, |all| unsafe { all() });
            options |= known & VALKEY_HANDLE_ATOMIC_SLOT_MIGRATION;
        }
        // SAFETY: the context of the running OnLoad.
        unsafe { (self.api.set_module_options)(self.ctx, options) };
    }

    fn is_valkey(&self) -> bool {
        // SAFETY: the context of the running OnLoad; the section's name is copied.
        let info = unsafe { (self.api.get_server_info)(self.ctx, c"server".as_ptr()) };
        // SAFETY: the data just got.
        let valkey = !unsafe { (self.api.server_info_get_field)(info, c"valkey_version".as_ptr()) }.is_null();
        // SAFETY: as above; freed once.
        unsafe { (self.api.free_server_info)(self.ctx, info) };
        valkey
    }

    fn log_warning(&self, message: &str) {
        let message = CString::new(message).unwrap_or_default();
        // SAFETY: the context of the running OnLoad; the format takes one C string.
        unsafe { (self.api.log)(self.ctx, c"warning".as_ptr(), c"%s".as_ptr(), message.as_ptr()) };
    }
}

/// Exports the two functions that a server looks for in a module.
macro_rules! export_module {
    (
        name: $name:expr,
        version: $version:expr,
        register: $register:path,
        unregister: $unregister:path,
    ) => {
        /// Called by the server to load the module.
        ///
        /// # Safety
        /// For the server alone, with the arguments of its module API.
        #[allow(unsafe_code, non_snake_case)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn RedisModule_OnLoad(
            ctx: *mut ::redis_module::raw::RedisModuleCtx,
            argv: *mut *mut ::redis_module::raw::RedisModuleString,
            argc: ::std::ffi::c_int,
        ) -> ::std::ffi::c_int {
            // SAFETY: called by the server, as said.
            unsafe { $crate::server::load(ctx, argv, argc, $name, $version, $register) }
        }

        /// Called by the server to unload the module.
        #[allow(unsafe_code, non_snake_case)]
        #[unsafe(no_mangle)]
        pub extern "C" fn RedisModule_OnUnload(
            _ctx: *mut ::redis_module::raw::RedisModuleCtx,
        ) -> ::std::ffi::c_int {
            $crate::server::unload($unregister)
        }
    };
}
pub(crate) use export_module;
