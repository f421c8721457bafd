//! Replicas that fall behind, are made anew, and take over; slots that move. Under load.

use std::time::Duration;

use harness::{Ask, Cluster, Server, redis, wait};

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

/// Waits until a node has carried out some more takes.
fn await_takes(node: &Server) {
    let before = node.command_stats("rl.take").0;
    wait::until(wait::PATIENCE, "takes at the node", || match node.command_stats("rl.take").0 - before {
        ..20 => Err("few".to_owned()),
        _ => Ok(()),
    });
}

/// By MIGRATE, key by key, as `redis-cli --cluster reshard` does it.
#[test]
fn no_take_is_lost_or_granted_twice_while_its_slot_moves() {
    let cluster = Cluster::start(2, 0);
    let key = "{moving}:bucket";
    let slot = cluster.slot_of(key);
    let from = usize::from(cluster.master_of_slot(slot).port() != cluster.nodes()[0].port());
    let (from, to) = (&cluster.nodes()[from], &cluster.nodes()[1 - from]);
    let (mut source, mut target) = (from.connection(), to.connection());
    let stop = std::sync::atomic::AtomicBool::new(false);
    let taken: Vec<u32> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..4)
            .map(|_| {
                let mut connection = cluster.client().get_connection().expect("a connection");
                let stop = &stop;
                scope.spawn(move || {
                    let mut taken = 0;
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        let reply: Result<[i64; 4], _> =
                            redis::cmd("RL.TAKE").arg(key).arg(&["1000000", "1/m"]).query(&mut connection);
                        // The client follows MOVED and ASK and waits out TRYAGAIN.
                        let reply = reply.expect("an answer");
                        assert_eq!(reply[0], 1);
                        taken += 1;
                    }
                    taken
                })
            })
            .collect();
        let ids = [from, to].map(|node| node.connection().ask::<String>("CLUSTER MYID"));
        let moved = (|| -> redis::RedisResult<()> {
            await_takes(from);
            target.try_ask::<()>(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", ids[0]))?;
            source.try_ask::<()>(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", ids[1]))?;
            source.try_ask::<()>(&format!("MIGRATE 127.0.0.1 {} {key} 0 5000", to.port()))?;
            await_takes(to); // to which ASK sends the callers
            target.try_ask::<()>(&format!("CLUSTER SETSLOT {slot} NODE {}", ids[1]))?;
            source.try_ask::<()>(&format!("CLUSTER SETSLOT {slot} NODE {}", ids[1]))?;
            await_takes(to); // and from here on MOVED
            Ok(())
        })();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let taken =
            callers.into_iter().map(|caller| caller.join().expect("a caller does not panic")).collect();
        moved.expect("the slot moves");
        taken
    });
    assert_eq!(missing(&mut target, key), taken.iter().sum::<u32>(), "by callers: {taken:?}");
    assert!(target.ask::<i64>(&format!("PTTL {key}")) > 0, "the expiry moved with it");
}
