"""Rate limits for services over redis-token-bucket: tenants, routes, shards, cells, and what to do when Redis is away.

policy = Policy(tenant=Limit.parse("1000 burst, 200/s"), route=Limit.parse("50 burst, 20/s"))
limiter = Limiter(redis.Redis(), policy)
decision = limiter.authorize("acme", "search")
"""

from .decision import Decision, Failure, Quota, Reason, Scope, Source
from .errors import CostAboveShard, LimitError, RequestError, Unavailable
from .limit import Limit
from .limiter import AsyncLimiter, Limiter
from .policy import Cell, OnFailure, Policy

__all__ = [
    "AsyncLimiter", "Cell", "CostAboveShard", "Decision", "Failure", "Limit", "LimitError", "Limiter", "OnFailure", "Policy",
    "Quota", "Reason", "RequestError", "Scope", "Source", "Unavailable",
]  # fmt: skip
