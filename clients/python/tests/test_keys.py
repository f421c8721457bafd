"""`clients/vectors.json` holds what every helper must build."""

import json
from fractions import Fraction
from typing import Any

import pytest
from server import ROOT

from redis_token_bucket import Limit, LimitError, RequestError, keys

VECTORS: dict[str, list[dict[str, Any]]] = json.loads((ROOT / "clients" / "vectors.json").read_text())


def test_slots_are_those_of_the_vectors() -> None:
    for vector in VECTORS["slots"]:
        assert keys.slot(vector["key"].encode()) == vector["slot"], vector


def test_keys_of_tenants_and_routes_are_those_of_the_vectors() -> None:
    for vector in VECTORS["tenants"]:
        tenant, shards, shard = vector["tenant"], vector["shards"], vector["shard"]
        assert keys.tenant_keys(tenant, shards)[shard].decode() == vector["tenant_key"], vector
        route_key = keys.route_keys(tenant, vector["route"], shards)[shard]
        assert route_key.decode() == vector["route_key"], vector
        assert keys.slot(route_key) == keys.slot(vector["tenant_key"].encode()) == vector["slot"], vector


def test_keys_of_cells_are_those_of_the_vectors() -> None:
    for vector in VECTORS["cells"]:
        key = keys.cell_keys(vector["cell"], vector["shards"])[vector["shard"]]
        assert (key.decode(), keys.slot(key)) == (vector["key"], vector["slot"]), vector


def test_limits_are_cut_as_in_the_vectors() -> None:
    for vector in VECTORS["limits"]:
        limit = Limit.parse(vector["limit"])
        if "error" in vector:
            with pytest.raises(LimitError, match="less than one whole token"):
                limit.cut(vector["shards"])
            continue
        shards = limit.cut(vector["shards"])
        assert [shard.capacity for shard in shards] == vector["capacities"], vector
        assert {shard.rate for shard in shards} == {vector["rate"]}, vector
        assert sum(Fraction(shard.capacity) for shard in shards) == limit.capacity, vector


def test_empty_names_are_refused_as_in_the_vectors() -> None:
    assert VECTORS["refused"]
    for vector in VECTORS["refused"]:
        with pytest.raises(RequestError, match="must not be empty"):
            if "cell" in vector:
                keys.cell_keys(vector["cell"], 1)
            else:
                keys.tenant_keys(vector["tenant"], 1)
                keys.route_keys(vector["tenant"], vector["route"], 1)


@pytest.mark.parametrize("shards", [-1, 0, 16385])
def test_a_number_of_shards_out_of_range_is_refused(shards: int) -> None:
    with pytest.raises(RequestError, match="from 1 to 16384"):
        keys.tenant_keys("acme", shards)


def test_a_name_that_is_not_text_is_refused() -> None:
    with pytest.raises(RequestError, match="UTF-8"):
        keys.tenant_keys("\ud800", 1)


def test_the_keys_of_a_thousand_tenants_lie_in_more_than_900_slots() -> None:
    assert len({keys.slot(keys.tenant_keys(f"tenant{number}", 1)[0]) for number in range(1000)}) > 900
