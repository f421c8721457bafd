"""A capacity and a rate, and how they are cut into shards.

>>> limit = Limit.parse("50 burst, 20/s")
>>> limit.fill_ms, [shard.capacity for shard in limit.cut(4)], limit.cut(4)[0].rate
(2500, ['13', '13', '12', '12'], '20/4')
"""

import re
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor

from .errors import CostAboveShard, LimitError

MAX_TOKENS = 9_007_199_254_740_991
NANO = 10**9

_YEARS_100 = 100 * 31_557_600
_UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_NUMBER = r"[0-9]{1,400}(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,4})?"
_TOKENS = re.compile(_NUMBER)
_LIMIT = re.compile(
    rf"(?P<capacity>{_NUMBER}) burst, *(?P<tokens>{_NUMBER})(?:/(?=.)(?P<number>{_NUMBER})?(?P<unit>[a-z]+)?)?"
)


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard's part of a limit: its arguments as the server takes them, and nearly, for beliefs and hints."""

    capacity: str
    rate: str
    whole: int
    tokens: float
    per_ms: float


@dataclass(frozen=True)
class Limit:
    """The capacity of a bucket, the most tokens it holds, and its rate: `tokens` every `period_ms`.

    `tokens` is a decimal that is sent to the server as it is written. The text form is `"50 burst, 20/s"`: the capacity,
    then the rate as the server takes it (`20`, `100/m`, `5/15m`, `3/250ms`).
    """

    capacity: Fraction | int
    tokens: str | int
    period_ms: int = 1000
    _cut: dict[int, tuple[Shard, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        capacity = Fraction(floor(Fraction(self.capacity) * NANO + Fraction(1, 2)), NANO)
        if not 0 <= capacity <= MAX_TOKENS or (self.capacity and not capacity):
            raise LimitError(f"capacity must be a number from 0 to {MAX_TOKENS}")
        tokens = str(self.tokens)
        if not _TOKENS.fullmatch(tokens) or not Fraction(tokens) or not 1 <= self.period_ms <= MAX_TOKENS // 1000:
            raise LimitError("rate must be tokens per second above 0, or tokens/period such as 100/m, in whole ms")
        object.__setattr__(self, "capacity", capacity)
        object.__setattr__(self, "tokens", tokens)
        if capacity > self.per_second * _YEARS_100:
            raise LimitError("bucket must fill within 100 years")

    @classmethod
    def parse(cls, text: str) -> "Limit":
        """Reads `"50 burst, 20/s"`."""
        parts = _LIMIT.fullmatch(text)
        if parts is None or parts["unit"] not in (None, *_UNITS):
            raise LimitError(f"limit must be a capacity and a rate such as `50 burst, 20/s`, not `{text}`")
        period_ms = Fraction(parts["number"] or 1) * _UNITS[parts["unit"] or "s"]
        if period_ms.denominator != 1:
            raise LimitError("rate must be tokens per second above 0, or tokens/period such as 100/m, in whole ms")
        return cls(Fraction(parts["capacity"]), parts["tokens"], int(period_ms))

    def __str__(self) -> str:
        unit, unit_ms = next((unit, ms) for unit, ms in _UNITS.items() if self.period_ms % ms == 0)
        number = self.period_ms // unit_ms
        return f"{_decimal(self.capacity)} burst, {self.tokens}/{'' if number == 1 else number}{unit}"

    @property
    def per_second(self) -> Fraction:
        """The exact rate. Like on the server, 16 digits or more are a printed float, and mean the simple fraction it means."""
        text = str(self.tokens)
        tokens = Fraction(text)
        if sum(char.isdigit() for char in re.split("[eE]", text)[0].lstrip("0.")) >= 16:
            simple = tokens.limit_denominator(10**6)
            tokens = simple if float(simple) == float(tokens) else tokens
        return tokens * 1000 / self.period_ms

    @property
    def fill_ms(self) -> int:
        """Milliseconds from empty to full, rounded up."""
        return ceil(self.capacity / self.per_second * 1000)

    def cut(self, count: int) -> tuple[Shard, ...]:
        """What each of `count` shards holds; they add up to the limit.

        Whole tokens go round the shards; a fraction of a token goes to the first that got fewer, so no later shard ever
        holds more than an earlier one. A limit that is not cut may have any capacity.
        """
        shards = self._cut.get(count)
        return shards if shards is not None else self._cut.setdefault(count, self._shards(count))

    def _shards(self, count: int) -> tuple[Shard, ...]:
        whole, fraction = divmod(Fraction(self.capacity), 1)
        each, more = divmod(whole, count)
        if count > 1 and each == 0:
            raise LimitError(f"capacity is less than one whole token for each of {count} shards")
        period_ms = self.period_ms * count
        period = "" if period_ms == 1000 else f"/{period_ms}ms" if period_ms % 1000 else f"/{period_ms // 1000}"
        rate, per_ms = f"{self.tokens}{period}", float(self.per_second / 1000 / count)
        capacities = [each + (index < more) + (fraction if index == more else 0) for index in range(count)]
        return tuple(Shard(_decimal(part), rate, floor(part), float(part), per_ms) for part in capacities)


def shards_that_hold(limits: tuple[Limit, ...], cost: int, count: int) -> int:
    """How many shards, counted from the first, can hold `cost` in all limits.

    A bucket that is not cut counts as one, be the cost within its capacity or not: the server then says "never".
    """
    if count == 1:
        return 1
    fit = min(sum(shard.whole >= cost for shard in limit.cut(count)) for limit in limits)
    if fit == 0:
        raise CostAboveShard(f"cost {cost} is above the capacity of each of {count} shards")
    return fit


def _decimal(value: Fraction | int) -> str:
    """At most nine places, no trailing zeros."""
    whole, nanos = divmod(int(value * NANO), NANO)
    return f"{whole}.{nanos:09d}".rstrip("0").rstrip(".")
