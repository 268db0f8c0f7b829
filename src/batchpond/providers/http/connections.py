"""Connections below HTTP calls: a deadline over each exchange, the lanes, the guard of the key, and what failures mean.

The HTTP library's own timeouts bound one read or write: a server that sends a byte now and then keeps a call alive
for ever. Here every operation gets what is left of the whole. Looking up a host name is the one step that cannot be
cut short.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, partial
from ssl import SSLContext
from typing import Any, Final

import httpcore
import httpx

from batchpond.clock import Clock
from batchpond.errors import AccessError
from batchpond.providers.http.errors import Again, Fault, RetryReason
from batchpond.providers.http.keys import Origin, environment_proxy, origin_of
from batchpond.text import Secret, redact

_KEEPALIVE_IDLE_S: Final = 60
_KEEPALIVE_PROBES: Final = 5
_WRITE_BYTES: Final = 16_384


@dataclass(frozen=True, slots=True)
class Deadline:
    """The moment by which a call must have ended."""

    clock: Clock
    ends_at_s: float

    @property
    def remaining_s(self) -> float:
        """Return the seconds left, 0 when it has passed."""
        return max(0.0, self.ends_at_s - self.clock.monotonic_s())


_current: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


@contextmanager
def within(clock: Clock, seconds: float) -> Iterator[Deadline]:
    """Bound every network operation of this thread inside the block to `seconds` in all."""
    deadline = Deadline(clock, clock.monotonic_s() + seconds)
    token = _current.set(deadline)
    try:
        yield deadline
    finally:
        _current.reset(token)


def left_s() -> float | None:
    """Return the seconds left to what this thread does, None where it has no deadline."""
    deadline = _current.get()
    return None if deadline is None else deadline.remaining_s


def _left(timeout: float | None, error: type[httpcore.TimeoutException]) -> float | None:
    remaining_s = left_s()
    if remaining_s is None:
        return timeout
    if remaining_s <= 0:
        raise error("the call's total deadline has passed")
    return remaining_s if timeout is None else min(timeout, remaining_s)


class DeadlineStream(httpcore.NetworkStream):
    """A connection whose reads and writes end with the deadline."""

    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read, within what is left."""
        return self._inner.read(max_bytes, _left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write in small pieces, each within what is left."""
        for start in range(0, len(buffer), _WRITE_BYTES):
            piece = buffer[start : start + _WRITE_BYTES]
            self._inner.write(piece, _left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        """Close the connection."""
        self._inner.close()

    def start_tls(
        self, ssl_context: SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        """Upgrade to TLS, within what is left."""
        left = _left(timeout, httpcore.ConnectTimeout)
        return DeadlineStream(self._inner.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> Any:
        """Return what the connection says about itself."""
        return self._inner.get_extra_info(info)


class DeadlineBackend(httpcore.SyncBackend):
    """Opens connections that know the deadline."""

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, *others: Any, **more: Any
    ) -> httpcore.NetworkStream:
        """Connect, within what is left."""
        left = _left(timeout, httpcore.ConnectTimeout)
        return DeadlineStream(super().connect_tcp(host, port, left, *others, **more))

    def sleep(self, seconds: float) -> None:
        """Refuse: connections are never retried below the retry policy."""
        raise NotImplementedError(f"the network layer asked to sleep {seconds} s")


class Auth:
    """What calls are let in by: headers that never change, such as an API key's, unless a kind of it says otherwise."""

    def __init__(self, headers: Mapping[str, str | Secret]) -> None:
        self._headers = dict(headers)

    def headers(self) -> Mapping[str, str | Secret]:
        """Return the headers for a call that is made now; raises AccessError when there are none to be had."""
        return self._headers

    def renew(self) -> bool:
        """Give up headers that were refused; returns whether the next ones are other ones."""
        return False

    def secrets(self) -> Iterable[str]:
        """Return every secret that the headers hold, or held a while ago."""
        return [value.reveal() for value in self._headers.values() if isinstance(value, Secret)]

    def advice(self, refusal: str) -> str | None:  # noqa: ARG002  # most say what they say
        """Return who has to be granted what after a call was refused, None where the refusal does not tell."""
        return None


class KeyGuard(httpx.BaseTransport):
    """Refuses, at the last step before the network, to send the key to any other origin."""

    def __init__(self, inner: httpx.BaseTransport, origin: Origin, auth: Auth) -> None:
        self._inner = inner
        self._origin = origin
        self._auth = auth

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on; raises AccessError when it would take the key elsewhere."""
        if origin_of(str(request.url)) != self._origin:
            sent = [*request.headers.values(), str(request.url)]
            if any(secret in value for secret in self._auth.secrets() for value in sent):
                raise AccessError(f"the key of {self._origin.name} was about to go to {request.url.host}: stopped")
        return self._inner.handle_request(request)

    def close(self) -> None:
        """Close what is inside."""
        self._inner.close()


class Connection(httpx.HTTPTransport):
    """One connection at a time, through the environment's proxy if any, whose streams know the deadline.

    The library's transport over a pool of its own kind, made here since only a pool takes a network backend. Plain
    HTTP needs no CA files, which take as long to read as several calls: `trust` is asked when the first https comes.
    """

    def __init__(self, origin: Origin, trust: Callable[[], SSLContext]) -> None:
        self._trust: Callable[[], SSLContext] | None = trust
        settings: dict[str, Any] = {
            "max_connections": 1,
            "keepalive_expiry": 30.0,
            "network_backend": DeadlineBackend(),
            "socket_options": _keepalive(),
        }
        address = environment_proxy(origin)
        self._make: Callable[..., httpcore.ConnectionPool]
        if address is None:
            self._make = partial(httpcore.ConnectionPool, **settings)
        else:
            proxy = httpx.Proxy(address)
            if proxy.raw_auth:
                Secret(proxy.raw_auth[1].decode("utf-8", "replace"))  # known to `redact` from here on
            self._make = partial(httpcore.HTTPProxy, proxy_url=str(proxy.url), proxy_auth=proxy.raw_auth, **settings)
        self._pool = self._make()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request."""
        if self._trust is not None and request.url.scheme == "https":
            self._pool.close()
            self._pool, self._trust = self._make(ssl_context=self._trust()), None
        return super().handle_request(request)


def failure(error: Exception) -> Again | Fault:
    """Return what an exception of the HTTP library means: worth another try, or not."""
    detail = redact(f"{type(error).__name__}: {error}")[:300]
    match error:
        case httpx.ConnectTimeout() | httpx.ConnectError() if "CERTIFICATE_VERIFY_FAILED" in detail:
            return Fault(f"the server's certificate is not valid ({detail})")
        case httpx.ConnectTimeout() | httpx.ConnectError() | httpx.ProxyError():
            return Again(RetryReason.CONNECT, detail)
        case httpx.PoolTimeout():
            return Again(RetryReason.NO_TURN, detail)
        case httpx.TimeoutException() | TimeoutError():
            return Again(RetryReason.TIMEOUT, detail)
        case httpx.NetworkError() | httpx.RemoteProtocolError() | ConnectionError():
            return Again(RetryReason.CONNECTION_LOST, detail)
        case _:
            return Fault(detail)


class LaneTransport(httpx.BaseTransport):
    """Connections to one origin of which each is used by one thread at a time, the last used first.

    A pool that all threads share looks at all its connections twice in every call. Never more than
    `max_connections` calls are under way; more wait for their turn within their deadline.
    """

    def __init__(self, origin: Origin, max_connections: int) -> None:
        self._open = partial(Connection, origin, lru_cache(httpx.create_ssl_context))
        self._lanes = deque([self._open()])  # an address or proxy that cannot be is told at once
        self._turns = threading.BoundedSemaphore(max_connections)
        self._is_closed = False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request on a connection of its own."""
        if not self._turns.acquire(timeout=left_s()):
            raise httpx.PoolTimeout("no connection was free before the call's deadline")
        try:
            lane = self._lanes.pop()
        except IndexError:
            lane = self._open()
        try:
            response = lane.handle_request(request)
        except BaseException:
            self._put_back(lane)
            raise
        response.stream = _Held(response.stream, lambda: self._put_back(lane))
        return response

    def _put_back(self, lane: Connection) -> None:
        self._lanes.append(lane)
        self._turns.release()
        if self._is_closed:
            self.close()

    def close(self) -> None:
        """Close the connections that are idle, and each of the others when its call ends."""
        self._is_closed = True
        while self._lanes:
            self._lanes.pop().close()


class _Held(httpx.SyncByteStream):
    """An answer's body, at whose end its connection is free again."""

    def __init__(self, inner: object, put_back: Callable[[], None]) -> None:
        if not isinstance(inner, httpx.SyncByteStream):
            raise TypeError("a connection answered with a body that cannot be read here")
        self._inner = inner
        self._put_back: Callable[[], None] | None = put_back

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._inner)

    def close(self) -> None:
        put_back, self._put_back = self._put_back, None
        if put_back is not None:
            try:
                self._inner.close()
            finally:
                put_back()


def _keepalive() -> list[tuple[int, int, int]]:
    """Return the options that make the system probe a silent connection, where it has them."""
    wishes = {"TCP_KEEPIDLE": _KEEPALIVE_IDLE_S, "TCP_KEEPINTVL": _KEEPALIVE_IDLE_S, "TCP_KEEPCNT": _KEEPALIVE_PROBES}
    known = {name: value for name, value in wishes.items() if hasattr(socket, name)}
    probes = [(socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in known.items()]
    return [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *probes]
