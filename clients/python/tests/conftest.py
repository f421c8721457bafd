import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NamedTuple

import pytest
import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.cluster
import valkey
import valkey.asyncio
import valkey.asyncio.cluster
import valkey.cluster
from server import HOST, Cluster, Server

from redis_token_bucket import AsyncLimiter, Limit, Limiter, Policy, Source

CLIENTS: dict[tuple[str, str, str], Any] = {
    ("redis", "sync", "single"): redis.Redis,
    ("redis", "async", "single"): redis.asyncio.Redis,
    ("redis", "sync", "cluster"): redis.cluster.RedisCluster,
    ("redis", "async", "cluster"): redis.asyncio.cluster.RedisCluster,
    ("valkey", "sync", "single"): valkey.Valkey,
    ("valkey", "async", "single"): valkey.asyncio.Valkey,
    ("valkey", "sync", "cluster"): valkey.cluster.ValkeyCluster,
    ("valkey", "async", "cluster"): valkey.asyncio.cluster.ValkeyCluster,
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.stop()


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server for one test that stops or kills it."""
    server = Server()
    yield server
    server.thaw()
    server.stop()


_names = itertools.count()


@pytest.fixture
def tenant() -> str:
    """A tenant that no other test has."""
    return f"tenant-{next(_names)}"


class Variant(NamedTuple):
    library: str
    style: str
    kind: str


class Awaited:
    """A limiter of either kind, awaited."""

    def __init__(self, limiter: Limiter | AsyncLimiter, client: Any) -> None:
        self.limiter, self.client = limiter, client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.limiter, name)
        if isinstance(self.limiter, AsyncLimiter):
            return method

        async def in_thread(*args: Any) -> Any:
            return await asyncio.to_thread(method, *args)

        return in_thread

    async def connected(self, *tenants: str, at_once: int = 1) -> None:
        """Until the servers answer for these tenants. To connect, a busy machine takes longer than a policy's timeout."""
        deadline = time.monotonic() + 20
        for tenant in tenants:
            while True:
                peeks = await asyncio.gather(*(self.peek(tenant, "search") for _ in range(at_once)))
                if all(peek.source is Source.SERVER for peek in peeks):
                    break
                assert time.monotonic() < deadline, f"no answer for {tenant} within 20 s"

    async def close(self) -> None:
        for one in (self.limiter, self.client):
            closing = one.aclose() if hasattr(one, "aclose") else one.close()
            if closing is not None:
                await closing


Make = Callable[..., Awaited]


@pytest.fixture
async def make(anyio_backend: str) -> AsyncIterator[Make]:
    """Makes limiters of a variant, and closes them."""
    made: list[Awaited] = []

    def make(variant: Variant, port: int, policy: Any, **options: Any) -> Awaited:
        client = CLIENTS[variant](host=HOST, port=port, **options.pop("client", {}))
        limiter = (AsyncLimiter if variant.style == "async" else Limiter)(client, policy, **options)
        made.append(Awaited(limiter, client))
        return made[-1]

    yield make
    for one in made:
        await one.close()


def variants(**only: str) -> list[Any]:
    """All kinds of clients, or those that have what `only` says."""
    every = (Variant(*names) for names in CLIENTS)
    return [
        pytest.param(variant, id="-".join(variant))
        for variant in every
        if all(getattr(variant, field) == value for field, value in only.items())
    ]


def policy(tenant: str = "1000 burst, 200/s", route: str = "50 burst, 20/s", **fields: Any) -> Policy:
    """Patient, because the machine may be busy."""
    return Policy(Limit.parse(tenant), Limit.parse(route), **{"timeout_ms": 5000, **fields})
