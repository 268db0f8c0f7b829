"""The generation task: a model's own answer to an input, kept as it is.

An answer with visible text is decided and has no verdict; one that was cut for length is truncated,
since what it would have said is unknown, and its text is in `responses` all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from batchpond.model import Outcome
from batchpond.tasks.base import Gives, Judgment, Rule
from batchpond.tasks.templates import STATEMENT_PLACEHOLDERS, Placeholders

TASK: Final = "generation"


@dataclass(frozen=True)
class GenerationRule(Rule):
    """Any visible text is an answer."""

    TASK: ClassVar[str] = TASK
    GIVES: ClassVar[Gives] = Gives.OUTPUT
    PLACEHOLDERS: ClassVar[Placeholders] = Placeholders(("INPUT",), ("STATEMENT", *STATEMENT_PLACEHOLDERS))

    def _found(self, text: str) -> Judgment | None:
        return Judgment(None, Outcome.DECIDED) if text.strip() else None

    def _left_of_cut(self, _: str) -> str:
        return ""
