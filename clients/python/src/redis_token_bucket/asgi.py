"""ASGI middleware that asks the limiter about every request: for FastAPI, Starlette and everything else on ASGI.

app.add_middleware(RateLimitMiddleware, limiter=limiter, ask=lambda scope: Ask(tenant_of(scope), "search"))
"""

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from . import http
from .decision import Decision
from .errors import CostAboveShard
from .limiter import AsyncLimiter

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Ask:
    """What to ask the limiter about a request.

    Take the tenant from what the client has proved to be, not from what it says, and the route from a few names of your own,
    not from the path with ids in it: each has a bucket.
    """

    tenant: str
    route: str
    cost: int = 1


class RateLimitMiddleware:
    """Lets an HTTP request pass only if the limiter allows it; websockets and lifespan pass unasked.

    `ask` makes an Ask of the ASGI scope, or None to let the request pass unasked. `denied` makes the response to a denied
    request, such as a Starlette response with the status of `http.status`. Whatever the decision, the response gets the
    fields of `http.fields`, and a request that goes on has the decision in `request.state.rate_limit`.
    """

    def __init__(
        self,
        app: App,
        limiter: AsyncLimiter,
        ask: Callable[[Scope], Ask | None],
        denied: Callable[[Decision], App] | None = None,
    ) -> None:
        self._app, self._limiter, self._ask = app, limiter, ask
        self._denied = denied or (lambda decision: _plain(http.status(decision)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ask = self._ask(scope) if scope["type"] == "http" else None
        if ask is None:
            return await self._app(scope, receive, send)
        try:
            decision = await self._limiter.authorize(ask.tenant, ask.route, ask.cost)
        except CostAboveShard:  # like a cost above the capacity of a bucket that is not cut: never
            return await _plain(429)(scope, receive, send)
        added = [(name.encode(), value.encode()) for name, value in http.fields(decision).items()]

        async def send_with_fields(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *added]}
            await send(message)

        if not decision.allowed:
            return await self._denied(decision)(scope, receive, send_with_fields)
        scope.setdefault("state", {})["rate_limit"] = decision
        await self._app(scope, receive, send_with_fields)


def _plain(status: int) -> App:
    body = b"Too Many Requests\n" if status == 429 else b"Service Unavailable\n"

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return respond
