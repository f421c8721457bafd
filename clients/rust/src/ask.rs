//! A decision step by step: denials that still hold, both buckets of the tenant, the cell.

use std::pin::Pin;

use redis::Cmd;
use redis_token_bucket_core::Outcome;

use crate::choice::two_shards;
use crate::command::{BucketReply, Verb};
use crate::connection::Failure;
use crate::decision::{Decision, Quota, Scope, Source, Verdict};
use crate::limiter::{Limiter, Request};
use crate::reply::{PairReply, command, read_both, read_bucket, take_both};
use crate::target::{Denied, Held, Target, longer, sooner};

/// What the tenant's two buckets said.
enum PairAnswer {
    /// Taken from both, in this shard.
    Granted {
        shard: u32,
        quota: Quota,
    },
    Denied(Denied),
}

impl Request {
    pub(crate) fn tenant(&self) -> Target<'_> {
        Target { scope: Scope::Tenant, known: &self.pair.tenant, limit: &self.policy.tenant }
    }

    pub(crate) fn route(&self) -> Target<'_> {
        Target { scope: Scope::Route, known: &self.pair.route, limit: &self.policy.route }
    }

    /// The cell's bucket, and how many of its shards can hold the cost.
    pub(crate) fn cell(&self) -> Option<(Target<'_>, u32)> {
        let (known, fit) = self.cell.as_ref()?;
        let limit = &self.policy.cell.as_ref()?.limit;
        Some((Target { scope: Scope::Cell, known, limit }, *fit))
    }

    /// The shards to ask, in order.
    pub(crate) fn pair_shards(&self) -> (u32, Option<u32>) {
        choose(self.fit, |shard| self.fullness(shard))
    }

    /// How full both buckets of a shard are believed to be.
    pub(crate) fn fullness(&self, shard: u32) -> f64 {
        self.tenant().fullness(shard, self.came).min(self.route().fullness(shard, self.came))
    }

    /// The command that takes from both buckets of a shard.
    pub(crate) fn take(&self, shard: u32) -> Cmd {
        take_both(self.tenant().bucket(shard), self.route().bucket(shard), self.cost)
    }

    pub(crate) fn denied(&self, denied: Denied) -> Decision {
        let Denied { retry, quota, source } = denied;
        let verdict = Verdict::Denied { reason: quota.scope.reason(), retry };
        Decision { verdict, shadow: self.policy.shadow, soft: false, source, quota: Some(quota) }
    }

    /// `quota` is the tighter of the tenant-wide and the route bucket, see [`tighter`].
    pub(crate) fn allowed(&self, quota: Option<Quota>, source: Source) -> Decision {
        let soft = quota.is_some_and(|quota| quota.remaining < self.policy.soft_limit);
        Decision { verdict: Verdict::Allowed, shadow: self.policy.shadow, soft, source, quota }
    }

    fn uses_denials(&self) -> bool {
        self.policy.denial_cache && self.takes
    }
}

/// The shards of one bucket to ask, in order; see [`two_shards`].
pub(crate) fn choose(count: u32, fullness: impl Fn(u32) -> f64) -> (u32, Option<u32>) {
    // No random numbers for what is nearly always one.
    if count == 1 { (0, None) } else { two_shards(count, &mut fastrand::Rng::new(), fullness) }
}

/// Of two buckets the one with fewer tokens left.
pub(crate) fn tighter(tenant: Quota, route: Quota) -> Quota {
    if tenant.remaining < route.remaining { tenant } else { route }
}

/// The shards to ask, in order: of the tenant, and of the cell.
struct Shards {
    pair: (u32, Option<u32>),
    cell: (u32, Option<u32>),
}

impl Request {
    fn shards(&self) -> Shards {
        let cell =
            self.cell().map_or((0, None), |(cell, fit)| choose(fit, |shard| cell.fullness(shard, self.came)));
        Shards { pair: self.pair_shards(), cell }
    }

    /// The denial by a shard of the tenant that still holds: of both buckets' the one that lasts longer.
    #[inline]
    fn pair_held(&self, shard: u32) -> Option<Held<'_>> {
        if !self.uses_denials() {
            return None;
        }
        let tenant = self.tenant().held(shard, self.cost, self.came);
        let route = self.route().held(shard, self.cost, self.came);
        match (tenant, route) {
            (Some(tenant), Some(route)) if route.retry_ms > tenant.retry_ms => Some(route),
            (tenant, route) => tenant.or(route),
        }
    }

    /// The denial by a shard of the cell that still holds.
    #[inline]
    fn cell_held(&self, shard: u32) -> Option<Held<'_>> {
        if !self.uses_denials() {
            return None;
        }
        self.cell().and_then(|(cell, _)| cell.held(shard, self.cost, self.came))
    }

    /// The denial that needs no server: all shards to ask have denied before, and that still holds. From a cell that is
    /// known to deny it is not worth taking the tenant's tokens and giving them back.
    #[inline]
    fn held(&self, shards: &Shards) -> Option<Held<'_>> {
        soonest(shards.pair, |shard| self.pair_held(shard))
            .or_else(|| soonest(shards.cell, |shard| self.cell_held(shard)))
    }
}

/// If all of these shards still deny, the denial that is over sooner.
#[inline]
fn soonest<'a>(
    (first, second): (u32, Option<u32>),
    held: impl Fn(u32) -> Option<Held<'a>>,
) -> Option<Held<'a>> {
    let one = held(first)?;
    let Some(second) = second else { return Some(one) };
    let other = held(second)?;
    Some(if other.retry_ms < one.retry_ms { other } else { one })
}

impl Limiter {
    pub(crate) async fn decide(&self, request: &Request) -> Decision {
        let shards = request.shards();
        match request.held(&shards) {
            Some(held) => request.denied(held.denied()),
            None => self.ask(request, shards).await,
        }
    }

    /// The way to the server. Boxed out of line, so that the quick answer does not pay for the room that this one needs.
    #[inline(never)]
    fn ask<'a>(
        &'a self,
        request: &'a Request,
        shards: Shards,
    ) -> Pin<Box<dyn Future<Output = Decision> + Send + 'a>> {
        Box::pin(self.ask_servers(request, shards))
    }

    async fn ask_servers(&self, request: &Request, shards: Shards) -> Decision {
        let (shard, quota) = match self.ask_pair(request, shards.pair).await {
            Ok(PairAnswer::Granted { shard, quota }) => (shard, quota),
            Ok(PairAnswer::Denied(denied)) => return request.denied(denied),
            Err(NoAnswer) => return self.decide_without_redis(request),
        };
        let Some((cell, _)) = request.cell() else { return request.allowed(Some(quota), Source::Server) };
        let decision = match self.ask_cell(request, cell, shards.cell).await {
            Ok(None) => return request.allowed(Some(quota), Source::Server),
            Ok(Some(denied)) => request.denied(denied),
            Err(NoAnswer) => self.decide_on_cell_without_redis(request, cell, quota),
        };
        if request.takes && decision.verdict != Verdict::Allowed {
            self.give_back(request, shard).await;
        }
        decision
    }

    /// Asks both buckets of the tenant, in at most two shards.
    async fn ask_pair(
        &self,
        request: &Request,
        (first, second): (u32, Option<u32>),
    ) -> Result<PairAnswer, NoAnswer> {
        let mut denied: Option<Denied> = None;
        for shard in [Some(first), second].into_iter().flatten() {
            let again = match request.pair_held(shard) {
                Some(held) => held.denied(),
                None => match self.ask_pair_shard(request, shard).await {
                    Ok(PairAnswer::Denied(denied)) => denied,
                    // One shard that denied is an answer, though the other gave none.
                    Err(NoAnswer) if denied.is_some() => break,
                    answer => return answer,
                },
            };
            denied = Some(sooner(denied, again));
        }
        denied.map(PairAnswer::Denied).ok_or(NoAnswer)
    }

    async fn ask_pair_shard(&self, request: &Request, shard: u32) -> Result<PairAnswer, NoAnswer> {
        let reply = if request.takes {
            self.take_pair(request, shard).await
        } else {
            self.peek_pair(request, shard).await
        };
        let reply = reply.map_err(|failure| self.failed(request, &failure))?;
        let (tenant, route) = (request.tenant(), request.route());
        let now = self.now();
        tenant.saw(shard, request.cost, &reply.tenant, now);
        route.saw(shard, request.cost, &reply.route, now);
        if reply.allowed {
            let quota = tighter(tenant.quota(shard, &reply.tenant), route.quota(shard, &reply.route));
            return Ok(PairAnswer::Granted { shard, quota });
        }
        match longer(tenant.denied(shard, &reply.tenant), route.denied(shard, &reply.route)) {
            Some(denied) => Ok(PairAnswer::Denied(denied)),
            None => Err(self.failed(request, &Failure::Server("denied, but by neither bucket".to_owned()))),
        }
    }

    async fn take_pair(&self, request: &Request, shard: u32) -> Result<PairReply, Failure> {
        let slot = request.pair.tenant.slot(shard);
        let reply = self.connection.send(slot, &request.take(shard), request.deadline()).await?;
        Ok(read_both(&reply)?)
    }

    async fn peek_pair(&self, request: &Request, shard: u32) -> Result<PairReply, Failure> {
        let (tenant, route) = tokio::join!(
            self.ask_bucket(Verb::Peek, request, request.tenant(), shard),
            self.ask_bucket(Verb::Peek, request, request.route(), shard)
        );
        let (tenant, route) = (tenant?, route?);
        let allowed = tenant.outcome == Outcome::Allowed && route.outcome == Outcome::Allowed;
        Ok(PairReply { allowed, tenant, route })
    }

    /// Sends a command on one bucket.
    pub(crate) async fn ask_bucket(
        &self,
        verb: Verb,
        request: &Request,
        target: Target<'_>,
        shard: u32,
    ) -> Result<BucketReply, Failure> {
        let command = command(verb, target.bucket(shard), request.cost);
        let reply = self.connection.send(target.known.slot(shard), &command, request.deadline()).await?;
        Ok(read_bucket(&reply)?)
    }

    /// Asks the cell, in at most two shards: `None` if it allowed.
    async fn ask_cell(
        &self,
        request: &Request,
        cell: Target<'_>,
        (first, second): (u32, Option<u32>),
    ) -> Result<Option<Denied>, NoAnswer> {
        let verb = if request.takes { Verb::Take } else { Verb::Peek };
        let mut denied: Option<Denied> = None;
        for shard in [Some(first), second].into_iter().flatten() {
            let again = match request.cell_held(shard) {
                Some(held) => held.denied(),
                None => match self.ask_bucket(verb, request, cell, shard).await {
                    Ok(reply) => {
                        cell.saw(shard, request.cost, &reply, self.now());
                        match cell.denied(shard, &reply) {
                            None => return Ok(None),
                            Some(denied) => denied,
                        }
                    }
                    Err(failure) => {
                        let no_answer = self.failed(request, &failure);
                        match denied {
                            Some(_) => break,
                            None => return Err(no_answer),
                        }
                    }
                },
            };
            denied = Some(sooner(denied, again));
        }
        Ok(denied)
    }

    /// Counts and reports a failure.
    pub(crate) fn failed(&self, request: &Request, failure: &Failure) -> NoAnswer {
        request.pair.meter.failed(failure);
        self.outage.report(failure, self.now());
        NoAnswer
    }
}

/// Redis did not answer, and that has been counted and reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoAnswer;
