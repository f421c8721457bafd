//! The largest tenant: how many decisions a second one shard bears, and what more shards bring and cost. `make loadtest`.
//!
//! Starts a cluster of three nodes and asks it through the Rust helper about one tenant, cut into 1, 2, 4, 8 and 16
//! shards. From what it measures it says when one more shard pays, and with `RATE=200000` how many that rate needs.
//!
//! Client and nodes share the machine, so the decisions a second that it reaches are a lower bound. What it concludes rests
//! on the CPU time per decision and on how evenly the nodes are used, which do not depend on how many cores there are.

mod accuracy;
mod pressure;

use std::env;
use std::sync::Arc;
use std::time::Duration;

use harness::Cluster;
use indicatif::{ProgressBar, ProgressStyle};
use redis_token_bucket_client::{Connection, Limiter, Policy};
use tokio::runtime::Runtime;

use accuracy::Accuracy;
use pressure::Pressure;

const NODES: usize = 3;
const SHARDS: [u32; 5] = [1, 2, 4, 8, 16];

/// The part of a node's one thread that decisions may take; the rest is for everything else and for bursts.
const BUDGET: f64 = 0.7;

fn main() {
    let rate: Option<f64> = env::var("RATE").ok().map(|text| {
        let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
        rate.unwrap_or_else(|| panic!("RATE is a number of decisions per second above 0, not {text:?}"))
    });
    harness::end_all_on_ctrl_c();
    let cluster = Cluster::start(NODES, 0);
    let runtime = Runtime::new().expect("a runtime");

    let style =
        ProgressStyle::with_template("{msg:24} {wide_bar} {pos}/{len} {elapsed}").expect("a template");
    let bar = ProgressBar::new(2 * SHARDS.len() as u64).with_style(style);
    let mut found = Vec::new();
    for shards in SHARDS {
        bar.set_message(format!("{shards} shards: as fast as it goes"));
        let pressure = pressure::measure(&cluster, &runtime, shards);
        bar.inc(1);
        bar.set_message(format!("{shards} shards: above the limit"));
        let accuracy = accuracy::measure(&cluster, &runtime, shards);
        bar.inc(1);
        found.push((shards, pressure, accuracy));
    }
    bar.finish_and_clear();
    table(&found);
    conclude(&found, rate);
}

/// A limit that allows everything.
const WIDE: &str = "9007199254740991 burst, 1000000000/s";

/// A helper for tenants of so many shards, with that limit on their routes.
fn limiter(cluster: &Cluster, runtime: &Runtime, shards: u32, route: &str) -> Arc<Limiter> {
    let limits = Policy::new(WIDE.parse().expect("a limit"), route.parse().expect("a limit"));
    let policy = Arc::new(Policy { shards, timeout: Duration::from_millis(500), ..limits });
    let urls = cluster.urls();
    let connection = Connection::cluster(urls.iter().map(String::as_str));
    let connection = runtime.block_on(connection).expect("the addresses are well-formed");
    Arc::new(Limiter::new(connection, move |_, _| Arc::clone(&policy)))
}

fn table(found: &[(u32, Pressure, Accuracy)]) {
    let limit = accuracy::LIMIT;
    println!("One tenant on {NODES} nodes. On the right: a limit of {limit}, of which");
    println!(
        "{:.0}% is asked for at random times; what was allowed, and what one ideal bucket would have.",
        100.0 * accuracy::LOAD
    );
    println!();
    println!(
        "{:>6} {:>12} {:>12} {:>22} | {:>9} {:>9} {:>14}",
        "shards", "decisions/s", "CPU, µs", "of it on node 1, 2, 3", "allowed", "ideal", "false denials"
    );
    for (shards, pressure, accuracy) in found {
        let parts: Vec<String> =
            pressure.parts().iter().map(|part| format!("{:3.0}%", 100.0 * part)).collect();
        println!(
            "{shards:6} {:12.0} {:12.2} {:>22} | {:8.2}% {:8.2}% {:13.2}%",
            pressure.per_second(),
            pressure.micros_per_decision(),
            parts.join("  "),
            100.0 * accuracy.allowed,
            100.0 * accuracy.ideal,
            100.0 * (accuracy.ideal - accuracy.allowed).max(0.0),
        );
    }
    println!();
}

/// Decisions a second that the nodes bear within [`BUDGET`], by the busiest of them.
fn bearable(pressure: &Pressure) -> f64 {
    let busiest = pressure.parts().iter().copied().fold(0.0, f64::max);
    BUDGET * 1e6 / (pressure.micros_per_decision() * busiest)
}

fn conclude(found: &[(u32, Pressure, Accuracy)], rate: Option<f64>) {
    let percent = 100.0 * BUDGET;
    println!(
        "With each node at no more than {percent:.0}% of its one thread, the measured CPU and its spread allow"
    );
    for (shards, pressure, _) in found {
        println!("{shards:6} shards: {:9.0} decisions/s", bearable(pressure));
    }
    let one = bearable(&found[0].1);
    println!(
        "So a second shard pays from about {one:.0} decisions/s of one tenant on; below, it only costs accuracy."
    );
    let Some(rate) = rate else {
        println!("make loadtest RATE=200000 says how many shards a rate needs.");
        return;
    };
    if let Some((shards, ..)) = found.iter().find(|(_, pressure, _)| bearable(pressure) >= rate) {
        println!("RATE={rate}: {shards} shards on {NODES} nodes.");
    } else {
        // Spread evenly, every node takes the same part.
        let costliest =
            found.iter().map(|(_, pressure, _)| pressure.micros_per_decision()).fold(0.0, f64::max);
        let nodes = (rate * costliest / (BUDGET * 1e6)).ceil();
        println!(
            "RATE={rate}: more than {NODES} nodes bear. It needs {nodes:.0} masters and as many shards, or a multiple."
        );
    }
}
