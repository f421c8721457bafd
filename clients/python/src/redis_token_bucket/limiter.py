"""The limiter: one decision per request, waited for or awaited."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from .ask import Answer, Request, Send, Steps
from .bucket import Bucket, Memory
from .connection import AsyncConnections, Connections
from .decision import Decision, Failure, Quota, Scope
from .errors import RequestError, Unavailable
from .keys import cell_keys, route_keys, tenant_keys
from .limit import MAX_TOKENS, shards_that_hold
from .policy import Policy

REMEMBERED = 65_536
"""How many routes, and as many tenants and cells, are remembered."""

GIVE_BACK_S = 0.5
"""For how long tokens that go back are tried to be delivered."""

T = TypeVar("T")
_log = logging.getLogger("redis_token_bucket")


class _Limiter:
    """What both limiters share: all but the waiting."""

    def __init__(
        self,
        policy: Policy | Callable[[str, str], Policy],
        on_decision: Callable[[Decision], None] | None,
        on_unavailable: Callable[[str, str, Failure], None] | None,
    ) -> None:
        self._policy = (lambda tenant, route: policy) if isinstance(policy, Policy) else policy
        self._on_decision = on_decision
        self._on_unavailable = on_unavailable
        self._tenants = lru_cache(REMEMBERED)(lambda tenant, shards: Memory(tenant_keys(tenant, shards)))
        self._routes = lru_cache(REMEMBERED)(lambda tenant, route, shards: Memory(route_keys(tenant, route, shards)))
        self._cells = lru_cache(REMEMBERED)(lambda cell, shards: Memory(cell_keys(cell, shards)))
        self._reported_at = float("-inf")
        self._module_missing = False

    def _request(self, tenant: str, route: str, cost: int, takes: bool = True, fits: bool = True) -> Request:
        """Looks up what is needed to decide, and checks it. `fits` says that the cost must fit a shard."""
        if not isinstance(cost, int) or not 0 <= cost <= MAX_TOKENS:
            raise RequestError(f"cost must be a number from 0 to {MAX_TOKENS}, not {cost!r}")
        policy = self._policy(tenant, route)
        shards, held = policy.shards, cost if fits else 0
        pair = (self._tenants(tenant, shards), self._routes(tenant, route, shards))
        fit = shards_that_hold((policy.tenant, policy.route), held, shards)
        wide = Bucket(Scope.TENANT, pair[0], policy.tenant, policy.tenant.cut(shards), fit)
        narrow = Bucket(Scope.ROUTE, pair[1], policy.route, policy.route.cut(shards), fit)
        cell = None
        if policy.cell:
            limit, shards = policy.cell.limit, policy.cell.shards
            memory = self._cells(policy.cell.name, shards)
            cell = Bucket(Scope.CELL, memory, limit, limit.cut(shards), shards_that_hold((limit,), held, shards))
        return Request((tenant, route), policy, wide, narrow, cell, cost, takes, _now_ms, self._failed)

    def _decided(self, decision: Decision) -> Decision:
        if self._on_decision is not None:
            try:
                self._on_decision(decision)
            except Exception:  # noqa: BLE001, the caller's; a decision does not fail for it
                _log.exception("on_decision raised")
        return decision

    def _failed(self, request: Request, failure: Failure) -> None:
        """Hands on a failure, and says it often enough to be seen and seldom enough to be read."""
        now = time.monotonic()
        if failure.kind == "no_module":
            if not self._module_missing:
                self._module_missing = True
                _log.error(
                    "the server does not have the rate limit module loaded: %s; the failure policy decides",
                    failure.text,
                )
        elif now >= self._reported_at + 1:
            self._reported_at = now
            _log.warning("Redis did not answer: %s; the failure policy decides", failure.text)
        if self._on_unavailable is not None:
            try:
                self._on_unavailable(*request.name, failure)
            except Exception:  # noqa: BLE001, the caller's; a decision does not fail for it
                _log.exception("on_unavailable raised")


class Limiter(_Limiter):
    """Decides about requests of tenants on routes; one for a whole service, safe to use from threads.

    `client` is a client of redis-py or valkey-py, single or cluster; its servers and options are used, its retries and
    timeouts are not. `policy` says what holds for a tenant on a route; a function is asked at every request, so it should be
    quick and may change its mind. `on_decision` is called with every decision of `authorize`, `on_unavailable` with tenant,
    route and failure whenever Redis did not answer.
    """

    def __init__(
        self,
        client: Any,
        policy: Policy | Callable[[str, str], Policy],
        *,
        on_decision: Callable[[Decision], None] | None = None,
        on_unavailable: Callable[[str, str, Failure], None] | None = None,
    ) -> None:
        super().__init__(policy, on_decision, on_unavailable)
        self._connections = Connections(client)

    def authorize(self, tenant: str, route: str, cost: int = 1) -> Decision:
        """Takes `cost` tokens from the tenant-wide bucket, the route's and, if the policy has one, the cell's, or from none
        of them. Cost 0 takes nothing and is allowed unless a bucket is in debt. It answers within the policy's timeout.

        Raises RequestError only for what can never be decided.
        """
        request = self._request(tenant, route, cost)
        return self._decided(self._run(request, request.decide()))

    def peek(self, tenant: str, route: str, cost: int = 1) -> Decision:
        """What `authorize` would answer now. Takes nothing, and calls no `on_decision`."""
        request = self._request(tenant, route, cost, takes=False)
        return self._run(request, request.decide())

    def give(self, tenant: str, route: str, amount: int) -> Quota:
        """Gives tokens back to all buckets that `authorize` takes from, never above their capacity.

        Returns the bucket with fewer tokens left. Raises Unavailable if Redis did not confirm.
        """
        return self._settle("RL.GIVE", tenant, route, amount)

    def charge(self, tenant: str, route: str, amount: int) -> Quota:
        """Takes tokens unconditionally, if need be below zero: to settle a request whose cost was known only afterwards."""
        return self._settle("RL.CHARGE", tenant, route, amount)

    def close(self) -> None:
        """Closes the limiter's connections; the caller's client stays as it is."""
        self._connections.close()

    def _settle(self, verb: str, tenant: str, route: str, amount: int) -> Quota:
        request = self._request(tenant, route, amount, fits=False)
        return _confirmed(self._run(request, request.settle(verb)))

    def _run(self, request: Request, steps: Steps[T]) -> T:
        deadline = _deadline(request)
        answers: Any = None
        try:
            while True:
                send = steps.send(answers)
                if send.background:
                    self._give_back(request, send, deadline)
                    answers = []
                else:
                    answers = [self._connections.send(call, deadline) for call in send.calls]
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _give_back(self, request: Request, send: Send, deadline: float) -> None:
        """In a thread, so that a decision that is out of time does not lose tokens; waited for while there is time."""

        def give() -> None:
            until = time.monotonic() + GIVE_BACK_S
            _report(request, [self._connections.send(call, until) for call in send.calls])

        thread = threading.Thread(target=give, name="redis-token-bucket-give")
        thread.start()
        thread.join(max(0.0, deadline - time.monotonic()))


class AsyncLimiter(_Limiter):
    """`Limiter` over a client of `redis.asyncio` or `valkey.asyncio`, for one event loop."""

    def __init__(
        self,
        client: Any,
        policy: Policy | Callable[[str, str], Policy],
        *,
        on_decision: Callable[[Decision], None] | None = None,
        on_unavailable: Callable[[str, str, Failure], None] | None = None,
    ) -> None:
        super().__init__(policy, on_decision, on_unavailable)
        self._connections = AsyncConnections(client)
        self._gifts: set[asyncio.Task[None]] = set()

    async def authorize(self, tenant: str, route: str, cost: int = 1) -> Decision:
        """See `Limiter.authorize`. A call that is cancelled may have taken its tokens."""
        request = self._request(tenant, route, cost)
        return self._decided(await self._run(request, request.decide()))

    async def peek(self, tenant: str, route: str, cost: int = 1) -> Decision:
        """See `Limiter.peek`."""
        request = self._request(tenant, route, cost, takes=False)
        return await self._run(request, request.decide())

    async def give(self, tenant: str, route: str, amount: int) -> Quota:
        """See `Limiter.give`."""
        return await self._settle("RL.GIVE", tenant, route, amount)

    async def charge(self, tenant: str, route: str, amount: int) -> Quota:
        """See `Limiter.charge`."""
        return await self._settle("RL.CHARGE", tenant, route, amount)

    async def aclose(self) -> None:
        """Waits for gifts under way and closes the limiter's connections; the caller's client stays as it is."""
        await asyncio.gather(*self._gifts)
        await self._connections.aclose()

    async def _settle(self, verb: str, tenant: str, route: str, amount: int) -> Quota:
        request = self._request(tenant, route, amount, fits=False)
        return _confirmed(await self._run(request, request.settle(verb)))

    async def _run(self, request: Request, steps: Steps[T]) -> T:
        deadline = _deadline(request)
        answers: Any = None
        try:
            while True:
                send = steps.send(answers)
                if send.background:
                    await self._give_back(request, send, deadline)
                    answers = []
                elif len(send.calls) == 1:
                    answers = [await self._connections.send(send.calls[0], deadline)]
                else:
                    answers = await asyncio.gather(*(self._connections.send(call, deadline) for call in send.calls))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def _give_back(self, request: Request, send: Send, deadline: float) -> None:
        """In a task, so that a decision that is out of time does not lose tokens; waited for while there is time."""

        async def give() -> None:
            until = time.monotonic() + GIVE_BACK_S
            _report(request, await asyncio.gather(*(self._connections.send(call, until) for call in send.calls)))

        task = asyncio.create_task(give())
        self._gifts.add(task)
        task.add_done_callback(self._gifts.discard)
        await asyncio.wait([task], timeout=max(0.0, deadline - time.monotonic()))


def _now_ms() -> float:
    return time.monotonic() * 1000


def _deadline(request: Request) -> float:
    return time.monotonic() + request.policy.timeout_ms / 1000


def _report(request: Request, answers: list[Answer]) -> None:
    for answer in answers:
        if isinstance(answer, Failure):
            request.failed(request, answer)


def _confirmed(quota: Quota | Failure) -> Quota:
    if isinstance(quota, Failure):
        raise Unavailable(f"Redis did not confirm: {quota.text}")
    return quota
