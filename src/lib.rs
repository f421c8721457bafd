//! The server module of redis-token-bucket: native token buckets for Redis and Valkey.
//!
//! | command | does | file |
//! |---|---|---|
//! | `RL.TAKE key capacity rate [cost]` | takes `cost` tokens, or nothing at all | `commands/take.rs` |
//! | `RL.PEEK key capacity rate [cost]` | says what RL.TAKE would answer; changes nothing | `commands/peek.rs` |
//! | `RL.TAKEALL key capacity rate cost [...]` | takes from every bucket, or from none | `commands/takeall.rs` |
//! | `RL.GIVE key capacity rate amount` | gives tokens back, never above capacity | `commands/give.rs` |
//! | `RL.CHARGE key capacity rate amount` | takes unconditionally; the balance may go below zero | `commands/charge.rs` |
//! | `RL.HOT [DENIED] [COUNT n]`, `RL.HOT RESET` | lists the keys taken from, or denied, most | `commands/hot.rs` |
//! | `CL.THROTTLE key max_burst count period [quantity]` | redis-cell's command, when asked for | `commands/throttle.rs` |
//!
//! A request runs through the directories in this order: `server/` receives it (and holds every unsafe call),
//! `commands/` speaks the protocol, `request` checks the arguments, `store` reads the hash, the crate
//! redis-token-bucket-core decides, `store` writes and replicates, `commands/` replies.
//!
//! The library is loaded by a server (`loadmodule libredis_token_bucket.so`); there is nothing in it to call from Rust.
//! Services use the crate redis-token-bucket-client.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used
    )
)]

mod arrival;
mod clock;
mod commands;
mod hot;
mod options;
mod request;
mod server;
mod stats;
mod store;

server::export_module! {
    name: c"rl",
    version: stats::VERSION_NUMBER,
    register: register,
    unregister: hot::turn_off,
}

fn register(loader: &server::Loader, arguments: &[&[u8]]) -> Result<(), String> {
    let options = options::Options::parse(arguments)?;
    store::prepare(loader.api());
    loader.command::<commands::Take>()?;
    loader.command::<commands::Peek>()?;
    loader.command::<commands::TakeAll>()?;
    loader.command::<commands::Give>()?;
    loader.command::<commands::Charge>()?;
    loader.command::<commands::Hot>()?;
    if options.cl_throttle {
        loader.command::<commands::Throttle>()?;
    }
    #[cfg(debug_assertions)]
    loader.command::<commands::Panic>()?;
    loader.info::<stats::Stats>();
    loader.numeric_config::<hot::HotKeys>(options.hot_keys.into())?;
    Ok(())
}
