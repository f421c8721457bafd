"""A decision as HTTP says it: the status, and the fields `Retry-After`, `RateLimit-Policy` and `RateLimit` of
draft-ietf-httpapi-ratelimit-headers-10."""

from .decision import Decision, Reason


def status(decision: Decision) -> int:
    """429 for a limit, 503 when Redis is away and the failure policy is closed, 200 when the request may go on."""
    if decision.allowed:
        return 200
    return 503 if decision.reason is Reason.UNAVAILABLE else 429


def fields(decision: Decision) -> dict[str, str]:
    """The fields to send with the response, allowed or not.

    `Retry-After` stands in denials that can succeed later. `RateLimit-Policy` names the bucket that matters most, its
    capacity q and the seconds w it takes to fill; `RateLimit` the whole tokens r that remain and the seconds t until more
    is available: until this request could be allowed if it was denied, until the next token otherwise; left out when full.
    """
    out, quota = {}, decision.quota
    retry_ms = None if decision.allowed else decision.retry_after_ms
    if retry_ms is not None:
        out["retry-after"] = str(_seconds(retry_ms))
    if quota is not None:
        name, more_ms = f'"{quota.scope.value}"', quota.more_after_ms if retry_ms is None else retry_ms
        out["ratelimit-policy"] = f"{name};q={quota.capacity};w={_seconds(quota.fill_ms)}"
        out["ratelimit"] = f"{name};r={quota.remaining}" + ("" if more_ms is None else f";t={_seconds(more_ms)}")
    return out


def _seconds(ms: int) -> int:
    """Whole seconds, rounded up, at least 1."""
    return max(1, -(-ms // 1000))
