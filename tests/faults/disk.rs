//! No more room for the AOF.
//!
//! A limit of the size of files stands for the full disk (RLIMIT_FSIZE, which another process can lift): the server sees the
//! same failed and shortened writes. The signal that comes with it is ignored, as a full disk sends none.

use std::process::Command;

use harness::redis::Connection;
use harness::{Ask, Server, wait};

use crate::load::{missing, take, take_times};

fn with_room_for_100_kb(appendfsync: &str) -> Server {
    Server::builder()
        .wrapper(&["prlimit", "--fsize=100000:unlimited", "sh", "-c", "trap '' XFSZ; exec \"$@\"", "sh"])
        .config("appendonly", "yes")
        .config("appendfsync", appendfsync)
        .start()
}

/// Takes until it fails: how many were allowed, and with what words the next was refused.
fn take_until_full(connection: &mut Connection) -> (u32, String) {
    for taken in 0..100_000 {
        if let Err(error) = take(connection, "k") {
            assert!(taken > 100, "only {taken} takes fitted: {error}");
            return (taken, error);
        }
    }
    panic!("the file grows and grows");
}

#[test]
fn takes_are_refused_while_the_disk_is_full_and_all_that_were_answered_are_there_later() {
    for appendfsync in ["no", "everysec"] {
        let mut server = with_room_for_100_kb(appendfsync);
        let mut connection = server.connection();
        let (taken, error) = take_until_full(&mut connection);
        assert!(error.contains("AOF"), "{appendfsync}: {error}");
        let peek: [i64; 4] = connection.ask("RL.PEEK k 1000000 1/m 0");
        assert_eq!(peek[0], 1, "{appendfsync}: PEEK writes nothing and goes on");
        assert_eq!(missing(&mut connection, "k"), taken, "{appendfsync}: what was refused changed nothing");

        let pid = server.pid().to_string();
        let lifted = Command::new("prlimit").args(["--pid", &pid, "--fsize=unlimited:unlimited"]).status();
        assert!(lifted.is_ok_and(|status| status.success()), "prlimit failed");
        wait::until(wait::PATIENCE, "takes after there is room", || take(&mut connection, "k"));
        take_times(&mut connection, "k", 10);
        // Which everysec may put off.
        wait::until(wait::PATIENCE, "all to be written", || {
            match server.info("persistence", "aof_buffer_length").as_str() {
                "0" => Ok(()),
                length => Err(format!("{length} bytes are not")),
            }
        });
        server.kill();
        server.start_again();
        assert_eq!(missing(&mut server.connection(), "k"), taken + 11, "{appendfsync}");
    }
}

/// The server answers the take that no longer fits, since it finds out afterwards; with `always` it ends itself instead. (With
/// `everysec` it finds out up to two seconds later if it has put off writing, as in [`crate::crash`].)
#[test]
fn a_kill_while_the_disk_is_full_loses_at_most_the_take_that_did_not_fit() {
    for (appendfsync, lost) in [("no", 1), ("always", 0)] {
        let mut server = with_room_for_100_kb(appendfsync);
        let (taken, error) = take_until_full(&mut server.connection());
        server.kill();
        server.start_again();
        let mut connection = server.connection();
        let missing = missing(&mut connection, "k");
        assert!(
            (taken - lost..=taken).contains(&missing),
            "{appendfsync}: {taken} takes were answered, then {error:?}; {missing} are there"
        );
        assert!(connection.ask::<i64>("PTTL k") > 0, "{appendfsync}: no expiry");
    }
}
