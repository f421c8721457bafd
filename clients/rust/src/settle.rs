//! Tokens that go back, or are taken after the fact.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use crate::ask::{choose, tighter};
use crate::command::{BucketReply, Verb};
use crate::connection::{Failure, NODE_TIMEOUT};
use crate::decision::Quota;
use crate::limiter::{Limiter, Request};
use crate::reply::command;
use crate::target::Target;

impl Limiter {
    /// Returns what was taken from the tenant's two buckets in `shard`. It happens in the background, so that a caller who
    /// stops waiting, and the timeout of the decision, do not lose tokens; but it is waited for as long as there is time.
    pub(crate) async fn give_back(&self, request: &Request, shard: u32) {
        let deadline = Instant::now() + NODE_TIMEOUT;
        let gifts = [request.tenant(), request.route()].map(|target| {
            let give = command(Verb::Give, target.bucket(shard), request.cost);
            let (connection, slot) = (self.connection.clone(), target.known.slot(shard));
            let (pair, outage, now) = (Arc::clone(&request.pair), Arc::clone(&self.outage), self.now());
            tokio::spawn(async move {
                if let Err(failure) = connection.send(slot, &give, deadline).await {
                    pair.meter.failed(&failure);
                    outage.report(&failure, now);
                }
            })
        });
        for gift in gifts {
            // Out of time: it goes on by itself.
            let _ = timeout_at(request.deadline(), gift).await;
        }
    }

    /// Gives or charges `request.cost` on all buckets of a request.
    pub(crate) async fn settle(&self, verb: Verb, request: &Request) -> Result<Quota, Failure> {
        let now = request.came;
        let shard = settled_shard(verb, request.policy.shards, |shard| request.fullness(shard));
        let cell = request.cell().map(|(cell, _)| {
            (cell, settled_shard(verb, cell.known.shards(), |shard| cell.fullness(shard, now)))
        });
        let (tenant, route) = (request.tenant(), request.route());
        let (tenant_reply, route_reply, cell_reply) = tokio::join!(
            self.ask_bucket(verb, request, tenant, shard),
            self.ask_bucket(verb, request, route, shard),
            async {
                match cell {
                    Some((cell, shard)) => self.ask_bucket(verb, request, cell, shard).await.map(Some),
                    None => Ok(None),
                }
            }
        );
        let settled = |target: Target<'_>, shard, reply: Result<BucketReply, Failure>| {
            let reply = reply.inspect_err(|failure| {
                self.failed(request, failure);
            })?;
            // An allowed reply, so an earlier denial is forgotten.
            target.saw(shard, request.cost, &reply, self.now());
            Ok::<Quota, Failure>(target.quota(shard, &reply))
        };
        let cell_quota = match (cell, cell_reply.transpose()) {
            (Some((cell, shard)), Some(reply)) => settled(cell, shard, reply).map(Some),
            _ => Ok(None),
        };
        let (tenant, route) = (settled(tenant, shard, tenant_reply), settled(route, shard, route_reply));
        cell_quota?;
        Ok(tighter(tenant?, route?))
    }
}

/// The shard to settle on, of two at random: the emptier for a gift, so that it does not overflow; the fuller for a charge.
fn settled_shard(verb: Verb, count: u32, fullness: impl Fn(u32) -> f64) -> u32 {
    let (fuller, emptier) = choose(count, fullness);
    match verb {
        Verb::Give => emptier.unwrap_or(fuller),
        _ => fuller,
    }
}
