"""Real servers for tests: on free loopback ports, in directories of their own, and gone afterwards."""

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

ROOT = Path(__file__).resolve().parents[3]
BINARY = os.environ.get("RL_SERVER", "redis-server")
MODULE = Path(os.environ.get("RL_MODULE", ROOT / "target" / "release" / "libredis_token_bucket.so"))
HOST = "127.0.0.1"


def wait_for(what: str, probe: Callable[[], Any], seconds: float = 20) -> Any:
    """The first true value of `probe`; fails with the last one it saw."""
    deadline = time.monotonic() + seconds
    seen: Any = None
    while time.monotonic() < deadline:
        try:
            seen = probe()
        except redis.RedisError as error:
            seen = error
        if seen and not isinstance(seen, Exception):
            return seen
        time.sleep(0.01)
    raise AssertionError(f"{what}: not within {seconds} s; last seen: {seen!r}")


def free_port() -> int:
    """A port that is free, and so is the one 10000 above it, for the bus of a cluster."""
    while True:
        port = random.randrange(20_000, 30_000)
        try:
            for candidate in (port, port + 10_000):
                with socket.socket() as probe:
                    probe.bind((HOST, candidate))
        except OSError:
            continue
        return port


class Server:
    """One server process."""

    def __init__(self, *options: str, module: bool = True) -> None:
        if module and not MODULE.is_file():
            raise RuntimeError(f"{MODULE} is missing: cargo build --release, or set RL_MODULE")
        self.options = [*options, *(["--loadmodule", str(MODULE)] if module else [])]
        self.directory = tempfile.mkdtemp(prefix="rl-python-")
        self.port = free_port()
        self.start()

    def start(self) -> None:
        command = [
            BINARY,
            "--port",
            str(self.port),
            "--bind",
            HOST,
            "--dir",
            self.directory,
            "--save",
            "",
            "--daemonize",
            "no",
        ]
        with open(Path(self.directory) / "log", "ab") as log:
            self.process = subprocess.Popen([*command, *self.options], stdout=log, stderr=log)
        self.client = redis.Redis(HOST, self.port, decode_responses=True, socket_timeout=5)
        try:
            wait_for("the server answers", self._answers)
        except BaseException:
            print((Path(self.directory) / "log").read_text())
            self.stop()
            raise

    def _answers(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(f"the server ended with {self.process.returncode}")
        return self.client.ping()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Ends the process; `start` starts it again on the same port."""
        self.client.close()
        self.process.kill()
        self.process.wait(timeout=10)

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self.directory)

    def calls(self, command: str) -> int:
        """How often a command was carried out or refused."""
        stats = self.client.info("commandstats").get(f"cmdstat_{command}", {})
        return stats.get("calls", 0) + stats.get("rejected_calls", 0)

    def errors(self, code: str) -> int:
        return self.client.info("errorstats").get(f"errorstat_{code}", {}).get("count", 0)


class Cluster:
    """Three nodes that share the slots, and a replica of the first if asked for."""

    def __init__(self, replica: bool = False) -> None:
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-require-full-coverage", "no",
                   "--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0")  # fmt: skip
        self.nodes: list[Server] = []
        try:
            for _ in range(4 if replica else 3):
                self.nodes.append(Server(*options))
            self._join(replica)
        except BaseException:
            self.stop()
            raise

    def _join(self, replica: bool) -> None:
        first = self.nodes[0]
        parts = [range(part * 16384 // 3, (part + 1) * 16384 // 3) for part in range(3)]
        for number, (node, slots) in enumerate(zip(self.nodes, parts, strict=False)):
            node.client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
            node.client.execute_command("CLUSTER ADDSLOTS", *slots)
        for node in self.nodes[1:]:
            first.client.execute_command("CLUSTER MEET", HOST, node.port)
        wait_for(
            "every node knows every other", lambda: all(len(self.known(node)) == len(self.nodes) for node in self.nodes)
        )
        if replica:
            self.nodes[3].client.execute_command("CLUSTER REPLICATE", self.id(first))
            wait_for(
                "the replica is in sync",
                lambda: self.nodes[3].client.info("replication").get("master_link_status") == "up",
            )
            wait_for(
                "every node knows the replica",
                lambda: all("slave" in self.flags(node, self.nodes[3]) for node in self.nodes),
            )
        wait_for("every node says ok", lambda: all(self.info(node)["cluster_state"] == "ok" for node in self.nodes))

    def id(self, node: Server) -> str:
        return str(node.client.execute_command("CLUSTER MYID"))

    def info(self, node: Server) -> dict[str, str]:
        answer = node.client.execute_command("CLUSTER INFO")
        return (
            answer
            if isinstance(answer, dict)
            else dict(line.split(":", 1) for line in answer.splitlines() if ":" in line)
        )

    def known(self, node: Server) -> list[str]:
        """The nodes that `node` has shaken hands with."""
        lines = node.client.execute_command("CLUSTER NODES")
        text = (
            lines if isinstance(lines, str) else "\n".join(f"{name} {entry['flags']}" for name, entry in lines.items())
        )
        return [line for line in text.splitlines() if "handshake" not in line]

    def flags(self, node: Server, other: Server) -> str:
        lines = node.client.execute_command("CLUSTER NODES")
        if isinstance(lines, dict):
            return next(entry["flags"] for name, entry in lines.items() if re.search(rf":{other.port}\b", name))
        return next(line.split()[2] for line in lines.splitlines() if f":{other.port}@" in line)

    def owner(self, slot: int) -> Server:
        return self.nodes[min(2, next(part for part in range(3) if slot < (part + 1) * 16384 // 3))]

    def errors(self, code: str) -> int:
        return sum(node.errors(code) for node in self.nodes)

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()
