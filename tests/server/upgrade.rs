//! Loading, upgrading and taking away the module in a running cluster, node by node as docs/operations.md says.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use harness::{Ask, Cluster, Server, wait};
use redis_token_bucket_client::decision::Source;
use redis_token_bucket_client::{Connection, Limiter, Policy};

const TENANTS: u64 = 12;
/// More than a test can take; the refill of a test's time is below one token.
const CAPACITY: u64 = 100_000;

/// Waits until each node has a replica and its master in one shard. A node of Valkey 8.0.1 that goes down before, moments after the
/// cluster was made, refuses to start again: "corrupted cluster config file".
fn await_shards(cluster: &Cluster) {
    for node in cluster.nodes() {
        wait::until(wait::PATIENCE, "replicas to be in the shards of their masters", || {
            let text =
                fs::read_to_string(node.dir().join("nodes.conf")).map_err(|error| error.to_string())?;
            // id, address with shard-id=..., flags, the master's id or -
            let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
            let shard = |id: &str| {
                let line = lines.iter().find(|line| line[0] == id && line.len() > 3)?;
                line[1].split(',').find(|part| part.starts_with("shard-id="))
            };
            let agree =
                |line: &&Vec<&str>| line.len() <= 3 || line[3] == "-" || shard(line[0]) == shard(line[3]);
            if lines.iter().all(|line| agree(&line)) { Ok(()) } else { Err(text.clone()) }
        });
    }
}

/// Restarts all nodes by `restart`: replicas first, then each master once its replica has taken over.
fn roll(cluster: &mut Cluster, restart: fn(&mut Server)) {
    let (masters, replicas): (Vec<usize>, Vec<usize>) = (0..cluster.nodes().len())
        .partition(|&index| cluster.nodes()[index].info("replication", "role") == "master");
    await_shards(cluster);
    for index in replicas {
        cluster.node_mut(index).shutdown();
        restart(cluster.node_mut(index));
        cluster.await_agreement();
    }
    for index in masters {
        let port = cluster.nodes()[index].port().to_string();
        let replica = cluster.nodes().iter().find(|node| node.info("replication", "master_port") == port);
        let replica = replica.expect("every master has a replica");
        replica.connection().ask::<()>("CLUSTER FAILOVER");
        replica.await_replication("role", "master");
        // The other must have heard of it, or it would go down as a master.
        cluster.nodes()[index].await_replication("master_link_status", "up");
        cluster.node_mut(index).shutdown();
        restart(cluster.node_mut(index));
        cluster.await_agreement();
    }
}

/// What came of the requests of one tenant.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    allowed: u64,
    /// Nobody knows whether the server took these: its answer did not arrive.
    unanswered: u64,
}

/// Asks for all tenants in turn until told to stop.
fn traffic(urls: Vec<String>, stop: &AtomicBool) -> Vec<Outcome> {
    let limit = format!("{CAPACITY} burst, 1/h");
    let policy = Arc::new(Policy::new(limit.parse().unwrap(), limit.parse().unwrap()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let connection =
            Connection::cluster(urls.iter().map(String::as_str)).await.expect("a connection to the cluster");
        let limiter = Limiter::new(connection, move |_, _| Arc::clone(&policy));
        let mut outcomes = vec![Outcome::default(); TENANTS as usize];
        while !stop.load(Ordering::Relaxed) {
            for (tenant, outcome) in outcomes.iter_mut().enumerate() {
                let decision = limiter.authorize(&format!("t{tenant}"), "r", 1).await.expect("a decision");
                match decision.source {
                    Source::FailurePolicy => outcome.unanswered += 1,
                    _ => outcome.allowed += 1,
                }
            }
        }
        outcomes
    })
}

#[test]
fn an_upgrade_node_by_node_under_traffic_loses_no_take() {
    let mut cluster = Cluster::start(3, 1);
    let stop = Arc::new(AtomicBool::new(false));
    let requests = thread::spawn({
        let (urls, stop) = (cluster.urls(), Arc::clone(&stop));
        move || traffic(urls, &stop)
    });
    roll(&mut cluster, Server::start_again);
    stop.store(true, Ordering::Relaxed);
    let outcomes = requests.join().expect("no request may fail in another way than being unanswered");

    let mut client = cluster.client().get_connection().expect("a connection to the cluster");
    let mut totals = Outcome::default();
    for (tenant, outcome) in outcomes.iter().enumerate() {
        let peek: [i64; 4] = client.ask(&format!("RL.PEEK {{t{tenant}}}:rl:_tenant:0 {CAPACITY} 1/h"));
        // PEEK answers what would be left after taking one.
        let taken = CAPACITY - 1 - u64::try_from(peek[1]).expect("never negative");
        assert!(
            (outcome.allowed..=outcome.allowed + outcome.unanswered).contains(&taken),
            "tenant {tenant}: {taken} tokens are gone, {outcome:?}"
        );
        totals.allowed += outcome.allowed;
        totals.unanswered += outcome.unanswered;
    }
    assert!(totals.allowed > 0, "no request was answered");
    println!("{totals:?}");
}

#[test]
fn the_module_comes_and_goes_in_a_running_cluster_and_buckets_stay() {
    let mut cluster = Cluster::start_without_module(3, 1);
    let keys: Vec<String> = (0..TENANTS).map(|tenant| format!("{{t{tenant}}}:rl:_tenant:0")).collect();
    // What was in the cluster before.
    let mut client = cluster.client().get_connection().expect("a connection to the cluster");
    for key in &keys {
        client.ask::<()>(&format!("SET other:{key} before"));
    }

    roll(&mut cluster, Server::start_again_with_module);
    let mut client = cluster.client().get_connection().expect("a connection to the cluster");
    let mut buckets = Vec::new();
    for key in &keys {
        assert_eq!(client.ask::<[i64; 4]>(&format!("RL.TAKE {key} 5 1/h 2"))[..2], [1, 3], "{key}");
        buckets.push(client.ask::<Vec<String>>(&format!("HMGET {key} tokens ts")));
    }

    roll(&mut cluster, Server::start_again_without_module);
    let mut client = cluster.client().get_connection().expect("a connection to the cluster");
    for (key, bucket) in keys.iter().zip(&buckets) {
        assert_eq!(&client.ask::<Vec<String>>(&format!("HMGET {key} tokens ts")), bucket, "{key}");
        assert!(client.ask::<i64>(&format!("PTTL {key}")) > 0, "{key} must still expire");
        assert_eq!(client.ask::<String>(&format!("GET other:{key}")), "before");
        let error = client.ask_error(&format!("RL.TAKE {key} 5 1/h"));
        assert!(error.starts_with("ERR unknown command"), "{error}");
    }
}
