//! The module's section of INFO.

use std::ffi::{CStr, c_int};

use redis_module::raw::RedisModuleInfoCtx;

use super::{Api, Loader};

/// An open section of an INFO reply.
pub(crate) struct InfoSection {
    api: &'static Api,
    ctx: *mut RedisModuleInfoCtx,
    for_crash_report: bool,
}

impl InfoSection {
    /// Whether the server is crashing. Any thread may ask then, in the middle of a command.
    pub(crate) fn is_crash_report(&self) -> bool {
        self.for_crash_report
    }

    /// Adds `rl_<name>:<value>`.
    pub(crate) fn count(&self, name: &CStr, value: u64) {
        // SAFETY: the context of the running callback; the name is copied.
        unsafe { (self.api.info_add_field_u64)(self.ctx, name.as_ptr(), value) };
    }

    /// Adds `rl_<name>:<value>`.
    pub(crate) fn text(&self, name: &CStr, value: &CStr) {
        // SAFETY: the context of the running callback; both texts are copied.
        unsafe { (self.api.info_add_field_cstring)(self.ctx, name.as_ptr(), value.as_ptr()) };
    }
}

/// Fills the section: a type, so that the C callback below is one function for each.
pub(crate) trait Report {
    const SECTION: &'static CStr;
    fn report(section: &InfoSection);
}

impl Loader {
    /// Answers `INFO rl` by `R`.
    pub(crate) fn info<R: Report>(&self) {
        // SAFETY: the context of the running OnLoad, and a function that lives as long as the module.
        unsafe { (self.api.register_info_func)(self.ctx, Some(callback::<R>)) };
    }
}

extern "C" fn callback<R: Report>(ctx: *mut RedisModuleInfoCtx, for_crash_report: c_int) {
    let Some(api) = Api::get() else { return };
    // SAFETY: the context of this callback; the name is copied.
    unsafe { (api.info_add_section)(ctx, R::SECTION.as_ptr()) };
    // A report reads counters and cannot panic in a way worth a reply; an unwind must not cross into the server.
    let _ = super::panic::contain(|| {
        R::report(&InfoSection { api, ctx, for_crash_report: for_crash_report != 0 });
        Ok(())
    });
}
