"""Time and waiting: the only module that reads a clock, sleeps, or asks for randomness."""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

INTERVAL_ENV: Final = "BATCHPOND_INTERVAL_S"
"""Names the seconds between two passes where no option says them."""


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


def random_hex(n_bytes: int) -> str:
    """Return unpredictable hex digits, for the secrets and ids a lake is born with."""
    return secrets.token_hex(n_bytes)
