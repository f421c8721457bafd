//! Commands: what they are called, what they promise, and the way from the server into their handlers.

use std::ffi::{CStr, CString, c_int};
use std::{ptr, slice};

use redis_module::raw::{
    REDISMODULE_CMD_ARG_MULTIPLE, REDISMODULE_CMD_ARG_OPTIONAL, REDISMODULE_CMD_KEY_ACCESS,
    REDISMODULE_CMD_KEY_RO, REDISMODULE_CMD_KEY_RW, REDISMODULE_CMD_KEY_UPDATE, REDISMODULE_ERR,
    REDISMODULE_OK, RedisModuleCommandArg, RedisModuleCommandArgType,
    RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK as BLOCK,
    RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_DOUBLE as DOUBLE,
    RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER as INTEGER,
    RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY as KEY,
    RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF as ONE_OF,
    RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN as PURE_TOKEN,
    RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING as STRING, RedisModuleCommandHistoryEntry,
    RedisModuleCommandInfo, RedisModuleCommandInfoVersion, RedisModuleCommandKeySpec,
    RedisModuleCommandKeySpec__bindgen_ty_1 as BeginSearch,
    RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_1 as BeginAtIndex,
    RedisModuleCommandKeySpec__bindgen_ty_2 as FindKeys,
    RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 as FindInRange, RedisModuleCtx,
    RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX as BEGIN_AT_INDEX,
    RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE as FIND_IN_RANGE, RedisModuleString,
};

use super::{Api, Call, Error, Loader, panic};

/// A command of the module.
pub(crate) trait Command {
    /// What the server is told of it.
    const DESCRIPTION: Description;

    /// Answers one call. It replies unless it returns an error, and writes nothing if it does.
    fn run(call: &Call<'_>) -> Result<(), Error>;

    /// Called once for each call that was answered an error.
    fn count_error();
}

/// What COMMAND INFO and COMMAND DOCS tell, and what clients route by.
pub(crate) struct Description {
    pub(crate) name: &'static CStr,
    pub(crate) summary: &'static CStr,
    pub(crate) complexity: &'static CStr,
    /// The module's version that brought it.
    pub(crate) since: &'static CStr,
    /// Number of arguments, the name included; -n for n or more.
    pub(crate) arity: i32,
    /// The server's flags, by their names.
    pub(crate) flags: &'static CStr,
    /// Built-in ACL categories. Given besides the flags, since a server does not derive them for a module's command.
    pub(crate) acl_categories: &'static CStr,
    /// Positions of the keys: first, last (negative: from the end), step.
    pub(crate) keys: (i32, i32, i32),
    pub(crate) args: &'static [Arg],
}

/// One argument of a command.
pub(crate) struct Arg {
    pub(crate) name: &'static CStr,
    pub(crate) kind: ArgKind,
    pub(crate) optional: bool,
}

/// What an argument is.
#[derive(Clone, Copy)]
pub(crate) enum ArgKind {
    Key,
    Integer,
    Number,
    Text,
    /// The word itself.
    Word(&'static CStr),
    /// The word, and a whole number after it.
    IntegerAfter(&'static CStr),
    /// One of several.
    OneOf(&'static [Arg]),
    /// Several, one after the other.
    Group(&'static [Arg]),
    /// As [`ArgKind::Group`], as often as one likes.
    Groups(&'static [Arg]),
}

/// The category that all commands are in on servers that let a module add one.
const ACL_CATEGORY: &CStr = c"ratelimit";

impl Loader {
    /// Adds the ACL category where the server has a function for it. It may be there already: an unload leaves it.
    pub(super) fn add_acl_category(&self) {
        if let Some(add) = self.api.add_acl_category {
            // SAFETY: the context of the running OnLoad; the name is copied.
            unsafe { add(self.ctx, ACL_CATEGORY.as_ptr()) };
        }
    }

    /// Registers `C`, with all that this server can be told of it.
    pub(crate) fn command<C: Command>(&self) -> Result<(), String> {
        let description = &C::DESCRIPTION;
        let name = description.name.to_string_lossy();
        let (first, last, step) = description.keys;
        // SAFETY: the context of the running OnLoad, a handler that lives as long as the module, texts that are copied.
        let created = unsafe {
            (self.api.create_command)(
                self.ctx,
                description.name.as_ptr(),
                Some(handle::<C>),
                description.flags.as_ptr(),
                first,
                last,
                step,
            )
        };
        if created == REDISMODULE_ERR as c_int {
            return Err(format!("command {name} could not be registered; is its name taken?"));
        }
        let Some(get_command) = self.api.get_command else { return Ok(()) };
        // SAFETY: as above.
        let command = unsafe { get_command(self.ctx, description.name.as_ptr()) };
        if command.is_null() {
            return Err(format!("command {name} is not there after it was registered"));
        }
        if let Some(set_info) = self.api.set_command_info {
            // SAFETY: the server copies what it keeps.
            with_command_info(description, |info| unsafe { set_info(command, info) });
        }
        if let Some(set_categories) = self.api.set_command_acl_categories {
            let all = [description.acl_categories.to_bytes(), ACL_CATEGORY.to_bytes()].join(&b' ');
            let all = CString::new(all).unwrap_or_default();
            // A server that knows no such category refuses them all; then the built-in ones alone.
            for categories in [all.as_c_str(), description.acl_categories] {
                // SAFETY: the command just registered; the text is copied.
                if unsafe { set_categories(command, categories.as_ptr()) } == REDISMODULE_OK as c_int {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// What the server calls for `C`.
extern "C" fn handle<C: Command>(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    let (Some(api), Ok(argc)) = (Api::get(), usize::try_from(argc)) else {
        return REDISMODULE_ERR as c_int;
    };
    // SAFETY: the server passes `argc` strings, at least the command's name.
    let argv = unsafe { slice::from_raw_parts(argv, argc) };
    // SAFETY: context and arguments of the running command, which ends after `call` does.
    let call = unsafe { Call::new(api, ctx, argv) };
    if let Err(error) = panic::contain(|| C::run(&call)) {
        C::count_error();
        call.reply_error(error);
    }
    REDISMODULE_OK as c_int
}

/// Builds the C form of a description for as long as `use_it` runs.
fn with_command_info(description: &Description, use_it: impl FnOnce(*const RedisModuleCommandInfo) -> c_int) {
    let version = RedisModuleCommandInfoVersion {
        version: 1,
        sizeof_historyentry: size_of::<RedisModuleCommandHistoryEntry>(),
        sizeof_keyspec: size_of::<RedisModuleCommandKeySpec>(),
        sizeof_arg: size_of::<RedisModuleCommandArg>(),
    };
    let (first, last, step) = description.keys;
    let writes = description.flags.to_bytes().starts_with(b"write");
    let access = if writes {
        REDISMODULE_CMD_KEY_RW | REDISMODULE_CMD_KEY_ACCESS | REDISMODULE_CMD_KEY_UPDATE
    } else {
        REDISMODULE_CMD_KEY_RO | REDISMODULE_CMD_KEY_ACCESS
    };
    // SAFETY: for the server an entry of zeros ends the list, as in C.
    let end_of_keys = unsafe { std::mem::zeroed::<RedisModuleCommandKeySpec>() };
    let mut key_specs = [
        RedisModuleCommandKeySpec {
            flags: access.into(),
            begin_search_type: BEGIN_AT_INDEX,
            bs: BeginSearch { index: BeginAtIndex { pos: first } },
            find_keys_type: FIND_IN_RANGE,
            // The last key counts from the first one here, unless it counts from the end.
            fk: FindKeys {
                range: FindInRange {
                    lastkey: if last < 0 { last } else { last.saturating_sub(first) },
                    keystep: step,
                    limit: 0,
                },
            },
            ..end_of_keys
        },
        end_of_keys,
    ];
    let mut lists = Vec::new();
    let info = RedisModuleCommandInfo {
        version: &version,
        summary: description.summary.as_ptr(),
        complexity: description.complexity.as_ptr(),
        since: description.since.as_ptr(),
        history: ptr::null_mut(),
        tips: ptr::null(),
        arity: description.arity,
        key_specs: if first == 0 { ptr::null_mut() } else { key_specs.as_mut_ptr() },
        args: command_args(description.args, &mut lists),
    };
    use_it(&info);
}

/// The C form of a list of arguments, and of the lists within it; `lists` keeps them in memory.
fn command_args(args: &[Arg], lists: &mut Vec<Vec<RedisModuleCommandArg>>) -> *mut RedisModuleCommandArg {
    // SAFETY: for the server an entry of zeros ends the list, as in C.
    let end = unsafe { std::mem::zeroed::<RedisModuleCommandArg>() };
    let mut list: Vec<RedisModuleCommandArg> =
        args.iter().map(|arg| command_arg(arg, end, lists)).chain([end]).collect();
    // It stays in its place on the heap when the list of lists grows.
    let first = list.as_mut_ptr();
    lists.push(list);
    first
}

fn command_arg(
    arg: &Arg,
    rest: RedisModuleCommandArg,
    lists: &mut Vec<Vec<RedisModuleCommandArg>>,
) -> RedisModuleCommandArg {
    let no_key = RedisModuleCommandArg { name: arg.name.as_ptr(), key_spec_index: -1, ..rest };
    let word = |word: &'static CStr| RedisModuleCommandArg { token: word.as_ptr(), ..no_key };
    let mut group = |args| RedisModuleCommandArg { subargs: command_args(args, lists), ..no_key };
    let mut multiple = 0;
    let (type_, made): (RedisModuleCommandArgType, _) = match arg.kind {
        ArgKind::Key => (KEY, RedisModuleCommandArg { key_spec_index: 0, ..no_key }),
        ArgKind::Integer => (INTEGER, no_key),
        ArgKind::Number => (DOUBLE, no_key),
        ArgKind::Text => (STRING, no_key),
        ArgKind::Word(text) => (PURE_TOKEN, word(text)),
        ArgKind::IntegerAfter(text) => (INTEGER, word(text)),
        ArgKind::OneOf(args) => (ONE_OF, group(args)),
        ArgKind::Group(args) => (BLOCK, group(args)),
        ArgKind::Groups(args) => {
            multiple = REDISMODULE_CMD_ARG_MULTIPLE as c_int;
            (BLOCK, group(args))
        }
    };
    let optional = if arg.optional { REDISMODULE_CMD_ARG_OPTIONAL as c_int } else { 0 };
    RedisModuleCommandArg { type_, flags: optional | multiple, ..made }
}
