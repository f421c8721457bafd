//! The pure part of a call: numbers in, a decision, numbers out. Without a server, a clock or an allocation.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use redis_token_bucket_core::{Bucket, Limit, NumberText, Rate, Tokens, parse_stored_micros};

const NOW: u64 = 1_796_108_390_925_123;

fn limit(capacity: &str, rate: &str) -> Limit {
    let (capacity, rate) = (Tokens::parse(capacity.as_bytes()), Rate::parse(rate.as_bytes()));
    Limit::new(capacity.expect("a capacity"), rate.expect("a rate")).expect("a limit")
}

fn numbers(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("read");
    group.bench_function("capacity 1000000", |b| b.iter(|| Tokens::parse(black_box(b"1000000"))));
    group.bench_function("rate 1000", |b| b.iter(|| Rate::parse(black_box(b"1000"))));
    group.bench_function("rate 100/m", |b| b.iter(|| Rate::parse(black_box(b"100/m"))));
    group.bench_function("rate 0.1111111111111111", |b| {
        b.iter(|| Rate::parse(black_box(b"0.1111111111111111")))
    });
    group.bench_function("rate refused", |b| b.iter(|| Rate::parse(black_box(b"many"))));
    group.bench_function("tokens 999998.123456789", |b| {
        b.iter(|| Tokens::parse_stored(black_box(b"999998.123456789")))
    });
    group.bench_function("ts", |b| b.iter(|| parse_stored_micros(black_box(b"1796108390925"))));
    group.finish();
    let mut group = criterion.benchmark_group("print");
    let tokens = Tokens::parse(b"999998.123456789").expect("a balance");
    group.bench_function("tokens 999998.123456789", |b| b.iter(|| black_box(tokens).text()));
    group.bench_function("ts", |b| b.iter(|| NumberText::integer(black_box(NOW / 1000))));
    group.finish();
}

fn decisions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decide");
    let cost = Tokens::ONE;
    for (label, capacity, rate, nanos) in [
        ("allowed, 1000/s", "1000000", "1000", 5_000_000_000),
        ("denied, 1000/s", "1000000", "1000", -200_000_000_000),
        ("allowed, 1/h", "10", "1/h", 5_000_000_000),
        ("denied, 1/h", "10", "1/h", 0),
    ] {
        let limit = limit(capacity, rate);
        let stored = Some(Bucket { tokens: Tokens::from_nanos(nanos), at: NOW - 123_123 });
        let expected = label.starts_with("allowed");
        assert_eq!(limit.level(stored, NOW).take(cost).1.is_some(), expected, "{label}");
        group.bench_function(label, |b| {
            b.iter(|| {
                let level = black_box(&limit).level(black_box(stored), black_box(NOW));
                let (decision, left) = level.take(black_box(cost));
                (decision, left.map(|left| left.stored()))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, numbers, decisions);
criterion_main!(benches);
