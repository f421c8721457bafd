//! The failure policy: what is decided when Redis does not answer.

use std::time::Duration;

use redis_token_bucket_core::{Level, Tokens};

use crate::ask::tighter;
use crate::decision::{Decision, Quota, Reason, Retry, Source, Verdict};
use crate::limiter::{Limiter, Request};
use crate::policy::OnFailure;
use crate::target::Target;

/// When to try again after a denial by a failure policy that is closed. No one knows when Redis will be back; a second is
/// the least that HTTP can say.
const CLOSED_RETRY: Duration = Duration::from_secs(1);

impl Limiter {
    /// Decides a request of which no bucket has answered.
    pub(crate) fn decide_without_redis(&self, request: &Request) -> Decision {
        match request.policy.on_failure {
            OnFailure::Open => request.allowed(None, Source::FailurePolicy),
            OnFailure::Closed => closed(request),
            OnFailure::Local => self.decide_locally(request),
        }
    }

    /// Decides a request that the tenant's buckets have allowed, as `quota` says, and the cell has not answered.
    pub(crate) fn decide_on_cell_without_redis(
        &self,
        request: &Request,
        cell: Target<'_>,
        quota: Quota,
    ) -> Decision {
        match request.policy.on_failure {
            OnFailure::Open => request.allowed(Some(quota), Source::FailurePolicy),
            OnFailure::Closed => closed(request),
            OnFailure::Local => {
                let mut stored = cell.known.local();
                let level = cell.local_level(*stored, self.now());
                match cell.ask_local(level, request.cost) {
                    Err(denied) => request.denied(denied),
                    Ok(_) => {
                        if request.takes {
                            *stored = Some(minus(level, request.cost).stored());
                        }
                        request.allowed(Some(quota), Source::FailurePolicy)
                    }
                }
            }
        }
    }

    /// Takes from the local buckets of tenant, route and cell, or from none of them.
    fn decide_locally(&self, request: &Request) -> Decision {
        let now = self.now();
        let cell = request.cell().map(|(cell, _)| cell);
        // Always locked in this order: tenant, route, cell.
        let targets = [Some(request.tenant()), Some(request.route()), cell];
        let mut stored = targets.map(|target| target.map(|target| target.known.local()));
        let mut levels: [Option<Level>; 3] = [None; 3];
        let mut quotas: [Option<Quota>; 3] = [None; 3];
        for (index, target) in targets.iter().enumerate() {
            let (Some(target), Some(stored)) = (target, &stored[index]) else { continue };
            let level = target.local_level(**stored, now);
            match target.ask_local(level, request.cost) {
                Err(denied) => return request.denied(denied),
                Ok(quota) => quotas[index] = Some(quota),
            }
            levels[index] = Some(level);
        }
        if request.takes {
            for (stored, level) in stored.iter_mut().zip(levels) {
                if let (Some(stored), Some(level)) = (stored, level) {
                    **stored = Some(minus(level, request.cost).stored());
                }
            }
        }
        let quota = quotas[0].zip(quotas[1]).map(|(tenant, route)| tighter(tenant, route));
        request.allowed(quota, Source::FailurePolicy)
    }
}

fn minus(level: Level, cost: u64) -> Level {
    level.minus(Tokens::from_nanos(i128::from(cost) * Tokens::ONE.nanos()))
}

fn closed(request: &Request) -> Decision {
    let verdict = Verdict::Denied { reason: Reason::Unavailable, retry: Retry::After(CLOSED_RETRY) };
    Decision {
        verdict,
        shadow: request.policy.shadow,
        soft: false,
        source: Source::FailurePolicy,
        quota: None,
    }
}
