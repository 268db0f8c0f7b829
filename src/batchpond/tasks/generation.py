"""The generation task: a model's own answer to an input, kept as it is.

An answer with visible text is decided and has no verdict; one that was cut for length is truncated,
since what it would have said is unknown, and its text is in `responses` all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from batchpond.model import Finish, Outcome, Response
from batchpond.tasks import base
from batchpond.tasks.base import Judgment, Rule
from batchpond.tasks.templates import STATEMENT_PLACEHOLDERS, Placeholders

TASK: Final = "generation"


@dataclass(frozen=True)
class GenerationRule(Rule):
    """Any visible text is an answer."""

    TASK: ClassVar[str] = TASK
    PLACEHOLDERS: ClassVar[Placeholders] = Placeholders(("INPUT",), ("STATEMENT", *STATEMENT_PLACEHOLDERS))
    PARSER_VERSION: ClassVar[int] = 1

    def read(self, response: Response) -> Judgment:
        """Return what a response says; total: any response gives a judgment."""
        is_whole = response.finish is not Finish.LENGTH
        whole = Judgment(None, Outcome.DECIDED)
        return base.read(response, lambda text: whole if is_whole and text.strip() else None)
