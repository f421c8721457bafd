//! What sharding a mega-tenant costs it, in a seeded simulation: many clients, each with its own beliefs and the helper's
//! own choice of shards, on exact buckets and a clock that the simulation moves.
//!
//! `cargo test -p redis-token-bucket-client --test sharding -- --nocapture` prints the table of the README.

use redis_token_bucket_client::choice::{Seen, believed, two_shards};
use redis_token_bucket_client::limit::Limit;
use redis_token_bucket_core::{Bucket, Level, Limit as Exact, Outcome, Rate, Tokens};

const CLIENTS: usize = 20;
const SHARDS: u32 = 16;
const SECONDS: u64 = 60;
const RATE: f64 = 1000.0;

/// A bucket as the server keeps it.
struct Server {
    limit: Exact,
    stored: Option<Bucket>,
}

impl Server {
    fn new(capacity: Tokens, rate: &str) -> Server {
        let limit = Exact::new(capacity, Rate::parse(rate.as_bytes()).unwrap()).unwrap();
        Server { limit, stored: None }
    }

    /// Takes one token at `now` (µs): whether it was there, and the whole tokens left.
    fn take(&mut self, now: u64) -> (bool, u64) {
        let (decision, left) = self.limit.level(self.stored, now).take(Tokens::ONE);
        self.stored = left.as_ref().map(Level::stored).or(self.stored);
        (decision.outcome == Outcome::Allowed, decision.remaining)
    }
}

struct Outcomes {
    allowed: u32,
    sharded: f64,
    ideal: f64,
    calls: f64,
}

/// Poisson arrivals at `load` times the rate, at random clients; the share allowed by the shards and by one ideal bucket.
fn simulate(load: f64, seed: u64) -> Outcomes {
    let limit: Limit = "160 burst, 1000/s".parse().unwrap();
    let parts: Vec<_> = (0..SHARDS).map(|index| limit.shard(index, SHARDS).unwrap()).collect();
    let mut shards: Vec<_> = parts.iter().map(|part| Server::new(part.capacity(), &part.rate())).collect();
    let mut ideal = Server::new(limit.capacity(), "1000");
    let mut beliefs = vec![vec![None; SHARDS as usize]; CLIENTS];
    let mut random = fastrand::Rng::with_seed(seed);

    let (mut arrivals, mut allowed, mut ideally_allowed, mut calls) = (0u32, 0u32, 0u32, 0u32);
    let mut now = 1_700_000_000_000_000.0;
    let end = now + SECONDS as f64 * 1e6;
    loop {
        now += -(1.0 - random.f64()).ln() / (RATE * load) * 1e6;
        if now >= end {
            break;
        }
        let at = now as u64;
        arrivals += 1;
        ideally_allowed += u32::from(ideal.take(at).0);

        let beliefs = &mut beliefs[random.usize(..CLIENTS)];
        let fullness = |shard: u32| believed(beliefs[shard as usize], parts[shard as usize], at);
        let (first, second) = two_shards(SHARDS, &mut random, fullness);
        for shard in [Some(first), second].into_iter().flatten().map(|shard| shard as usize) {
            let (taken, remaining) = shards[shard].take(at);
            beliefs[shard] = Some(Seen { remaining, at });
            calls += 1;
            if taken {
                allowed += 1;
                break;
            }
        }
    }
    let share = |count: u32| f64::from(count) / f64::from(arrivals);
    Outcomes { allowed, sharded: share(allowed), ideal: share(ideally_allowed), calls: share(calls) }
}

#[test]
fn sixteen_shards_allow_within_one_percent_of_one_ideal_bucket() {
    println!("| load | allowed, 16 shards | allowed, one bucket | calls per decision |\n|---|---|---|---|");
    for load in [0.5, 0.9, 0.99, 1.2] {
        let Outcomes { sharded, ideal, calls, .. } = simulate(load, 20_261_201);
        println!("| {:.0}% | {sharded:.4} | {ideal:.4} | {calls:.2} |", load * 100.0);
        assert!(
            (sharded - ideal).abs() <= 0.01 * ideal,
            "at {load} of the rate 16 shards allow {sharded:.4}, one bucket {ideal:.4}"
        );
    }
}

#[test]
fn the_shards_together_never_grant_more_than_the_limit() {
    let Outcomes { allowed, .. } = simulate(1.2, 7);
    let most = 160 + 1000 * SECONDS;
    assert!(u64::from(allowed) <= most, "allowed {allowed}, the limit is {most} in {SECONDS} s");
    assert!(u64::from(allowed) > most * 99 / 100, "allowed only {allowed} of {most} in {SECONDS} s");
}
