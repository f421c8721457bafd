//! Replicas that fall behind, are made anew, and take over. Under load.

use std::time::Duration;

use harness::redis::cmd;
use harness::{Ask, Server, wait};

use crate::load::{Load, assert_buckets, everything, missing, take};

fn await_load(server: &Server, tokens: u32) {
    let mut watcher = server.connection();
    wait::until(wait::PATIENCE, "some load", || match missing(&mut watcher, "caller:0") {
        missing if missing >= tokens => Ok(()),
        missing => Err(format!("{missing} taken")),
    });
}

#[test]
fn a_replica_made_under_load_has_all_that_the_master_had() {
    let mut master = Server::builder().tcp().start();
    let load = Load::start(&master);
    await_load(&master, 10);
    let replica = Server::builder().start_replica_of(&master);
    await_load(&master, missing(&mut master.connection(), "caller:0") + 100);
    master.connection().ask::<()>("CLIENT PAUSE 60000 WRITE");
    replica.await_offset_of(&master);
    assert_eq!(everything(&mut replica.connection()), everything(&mut master.connection()));
    replica.connection().ask::<()>("REPLICAOF NO ONE");
    master.kill();
    // Promoted by hand: every answered take is there, since it had caught up.
    assert_buckets(&mut replica.connection(), &load.join(), Duration::ZERO);
    take(&mut replica.connection(), "caller:0").expect("the new master takes");
}

#[test]
fn a_slow_replica_is_dropped_comes_back_and_is_equal_again() {
    let mut master = Server::builder()
        .tcp()
        .config("client-output-buffer-limit", "replica 64kb 64kb 1")
        .config("repl-backlog-size", "16kb")
        .start();
    let replica = Server::builder().start_replica_of(&master);
    let full_resyncs =
        |server: &Server| -> u32 { server.info("stats", "sync_full").parse().expect("a number") };
    let before = full_resyncs(&master);
    let load = Load::start(&master);
    // A process that is stopped reads nothing.
    replica.signal("STOP");
    wait::until(Duration::from_secs(60), "the master to drop the replica", || {
        match master.info("replication", "connected_slaves").as_str() {
            "0" => Ok(()),
            other => Err(format!("{other} replicas")),
        }
    });
    // Under this load it would be dropped again during the synchronisation, and again.
    let no_limit = ["SET", "client-output-buffer-limit", "replica 0 0 0"];
    cmd("CONFIG").arg(&no_limit).exec(&mut master.connection()).expect("CONFIG SET");
    replica.signal("CONT");
    wait::until(wait::PATIENCE, "the replica to come back", || {
        let link = replica.info("replication", "master_link_status");
        if link == "up" && full_resyncs(&master) > before { Ok(()) } else { Err(format!("link {link:?}")) }
    });
    master.connection().ask::<()>("CLIENT PAUSE 60000 WRITE");
    replica.await_offset_of(&master);
    assert_eq!(everything(&mut replica.connection()), everything(&mut master.connection()));
    master.kill();
    assert_buckets(&mut replica.connection(), &load.join(), Duration::ZERO);
}
