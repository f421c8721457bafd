"""What is decided when Redis is away: in time, by the policy, and never with a take sent twice."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from conftest import Make, Variant, policy, variants
from proxy import Proxy
from server import HOST, Server, free_port, wait_for

from redis_token_bucket import Cell, Failure, Limit, OnFailure, Reason, Source

pytestmark = pytest.mark.anyio

every_single = pytest.mark.parametrize("variant", variants(kind="single"))
both_styles = pytest.mark.parametrize("variant", variants(library="redis", kind="single"))
TIMEOUT_MS = 100
MARGIN = 0.4
"""Seconds; the machine may be busy."""


class Timed:
    """Fails if what happens inside takes longer than the timeout and a margin."""

    def __enter__(self) -> None:
        self.start = time.monotonic()

    def __exit__(self, *error: object) -> None:
        took = time.monotonic() - self.start
        assert error[0] is not None or took < TIMEOUT_MS / 1000 + MARGIN, f"took {took:.3f} s"


def impatient(on_failure: OnFailure, **fields: Any) -> Any:
    return policy(**{"timeout_ms": TIMEOUT_MS, "on_failure": on_failure, **fields})


@every_single
@pytest.mark.parametrize("used_before", [True, False])
async def test_a_frozen_server_is_not_waited_for(
    make: Make, variant: Variant, own_server: Server, tenant: str, used_before: bool
) -> None:
    failures: list[tuple[str, str, Failure]] = []
    limiter = make(
        variant, own_server.port, impatient(OnFailure.OPEN), on_unavailable=lambda *args: failures.append(args)
    )
    if used_before:
        assert (await limiter.authorize(tenant, "search")).source is Source.SERVER
    own_server.freeze()
    with Timed():
        decision = await limiter.authorize(tenant, "search")
    assert (decision.allowed, decision.source, decision.label) == (True, Source.FAILURE_POLICY, "unavailable")
    assert [(*names, failure.kind) for *names, failure in failures] == [(tenant, "search", "timeout")]
    own_server.thaw()
    assert wait_for("the server answers", own_server.client.ping)
    assert (await limiter.authorize(tenant, "search")).source is Source.SERVER, "it recovers by itself"


@every_single
async def test_a_closed_policy_denies(make: Make, variant: Variant, tenant: str) -> None:
    limiter = make(variant, free_port(), impatient(OnFailure.CLOSED))
    with Timed():
        decision = await limiter.authorize(tenant, "search")
    assert (decision.reason, decision.source) == (Reason.UNAVAILABLE, Source.FAILURE_POLICY)
    assert (decision.retry_after_ms, decision.quota) == (1000, None)


@every_single
async def test_a_local_bucket_decides_by_the_same_limits(make: Make, variant: Variant, tenant: str) -> None:
    limits = impatient(OnFailure.LOCAL, tenant="3 burst, 1/h", route="2 burst, 1/m", cell=Cell("db", Limit(9, 1)))
    limiter = make(variant, free_port(), limits)
    decisions = [await limiter.authorize(tenant, route) for route in ["search", "search", "search", "upload", "upload"]]
    assert [decision.reason for decision in decisions] == [None, None, Reason.ROUTE_LIMIT, None, Reason.TENANT_LIMIT]
    assert {decision.source for decision in decisions} == {Source.FAILURE_POLICY}
    assert 50_000 < decisions[2].retry_after_ms <= 60_000
    assert (await limiter.authorize(tenant, "search", 4)).never


@every_single
async def test_a_server_that_comes_back_is_asked_again(
    make: Make, variant: Variant, own_server: Server, tenant: str
) -> None:
    limiter = make(variant, own_server.port, impatient(OnFailure.OPEN))
    assert (await limiter.authorize(tenant, "search")).source is Source.SERVER
    own_server.kill()
    for _ in range(3):
        with Timed():
            assert (await limiter.authorize(tenant, "search")).source is Source.FAILURE_POLICY
    await asyncio.to_thread(own_server.start)
    assert (await limiter.authorize(tenant, "search")).source is Source.SERVER
    own_server.kill()
    await asyncio.to_thread(own_server.start)  # unnoticed, but the event loop runs on
    assert (await limiter.authorize(tenant, "search")).source is Source.SERVER


@every_single
@pytest.mark.parametrize("lose", ["hold", "cut"])
async def test_a_take_whose_reply_is_lost_is_sent_once(
    make: Make, variant: Variant, server: Server, tenant: str, lose: str
) -> None:
    with Proxy(server.port) as proxy:
        limiter = make(variant, proxy.port, impatient(OnFailure.OPEN, route="5 burst, 1/h"))
        assert (await limiter.authorize(tenant, "search")).quota.remaining == 4
        proxy.lose = lose
        proxy.requests.clear()
        with Timed():
            assert (await limiter.authorize(tenant, "search")).source is Source.FAILURE_POLICY
        assert b"".join(proxy.requests).count(b"RL.TAKEALL") == 1
        assert (await limiter.authorize(tenant, "search")).quota.remaining == 2, "the lost one counted, once"


def test_the_retries_of_a_client_would_send_it_again(server: Server, tenant: str) -> None:
    """Why the limiter does not use them."""
    with Proxy(server.port) as proxy:
        client = redis.Redis(HOST, proxy.port)
        client.ping()
        proxy.lose = "cut"
        assert client.execute_command("RL.TAKE", f"{{{tenant}}}", 9, 1)[1] == 7, "taken twice"
        client.close()


@both_styles
async def test_a_server_without_the_module_is_reported_once(
    make: Make, variant: Variant, tenant: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(module=False)
    try:
        kinds: list[str] = []
        limiter = make(
            variant, server.port, impatient(OnFailure.CLOSED), on_unavailable=lambda *args: kinds.append(args[2].kind)
        )
        for _ in range(3):
            assert (await limiter.authorize(tenant, "search")).reason is Reason.UNAVAILABLE
        assert kinds == ["no_module"] * 3
        assert caplog.text.count("does not have the rate limit module") == 1
    finally:
        server.stop()


@both_styles
async def test_an_error_of_the_server_is_left_to_the_policy(
    make: Make, variant: Variant, server: Server, tenant: str
) -> None:
    failures: list[Failure] = []
    limiter = make(
        variant, server.port, impatient(OnFailure.OPEN), on_unavailable=lambda *args: failures.append(args[2])
    )
    server.client.set(f"{{{tenant}}}:rl:search:0", "not a bucket")
    assert (await limiter.authorize(tenant, "search")).source is Source.FAILURE_POLICY
    assert [(failure.kind, failure.code) for failure in failures] == [("server_error", "WRONGTYPE")]


@both_styles
async def test_a_full_server_is_left_to_the_policy(
    make: Make, variant: Variant, own_server: Server, tenant: str
) -> None:
    limiter = make(variant, own_server.port, impatient(OnFailure.CLOSED))
    own_server.client.config_set("maxmemory", 1)
    assert (await limiter.authorize(tenant, "search")).reason is Reason.UNAVAILABLE
    assert (await limiter.peek(tenant, "search")).source is Source.SERVER
    own_server.client.config_set("maxmemory", 0)
    assert (await limiter.authorize(tenant, "search")).source is Source.SERVER


@both_styles
@pytest.mark.parametrize("on_failure", list(OnFailure))
async def test_a_cell_that_does_not_answer_is_left_to_the_policy(
    make: Make, variant: Variant, server: Server, tenant: str, on_failure: OnFailure
) -> None:
    limits = {"tenant": "9 burst, 1/h", "route": "9 burst, 1/h"}
    cell = Cell(f"db-{tenant}", Limit.parse("2 burst, 1/h"))
    server.client.set(f"{{_cell.db-{tenant}#0.{_salt(cell.name)}}}:rl:_cell:0", "not a bucket")
    limiter = make(variant, server.port, impatient(on_failure, cell=cell, **limits))
    decisions = [await limiter.authorize(tenant, "search") for _ in range(3)]
    reasons = {OnFailure.OPEN: [None] * 3, OnFailure.CLOSED: [Reason.UNAVAILABLE] * 3,
               OnFailure.LOCAL: [None, None, Reason.CELL_LIMIT]}  # fmt: skip
    assert [decision.reason for decision in decisions] == reasons[on_failure]
    taken = sum(decision.reason is None for decision in decisions)
    left = await make(variant, server.port, policy(**limits)).peek(tenant, "search", 0)
    assert left.quota.remaining == 9 - taken, "what was denied was given back"


def _salt(cell: str) -> int:
    from redis_token_bucket.keys import cell_keys

    return int(cell_keys(cell, 1)[0].partition(b"#0.")[2].partition(b"}")[0])


@pytest.fixture
def scripted() -> Iterator[Any]:
    """A server that answers with what it is told, and keeps what it was asked."""
    servers = []

    def start(*answers: bytes) -> Any:
        server = Scripted(list(answers))
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.listener.close()


class Scripted:
    def __init__(self, answers: list[bytes]) -> None:
        self.answers, self.takes = answers, 0
        self.listener = socket.create_server((HOST, 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            while header := lines.readline():
                words = []
                for _ in range(int(header[1:])):
                    lines.readline()
                    words.append(lines.readline().strip())
                if words[0] == b"RL.TAKEALL":
                    self.takes += 1
                    answer = self.answers.pop(0)
                else:
                    answer = b"-ERR unknown command\r\n" if words[0] == b"HELLO" else b"+OK\r\n"
                connection.sendall(answer)


GRANTED = b"*4\r\n:1\r\n:0\r\n" + b"*4\r\n:1\r\n:7\r\n:0\r\n:1\r\n" * 2


@pytest.mark.parametrize("variant", variants(kind="single"))
@pytest.mark.parametrize(
    "error", [b"LOADING Redis is loading", b"TRYAGAIN later", b"CLUSTERDOWN down", b"MASTERDOWN link"]
)
async def test_a_command_that_was_not_carried_out_is_sent_again(
    make: Make, variant: Variant, scripted: Any, tenant: str, error: bytes
) -> None:
    server = scripted(b"-" + error + b"\r\n", b"-" + error + b"\r\n", GRANTED)
    limiter = make(variant, server.port, policy(), client={"protocol": 2})
    decision = await limiter.authorize(tenant, "search")
    assert (decision.source, decision.quota.remaining, server.takes) == (Source.SERVER, 7, 3)


@both_styles
@pytest.mark.parametrize(
    "answer", [b"+OK\r\n", b"*0\r\n", b"*1\r\n:1\r\n", b":1\r\n", b"*4\r\n:1\r\n:0\r\n:1\r\n:1\r\n"]
)
async def test_an_answer_that_is_none_is_left_to_the_policy(
    make: Make, variant: Variant, scripted: Any, tenant: str, answer: bytes
) -> None:
    kinds: list[str] = []
    server = scripted(answer)
    limiter = make(
        variant, server.port, policy(), client={"protocol": 2}, on_unavailable=lambda *args: kinds.append(args[2].kind)
    )
    assert (await limiter.authorize(tenant, "search")).source is Source.FAILURE_POLICY
    assert set(kinds) == {"server_error"}


async def test_a_call_that_is_cancelled_leaves_no_reply_behind(make: Make, server: Server, tenant: str) -> None:
    with Proxy(server.port) as proxy:
        limiter = make(Variant("redis", "async", "single"), proxy.port, policy(route="9 burst, 1/h"))
        await limiter.authorize(tenant, "search")
        proxy.lose = "hold"
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(limiter.authorize(tenant, "search"), 0.05)
        decision = await limiter.authorize(tenant, "upload", 2)
        assert (decision.source, decision.quota.remaining) == (Source.SERVER, 7), "its own answer"
