//! Random commands on a real server, with a replica; what must hold whatever they are is checked after each batch.
//!
//! `make fuzz-server` runs it for SECONDS (RL_FUZZ_SECONDS here; a few in `make test`). RL_SEED repeats the commands of a run,
//! though not the times at which they come; the seed is printed.

mod check;
mod commands;
mod generate;
mod probe;

use std::env;
use std::time::{Duration, Instant};

use harness::redis::{Connection, ConnectionLike};
use harness::{Ask, Server};

use check::{Fixed, check_reply};
use generate::{Call, Generator};

fn setting<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, which is no number")))
}

#[test]
fn no_command_breaks_an_invariant() {
    let seconds = setting("RL_FUZZ_SECONDS").unwrap_or(5);
    let seed = setting("RL_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed} (RL_SEED={seed} repeats it)");

    let mut master = Server::builder()
        .tcp()
        .module_arguments("cl-throttle yes hot-keys 8")
        .config("repl-ping-replica-period", "3600")
        .start();
    let replica = Server::builder().start_replica_of(&master);
    let mut connections =
        [master.connection(), master.connection_resp3(), master.connection(), master.connection_resp3()];
    let mut observer = master.connection();
    let mut replica_observer = replica.connection();
    let mut generator = Generator::new(seed);
    let mut fixed = Fixed::new();

    let (start, mut commands, mut batches, mut probes) = (Instant::now(), 0, 0, 0);
    while start.elapsed() < Duration::from_secs(seconds) {
        let size = *generator.choose(&[1, 100, 1000, 5000]);
        let batch: Vec<Call> = (0..size).flat_map(|_| generator.calls()).collect();
        let which = generator.below(connections.len());
        run(&mut connections[which], &batch, &mut fixed, &master);
        commands += batch.len();
        batches += 1;

        observer.ask::<()>("CONFIG SET maxmemory 0");
        assert_eq!(observer.ask::<String>("PING"), "PONG");
        fixed.check_bounds();
        fixed.check_expiries(&mut observer);
        for _ in 0..5 {
            probes += probe::probe(&mut observer, &mut generator);
        }
        if batches % 8 == 0 {
            check::replica_is_equal(&mut observer, &mut replica_observer);
        }
    }
    println!(
        "{commands} commands in {batches} batches and {probes} probes in {:.0} s; {} tokens granted of fixed limits",
        start.elapsed().as_secs_f64(),
        fixed.granted_tokens(),
    );
    // As an operator would end it, and so that valgrind can tell what was lost.
    master.shutdown();
    assert!(probes > 0, "nothing was probed");
    assert!(fixed.granted_tokens() > 0, "nothing was granted, so that no bound was tested");
}

/// Sends a batch in one pipeline and checks every reply.
fn run(connection: &mut Connection, batch: &[Call], fixed: &mut Fixed, server: &Server) {
    let mut packed = Vec::new();
    for call in batch {
        let mut cmd = harness::redis::Cmd::new();
        cmd.arg(&call.argv);
        packed.extend(cmd.get_packed_command());
    }
    let replies = connection.req_packed_commands(&packed, 0, batch.len()).unwrap_or_else(|error| {
        let last: Vec<String> = batch.iter().rev().take(30).map(Call::to_string).collect();
        panic!(
            "{error}\nthe batch ended with (last first):\n{}\n--- log:\n{}",
            last.join("\n"),
            server.log().lines().rev().take(60).collect::<Vec<_>>().join("\n")
        )
    });
    assert_eq!(replies.len(), batch.len(), "replies to a batch");
    for (call, reply) in batch.iter().zip(&replies) {
        if let Err(wrong) = check_reply(call, reply, fixed) {
            panic!("{call}\n  was answered {reply:?}\n  {wrong}");
        }
    }
}
