//! Slots that move from node to node while callers take from a bucket in them.

use std::sync::Arc;
use std::thread;

use harness::redis::{RedisResult, cmd};
use harness::{Ask, Cluster, Server, Vendor, server_version, wait};

const KEY: &str = "{moving}:rl:_tenant:0";
/// So much that nobody is denied, refilled so slowly that nothing comes back while a test runs: the balance is a count.
const CAPACITY: i64 = 1_000_000;

/// Has callers take one token after the other while `move_slot` moves the slot of [`KEY`] from the first node that it is given
/// to the second, and checks that the bucket lacks just what they were granted, and still has an expiry.
fn move_under_load(move_slot: impl FnOnce(&Server, &Server, u16) -> RedisResult<()>) {
    let cluster = Cluster::start(3, 0);
    let slot = cluster.slot_of(KEY);
    let from = cluster.master_of_slot(slot);
    let to = cluster.nodes().iter().find(|node| node.port() != from.port()).expect("another node");
    let (moved, taken) = thread::scope(|scope| {
        // Gone, and with it the callers, also when a wait panics.
        let going_on = Arc::new(());
        let callers: Vec<_> = (0..4)
            .map(|_| {
                let mut client = cluster.client().get_connection().expect("a connection");
                let going_on = Arc::downgrade(&going_on);
                scope.spawn(move || {
                    let mut taken = 0;
                    while going_on.strong_count() > 0 {
                        let reply = cmd("RL.TAKE").arg(KEY).arg(CAPACITY).arg("1/m").query(&mut client);
                        // The client follows MOVED and ASK and waits out TRYAGAIN.
                        let reply: [i64; 4] = reply.expect("an answer");
                        assert_eq!(reply[0], 1);
                        taken += 1;
                    }
                    taken
                })
            })
            .collect();
        await_takes(from);
        let moved = move_slot(from, to, slot);
        if moved.is_ok() {
            await_takes(to); // to which MOVED sends the callers
        }
        drop(going_on);
        let taken: Vec<i64> =
            callers.into_iter().map(|caller| caller.join().expect("a caller does not panic")).collect();
        (moved, taken)
    });
    moved.expect("the slot moves");
    let mut target = to.connection();
    let tokens: f64 = target.ask(&format!("HGET {KEY} tokens"));
    let missing = (CAPACITY as f64 - tokens).round() as i64;
    assert_eq!(missing, taken.iter().sum::<i64>(), "lacks {missing}; the callers took {taken:?}");
    assert!(target.ask::<i64>(&format!("PTTL {KEY}")) > 0, "the expiry moved with it");
}

/// Waits until a node has carried out some more takes.
fn await_takes(node: &Server) {
    let before = node.command_stats("rl.take").0;
    wait::until(wait::PATIENCE, "takes", || match node.command_stats("rl.take").0 - before {
        0..20 => Err("few".to_owned()),
        _ => Ok(()),
    });
}

/// By MIGRATE, key by key, as `redis-cli --cluster reshard` does it.
#[test]
fn no_take_is_lost_or_granted_twice_while_its_key_moves() {
    move_under_load(|from, to, slot| {
        let ids = [from, to].map(|node| node.connection().ask::<String>("CLUSTER MYID"));
        let (mut source, mut target) = (from.connection(), to.connection());
        target.try_ask::<()>(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", ids[0]))?;
        source.try_ask::<()>(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", ids[1]))?;
        source.try_ask::<()>(&format!("MIGRATE 127.0.0.1 {} {KEY} 0 5000", to.port()))?;
        await_takes(to); // to which ASK sends the callers
        target.try_ask::<()>(&format!("CLUSTER SETSLOT {slot} NODE {}", ids[1]))?;
        source.try_ask(&format!("CLUSTER SETSLOT {slot} NODE {}", ids[1]))
    });
}

/// Valkey 9 moves whole slots with CLUSTER MIGRATESLOTS, unless a module that is loaded does not declare that it can bear it;
/// Redis 8.4 with CLUSTER MIGRATION IMPORT.
#[test]
fn no_take_is_lost_or_granted_twice_while_the_server_moves_the_slot() {
    let version = server_version();
    match version.vendor {
        Vendor::Valkey if version.number.0 >= 9 => move_under_load(|from, to, slot| {
            let id: String = to.connection().ask("CLUSTER MYID");
            from.connection().try_ask(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {id}"))
        }),
        Vendor::Redis if version.number >= (8, 4, 0) => move_under_load(|_, to, slot| {
            to.connection().try_ask(&format!("CLUSTER MIGRATION IMPORT {slot} {slot}"))
        }),
        _ => (),
    }
}
