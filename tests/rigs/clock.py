"""A clock that tests move."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path


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

    def set_by(self, seconds: float) -> None:
        """Set the wall clock, forward or back, so far from where it stands."""
        self._start += timedelta(seconds=seconds)


@dataclass
class ClockFile:
    """The file of a clock that processes share."""

    path: Path
    passed_s: float = 0.0
    set_s: float = 0.0

    def __post_init__(self) -> None:
        self._write()

    def let_pass(self, seconds: float) -> None:
        """Let time pass for everyone."""
        self.passed_s += seconds
        self._write()

    def set_by(self, seconds: float) -> None:
        """Set the wall of this machine, so far from the true time."""
        self.set_s = seconds
        self._write()

    def _write(self) -> None:
        whole = self.path.with_suffix(".new")
        whole.write_text(f"{self.passed_s} {self.set_s}")
        whole.replace(self.path)
