"""Time and waiting: the only module that reads a clock, sleeps, or asks for randomness."""

from __future__ import annotations

import os
import secrets
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Protocol

INTERVAL_ENV: Final = "BATCHPOND_INTERVAL_S"
"""Names the seconds between two passes where no option says them."""
CLOCK_ENV: Final = "BATCHPOND_TEST_CLOCK"
"""Names the file of a `FileClock`; no provider but a simulator is ever called by one."""


class Clock(Protocol):
    """Wall time for stamps, monotonic time for durations, and a way to wait."""

    def now(self) -> datetime:
        """Return the wall-clock time, UTC."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds that never go backwards within one boot."""
        ...

    def boot_id(self) -> str:
        """Return what tells one boot of the machine from the next."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """Return the wall-clock time, UTC."""
        return datetime.now(UTC)

    def monotonic_s(self) -> float:
        """Return seconds since an arbitrary point, counted through suspend where the OS can."""
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

    def boot_id(self) -> str:
        """Return the kernel's boot id, or a fixed word where there is none."""
        path = Path("/proc/sys/kernel/random/boot_id")
        return path.read_text("ascii").strip() if path.exists() else "unknown-boot"

    def sleep(self, seconds: float) -> None:
        """Block for `seconds`."""
        time.sleep(max(0.0, seconds))


class FileClock(SystemClock):
    """The machine's clock, moved on by a file: the seconds that passed, and those by which somebody set the wall."""

    def __init__(self, path: Path, *, is_set: bool = True) -> None:
        self._path, self._is_set = path, is_set

    def now(self) -> datetime:
        """Return what the wall shows; a provider's was set by nobody."""
        passed_s, set_s = self._moved_s()
        return super().now() + timedelta(seconds=passed_s + set_s * self._is_set)

    def monotonic_s(self) -> float:
        """Return what nobody can set."""
        return super().monotonic_s() + self._moved_s()[0]

    def _moved_s(self) -> tuple[float, float]:
        passed_s, set_s = map(float, self._path.read_text("ascii").split())
        return passed_s, set_s


def machine_clock(*, is_set: bool = True) -> SystemClock:
    """Return the machine's clock, or the one of the file that the environment names."""
    path = os.environ.get(CLOCK_ENV)
    return FileClock(Path(path), is_set=is_set) if path else SystemClock()


def random_hex(n_bytes: int) -> str:
    """Return unpredictable hex digits, for the secrets and ids a lake is born with."""
    return secrets.token_hex(n_bytes)
