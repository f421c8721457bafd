"""Which node a command goes to, and what an error means for it: whether it was surely not carried out, and what to do then.

A take whose reply may be lost is never sent again: it may have counted. Sent again, until the deadline, are commands that a
server said it did not carry out (MOVED, ASK, TRYAGAIN, CLUSTERDOWN, MASTERDOWN, LOADING, and READONLY in a cluster), and
commands for which there was no connection to a cluster's node. The retries of redis-py and valkey-py cannot tell these
from a lost reply, so only their connections are used here, with retries off. Like the decisions, this is without I/O.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

from .ask import Answer
from .bucket import Call
from .decision import Failure
from .keys import SLOTS

PAUSE = 0.005
"""Seconds before a command is sent again that a server said it cannot carry out now."""
REFRESH = 0.25
"""Seconds between two looks at the slots of a cluster that seems to have changed."""

_AGAIN = {"TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "LOADING"}
_CODES = {"MovedError": "MOVED", "AskError": "ASK", "TryAgainError": "TRYAGAIN", "ClusterDownError": "CLUSTERDOWN",
          "MasterDownError": "MASTERDOWN", "BusyLoadingError": "LOADING", "ReadOnlyError": "READONLY"}  # fmt: skip
_NOT_OURS = ("retry", "retry_on_timeout", "retry_on_error", "health_check_interval", "maint_notifications_config",
             "maint_notifications_pool_handler", "oss_cluster_maint_notifications_handler", "orig_host_address",
             "orig_socket_timeout", "orig_socket_connect_timeout")  # fmt: skip

Node = tuple[str, int]


class Send(NamedTuple):
    """A command for a node; None is the only server there is."""

    node: Node | None
    args: tuple[bytes | str | int, ...]
    deadline: float
    asking: bool = False


Trip = Generator[Send | float, Any, Answer]
"""Yields what to send, or how many seconds to pause."""


@dataclass(frozen=True)
class Dialer:
    """Makes connections like those of the client that the caller passed in, but without its retries and timeouts."""

    connection_class: Callable[..., Any]
    options: dict[str, Any]
    errors: tuple[type[BaseException], ...]

    def connection(self, node: Node | None) -> Any:
        address = {"host": node[0], "port": node[1]} if node else {}
        return self.connection_class(**{**self.options, **address})


def dialer(client: Any) -> tuple[Dialer, Router]:
    """How to connect to the servers of a client of redis-py or valkey-py, and how to find the right one."""
    library = next(
        (c.__module__.split(".")[0] for c in type(client).__mro__ if c.__module__.startswith(("redis.", "valkey."))), ""
    )
    if not library:
        raise TypeError(f"client must be one of redis-py or valkey-py, not {type(client).__name__}")
    exceptions = import_module(f"{library}.exceptions")
    base = getattr(exceptions, "RedisError", None) or exceptions.ValkeyError
    manager = getattr(client, "nodes_manager", None)
    if manager is None:
        pool, router = client.connection_pool, Router(None)
    else:
        nodes = {(node.host, node.port): node for node in (*manager.startup_nodes.values(), *client.get_nodes())}
        router = Router(list(nodes), getattr(manager, "address_remap", None))
        pool = next(iter(nodes.values()))
        if not hasattr(pool, "connection_kwargs"):  # of a sync cluster, nodes have a client each
            pool = getattr(client, f"get_{library}_connection")(pool).connection_pool
    options = {name: value for name, value in pool.connection_kwargs.items() if name not in _NOT_OURS}
    return Dialer(pool.connection_class, options, (base, OSError, TimeoutError, EOFError)), router


def failure(error: BaseException, sent: bool) -> Failure:
    """What an exception of redis-py or valkey-py means. Their versions differ in which errors have a class of their own."""
    names = [c.__name__ for c in type(error).__mro__]
    text = str(error)
    if "ResponseError" in names or names[0] in _CODES:
        code = _CODES.get(names[0]) or text.partition(" ")[0]
        unknown = text.lower().startswith("unknown command") or "ERR unknown command" in text
        return Failure("no_module" if unknown else "server_error", text.removeprefix(f"{code} "), code)
    if "TimeoutError" in names:
        return Failure("timeout", text or "no answer within the timeout", sent=sent)
    return Failure("connection", f"{names[0]}: {text}", sent=sent)


class Router:
    """Which node serves which slot of a cluster, as far as is known; without seeds there is one server and nothing to know."""

    def __init__(self, seeds: list[Node] | None, remap: Callable[[Node], Node] | None = None) -> None:
        self._seeds = seeds
        self._remap = remap or (lambda node: node)
        self._owners: list[Node | None] = [None] * SLOTS if seeds else []
        self._suspects: set[Node] = set()
        self._stale = False
        self._refreshed_at = float("-inf")

    def exchange(self, call: Call, deadline: float) -> Trip:
        """Sends a command to the node of its slot, and follows where it is sent from there."""
        asked: Node | None = None
        moves = 0
        while True:
            node = asked or (yield from self._owner(call.slot, deadline))
            if node is None and self._seeds:
                answer: Answer = Failure("connection", "no node of the cluster is known for the slot", sent=False)
            else:
                answer = yield Send(node, call.args, deadline, asking=asked is not None)
            if not isinstance(answer, Failure):
                self._suspects.discard(node) if node else None
                return answer
            asked, again = None, answer.code in _AGAIN
            if node and answer.code in ("MOVED", "ASK"):
                slot, _, address = answer.text.partition(" ")
                to = self._remap((address.rpartition(":")[0] or node[0], int(address.rpartition(":")[2])))
                if answer.code == "ASK":
                    asked = to
                else:
                    self._owners[int(slot)], self._stale = to, True
                moves, again = moves + 1, True
                if moves <= 3:  # at once; a cluster that contradicts itself is asked after a pause
                    continue
            elif self._seeds and answer.code in ("READONLY", "CLUSTERDOWN"):
                self._stale = again = True
            elif self._seeds and answer.kind in ("timeout", "connection"):
                self._suspects.update([node] if node else ())
                self._stale, again = True, not answer.sent
            if not again or time.monotonic() + PAUSE >= deadline:
                return answer
            yield PAUSE

    def _owner(self, slot: int, deadline: float) -> Generator[Send | float, Any, Node | None]:
        if not self._seeds:
            return None
        now = time.monotonic()
        if self._owners[slot] is None or (self._stale and now >= self._refreshed_at + REFRESH):
            self._refreshed_at = now
            yield from self._refresh(deadline)
        return self._owners[slot]

    def _refresh(self, deadline: float) -> Generator[Send | float, Any, None]:
        """Asks one node after the other for the slots, those that failed lately last, each for half of the time left."""
        nodes = dict.fromkeys([*filter(None, self._owners), *(self._seeds or ())])
        for node in sorted(nodes, key=lambda node: node in self._suspects):
            now = time.monotonic()
            ranges = yield Send(node, ("CLUSTER", "SLOTS"), now + (deadline - now) / 2)
            if isinstance(ranges, Failure):
                self._suspects.add(node)
                continue
            for first, last, (host, port, *_), *_ in ranges:
                name = host.decode() if isinstance(host, bytes) else host
                owner = self._remap((node[0] if name in ("", "?", None) else name, port))
                self._owners[first : last + 1] = [owner] * (last + 1 - first)
            self._suspects.discard(node)
            self._stale = False
            return
