"""The providers from the other side: local APIs with models that answer, batches that take time, and planted faults."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class SimulatorError(Exception):
    """A setting of the simulator that cannot be: what is wrong, and in `hint` what to write instead."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Clock(Protocol):
    """What a world asks of a clock: the time of day, and a way to wait."""

    def now(self) -> datetime:
        """Return the wall-clock time, UTC."""

    def sleep(self, seconds: float) -> None:
        """Wait."""
