//! Effects are replicated, never the call; a denial is not replicated at all.

use harness::{Ask, Server};

use crate::bucket::Bench;

fn master_and_replica() -> (Bench, Bench) {
    let master = Server::builder().tcp().config("repl-ping-replica-period", "3600").start();
    let replica = Server::builder().start_replica_of(&master);
    (Bench::on(master), Bench::on(replica))
}

/// redis-cell#31
#[test]
fn a_replica_has_identical_fields_and_expiry() {
    let (mut master, mut replica) = master_and_replica();
    for arguments in [
        "a 10 1/h 3",
        "a 10 1/h 0.5",
        "b 5 7/m 5",
        "b 5 1/m 5",
        "c 1e6 12.345678 1e5",
        "a 10 1/d 1",
        "e 3 1/h 5",
    ] {
        master.take(arguments);
    }
    replica.server.await_offset_of(&master.server);
    assert_eq!(replica.everything(), master.everything());
    assert_eq!(replica.server.command_stats("rl.take").0, 0, "the call itself was replicated");
    assert_eq!(replica.server.command_stats("hset").0, 5);
}

#[test]
fn the_expiry_is_replicated_only_when_it_was_written() {
    let (mut master, replica) = master_and_replica();
    for _ in 0..5 {
        master.take("k 1000 1 100");
    }
    replica.server.await_offset_of(&master.server);
    let expiries = replica.server.command_stats("pexpireat").0 + replica.server.command_stats("pexpire").0;
    // 201 s to live suffice for the first two hundred that are missing, 601 s for the other three.
    assert_eq!((replica.server.command_stats("hset").0, expiries), (5, 2));
}

/// redis-cell#53
#[test]
fn denials_and_peeks_replicate_nothing() {
    let (mut master, _replica) = master_and_replica();
    master.take("k 5 1/h 5");
    let before = master.server.replication_offset();
    for _ in 0..100 {
        assert_eq!(master.take("k 5 1/h 1")[0], 0);
        assert_eq!(master.take("missing 5 1/h 6")[0], 0);
        assert_eq!(master.peek("k 5 1/h 0")[0], 1);
        master.take("k 5 1/h 0");
    }
    assert_eq!(master.server.replication_offset(), before);
}

#[test]
fn fields_and_expiry_come_in_one_transaction() {
    let (mut master, mut replica) = master_and_replica();
    master.take("k 5 1 1");
    replica.server.await_offset_of(&master.server);
    let stats = ["multi", "exec"].map(|command| replica.server.command_stats(command).0);
    assert_eq!(stats[0], stats[1]);
    assert_eq!(stats[1], 1, "HSET and PEXPIREAT must be wrapped in MULTI and EXEC");
    assert_eq!(replica.fields("k"), master.fields("k"));
}

/// Sockets to a demoted master.
#[test]
fn a_take_on_a_replica_is_readonly_and_a_peek_works() {
    let (mut master, mut replica) = master_and_replica();
    master.take("k 5 1/h 2");
    replica.server.await_offset_of(&master.server);
    let before = replica.everything();
    let error = replica.connection.ask_error("RL.TAKE k 5 1/h 1");
    assert!(error.starts_with("READONLY"), "{error}");
    assert_eq!(replica.everything(), before);
    assert_eq!(replica.peek("k 5 1/h 1")[..2], [1, 2]);
    assert_eq!(replica.peek("missing 5 1/h 1")[..2], [1, 4]);
}

#[test]
fn a_promoted_replica_goes_on_with_the_bucket() {
    let (mut master, mut replica) = master_and_replica();
    master.take("k 5 1/h 3");
    replica.server.await_offset_of(&master.server);
    replica.connection.ask::<()>("REPLICAOF NO ONE");
    assert_eq!(replica.take("k 5 1/h 2")[..2], [1, 0]);
    assert_eq!(replica.take("k 5 1/h 1")[0], 0);
}
