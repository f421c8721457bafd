//! The limiter: one decision per request.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use redis_token_bucket_core::MAX_TOKENS;

use crate::command::Verb;
use crate::connection::{Connection, Failure, NODE_TIMEOUT};
use crate::decision::{Decision, Quota};
use crate::keys::KeyError;
use crate::known::{Known, Pair, Registry};
use crate::limit::{Limit, LimitError};
use crate::log::DecisionLog;
use crate::meter::Meter;
use crate::policy::{Cell, Policy};

/// Decides about requests of tenants on routes; one for a whole service, shared in an `Arc`.
///
/// A decision is counted once it is made. A call that is dropped before it returns may have taken its tokens.
///
/// ```no_run
/// use redis_token_bucket_client::{Connection, Limiter, Policy};
/// use std::sync::Arc;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let policy = Arc::new(Policy::new("1000 burst, 200/s".parse()?, "50 burst, 20/s".parse()?));
/// let connection = Connection::single("redis://127.0.0.1:6379").await?;
/// let limiter = Limiter::new(connection, move |_tenant, _route| Arc::clone(&policy));
///
/// let decision = limiter.authorize("acme", "search", 1).await?;
/// if decision.is_allowed() {
///     // serve the request
/// } else {
///     println!("try again in {:?}", decision.retry_after());
/// }
/// # Ok(())
/// # }
/// ```
pub struct Limiter {
    pub(crate) connection: Connection,
    policies: Box<Policies>,
    registry: Registry,
    /// Beliefs, denials and local buckets are told the time since this.
    start: Instant,
    tenant_label: bool,
    log: Option<DecisionLog>,
    pub(crate) outage: Arc<Outage>,
}

type Policies = dyn Fn(&str, &str) -> Arc<Policy> + Send + Sync;

/// What is wrong with a request. That Redis is away is an error only for [`Limiter::give`] and [`Limiter::charge`]; a
/// decision is then made by the failure policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// A name or a number of shards that no key can be made of.
    Key(KeyError),
    /// A limit of the policy cannot be cut into as many shards as the policy says.
    Limit(LimitError),
    /// The cost or amount is above 9007199254740991.
    Cost(u64),
    /// The cost fits no shard of a bucket, so it could never succeed.
    CostAboveShard {
        /// The cost.
        cost: u64,
        /// How many shards the bucket is cut into.
        shards: u32,
    },
    /// Redis did not confirm that tokens were given or charged; they may have been, in part or in whole.
    Unavailable(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Key(error) => error.fmt(f),
            Error::Limit(error) => error.fmt(f),
            Error::Cost(cost) => write!(f, "cost must be a number from 0 to {MAX_TOKENS}, not {cost}"),
            Error::CostAboveShard { cost, shards } => {
                write!(f, "cost {cost} is above the capacity of each of {shards} shards")
            }
            Error::Unavailable(why) => write!(f, "Redis did not confirm: {why}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<KeyError> for Error {
    fn from(error: KeyError) -> Error {
        Error::Key(error)
    }
}

impl From<LimitError> for Error {
    fn from(error: LimitError) -> Error {
        Error::Limit(error)
    }
}

impl Limiter {
    /// A limiter over `connection`. `policies` says for a tenant and a route what holds for it; it is asked for every
    /// request, so it should be quick and may change its mind.
    ///
    /// Install a `metrics` recorder before the first request: counters that were registered without one stay silent.
    pub fn new(
        connection: Connection,
        policies: impl Fn(&str, &str) -> Arc<Policy> + Send + Sync + 'static,
    ) -> Limiter {
        Limiter {
            connection,
            policies: Box::new(policies),
            registry: Registry::new(),
            start: Instant::now(),
            tenant_label: true,
            log: None,
            outage: Arc::default(),
        }
    }

    /// Leaves the label `tenant` out of the metrics, for when there are too many tenants.
    pub fn without_tenant_label(mut self) -> Limiter {
        self.tenant_label = false;
        self
    }

    /// Writes every decision, and what is given and charged, to `log`.
    pub fn with_decision_log(mut self, log: DecisionLog) -> Limiter {
        self.log = Some(log);
        self
    }

    /// The decision log, if there is one.
    pub fn decision_log(&self) -> Option<&DecisionLog> {
        self.log.as_ref()
    }

    /// Decides about a request: takes `cost` tokens from the tenant-wide bucket, the route's and, if the policy has one,
    /// the cell's, or from none of them. It answers within the policy's timeout, whatever happens to Redis. Cost 0 takes
    /// nothing and is allowed unless a bucket is in debt.
    ///
    /// # Errors
    /// If the request can never be decided: an empty name, limits that cannot be cut into the policy's shards, a cost that
    /// fits no shard.
    pub async fn authorize(&self, tenant: &str, route: &str, cost: u64) -> Result<Decision, Error> {
        let request = self.request(tenant, route, cost, true)?;
        let decision = self.decide(&request).await;
        request.pair.meter.decided(&decision);
        if let Some(log) = &self.log {
            log.decided(tenant, route, cost, &decision);
        }
        tracing::debug!(
            tenant,
            route,
            cost,
            allowed = decision.is_allowed(),
            reason = decision.reason().map(|reason| reason.as_str()),
            source = decision.source.as_str(),
            soft = decision.soft,
            shadow = decision.shadow,
            "decided"
        );
        Ok(decision)
    }

    /// The command that [`Limiter::authorize`] would send first; for the bench.
    ///
    /// # Errors
    /// Like [`Limiter::authorize`].
    #[doc(hidden)]
    pub fn take_command(&self, tenant: &str, route: &str, cost: u64) -> Result<redis::Cmd, Error> {
        let request = self.request(tenant, route, cost, true)?;
        let (first, _) = request.pair_shards();
        Ok(request.take(first))
    }

    /// What [`Limiter::authorize`] would answer now. Takes nothing, and counts and logs nothing.
    ///
    /// # Errors
    /// Like [`Limiter::authorize`].
    pub async fn peek(&self, tenant: &str, route: &str, cost: u64) -> Result<Decision, Error> {
        let request = self.request(tenant, route, cost, false)?;
        Ok(self.decide(&request).await)
    }

    /// Gives `amount` tokens back to all buckets that [`Limiter::authorize`] takes from, never above their capacity. Of
    /// the shards of a big tenant one of the emptier gets them. Returns the bucket with fewer tokens left.
    ///
    /// # Errors
    /// Like [`Limiter::authorize`], and if Redis did not confirm.
    pub async fn give(&self, tenant: &str, route: &str, amount: u64) -> Result<Quota, Error> {
        self.settle_and_log(Verb::Give, "give", tenant, route, amount).await
    }

    /// Takes `amount` tokens unconditionally from all buckets that [`Limiter::authorize`] takes from, if need be below
    /// zero: to settle a request whose cost was known only afterwards. Returns the bucket with fewer tokens left.
    ///
    /// # Errors
    /// Like [`Limiter::authorize`], and if Redis did not confirm.
    pub async fn charge(&self, tenant: &str, route: &str, amount: u64) -> Result<Quota, Error> {
        self.settle_and_log(Verb::Charge, "charge", tenant, route, amount).await
    }

    async fn settle_and_log(
        &self,
        verb: Verb,
        event: &'static str,
        tenant: &str,
        route: &str,
        amount: u64,
    ) -> Result<Quota, Error> {
        if amount > MAX_TOKENS {
            return Err(Error::Cost(amount));
        }
        // Looked up for cost 0: an amount need not fit a shard.
        let request = Request { cost: amount, ..self.request(tenant, route, 0, true)? };
        let quota = self.settle(verb, &request).await.map_err(|why| Error::Unavailable(why.to_string()))?;
        if let Some(log) = &self.log {
            log.settled(event, tenant, route, amount);
        }
        tracing::debug!(tenant, route, amount, event, "settled");
        Ok(quota)
    }

    /// Looks up what is needed to decide, and checks it.
    pub(crate) fn request(
        &self,
        tenant: &str,
        route: &str,
        cost: u64,
        takes: bool,
    ) -> Result<Request, Error> {
        if cost > MAX_TOKENS {
            return Err(Error::Cost(cost));
        }
        let policy = (self.policies)(tenant, route);
        let meter = || Meter::new(tenant, route, self.tenant_label);
        let pair = self.registry.pair(tenant, route, policy.shards, meter)?;
        let fit = shards_that_hold([&policy.tenant, &policy.route], cost, policy.shards)?;
        let cell = match &policy.cell {
            Some(Cell { name, limit, shards }) => {
                let known = self.registry.cell(name, *shards)?;
                Some((known, shards_that_hold([limit], cost, *shards)?))
            }
            None => None,
        };
        let arrived = Instant::now();
        Ok(Request { policy, pair, fit, cell, cost, takes, came: self.micros(arrived), arrived })
    }

    /// µs on the clock of beliefs, denials and local buckets.
    pub(crate) fn now(&self) -> u64 {
        self.micros(Instant::now())
    }

    fn micros(&self, at: Instant) -> u64 {
        let elapsed = at.saturating_duration_since(self.start);
        elapsed.as_secs() * 1_000_000 + u64::from(elapsed.subsec_micros())
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").field("connection", &self.connection).finish_non_exhaustive()
    }
}

/// A request that can be decided.
pub(crate) struct Request {
    pub(crate) policy: Arc<Policy>,
    pub(crate) pair: Arc<Pair>,
    /// How many of the pair's shards, counted from the first, can hold the cost.
    pub(crate) fit: u32,
    /// The cell's bucket, and how many of its shards can hold the cost.
    pub(crate) cell: Option<(Arc<Known>, u32)>,
    pub(crate) cost: u64,
    /// Whether tokens are to be taken, or only looked at.
    pub(crate) takes: bool,
    /// When it came, see [`Limiter::now`].
    pub(crate) came: u64,
    pub(crate) arrived: Instant,
}

impl Request {
    /// When an answer must be there. Worked out only for what goes to a server: the denial cache answers without.
    pub(crate) fn deadline(&self) -> tokio::time::Instant {
        (self.arrived + self.policy.timeout.min(NODE_TIMEOUT)).into()
    }
}

/// How many shards, counted from the first, can hold `cost` in all of `limits`. A bucket that is not cut counts as one, be
/// the cost within its capacity or not: the server then says "never".
fn shards_that_hold<const N: usize>(limits: [&Limit; N], cost: u64, shards: u32) -> Result<u32, Error> {
    if shards == 1 {
        return Ok(1);
    }
    let mut fit = shards;
    for limit in limits {
        fit = fit.min(limit.shards_that_hold(cost, shards)?);
    }
    match fit {
        0 => Err(Error::CostAboveShard { cost, shards }),
        fit => Ok(fit),
    }
}

/// Says that Redis fails, often enough to be seen and seldom enough to be read.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    /// The second in which a failure was last reported, since `start`.
    reported: AtomicU64,
    module_missing: AtomicBool,
}

impl Outage {
    /// Reports a failure: a missing module once, others once a second, all of them at debug level.
    pub(crate) fn report(&self, failure: &Failure, now: u64) {
        tracing::debug!(%failure, "Redis did not answer");
        if *failure == Failure::NoModule {
            if !self.module_missing.swap(true, Ordering::Relaxed) {
                tracing::error!("{failure}; the failure policy decides");
            }
            return;
        }
        // Counted from 1, so that the first second is reported too.
        let second = now / 1_000_000 + 1;
        if self.reported.swap(second, Ordering::Relaxed) != second {
            tracing::warn!(%failure, "Redis did not answer; the failure policy decides");
        }
    }
}
