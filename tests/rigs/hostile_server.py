"""A loopback HTTP server that misbehaves to order: each request gets the next act of its script."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

Act = Callable[[socket.socket], None]


@dataclass
class Seen:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class HostileServer:
    """Plays acts in order, the last one for ever, and keeps what it was sent."""

    acts: list[Act]
    requests: list[Seen] = field(default_factory=list)
    port: int = 0
    n_connections: int = 0
    n_left: int = 0
    is_silent: bool = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def posts(self) -> int:
        return sum(seen.method == "POST" for seen in self.requests)

    def serve(self, connection: socket.socket) -> None:
        self.n_connections += 1
        with connection, suppress(OSError):
            if self.is_silent:  # the act reads for itself
                self.acts[0](connection)
                return
            seen = _receive(connection)
            if seen is None:
                return
            self.requests.append(seen)
            try:
                self.acts[min(len(self.requests), len(self.acts)) - 1](connection)
            except ConnectionError:  # the client has left before the act was over
                self.n_left += 1


def _receive(connection: socket.socket) -> Seen | None:
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = connection.recv(65536)
        if not chunk:
            return None
        data += chunk
    head, body = data.split(b"\r\n\r\n", 1)
    lines = head.decode("latin-1").split("\r\n")
    method, path, _ = lines[0].split(" ", 2)
    headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines[1:])}
    while len(body) < int(headers.get("content-length", 0)):
        chunk = connection.recv(1 << 20)
        if not chunk:
            return None
        body += chunk
    return Seen(method, path, headers, body)


@contextmanager
def hostile(*acts: Act, is_silent: bool = False) -> Iterator[HostileServer]:
    """Run a server on a free port for the length of the block."""
    server = HostileServer(list(acts), is_silent=is_silent)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server.port = listener.getsockname()[1]
        threads: list[threading.Thread] = []
        stop = threading.Event()
        listener.settimeout(0.05)

        def accept() -> None:
            while not stop.is_set():
                with suppress(TimeoutError, OSError):
                    connection, _ = listener.accept()
                    connection.settimeout(5)
                    thread = threading.Thread(target=server.serve, args=(connection,), daemon=True)
                    thread.start()
                    threads.append(thread)

        acceptor = threading.Thread(target=accept, daemon=True)
        acceptor.start()
        try:
            yield server
        finally:
            stop.set()
            acceptor.join(2)
            for thread in threads:
                thread.join(30)


def reply(body: object = b"", status: int = 200, content_type: str = "application/json", **headers: str) -> Act:
    """Answer properly; `headers` use underscores for hyphens."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {"Content-Type": content_type, "Content-Length": str(len(content)), "Connection": "close"}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}

    def act(connection: socket.socket) -> None:
        head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
        connection.sendall(f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + content)

    return act


def raw(data: bytes) -> Act:
    """Send these bytes and close."""
    return lambda connection: connection.sendall(data)


def reset(connection: socket.socket) -> None:
    """Close with RST."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def eof(connection: socket.socket) -> None:
    """Close without a word."""


def hang(seconds: float) -> Act:
    """Say nothing for a while."""
    return lambda _: time.sleep(seconds)


def until_left(connection: socket.socket) -> None:
    """Say nothing until the client leaves."""
    connection.settimeout(60)
    if not connection.recv(1):
        raise ConnectionResetError


def drip(head: bytes, byte: bytes, every_s: float, seconds: float) -> Act:
    """Send a head, then one byte now and then."""

    def act(connection: socket.socket) -> None:
        connection.sendall(head)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            connection.sendall(byte)
            time.sleep(every_s)

    return act
