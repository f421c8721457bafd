//! What the helper itself costs: `cargo bench -p redis-token-bucket-client`.
//!
//! - `arguments`: looking up a known tenant and building the `RL.TAKEALL` for it. No server. What the `redis` crate needs
//!   to put the command on the wire is not included.
//! - `denial_cache`: a whole decision that needs no round trip, with no metrics recorder and no tracing subscriber.
//! - `round_trips`: `authorize`; beside it the `RL.TAKEALL` that it sends, ready-made and with nothing else done, and a bare
//!   `PING`; each over one connection of the same kind to one server, 1 and 64 at a time. The server's own work is
//!   included: two buckets read, decided and written, against nothing for a `PING`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use harness::Server;
use redis_token_bucket_client::decision::Source;
use redis_token_bucket_client::{Connection, Limiter, Policy};
use tokio::runtime::Runtime;

/// Calls under way at once. With 1 the way there and back counts most, with 64 the work of client and server.
const AT_A_TIME: [u64; 2] = [1, 64];

fn limiter(runtime: &Runtime, url: &str, policy: Policy) -> Limiter {
    let policy = Arc::new(policy);
    let connection = runtime.block_on(Connection::single(url)).expect("a well-formed address");
    Limiter::new(connection, move |_, _| Arc::clone(&policy))
}

fn policy(route: &str, shards: u32) -> Policy {
    let tenant = "9007199254740991 burst, 1000000000/s".parse().expect("a limit");
    Policy {
        shards,
        timeout: Duration::from_millis(500),
        ..Policy::new(tenant, route.parse().expect("a limit"))
    }
}

fn arguments(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let mut group = criterion.benchmark_group("arguments");
    for (name, shards) in [("known_tenant", 1), ("known_tenant_of_16_shards", 16)] {
        let limiter = limiter(&runtime, "redis://127.0.0.1:1", policy("1000 burst, 100/m", shards));
        group.bench_function(name, |bencher| bencher.iter(|| limiter.take_command("acme", "search", 1)));
    }
    group.finish();
}

fn denial_cache(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let server = Server::builder().tcp().start();
    let limiter =
        limiter(&runtime, &format!("redis://127.0.0.1:{}", server.port()), policy("1 burst, 1/d", 1));
    runtime.block_on(async {
        limiter.authorize("acme", "search", 1).await.expect("a decision");
        let denied = limiter.authorize("acme", "search", 1).await.expect("a decision");
        assert_eq!((denied.is_allowed(), denied.source), (false, Source::Server));
    });
    criterion.bench_function("denial_cache", |bencher| {
        bencher.to_async(&runtime).iter(async || {
            let decision = limiter.authorize("acme", "search", 1).await.expect("a decision");
            assert_eq!(decision.source, Source::DenialCache);
        });
    });
}

/// Makes `calls` calls, some at a time, and says how long it took.
async fn timed<C: Future<Output = ()> + Send>(
    at_a_time: u64,
    calls: u64,
    call: impl Fn() -> C + Clone + Send + 'static,
) -> Duration {
    let start = Instant::now();
    let tasks: Vec<_> = (0..at_a_time)
        .map(|task| {
            let call = call.clone();
            let mine = calls / at_a_time + u64::from(task < calls % at_a_time);
            tokio::spawn(async move {
                for _ in 0..mine {
                    call().await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no call panicked");
    }
    start.elapsed()
}

fn round_trips(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let server = Server::builder().tcp().start();
    let url = format!("redis://127.0.0.1:{}", server.port());
    let limiter = Arc::new(limiter(&runtime, &url, policy("9007199254740991 burst, 1000000000/s", 1)));
    let client = redis::Client::open(url).expect("a well-formed address");
    let connection = runtime.block_on(client.get_multiplexed_async_connection()).expect("the server is up");

    let take = limiter.take_command("acme", "search", 1).expect("a command");

    let mut group = criterion.benchmark_group("round_trips");
    group.throughput(Throughput::Elements(1));
    for at_a_time in AT_A_TIME {
        group.bench_function(format!("authorize/{at_a_time}"), |bencher| {
            let limiter = Arc::clone(&limiter);
            bencher.to_async(&runtime).iter_custom(|calls| {
                let limiter = Arc::clone(&limiter);
                timed(at_a_time, calls, move || {
                    let limiter = Arc::clone(&limiter);
                    async move {
                        let decision = limiter.authorize("acme", "search", 1).await.expect("a decision");
                        assert_eq!((decision.is_allowed(), decision.source), (true, Source::Server));
                    }
                })
            });
        });
        for (name, command) in [("bare_takeall", &take), ("ping", &redis::cmd("PING"))] {
            group.bench_function(format!("{name}/{at_a_time}"), |bencher| {
                bencher.to_async(&runtime).iter_custom(|calls| {
                    let (connection, command) = (connection.clone(), command.clone());
                    timed(at_a_time, calls, move || {
                        let (mut connection, command) = (connection.clone(), command.clone());
                        async move {
                            let _: redis::Value =
                                command.query_async(&mut connection).await.expect("a reply");
                        }
                    })
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, arguments, denial_cache, round_trips);
criterion_main!(benches);
