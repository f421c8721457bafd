"""A service that goes over from a script: both take from the same buckets."""

import time
from typing import Any

import redis
from conftest import policy
from server import HOST, Server

from redis_token_bucket import Limiter

# A token bucket as scripts commonly keep it: two fields of a hash, the client's clock, milliseconds.
SCRIPT = """
local held = redis.call('HMGET', KEYS[1], 'tokens', 'ts')
local limit, per_ms, at, want = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local level = math.min(limit, (tonumber(held[1]) or limit) + math.max(0, at - (tonumber(held[2]) or at)) * per_ms)
local ok = level >= want
redis.call('HSET', KEYS[1], 'tokens', ok and level - want or level, 'ts', at)
redis.call('PEXPIRE', KEYS[1], 60000)
return ok and 1 or 0
"""


class Old:
    def __init__(self, client: Any) -> None:
        self.client = client

    def take(self, tenant: str, route: str, capacity: int, per_second: float) -> bool:
        key = f"{{{tenant}}}:rl:{route}:0"
        return self.client.eval(SCRIPT, 1, key, capacity, per_second / 1000, time.time_ns() // 1_000_000, 1) == 1

    def authorize(self, tenant: str, route: str) -> bool:
        return self.take(tenant, "_tenant", 500, 0.01) and self.take(tenant, route, 50, 0.01)


def test_old_and_new_take_from_the_same_buckets(server: Server, tenant: str) -> None:
    client = redis.Redis(HOST, server.port)
    old, new = Old(client), Limiter(client, policy(tenant="500 burst, 0.01/s", route="50 burst, 0.01/s"))
    for left in range(50, 0, -2):
        assert old.authorize(tenant, "search")
        decision = new.authorize(tenant, "search")
        assert (decision.allowed, decision.quota.remaining) == (True, left - 2)
    assert not old.authorize(tenant, "search")
    assert not new.authorize(tenant, "search").allowed
    new.close()
    client.close()
