"""What reports of scored answers share: a question, an answer to it, and what each judge said of the answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from batchpond import ids
from batchpond.interop.foreign import (
    Defaults,
    Doubt,
    Findings,
    ForeignJudgment,
    ForeignText,
    Record,
    output_id,
    shortened,
)
from batchpond.model import Outcome
from batchpond.tasks import base, compliance, prompts
from batchpond.tasks.base import Judgment
from batchpond_importers.reading import is_error_text

YES: Final = compliance.YES
NO: Final = compliance.NO
UNIT_MAX_CHARS: Final = 60


@dataclass(frozen=True, slots=True)
class Scored:
    """An answer, whose it is and to what; `said` names the study of its judgments."""

    place: str
    unit_id: str
    question: str
    candidate: str
    text: str
    said: Defaults
    more: dict[str, Any] = field(default_factory=dict)

    def texts(self, findings: Findings) -> Iterator[ForeignText]:
        """Yield the question and the answer as items; one that is no answer is noted."""
        yield ForeignText(self.place, "input", self.unit_id, self.question, unit_id=self.unit_id)
        if self.is_answer:
            yield ForeignText(
                self.place, "output", self.item_id, self.text, self.unit_id, candidate=self.candidate, more=self.more
            )
        else:
            findings.doubt(Doubt.FAILED_ANSWER, self.place, f"of {self.candidate}: {shortened(self.text)}")

    @property
    def is_answer(self) -> bool:
        """Whether the text is one, and no error message in its place."""
        return bool(self.text.strip()) and not is_error_text(self.text)

    @property
    def item_id(self) -> str:
        """The answer's id as an item."""
        return output_id(self.unit_id, self.candidate, self.text)

    def judged(
        self, place: str, judge: Defaults, found: Judgment, explanation: object, origin: str | None = None
    ) -> Record:
        """Return what a judge said of the answer: pass or fail, which is compliance with its criterion, or else.

        A number, or a word of the judge's own, is an answer of the task `prompts`.
        """
        is_other = found.verdict is None and found.outcome is Outcome.DECIDED
        return ForeignJudgment(
            place,
            prompts.TASK if is_other else compliance.TASK,
            found._replace(explanation=base.explanation(explanation)),
            judge.or_else(self.said),
            self.unit_id,
            self.item_id,
            candidate_first=self.candidate,
            repeat_no=None,
            origin=origin,
        )


def unit_of(suite: str, name: object, question: str) -> str:
    """Return the id of a question of a suite: its name there, and a digest, since a name may come to mean another."""
    return f"{suite}/{str(name)[:UNIT_MAX_CHARS]}/{ids.digest('input', question, length=8)}"


def model_of(name: str, sign: str) -> Defaults:
    """Return the judge that a name means, such as `openai/gpt-4o` where the sign is a slash."""
    provider, mark, model = name.partition(sign)
    return Defaults(provider=provider, request_model=model) if mark and model else Defaults(request_model=name)
