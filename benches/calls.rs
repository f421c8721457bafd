//! One decision after the other over one connection, with the rivals beside it: the way there and back is included, and
//! with it the scheduling of two processes. For what the server itself spends, and for more than one connection at a time,
//! see `make bench`.

use criterion::{Criterion, criterion_group, criterion_main};
use rivals::{Requests, Wire, contenders, run};

const KEYS: usize = 1000;

fn calls(criterion: &mut Criterion) {
    let server = rivals::builder().start();
    let mut wires = [Wire::connect(&server)];
    let mut group = criterion.benchmark_group("call");
    for contender in contenders(&server) {
        let first = contender.first();
        run(&mut wires, &first, &Requests::new(&first, KEYS, KEYS), 1);
        group.bench_function(contender.label(), |bencher| {
            bencher.iter_custom(|calls| {
                let calls = usize::try_from(calls).expect("a number of calls that fits memory");
                run(&mut wires, &contender, &Requests::new(&contender, KEYS, calls), 1).time
            });
        });
    }
    group.finish();
}

criterion_group!(benches, calls);
criterion_main!(benches);
