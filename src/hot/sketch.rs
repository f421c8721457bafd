//! The keys that were counted most, from memory of a fixed size: the Space-Saving algorithm (Metwally, Agrawal and El
//! Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams", 2005). Knows no server and no clock.
//!
//! There are `capacity` counters. A key that has one is counted there. A key that has none, when all are in use, takes over
//! the least counter: its count goes on from there, and what it took over is noted as its error. So for every key listed,
//! `count - error <= true count <= count`; a key not listed was counted at most as often as the least count says; and a
//! key that makes up more than a `capacity`th of everything counted is always listed. (HeavyKeeper has smaller errors on
//! some streams, but no bounds for a single key.)
//!
//! Counting takes the same few steps however many counters there are, whether the key has one or not. The counters are
//! ranked by their counts, and those of equal count form a group that knows its first rank. A count grows by one, so its
//! counter trades places with the first of its group, and there joins the group before or opens one. This is the paper's
//! stream summary in arrays instead of linked lists. A search for the least of 1024 counters, or for the place of a new
//! count, would take longer than is to be spent.
//!
//! A key is known by a hash and shown by its first [`KEY_BYTES`]: memory depends on no client. The hash is seeded at random, so
//! that keys cannot be made to share a counter; foldhash takes a fraction of SipHash's time. Two keys with all 64 bits in
//! common would be counted as one, which happens to one key in 10^16. It is of the whole key up to twice [`END_BYTES`]; of a
//! longer one it is of both ends and the length, for a key may have a megabyte, and to read it all again would take half as
//! long as the command that is counted. The index is a chained hash table: unlike open addressing it needs no cleaning after
//! removals, of which there is one for each new key.

use std::hash::{BuildHasher, Hasher, RandomState};

use arrayvec::ArrayVec;
use foldhash::{SharedSeed, quality::FoldHasher};

/// How much of a key is kept to show it. Enough for a tenant and a route, few enough to copy for each new key.
pub(crate) const KEY_BYTES: usize = 128;

/// How much of either end of a very long key tells it from others.
pub(crate) const END_BYTES: usize = 4096;

/// Counts of the most counted keys.
pub(crate) struct Sketch {
    /// How often anything was counted.
    total: u64,
    /// As many as there will ever be; `ranking` holds those in use, and they were taken into use in order.
    counters: Box<[Counter]>,
    /// What the keys of the counters look like; apart, since counting mostly does not look at it.
    names: Box<[Name]>,
    /// The counters, most counted first.
    ranking: Vec<Id>,
    groups: Box<[Group]>,
    /// Groups that are empty.
    free_groups: Vec<Id>,
    /// The first counter of each chain, by the low bits of the hash.
    chains: Box<[Id]>,
    seed: u64,
    seeds: SharedSeed,
}

/// A position in `counters` or `groups`, or a rank.
type Id = u16;

/// Where there is none.
const NONE: Id = Id::MAX;

#[derive(Clone, Copy)]
struct Counter {
    hash: u64,
    error: u64,
    rank: Id,
    group: Id,
    /// The next in its chain.
    next: Id,
}

#[derive(Clone)]
struct Name {
    /// Of the whole key.
    len: usize,
    start: ArrayVec<u8, KEY_BYTES>,
}

/// The counters of one count.
#[derive(Clone, Copy)]
struct Group {
    count: u64,
    /// The rank of the first of them.
    first: Id,
}

/// One key of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HotKey<'s> {
    /// Its first [`KEY_BYTES`] bytes.
    pub(crate) key: &'s [u8],
    /// The length of the whole key, in bytes.
    pub(crate) key_len: usize,
    /// How often it was counted, at most.
    pub(crate) count: u64,
    /// By how much `count` may be too high.
    pub(crate) error: u64,
}

impl Sketch {
    /// With `capacity` counters, whose memory is taken now; none is needed later.
    pub(crate) fn new(capacity: u16) -> Sketch {
        let random = RandomState::new();
        let len = usize::from(capacity);
        let counter = Counter { hash: 0, error: 0, rank: NONE, group: NONE, next: NONE };
        Sketch {
            total: 0,
            counters: vec![counter; len].into(),
            names: vec![Name { len: 0, start: ArrayVec::new() }; len].into(),
            ranking: Vec::with_capacity(len),
            groups: vec![Group { count: 0, first: NONE }; len].into(),
            free_groups: (0..capacity).collect(),
            chains: vec![NONE; len.saturating_mul(2).next_power_of_two()].into(),
            seed: random.hash_one(0),
            seeds: SharedSeed::from_u64(random.hash_one(1)),
        }
    }

    /// Counts `key` once.
    pub(crate) fn count(&mut self, key: &[u8]) {
        self.total = self.total.saturating_add(1);
        let hash = self.hash(key);
        // Neither is None: each is about counters that there are.
        if let Some(at) = self.find(hash).or_else(|| self.admit(key, hash)) {
            self.increment(at);
        }
    }

    /// How many keys are listed.
    pub(crate) fn len(&self) -> usize {
        self.ranking.len()
    }

    /// How often anything was counted.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The keys that were counted most, in that order.
    pub(crate) fn top(&self) -> impl Iterator<Item = HotKey<'_>> {
        self.ranking.iter().filter_map(|&at| {
            let Counter { error, group, .. } = *get(&self.counters, at)?;
            let name = get(&self.names, at)?;
            Some(HotKey {
                key: &name.start,
                key_len: name.len,
                count: get(&self.groups, group)?.count,
                error,
            })
        })
    }

    fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = FoldHasher::with_seed(self.seed, &self.seeds);
        match (key.first_chunk::<END_BYTES>(), key.last_chunk::<END_BYTES>()) {
            (Some(first), Some(last)) if key.len() > first.len().saturating_add(last.len()) => {
                hasher.write(first);
                hasher.write(last);
                hasher.write_usize(key.len());
            }
            _ => hasher.write(key),
        }
        hasher.finish()
    }

    /// The counter of the key with this hash.
    fn find(&self, hash: u64) -> Option<Id> {
        let mut at = *self.chains.get(self.chain(hash))?;
        loop {
            let counter = get(&self.counters, at)?;
            if counter.hash == hash {
                return Some(at);
            }
            at = counter.next;
        }
    }

    fn chain(&self, hash: u64) -> usize {
        hash as usize & self.chains.len().wrapping_sub(1)
    }

    /// Gives `key` a counter: one not used so far, or the least.
    fn admit(&mut self, key: &[u8], hash: u64) -> Option<Id> {
        let unused = Id::try_from(self.ranking.len()).ok()?;
        let at = if get(&self.counters, unused).is_some() {
            let group = self.open_group(Group { count: 0, first: unused })?;
            self.ranking.push(unused);
            *get_mut(&mut self.counters, unused)? =
                Counter { hash, error: 0, rank: unused, group, next: NONE };
            unused
        } else {
            let least = *self.ranking.last()?;
            self.unchain(least)?;
            let counter = get_mut(&mut self.counters, least)?;
            counter.hash = hash;
            counter.error = get(&self.groups, counter.group)?.count;
            least
        };
        let chain = self.chain(hash);
        let head = self.chains.get_mut(chain)?;
        get_mut(&mut self.counters, at)?.next = std::mem::replace(head, at);
        let name = get_mut(&mut self.names, at)?;
        name.len = key.len();
        name.start.clear();
        name.start.try_extend_from_slice(key.get(..KEY_BYTES).unwrap_or(key)).ok()?;
        Some(at)
    }

    /// Takes a counter out of its chain.
    fn unchain(&mut self, at: Id) -> Option<()> {
        let Counter { hash, next, .. } = *get(&self.counters, at)?;
        let chain = self.chain(hash);
        let head = self.chains.get_mut(chain)?;
        if *head == at {
            *head = next;
            return Some(());
        }
        let mut before = *head;
        loop {
            let counter = get_mut(&mut self.counters, before)?;
            if counter.next == at {
                counter.next = next;
                return Some(());
            }
            before = counter.next;
        }
    }

    /// Adds one to a counter.
    fn increment(&mut self, at: Id) -> Option<()> {
        let Counter { rank, group, .. } = *get(&self.counters, at)?;
        let Group { count, first } = *get(&self.groups, group)?;
        let count = count.saturating_add(1);
        if rank != first {
            let leader = std::mem::replace(get_mut(&mut self.ranking, first)?, at);
            *get_mut(&mut self.ranking, rank)? = leader;
            get_mut(&mut self.counters, leader)?.rank = rank;
            get_mut(&mut self.counters, at)?.rank = first;
        }
        let second = first.saturating_add(1);
        let is_alone = self.group_of_rank(second) != Some(group);
        let before = first.checked_sub(1).and_then(|before| self.group_of_rank(before));
        let joined =
            before.filter(|&before| get(&self.groups, before).is_some_and(|group| group.count == count));
        match (joined, is_alone) {
            (Some(joined), true) => {
                self.free_groups.push(group);
                get_mut(&mut self.counters, at)?.group = joined;
            }
            (Some(joined), false) => {
                get_mut(&mut self.groups, group)?.first = second;
                get_mut(&mut self.counters, at)?.group = joined;
            }
            (None, true) => get_mut(&mut self.groups, group)?.count = count,
            (None, false) => {
                get_mut(&mut self.groups, group)?.first = second;
                get_mut(&mut self.counters, at)?.group = self.open_group(Group { count, first })?;
            }
        }
        Some(())
    }

    fn group_of_rank(&self, rank: Id) -> Option<Id> {
        Some(get(&self.counters, *get(&self.ranking, rank)?)?.group)
    }

    /// There is always one free: no group is empty, so that there are no more than counters.
    fn open_group(&mut self, group: Group) -> Option<Id> {
        let id = self.free_groups.pop()?;
        *get_mut(&mut self.groups, id)? = group;
        Some(id)
    }
}

fn get<T>(items: &[T], id: Id) -> Option<&T> {
    items.get(usize::from(id))
}

fn get_mut<T>(items: &mut [T], id: Id) -> Option<&mut T> {
    items.get_mut(usize::from(id))
}
