"""The inputs task: making questions that test a statement: categories, then scenarios, then questions.

Each step asks a model for a list and reads it from JSON arrays of texts (or of objects that have the key),
or from numbered or bulleted lines when there is no such array. Entries keep their order; blank ones, ones
that are too long and repetitions (case and white space apart) are left out, as is what exceeds `count_max`.
An answer with an entry is decided; one that was cut for length is truncated, whatever it has.

The questions are judged by the likert task; `inputs_selection` keeps what its ratings call for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from batchpond import ids
from batchpond.errors import StudyError
from batchpond.model import Outcome
from batchpond.tasks import base, structured
from batchpond.tasks.base import Gives, Judgment, Rule, Text
from batchpond.tasks.templates import STATEMENT_PLACEHOLDERS, Placeholders

TASK: Final = "inputs"
_OPTIONAL: Final = ("COUNT", "AVOID", "ANSWER_FORMAT", *STATEMENT_PLACEHOLDERS)
PLACEHOLDERS_BY_STEP: Final = {
    "categories": Placeholders(("STATEMENT",), _OPTIONAL),
    "scenarios": Placeholders(("STATEMENT", "CATEGORY"), _OPTIONAL),
    "questions": Placeholders(("STATEMENT", "SCENARIO"), ("CATEGORY", *_OPTIONAL)),
}
_LINE: Final = re.compile(r"[ \t]{0,20}(?:\d{1,4}[.):]|[-*\u2022])[ \t]+(\S.*)")
_EMPHASIS: Final = "*_`\"' \t\u201c\u201d"


@dataclass(frozen=True)
class InputsRule(Rule):
    """Which list is asked for, how many entries, under which key they stand in a list of objects, and bounds."""

    TASK: ClassVar[str] = TASK
    GIVES: ClassVar[Gives] = Gives.ROWS

    step: Text = "questions"
    count: int = 10
    key: Text = "text"
    count_max: int = 100
    entry_max_chars: int = 4_000

    @property
    def placeholders(self) -> Placeholders:
        """What its templates must and may contain, by step."""
        return PLACEHOLDERS_BY_STEP[self.step]

    def values(self) -> dict[str, str]:
        """Return how many are asked for and how; nothing to avoid, unless a request says so."""
        form = f'["the first of the {self.step}", "the second", ...]'
        return {"COUNT": str(self.count), "AVOID": "(none)", "ANSWER_FORMAT": form}

    def check(self, where: str) -> None:
        """Raise StudyError for a step that does not exist or a bound without room."""
        if self.step not in PLACEHOLDERS_BY_STEP:
            raise StudyError(f"{where}.step is {self.step!r}, not one of {', '.join(PLACEHOLDERS_BY_STEP)}")
        if not 1 <= self.count <= self.count_max:
            raise StudyError(f"{where}.count is {self.count}, not from 1 to count_max, {self.count_max}")
        if not 1 <= self.count_max <= 10_000 or not 1 <= self.entry_max_chars <= 100_000:
            raise StudyError(f"{where}: count_max is from 1 to 10,000, entry_max_chars from 1 to 100,000")
        if not self.key.strip():
            raise StudyError(f"{where}.key must not be blank")

    def _found(self, text: str) -> Judgment | None:
        return Judgment(None, Outcome.DECIDED) if entries(text, self) else None

    def _left_of_cut(self, _: str) -> str:
        return ""


def entries(text: str, rule: InputsRule) -> tuple[str, ...]:
    """Return the list's texts in order, without repetitions; empty when there is no list."""
    found = structured.arrays(text, lambda array: any(_texts(array, rule)))
    listed = (entry for array in found for entry in _texts(array, rule)) if found else _lines(text)
    return tuple(_different(listed, rule))


def _texts(array: Iterable[Any], rule: InputsRule) -> Iterator[str]:
    for entry in array:
        value = entry.get(structured.fold(rule.key)) if isinstance(entry, dict) else entry
        if isinstance(value, str) and value.strip():
            yield value


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if match := _LINE.match(line):
            yield match[1].strip(_EMPHASIS)


def same(text: str) -> str:
    """Return what two texts share that differ in case and white space only."""
    return " ".join(text.casefold().split())


def _different(listed: Iterable[str], rule: InputsRule) -> Iterator[str]:
    seen: set[str] = set()
    for entry in listed:
        text = base.storable(entry, rule.entry_max_chars + 1)
        if text is None or len(text) > rule.entry_max_chars or same(text) in seen:
            continue
        seen.add(same(text))
        yield text
        if len(seen) == rule.count_max:
            return


@dataclass(frozen=True, slots=True)
class Question:
    """A question made for a statement; `rating` is None when its judge failed, which is no low rating."""

    statement_id: str
    input_id: str
    text: str
    rating: float | None


@dataclass(frozen=True, slots=True)
class Selection:
    """The questions kept, in order of statement and input id, and how many that makes of each statement."""

    kept: tuple[Question, ...]
    n_by_statement: Mapping[str, int]


def select(
    questions: Iterable[Question],
    threshold: float,
    seed: int,
    count: int | None = None,
    is_uniform: bool = True,
    already: frozenset[str] = frozenset(),
) -> Selection:
    """Return the questions rated below `threshold`, at most `count` per statement.

    With `is_uniform`, every statement that has any keeps as many as the one that has fewest;
    `n_by_statement` names those that have none with a 0. Of one text within a statement, the first by id
    is kept. The questions named in `already`, kept before, are so again whatever came since: others only
    fill up. Raises StudyError for a count below 1 or a threshold that is no number.
    """
    if (count is not None and count < 1) or math.isnan(threshold):
        raise StudyError(f"cannot keep {count} questions rated below {threshold}")
    by_statement: dict[str, dict[str, Question]] = {}
    for question in sorted(questions, key=lambda one: (one.statement_id, one.input_id not in already, one.input_id)):
        texts = by_statement.setdefault(question.statement_id, {})
        is_low = question.rating is not None and question.rating < threshold
        if question.input_id in already or (is_low and same(question.text) not in texts):
            texts[same(question.text)] = question
    sizes = [len(texts) for texts in by_statement.values() if texts]
    bound = min(sizes, default=0) if is_uniform else max(sizes, default=0)
    bound = bound if count is None else min(bound, count)
    drawn = {name: _drawn(texts.values(), bound, seed, already) for name, texts in by_statement.items()}
    return Selection(
        kept=tuple(question for found in drawn.values() for question in found),
        n_by_statement={name: len(found) for name, found in drawn.items()},
    )


def _drawn(found: Iterable[Question], size: int, seed: int, already: frozenset[str]) -> list[Question]:
    def order(one: Question) -> tuple[bool, float, str]:
        return one.input_id not in already, ids.unit_interval(seed, one.statement_id, one.input_id), one.input_id

    drawn = sorted(found, key=order)
    n_already = sum(one.input_id in already for one in drawn)
    return sorted(drawn[: max(size, n_already)], key=lambda one: one.input_id)


def promising(ratings: Mapping[str, Iterable[float | None]], share: float, seed: int) -> tuple[str, ...]:
    """Return the scenarios (or categories) with the lowest mean rating, a `share` of those rated, at least one.

    Ratings that failed are left out of the means; one without any rating is not chosen. Equal means are
    drawn by `seed`. Raises StudyError unless 0 < share <= 1.
    """
    if not 0 < share <= 1:
        raise StudyError(f"a share of {share:g} of the scenarios cannot be chosen", hint="it is above 0 and at most 1")
    rated = {name: [value for value in values if value is not None] for name, values in ratings.items()}
    means = {name: math.fsum(values) / len(values) for name, values in rated.items() if values}
    order = sorted(means, key=lambda name: (means[name], ids.unit_interval(seed, name), name))
    return tuple(order[: max(1, math.ceil(share * len(order) - 1e-9))])
