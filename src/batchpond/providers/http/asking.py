"""Live calls below their classification: exactly one POST, whose answer is whole or is none.

Made for many threads and little work per call: headers are built once, a call takes one idle connection
for itself, and threads share nothing but a stack of them. A server that is silent while it thinks is
waited for up to the call's deadline; TCP keep-alive notices one that is gone.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

import httpx

from batchpond.clock import Clock
from batchpond.providers.http import deadline
from batchpond.providers.http.addresses import Origin, checked_base
from batchpond.providers.http.answers import Answer, answer_of
from batchpond.providers.http.connections import FixedAuth, KeyGuard, PoolTransport, failure
from batchpond.providers.http.outcomes import Fault
from batchpond.providers.http.retry import Again, RetryReason
from batchpond.text import Secret, guard_loggers, redact

_CONNECT_S: Final = 10.0
_ANSWER_BYTES_MAX: Final = 64 << 20
_KEEPALIVE_IDLE_S: Final = 60
_KEEPALIVE_PROBES: Final = 5
_URLS_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class Unsent:
    """A call of which nothing reached the server: it may be made again.

    `is_own` says that the reason is on this side: too few connections for so many callers.
    """

    detail: str
    is_own: bool = False


@dataclass(frozen=True, slots=True)
class Broken:
    """A call that left, and whose answer did not come back whole: it may have been computed."""

    detail: str


class LaneTransport(httpx.BaseTransport):
    """Connections to one origin of which each is used by one thread at a time, the last used first.

    A pool that all threads share looks at all its connections twice in every call. Never more than
    `max_connections` calls are under way; more wait for their turn within their deadline.
    """

    def __init__(self, origin: Origin, max_connections: int) -> None:
        self._open = partial(PoolTransport, origin, 1, httpx.create_ssl_context(), _keepalive())
        self._lanes: deque[PoolTransport] = deque()
        self._turns = threading.BoundedSemaphore(max_connections)
        self._is_closed = False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request on a connection of its own."""
        if not self._turns.acquire(timeout=deadline.left_s()):
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
        response.stream = _Lane(response.stream, lambda: self._put_back(lane))
        return response

    def _put_back(self, lane: PoolTransport) -> None:
        self._lanes.append(lane)
        self._turns.release()
        if self._is_closed:
            self.close()

    def close(self) -> None:
        """Close the connections that are idle, and each of the others when its call ends."""
        self._is_closed = True
        while self._lanes:
            self._lanes.pop().close()


class _Lane(httpx.SyncByteStream):
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


class Asker:
    """Sends POSTs below one base URL with one key.

    `auth_headers` go to the base URL's origin only; `transport` replaces the network. At most
    `max_connections` calls are under way at a time. Raises UsageError for a base URL that is not
    https, unless it is on this machine or no key is sent.
    """

    def __init__(
        self,
        base_url: str,
        auth_headers: Mapping[str, str | Secret],
        clock: Clock,
        transport: httpx.BaseTransport | None = None,
        *,
        user_agent: str,
        max_connections: int,
    ) -> None:
        has_key = any(isinstance(value, Secret) for value in auth_headers.values())
        self._base_url, origin = checked_base(base_url, has_key=has_key)
        self._clock = clock
        guard_loggers()
        pool = transport or LaneTransport(origin, max_connections)
        self._transport = KeyGuard(pool, origin, FixedAuth(auth_headers))
        named = {name: value.reveal() if isinstance(value, Secret) else value for name, value in auth_headers.items()}
        own = {"User-Agent": user_agent, "Accept": "application/json", "Accept-Encoding": "identity"}
        self._headers = own | {"Content-Type": "application/json"} | named
        self._url = lru_cache(maxsize=_URLS_MAX)(httpx.URL)

    def close(self) -> None:
        """Close all connections."""
        self._transport.close()

    def ask(
        self, path: str, body: bytes, deadline_s: float, headers: Mapping[str, str] | None = None
    ) -> Answer | Unsent | Broken | Fault:
        """Send exactly one POST and return the whole answer, or what kept it from arriving.

        Never retries, never follows a redirect, ends after `deadline_s` in all, and raises nothing for
        what the network or the server does. The answer's body is exactly what arrived. A
        `Fault` is of the connection as such, and no other call would fare better. `headers` replace
        those of the same name. `path` begins with one slash.
        """
        limits = {"connect": _CONNECT_S, "read": deadline_s, "write": deadline_s, "pool": deadline_s}
        sent = self._headers if headers is None else {**self._headers, **headers}
        url = self._url(self._base_url + path)
        request = httpx.Request("POST", url, headers=sent, content=body, extensions={"timeout": limits})
        # Failures leave as values, as in HttpClient: an exception would keep the request in its context.
        with deadline.within(self._clock, deadline_s) as until:
            try:
                response = self._transport.handle_request(request)
                try:
                    return _read(response, until)
                finally:
                    response.close()
            except httpx.PoolTimeout as error:
                return Unsent(str(error), is_own=True)
            except (httpx.DecodingError, httpx.StreamError) as error:
                return Broken(str(error))
            except (httpx.HTTPError, httpx.InvalidURL, ConnectionError, TimeoutError) as error:
                return _kept_from(failure(error))


def _read(response: httpx.Response, until: deadline.Deadline) -> Answer | Broken:
    headers = response.headers
    declared = headers.get("content-length", "") if "content-encoding" not in headers else ""
    n_declared = int(declared[:19]) if declared.isascii() and declared.isdigit() else None
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > _ANSWER_BYTES_MAX:
            return Broken(f"the answer is larger than {_ANSWER_BYTES_MAX} bytes")
        if until.remaining_s <= 0 and len(body) != n_declared:
            return Broken("the call's total deadline has passed")
    if n_declared is not None and n_declared != len(body):
        return Broken(f"{len(body)} of {n_declared} bytes arrived")
    return answer_of(response.status_code, headers, bytes(body))


def _kept_from(problem: Again | Fault) -> Unsent | Broken | Fault:
    match problem:
        case Again(reason=RetryReason.CONNECT):
            return Unsent(f"{problem.reason}: {redact(problem.detail)}")
        case Again():
            return Broken(f"{problem.reason}: {redact(problem.detail)}")
        case Fault():
            return problem


def _keepalive() -> list[tuple[int, int, int]]:
    """Return the options that make the system probe a silent connection, where it has them."""
    wishes = {"TCP_KEEPIDLE": _KEEPALIVE_IDLE_S, "TCP_KEEPINTVL": _KEEPALIVE_IDLE_S, "TCP_KEEPCNT": _KEEPALIVE_PROBES}
    known = {name: value for name, value in wishes.items() if hasattr(socket, name)}
    probes = [(socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in known.items()]
    return [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *probes]
