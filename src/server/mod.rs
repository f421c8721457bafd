//! Every call to the server's module API, and with it every `unsafe` of this crate.
//!
//! What leaves this directory is safe to use from outside it: a [`Call`] is one running command, a [`Key`] an open key, a
//! [`Text`] a string of the server's; each gives back on drop what it took. The crate redis-module is used for its
//! bindings alone. Its safe layer was rejected: it collects the arguments in a `Vec`, unwraps functions that older servers
//! lack, reports a successful overwrite of a hash field as an error, and costs twice the time (its `redis_module!` also
//! puts a backtrace into crash reports, which std cannot take where the server was opened with RTLD_DEEPBIND).
//!
//! The server runs commands, INFO callbacks, load and unload on one thread at a time, under its own lock. That is what the
//! SAFETY notes call "the server's thread".
#![allow(unsafe_code)]

mod api;
mod call;
mod command;
mod config;
mod info;
mod key;
mod load;
mod panic;
mod text;

pub(crate) use api::Api;
pub(crate) use call::Call;
pub(crate) use command::{Arg, ArgKind, Command, Description};
pub(crate) use config::NumericConfig;
pub(crate) use info::{InfoSection, Report};
pub(crate) use key::{Key, KeyKind, Mode};
pub(crate) use load::{Loader, export_module, load, unload};
pub(crate) use text::Text;

use std::ffi::CStr;

/// What a command answers instead of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Error {
    /// The server's own words for a wrong number of arguments.
    WrongArity,
    /// An error code and a sentence, such as `ERR at most 64 buckets`.
    Message(&'static CStr),
}
