//! The buckets that the load takes from, and their limits.

use redis_token_bucket_client::keys;

pub(crate) const SHARDS: usize = 3;
pub(crate) const CLIENTS: usize = 6;

/// Fixed for the whole run, so that one bound holds for every interval of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub(crate) capacity: u64,
    /// Refill: `tokens` in `seconds`.
    pub(crate) tokens: u64,
    pub(crate) seconds: u64,
}

impl Limit {
    /// Fewest ms in which `count` tokens are refilled.
    pub(crate) fn millis(self, count: u64) -> u64 {
        (count * 1000 * self.seconds).div_ceil(self.tokens)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// All clients take from it, far more than it gives.
    Shared,
    /// One client takes from it.
    Alone,
    /// One client charges and gives; it refills less than one token in a run, so its balance tells what was
    /// applied. See `ledger.rs`.
    Ledger,
}

#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    pub(crate) key: String,
    pub(crate) shard: usize,
    pub(crate) purpose: Use,
    pub(crate) limit: Limit,
}

/// All buckets; the rest are positions in it.
#[derive(Debug, Default)]
pub(crate) struct Buckets {
    pub(crate) all: Vec<Bucket>,
    /// Taken from one at a time.
    pub(crate) hot: Vec<usize>,
    /// Tenant and route, taken from together; one pair for each shard.
    pub(crate) stacks: Vec<[usize; 2]>,
    /// By client.
    pub(crate) alone: Vec<usize>,
    /// By client, then shard.
    pub(crate) ledgers: Vec<Vec<usize>>,
}

impl Buckets {
    /// `shard_of` tells which of the shards serves a slot.
    pub(crate) fn new(shard_of: impl Fn(u16) -> usize) -> Buckets {
        let tag = |shard: usize| {
            let mut tags = (0..).map(|number| format!("{{t{number}}}"));
            tags.find(|tag| shard_of(keys::slot(tag.as_bytes())) == shard).expect("some tag of each shard")
        };
        let tags: Vec<String> = (0..SHARDS).map(tag).collect();
        let mut buckets = Buckets::default();
        for (shard, tag) in tags.iter().enumerate() {
            // The last takes longer to fill than a failover takes: what was lost, or came back, is not hidden by refill.
            for (name, capacity, tokens) in [("small", 20, 20), ("large", 100, 50), ("slow", 1000, 50)] {
                let key = format!("{tag}:rl:{name}:0");
                let bucket = buckets.add(key, shard, Use::Shared, capacity, tokens, 1);
                buckets.hot.push(bucket);
            }
            let mut shared = |name, capacity, tokens| {
                buckets.add(format!("{tag}:rl:{name}:0"), shard, Use::Shared, capacity, tokens, 1)
            };
            let stack = [shared("_tenant", 300, 8), shared("route", 10, 15)];
            buckets.stacks.push(stack);
        }
        for client in 0..CLIENTS {
            let shard = client % SHARDS;
            let key = format!("{}:rl:alone{client}:0", tags[shard]);
            let alone = buckets.add(key, shard, Use::Alone, 3, 10, 3);
            buckets.alone.push(alone);
            let ledger = |shard: usize| {
                let key = format!("{}:rl:ledger{client}:0", tags[shard]);
                // Fills in 57 years.
                buckets.add(key, shard, Use::Ledger, 500_000, 1, 3600)
            };
            let ledgers = (0..SHARDS).map(ledger).collect();
            buckets.ledgers.push(ledgers);
        }
        buckets
    }

    fn add(
        &mut self,
        key: String,
        shard: usize,
        purpose: Use,
        capacity: u64,
        tokens: u64,
        seconds: u64,
    ) -> usize {
        self.all.push(Bucket { key, shard, purpose, limit: Limit { capacity, tokens, seconds } });
        self.all.len() - 1
    }
}
