"""Which of the questions that were made and judged are kept, and which scenarios the next round goes into.

A rating says how well a question was answered, or how easy it is: the low ones test a statement best. All
draws are hashes of the seed and the ids, so the same ratings give the same selection on every machine.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from batchpond import ids
from batchpond.errors import StudyError
from batchpond.tasks.inputs import same


@dataclass(frozen=True, slots=True)
class Question:
    """A question made for a statement; `rating` is None when its judge failed, which is no low rating."""

    statement_id: str
    input_id: str
    text: str
    rating: float | None


@dataclass(frozen=True, slots=True)
class Selection:
    """The questions kept, in order of statement and input id, and why each other one was not."""

    kept: tuple[Question, ...]
    n_by_statement: Mapping[str, int]
    n_unrated: int
    n_rated_too_high: int
    n_repeated: int
    n_not_drawn: int


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
    counts: Counter[str] = Counter()
    by_statement: dict[str, dict[str, Question]] = {}
    for question in sorted(questions, key=lambda one: (one.statement_id, one.input_id not in already, one.input_id)):
        texts = by_statement.setdefault(question.statement_id, {})
        why = "" if question.input_id in already else _why_not(question, threshold, texts)
        counts[why] += 1
        if not why:
            texts[same(question.text)] = question
    sizes = [len(texts) for texts in by_statement.values() if texts]
    bound = min(sizes, default=0) if is_uniform else max(sizes, default=0)
    bound = bound if count is None else min(bound, count)
    drawn = {name: _drawn(texts.values(), bound, seed, already) for name, texts in by_statement.items()}
    return Selection(
        kept=tuple(question for found in drawn.values() for question in found),
        n_by_statement={name: len(found) for name, found in drawn.items()},
        n_unrated=counts["unrated"],
        n_rated_too_high=counts["too high"],
        n_repeated=counts["repeated"],
        n_not_drawn=sum(sizes) - sum(map(len, drawn.values())),
    )


def _why_not(question: Question, threshold: float, texts: Mapping[str, Question]) -> str:
    if question.rating is None or math.isnan(question.rating):
        return "unrated"
    if question.rating >= threshold:
        return "too high"
    return "repeated" if same(question.text) in texts else ""


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
