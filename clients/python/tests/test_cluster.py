"""A cluster that changes."""

import asyncio
import time
from collections.abc import Iterator

import pytest
from conftest import Make, Variant, policy, variants
from server import HOST, Cluster, Server, wait_for

from redis_token_bucket import Cell, Limit, OnFailure, Reason, Source, keys

pytestmark = pytest.mark.anyio

every_cluster = pytest.mark.parametrize("variant", variants(kind="cluster"))


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    cluster = Cluster(replica=True)
    yield cluster
    for node in cluster.nodes:
        if node.process.poll() is None:
            node.thaw()
    cluster.stop()


@every_cluster
async def test_every_call_goes_straight_to_its_node(
    make: Make, variant: Variant, cluster: Cluster, tenant: str
) -> None:
    limiter = make(variant, cluster.nodes[0].port, policy(cell=Cell("db", Limit(100_000, 1000), shards=16)))
    before = cluster.errors("MOVED")
    calls = [node.calls("rl.takeall") for node in cluster.nodes]
    for number in range(1000):
        assert (await limiter.authorize(f"{tenant}-{number}", "search")).source is Source.SERVER
    assert cluster.errors("MOVED") == before
    assert all(node.calls("rl.takeall") - start > 250 for node, start in zip(cluster.nodes, calls, strict=True))


@every_cluster
async def test_a_slot_that_moves_is_followed(make: Make, variant: Variant, cluster: Cluster, tenant: str) -> None:
    limiter = make(variant, cluster.nodes[0].port, policy(route="5 burst, 1/h"))
    assert (await limiter.authorize(tenant, "search")).quota.remaining == 4
    names = [keys.tenant_keys(tenant, 1)[0].decode(), keys.route_keys(tenant, "search", 1)[0].decode()]
    slot = keys.slot(names[0].encode())
    source = cluster.owner(slot)
    target = next(node for node in cluster.nodes if node is not source)
    target.client.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", cluster.id(source))
    source.client.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", cluster.id(target))
    # One key here and one there: TRYAGAIN, until the other has moved as well.
    _migrate(source, target, names[:1])
    before = cluster.errors("TRYAGAIN")
    waiting = asyncio.create_task(limiter.authorize(tenant, "search"))
    await asyncio.to_thread(wait_for, "a TRYAGAIN", lambda: cluster.errors("TRYAGAIN") > before)
    _migrate(source, target, names[1:])
    decision = await waiting
    assert (decision.source, decision.quota.remaining) == (Source.SERVER, 3), "asked, by ASK"
    # The slot is the other's now: MOVED.
    for node in (target, source):
        node.client.execute_command("CLUSTER SETSLOT", slot, "NODE", cluster.id(target))
    before = cluster.errors("MOVED")
    decisions = [await limiter.authorize(tenant, "search") for _ in range(3)]
    assert [decision.quota.remaining for decision in decisions] == [2, 1, 0]
    assert cluster.errors("MOVED") == before + 1, "one redirect, and then known"


def _migrate(source: Server, target: Server, names: list[str]) -> None:
    source.client.execute_command("MIGRATE", HOST, target.port, "", 0, 5000, "KEYS", *names)


@pytest.mark.parametrize("variant", variants(library="redis", kind="cluster"))
async def test_a_node_that_hangs_and_is_replaced_is_left(
    make: Make, variant: Variant, own_cluster: Cluster, tenant: str
) -> None:
    limiter = make(variant, own_cluster.nodes[1].port, policy(timeout_ms=100, on_failure=OnFailure.CLOSED))
    names = [f"{tenant}-{number}" for number in range(60)]
    lost = next(
        name for name in names if own_cluster.owner(keys.slot(keys.tenant_keys(name, 1)[0])) is own_cluster.nodes[0]
    )
    kept = next(
        name for name in names if own_cluster.owner(keys.slot(keys.tenant_keys(name, 1)[0])) is own_cluster.nodes[1]
    )
    await limiter.connected(lost, kept)
    for name in (lost, kept):
        assert (await limiter.authorize(name, "search")).source is Source.SERVER
    own_cluster.nodes[0].freeze()
    start = time.monotonic()
    assert (await limiter.authorize(lost, "search")).reason is Reason.UNAVAILABLE
    assert time.monotonic() - start < 0.5
    while (await limiter.authorize(lost, "search")).source is not Source.SERVER:
        assert time.monotonic() - start < 20, "the replica has taken over long ago"
        await asyncio.sleep(0.05)
    for _ in range(5):
        assert (await limiter.authorize(kept, "search")).source is Source.SERVER


@pytest.mark.parametrize("variant", variants(library="valkey", kind="cluster"))
async def test_a_node_that_dies_and_is_replaced_is_left(
    make: Make, variant: Variant, own_cluster: Cluster, tenant: str
) -> None:
    limiter = make(variant, own_cluster.nodes[1].port, policy(timeout_ms=100))
    name = next(
        name
        for name in (f"{tenant}-{number}" for number in range(60))
        if own_cluster.owner(keys.slot(keys.tenant_keys(name, 1)[0])) is own_cluster.nodes[0]
    )
    await limiter.connected(name)
    assert (await limiter.authorize(name, "search")).source is Source.SERVER
    own_cluster.nodes[0].kill()
    start = time.monotonic()
    assert (await limiter.authorize(name, "search")).source is Source.FAILURE_POLICY
    assert time.monotonic() - start < 0.5
    while (await limiter.authorize(name, "search")).source is not Source.SERVER:
        assert time.monotonic() - start < 20, "the replica has taken over long ago"
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("variant", variants(library="redis", kind="cluster"))
async def test_a_cell_on_a_node_that_hangs_costs_the_tenant_nothing(
    make: Make, variant: Variant, own_cluster: Cluster, tenant: str
) -> None:
    second, third = own_cluster.nodes[1:3]
    names = [f"{tenant}-{number}" for number in range(60)]
    name = next(name for name in names if own_cluster.owner(keys.slot(keys.tenant_keys(name, 1)[0])) is second)
    db = next(name for name in names if own_cluster.owner(keys.slot(keys.cell_keys(name, 1)[0])) is third)
    limits = policy(route="9 burst, 1/h", cell=Cell(db, Limit(9, 1)), timeout_ms=100, on_failure=OnFailure.CLOSED)
    limiter = make(variant, second.port, limits)
    await limiter.connected(name)
    assert (await limiter.authorize(name, "search")).allowed
    third.freeze()
    start = time.monotonic()
    assert (await limiter.authorize(name, "search", 5)).reason is Reason.UNAVAILABLE
    assert time.monotonic() - start < 0.5
    route = keys.route_keys(name, "search", 1)[0]
    await asyncio.to_thread(
        wait_for, "the gift", lambda: second.client.execute_command("RL.PEEK", route, 9, "1/h", 0)[1] == 8
    )
