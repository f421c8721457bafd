from fractions import Fraction

import pytest

from redis_token_bucket import Cell, CostAboveShard, Limit, LimitError, OnFailure, Policy
from redis_token_bucket.limit import shards_that_hold


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("50 burst, 20/s", "50 burst, 20/s"),
        ("50 burst,20", "50 burst, 20/s"),
        ("0.5 burst, 1e1/m", "0.5 burst, 1e1/m"),
        ("100 burst, 5/900", "100 burst, 5/15m"),
        ("16 burst, 3/1.5s", "16 burst, 3/1500ms"),
        ("1 burst, 1000/24h", "1 burst, 1000/d"),
        ("0 burst, 1/s", "0 burst, 1/s"),
    ],
)
def test_a_limit_reads_its_own_text_again(text: str, printed: str) -> None:
    assert str(Limit.parse(text)) == printed
    assert Limit.parse(printed) == Limit.parse(text)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "capacity and a rate"), ("50", "capacity and a rate"), ("20/s", "capacity and a rate"),
        ("-1 burst, 20/s", "capacity and a rate"), (" 5 burst, 20/s", "capacity and a rate"),
        ("nan burst, 20/s", "capacity and a rate"), ("50 burst, 20/", "capacity and a rate"),
        ("50 burst, 20/w", "capacity and a rate"), ("50 burst, /s", "capacity and a rate"),
        ("50 burst, 20/s ", "capacity and a rate"), ("50 burst, 20/s\n", "capacity and a rate"),
        ("٥ burst, 20/s", "capacity and a rate"),
        ("9007199254740992 burst, 20/s", "capacity must be"), ("0.0000000001 burst, 20/s", "capacity must be"),
        ("50 burst, 0/s", "rate must be"), ("50 burst, 20/0s", "rate must be"), ("50 burst, 20/0.5ms", "rate must be"),
        ("50 burst, 1/99999999999999999999d", "rate must be"), ("1000 burst, 1/365d", "within 100 years"),
    ],
)  # fmt: skip
def test_a_limit_that_the_server_would_refuse_is_refused(text: str, error: str) -> None:
    with pytest.raises(LimitError, match=error):
        Limit.parse(text)


def test_a_limit_is_made_of_numbers_too() -> None:
    assert Limit(50, 20) == Limit.parse("50 burst, 20/s")
    assert Limit(100, 5, 900_000).fill_ms == 18_000_000


def test_a_printed_float_means_the_fraction_it_was_printed_from() -> None:
    assert Limit.parse("1 burst, 0.1111111111111111").per_second == Fraction(1, 9)
    assert Limit.parse("1 burst, 0.111").per_second == Fraction(111, 1000)


def test_a_cost_fits_the_shards_that_have_the_capacity_for_it() -> None:
    limit = Limit.parse("10 burst, 20/s")  # 3, 3, 2, 2
    assert [shards_that_hold((limit,), cost, 4) for cost in range(4)] == [4, 4, 4, 2]
    with pytest.raises(CostAboveShard):
        shards_that_hold((limit,), 4, 4)
    assert shards_that_hold((limit,), 99, 1) == 1, "what is not cut is for the server to say"


def test_a_policy_out_of_a_file_has_the_defaults_of_one_in_code() -> None:
    tenant, route = Limit.parse("100 burst, 10/s"), Limit.parse("50 burst, 20/s")
    assert Policy.read({"tenant": "100 burst, 10/s", "route": "50 burst, 20/s"}) == Policy(tenant, route)
    config = {"tenant": "100 burst, 10/s", "route": "50 burst, 20/s", "on_failure": "closed",
              "cell": {"name": "db", "limit": "9 burst, 3/s", "shards": 3}}  # fmt: skip
    cell = Cell("db", Limit.parse("9 burst, 3/s"), 3)
    assert Policy.read(config) == Policy(tenant, route, cell=cell, on_failure=OnFailure.CLOSED)


def test_a_misspelt_field_of_a_policy_is_refused() -> None:
    with pytest.raises(TypeError, match="time_out"):
        Policy.read({"tenant": "100 burst, 10/s", "route": "50 burst, 20/s", "time_out": 5})
