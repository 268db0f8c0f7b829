"""The rows that a stage asks about, in memory or in a file meanwhile, and the asks that its task makes of them.

Pure but for that file, and in one order for the same rows."""

from __future__ import annotations

import itertools
import os
import pickle  # rows of this process only, in a file that no other can open
import tempfile
import weakref
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple, overload

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from batchpond import ids
from batchpond.errors import StudyError
from batchpond.model import Direction, Turn
from batchpond.plan.items import Item, Pairs, choose_pairs, list_orders, names_of
from batchpond.plan.rounds import adaptive
from batchpond.study.spec import CONVERSATION, TIER_MAX, StageSpec
from batchpond.tasks.listwise import OrderRule
from batchpond.tasks.templates import Rubric
from batchpond.text import did_you_mean, plain

NO_RUBRIC: Final = Rubric("", "", "")
PLACES: Final = ("unit_id", "rubric_id", "candidate", "input", "turn_no", "tier")
"""What an item's metadata says of where its row belongs, in the order of its fields."""
_TIER_DIGITS_MAX: Final = 8
_NUMBERS_AT_ONCE: Final = 10_000
_ROWS_AT_ONCE: Final = 256
_HASHES_AT_ONCE: Final = 512 * 32  # bytes
_NOTHING: Final[Mapping[str, Any]] = {}


class _SourceRow(NamedTuple):
    item_id: str
    text: str
    unit_id: str = ""
    rubric_id: str | None = None
    candidate: str | None = None
    input_text: str | None = None
    turn_no: int | None = None
    more: Mapping[str, Any] = _NOTHING
    judged_by: tuple[str, ...] | None = None
    tier: int | None = None
    of_file: Item | None = None


class SourceRow(_SourceRow):
    """One row that is asked about: an input, a question, or a candidate's output with the input it answers.

    `judged_by` are the rubrics by which an earlier stage chose it, where the stage has those rubrics too. What a
    row of a `tier` leads to in later stages is of that tier too. `of_file` is the item as it was read, where the
    lake keeps it so.
    """

    @cached_property
    def item_hash(self) -> str:
        """The hash of what the lake keeps of it."""
        return self.item().item_hash

    def item(self) -> Item:
        """Return it as the lake keeps items."""
        return self.of_file or Item(self.item_id, self.text, self.metadata)

    @cached_property
    def metadata(self) -> str | None:
        """What the lake keeps of it besides: as its file has it, or where it belongs, as JSON."""
        return _metadata_of(self)


def _metadata_of(row: SourceRow) -> str | None:
    _, _, unit_id, rubric_id, candidate, asked, turn_no, more, _, tier, of_file = row
    if of_file is not None:
        return of_file.metadata
    said: dict[str, Any] = {}  # one by one: a third of what a comprehension takes, for each row of a study
    if unit_id:
        said["unit_id"] = unit_id
    if rubric_id is not None:
        said["rubric_id"] = rubric_id
    if candidate is not None:
        said["candidate"] = candidate
    if asked is not None:
        said["input"] = asked
    if turn_no is not None:
        said["turn_no"] = turn_no
    if tier is not None:
        said["tier"] = tier
    if more:
        said = {name: value for name, value in {**said, **more}.items() if value is not None}
    return orjson.dumps(said, default=plain, option=orjson.OPT_SORT_KEYS).decode() if said else None


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
    values: Mapping[str, str] = _NOTHING
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
        second = self.second.item_id if self.second else ""
        in_list = (self.list_id, self.direction) if self.list_id else ()
        return self.rubric.rubric_id, self.first.item_id, second, str(self.turn_no), self.only or "", *in_list

    @property
    def tier(self) -> int | None:
        """The tier of its rows, of two the later one: an earlier tier is whole without the pair."""
        found = [row.tier for row in (self.first, self.second) if row is not None and row.tier is not None]
        return max(found, default=None)


def asks(
    stage: StageSpec, rows: Sequence[SourceRow], seed: int, pairs: Pairs | None = None,
    choices: Sequence[adaptive.Choice] = (),
) -> Iterator[Ask]:  # fmt: skip
    """Yield what a stage asks about its rows, in `pairs` or `choices` that were made where it compares any two.

    Raises StudyError where they do not fit the task.
    """
    ordered = _in_order(stage, rows)
    match stage.task:
        case "pairwise":
            yield from _pairwise(stage, ordered, seed, pairs, choices)
        case "ranking":
            yield from _ranking(stage, ordered)
        case _ if isinstance(stage.rule, OrderRule):
            yield from _listwise(stage, stage.rule, ordered, seed)
        case _:
            for row in ordered:
                for rubric in _rubrics_of(stage, row):
                    yield Ask(rubric, row, None, Direction.FORWARD, _NOTHING, row.turn_no)


def _in_order(stage: StageSpec, rows: Sequence[SourceRow]) -> Sequence[SourceRow]:
    """Return the rows by id; those that say they are in order stay where they are, which need not be memory."""
    if getattr(rows, "is_in_order", False):
        return rows
    ordered = sorted(rows, key=lambda row: row.item_id)
    for before, row in itertools.pairwise(ordered):
        if before.item_id == row.item_id:
            raise StudyError(f"stage {stage.name}: two rows have the id {row.item_id!r}; an id names one row")
    return ordered


def tier_of(stage: StageSpec, item_id: str, value: object) -> int | None:
    """Return a row's tier as a column gives it, None where it is blank; raises StudyError for what is no tier."""
    if value is None or value == "":
        return None
    text = str(value).strip()
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:_TIER_DIGITS_MAX]) <= TIER_MAX):
        raise StudyError(
            f"stage {stage.name}: the tier of {item_id!r} is {text[:40]!r}, not a whole number from 1 to {TIER_MAX:,}",
            hint="1 is sent first; leave the cell empty for the tier of the stage",
        )
    return int(text)


def tier_in(metadata: str | None) -> int | None:
    """Return the tier that an item's metadata names."""
    tier = orjson.loads(metadata).get("tier") if metadata else None
    return tier if isinstance(tier, int) else None


def row_of_file(item: Item, stage: StageSpec) -> SourceRow:
    """Return an item of a study that is nothing but pairs: its file says its tier at most."""
    more: dict[str, Any] = orjson.loads(item.metadata) if item.metadata else {}
    column = stage.rows.columns.get("tier")
    # Of a version planned with tiers by that name, the column is gone.
    value = None if column is None else more.get(column, tier_in(item.metadata))
    tier = tier_of(stage, item.item_id, value)
    return SourceRow(item.item_id, item.text, more=more, tier=tier, of_file=item)


def placed_row(
    stage: StageSpec, item_id: str, text: str, told: Mapping[str, object], more: Mapping[str, Any]
) -> SourceRow:
    """Return a row by what its columns for unit, rubric, candidate, input, tier say; raises StudyError for no tier.

    A list of rubrics is of those that it is judged by, each by itself.
    """
    own_unit = "" if stage.task in {"pairwise", "listwise"} else item_id  # any two of their rows are compared
    if not told:
        return SourceRow(item_id, text, own_unit, None, None, None, None, more)
    judged_by = judged_by_of(stage, item_id, told.get("rubric"))
    if judged_by is not None:
        told, more = {**told, "rubric": None}, {**more, stage.rows.columns["rubric"]: judged_by}
    unit_id, rubric_id, candidate, asked = map(_said, map(told.get, ("unit", "rubric", "candidate", "input")))
    tier = tier_of(stage, item_id, told.get("tier"))
    return SourceRow(
        item_id, text, unit_id or own_unit, rubric_id, candidate, asked or None, None, more, judged_by, tier
    )


def judged_by_of(stage: StageSpec, item_id: str, value: object) -> tuple[str, ...] | None:
    """Return the rubrics that a list names, each once, None for what is none.

    Raises StudyError for an empty list, or a rubric that the stage lacks.
    """
    if not isinstance(value, list):
        return None
    found, known = tuple(dict.fromkeys(map(str, value))), stage.rubric_places
    if not found:
        raise StudyError(f"stage {stage.name}: {item_id!r} has an empty list of rubrics", hint="leave such an item out")
    if lacking := [name for name in found if known and name not in known]:
        raise _unknown(stage, item_id, lacking[0])
    return found


def _said(value: object) -> str | None:
    """Return a column's value as prompts show it: lists and objects, such as messages of a chat, as JSON."""
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value, default=plain).decode() if isinstance(value, list | dict) else str(value)


def _pairwise(
    stage: StageSpec, rows: Sequence[SourceRow], seed: int, pairs: Pairs | None, choices: Sequence[adaptive.Choice]
) -> Iterator[Ask]:
    if stage.pairs.adaptive is not None:
        names = [row.item_id for row in rows]
        for choice in choices or adaptive.first_round(names, stage.pairs, seed, stage.name):
            for rubric in stage.rubrics or (NO_RUBRIC,):
                yield ask_of_pair(rubric, rows[choice.first], rows[choice.second], choice)
        return
    chosen = pairs or choose_pairs([row.item_id for row in rows], stage.pairs, seed)
    for lo, hi, lo_first, has_reverse in _numbers(chosen):
        forward = (rows[lo], rows[hi]) if lo_first else (rows[hi], rows[lo])
        for rubric in stage.rubrics or (NO_RUBRIC,):
            yield Ask(rubric, *forward)
            if has_reverse:
                yield Ask(rubric, forward[1], forward[0], Direction.REVERSE)


def _numbers(chosen: Pairs) -> Iterator[tuple[int, int, bool, bool]]:
    for start in range(0, len(chosen), _NUMBERS_AT_ONCE):
        part = slice(start, start + _NUMBERS_AT_ONCE)
        columns = (chosen.lo[part], chosen.hi[part], chosen.lo_first[part], chosen.has_reverse[part])
        yield from zip(*(column.tolist() for column in columns), strict=True)


def n_asks(stage: StageSpec, rows: Sequence[SourceRow], pairs: Pairs | None) -> int | None:
    """Return how many asks a stage's rows make, None where only making them tells."""
    n_rubrics = max(1, len(stage.rubrics))
    if pairs is not None:
        return (len(pairs) + int(pairs.has_reverse.sum())) * n_rubrics
    if stage.task == CONVERSATION:
        return len(rows) * len(stage.tactics)
    if stage.task in {"ranking", "listwise"} or not isinstance(rows, SpilledRows) or rows.is_chosen:
        return None
    named = {rubric.rubric_id for rubric in stage.rubrics} or rows.rubric_ids.keys()
    n_own = sum(n for name, n in rows.rubric_ids.items() if name is not None)
    return (len(rows) - n_own) * n_rubrics + n_own if named >= rows.rubric_ids.keys() - {None} else None


def _ranking(stage: StageSpec, rows: Sequence[SourceRow]) -> Iterator[Ask]:
    """Every ordered pair of candidates on what both answered, by name: no order of files or folders decides.

    With a baseline only those that it is one of.
    """
    by_unit: dict[tuple[str, str | None], list[int]] = {}
    lacking, known, baseline = [], set[str](), stage.pairs.baseline
    for place, row in enumerate(rows):
        by_unit.setdefault((row.unit_id, row.rubric_id), []).append(place)
        if row.candidate is None:
            lacking.append(row.item_id)
        else:
            known.add(row.candidate)
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
    for places in by_unit.values():
        ordered = sorted((rows[place] for place in places), key=lambda row: (row.candidate or "", row.item_id))
        for lo, hi in itertools.combinations(ordered, 2) if baseline is None else _against(baseline, ordered):
            if lo.candidate == hi.candidate:
                continue
            for rubric in _rubrics_of(stage, lo, hi):
                yield Ask(rubric, lo, hi)
                yield Ask(rubric, hi, lo, Direction.REVERSE)


def _against(baseline: str, ordered: Sequence[SourceRow]) -> Iterator[tuple[SourceRow, SourceRow]]:
    """Yield each pair that a row of the baseline is in, in this order."""
    for place, row in enumerate(ordered):
        if row.candidate == baseline:
            yield from ((other, row) for other in ordered[:place])
            yield from ((row, other) for other in ordered[place + 1 :])


def _listwise(stage: StageSpec, rule: OrderRule, rows: Sequence[SourceRow], seed: int) -> Iterator[Ask]:
    """Every list, in its order and where it is reversed: an ask of each of its rows, which say the same."""
    lists: Iterable[Sequence[SourceRow]] = _lists(stage, rule, rows, seed)
    below = stage.pairs.reverse
    if stage.pairs.is_exact:
        lists = [*lists]
        below = [*sorted(_drawn(shown, seed)[1] for shown in lists), 1.0][round(below * len(lists))]
    for shown in lists:
        list_id, draw = _drawn(shown, seed)
        yield from _asks_of_list(stage, rule, shown, list_id, is_reversed=draw < below)


def _drawn(shown: Sequence[SourceRow], seed: int) -> tuple[str, float]:
    """Return a list's id, and the draw by which it is asked in the opposite order too."""
    list_id = ids.digest("list", shown[0].unit_id, *(row.item_id for row in shown))
    return list_id, ids.unit_interval(seed, "reverse list", list_id)


def _lists(stage: StageSpec, rule: OrderRule, rows: Sequence[SourceRow], seed: int) -> Iterator[Sequence[SourceRow]]:
    """Yield the rows of every list, in its order."""
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
                yield [rows[members[at][2]] for at in order]


def _asks_of_list(
    stage: StageSpec, rule: OrderRule, shown: Sequence[SourceRow], list_id: str, *, is_reversed: bool
) -> Iterator[Ask]:
    asked = [(Direction.FORWARD, shown), *([(Direction.REVERSE, shown[::-1])] if is_reversed else [])]
    for rubric, (direction, rows) in itertools.product(_rubrics_of(stage, *shown), asked):
        values = {"SAMPLES": rule.shown([row.text for row in rows]), "INPUT": rows[0].input_text or ""}
        for place, row in enumerate(rows, 1):
            yield Ask(rubric, row, None, direction, values, place, list_id=list_id)


def ask_of_pair(
    rubric: Rubric, first: SourceRow, second: SourceRow, choice: adaptive.Choice, only: str | None = None
) -> Ask:
    """Return what an adaptive round chose as an ask, of one way to ask or of all."""
    direction = Direction.REVERSE if choice.is_reverse else Direction.FORWARD
    return Ask(rubric, first, second, direction, only=only, purpose=str(choice.purpose), gain=choice.gain)


def _rubrics_of(stage: StageSpec, row: SourceRow, *others: SourceRow) -> Iterable[Rubric]:
    """Return what a row, with others beside it, is judged by: its own rubric, its list, or each of the stage's."""
    if stage.rule.parts:  # all of which one answer has, whatever the row belongs to
        return stage.rubrics
    places = stage.rubric_places
    if row.rubric_id is not None:
        if places and row.rubric_id not in places:
            raise _unknown(stage, row.item_id, row.rubric_id)
        return (stage.rubrics[places[row.rubric_id]] if places else _named_rubric(row.rubric_id),)
    lists = [one.judged_by for one in (row, *others) if one.judged_by is not None]
    if not lists:
        return stage.rubrics or (NO_RUBRIC,)
    named = set(lists[0]).intersection(*lists[1:])
    if not places:
        return [_named_rubric(name) for name in lists[0] if name in named]
    return [stage.rubrics[place] for place in sorted(places[name] for name in named if name in places)]


def _unknown(stage: StageSpec, item_id: str, name: str) -> StudyError:
    return StudyError(
        f"stage {stage.name}: {item_id!r} belongs to the rubric {name!r}, which the stage lacks",
        hint=f"its rubrics: {', '.join(rubric.rubric_id for rubric in stage.rubrics[:20])}",
    )


@lru_cache(maxsize=1_000)
def _named_rubric(rubric_id: str) -> Rubric:
    return Rubric(rubric_id, rubric_id, "")


_CACHE_BYTES_MAX: Final = 8 << 20
_BUFFER_BYTES: Final = 1 << 20
_AHEAD_ROWS: Final = 2_048
_AHEAD_BYTES: Final = 4 << 20


class SpilledRows(Sequence[SourceRow]):
    """Rows in id order, hashed once; `folder` is where their file, which has no name, takes its space."""

    def __init__(self, folder: Path, rows: Iterable[SourceRow]) -> None:
        file = tempfile.TemporaryFile(buffering=_BUFFER_BYTES, dir=folder)  # noqa: SIM115 (closed with the rows)
        weakref.finalize(self, file.close)
        self._descriptor = file.fileno()
        starts, chunks, hashes = array("q", [0]), [], bytearray()
        self.n_text_bytes, self.rubric_ids, self.is_chosen = 0, Counter[str | None](), False
        rest = iter(rows)
        while some := list(itertools.islice(rest, _ROWS_AT_ONCE)):
            names, texts, _, rubric_ids, *_, judged_by, _, _ = zip(*some, strict=True)
            said = [*map(_metadata_of, some)]  # nothing that each row would keep
            hashes += b"".join(ids.hashes_of(("item",), names, texts, [one or "" for one in said]))
            both = zip(map(tuple, some), said, strict=True)
            sizes = [file.write(pickle.dumps(one, pickle.HIGHEST_PROTOCOL)) for one in both]
            starts.extend(itertools.islice(itertools.accumulate(sizes, initial=starts[-1]), 1, None))
            self.n_text_bytes += sum(map(size_of, texts))
            self.rubric_ids.update(rubric_ids)
            self.is_chosen |= judged_by.count(None) < len(some)
            chunks.append(pa.array(names, pa.string()))
        file.flush()
        # By bytes of UTF-8, which is the order of the texts themselves.
        names = pa.chunked_array(chunks, pa.string())
        order = pc.sort_indices(names)
        self._order: NDArray[np.int64] = np.asarray(np.from_dlpack(order), np.int64)
        ordered = names.take(order)
        self.is_in_order: bool = pc.any(pc.equal(ordered[1:], ordered[:-1])).as_py() is not True
        """Whether each id stands there once, so that nothing but the ids makes the order."""
        self._starts: NDArray[np.int64] = np.frombuffer(starts, np.int64)
        parts = (bytes(hashes[at : at + _HASHES_AT_ONCE]) for at in range(0, len(hashes), _HASHES_AT_ONCE))
        self._hashes = b"".join([names_of([part]).buffers()[2] for part in parts]).decode()
        self._cache: dict[int, SourceRow] = {}
        self._n_cached_bytes = 0

    def hashes(self) -> list[str]:
        """Return the hashes of all rows as the lake keeps them, in no order."""
        return [self._hashes[at : at + ids.ID_LENGTH] for at in range(0, len(self._hashes), ids.ID_LENGTH)]

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[SourceRow]:
        ends = np.cumsum(np.diff(self._starts)[self._order])
        start = n_bytes = 0
        while start < len(ends):
            within = int(ends.searchsorted(n_bytes + _AHEAD_BYTES, "right"))
            stop = min(max(within, start + 1), start + _AHEAD_ROWS, len(ends))
            yield from self._read_ahead(self._order[start:stop])
            start, n_bytes = stop, int(ends[stop - 1])

    def _read_ahead(self, numbers: NDArray[np.int64]) -> list[SourceRow]:
        """Return rows, those that stand side by side in the file read at once."""
        sides = np.sort(numbers)
        cuts = (np.flatnonzero(np.diff(sides) > 1) + 1).tolist()
        found: dict[int, SourceRow] = {}
        for start, stop in itertools.pairwise((0, *cuts, len(sides))):
            first = int(sides[start])
            bounds = self._starts[first : first + stop - start + 1].tolist()
            data = memoryview(os.pread(self._descriptor, bounds[-1] - bounds[0], bounds[0]))
            for number, (begin, end) in enumerate(itertools.pairwise(bounds), first):
                found[number] = self._row(number, data[begin - bounds[0] : end - bounds[0]])
        return [found[number] for number in numbers.tolist()]

    @overload
    def __getitem__(self, place: int) -> SourceRow: ...
    @overload
    def __getitem__(self, place: slice) -> list[SourceRow]: ...
    def __getitem__(self, place: int | slice) -> SourceRow | list[SourceRow]:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        number = int(self._order[place])
        if (found := self._cache.get(number)) is None:
            start, end = int(self._starts[number]), int(self._starts[number + 1])
            found = self._row(number, os.pread(self._descriptor, end - start, start))
            # Kept for a while: comparisons come back to it soon, or not at all.
            if self._n_cached_bytes + end - start > _CACHE_BYTES_MAX:
                self._cache.clear()
                self._n_cached_bytes = 0
            self._cache[number] = found
            self._n_cached_bytes += end - start
        return found

    def _row(self, number: int, written: bytes | memoryview) -> SourceRow:
        values, metadata = pickle.loads(written)  # noqa: S301 (our own bytes)
        row, at = tuple.__new__(SourceRow, values), number * ids.ID_LENGTH
        row.item_hash, row.metadata = self._hashes[at : at + ids.ID_LENGTH], metadata
        return row


def size_of(text: str) -> int:
    """Return the size of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8"))
