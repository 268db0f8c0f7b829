"""A clock that tests move."""

from __future__ import annotations

from datetime import datetime, timedelta


class ManualClock:
    """A clock that moves only when told to, or by sleeping; for deterministic simulation."""

    def __init__(self, start: datetime) -> None:
        self._start = start
        self._elapsed_s = 0.0

    def now(self) -> datetime:
        """Return the simulated wall-clock time."""
        return self._start + timedelta(seconds=self._elapsed_s)

    def monotonic_s(self) -> float:
        """Return the simulated seconds since start."""
        return self._elapsed_s

    def boot_id(self) -> str:
        """Return a fixed boot id."""
        return "simulated-boot"

    def sleep(self, seconds: float) -> None:
        """Advance without waiting."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move time forward."""
        self._elapsed_s += max(0.0, seconds)
