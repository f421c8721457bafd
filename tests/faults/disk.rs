//! No more room for the AOF.
//!
//! A limit of the size of files stands for the full disk (RLIMIT_FSIZE, which another process can lift): the server sees the
//! same failed and shortened writes. The signal that comes with it is ignored, as a full disk sends none.

use std::process::Command;

use harness::{Ask, Server, wait};

use crate::load::{missing, take, take_times};

#[test]
fn takes_are_refused_while_the_disk_is_full_and_all_that_were_answered_are_there_later() {
    let mut server = Server::builder()
        .wrapper(&["prlimit", "--fsize=100000:unlimited", "sh", "-c", "trap '' XFSZ; exec \"$@\"", "sh"])
        .config("appendonly", "yes")
        // `always` ends the server itself when it cannot write.
        .config("appendfsync", "everysec")
        .start();
    let mut connection = server.connection();
    let mut taken = 0;
    let error = loop {
        match take(&mut connection, "k") {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
        assert!(taken < 100_000, "the file grows and grows");
    };
    assert!(error.contains("AOF"), "{error}");
    assert!(taken > 100, "only {taken} takes fitted");
    let peek: [i64; 4] = connection.ask("RL.PEEK k 1000000 1/m 0");
    assert_eq!(peek[0], 1, "PEEK writes nothing and goes on");
    assert_eq!(missing(&mut connection, "k"), taken, "what was refused changed nothing");

    let pid = server.pid().to_string();
    let lifted = Command::new("prlimit").args(["--pid", &pid, "--fsize=unlimited:unlimited"]).status();
    assert!(lifted.is_ok_and(|status| status.success()), "prlimit failed");
    wait::until(wait::PATIENCE, "takes after there is room", || take(&mut connection, "k"));
    take_times(&mut connection, "k", 10);
    server.kill();
    server.start_again();
    assert_eq!(missing(&mut server.connection(), "k"), taken + 11);
}
