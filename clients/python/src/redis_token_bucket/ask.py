"""A decision step by step: denials that still hold, both buckets of the tenant, the cell, the failure policy.

The steps are generators without I/O, for a limiter that waits and one that awaits: they yield commands to be sent at the
same time, and get back what was answered.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple, TypeVar

from .bucket import Bucket, Call, two_shards
from .decision import Decision, Denied, Failure, Quota, Reason, Reply, Source
from .policy import OnFailure, Policy

CLOSED_RETRY_MS = 1000
"""When to try again after a denial by a closed failure policy: a second is the least that HTTP can say."""

Answer = list[object] | Failure
Buckets = tuple[Bucket, ...]
"""Asked together: the tenant-wide and the route bucket, or the cell's."""
T = TypeVar("T")

_LOCAL = Lock()
"""Held while local buckets are looked at and taken from; between threads, all or none."""


class Send(NamedTuple):
    """Commands to send at the same time. Gifts in the background are sent even if no time is left to wait for them."""

    calls: list[Call]
    background: bool = False


Steps = Generator[Send, list[Answer], T]


class Granted(NamedTuple):
    """What a shard allowed."""

    shard: int
    quota: Quota


@dataclass(frozen=True, slots=True)
class Request:
    """A request that can be decided."""

    name: tuple[str, str]
    """The tenant and the route."""
    policy: Policy
    tenant: Bucket
    route: Bucket
    cell: Bucket | None
    cost: int
    takes: bool
    """Whether tokens are to be taken, or only looked at."""
    clock: Callable[[], float]
    failed: Callable[["Request", Failure], None]

    def decide(self) -> Steps[Decision]:
        """Takes from all buckets or from none."""
        pair, cell = (self.tenant, self.route), (self.cell,) if self.cell else ()
        pair_shards, cell_shards = self._order(pair), self._order(cell)
        # From a cell that is known to deny it is not worth taking the tenant's tokens and giving them back.
        held = self._held_by_all(pair, pair_shards) or self._held_by_all(cell, cell_shards)
        if held:
            return self._denied(held)
        answer = yield from self._first_granted(pair, pair_shards)
        if answer is None:
            return self._decide_alone([*pair, *cell], None)
        if isinstance(answer, Denied):
            return self._denied(answer)
        if not cell:
            return self._allowed(answer.quota, Source.SERVER)
        shard, quota = answer
        answer = yield from self._first_granted(cell, cell_shards)
        if isinstance(answer, Granted):
            return self._allowed(quota, Source.SERVER)
        decision = self._denied(answer) if answer else self._decide_alone([*cell], quota)
        if self.takes and decision.reason is not None:
            yield Send([bucket.call("RL.GIVE", shard, self.cost) for bucket in pair], background=True)
        return decision

    def settle(self, verb: str) -> Steps[Quota | Failure]:
        """Gives or charges the cost on all buckets; of the shards a gift goes to the emptier, so that it does not overflow."""
        order = -1 if verb == "RL.GIVE" else 0
        pair = self._order((self.tenant, self.route))[order]
        targets = [(self.tenant, pair), (self.route, pair)]
        if self.cell:
            targets.append((self.cell, self._order((self.cell,))[order]))
        answers = yield Send([bucket.call(verb, shard, self.cost) for bucket, shard in targets])
        quotas: list[Quota | Failure] = []
        for (bucket, shard), answer in zip(targets, answers, strict=True):
            reply = self._read(answer)
            if isinstance(reply, Reply):
                bucket.saw(shard, self.cost, reply, self.clock())
                quotas.append(bucket.quota(shard, reply))
            else:
                quotas.append(reply)
        for quota in quotas:
            if isinstance(quota, Failure):
                return quota
        return _tighter(*(quota for quota in quotas[:2] if isinstance(quota, Quota)))

    def _order(self, buckets: Buckets) -> list[int]:
        """Which shards to ask, in order."""
        if not buckets:
            return []
        now = self.clock()
        return two_shards(buckets[0].fit, lambda shard: min(bucket.fullness(shard, now) for bucket in buckets))

    def _held(self, buckets: Buckets, shard: int) -> Denied | None:
        """The denial by this shard that still holds: of several buckets' the one that lasts longest."""
        if not self.policy.denial_cache or not self.takes:
            return None
        now = self.clock()
        denials = [bucket.held(shard, self.cost, now) for bucket in buckets]
        return max(filter(None, denials), key=lambda denied: denied.wait, default=None)

    def _held_by_all(self, buckets: Buckets, shards: list[int]) -> Denied | None:
        """If all of these shards still deny, the denial that is over sooner."""
        denials = [self._held(buckets, shard) for shard in shards]
        return min(filter(None, denials), key=lambda denied: denied.wait, default=None) if all(denials) else None

    def _first_granted(self, buckets: Buckets, shards: list[int]) -> Steps[Granted | Denied | None]:
        """Asks one shard after the other until one allows; otherwise the denial that is over sooner.

        None if the first gave no answer. One shard that denied is an answer, though the other gave none.
        """
        best: Denied | None = None
        for shard in shards:
            answer = self._held(buckets, shard) or (yield from self._ask(buckets, shard))
            if not isinstance(answer, Denied):
                return answer or best
            best = answer if best is None or answer.wait < best.wait else best
        return best

    def _ask(self, buckets: Buckets, shard: int) -> Steps[Granted | Denied | None]:
        if self.takes and len(buckets) > 1:
            calls = [bucket.call("", shard, self.cost) for bucket in buckets]
            [answer] = yield Send([Call(calls[0].slot, ("RL.TAKEALL", *(arg for call in calls for arg in call.args)))])
            # Of an answer that is not one, the failure or what it is instead is read, and reported.
            answers = answer[2:] if isinstance(answer, list) and len(answer) == 2 + len(buckets) else [answer]
        else:
            verb = "RL.TAKE" if self.takes else "RL.PEEK"
            answers = yield Send([bucket.call(verb, shard, self.cost) for bucket in buckets])
        replies = [reply for reply in map(self._read, answers) if isinstance(reply, Reply)]
        if len(replies) != len(buckets):
            return None
        now, quotas = self.clock(), []
        denials: list[Denied] = []
        for bucket, reply in zip(buckets, replies, strict=True):
            bucket.saw(shard, self.cost, reply, now)
            quotas.append(bucket.quota(shard, reply))
            denials += filter(None, [bucket.denied(shard, reply)])
        return max(denials, key=lambda denied: denied.wait) if denials else Granted(shard, _tighter(*quotas))

    def _read(self, answer: object) -> Reply | Failure:
        """The reply of one bucket; a failure is reported."""
        if not isinstance(answer, Failure):
            if isinstance(answer, list) and len(answer) == 4 and all(isinstance(item, int) for item in answer):
                allowed, *rest = answer
                return Reply(allowed == 1, *rest)
            answer = Failure("server_error", f"not the reply of a bucket: {answer!r}")
        self.failed(self, answer)
        return answer

    def _decide_alone(self, buckets: list[Bucket], quota: Quota | None) -> Decision:
        """The failure policy, for buckets that did not answer; `quota` is what the others said."""
        policy = self.policy.on_failure
        if policy is OnFailure.OPEN:
            return self._allowed(quota, Source.FAILURE_POLICY)
        if policy is OnFailure.CLOSED:
            return self._decision(Reason.UNAVAILABLE, CLOSED_RETRY_MS, Source.FAILURE_POLICY, None)
        quotas, takes = [], []
        with _LOCAL:
            for bucket in (bucket.whole() for bucket in buckets):
                reply, take = bucket.take_locally(self.cost, self.clock())
                if denied := bucket.denied(0, reply, Source.FAILURE_POLICY):
                    return self._denied(denied)
                quotas.append(bucket.quota(0, reply))
                takes.append(take)
            if self.takes:
                for take in takes:
                    take()
        return self._allowed(quota or _tighter(*quotas[:2]), Source.FAILURE_POLICY)

    def _denied(self, denied: Denied) -> Decision:
        reason = Reason(f"{denied.quota.scope.value}_limit")
        return self._decision(reason, denied.retry_after_ms, denied.source, denied.quota)

    def _allowed(self, quota: Quota | None, source: Source) -> Decision:
        soft = quota is not None and quota.remaining < self.policy.soft_limit
        return self._decision(None, None, source, quota, soft)

    def _decision(
        self, reason: Reason | None, retry_ms: int | None, source: Source, quota: Quota | None, soft: bool = False
    ) -> Decision:
        return Decision(*self.name, self.cost, reason, retry_ms, self.policy.shadow, soft, source, quota)


def _tighter(*quotas: Quota) -> Quota:
    """The bucket with fewer tokens left; of equals the last, which is the route's."""
    return min(reversed(quotas), key=lambda quota: quota.remaining)
