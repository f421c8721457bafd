//! A decision as HTTP says it: the status, and the fields `Retry-After`, `RateLimit-Policy` and `RateLimit` of
//! draft-ietf-httpapi-ratelimit-headers-10.
//!
//! ```
//! # use redis_token_bucket_client::decision::*;
//! # use std::time::Duration;
//! # let quota = Quota {
//! #     scope: Scope::Route, capacity: 50, time_to_fill: Duration::from_millis(2500), remaining: 0,
//! #     more_after: Some(Duration::from_millis(38)), reset_after: Duration::from_millis(2488),
//! # };
//! # let retry = Retry::After(Duration::from_millis(1238));
//! # let decision = Decision {
//! #     verdict: Verdict::Denied { reason: Reason::RouteLimit, retry }, shadow: false, soft: false,
//! #     source: Source::Server, quota: Some(quota),
//! # };
//! use redis_token_bucket_client::http;
//!
//! // A request of cost 25 that the route's bucket, `50 burst, 20/s`, denied:
//! assert_eq!(http::status(&decision), 429);
//! let fields = http::fields(&decision);
//! assert_eq!(fields[0], ("retry-after", "2".to_owned()));
//! assert_eq!(fields[1], ("ratelimit-policy", r#""route";q=50;w=3"#.to_owned()));
//! assert_eq!(fields[2], ("ratelimit", r#""route";r=0;t=2"#.to_owned()));
//! ```

use std::time::Duration;

use crate::decision::{Decision, Reason, Retry, Verdict};

/// The status to answer with: 429 for a limit, 503 when Redis is away and the failure policy is closed, 200 when the
/// request may go on.
pub fn status(decision: &Decision) -> u16 {
    match decision.reason() {
        _ if decision.is_allowed() => 200,
        Some(Reason::Unavailable) => 503,
        _ => 429,
    }
}

/// The fields to send with the response, allowed or not: names in lower case, and values.
///
/// `Retry-After` stands in denials that can succeed later, in whole seconds, rounded up. `RateLimit-Policy` names the bucket
/// that matters most, its capacity q and the seconds w it takes to fill; `RateLimit` the whole tokens r that remain and the
/// seconds t until more is available: until this request could be allowed if it was denied, until the next token
/// otherwise, and left out when the bucket is full.
pub fn fields(decision: &Decision) -> Vec<(&'static str, String)> {
    let mut fields = Vec::with_capacity(3);
    let denied = (!decision.is_allowed()).then_some(decision.verdict);
    let retry_after = match denied {
        Some(Verdict::Denied { retry: Retry::After(wait), .. }) => Some(wait),
        _ => None,
    };
    if let Some(wait) = retry_after {
        fields.push(("retry-after", seconds(wait).to_string()));
    }
    if let Some(quota) = decision.quota {
        let scope = quota.scope.as_str();
        let window = seconds(quota.time_to_fill);
        fields.push(("ratelimit-policy", format!("\"{scope}\";q={};w={window}", quota.capacity)));
        let mut remaining = format!("\"{scope}\";r={}", quota.remaining);
        if let Some(wait) = retry_after.or(quota.more_after) {
            remaining.push_str(&format!(";t={}", seconds(wait)));
        }
        fields.push(("ratelimit", remaining));
    }
    fields
}

/// Whole seconds, rounded up, at least 1.
fn seconds(duration: Duration) -> u64 {
    let more = u64::from(duration.subsec_nanos() > 0);
    duration.as_secs().saturating_add(more).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::{Quota, Scope, Source};

    const QUOTA: Quota = Quota {
        scope: Scope::Route,
        capacity: 50,
        time_to_fill: Duration::from_millis(2500),
        remaining: 12,
        more_after: Some(Duration::from_millis(30)),
        reset_after: Duration::from_millis(1880),
    };

    fn decision(verdict: Verdict) -> Decision {
        Decision { verdict, shadow: false, soft: false, source: Source::Server, quota: Some(QUOTA) }
    }

    fn denied(retry: Retry) -> Decision {
        decision(Verdict::Denied { reason: Reason::RouteLimit, retry })
    }

    fn text(decision: &Decision) -> String {
        let fields = fields(decision).into_iter().map(|(name, value)| format!("{name}: {value}"));
        fields.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn an_allowed_request_is_told_what_remains() {
        let allowed = decision(Verdict::Allowed);
        assert_eq!(status(&allowed), 200);
        assert_eq!(text(&allowed), r#"ratelimit-policy: "route";q=50;w=3, ratelimit: "route";r=12;t=1"#);
    }

    #[test]
    fn a_full_bucket_says_no_time() {
        let full = Quota { remaining: 50, more_after: None, reset_after: Duration::ZERO, ..QUOTA };
        let allowed = Decision { quota: Some(full), ..decision(Verdict::Allowed) };
        assert_eq!(text(&allowed), r#"ratelimit-policy: "route";q=50;w=3, ratelimit: "route";r=50"#);
    }

    #[test]
    fn retry_after_is_in_whole_seconds_rounded_up_and_at_least_one() {
        for (ms, seconds) in [(1, 1), (1000, 1), (1001, 2), (2500, 3)] {
            let denied = denied(Retry::After(Duration::from_millis(ms)));
            assert_eq!(status(&denied), 429);
            assert_eq!(fields(&denied)[0], ("retry-after", seconds.to_string()), "{ms} ms");
            assert!(text(&denied).ends_with(&format!(";t={seconds}")), "{ms} ms: {}", text(&denied));
        }
    }

    #[test]
    fn a_request_that_can_never_succeed_is_not_told_when_to_retry() {
        assert_eq!(status(&denied(Retry::Never)), 429);
        assert!(!text(&denied(Retry::Never)).contains("retry-after"), "{}", text(&denied(Retry::Never)));
    }

    #[test]
    fn a_denial_without_redis_is_the_service_unavailable_not_the_client_at_fault() {
        let verdict =
            Verdict::Denied { reason: Reason::Unavailable, retry: Retry::After(Duration::from_secs(1)) };
        let closed = Decision { source: Source::FailurePolicy, quota: None, ..decision(verdict) };
        assert_eq!((status(&closed), text(&closed)), (503, "retry-after: 1".to_owned()));
    }

    #[test]
    fn a_denial_in_shadow_mode_looks_allowed() {
        let shadowed = Decision { shadow: true, ..denied(Retry::After(Duration::from_secs(9))) };
        assert_eq!(status(&shadowed), 200);
        assert!(!text(&shadowed).contains("retry-after"), "{}", text(&shadowed));
    }
}
