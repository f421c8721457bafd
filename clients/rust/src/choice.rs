//! Which shard to ask: two at random, the one believed fuller first.
//!
//! With one random shard per call, some shards run dry while others are full, and a tenant gets several per cent less than
//! its limit. Looking at two and asking the fuller evens them out with one round trip, because the replies that came back
//! anyway say how full a shard was. A shard that nothing is known of counts as full. If the first denies, the other is
//! asked once; asking more would cost round trips exactly when the tenant is over its limit.
//!
//! The functions are pure; `tests/sharding.rs` runs them in a simulation of many clients.

use crate::limit::Shard;

/// How full a shard was when it last answered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// Whole tokens left.
    pub remaining: u64,
    /// When the answer came, in µs of any clock that does not step.
    pub at: u64,
}

/// How many tokens `shard` is believed to hold at `now` (µs): what it had plus the refill since.
pub fn believed(seen: Option<Seen>, shard: Shard<'_>, now: u64) -> f64 {
    let capacity = shard.tokens();
    match seen {
        None => capacity,
        Some(seen) => {
            let elapsed_ms = now.saturating_sub(seen.at) as f64 / 1e3;
            capacity.min(seen.remaining as f64 + elapsed_ms * shard.per_ms())
        }
    }
}

/// Two different shards below `count`, the one with more in it first, as `fullness` believes; the only shard, if there is
/// one.
pub fn two_shards(
    count: u32,
    random: &mut fastrand::Rng,
    fullness: impl Fn(u32) -> f64,
) -> (u32, Option<u32>) {
    if count <= 1 {
        return (0, None);
    }
    let one = random.u32(..count);
    let other = (one + random.u32(1..count)) % count;
    if fullness(one) >= fullness(other) { (one, Some(other)) } else { (other, Some(one)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Limit;

    #[test]
    fn two_different_shards_are_chosen_each_as_often_as_any_other() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut chosen = [0; 5];
        for _ in 0..10_000 {
            let (first, second) = two_shards(5, &mut random, |_| 1.0);
            let second = second.expect("five shards have a second");
            assert_ne!(first, second, "the same shard twice");
            chosen[first as usize] += 1;
            chosen[second as usize] += 1;
        }
        assert!(chosen.iter().all(|times| (3_800..4_200).contains(times)), "4000 each expected: {chosen:?}");
    }

    #[test]
    fn the_fuller_of_the_two_is_asked_first() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..1_000 {
            let (first, second) = two_shards(5, &mut random, f64::from);
            assert!(first > second.unwrap(), "shard {first} before {second:?}");
        }
        assert_eq!(two_shards(1, &mut random, f64::from), (0, None));
    }

    #[test]
    fn a_belief_refills_and_stops_at_the_capacity_of_the_shard() {
        let limit: Limit = "160 burst, 1000/s".parse().unwrap();
        let shard = limit.shard(0, 16).unwrap();
        let seen = Some(Seen { remaining: 2, at: 1_000_000 });
        assert_eq!(believed(None, shard, 0), 10.0, "unknown is full");
        assert_eq!(believed(seen, shard, 1_000_000), 2.0, "at once");
        assert_eq!(believed(seen, shard, 1_064_000), 6.0, "1000/16 a second for 64 ms");
        assert_eq!(believed(seen, shard, 9_000_000), 10.0, "never above capacity");
    }
}
