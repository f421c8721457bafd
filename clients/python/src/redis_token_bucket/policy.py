"""What is allowed to whom, and what happens when Redis is away.

>>> policy = Policy.read({"tenant": "1000 burst, 200/s", "route": "50 burst, 20/s", "on_failure": "local"})
>>> policy.route.fill_ms, policy.on_failure.value, policy.timeout_ms
(2500, 'local', 50)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from .limit import Limit


class OnFailure(str, Enum):
    """What to answer when Redis cannot within the timeout."""

    OPEN = "open"
    """Allow every request."""
    CLOSED = "closed"
    """Deny every request."""
    LOCAL = "local"
    """Decide by buckets in this process, with the same limits. They start full when Redis first fails, and n processes
    together allow up to n times the limit."""


@dataclass(frozen=True)
class Cell:
    """The limit of a downstream that many tenants share: its name, what it bears in all, how many shards it is cut into."""

    name: str
    limit: Limit
    shards: int = 1


@dataclass(frozen=True)
class Policy:
    """The limits of one tenant on one route, and how to decide on them."""

    tenant: Limit
    """The limit of the tenant over all its routes. Give every route of a tenant the same one: they share the bucket."""
    route: Limit
    """The limit of the tenant on this route."""
    cell: Cell | None = None
    """The limit of a downstream that many tenants share."""
    soft_limit: int = 0
    """An allowed decision is `soft` when fewer whole tokens than this remain in the tenant-wide or the route bucket."""
    shards: int = 1
    """How many shards the tenant's buckets are cut into: 1 for all but a tenant too big for one node."""
    timeout_ms: float = 50
    """How long to wait for Redis, all round trips of a decision together."""
    on_failure: OnFailure = OnFailure.OPEN
    """What to answer when Redis does not."""
    shadow: bool = False
    """Decide and count as always, but allow every request: to see what new limits would deny."""
    denial_cache: bool = True
    """Leave a bucket that denied alone until its retry after has passed. Tokens that another process gives back in the
    meantime are then not seen."""

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> "Policy":
        """A policy out of a config file: the same fields, limits as text; a misspelt field is refused."""
        fields = {**config, "tenant": Limit.parse(config["tenant"]), "route": Limit.parse(config["route"])}
        if cell := config.get("cell"):
            fields["cell"] = Cell(**{**cell, "limit": Limit.parse(cell["limit"])})
        if "on_failure" in config:
            fields["on_failure"] = OnFailure(config["on_failure"])
        return cls(**fields)
