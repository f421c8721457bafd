"""Decisions on real servers: every kind of client, single and cluster."""

import asyncio
import json
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from conftest import Make, Variant, policy, variants
from server import Cluster, Server

from redis_token_bucket import (
    AsyncLimiter,
    Cell,
    CostAboveShard,
    Decision,
    Limit,
    Limiter,
    Reason,
    RequestError,
    Scope,
    Source,
    Unavailable,
    keys,
)  # fmt: skip

pytestmark = pytest.mark.anyio


@pytest.fixture
def port(variant: Variant, request: pytest.FixtureRequest) -> int:
    if variant.kind == "single":
        return int(request.getfixturevalue("server").port)
    return int(request.getfixturevalue("cluster").nodes[0].port)


every_kind = pytest.mark.parametrize("variant", variants())
both_styles = pytest.mark.parametrize("variant", variants(library="redis", kind="single"))


@every_kind
async def test_a_route_allows_its_capacity_and_then_says_when(
    make: Make, variant: Variant, port: int, tenant: str
) -> None:
    limiter = make(variant, port, policy(route="3 burst, 1/m"))
    decisions = [await limiter.authorize(tenant, "search") for _ in range(4)]
    assert [decision.allowed for decision in decisions] == [True, True, True, False]
    assert [decision.quota.remaining for decision in decisions] == [2, 1, 0, 0]
    denied = decisions[3]
    assert (denied.reason, denied.source, denied.never) == (Reason.ROUTE_LIMIT, Source.SERVER, False)
    assert 50_000 < denied.retry_after_ms <= 60_000
    assert (denied.quota.scope, denied.quota.capacity, denied.quota.fill_ms) == (Scope.ROUTE, 3, 180_000)
    assert (await limiter.authorize(tenant, "upload")).allowed, "another route"


@every_kind
async def test_a_tenant_is_limited_over_its_routes_and_takes_from_both_or_neither(
    make: Make, variant: Variant, port: int, tenant: str
) -> None:
    limiter = make(variant, port, policy(tenant="3 burst, 1/h", route="9 burst, 1/h", denial_cache=False))
    assert (await limiter.authorize(tenant, "search", 2)).allowed
    denied = await limiter.authorize(tenant, "upload", 2)
    assert (denied.reason, denied.quota.scope, denied.quota.remaining) == (Reason.TENANT_LIMIT, Scope.TENANT, 1)
    upload = await limiter.authorize(tenant, "upload", 1)
    assert upload.allowed
    peeked = await limiter.peek(tenant, "upload", 0)
    assert peeked.quota.remaining == 0, "the tenant-wide bucket"
    await limiter.give(tenant, "other", 3)
    assert (await limiter.authorize(tenant, "upload", 3)).allowed, (
        "the denied call took nothing from the route: 9 - 1 - 3"
    )


@every_kind
async def test_a_peek_tells_and_takes_nothing(make: Make, variant: Variant, port: int, tenant: str) -> None:
    limiter = make(variant, port, policy(route="2 burst, 1/h"))
    for _ in range(3):
        peeked = await limiter.peek(tenant, "search", 2)
        assert (peeked.allowed, peeked.quota.remaining) == (True, 0)
    assert (await limiter.authorize(tenant, "search", 2)).allowed
    assert (await limiter.peek(tenant, "search")).reason is Reason.ROUTE_LIMIT


@every_kind
async def test_tokens_come_back_by_give_and_go_below_zero_by_charge(
    make: Make, variant: Variant, port: int, tenant: str
) -> None:
    limiter = make(variant, port, policy(route="5 burst, 1/m", denial_cache=False))
    await limiter.authorize(tenant, "search", 5)
    assert (await limiter.give(tenant, "search", 3)).remaining == 3
    assert (await limiter.give(tenant, "search", 99)).remaining == 5, "never above capacity"
    assert (await limiter.charge(tenant, "search", 7)).remaining == 0
    denied = await limiter.authorize(tenant, "search")
    assert 170_000 < denied.retry_after_ms <= 180_000, "from -2 to 1"


@every_kind
async def test_a_cell_that_denies_gives_the_tokens_back(make: Make, variant: Variant, port: int, tenant: str) -> None:
    limits = policy(tenant="9 burst, 1/h", route="9 burst, 1/h", cell=Cell(f"db-{tenant}", Limit.parse("3 burst, 1/h")))
    limiter = make(variant, port, limits)
    assert (await limiter.authorize(tenant, "search", 3)).allowed
    denied = await limiter.authorize(tenant, "search", 2)
    assert (denied.reason, denied.quota.scope) == (Reason.CELL_LIMIT, Scope.CELL)
    without_cell = make(variant, port, policy(tenant="9 burst, 1/h", route="9 burst, 1/h"))
    assert (await without_cell.peek(tenant, "search", 0)).quota.remaining == 6


@every_kind
async def test_shards_add_up_to_the_limit(make: Make, variant: Variant, port: int, tenant: str) -> None:
    limiter = make(variant, port, policy(tenant="64 burst, 1/d", route="40 burst, 1/d", shards=8))
    allowed = 0
    for _ in range(300):
        allowed += (await limiter.authorize(tenant, "search")).allowed
    assert allowed == 40
    tags = {key[: key.index(b"}")] for key in keys.route_keys(tenant, "search", 8)}
    assert len(tags) == 8


@every_kind
async def test_many_at_once_get_exactly_the_capacity(make: Make, variant: Variant, port: int, tenant: str) -> None:
    limiter = make(variant, port, policy(route="20 burst, 1/h", denial_cache=False))
    await limiter.connected(tenant, at_once=60)
    decisions = await asyncio.gather(*(limiter.authorize(tenant, "search") for _ in range(60)))
    assert {decision.source for decision in decisions} == {Source.SERVER}
    assert sum(decision.allowed for decision in decisions) == 20


@both_styles
async def test_a_bucket_that_denied_is_not_asked_again_before_its_retry_after(
    make: Make, variant: Variant, port: int, tenant: str, server: Server
) -> None:
    limiter = make(variant, port, policy(route="1 burst, 4/s"))
    await limiter.authorize(tenant, "search")
    denied = await limiter.authorize(tenant, "search")
    before = server.calls("rl.takeall")
    again = await limiter.authorize(tenant, "search")
    assert (again.reason, again.source) == (Reason.ROUTE_LIMIT, Source.DENIAL_CACHE)
    assert 0 < again.retry_after_ms <= denied.retry_after_ms <= 250
    assert server.calls("rl.takeall") == before
    assert (await limiter.authorize(tenant, "upload")).source is Source.SERVER, "another route is asked"
    deadline = asyncio.get_running_loop().time() + 5
    while (last := await limiter.authorize(tenant, "search")).source is Source.DENIAL_CACHE:
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(last.retry_after_ms / 1000)
    assert (last.allowed, last.source) == (True, Source.SERVER)


@both_styles
async def test_a_cell_that_is_known_to_deny_costs_the_tenant_nothing(
    make: Make, variant: Variant, port: int, tenant: str, server: Server
) -> None:
    limits = policy(cell=Cell(f"db-{tenant}", Limit.parse("1 burst, 1/h")))
    limiter = make(variant, port, limits)
    decisions = [await limiter.authorize(tenant, "search") for _ in range(2)]
    before = server.calls("rl.takeall")
    decisions.append(await limiter.authorize(tenant, "search"))
    assert [decision.reason for decision in decisions] == [None, Reason.CELL_LIMIT, Reason.CELL_LIMIT]
    assert decisions[2].source is Source.DENIAL_CACHE
    assert server.calls("rl.takeall") == before


@both_styles
async def test_what_can_never_succeed_says_so(make: Make, variant: Variant, port: int, tenant: str) -> None:
    denied = await make(variant, port, policy(route="5 burst, 1/s")).authorize(tenant, "search", 6)
    assert (denied.reason, denied.retry_after_ms, denied.never) == (Reason.ROUTE_LIMIT, None, True)


@both_styles
async def test_a_cost_that_fits_no_shard_is_an_error_at_once(
    make: Make, variant: Variant, port: int, tenant: str
) -> None:
    limiter = make(variant, port, policy(route="16 burst, 1/s", shards=4))
    with pytest.raises(CostAboveShard):
        await limiter.authorize(tenant, "search", 5)
    await limiter.charge(tenant, "search", 9)  # an amount need not fit


@both_styles
@pytest.mark.parametrize("cost", [-1, 2**53, 0.5, "1"])
async def test_a_cost_out_of_range_is_an_error(make: Make, variant: Variant, port: int, tenant: str, cost: Any) -> None:
    with pytest.raises(RequestError, match="cost must be a number"):
        await make(variant, port, policy()).authorize(tenant, "search", cost)


@both_styles
@pytest.mark.parametrize(("tenant_name", "route"), [("", "search"), ("acme", "")])
async def test_an_empty_name_is_an_error(make: Make, variant: Variant, port: int, tenant_name: str, route: str) -> None:
    with pytest.raises(RequestError, match="must not be empty"):
        await make(variant, port, policy()).authorize(tenant_name, route)


@both_styles
async def test_few_tokens_left_are_a_soft_decision(make: Make, variant: Variant, port: int, tenant: str) -> None:
    limiter = make(variant, port, policy(route="4 burst, 1/h", soft_limit=2))
    decisions = [await limiter.authorize(tenant, "search") for _ in range(5)]
    assert [decision.soft for decision in decisions] == [False, False, True, True, False]
    assert [decision.label for decision in decisions[1:]] == ["within_limit", "soft", "soft", "route_limit"]


@both_styles
async def test_shadow_mode_decides_but_allows(make: Make, variant: Variant, port: int, tenant: str) -> None:
    limiter = make(variant, port, policy(route="1 burst, 1/h", shadow=True))
    decisions = [await limiter.authorize(tenant, "search") for _ in range(2)]
    assert [decision.allowed for decision in decisions] == [True, True]
    assert [decision.reason for decision in decisions] == [None, Reason.ROUTE_LIMIT]


@both_styles
async def test_the_hook_gets_every_decision_with_everything_in_it(
    make: Make, variant: Variant, port: int, tenant: str
) -> None:
    seen: list[Decision] = []
    limiter = make(variant, port, policy(route="1 burst, 1/h"), on_decision=seen.append)
    answers = [await limiter.authorize(tenant, "search") for _ in range(3)]
    await limiter.peek(tenant, "search")
    assert seen == answers, "peeks are not decisions"
    assert [(one.tenant, one.route, one.cost, one.label) for one in seen] == [
        (tenant, "search", 1, "within_limit"), (tenant, "search", 1, "route_limit"), (tenant, "search", 1, "route_limit"),
    ]  # fmt: skip
    line = json.loads(seen[2].line())
    assert line.pop("time_ms") > 1_700_000_000_000
    assert line.pop("retry_after_ms") == seen[2].retry_after_ms
    assert line == {"event": "authorize", "tenant": tenant, "route": "search", "tokens": 1, "allowed": False,
                    "reason": "route_limit", "soft": False, "shadow": False, "source": "denial_cache", "remaining": 0}  # fmt: skip
    with pytest.raises(FrozenInstanceError):
        seen[0].cost = 2  # type: ignore[misc]


@both_styles
async def test_a_hook_that_raises_costs_no_decision(
    make: Make, variant: Variant, port: int, tenant: str, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(decision: Decision) -> None:
        raise KeyError("broken")

    assert (await make(variant, port, policy(), on_decision=broken).authorize(tenant, "search")).allowed
    assert "on_decision raised" in caplog.text


@both_styles
async def test_limits_may_change_from_call_to_call(make: Make, variant: Variant, port: int, tenant: str) -> None:
    limits = {"search": policy(route="1 burst, 1/h")}
    limiter = make(variant, port, lambda tenant, route: limits[route])
    assert [(await limiter.authorize(tenant, "search")).allowed for _ in range(2)] == [True, False]
    limits["search"] = policy(route="1 burst, 1000000/s")
    assert (await limiter.authorize(tenant, "search")).allowed, "the denial was of another limit"


@both_styles
async def test_names_cannot_reach_the_buckets_of_others(
    make: Make, variant: Variant, port: int, tenant: str, server: Server
) -> None:
    limiter = make(variant, port, policy(route="1 burst, 1/h"))
    for name in [tenant, f"{{{tenant}}}", f"{tenant}}}:rl:search:0", f"_{tenant}", f"{tenant} ", f"{tenant}\x00"]:
        assert (await limiter.authorize(name, "search")).allowed, name
        assert not (await limiter.authorize(name, "search")).allowed, name
    assert (await limiter.authorize(tenant, "_tenant")).allowed


async def test_a_client_of_the_other_kind_is_refused(make: Make, server: Server) -> None:
    import redis

    with pytest.raises(TypeError, match=r"redis\.asyncio"):
        AsyncLimiter(redis.Redis(), policy())
    with pytest.raises(TypeError, match="AsyncLimiter"):
        Limiter(redis.asyncio.Redis(), policy())
    with pytest.raises(TypeError, match="redis-py or valkey-py"):
        Limiter(object(), policy())


@pytest.mark.parametrize("variant", variants(kind="single"))
@pytest.mark.parametrize("client", [{"decode_responses": True}, {"protocol": 3}, {"db": 5, "client_name": "x"}])
async def test_the_options_of_the_client_are_kept(
    make: Make, variant: Variant, port: int, tenant: str, client: dict[str, Any], server: Server
) -> None:
    limiter = make(variant, port, policy(route="1 burst, 1/h"), client=client)
    assert [(await limiter.authorize(tenant, "search")).source for _ in range(2)] == [Source.SERVER] * 2
    keyspace = server.client.info("keyspace")
    assert "db" not in client or keyspace["db5"]["keys"] >= 2


@both_styles
async def test_a_gift_that_redis_does_not_confirm_is_an_error(make: Make, variant: Variant, tenant: str) -> None:
    from server import free_port

    with pytest.raises(Unavailable, match="did not confirm"):
        await make(variant, free_port(), policy()).give(tenant, "search", 1)


async def test_a_forked_process_does_not_share_connections(make: Make, server: Server, tenant: str) -> None:
    import os

    limiter = make(Variant("redis", "sync", "single"), server.port, policy(route="4 burst, 1/h")).limiter
    assert limiter.authorize(tenant, "search").allowed
    child = os.fork()
    if child == 0:
        decision = limiter.authorize(tenant, "search")
        os._exit(0 if decision.source is Source.SERVER and decision.quota.remaining == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert limiter.authorize(tenant, "search").quota.remaining == 1


def test_the_cluster_serves_all_three_thirds(cluster: Cluster) -> None:
    assert [cluster.info(node)["cluster_slots_assigned"] for node in cluster.nodes] == ["16384"] * 3
