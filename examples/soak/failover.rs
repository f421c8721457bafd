//! What is done to the nodes: a master killed, or asked to hand over.

use std::thread;
use std::time::Duration;

use harness::redis::Connection;
use harness::{Ask, Cluster, Server, expire_at};

use crate::buckets::{Buckets, SHARDS, Use};
use crate::history::{Failover, How, Survivor, now};

/// The nodes of a shard, master first.
fn master_and_replica(cluster: &Cluster, shard: usize) -> (usize, usize) {
    let (one, other) = (shard, shard + SHARDS);
    if cluster.nodes()[one].info("replication", "role") == "master" { (one, other) } else { (other, one) }
}

/// How long a master whose link was cut goes on to answer.
const CUT: Duration = Duration::from_millis(200);

/// Kills the master of a shard (SIGKILL), first cutting its link to the replica if asked to, lets the replica
/// take over, and starts the dead node again, without data, as its replica.
pub(crate) fn kill(cluster: &mut Cluster, buckets: &Buckets, shard: usize, cut: bool) -> Failover {
    let (master, replica) = master_and_replica(cluster, shard);
    let start = now();
    if cut {
        cut_link(&cluster.nodes()[master]);
    }
    cluster.node_mut(master).kill();
    let down = now();
    let node = &cluster.nodes()[replica];
    node.await_replication("master_link_status", "down");
    let survivors = survivors(node, buckets, shard);
    assert_eq!(node.info("replication", "role"), "slave", "promoted before its buckets were read");
    node.await_replication("role", "master");
    let promoted = now();
    cluster.node_mut(master).start_again();
    cluster.nodes()[master].await_replication("master_link_status", "up");
    cluster.await_agreement();
    Failover {
        shard,
        how: if cut { How::Cut } else { How::Killed },
        start,
        down,
        promoted,
        settled: now(),
        survivors,
    }
}

/// On loopback a kill loses next to nothing: replies and the replication stream leave in the same moment. With
/// the link cut, what is answered until the kill is lost. The password keeps the replica from coming back at
/// once; clients stay connected, and it ends with the process.
fn cut_link(master: &Server) {
    let mut connection = master.connection();
    connection.ask::<()>("CONFIG SET requirepass cut");
    let _: u64 = connection.ask("CLIENT KILL TYPE replica");
    thread::sleep(CUT);
}

/// The buckets that clients take from, as the replica has them.
fn survivors(node: &Server, buckets: &Buckets, shard: usize) -> Vec<Survivor> {
    let mut connection = node.connection();
    connection.ask::<()>("READONLY");
    let taken_from =
        |index: &usize| buckets.all[*index].shard == shard && buckets.all[*index].purpose != Use::Ledger;
    let read = |bucket: usize| {
        let key = &buckets.all[bucket].key;
        let fields: (Option<f64>, Option<u64>) = connection.ask(&format!("HMGET {key} tokens ts"));
        let limit = buckets.all[bucket].limit;
        match fields {
            (Some(tokens), Some(ts)) => Survivor { bucket, tokens, ts },
            // Expired, and so full: what a take before the last fill time left is refilled, be it lost or not.
            _ => Survivor {
                bucket,
                tokens: limit.capacity as f64,
                ts: now() / 1000 - limit.millis(limit.capacity),
            },
        }
    };
    (0..buckets.all.len()).filter(taken_from).map(read).collect()
}

/// Has the replica of a shard take over in agreement with its master.
pub(crate) fn plan(cluster: &Cluster, shard: usize) -> Failover {
    let (master, replica) = master_and_replica(cluster, shard);
    let start = now();
    cluster.nodes()[replica].connection().ask::<()>("CLUSTER FAILOVER");
    cluster.nodes()[replica].await_replication("role", "master");
    let promoted = now();
    cluster.nodes()[master].await_replication("master_link_status", "up");
    cluster.await_agreement();
    Failover {
        shard,
        how: How::Planned,
        start,
        down: promoted,
        promoted,
        settled: now(),
        survivors: Vec::new(),
    }
}

/// Waits until the replicas have all, and compares: how many buckets are the same in fields and expiry, and the first that
/// is not.
pub(crate) fn compare(cluster: &Cluster, buckets: &Buckets) -> Result<usize, String> {
    for shard in 0..SHARDS {
        let (master, replica) = master_and_replica(cluster, shard);
        let (master, replica) = (&cluster.nodes()[master], &cluster.nodes()[replica]);
        replica.await_offset_of(master);
        let (mut of_master, mut of_replica) = (master.connection(), replica.connection());
        of_replica.ask::<()>("READONLY");
        for bucket in buckets.all.iter().filter(|bucket| bucket.shard == shard) {
            let state = |connection: &mut Connection| -> (i64, Vec<Option<String>>) {
                let expires = expire_at(connection, bucket.key.as_bytes());
                (expires, connection.ask(&format!("HMGET {} tokens ts", bucket.key)))
            };
            let (on_master, on_replica) = (state(&mut of_master), state(&mut of_replica));
            let expired = (0..=now() as i64 / 1000).contains(&on_master.0); // between one look and the other
            if on_master != on_replica && !expired {
                return Err(format!(
                    "{}: the master has {on_master:?}, the replica {on_replica:?}",
                    bucket.key
                ));
            }
        }
    }
    Ok(buckets.all.len())
}
