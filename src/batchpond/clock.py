"""Time, waiting, and how far long work is: the only module that reads a clock, sleeps, or asks for randomness.

How far work is, is told to whoever listens; nobody does until a command line asks to.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Protocol, Self, TypeVar

INTERVAL_ENV: Final = "BATCHPOND_INTERVAL_S"
"""Names the seconds between two passes where no option says them."""
CLOCK_ENV: Final = "BATCHPOND_TEST_CLOCK"
"""Names a file that moves the clock; with it no provider but a simulator is ever called."""


class Clock(Protocol):
    """Wall time for stamps, monotonic time for durations, and a way to wait."""

    def now(self) -> datetime:
        """Return the wall-clock time, UTC."""

    def monotonic_s(self) -> float:
        """Return seconds that never go backwards within one boot."""

    def boot_id(self) -> str:
        """Return what tells one boot of the machine from the next."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The machine's own clock, or where tests try days in seconds, that clock moved on by a file.

    The file has the seconds that passed, and those by which somebody set the wall: `is_set` for this machine's.
    """

    def __init__(self, file: Path | None = None, *, is_set: bool = True) -> None:
        self.file = file or os.environ.get(CLOCK_ENV)
        self._is_set = is_set

    def now(self) -> datetime:
        """Return the wall-clock time, UTC."""
        passed_s, set_s = self._moved_s()
        return datetime.now(UTC) + timedelta(seconds=passed_s + set_s * self._is_set)

    def monotonic_s(self) -> float:
        """Return seconds since an arbitrary point, counted through suspend where the OS can."""
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) + self._moved_s()[0]

    def boot_id(self) -> str:
        """Return the kernel's boot id, or a fixed word where there is none."""
        path = Path("/proc/sys/kernel/random/boot_id")
        return path.read_text("ascii").strip() if path.exists() else "unknown-boot"

    def sleep(self, seconds: float) -> None:
        """Block for `seconds`."""
        time.sleep(max(0.0, seconds))

    def _moved_s(self) -> tuple[float, float]:
        passed_s, set_s = map(float, Path(self.file).read_text("ascii").split()) if self.file else (0.0, 0.0)
        return passed_s, set_s


def random_hex(n_bytes: int) -> str:
    """Return unpredictable hex digits, for the secrets and ids a lake is born with."""
    return secrets.token_hex(n_bytes)


_T = TypeVar("_T")
BYTES: Final = "bytes"
"""The unit of what travels, which a listener may show in larger ones."""


class Listener(Protocol):
    """Whoever shows how far work is; called often, so it must be quick."""

    def moved(self, work: Work) -> None:
        """Take note that work went on."""

    def ended(self, work: Work) -> None:
        """Take note that work ended, well or not."""


_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Let work tell a listener how far it is."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


class Work:
    """Work under way: `n_done` of `n_total` units, where that is known; a context manager."""

    def __init__(self, what: str, unit: str, n_total: int | None = None) -> None:
        self.what = what
        self.unit = unit
        self.n_total = n_total
        self.n_done = 0
        self._listener = _listener.get()

    def __enter__(self) -> Self:
        self.add(0)
        return self

    def __exit__(self, *_: object) -> None:
        if self._listener is not None:
            self._listener.ended(self)

    def add(self, n: int = 1) -> None:
        """Take note that so many units more are done."""
        self.n_done += n
        if self._listener is not None:
            self._listener.moved(self)


def each(items: Iterable[_T], what: str, unit: str, n_total: int | None = None) -> Iterator[_T]:
    """Yield items, telling after each how many were taken."""
    with Work(what, unit, n_total) as work:
        for item in items:
            yield item
            work.add()
