"""What this process knows of a bucket: its keys, how full each shard was last seen, which denials still hold, and the local
bucket that stands in when Redis is away.

All of it is a cache. What is dropped costs a key to be built again, a belief and a denial to be learnt again, and starts
the local bucket afresh; no decision of Redis depends on it. Times are milliseconds of a clock that does not step.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from typing import NamedTuple

from .decision import Denied, Quota, Reply, Scope, Source
from .keys import slot
from .limit import NANO, Limit, Shard


class Call(NamedTuple):
    """A command and the slot of its key."""

    slot: int
    args: tuple[bytes | str | int, ...]


class News(NamedTuple):
    """What a shard last said, and when; `shard` is the limit it decided by, and under another the denial says nothing."""

    remaining: int
    at: float
    denied_until: float | None
    cost: int
    shard: Shard


class Memory:
    """All that is remembered of one bucket with its shards."""

    __slots__ = ("keys", "local", "news", "slots")

    def __init__(self, keys: tuple[bytes, ...]) -> None:
        self.keys = keys
        self.slots = tuple(map(slot, keys))
        self.news: list[News | None] = [None] * len(keys)
        self.local: tuple[Limit, Fraction, float] | None = None


@dataclass(frozen=True, slots=True)
class Bucket:
    """One of the buckets of a request: its memory with the limit that the policy gives it."""

    scope: Scope
    memory: Memory
    limit: Limit
    shards: tuple[Shard, ...]
    fit: int
    """How many shards, counted from the first, can hold the cost."""

    def call(self, verb: str, index: int, cost: int) -> Call:
        """A command on one shard; without a verb only its key and arguments, as RL.TAKEALL has them."""
        shard = self.shards[index]
        args = (self.memory.keys[index], shard.capacity, shard.rate, cost)
        return Call(self.memory.slots[index], (verb, *args) if verb else args)

    def saw(self, index: int, cost: int, reply: Reply, now: float) -> None:
        """Remembers what a shard answered to `cost`."""
        until = None if reply.allowed or reply.retry_after_ms < 0 else now + reply.retry_after_ms
        self.memory.news[index] = News(reply.remaining, now, until, cost, self.shards[index])

    def believed(self, index: int, now: float) -> float:
        """How many tokens a shard is believed to hold: what it had plus the refill since; unknown is full."""
        shard, news = self.shards[index], self.memory.news[index]
        return shard.tokens if news is None else min(shard.tokens, news.remaining + (now - news.at) * shard.per_ms)

    def fullness(self, index: int, now: float) -> float:
        """The same for comparing shards, less what this one's part of an uneven capacity has more than the smallest.

        Counted in, a tenant far below its limit would always ask its first shards.
        """
        return self.believed(index, now) - (self.shards[index].tokens - self.shards[-1].tokens)

    def held(self, index: int, cost: int, now: float) -> Denied | None:
        """The denial that still holds, if an earlier answer says that `cost` is not there yet.

        Another cost than the one that was denied is later or earlier by the refill of the difference, to within the
        millisecond to which the server rounded; that one is left to the server.
        """
        shard, news = self.shards[index], self.memory.news[index]
        if news is None or news.denied_until is None or news.shard != shard or not 0 < cost <= shard.whole:
            return None
        until = news.denied_until
        if cost != news.cost:
            until += (cost - news.cost) / shard.per_ms - 1
        if until <= now:
            return None
        believed, wait = self.believed(index, now), ceil(until - now)
        reset = ceil((shard.tokens - believed) / shard.per_ms)
        return Denied(wait, self.quota(index, Reply(False, floor(believed), wait, reset)), Source.DENIAL_CACHE)

    def quota(self, index: int, reply: Reply) -> Quota:
        """How the whole bucket stands, by the answer of a shard."""
        return Quota.of(self.scope, self.limit, self.shards[index], len(self.shards), reply)

    def denied(self, index: int, reply: Reply, source: Source = Source.SERVER) -> Denied | None:
        """The denial that a reply is, if it is one."""
        if reply.allowed:
            return None
        return Denied(None if reply.retry_after_ms < 0 else reply.retry_after_ms, self.quota(index, reply), source)

    def whole(self) -> "Bucket":
        """The same with the limit uncut, as the bucket in this process has it."""
        return Bucket(self.scope, self.memory, self.limit, self.limit.cut(1), 1)

    def take_locally(self, cost: int, now: float) -> tuple[Reply, Callable[[], None]]:
        """What the bucket in this process says to a cost, exactly; and what takes it."""
        limit, rate = self.limit, self.limit.per_second / 1000
        tokens = capacity = Fraction(limit.capacity)
        if self.memory.local is not None:
            old, tokens, at = self.memory.local
            if old != limit:  # so that no rest of an old rate stays in the fraction
                tokens = Fraction(floor(tokens * NANO), NANO)
            tokens = min(capacity, tokens + (Fraction(now) - Fraction(at)) * rate)
        allowed = cost <= tokens
        left = tokens - cost if allowed else tokens
        retry = 0 if allowed else -1 if cost > capacity else ceil((cost - tokens) / rate)
        reply = Reply(allowed, floor(left), retry, ceil((capacity - left) / rate))

        def take() -> None:
            self.memory.local = (limit, left, now)

        return reply, take


def two_shards(fit: int, fullness: Callable[[int], float]) -> list[int]:
    """Which shards to ask, in order: two at random, the one believed fuller first; the only one, if there is one.

    With one random shard per call, some run dry while others are full. Looking at two and asking the fuller evens them out
    in one round trip; asking more than two would cost round trips exactly when the tenant is over its limit.
    """
    if fit == 1:
        return [0]
    return sorted(random.sample(range(fit), 2), key=fullness, reverse=True)
