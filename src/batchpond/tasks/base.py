"""What a task's answer rule is, and what it returns, whatever the task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from batchpond.model import Outcome, Response
from batchpond.tasks.templates import Placeholders


@dataclass(frozen=True, slots=True)
class Judgment:
    """A response as its task reads it; verdict, score and confidence only when `outcome` is decided or tie.

    `verdict` is first, second or tie for two items, true or false for a yes or no; `label` a word of the
    task's own, `score` a number on its scale, `confidence` from 0 to 1, `explanation` the judge's reason.
    A judge that says why it cannot decide leaves its explanation, and the label for that, without a verdict.
    """

    verdict: str | None
    outcome: Outcome
    label: str | None = None
    score: float | None = None
    confidence: float | None = None
    explanation: str | None = None


@runtime_checkable
class Rule(Protocol):
    """How a task's answers are asked for and read; every field of it is in `to_spec`."""

    @property
    def parser_id(self) -> str:
        """The name of this way to read answers; another rule has another name."""

    @property
    def placeholders(self) -> Placeholders:
        """What its templates must and may contain."""

    def values(self) -> dict[str, str]:
        """Return what the rule itself fills in, by placeholder."""

    def check(self, where: str) -> None:
        """Raise StudyError when answers could not be read reliably by it."""

    def to_spec(self) -> Mapping[str, Any]:
        """Return the rule as `studies.parsers` keeps it."""

    def output_schema(self) -> dict[str, Any] | None:
        """Return the JSON schema of an answer for providers that can hold a model to one, if there is one."""

    def read(self, response: Response) -> Judgment:
        """Return what a response says; total: any response gives a judgment."""
