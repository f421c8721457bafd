//! The harness itself, on servers without the module.

use std::panic::catch_unwind;
use std::path::Path;

use redis_token_bucket_harness::{Ask, Server};

#[test]
fn a_server_ends_with_its_owner() {
    let server = Server::builder().without_module().start();
    let (dir, pid) = (server.dir().to_owned(), server.pid());
    assert_eq!(server.connection().ask::<String>("PING"), "PONG");
    drop(server);
    assert!(!dir.exists(), "{} is left behind", dir.display());
    assert!(!Path::new("/proc").join(pid.to_string()).exists(), "process {pid} is left behind");
}

#[test]
fn a_server_that_cannot_start_shows_its_log() {
    let start = || Server::builder().without_module().config("dir", "/nonexistent").start();
    let panic = catch_unwind(start).expect_err("a server in no directory");
    let message = panic.downcast_ref::<String>().expect("a message");
    assert!(message.contains("did not come up"), "{message}");
}

#[test]
fn a_restart_keeps_the_data_that_were_saved() {
    let mut server = Server::builder().without_module().config("appendonly", "yes").start();
    server.connection().ask::<()>("SET k v");
    server.shutdown();
    server.start_again();
    assert_eq!(server.connection().ask::<String>("GET k"), "v");
}
