"""What SycoBench's scorers said of answers under pressure: labels, and failures that were recorded as labels."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from batchpond import fields
from batchpond.interop.foreign import Doubt, Findings, ForeignJudgment, ForeignText, Record, output_id, shortened
from batchpond.model import Outcome
from batchpond.tasks.shared import reading as common

TASK: Final = "pressure"
KEYWORDS: Final = ("sycobench", "keywords")
_LABELS: Final = {
    "no_flip": "no_flip", "soft_flip": "soft_flip", "explicit_flip": "explicit_flip",
    "initially_unsafe": "initially_wrong", "initially_wrong": "initially_wrong",
}  # fmt: skip
_OWN_OUTCOMES: Final = frozenset(Outcome) - {Outcome.TIE}  # which no answer under pressure is
_SCORES: Final = {"no_flip": 0, "soft_flip": 1, "explicit_flip": 2}
_AT_FIRST: Final = {"safe": "no_flip", "unsafe": "initially_wrong"}
_FAILED_REASON: Final = re.compile(
    r"\s*(?:\[?(?:parsing |scoring |api )?error\b|failed to |could not |exception\b|no (?:json|response)\b|timeout\b)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of a model: to a question, or to a turn of pressure on it."""

    place: str
    candidate: str
    unit_id: str
    text: str
    turn_no: int
    more: Mapping[str, Any]

    @property
    def item_id(self) -> str:
        """The answer's id: the same text may be the answer to several turns and tactics."""
        turn = (self.candidate, self.more.get("tactic"), str(self.turn_no))
        return output_id(self.unit_id, "/".join(part for part in turn if part), self.text)

    def record(self) -> ForeignText:
        """Return it as a text that can be judged."""
        return ForeignText(
            self.place,
            "output",
            self.item_id,
            self.text,
            self.unit_id,
            fields.text(self.more.get("tactic")),
            self.candidate,
            self.turn_no,
            self.more,
        )


@dataclass(frozen=True, slots=True)
class Label:
    """What a scorer said of an answer; `scorer` is a provider and a model."""

    word: object
    score: object
    reason: object
    confidence: object
    scorer: tuple[str | None, str | None]
    tactic: str | None = None
    template_id: str | None = None
    outcome: object = None


@dataclass(frozen=True, slots=True)
class KnownAnswer(Answer):
    """An answer of which only the id is at hand."""

    known_id: str = ""

    @property
    def item_id(self) -> str:
        """The answer's id, as it was when its text was read."""
        return self.known_id


def at_first(answer: Answer, assessment: object, tactic: str | None) -> Iterator[Record]:
    """Yield a first answer, and what the keyword scorer made of it where it said anything."""
    yield answer.record()
    if not isinstance(assessment, str):
        return
    label = _AT_FIRST.get(assessment)
    outcome = Outcome.UNSURE if label is None else Outcome.DECIDED
    yield _judgment(answer, outcome, label or "unjudgeable", KEYWORDS, tactic)


def _judgment(
    answer: Answer,
    outcome: Outcome,
    label: str | None,
    scorer: tuple[str | None, str | None],
    tactic: str | None,
    **more: Any,
) -> ForeignJudgment:
    return ForeignJudgment(
        answer.place, TASK, outcome, label=label, rubric_id=tactic, provider=scorer[0], request_model=scorer[1],
        unit_id=answer.unit_id, item_first=answer.item_id, candidate_first=answer.candidate, turn_no=answer.turn_no,
        **more,
    )  # fmt: skip


def labelled(answer: Answer, label: Label, findings: Findings) -> ForeignJudgment:
    """Return a scorer's label; one that stands for a failure of the scorer is none."""
    outcome, word = _reading(answer.place, label, findings)
    confidence = common.confidence(label.confidence) if outcome is Outcome.DECIDED else None
    if confidence is None and outcome is Outcome.DECIDED and label.confidence is not None:
        findings.doubt(Doubt.BAD_CONFIDENCE, answer.place, f"has confidence {shortened(label.confidence)}")
    return _judgment(
        answer, outcome, word, label.scorer, label.tactic,
        confidence=confidence, explanation=common.explanation(label.reason), template_id=label.template_id,
    )  # fmt: skip


def _reading(place: str, label: Label, findings: Findings) -> tuple[Outcome, str | None]:
    word = _LABELS.get(label.word) if isinstance(label.word, str) else None
    if isinstance(label.outcome, str) and label.outcome in _OWN_OUTCOMES:  # an export of a lake
        own = Outcome(label.outcome)
        if own is not Outcome.DECIDED or word is not None:
            return own, {Outcome.DECIDED: word, Outcome.UNSURE: "unjudgeable"}.get(own)
    reason = label.reason if isinstance(label.reason, str) else None
    score = common.number(label.score)
    is_failure = label.word == "error" or (reason is not None and _FAILED_REASON.match(reason) is not None)
    # A failure was recorded as "no flip" with no reason given; keywords give none either.
    is_bare = word == "no_flip" and label.scorer != KEYWORDS and not (reason or "").strip() and score is None
    if is_failure or is_bare:
        findings.doubt(Doubt.ERROR_AS_VERDICT, place, f"has {shortened(label.word)} for {shortened(reason)}")
        return (Outcome.ERROR if is_failure else Outcome.UNPARSED), None
    if word is None:
        findings.doubt(Doubt.ERROR_AS_VERDICT, place, f"has the label {shortened(label.word)}")
        return Outcome.UNPARSED, None
    if score is not None and _SCORES.get(word, score) != score:
        findings.doubt(Doubt.CONTRADICTORY, place, f"has score {score:g} for {word}")
        return Outcome.UNPARSED, None
    return Outcome.DECIDED, word
