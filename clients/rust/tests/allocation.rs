//! How often the helper asks for memory on its own account.

mod fixture;

use allocation_counter::measure;
use fixture::{limiter, policy, server};
use redis_token_bucket_client::Policy;
use redis_token_bucket_client::decision::Source;

#[tokio::test]
async fn the_command_for_a_known_tenant_allocates_its_two_buffers_and_nothing_else() {
    let server = server();
    for shards in [1, 16] {
        let policy = Policy { shards, ..policy("1000 burst, 100/m", "50.5 burst, 3/250ms") };
        let limiter = limiter(&server, policy).await;
        let command = limiter.take_command("acme", "search", 1).unwrap();
        assert_eq!(command.args_iter().len(), 9);
        let allocations = measure(|| drop(limiter.take_command("acme", "search", 1).unwrap()));
        assert_eq!(allocations.count_total, 2, "the arguments' bytes and their ends, {shards} shards");
    }
}

#[tokio::test]
async fn a_decision_from_the_denial_cache_allocates_nothing() {
    let server = server();
    let limiter = limiter(&server, policy("1000 burst, 1/d", "1 burst, 1/d")).await;
    for _ in 0..3 {
        limiter.authorize("acme", "search", 1).await.unwrap();
    }
    let allocations = measure(|| {
        let mut decision = Box::pin(limiter.authorize("acme", "search", 1));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let std::task::Poll::Ready(decision) = decision.as_mut().poll(&mut context) else {
            panic!("the decision waits for something");
        };
        assert_eq!(decision.unwrap().source, Source::DenialCache);
    });
    assert_eq!(allocations.count_total, 1, "the box of this test");
}
