//! Memory is out.

use harness::redis::{Connection, cmd};
use harness::{Ask, Builder, Server};

use crate::load::everything;

/// Room for a few thousand buckets beside what the server needs for itself.
const ROOM: i64 = 2_000_000;
const BUCKETS: usize = 20_000;

fn builder(policy: &str) -> Builder {
    // The backlog counts as used memory and grows up to its size: Valkey's 10 MB would drive out every bucket.
    Server::builder().tcp().config("maxmemory-policy", policy).config("repl-backlog-size", "100kb")
}

fn limit_memory(server: &Server) {
    let limit = server.used_memory() + ROOM;
    server.connection().ask::<()>(&format!("CONFIG SET maxmemory {limit}"));
}

fn take(connection: &mut Connection, bucket: usize) -> Result<[i64; 4], String> {
    let call = cmd("RL.TAKE").arg(format!("bucket:{bucket}")).arg(&["10", "1/h", "3"]).query(connection);
    call.map_err(|error: harness::redis::RedisError| error.to_string())
}

/// Takes from many buckets under a policy that evicts, and checks that what is left is sound and what is gone is full.
fn evicted_buckets_are_full_again(policy: &str) {
    let master = builder(policy).start();
    let replica = Server::builder().start_replica_of(&master);
    let mut connection = master.connection();
    limit_memory(&master);
    for bucket in 0..BUCKETS {
        assert_eq!(
            take(&mut connection, bucket),
            Ok([1, 7, 0, 3 * 3_600_000]),
            "bucket {bucket} of {policy}"
        );
    }
    // Else each command from here on may evict more.
    connection.ask::<()>("CONFIG SET maxmemory 0");
    let evicted: usize = master.info("stats", "evicted_keys").parse().expect("a number");
    assert!(evicted > 0, "{policy}: nothing was evicted");
    let kept: usize = connection.ask("DBSIZE");
    assert_eq!(kept + evicted, BUCKETS);
    replica.await_offset_of(&master);
    assert_eq!(everything(&mut replica.connection()), everything(&mut connection), "{policy}: the replica");
    let mut found = 0;
    for bucket in 0..BUCKETS {
        let there: bool = connection.ask(&format!("EXISTS bucket:{bucket}"));
        found += usize::from(there);
        let [allowed, remaining, ..] = take(&mut connection, bucket).expect("an answer");
        assert_eq!((allowed, remaining), (1, if there { 4 } else { 7 }), "bucket {bucket} of {policy}");
    }
    assert_eq!(found, kept);
}

#[test]
fn buckets_evicted_by_volatile_ttl_are_full_again_and_replicas_follow() {
    evicted_buckets_are_full_again("volatile-ttl");
}

#[test]
fn buckets_evicted_by_allkeys_lru_are_full_again_and_replicas_follow() {
    evicted_buckets_are_full_again("allkeys-lru");
}

#[test]
fn without_eviction_takes_are_refused_and_the_rest_goes_on() {
    let server = builder("noeviction").start();
    let mut connection = server.connection();
    limit_memory(&server);
    let refused = (0..BUCKETS).find_map(|bucket| take(&mut connection, bucket).err());
    assert!(refused.as_deref().is_some_and(|error| error.contains("OOM")), "{refused:?}");
    let before = everything(&mut connection);
    for line in [
        "RL.TAKE bucket:0 10 1/h 3",
        "RL.TAKEALL bucket:0 10 1/h 1 x 10 1/h 1",
        "RL.CHARGE bucket:0 10 1/h 3",
    ] {
        let error = connection.ask_error(line);
        assert!(error.starts_with("OOM"), "{line}: {error}");
    }
    assert_eq!(connection.ask::<[i64; 4]>("RL.PEEK bucket:0 10 1/h 0")[..2], [1, 7]);
    assert_eq!(everything(&mut connection), before, "what is refused changes nothing");
    assert_eq!(connection.ask::<[i64; 4]>("RL.GIVE bucket:0 10 1/h 1")[..2], [1, 8]);
    connection.ask::<()>("CONFIG SET maxmemory 0");
    assert_eq!(take(&mut connection, 0).expect("an answer")[..2], [1, 5]);
}
