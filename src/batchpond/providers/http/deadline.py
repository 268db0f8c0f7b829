"""A deadline over a whole HTTP exchange, enforced at each socket operation.

The HTTP library's own timeouts bound one read or write: a server that sends a byte now and then
keeps a call alive for ever. Here every operation gets what is left of the whole. Looking up a
host name is the one step that cannot be cut short.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from ssl import SSLContext
from typing import Any, Final

import httpcore

from batchpond.clock import Clock

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
    deadline = _current.get()
    if deadline is None:
        return timeout
    remaining_s = deadline.remaining_s
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


class DeadlineBackend(httpcore.NetworkBackend):
    """Opens connections that know the deadline."""

    def __init__(self) -> None:
        self._inner = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect, within what is left."""
        left = _left(timeout, httpcore.ConnectTimeout)
        return DeadlineStream(self._inner.connect_tcp(host, port, left, local_address, socket_options))

    def sleep(self, seconds: float) -> None:
        """Refuse: connections are never retried below the retry policy."""
        raise NotImplementedError(f"the network layer asked to sleep {seconds} s")
