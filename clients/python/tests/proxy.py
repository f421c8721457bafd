"""A proxy between client and server that passes requests on, and loses a reply when it is told to."""

import socket
import threading
from contextlib import suppress
from types import TracebackType

from server import HOST


class Proxy:
    """`lose` says what happens to the next reply, and to that one only: "hold" keeps it, "cut" closes the connection
    instead. What is sent again then would be answered."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.lose: str | None = None
        self.requests: list[bytes] = []
        self._listener = socket.create_server((HOST, 0))
        self.port = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in (self._listener, *self._sockets):
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection((HOST, self.target))
            except OSError:
                return
            self._sockets += (client, server)
            threading.Thread(target=self._requests, args=(client, server), daemon=True).start()
            threading.Thread(target=self._replies, args=(client, server), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        try:
            while data := client.recv(65536):
                self.requests.append(data)
                server.sendall(data)
        except OSError:
            pass
        _shut(server)

    def _replies(self, client: socket.socket, server: socket.socket) -> None:
        try:
            while data := server.recv(65536):
                lose, self.lose = self.lose, None
                if lose is None:
                    client.sendall(data)
                elif lose == "cut":
                    break
        except OSError:
            pass
        _shut(client)


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
