//! `make demo`: the module at work in a throw-away cluster of three nodes, in a scripted session that checks every reply
//! it shows.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use harness::redis::cluster::ClusterConnection;
use harness::{Ask, Cluster};
use redis_token_bucket_client::decision::Reason;
use redis_token_bucket_client::{Connection, Limiter, Policy, http};

/// `[allowed, remaining, retry_after_ms, reset_after_ms]`
type Reply = [i64; 4];

fn main() {
    harness::end_all_on_ctrl_c();
    let started = Instant::now();
    println!("Starting a cluster of three nodes, each with the module loaded ...");
    let cluster = Cluster::start(3, 0);
    for (index, node) in cluster.nodes().iter().enumerate() {
        println!("  node {} on 127.0.0.1:{}", index + 1, node.port());
    }
    let mut session = Session {
        client: cluster.client().get_connection().expect("a connection to the cluster"),
        cluster: &cluster,
    };
    session.burst_denial_and_wait();
    session.peek();
    session.two_tenants();
    session.stack();
    session.settle();
    session.bucket_itself();
    helper(&cluster).expect("the helper's decisions");
    println!(
        "\nEvery reply was as it should be, in {:.1} s. Stopping the cluster.",
        started.elapsed().as_secs_f64()
    );
    println!(
        "Next: `make run` starts a server to try it yourself; README.md says how to load it into your own."
    );
}

struct Session<'c> {
    client: ClusterConnection,
    cluster: &'c Cluster,
}

impl Session<'_> {
    fn burst_denial_and_wait(&mut self) {
        heading("A bucket of 5 tokens that refills at 2 a second: a burst, a denial, and waiting as told");
        let line = "RL.TAKE {acme}:rl:search:0 5 2";
        for left in (0..5).rev() {
            let reply = self.show(line);
            check(reply[0] == 1 && reply[1] == left, format!("allowed, {left} left"));
        }
        let denied = self.show(line);
        let wait = denied[2];
        check(denied[0] == 0 && (1..=500).contains(&wait), format!("denied; a token comes in {wait} ms"));
        thread::sleep(Duration::from_millis(wait as u64));
        println!("  (waited {wait} ms)");
        let reply = self.show(line);
        check(reply[0] == 1, "allowed: a wait is never told a millisecond too short".to_owned());
    }

    fn peek(&mut self) {
        heading("Looking without taking");
        let line = "RL.PEEK {acme}:rl:upload:0 100 100/m 30";
        for _ in 0..2 {
            let reply = self.show(line);
            check(
                reply == [1, 70, 0, 18_000],
                "30 of 100 would be allowed, 70 left, full in 18 s".to_owned(),
            );
        }
        let exists: bool = self.client.ask("EXISTS {acme}:rl:upload:0");
        check(!exists, "and the key still does not exist: a missing key is a full bucket".to_owned());
        let never = self.show("RL.TAKE {acme}:rl:upload:0 100 100/m 101");
        check(
            never[0] == 0 && never[2] == -1,
            "retry -1: a cost above the capacity is never allowed".to_owned(),
        );
    }

    fn two_tenants(&mut self) {
        heading("Two tenants on two nodes; the tag in braces keeps a tenant's keys together");
        let mut nodes = Vec::new();
        for tenant in ["acme", "hooli"] {
            let key = format!("{{{tenant}}}:rl:_tenant:0");
            let slot = self.cluster.slot_of(&key);
            let node = self.cluster.master_of_slot(slot);
            let reply = self.show(&format!("RL.TAKE {key} 500 100"));
            check(reply[..2] == [1, 499], format!("slot {slot}, served by 127.0.0.1:{}", node.port()));
            nodes.push(node.port());
        }
        check(nodes[0] != nodes[1], "different nodes: one tenant's load is not the other's".to_owned());
    }

    fn stack(&mut self) {
        heading("Two limits in one call: the tenant's and the route's, from both or from neither");
        let line = "RL.TAKEALL {wonka}:rl:_tenant:0 100 1/m 1 {wonka}:rl:bulk:0 2 1/m 2";
        for (allowed, tenant_left, meaning) in
            [(1, 99, "taken from both"), (0, 99, "the route denies, and the tenant keeps its 99")]
        {
            let (all, retry, tenant, route): (i64, i64, Reply, Reply) = self.client.ask(line);
            println!("> {line}");
            println!("  allowed {all}  retry_after_ms {retry}  tenant {tenant:?}  route {route:?}");
            check(all == allowed && tenant[1] == tenant_left && route[0] == allowed, meaning.to_owned());
        }
    }

    fn settle(&mut self) {
        heading("Tokens back, and a cost that is known only afterwards");
        let given = self.show("RL.GIVE {wonka}:rl:bulk:0 2 1/m 1");
        check(given[1] == 1, "one token back, for a request that was refused further down".to_owned());
        let charged = self.show("RL.CHARGE {wonka}:rl:llm:0 1000 10 1500");
        check(charged[1] == 0, "1500 were used of a bucket of 1000: it is 500 in debt".to_owned());
        let denied = self.show("RL.TAKE {wonka}:rl:llm:0 1000 10 10");
        check(
            denied[0] == 0 && (49_000..=51_000).contains(&denied[2]),
            format!("denied until refill has paid 500 and brought 10: {} s at 10 a second", denied[2] / 1000),
        );
    }

    fn bucket_itself(&mut self) {
        heading("The bucket is a plain hash with an expiry; any server can load, replicate and read it");
        self.show("RL.TAKE {acme}:rl:report:0 10 1/m 4");
        let fields: BTreeMap<String, String> = self.client.ask("HGETALL {acme}:rl:report:0");
        println!("> HGETALL {{acme}}:rl:report:0");
        println!("  tokens {}  ts {}", fields["tokens"], fields["ts"]);
        let tokens: f64 = fields["tokens"].parse().unwrap_or(f64::NAN);
        check(
            (5.9..=6.0).contains(&tokens),
            "6 tokens, brought back to the whole millisecond in ts".to_owned(),
        );
        let ttl: i64 = self.client.ask("PTTL {acme}:rl:report:0");
        println!("> PTTL {{acme}}:rl:report:0\n  {ttl}");
        check(
            (240_000..=481_000).contains(&ttl),
            "it expires some time after it would be full, not before".to_owned(),
        );
    }

    /// Sends a command and prints it with the reply.
    fn show(&mut self, line: &str) -> Reply {
        let reply: Reply = self.client.ask(line);
        let [allowed, remaining, retry, reset] = reply;
        println!("> {line}");
        println!(
            "  allowed {allowed}  remaining {remaining}  retry_after_ms {retry}  reset_after_ms {reset}"
        );
        reply
    }
}

/// What a service does: the Rust helper decides about tenants, and spreads a big one over the nodes.
fn helper(cluster: &Cluster) -> Result<(), Box<dyn Error>> {
    heading("The Rust helper: a limit for the tenant and one for the route, from both or from neither");
    let runtime = tokio::runtime::Runtime::new()?;
    let normal = Arc::new(Policy::new("100 burst, 10/s".parse()?, "3 burst, 1/s".parse()?));
    let mut big = Policy::new("16000 burst, 1000/s".parse()?, "16000 burst, 1000/s".parse()?);
    big.shards = 16;
    let big = Arc::new(big);
    let urls = cluster.urls();
    let connection = runtime.block_on(Connection::cluster(urls.iter().map(String::as_str)))?;
    let limiter = Limiter::new(connection, move |tenant, _route| {
        Arc::clone(if tenant == "mega" { &big } else { &normal })
    });
    let authorize = |tenant, route| runtime.block_on(limiter.authorize(tenant, route, 1));
    for _ in 0..3 {
        check(
            authorize("initech", "search")?.is_allowed(),
            "authorize(initech, search, 1): allowed".to_owned(),
        );
    }
    let denied = authorize("initech", "search")?;
    let wait = denied.retry_after().unwrap_or_default();
    check(
        denied.reason() == Some(Reason::RouteLimit),
        format!("authorize(initech, search, 1): route_limit, retry after {} ms", wait.as_millis()),
    );
    let fields: Vec<_> =
        http::fields(&denied).into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
    println!("    over HTTP: {}, {}", http::status(&denied), fields.join(", "));
    check(authorize("initech", "upload")?.is_allowed(), "authorize(initech, upload, 1): allowed".to_owned());

    heading("A tenant too big for one node: 16 shards, spread over all of them");
    let takes = || cluster.nodes().iter().map(|node| node.command_stats("rl.takeall").0);
    let before: Vec<u64> = takes().collect();
    for _ in 0..600 {
        assert!(authorize("mega", "search")?.is_allowed(), "600 of 16000 tokens");
    }
    let shares: Vec<u64> = takes().zip(before).map(|(after, before)| after - before).collect();
    check(
        shares.iter().all(|share| (150..=250).contains(share)),
        format!("600 decisions took {shares:?} calls on the three nodes"),
    );
    Ok(())
}

fn heading(text: &str) {
    println!("\n{text}\n");
}

/// Prints what a reply means, if it does.
fn check(holds: bool, meaning: String) {
    assert!(holds, "the reply above does not mean: {meaning}");
    println!("    {meaning}");
}
