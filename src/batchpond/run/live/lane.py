"""A lane: the live shards of one model, asked one after the other at one pace."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from batchpond.errors import BatchpondError
from batchpond.lake.attempts import Attempt
from batchpond.lake.events.records import Approval, Sharded
from batchpond.providers.base import LiveProvider, LiveStart
from batchpond.run.live.calls import CallCounts, CallRules, Calls
from batchpond.run.live.pace import Pace
from batchpond.run.live.spool import Spool

SEAL_LINES = 5_000
SEAL_AFTER_S = 300.0


@dataclass(slots=True)
class Running:
    """The attempt that a lane is asking now."""

    attempt: Attempt
    calls: Calls
    spool: Spool
    n_before: int

    @property
    def n_answered(self) -> int:
        """How many of its requests have their final line, an answer or a failure."""
        counts = self.calls.counts
        return self.n_before + counts.n_answered + counts.n_failed

    def is_seal_due(self, now_s: float) -> bool:
        """Whether enough answers wait outside the lake's tables, or some for long enough."""
        n_answers = self.spool.n_answers
        return n_answers >= SEAL_LINES or (n_answers > 0 and now_s - self.spool.opened_s >= SEAL_AFTER_S)


@dataclass(slots=True)
class Lane:
    """One model's shards that wait, what is being asked, and what it has come to."""

    provider: str
    model: str
    pace: Pace
    rules: CallRules
    shards: deque[tuple[Sharded, Approval]] = field(default_factory=deque)
    wire: LiveProvider | None = None
    start: LiveStart | None = None
    running: Running | None = None
    past: CallCounts = field(default_factory=CallCounts)
    n_requests: int = 0
    n_done: int = 0
    error: BatchpondError | None = None

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self.provider}/{self.model}"

    @property
    def is_over(self) -> bool:
        """Whether nothing more is asked of this model."""
        return self.running is None and (self.error is not None or not self.shards)

    @property
    def counts(self) -> CallCounts:
        """What became of all its calls in this run."""
        return self.past if self.running is None else self.past + self.running.calls.counts

    @property
    def n_answered(self) -> int:
        """How many of its requests have their final line, earlier runs included."""
        return self.n_done + (0 if self.running is None else self.running.n_answered)

    def ended(self) -> None:
        """Add what the running attempt came to, and be free for the next."""
        self.past, self.n_done = self.counts, self.n_answered
        self.running = None
