//! The functions of the module API, checked once.

use std::ffi::{c_char, c_int, c_long, c_longlong, c_uint, c_ulonglong, c_void};
use std::sync::OnceLock;

use redis_module::raw::{
    RedisModule_AddACLCategory, RedisModule_Call, RedisModule_CloseKey, RedisModule_CreateCommand,
    RedisModule_CreateString, RedisModule_DeleteKey, RedisModule_FreeCallReply, RedisModule_FreeServerInfo,
    RedisModule_FreeString, RedisModule_GetAbsExpire, RedisModule_GetCommand, RedisModule_GetExpire,
    RedisModule_GetModuleOptionsAll, RedisModule_GetServerInfo, RedisModule_HashGet, RedisModule_HashSet,
    RedisModule_InfoAddFieldCString, RedisModule_InfoAddFieldULongLong, RedisModule_InfoAddSection,
    RedisModule_KeyType, RedisModule_LoadConfigs, RedisModule_Log, RedisModule_Milliseconds,
    RedisModule_OpenKey, RedisModule_RegisterInfoFunc, RedisModule_RegisterNumericConfig,
    RedisModule_Replicate, RedisModule_ReplyWithArray, RedisModule_ReplyWithError,
    RedisModule_ReplyWithLongLong, RedisModule_ReplyWithSimpleString, RedisModule_ReplyWithStringBuffer,
    RedisModule_ServerInfoGetFieldC, RedisModule_SetAbsExpire, RedisModule_SetCommandACLCategories,
    RedisModule_SetCommandInfo, RedisModule_SetModuleOptions, RedisModule_SignalModifiedKey,
    RedisModule_StringDMA, RedisModule_StringPtrLen, RedisModule_ValueLength, RedisModule_WrongArity,
    RedisModuleCallReply as CallReply, RedisModuleCmdFunc as CmdFunc, RedisModuleCommand as CommandHandle,
    RedisModuleCommandInfo as CommandInfo, RedisModuleConfigApplyFunc as ConfigApplyFunc,
    RedisModuleConfigGetNumericFunc as ConfigGetNumericFunc,
    RedisModuleConfigSetNumericFunc as ConfigSetNumericFunc, RedisModuleCtx as Ctx,
    RedisModuleInfoCtx as InfoCtx, RedisModuleInfoFunc as InfoFunc, RedisModuleKey as KeyHandle,
    RedisModuleServerInfoData as ServerInfo, RedisModuleString as Str,
};

/// Declares [`Api`] and how it is filled: functions that every supported server has as they are, later ones as options.
macro_rules! api {
    (
        required { $($field:ident: $symbol:ident = $type:ty,)* }
        optional { $($later:ident: $later_symbol:ident = $later_type:ty,)* }
    ) => {
        /// The server's functions. redis-module keeps each as an `Option` in a `static mut`; here it is settled at load
        /// that they are there, so that no handler has a case for a missing one.
        pub(crate) struct Api {
            $(pub(super) $field: $type,)*
            $(pub(super) $later: Option<$later_type>,)*
        }

        impl Api {
            /// Reads the table that `Export_RedisModule_Init` has filled, or names the function that is missing.
            ///
            /// # Safety
            /// After `Export_RedisModule_Init` succeeded, on the server's thread.
            pub(super) unsafe fn read() -> Result<Api, &'static str> {
                Ok(Api {
                    // SAFETY: the statics are written by Init only, which ran before on this thread.
                    $($field: unsafe { $symbol }.ok_or(stringify!($symbol))?,)*
                    // SAFETY: as above.
                    $($later: unsafe { $later_symbol },)*
                })
            }
        }
    };
}

api! {
    required {
        call: RedisModule_Call = unsafe extern "C" fn(*mut Ctx, *const c_char, *const c_char, ...) -> *mut CallReply,
        close_key: RedisModule_CloseKey = unsafe extern "C" fn(*mut KeyHandle),
        create_command: RedisModule_CreateCommand =
            unsafe extern "C" fn(*mut Ctx, *const c_char, CmdFunc, *const c_char, c_int, c_int, c_int) -> c_int,
        create_string: RedisModule_CreateString = unsafe extern "C" fn(*mut Ctx, *const c_char, usize) -> *mut Str,
        delete_key: RedisModule_DeleteKey = unsafe extern "C" fn(*mut KeyHandle) -> c_int,
        free_call_reply: RedisModule_FreeCallReply = unsafe extern "C" fn(*mut CallReply),
        free_server_info: RedisModule_FreeServerInfo = unsafe extern "C" fn(*mut Ctx, *mut ServerInfo),
        free_string: RedisModule_FreeString = unsafe extern "C" fn(*mut Ctx, *mut Str),
        get_expire: RedisModule_GetExpire = unsafe extern "C" fn(*mut KeyHandle) -> c_longlong,
        get_server_info: RedisModule_GetServerInfo = unsafe extern "C" fn(*mut Ctx, *const c_char) -> *mut ServerInfo,
        hash_get: RedisModule_HashGet = unsafe extern "C" fn(*mut KeyHandle, c_int, ...) -> c_int,
        hash_set: RedisModule_HashSet = unsafe extern "C" fn(*mut KeyHandle, c_int, ...) -> c_int,
        info_add_field_cstring: RedisModule_InfoAddFieldCString =
            unsafe extern "C" fn(*mut InfoCtx, *const c_char, *const c_char) -> c_int,
        info_add_field_u64: RedisModule_InfoAddFieldULongLong =
            unsafe extern "C" fn(*mut InfoCtx, *const c_char, c_ulonglong) -> c_int,
        info_add_section: RedisModule_InfoAddSection = unsafe extern "C" fn(*mut InfoCtx, *const c_char) -> c_int,
        key_type: RedisModule_KeyType = unsafe extern "C" fn(*mut KeyHandle) -> c_int,
        log: RedisModule_Log = unsafe extern "C" fn(*mut Ctx, *const c_char, *const c_char, ...),
        milliseconds: RedisModule_Milliseconds = unsafe extern "C" fn() -> c_longlong,
        open_key: RedisModule_OpenKey = unsafe extern "C" fn(*mut Ctx, *mut Str, c_int) -> *mut KeyHandle,
        register_info_func: RedisModule_RegisterInfoFunc = unsafe extern "C" fn(*mut Ctx, InfoFunc) -> c_int,
        replicate: RedisModule_Replicate = unsafe extern "C" fn(*mut Ctx, *const c_char, *const c_char, ...) -> c_int,
        reply_with_array: RedisModule_ReplyWithArray = unsafe extern "C" fn(*mut Ctx, c_long) -> c_int,
        reply_with_error: RedisModule_ReplyWithError = unsafe extern "C" fn(*mut Ctx, *const c_char) -> c_int,
        reply_with_long_long: RedisModule_ReplyWithLongLong = unsafe extern "C" fn(*mut Ctx, c_longlong) -> c_int,
        reply_with_simple_string: RedisModule_ReplyWithSimpleString =
            unsafe extern "C" fn(*mut Ctx, *const c_char) -> c_int,
        reply_with_string_buffer: RedisModule_ReplyWithStringBuffer =
            unsafe extern "C" fn(*mut Ctx, *const c_char, usize) -> c_int,
        server_info_get_field: RedisModule_ServerInfoGetFieldC =
            unsafe extern "C" fn(*mut ServerInfo, *const c_char) -> *const c_char,
        set_module_options: RedisModule_SetModuleOptions = unsafe extern "C" fn(*mut Ctx, c_int),
        signal_modified_key: RedisModule_SignalModifiedKey = unsafe extern "C" fn(*mut Ctx, *mut Str) -> c_int,
        string_dma: RedisModule_StringDMA =
            unsafe extern "C" fn(*mut KeyHandle, *mut usize, c_int) -> *mut c_char,
        string_ptr_len: RedisModule_StringPtrLen = unsafe extern "C" fn(*const Str, *mut usize) -> *const c_char,
        value_length: RedisModule_ValueLength = unsafe extern "C" fn(*mut KeyHandle) -> usize,
        wrong_arity: RedisModule_WrongArity = unsafe extern "C" fn(*mut Ctx) -> c_int,
    }
    optional {
        // Redis 6.2.2
        get_abs_expire: RedisModule_GetAbsExpire = unsafe extern "C" fn(*mut KeyHandle) -> c_longlong,
        set_abs_expire: RedisModule_SetAbsExpire = unsafe extern "C" fn(*mut KeyHandle, c_longlong) -> c_int,
        // Redis 7.0
        get_command: RedisModule_GetCommand = unsafe extern "C" fn(*mut Ctx, *const c_char) -> *mut CommandHandle,
        load_configs: RedisModule_LoadConfigs = unsafe extern "C" fn(*mut Ctx) -> c_int,
        register_numeric_config: RedisModule_RegisterNumericConfig = unsafe extern "C" fn(
            *mut Ctx,
            *const c_char,
            c_longlong,
            c_uint,
            c_longlong,
            c_longlong,
            ConfigGetNumericFunc,
            ConfigSetNumericFunc,
            ConfigApplyFunc,
            *mut c_void,
        ) -> c_int,
        set_command_info: RedisModule_SetCommandInfo =
            unsafe extern "C" fn(*mut CommandHandle, *const CommandInfo) -> c_int,
        // Redis 7.2
        get_module_options_all: RedisModule_GetModuleOptionsAll = unsafe extern "C" fn() -> c_int,
        set_command_acl_categories: RedisModule_SetCommandACLCategories =
            unsafe extern "C" fn(*mut CommandHandle, *const c_char) -> c_int,
        // Redis 7.4, Valkey 8.0
        add_acl_category: RedisModule_AddACLCategory = unsafe extern "C" fn(*mut Ctx, *const c_char) -> c_int,
    }
}

static API: OnceLock<Api> = OnceLock::new();

impl Api {
    /// The functions of the server that loaded the module; none before that.
    pub(super) fn get() -> Option<&'static Api> {
        API.get()
    }

    /// Keeps `api` for [`Api::get`].
    pub(super) fn keep(api: Api) -> &'static Api {
        API.get_or_init(|| api)
    }
}
