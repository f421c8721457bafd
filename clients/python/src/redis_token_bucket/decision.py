"""The one answer to every request."""

import json
import time
from dataclasses import dataclass
from enum import Enum
from math import floor, inf
from typing import NamedTuple

from .limit import Limit, Shard


class Reason(str, Enum):
    """Which limit denied; `unavailable` if none did, but Redis did not answer and the failure policy is closed."""

    TENANT_LIMIT = "tenant_limit"
    ROUTE_LIMIT = "route_limit"
    CELL_LIMIT = "cell_limit"
    UNAVAILABLE = "unavailable"


class Source(str, Enum):
    """Who decided: Redis, a denial that it gave to an earlier request and that still holds, or the failure policy."""

    SERVER = "server"
    DENIAL_CACHE = "denial_cache"
    FAILURE_POLICY = "failure_policy"


class Scope(str, Enum):
    """Which of the three buckets of a request."""

    TENANT = "tenant"
    ROUTE = "route"
    CELL = "cell"


class Reply(NamedTuple):
    """What a bucket answers; retry after is -1 if it never will allow."""

    allowed: bool
    remaining: int
    retry_after_ms: int
    reset_after_ms: int


@dataclass(frozen=True, slots=True)
class Quota:
    """How a bucket stands after the decision. If it is cut into shards, all but the capacity is an estimate for the whole
    from the shard that was asked."""

    scope: Scope
    capacity: int
    """Most whole tokens it holds."""
    fill_ms: int
    """Time from empty to full."""
    remaining: int
    """Whole tokens left, rounded down."""
    more_after_ms: int | None
    """Time until one more whole token is there; None if it is full."""
    reset_after_ms: int
    """Time until it is full."""

    @classmethod
    def of(cls, scope: Scope, limit: Limit, shard: Shard, count: int, reply: Reply) -> "Quota":
        """From the answer of a shard, one of `count`."""
        capacity, reset = int(limit.capacity), reply.reset_after_ms
        # Counted back from full, which the server gave exactly: what will still be missing when the next token is there.
        missing_then = max(0.0, shard.tokens - (reply.remaining + 1))
        more = max(1, reset - floor(missing_then / shard.per_ms)) if reset > 0 else None
        return cls(scope, capacity, limit.fill_ms, min(capacity, reply.remaining * count), more, reset)


class Denied(NamedTuple):
    """A bucket that said no."""

    retry_after_ms: int | None
    quota: Quota
    source: Source

    @property
    def wait(self) -> float:
        """For comparing: never is longest."""
        return inf if self.retry_after_ms is None else self.retry_after_ms


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about one request, and all that a counter or a log wants to know of it."""

    tenant: str
    route: str
    cost: int
    reason: Reason | None
    """Why it was denied, None if it was not. In shadow mode this is what would have been decided; see `allowed`."""
    retry_after_ms: int | None = None
    """Time before the same request can succeed, if nobody else takes; None if it is allowed or never will be."""
    shadow: bool = False
    """The policy is in shadow mode: the request goes through whatever the reason."""
    soft: bool = False
    """Allowed, with fewer whole tokens left than the policy's soft limit."""
    source: Source = Source.SERVER
    """Who decided."""
    quota: Quota | None = None
    """The bucket that matters most: the one that denied, or of the tenant-wide and the route bucket the one with fewer
    tokens left. None if no bucket was looked at, because the failure policy is open or closed."""

    @property
    def allowed(self) -> bool:
        """Whether the request may go on."""
        return self.shadow or self.reason is None

    @property
    def never(self) -> bool:
        """Whether the same request can never succeed: its cost is above the capacity."""
        return self.reason is not None and self.retry_after_ms is None

    @property
    def label(self) -> str:
        """The reason as a counter has it: that of the denial, or `within_limit`, `soft`, `unavailable`."""
        if self.reason is not None:
            return self.reason.value
        return "unavailable" if self.source is Source.FAILURE_POLICY else "soft" if self.soft else "within_limit"

    def line(self) -> str:
        """The decision as one line of JSON without its end, for a log of what is billed."""
        return json.dumps({
            "time_ms": time.time_ns() // 1_000_000, "event": "authorize", "tenant": self.tenant, "route": self.route,
            "tokens": self.cost, "allowed": self.allowed, "reason": self.reason and self.reason.value,
            "soft": self.soft, "shadow": self.shadow, "source": self.source.value,
            "remaining": self.quota and self.quota.remaining, "retry_after_ms": self.retry_after_ms,
        })  # fmt: skip


@dataclass(frozen=True, slots=True)
class Failure:
    """Why Redis did not answer a command; `kind` is the reason as a counter has it."""

    kind: str
    """`timeout`, `connection`, `server_error` or `no_module`."""
    text: str
    code: str = ""
    """The first word of an error of the server, such as MOVED."""
    sent: bool = True
    """Whether the command may have been carried out, as far as the connection knows."""
