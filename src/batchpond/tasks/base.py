"""What a task's answer parser returns, whatever the task."""

from __future__ import annotations

from dataclasses import dataclass

from batchpond.model import Outcome, Verdict


@dataclass(frozen=True, slots=True)
class Judgment:
    """A response as its task reads it; `verdict` is set only when `outcome` is decided or tie."""

    verdict: Verdict | None
    outcome: Outcome
