//! What this process knows of buckets: their keys, how full they were last seen, which denials still hold, and the local
//! bucket that stands in when Redis is away.
//!
//! All of it is a cache of bounded size. An entry that is dropped costs a key to be built again, a belief and a denial to
//! be learnt again, and starts the local bucket afresh; no decision of Redis depends on it.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quick_cache::Equivalent;
use quick_cache::sync::Cache;
use redis_token_bucket_core as core;
use redis_token_bucket_core::{Outcome, Tokens};

use crate::choice::{Seen, believed};
use crate::command::BucketReply;
use crate::keys::{CellKeys, KeyError, TenantKeys, slot};
use crate::limit::Shard;
use crate::meter::Meter;

/// How many routes, and as many tenants and cells, are remembered. A bucket takes about 300 bytes.
const REMEMBERED: usize = 65_536;

/// One bucket with all its shards.
#[derive(Debug)]
pub(crate) struct Known {
    shards: Box<[KnownShard]>,
    local: Mutex<Option<core::Bucket>>,
}

#[derive(Debug)]
struct KnownShard {
    key: Box<[u8]>,
    slot: u16,
    news: Mutex<News>,
    /// Whether the news are of a denial: nearly always not, and then no lock is needed to know it.
    denies: AtomicBool,
}

/// What a shard last said.
#[derive(Clone, Copy, Debug, Default)]
struct News {
    seen: Option<Seen>,
    denial: Option<Denial>,
}

/// At `until` the shard will hold `cost`, and before that it does not.
#[derive(Clone, Copy, Debug)]
struct Denial {
    until: u64,
    cost: u64,
    /// The limit the shard decided by. Under another one the denial says nothing.
    capacity: Tokens,
    per_ms: f64,
}

impl Known {
    fn new(keys: impl Iterator<Item = String>) -> Known {
        let shard = |key: String| KnownShard {
            slot: slot(key.as_bytes()),
            key: key.into_bytes().into_boxed_slice(),
            news: Mutex::default(),
            denies: AtomicBool::new(false),
        };
        Known { shards: keys.map(shard).collect(), local: Mutex::new(None) }
    }

    pub(crate) fn shards(&self) -> u32 {
        // As many as the policy said, and that was a u32.
        self.shards.len() as u32
    }

    pub(crate) fn key(&self, shard: u32) -> &[u8] {
        &self.shards[shard as usize].key
    }

    pub(crate) fn slot(&self, shard: u32) -> u16 {
        self.shards[shard as usize].slot
    }

    /// How full the shard is believed to be, in tokens, less what its part of an uneven capacity has more than the smallest:
    /// counted in, a tenant far below its limit would always ask its first shards.
    pub(crate) fn fullness(&self, index: u32, shard: Shard<'_>, now: u64) -> f64 {
        believed(self.news(index).seen, shard, now) - shard.surplus()
    }

    /// Remembers what a shard answered to a take of `cost`.
    pub(crate) fn saw(&self, index: u32, shard: Shard<'_>, cost: u64, reply: &BucketReply, now: u64) {
        let denial = match reply.outcome {
            Outcome::RetryAfter(ms) => Some(Denial {
                until: now.saturating_add(ms.saturating_mul(1000)),
                cost,
                capacity: shard.capacity(),
                per_ms: shard.per_ms(),
            }),
            // A denial of another cost may still hold, but a bucket that allows is best asked.
            Outcome::Allowed | Outcome::Never => None,
        };
        self.shards[index as usize].denies.store(denial.is_some(), Ordering::Relaxed);
        *self.news(index) = News { seen: Some(Seen { remaining: reply.remaining, at: now }), denial };
    }

    /// If an earlier denial says that `cost` is not there yet: the ms until it may be, and the tokens that are believed to be
    /// there now.
    ///
    /// Another cost than the one that was denied is later or earlier by the refill of the difference, to within the
    /// millisecond to which the server rounded; that one is left to the server.
    #[inline]
    pub(crate) fn denied(&self, index: u32, shard: Shard<'_>, cost: u64, now: u64) -> Option<(u64, f64)> {
        if !self.shards[index as usize].denies.load(Ordering::Relaxed) {
            return None;
        }
        let News { seen, denial } = *self.news(index);
        let denial = denial?;
        let same_limit = denial.capacity == shard.capacity() && denial.per_ms == shard.per_ms();
        let can_succeed = i128::from(cost) * Tokens::ONE.nanos() <= denial.capacity.nanos();
        if !same_limit || !can_succeed || cost == 0 {
            return None;
        }
        let until = if cost == denial.cost {
            denial.until
        } else {
            let later_us = (cost as f64 - denial.cost as f64) / denial.per_ms * 1e3 - 1e3;
            (denial.until as f64 + later_us) as u64
        };
        let left = until.checked_sub(now).filter(|&left| left > 0)?;
        Some((left.div_ceil(1000), believed(seen, shard, now)))
    }

    /// The bucket in this process, for as long as the guard lives.
    pub(crate) fn local(&self) -> MutexGuard<'_, Option<core::Bucket>> {
        self.local.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn news(&self, index: u32) -> MutexGuard<'_, News> {
        self.shards[index as usize].news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The two buckets of a tenant on a route.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) tenant: Arc<Known>,
    pub(crate) route: Known,
    pub(crate) meter: Meter,
}

/// All buckets this process knows.
pub(crate) struct Registry {
    pairs: Cache<PairName<Box<str>>, Arc<Pair>>,
    tenants: Cache<Name<Box<str>>, Arc<Known>>,
    cells: Cache<Name<Box<str>>, Arc<Known>>,
}

impl Registry {
    pub(crate) fn new() -> Registry {
        Registry {
            pairs: Cache::new(REMEMBERED),
            tenants: Cache::new(REMEMBERED),
            cells: Cache::new(REMEMBERED),
        }
    }

    /// The buckets of a tenant on a route. Two calls that meet a new name at once make it twice, and one is dropped.
    pub(crate) fn pair(
        &self,
        tenant: &str,
        route: &str,
        shards: u32,
        meter: impl FnOnce() -> Meter,
    ) -> Result<Arc<Pair>, KeyError> {
        let name = PairName(tenant, route, shards);
        if let Some(pair) = self.pairs.get(&name) {
            return Ok(pair);
        }
        let keys = TenantKeys::new(tenant, shards)?;
        let route_keys =
            (0..keys.shards()).map(|shard| keys.route_key(route, shard)).collect::<Result<Vec<_>, _>>()?;
        let tenant_name = Name(tenant, shards);
        let tenant_wide = self.tenants.get(&tenant_name).unwrap_or_else(|| {
            let known = Arc::new(Known::new((0..keys.shards()).map(|shard| keys.tenant_key(shard))));
            self.tenants.insert(Name(tenant.into(), shards), known.clone());
            known
        });
        let pair =
            Arc::new(Pair { tenant: tenant_wide, route: Known::new(route_keys.into_iter()), meter: meter() });
        self.pairs.insert(PairName(tenant.into(), route.into(), shards), pair.clone());
        Ok(pair)
    }

    /// The bucket of a cell.
    pub(crate) fn cell(&self, cell: &str, shards: u32) -> Result<Arc<Known>, KeyError> {
        if let Some(known) = self.cells.get(&Name(cell, shards)) {
            return Ok(known);
        }
        let keys = CellKeys::new(cell, shards)?;
        let known = Arc::new(Known::new((0..keys.shards()).map(|shard| keys.key(shard))));
        self.cells.insert(Name(cell.into(), shards), known.clone());
        Ok(known)
    }
}

/// A name and its number of shards; borrowed to look up, owned to keep.
struct Name<S>(S, u32);

impl<S: AsRef<str>> Hash for Name<S> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.0.as_ref(), self.1).hash(state);
    }
}

impl<S: AsRef<str>> PartialEq for Name<S> {
    fn eq(&self, other: &Name<S>) -> bool {
        self.0.as_ref() == other.0.as_ref() && self.1 == other.1
    }
}

impl<S: AsRef<str>> Eq for Name<S> {}

impl Equivalent<Name<Box<str>>> for Name<&str> {
    fn equivalent(&self, key: &Name<Box<str>>) -> bool {
        self.0 == &*key.0 && self.1 == key.1
    }
}

/// A tenant, a route and a number of shards; borrowed to look up, owned to keep.
struct PairName<S>(S, S, u32);

impl<S: AsRef<str>> Hash for PairName<S> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.0.as_ref(), self.1.as_ref(), self.2).hash(state);
    }
}

impl<S: AsRef<str>> PartialEq for PairName<S> {
    fn eq(&self, other: &PairName<S>) -> bool {
        self.0.as_ref() == other.0.as_ref() && self.1.as_ref() == other.1.as_ref() && self.2 == other.2
    }
}

impl<S: AsRef<str>> Eq for PairName<S> {}

impl Equivalent<PairName<Box<str>>> for PairName<&str> {
    fn equivalent(&self, key: &PairName<Box<str>>) -> bool {
        self.0 == &*key.0 && self.1 == &*key.1 && self.2 == key.2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Limit;

    const START: u64 = 5_000_000;

    fn known() -> Known {
        Known::new(std::iter::once("{acme}:rl:search:0".to_owned()))
    }

    fn wait(known: &Known, shard: Shard<'_>, cost: u64, now: u64) -> Option<u64> {
        known.denied(0, shard, cost, now).map(|(ms, _)| ms)
    }

    fn denied(ms: u64) -> BucketReply {
        BucketReply { outcome: Outcome::RetryAfter(ms), remaining: 0, reset_after_ms: 1000 }
    }

    #[test]
    fn no_shard_of_an_uneven_capacity_is_fuller_than_another_that_is_full() {
        for capacity in ["10", "11", "10.5", "160"] {
            let limit: Limit = format!("{capacity} burst, 10/s").parse().unwrap();
            let known = Known::new((0..4).map(|index| format!("{{acme#{index}.0}}:rl:search:{index}")));
            let fullness = |index| known.fullness(index, limit.shard(index, 4).unwrap(), START);
            let all = [0, 1, 2, 3].map(fullness);
            assert!(all.iter().all(|one| *one == all[3]), "{capacity} over 4: {all:?}");
        }
    }

    #[test]
    fn a_denial_holds_until_its_retry_after_has_passed_and_no_longer() {
        let limit: Limit = "10 burst, 10/s".parse().unwrap();
        let shard = limit.shard(0, 1).unwrap();
        let known = known();
        assert_eq!(wait(&known, shard, 1, START), None, "nothing is known yet");
        known.saw(0, shard, 1, &denied(100), START);
        assert_eq!(wait(&known, shard, 1, START), Some(100));
        assert_eq!(wait(&known, shard, 1, START + 99_999), Some(1), "the last microsecond");
        assert_eq!(wait(&known, shard, 1, START + 100_000), None, "after 100 ms");
    }

    #[test]
    fn a_denial_says_when_another_cost_is_there() {
        let limit: Limit = "10 burst, 10/s".parse().unwrap();
        let shard = limit.shard(0, 1).unwrap();
        let known = known();
        known.saw(0, shard, 5, &denied(450), START);
        assert_eq!(
            wait(&known, shard, 7, START),
            Some(649),
            "2 tokens more, 200 ms later, less the rounding"
        );
        assert_eq!(wait(&known, shard, 4, START), Some(349), "one token less, 100 ms earlier");
        assert_eq!(wait(&known, shard, 1, START), Some(49));
        assert_eq!(wait(&known, shard, 1, START + 60_000), None, "one token is there by then");
        assert_eq!(wait(&known, shard, 0, START), None, "cost 0 asks for nothing");
        assert_eq!(wait(&known, shard, 11, START), None, "what can never succeed is for the server to say");
    }

    #[test]
    fn a_denial_does_not_outlive_its_limit_or_an_allowed_take() {
        let limit: Limit = "10 burst, 10/s".parse().unwrap();
        let raised: Limit = "20 burst, 10/s".parse().unwrap();
        let shard = limit.shard(0, 1).unwrap();
        let known = known();
        known.saw(0, shard, 1, &denied(100), START);
        assert_eq!(wait(&known, raised.shard(0, 1).unwrap(), 1, START), None, "another limit");
        known.saw(0, shard, 1, &BucketReply { outcome: Outcome::Allowed, ..denied(0) }, START);
        assert_eq!(wait(&known, shard, 1, START), None, "the bucket allowed since");
    }

    #[test]
    fn routes_of_a_tenant_share_the_tenant_wide_bucket_and_nothing_else() {
        let registry = Registry::new();
        let pair = |tenant, route, shards| {
            registry.pair(tenant, route, shards, || Meter::new(tenant, route, true)).unwrap()
        };
        let search = pair("acme", "search", 1);
        assert!(Arc::ptr_eq(&search, &pair("acme", "search", 1)), "the same names give the same entry");
        assert!(Arc::ptr_eq(&search.tenant, &pair("acme", "upload", 1).tenant), "one tenant-wide bucket");
        assert!(!Arc::ptr_eq(&search.tenant, &pair("emca", "search", 1).tenant), "another tenant");
        assert!(!Arc::ptr_eq(&search.tenant, &pair("acme", "search", 2).tenant), "another number of shards");
        assert_eq!(search.route.key(0), b"{acme}:rl:search:0");
        assert_eq!(search.tenant.key(0), b"{acme}:rl:_tenant:0");
        assert_eq!(search.route.slot(0), search.tenant.slot(0));
        assert_eq!(pair("acme", "search", 16).route.shards.len(), 16);
    }
}
