"""What a stage asks about its rows, as its task has it: pure, and in one order for the same rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from batchpond import ids
from batchpond.errors import StudyError
from batchpond.model import Direction, Turn
from batchpond.plan.items import Pairs, choose_pairs, list_orders
from batchpond.plan.rounds import adaptive
from batchpond.plan.rows import NOTHING, Rows, SourceRow, SourceRows, SpilledRows, some_rows, unknown_rubric
from batchpond.study.spec import StageSpec
from batchpond.tasks.base import About
from batchpond.tasks.listwise import OrderRule
from batchpond.tasks.templates import Rubric
from batchpond.text import did_you_mean

NO_RUBRIC: Final = Rubric("", "", "")
_NUMBERS_AT_ONCE: Final = 10_000
_ASKS_AT_ONCE: Final = 2_048
_GROUPS_AT_ONCE: Final = 256


class Ask(NamedTuple):
    """One question of a stage, before template and model: about one row or two, by a rubric.

    `values` are the placeholders that it fills by itself, before its rows and rubric do, unless `text` is what the user
    says; `history` is the conversation before its prompt, and `only` the candidate that goes on with it, or the one way
    to ask it. `purpose` and `gain` say why an adaptive round asks it. Each row of a list asks, its place in `turn_no`.
    """

    rubric: Rubric
    first: SourceRow
    second: SourceRow | None = None
    direction: Direction = Direction.FORWARD
    values: Mapping[str, str] = NOTHING
    turn_no: int | None = None
    text: str | None = None
    history: tuple[Turn, ...] = ()
    only: str | None = None
    purpose: str | None = None
    gain: float | None = None
    list_id: str | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """What tells it from the stage's other asks."""
        in_list = (self.list_id, self.direction) if self.list_id else ()
        return self.rubric.rubric_id, *self.item_ids, str(self.turn_no), self.only or "", *in_list

    @property
    def item_ids(self) -> tuple[str, str]:
        """The ids of its rows, that of a second which it has not being empty."""
        return self.first.item_id, self.second.item_id if self.second else ""


@dataclass(frozen=True)
class Asks:
    """Asks in columns, one after the other: `first` and `second` are places in `rows`.

    `others` are the further fields of `Ask`, of those that any ask here has.
    """

    rows: Rows
    rubrics: Sequence[Rubric]
    first: NDArray[np.int64]
    second: NDArray[np.int64] | None = None
    others: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.first)

    def __iter__(self) -> Iterator[Ask]:
        return map(self.one, range(len(self)))

    def one(self, place: int) -> Ask:
        """Return one of them."""
        second = None if self.second is None else self.rows.each[self.second[place]]
        others = {name: values[place] for name, values in self.others.items()}
        return Ask(self.rubrics[place], self.rows.each[self.first[place]], second, **others)

    def of_first(self, name: str, usual: Any = None) -> Any:
        """Return what the first of them has in one of the further fields."""
        return self.others[name][0] if name in self.others else usual

    def take(self, places: Sequence[int]) -> Asks:
        """Return those that stand at some places, of the same rows."""
        if len(places) == len(self):
            return self
        others = {name: [values[place] for place in places] for name, values in self.others.items()}
        second = None if self.second is None else self.second[places]
        return Asks(self.rows, [self.rubrics[place] for place in places], self.first[places], second, others)

    def parts(self, n: int) -> Iterator[Asks]:
        """Yield them, at most `n` at once, each time with the rows that those are about."""
        for start in range(0, len(self), n):
            part = self.take(range(start, min(start + n, len(self))))
            shown = part.first if part.second is None else np.concatenate([part.first, part.second])
            places, at = np.unique(shown, return_inverse=True)
            second = None if part.second is None else at[len(part) :]
            rows = self.rows if len(places) == len(self.rows) else self.rows.take(places.tolist())
            yield replace(part, rows=rows, first=at[: len(part)], second=second)


def in_columns(found: Iterable[Ask]) -> Iterator[Asks]:
    """Yield asks in columns, some at once."""
    rest = iter(found)
    while some := list(itertools.islice(rest, _ASKS_AT_ONCE)):
        rubrics, first, second, *others = zip(*some, strict=True)
        seconds = () if second[0] is None else second
        rows = {id(row): row for row in (*first, *seconds)}
        places = {key: place for place, key in enumerate(rows)}
        at = np.array([places[id(row)] for row in (*first, *seconds)], np.int64)
        usual = Ask._field_defaults
        told = zip(Ask._fields[3:], others, strict=True)
        said = {name: values for name, values in told if values.count(usual[name]) < len(values)}
        n = len(some)
        yield Asks(Rows.of([*rows.values()]), rubrics, at[:n], at[n:] if seconds else None, said)


def of_pairs(stage: StageSpec, rows: SourceRows, found: Iterable[tuple[Any, ...]], *names: str) -> Iterator[Asks]:
    """Yield asks about pairs: of each a rubric, the places of both rows, and further fields of asks by `names`."""
    rest, kept = iter(found), rows if isinstance(rows, SpilledRows) else Rows.of(rows)
    n_ways = sum(len(model.thinking) for model in stage.models) * len(stage.templates) * stage.repeats
    while some := list(itertools.islice(rest, max(1, _ASKS_AT_ONCE // max(1, n_ways)))):
        rubrics, first, second, *others = zip(*some, strict=True)
        places = {place: number for number, place in enumerate(dict.fromkeys((*first, *second)))}
        at, and_at = (np.array([places[place] for place in side], np.int64) for side in (first, second))
        yield Asks(kept.take([*places]), rubrics, at, and_at, dict(zip(names, others, strict=True)))


def asks(
    stage: StageSpec, rows: SourceRows, seed: int, pairs: Pairs | None = None,
    choices: Sequence[adaptive.Choice] = (),
) -> Iterator[Asks]:  # fmt: skip
    """Yield what a stage asks about its rows, in `pairs` or `choices` that were made where it compares any two.

    Raises StudyError where they do not fit the task.
    """
    ordered = _in_order(stage, rows)
    match stage.about, stage.rule:
        case About.PAIR, _:
            yield from _pairwise(stage, ordered, seed, pairs, choices)
        case About.CANDIDATES, _:
            yield from of_pairs(stage, ordered, _ranking(stage, ordered), "direction")
        case About.LIST, OrderRule() as rule:
            yield from in_columns(_listwise(stage, rule, ordered, seed))
        case _:
            for some in some_rows(ordered):
                yield _of_each(stage, some)


def _of_each(stage: StageSpec, rows: Rows) -> Asks:
    """Return what is asked about rows one by one: of each by all of its rubrics."""
    turns, n = rows.column("turn_no"), len(rows)
    own = rows.column("item_id"), rows.column("rubric_id"), rows.column("judged_by")
    by = [_rubrics_of(stage, *one) for one in zip(*own, strict=True)]
    first = np.repeat(np.arange(n), [*map(len, by)])
    others = {} if turns.count(None) == n else {"turn_no": [turns[place] for place in first.tolist()]}
    return Asks(rows, [*itertools.chain.from_iterable(by)], first, None, others)


def _in_order(stage: StageSpec, rows: SourceRows) -> SourceRows:
    """Return the rows by id; those that say they are in order stay where they are, which need not be memory."""
    if getattr(rows, "is_in_order", False):
        return rows
    ordered = sorted(rows, key=lambda row: row.item_id)
    for before, row in itertools.pairwise(ordered):
        if before.item_id == row.item_id:
            raise StudyError(f"stage {stage.name}: two rows have the id {row.item_id!r}; an id names one row")
    return ordered


def _pairwise(
    stage: StageSpec, rows: SourceRows, seed: int, pairs: Pairs | None, choices: Sequence[adaptive.Choice]
) -> Iterator[Asks]:
    rubrics = stage.rubrics or (NO_RUBRIC,)
    if stage.pairs.adaptive is not None:
        names = [row.item_id for row in rows]
        chosen = choices or adaptive.first_round(names, stage.pairs, seed, stage.name)
        return of_pairs(stage, rows, (of_choice(rubric, one) for one in chosen for rubric in rubrics), *OF_CHOICE)
    numbers = _numbers(pairs or choose_pairs([row.item_id for row in rows], stage.pairs, seed))
    found = (ask for pair in numbers for rubric in rubrics for ask in _both(rubric, *pair))
    return of_pairs(stage, rows, found, "direction")


def _both(rubric: Rubric, first: int, second: int, has_reverse: bool = True) -> Iterator[tuple[Any, ...]]:
    """Yield what is asked about a pair of places: in this order, and in the other."""
    yield rubric, first, second, Direction.FORWARD
    if has_reverse:
        yield rubric, second, first, Direction.REVERSE


def _numbers(chosen: Pairs) -> Iterator[tuple[int, int, bool]]:
    """Yield pairs as their forward order has them, and whether they are asked in the other too."""
    for start in range(0, len(chosen), _NUMBERS_AT_ONCE):
        lo, hi, lo_first, has_reverse = (
            column[start : start + _NUMBERS_AT_ONCE]
            for column in (chosen.lo, chosen.hi, chosen.lo_first, chosen.has_reverse)
        )
        columns = np.where(lo_first, lo, hi), np.where(lo_first, hi, lo), has_reverse
        yield from zip(*(column.tolist() for column in columns), strict=True)


def n_asks(stage: StageSpec, rows: SourceRows, pairs: Pairs | None) -> int | None:
    """Return how many asks a stage's rows make, None where only making them tells."""
    n_rubrics = max(1, len(stage.rubrics))
    if pairs is not None:
        return (len(pairs) + int(pairs.has_reverse.sum())) * n_rubrics
    if stage.about is About.TALK:
        return len(rows) * len(stage.tactics)
    if stage.about is About.CANDIDATES:
        return sum(1 for _ in _ranking(stage, _in_order(stage, rows)))
    if stage.about is About.LIST or not isinstance(rows, SpilledRows) or rows.is_chosen:
        return None
    named = {rubric.rubric_id for rubric in stage.rubrics} or rows.rubric_ids.keys()
    n_own = sum(n for name, n in rows.rubric_ids.items() if name is not None)
    return (len(rows) - n_own) * n_rubrics + n_own if named >= rows.rubric_ids.keys() - {None} else None


def _ranking(stage: StageSpec, rows: SourceRows) -> Iterator[tuple[Any, ...]]:
    """Every ordered pair of candidates on what both answered, by name: no order of files or folders decides.

    With a baseline only those that it is one of.
    """
    by_unit: dict[tuple[str, str | None], list[_Named]] = {}
    lacking, known, baseline, places = [], dict[str, str](), stage.pairs.baseline, itertools.count()
    for some in some_rows(rows):
        columns = map(some.column, ("unit_id", "rubric_id", "candidate", "item_id", "judged_by"))
        for unit_id, rubric_id, candidate, item_id, judged_by in zip(*columns, strict=True):
            name = known.setdefault(candidate, candidate)  # one text for all rows of a candidate
            by_unit.setdefault((unit_id, rubric_id), []).append((name, item_id, next(places), judged_by))
            if candidate is None:
                lacking.append(item_id)
    if lacking:
        raise StudyError(
            f"stage {stage.name}: {len(lacking)} rows have no candidate, the first is {lacking[0]!r}",
            hint="name the column with the model's name: [stages.items] candidate = ...",
        )
    if baseline is not None and not stage.waits and baseline not in known:
        raise StudyError(
            f"stage {stage.name}: pairs.baseline is {baseline!r}, and no row has that candidate",
            hint=did_you_mean(baseline, sorted(known), "it is a name of the column `candidate`"),
        )
    for (_, rubric_id), members in by_unit.items():
        members.sort()
        for lo, hi in itertools.combinations(members, 2) if baseline is None else _against(baseline, members):
            if lo[0] != hi[0]:
                for rubric in _rubrics_of(stage, lo[1], rubric_id, lo[3], hi[3]):
                    yield from _both(rubric, lo[2], hi[2])


_Named = tuple[str, str, int, tuple[str, ...] | None]
"""Candidate, id and place of a row, and by what it is judged."""


def _against(baseline: str, ordered: Sequence[_Named]) -> Iterator[tuple[_Named, _Named]]:
    """Yield each pair that a row of the baseline is in, in this order."""
    for place, row in enumerate(ordered):
        if row[0] == baseline:
            yield from ((other, row) for other in ordered[:place])
            yield from ((row, other) for other in ordered[place + 1 :])


def _each_of(rows: SourceRows, groups: Iterable[Sequence[int]]) -> Iterator[list[SourceRow]]:
    """Yield the rows of each group of places; some are read at once."""
    rest, kept = iter(groups), rows if isinstance(rows, SpilledRows) else Rows.of(rows)
    while some := list(itertools.islice(rest, _GROUPS_AT_ONCE)):
        places = {*itertools.chain.from_iterable(some)}
        found = dict(zip(places, kept.take([*places]).each, strict=True))
        yield from ([found[place] for place in group] for group in some)


def _listwise(stage: StageSpec, rule: OrderRule, rows: SourceRows, seed: int) -> Iterator[Ask]:
    """Every list, in its order and where it is reversed: an ask of each of its rows, which say the same."""
    lists: Iterable[Sequence[int]] = _lists(stage, rule, rows, seed)
    below = stage.pairs.reverse
    if stage.pairs.is_exact:
        lists = [*lists]
        below = [*sorted(_drawn(shown, seed)[1] for shown in _each_of(rows, lists)), 1.0][round(below * len(lists))]
    for shown in _each_of(rows, lists):
        list_id, draw = _drawn(shown, seed)
        yield from _asks_of_list(stage, rule, shown, list_id, is_reversed=draw < below)


def _drawn(shown: Sequence[SourceRow], seed: int) -> tuple[str, float]:
    """Return a list's id, and the draw by which it is asked in the opposite order too."""
    list_id = ids.digest("list", shown[0].unit_id, *(row.item_id for row in shown))
    return list_id, ids.unit_interval(seed, "reverse list", list_id)


def _lists(stage: StageSpec, rule: OrderRule, rows: SourceRows, seed: int) -> Iterator[Sequence[int]]:
    """Yield the places of the rows of every list, in its order."""
    by_unit: dict[tuple[str, str | None], list[tuple[str, str, int]]] = {}
    for place, row in enumerate(rows):
        by_unit.setdefault((row.unit_id, row.rubric_id), []).append((row.candidate or "", row.item_id, place))
    known: dict[tuple[str, ...], Iterator[tuple[int, ...]]] = {}
    for (unit_id, _), members in by_unit.items():
        members.sort()
        has_candidates = all(candidate for candidate, *_ in members)
        names = tuple(candidate if has_candidates else item_id for candidate, item_id, _ in members)
        if len(names) < rule.size and stage.waits:  # what lacks may never come
            continue
        if len(names) < rule.size:
            why = f"stage {stage.name}: unit {unit_id!r} has {len(names)} items, lists.size is {rule.size}"
            raise StudyError(why, hint="leave such a unit out, or ask for shorter lists")
        # Over the units of the same candidates places are balanced; where units come later, each is drawn alone.
        salt = unit_id if stage.waits or not has_candidates else ""
        found = known.setdefault((salt, *names), list_orders(names, rule.size, seed, f"{stage.name} {salt}"))
        seen: set[tuple[int, ...]] = set()
        for order in itertools.islice(found, stage.pairs.count or (1 if has_candidates else len(names))):
            if order not in seen:  # of few items all orders soon are
                seen |= {order, order[::-1]} if stage.pairs.reverse else {order}
                yield [members[at][2] for at in order]


def _asks_of_list(
    stage: StageSpec, rule: OrderRule, shown: Sequence[SourceRow], list_id: str, *, is_reversed: bool
) -> Iterator[Ask]:
    asked = [(Direction.FORWARD, shown), *([(Direction.REVERSE, shown[::-1])] if is_reversed else [])]
    rubrics = _rubrics_of(stage, shown[0].item_id, shown[0].rubric_id, *(row.judged_by for row in shown))
    for rubric, (direction, rows) in itertools.product(rubrics, asked):
        values = {"SAMPLES": rule.shown([row.text for row in rows]), "INPUT": rows[0].input_text or ""}
        for place, row in enumerate(rows, 1):
            yield Ask(rubric, row, None, direction, values, place, list_id=list_id)


OF_CHOICE: Final = ("direction", "only", "purpose", "gain")


def of_choice(rubric: Rubric, choice: adaptive.Choice, only: str | None = None) -> tuple[Any, ...]:
    """Return what an adaptive round chose for `of_pairs`, with `OF_CHOICE`: of one way to ask, or of all."""
    direction = Direction.REVERSE if choice.is_reverse else Direction.FORWARD
    return rubric, choice.first, choice.second, direction, only, str(choice.purpose), choice.gain


def _rubrics_of(
    stage: StageSpec, item_id: str, rubric_id: str | None, *judged_by: tuple[str, ...] | None
) -> Sequence[Rubric]:
    """Return what a row, with others beside it, is judged by: its own rubric, its list, or each of the stage's."""
    if stage.rule.parts:  # all of which one answer has, whatever the row belongs to
        return stage.rubrics
    places = stage.rubric_places
    if rubric_id is not None:
        if places and rubric_id not in places:
            raise unknown_rubric(stage, item_id, rubric_id)
        return (stage.rubrics[places[rubric_id]] if places else _named_rubric(rubric_id),)
    lists = [one for one in judged_by if one is not None]
    if not lists:
        return stage.rubrics or (NO_RUBRIC,)
    named = set(lists[0]).intersection(*lists[1:])
    if not places:
        return [_named_rubric(name) for name in lists[0] if name in named]
    return [stage.rubrics[place] for place in sorted(places[name] for name in named if name in places)]


@lru_cache(maxsize=1_000)
def _named_rubric(rubric_id: str) -> Rubric:
    return Rubric(rubric_id, rubric_id, "")
