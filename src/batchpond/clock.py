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
