"""Denials, beliefs and local buckets at chosen times."""

from collections import Counter
from fractions import Fraction

import pytest

from redis_token_bucket import Limit, Scope, keys
from redis_token_bucket.bucket import Bucket, Memory, two_shards
from redis_token_bucket.decision import Reply

START = 5_000_000.0


def bucket(text: str, memory: Memory | None = None, shards: int = 1) -> Bucket:
    limit = Limit.parse(text)
    memory = memory or Memory(keys.route_keys("acme", "search", shards))
    return Bucket(Scope.ROUTE, memory, limit, limit.cut(shards), shards)


def denied(ms: int) -> Reply:
    return Reply(False, 0, ms, 1000)


def wait(bucket: Bucket, cost: int, now: float) -> int | None:
    held = bucket.held(0, cost, now)
    return held and held.retry_after_ms


def test_a_denial_holds_until_its_retry_after_has_passed_and_no_longer() -> None:
    one = bucket("10 burst, 10/s")
    assert wait(one, 1, START) is None, "nothing is known yet"
    one.saw(0, 1, denied(100), START)
    assert [wait(one, 1, START + ms) for ms in (0, 99.999, 100)] == [100, 1, None]


def test_a_denial_says_when_another_cost_is_there() -> None:
    one = bucket("10 burst, 10/s")
    one.saw(0, 5, denied(450), START)
    assert wait(one, 7, START) == 649, "2 tokens more, 200 ms later, less the rounding"
    assert wait(one, 4, START) == 349, "one token less, 100 ms earlier"
    assert wait(one, 1, START) == 49
    assert wait(one, 1, START + 60) is None, "one token is there by then"
    assert wait(one, 0, START) is None, "cost 0 asks for nothing"
    assert wait(one, 11, START) is None, "what can never succeed is for the server to say"


def test_a_denial_does_not_outlive_its_limit_or_an_allowed_take() -> None:
    one = bucket("10 burst, 10/s")
    one.saw(0, 1, denied(100), START)
    assert wait(bucket("20 burst, 10/s", one.memory), 1, START) is None
    one.saw(0, 1, Reply(True, 0, 0, 1000), START)
    assert wait(one, 1, START) is None


def test_a_belief_refills_and_stops_at_the_capacity_of_the_shard() -> None:
    one = bucket("160 burst, 1000/s", shards=16)
    assert one.believed(3, START) == 10, "unknown is full"
    one.saw(3, 1, Reply(True, 2, 0, 128), START)
    assert [one.believed(3, START + ms) for ms in (0, 64, 9000)] == [2, 6, 10]


@pytest.mark.parametrize("capacity", ["10", "11", "10.5", "160"])
def test_no_shard_of_an_uneven_capacity_is_fuller_than_another_that_is_full(capacity: str) -> None:
    cut = bucket(f"{capacity} burst, 10/s", shards=4)
    assert len({cut.fullness(index, START) for index in range(4)}) == 1


def test_two_different_shards_are_chosen_each_as_often_as_any_other_and_the_fuller_first() -> None:
    chosen: Counter[int] = Counter()
    for _ in range(10_000):
        first, second = two_shards(5, float)
        assert first > second
        chosen.update((first, second))
    assert all(3_700 < times < 4_300 for times in chosen.values()), chosen
    assert two_shards(1, float) == [0]


def test_a_local_bucket_is_exact_to_the_millisecond() -> None:
    one = bucket("1 burst, 0.4/s")
    assert _take(one, 1, START) == Reply(True, 0, 0, 2500)
    assert _take(one, 1, START) == Reply(False, 0, 2500, 2500)
    assert _take(one, 1, START + 2499) == Reply(False, 0, 1, 1)
    assert _take(one, 1, START + 2500) == Reply(True, 0, 0, 2500)


def test_a_local_bucket_loses_no_refill_however_often_it_is_asked() -> None:
    one = bucket("100 burst, 1/3")
    _take(one, 100, 0.0)
    granted = sum(_take(one, 1, float(ms)).allowed for ms in range(0, 300_001, 7))
    assert granted == 100 - (300_000 % 7 > 0), (
        "a third of a token a second for 300 s, less what came after the last look"
    )


def test_a_local_bucket_says_never_and_takes_new_limits() -> None:
    one = bucket("3 burst, 1.5/s")
    assert _take(one, 4, START).retry_after_ms == -1
    _take(one, 3, START)
    assert _take(bucket("50 burst, 10/s", one.memory), 1, START + 1000) == Reply(True, 9, 0, 4100)
    assert _take(bucket("2 burst, 1/s", one.memory), 1, START + 1000) == Reply(True, 1, 0, 1000), "clipped"


@pytest.mark.parametrize("text", ["7 burst, 0.3/s", "5 burst, 3/250ms", "20 burst, 1/7"])
def test_a_local_bucket_grants_what_a_plain_count_allows(text: str) -> None:
    one, limit = bucket(text), Limit.parse(text)
    level, last = Fraction(limit.capacity), 0.0
    for step in range(500):
        now = step * 137.25
        level = min(Fraction(limit.capacity), level + Fraction(now - last) * limit.per_second / 1000)
        last, allowed = now, level >= 1
        level -= allowed
        assert _take(one, 1, now).allowed == allowed, f"at {now} ms"


def _take(bucket: Bucket, cost: int, now: float) -> Reply:
    reply, take = bucket.take_locally(cost, now)
    if reply.allowed:
        take()
    return reply
