"""Connections to Redis, one for each command under way: waited for in threads, or awaited.

Both kinds keep idle connections by node, and drop one whenever its state is in doubt.
"""

import asyncio
import os
import time
from collections import defaultdict, deque
from typing import Any, cast

from .ask import Answer
from .bucket import Call
from .decision import Failure
from .routing import Node, Send, dialer, failure

IDLE = 64
"""Connections to a node that are kept when idle; awaited, also the most that are in use."""


class Connections:
    """Connections that are waited for. Safe to use from threads, and in a forked process."""

    def __init__(self, client: Any) -> None:
        self._dialer, self._router = dialer(client)
        if asyncio.iscoroutinefunction(getattr(self._dialer.connection_class, "connect", None)):
            raise TypeError("an asyncio client is for AsyncLimiter")
        self._idle: defaultdict[Node | None, deque[Any]] = defaultdict(deque)
        self._pid = os.getpid()

    def send(self, call: Call, deadline: float) -> Answer:
        trip = self._router.exchange(call, deadline)
        answer: Answer | None = None
        try:
            while True:
                step = trip.send(answer)
                if isinstance(step, Send):
                    answer = self._try(step)
                else:
                    time.sleep(step)
        except StopIteration as end:
            return cast(Answer, end.value)

    def close(self) -> None:
        """Closes the idle connections."""
        for idle in list(self._idle.values()):
            while idle:
                idle.pop().disconnect()

    def _try(self, send: Send) -> Answer:
        connection, sent = None, False
        try:
            connection = self._connected(send)
            sent = True
            if send.asking:
                connection.send_command("ASKING")
            connection.send_command(*send.args)
            if send.asking:
                self._read(connection, send.deadline)
            answer = self._read(connection, send.deadline)
        except self._dialer.errors as error:
            failed = failure(error, sent)
            if connection is not None:
                self._keep(send.node, connection) if _usable(failed, send) else connection.disconnect()
            return failed
        except BaseException:
            if connection is not None:
                connection.disconnect()
            raise
        self._keep(send.node, connection)
        return cast(Answer, answer)

    def _connected(self, send: Send) -> Any:
        if self._pid != os.getpid():  # forked: the connections are the parent's
            self._idle, self._pid = defaultdict(deque), os.getpid()
        idle = self._idle[send.node]
        while idle:
            try:
                connection = idle.pop()
            except IndexError:  # another thread was quicker
                break
            try:
                if not connection.can_read(timeout=0):
                    return connection
            except self._dialer.errors:  # closed by the server
                pass
            connection.disconnect()
        connection = self._dialer.connection(send.node)
        connection.socket_timeout = connection.socket_connect_timeout = max(0.001, send.deadline - time.monotonic())
        connection.connect()
        return connection

    def _read(self, connection: Any, deadline: float) -> Any:
        if not connection.can_read(timeout=max(0.0, deadline - time.monotonic())):
            raise TimeoutError("no answer within the timeout")
        return connection.read_response()

    def _keep(self, node: Node | None, connection: Any) -> None:
        idle = self._idle[node]
        idle.append(connection) if len(idle) < IDLE else connection.disconnect()


class AsyncConnections:
    """Connections that are awaited, in one event loop."""

    def __init__(self, client: Any) -> None:
        self._dialer, self._router = dialer(client)
        if not asyncio.iscoroutinefunction(getattr(self._dialer.connection_class, "connect", None)):
            raise TypeError("AsyncLimiter needs a client of redis.asyncio or valkey.asyncio")
        self._idle: defaultdict[Node | None, list[Any]] = defaultdict(list)
        self._gates: defaultdict[Node | None, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(IDLE))

    async def send(self, call: Call, deadline: float) -> Answer:
        trip = self._router.exchange(call, deadline)
        answer: Answer | None = None
        try:
            while True:
                step = trip.send(answer)
                if isinstance(step, Send):
                    answer = await self._try(step)
                else:
                    await asyncio.sleep(step)
        except StopIteration as end:
            return cast(Answer, end.value)

    async def aclose(self) -> None:
        """Closes the idle connections."""
        for idle in list(self._idle.values()):
            while idle:
                await idle.pop().disconnect()

    async def _try(self, send: Send) -> Answer:
        try:
            return await asyncio.wait_for(self._attempt(send), max(0.0, send.deadline - time.monotonic()))
        except asyncio.TimeoutError:
            return Failure("timeout", "no answer within the timeout")

    async def _attempt(self, send: Send) -> Answer:
        connection, sent = None, False
        async with self._gates[send.node]:
            try:
                connection = await self._connected(send.node)
                sent = True
                if send.asking:
                    await connection.send_command("ASKING")
                await connection.send_command(*send.args)
                if send.asking:
                    await connection.read_response()
                answer = await connection.read_response()
            except self._dialer.errors as error:
                failed = failure(error, sent)
                if connection is not None:
                    await self._keep(send.node, connection, _usable(failed, send))
                return failed
            except BaseException:  # cancelled: the reply is still to come
                if connection is not None:
                    await connection.disconnect(nowait=True)
                raise
            await self._keep(send.node, connection, True)
            return cast(Answer, answer)

    async def _connected(self, node: Node | None) -> Any:
        while idle := self._idle[node]:
            connection = idle.pop()
            try:
                if not await getattr(connection, "can_read", connection.can_read_destructive)():
                    return connection
            except self._dialer.errors:  # closed by the server
                pass
            await connection.disconnect(nowait=True)
        connection = self._dialer.connection(node)
        connection.socket_timeout = connection.socket_connect_timeout = None
        try:
            await connection.connect()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection

    async def _keep(self, node: Node | None, connection: Any, usable: bool) -> None:
        if usable:
            self._idle[node].append(connection)
        else:
            await connection.disconnect(nowait=True)


def _usable(failed: Failure, send: Send) -> bool:
    """Whether nothing is left unread on the connection of a command that failed."""
    return failed.kind in ("server_error", "no_module") and failed.code != "LOADING" and not send.asking
