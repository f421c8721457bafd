from typing import Any

import pytest

from redis_token_bucket import Decision, Quota, Reason, Scope, Source, http


def quota(**fields: Any) -> Quota:
    return Quota(**{"scope": Scope.ROUTE, "capacity": 50, "fill_ms": 2500, "remaining": 12, "more_after_ms": 30,
                    "reset_after_ms": 1880, **fields})  # fmt: skip


def denied(retry_after_ms: int | None, **fields: Any) -> Decision:
    return Decision("acme", "search", 1, Reason.ROUTE_LIMIT, retry_after_ms, **{"quota": quota(remaining=0), **fields})


def test_an_allowed_request_is_told_what_remains() -> None:
    allowed = Decision("acme", "search", 1, None, quota=quota())
    assert http.status(allowed) == 200
    assert http.fields(allowed) == {"ratelimit-policy": '"route";q=50;w=3', "ratelimit": '"route";r=12;t=1'}


def test_a_full_bucket_says_no_time() -> None:
    full = Decision("acme", "search", 0, None, quota=quota(remaining=50, more_after_ms=None, reset_after_ms=0))
    assert http.fields(full)["ratelimit"] == '"route";r=50'


@pytest.mark.parametrize(("ms", "seconds"), [(1, 1), (1000, 1), (1001, 2), (2500, 3)])
def test_retry_after_is_in_whole_seconds_rounded_up_and_at_least_one(ms: int, seconds: int) -> None:
    assert http.status(denied(ms)) == 429
    assert http.fields(denied(ms))["retry-after"] == str(seconds)
    assert http.fields(denied(ms))["ratelimit"] == f'"route";r=0;t={seconds}'


def test_a_request_that_can_never_succeed_is_not_told_when_to_retry() -> None:
    assert http.status(denied(None)) == 429
    assert "retry-after" not in http.fields(denied(None))


def test_a_denial_without_redis_is_the_service_unavailable_not_the_client_at_fault() -> None:
    closed = Decision("acme", "search", 1, Reason.UNAVAILABLE, 1000, source=Source.FAILURE_POLICY)
    assert (http.status(closed), http.fields(closed)) == (503, {"retry-after": "1"})


def test_a_denial_in_shadow_mode_looks_allowed() -> None:
    shadowed = denied(9000, shadow=True)
    assert http.status(shadowed) == 200
    assert "retry-after" not in http.fields(shadowed)
