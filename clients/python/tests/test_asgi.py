"""The middleware in FastAPI, over real HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import redis.asyncio
import uvicorn
from conftest import policy
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from server import HOST, Server, free_port

from redis_token_bucket import AsyncLimiter, OnFailure, Policy
from redis_token_bucket.asgi import Ask, RateLimitMiddleware

pytestmark = pytest.mark.anyio


def ask(scope: Any) -> Ask | None:
    headers = dict(scope["headers"])
    tenant = headers.get(b"x-tenant")
    return Ask(tenant.decode(), "search", int(headers.get(b"x-cost", 1))) if tenant else None


@asynccontextmanager
async def service(port: int, limits: Policy, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """FastAPI behind uvicorn, and a client of it."""
    app = FastAPI()
    client = redis.asyncio.Redis(host=HOST, port=port)
    limiter = AsyncLimiter(client, limits)
    app.add_middleware(RateLimitMiddleware, limiter=limiter, ask=ask, **options)

    @app.get("/search")
    async def search(request: Request) -> dict[str, Any]:
        decision = getattr(request.state, "rate_limit", None)
        return {"remaining": decision and decision.quota and decision.quota.remaining}

    server = uvicorn.Server(uvicorn.Config(app, host=HOST, port=free_port(), log_level="warning"))
    serving = asyncio.create_task(server.serve())
    deadline = asyncio.get_running_loop().time() + 10
    while not server.started:
        assert not serving.done() and asyncio.get_running_loop().time() < deadline, "uvicorn did not start"
        await asyncio.sleep(0.01)
    async with httpx.AsyncClient(base_url=f"http://{HOST}:{server.config.port}") as http:
        yield http
    server.should_exit = True
    await serving
    await limiter.aclose()
    await client.connection_pool.disconnect()


async def test_requests_are_allowed_with_the_fields_and_then_denied_with_429(server: Server, tenant: str) -> None:
    async with service(server.port, policy(route="2 burst, 1/m")) as http:
        answers = [await http.get("/search", headers={"x-tenant": tenant}) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert [answer.json()["remaining"] for answer in answers[:2]] == [1, 0]
        assert answers[0].headers["ratelimit-policy"] == '"route";q=2;w=120'
        assert answers[0].headers["ratelimit"] == '"route";r=1;t=60'
        assert "retry-after" not in answers[0].headers
        assert 55 <= int(answers[2].headers["retry-after"]) <= 60
        assert answers[2].headers["ratelimit"] == f'"route";r=0;t={answers[2].headers["retry-after"]}'
        assert answers[2].text == "Too Many Requests\n"


async def test_what_is_not_asked_passes(server: Server) -> None:
    async with service(server.port, policy(route="0 burst, 1/s")) as http:
        answer = await http.get("/search")
        assert (answer.status_code, answer.json()) == (200, {"remaining": None})
        assert "ratelimit" not in answer.headers


@pytest.mark.parametrize("shards", [1, 4])
async def test_a_cost_that_can_never_be_met_is_denied_without_retry_after(
    server: Server, tenant: str, shards: int
) -> None:
    async with service(server.port, policy(shards=shards)) as http:
        answer = await http.get("/search", headers={"x-tenant": tenant, "x-cost": "51"})
        assert answer.status_code == 429
        assert "retry-after" not in answer.headers


async def test_a_request_that_cannot_be_decided_is_an_error_of_the_service(server: Server) -> None:
    async with service(server.port, policy()) as http:
        assert (await http.get("/search", headers={"x-tenant": "a", "x-cost": "-1"})).status_code == 500


async def test_the_response_to_a_denied_request_is_the_callers(server: Server, tenant: str) -> None:
    def denied(decision: Any) -> JSONResponse:
        return JSONResponse({"error": decision.reason.value}, status_code=429)

    async with service(server.port, policy(route="0 burst, 1/s"), denied=denied) as http:
        answer = await http.get("/search", headers={"x-tenant": tenant})
        assert (answer.status_code, answer.json()) == (429, {"error": "route_limit"})
        assert answer.headers["ratelimit"] == '"route";r=0'


@pytest.mark.parametrize(
    ("on_failure", "status"), [(OnFailure.OPEN, 200), (OnFailure.CLOSED, 503), (OnFailure.LOCAL, 200)]
)
async def test_without_redis_the_policy_answers(tenant: str, on_failure: OnFailure, status: int) -> None:
    async with service(free_port(), policy(on_failure=on_failure)) as http:
        answer = await http.get("/search", headers={"x-tenant": tenant})
        assert answer.status_code == status
        assert ("retry-after" in answer.headers) == (status == 503)
        assert ("ratelimit" in answer.headers) == (on_failure is OnFailure.LOCAL)
