//! Settings that the server keeps with its own: in its configuration file, CONFIG SET and CONFIG REWRITE.

use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};
use std::ops::RangeInclusive;
use std::ptr;

use redis_module::raw::{REDISMODULE_CONFIG_DEFAULT, REDISMODULE_ERR, REDISMODULE_OK, RedisModuleString};

use super::{Loader, panic};

/// A whole number that an operator may change at run time.
pub(crate) trait NumericConfig {
    /// The server puts the module's name and a dot before it.
    const NAME: &'static CStr;
    /// Refused by the server outside of it.
    const RANGE: RangeInclusive<i64>;

    fn get() -> i64;
    fn set(value: i64);
}

impl Loader {
    /// Sets `C` to what the configuration says, or to `default`, which is all on a server that has no settings of modules
    /// (before Redis 7.0).
    pub(crate) fn numeric_config<C: NumericConfig>(&self, default: i64) -> Result<(), String> {
        let (Some(register), Some(load)) = (self.api.register_numeric_config, self.api.load_configs) else {
            C::set(default);
            return Ok(());
        };
        // SAFETY: the context of the running OnLoad, a name that is copied, functions that live as long as the module.
        let registered = unsafe {
            register(
                self.ctx,
                C::NAME.as_ptr(),
                default,
                REDISMODULE_CONFIG_DEFAULT,
                *C::RANGE.start(),
                *C::RANGE.end(),
                Some(get::<C>),
                Some(set::<C>),
                None,
                ptr::null_mut(),
            )
        };
        // Sets every setting that was registered, and so comes after the last one.
        // SAFETY: the context of the running OnLoad.
        let loaded =
            registered == REDISMODULE_OK as c_int && unsafe { load(self.ctx) } == REDISMODULE_OK as c_int;
        if loaded { Ok(()) } else { Err(format!("the setting {} was refused", C::NAME.to_string_lossy())) }
    }
}

extern "C" fn get<C: NumericConfig>(_name: *const c_char, _: *mut c_void) -> c_longlong {
    C::get()
}

extern "C" fn set<C: NumericConfig>(
    _name: *const c_char,
    value: c_longlong,
    _: *mut c_void,
    _error: *mut *mut RedisModuleString,
) -> c_int {
    let set = panic::contain(|| {
        C::set(value);
        Ok(())
    });
    if set.is_ok() { REDISMODULE_OK as c_int } else { REDISMODULE_ERR as c_int }
}
