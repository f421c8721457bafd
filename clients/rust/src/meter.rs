//! Counters of decisions, through the `metrics` facade. The table of them is in the documentation of the crate.

use std::sync::OnceLock;

use metrics::{Counter, Label, counter};

use crate::connection::Failure;
use crate::decision::{Decision, Reason, Source, Verdict};

/// The counters of one tenant on one route. Each is registered when it first counts, and then kept: looking one up by its
/// labels takes longer than all the rest of a decision.
#[derive(Debug)]
pub(crate) struct Meter {
    labels: Vec<Label>,
    counters: [OnceLock<Counter>; SERIES.len()],
}

/// Names and reasons of all counters.
const SERIES: [(&str, &str); 11] = [
    ("rate_limit.allow", "within_limit"),
    ("rate_limit.allow", "soft"),
    ("rate_limit.allow", "unavailable"),
    ("rate_limit.deny", "tenant_limit"),
    ("rate_limit.deny", "route_limit"),
    ("rate_limit.deny", "cell_limit"),
    ("rate_limit.deny", "unavailable"),
    ("rate_limit.unavailable", "timeout"),
    ("rate_limit.unavailable", "connection"),
    ("rate_limit.unavailable", "server_error"),
    ("rate_limit.unavailable", "no_module"),
];

impl Meter {
    pub(crate) fn new(tenant: &str, route: &str, tenant_label: bool) -> Meter {
        let mut labels = Vec::with_capacity(3);
        if tenant_label {
            labels.push(Label::new("tenant", tenant.to_owned()));
        }
        labels.push(Label::new("route", route.to_owned()));
        Meter { labels, counters: Default::default() }
    }

    pub(crate) fn decided(&self, decision: &Decision) {
        self.count(match (decision.verdict, decision.source) {
            (Verdict::Allowed, Source::FailurePolicy) => 2,
            (Verdict::Allowed, _) if decision.soft => 1,
            (Verdict::Allowed, _) => 0,
            (Verdict::Denied { reason: Reason::TenantLimit, .. }, _) => 3,
            (Verdict::Denied { reason: Reason::RouteLimit, .. }, _) => 4,
            (Verdict::Denied { reason: Reason::CellLimit, .. }, _) => 5,
            (Verdict::Denied { reason: Reason::Unavailable, .. }, _) => 6,
        });
    }

    pub(crate) fn failed(&self, failure: &Failure) {
        self.count(match failure {
            Failure::Timeout => 7,
            Failure::Connection(_) => 8,
            Failure::Server(_) => 9,
            Failure::NoModule => 10,
        });
    }

    fn count(&self, series: usize) {
        let register = || {
            let (name, reason) = SERIES[series];
            let mut labels = self.labels.clone();
            labels.push(Label::new("reason", reason));
            counter!(name, labels)
        };
        self.counters[series].get_or_init(register).increment(1);
    }
}
