//! Many clients at once.

use std::thread;

use harness::Ask;

use crate::bucket::Bench;

#[test]
fn a_hundred_clients_on_one_bucket_are_granted_exactly_what_it_holds() {
    let mut bench = Bench::new();
    let granted: i64 = thread::scope(|scope| {
        let clients: Vec<_> = (0..100)
            .map(|_| {
                let mut connection = bench.server.connection();
                scope.spawn(move || {
                    (0..50).map(|_| connection.ask::<[i64; 4]>("RL.TAKE k 1234 1/d")[0]).sum::<i64>()
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("a client")).sum()
    });
    assert_eq!(granted, 1234);
    assert_eq!(bench.peek("k 1234 1/d 0")[1], 0);
}
