//! The process is killed (SIGKILL) in the middle of its work.
//!
//! What the server has written to its AOF when it answers is with the operating system then, and survives the process. With
//! `always` and `no` that is everything. With `everysec` it is not: while the disk is busy with the last second's fsync, the
//! server puts off writing for up to two seconds (flushAppendOnlyFile), and answers all the same. (The loss of power is another
//! matter, and is not tried here.) A take and the expiry that it sets are one transaction in the file, so that neither comes
//! back without the other.

use std::fs;
use std::time::{Duration, Instant};

use harness::redis::Value;
use harness::{Ask, Server, wait};

use crate::load::{Load, assert_buckets, everything, missing};
use crate::versions::aof_of;

/// What `everysec` may lose of what was answered; half a second for the server to come to it.
const PUT_OFF: Duration = Duration::from_millis(2_500);

fn killed_under_load(appendfsync: &str, rounds: usize, lost: Duration) {
    let mut server = Server::builder().config("appendonly", "yes").config("appendfsync", appendfsync).start();
    let mut random = fastrand::Rng::new();
    for round in 0..rounds {
        server.connection().ask::<()>("FLUSHALL");
        let load = Load::start(&server);
        let start = Instant::now();
        let mut watcher = server.connection();
        let loaded = wait::try_until(wait::PATIENCE, || match missing(&mut watcher, "caller:0") {
            0 => Err("nothing was taken".to_owned()),
            // Long enough for something to be old enough to be there for sure.
            _ if start.elapsed() < 2 * lost => Err("not for long enough".to_owned()),
            _ => Ok(()),
        });
        // Not to wait for anything: to be killed at another moment each time.
        std::thread::sleep(Duration::from_micros(random.u64(..300_000)));
        server.kill();
        let answers = load.join();
        loaded.unwrap_or_else(|reason| panic!("round {round}: {reason}"));
        server.start_again();
        assert_buckets(&mut server.connection(), &answers, lost);
    }
}

#[test]
fn every_answered_take_is_there_after_a_kill_with_fsync_at_each_write() {
    killed_under_load("always", 4, Duration::ZERO);
}

#[test]
fn every_answered_take_is_there_after_a_kill_without_fsync() {
    killed_under_load("no", 4, Duration::ZERO);
}

#[test]
fn all_but_the_last_two_seconds_are_there_after_a_kill_with_fsync_each_second() {
    killed_under_load("everysec", 1, PUT_OFF);
}

/// A process is hardly ever killed within one write, but a machine that loses its power leaves such files.
#[test]
fn a_file_that_ends_within_a_take_is_read_without_it_and_never_with_half_of_it() {
    let mut server = Server::builder()
        .config("appendonly", "yes")
        .config("appendfsync", "always")
        .config("aof-use-rdb-preamble", "no")
        .start();
    let mut connection = server.connection();
    let mut file = Vec::new();
    let mut states = Vec::new();
    let mut lengths = Vec::new();
    // The second needs a later expiry than the first.
    for line in ["RL.TAKE k 10 1/h 3", "RL.TAKE k 10 1/h 6"] {
        connection.ask::<Value>(line);
        states.push(everything(&mut connection));
        file = fs::read(aof_of(&server)).expect("the AOF");
        lengths.push(file.len());
    }
    server.kill();
    assert_ne!(states[0]["k"].1, states[1]["k"].1, "the second take sets another expiry");
    let ends = (lengths[0]..=file.len()).filter(|&end| end == lengths[0] || file[end - 1] == b'\n');
    let cut = server.dir().join("cut.aof");
    let mut cuts = 0;
    for end in ends {
        fs::write(&cut, &file[..end]).expect("a file");
        let reader = Server::builder().config("appendonly", "yes").data(&cut, "appendonly.aof").start();
        let expected = &states[usize::from(end == file.len())];
        assert_eq!(
            &everything(&mut reader.connection()),
            expected,
            "cut after {end} of {} bytes",
            file.len()
        );
        cuts += 1;
    }
    assert!(cuts > 10, "{cuts} cuts: the take is no transaction of several commands");
}
