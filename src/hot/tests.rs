//! The sketch against exact counts.

use std::collections::HashMap;

use proptest::prelude::*;

use super::Sketch;
use super::sketch::{HotKey, KEY_BYTES};

/// Counts `stream` in `capacity` counters and exactly, and checks all that the sketch promises.
fn check(capacity: u16, stream: impl IntoIterator<Item = u32>) -> (Sketch, HashMap<u32, u64>) {
    let mut sketch = Sketch::new(capacity);
    let mut exact: HashMap<u32, u64> = HashMap::new();
    for key in stream {
        sketch.count(&key.to_le_bytes());
        *exact.entry(key).or_default() += 1;
    }
    let listed: HashMap<u32, HotKey<'_>> = sketch.top().map(|entry| (id(entry.key), entry)).collect();
    let total: u64 = exact.values().sum();
    let counts: Vec<u64> = sketch.top().map(|entry| entry.count).collect();
    assert_eq!(sketch.total(), total);
    assert_eq!(listed.len(), exact.len().min(capacity.into()), "a key is listed twice, or not at all");
    assert_eq!(sketch.len(), listed.len());
    assert!(counts.is_sorted_by(|a, b| a >= b), "not in order: {counts:?}");
    assert_eq!(counts.iter().sum::<u64>(), total, "each count adds one to one counter");
    let least = if listed.len() < capacity.into() { 0 } else { counts.last().copied().unwrap_or(0) };
    for (key, truth) in &exact {
        match listed.get(key) {
            Some(HotKey { count, error, .. }) => {
                assert!(
                    (count - error..=*count).contains(truth),
                    "{truth} is not in {count} - {error}..={count}"
                );
                assert!(
                    *error <= total / u64::from(capacity),
                    "error {error} of {total} in {capacity} counters"
                );
            }
            None => {
                assert!(*truth <= least, "{truth} times and not listed, though the least count is {least}")
            }
        }
    }
    (sketch, exact)
}

fn id(key: &[u8]) -> u32 {
    u32::from_le_bytes(key.try_into().expect("four bytes"))
}

proptest! {
    #[test]
    fn counts_bound_the_true_ones_on_any_stream(
        capacity in 1_u16..=8,
        stream in prop::collection::vec(0_u32..20, 0..400),
    ) {
        check(capacity, stream);
    }
}

/// `len` draws of 0, 1, ... where n has weight 1/(n+1)^exponent: the same ones each time.
fn zipfian(keys: u32, exponent: f64, len: usize) -> impl Iterator<Item = u32> {
    let mut sum = 0.0;
    let reach: Vec<f64> = (1..=keys)
        .map(|rank| {
            sum += f64::from(rank).powf(-exponent);
            sum
        })
        .collect();
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15; // xorshift64 (Marsaglia, 2003)
    (0..len).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let point = state as f64 / u64::MAX as f64 * sum;
        reach.partition_point(|&reach| reach < point).min(keys as usize - 1) as u32
    })
}

#[test]
fn the_hottest_keys_of_zipfian_streams_are_found() {
    // The number of leading keys that must be listed first, in their order.
    for (exponent, capacity, leading) in
        [(0.8, 1024, 5), (1.0, 64, 5), (1.0, 1024, 10), (1.2, 64, 8), (1.5, 64, 10)]
    {
        let (sketch, exact) = check(capacity, zipfian(100_000, exponent, 200_000));
        let mut truth: Vec<(u32, u64)> = exact.into_iter().collect();
        truth.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        let truth: Vec<u32> = truth.iter().take(leading).map(|&(key, _)| key).collect();
        let found: Vec<u32> = sketch.top().take(leading).map(|entry| id(entry.key)).collect();
        assert_eq!(found, truth, "exponent {exponent}, {capacity} counters");
    }
}

#[test]
fn a_flood_of_keys_that_come_once_hides_no_hot_one() {
    // Every tenth is the hot one, which is more than one in 64.
    let stream = (0..100_000).map(|n| if n % 10 == 0 { u32::MAX } else { n });
    let (sketch, _) = check(64, stream);
    let first = sketch.top().next().expect("a key");
    assert_eq!((id(first.key), first.count - first.error), (u32::MAX, 10_000));
}

#[test]
fn keys_that_begin_alike_are_told_apart_and_cut() {
    let mut sketch = Sketch::new(4);
    let long = |last: u8| [vec![b'x'; KEY_BYTES + 1000], vec![last]].concat();
    for key in [long(1), long(2), long(2), Vec::new()] {
        sketch.count(&key);
    }
    let listed: Vec<_> = sketch.top().map(|entry| (entry.key.len(), entry.key_len, entry.count)).collect();
    assert_eq!(listed, [(KEY_BYTES, KEY_BYTES + 1001, 2), (KEY_BYTES, KEY_BYTES + 1001, 1), (0, 0, 1)]);
}

#[test]
fn a_sketch_without_counters_lists_nothing() {
    let mut sketch = Sketch::new(0);
    sketch.count(b"k");
    assert_eq!((sketch.total(), sketch.top().count()), (1, 0));
}
