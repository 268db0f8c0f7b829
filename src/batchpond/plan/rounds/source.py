"""What a stage asks by now: rows read back from the lake, and the asks that they make.

Each cell (template, rubric, model, thinking) of an adaptive stage goes its own way from round 2 on, since each judge
has its own order of the items. Round 1 and the held-out pairs are the same in all cells, so that judges can be compared
on them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

import orjson

from batchpond.errors import StudyError, UsageError
from batchpond.lake import tables
from batchpond.lake.store import TMP, Store
from batchpond.plan import asks
from batchpond.plan.asks import Ask, SourceRow, SpilledRows
from batchpond.plan.items import Item
from batchpond.plan.rounds import adaptive, inputs
from batchpond.plan.rounds.adaptive import Asked, Stop
from batchpond.study.spec import CONVERSATION, INPUTS, PAIR_TASKS, StageSpec, Study, label_of
from batchpond.tasks.templates import column_of

_OUTPUTS: Final = tables.query(__package__, "outputs", chosen=inputs.CHOSEN)
_SAID: Final = tables.query(__package__, "said", good=inputs.GOOD)
_JUDGED: Final = tables.query(__package__, "judged", chosen=inputs.CHOSEN)
_PAIRS: Final = tables.query(__package__, "pairs", chosen=inputs.CHOSEN)


def check(store: Store, stage: StageSpec) -> None:
    """Raise StudyError when a stage's own SQL does not fit the lake's views, before anything is paid for it."""
    if stage.rows.sql is not None:
        name, sql = "sql", f"SELECT * FROM ({stage.rows.sql}\n) AS rows LIMIT 0"
    elif stage.rows.where is not None:
        name, sql = "where", f"SELECT 1 FROM results WHERE ({stage.rows.where}\n) LIMIT 0"
    else:
        return
    try:
        list(inputs.users(store, sql))
    except UsageError as error:
        raise StudyError(
            f"stage {stage.name}: items.{name} cannot be run on the lake: {error.message}",
            hint=error.hint or "`batchpond query --help` says what can be asked; `batchpond views` lists the views",
        ) from None


def asks_by_now(
    store: Store, staged: Study, stage: StageSpec, until: int | None, stopped: Counter[str], *, is_begun: bool
) -> Iterator[Ask]:
    """Yield what a waiting stage, or one that goes on, asks by what the lake holds now; the lens is up to date.

    The rounds of an adaptive stage go on where it `is_begun`: it has been asked something.
    `until` is the last round that stands for sure: what an adaptive stage has of later ones is chosen anew.
    Its cells that are asked no further are counted into `stopped` by the reason.
    """
    if stage.task == CONVERSATION:
        yield from inputs.talk_asks(stage, _rows_by_now(store, staged, stage), _said(store, staged, stage.name).answers)
        return
    if stage.rows.lacking is not None:
        yield from inputs.further_asks(store, staged, stage, stage.rows.lacking)
        return
    if stage.pairs.adaptive is not None and is_begun:
        yield from adaptive_asks(store, staged, stage, _rows_by_now(store, staged, stage), until, stopped)
        return
    found = asks.asks(stage, source_rows(store, staged, stage), staged.seed)
    source = staged.stage(stage.rows.stage) if stage.rows.stage else None
    if source is None or not {source.task, stage.task} <= PAIR_TASKS:
        yield from found
        return
    # What an earlier stage compared is compared in the same pairs; of any rubric, where one answer has all fields, or
    # where the stage has none of those.
    is_any = bool(stage.rule.parts or (stage.rubrics and not stage.shared_rubrics(source)))
    rows = inputs.query(store, _PAIRS, stage.rows.where or inputs.ALL, study=staged.name, stage=source.name)
    pairs = {("" if is_any else row["rubric_id"], row["lo"], row["hi"]) for row in rows}
    for ask in found:
        lo, hi = sorted((ask.first.item_id, ask.second.item_id if ask.second else ""))
        if ("" if is_any else ask.rubric.rubric_id, lo, hi) in pairs:
            yield ask


def _rows_by_now(store: Store, staged: Study, stage: StageSpec) -> Sequence[SourceRow]:
    """Return the rows of a stage that goes on: by what the lake holds now, or as its first round read them."""
    if stage.waits:
        return source_rows(store, staged, stage)
    items = inputs.query(store, ITEMS, study=staged.name, stage=stage.name)
    if not staged.is_pairs_alone:
        return [_judged_row(row) for row in items]
    return [asks.row_of_file(Item(row["item_id"], row["text"], row["metadata"]), stage) for row in items]


def source_rows(store: Store, staged: Study, stage: StageSpec) -> Sequence[SourceRow]:
    """Return the rows that a waiting stage asks about, from what the lake holds now."""
    if stage.rows.sql is not None:
        return SpilledRows(store.path / TMP, from_table(inputs.users(store, stage.rows.sql), stage))
    if stage.rows.kept is not None:
        return inputs.kept_rows(store, staged, stage.rows.kept)
    source = staged.stage(stage.rows.stage or "")
    where = stage.rows.where or inputs.ALL
    if source.task == CONVERSATION:
        said = _said(store, staged, source.name, where)
        rows = inputs.talk_rows(source, said.questions, said.answers)
        return [row for talk, row in rows if (talk, row.turn_no) in said.chosen]
    if source.task == INPUTS:
        return inputs.entry_rows(store, staged.name, [source], where)
    if source.task == "generation":
        found = inputs.query(store, _OUTPUTS, study=staged.name, stage=source.name, where=where)
        return SpilledRows(store.path / TMP, (_output_row(row, staged, stage) for row in found))
    found = inputs.query(store, _JUDGED, study=staged.name, stage=source.name, where=where)
    has_same = bool(stage.shared_rubrics(source))
    judged = (_judged_row(row, tuple(row["judged_by"]) if has_same else None) for row in found)
    return SpilledRows(store.path / TMP, judged)


def _shown(staged: Study, metadata: str | None) -> dict[str, Any]:
    """Return what an item has in the columns that the study's templates show, for what is made of it."""
    names = {column_of(name) for stage in staged.stages for name in stage.columns}
    more = orjson.loads(metadata) if names and metadata else {}
    return {name: value for name, value in more.items() if name in names}


def _output_row(row: Mapping[str, Any], staged: Study, stage: StageSpec) -> SourceRow:
    number = f"#{row['repeat_no']}" if row["repeat_no"] > 1 else ""
    item_id, column = f"{row['unit_id']}/{row['candidate']}{number}", stage.rows.columns.get("rubric")
    of_question = orjson.loads(row["metadata"]).get(column) if column and row["metadata"] else None
    return SourceRow(
        item_id if row["rubric_id"] is None else f"{item_id}/{row['rubric_id']}",
        row["text"],
        unit_id=row["unit_id"],
        rubric_id=row["rubric_id"],
        candidate=row["candidate"],
        input_text=row["input_text"],
        more=_shown(staged, row["metadata"]),
        judged_by=asks.judged_by_of(stage, item_id, of_question),
        tier=asks.tier_in(row["metadata"]),
    )


def _judged_row(row: Mapping[str, Any], judged_by: tuple[str, ...] | None = None) -> SourceRow:
    """Return an item that was judged before as a row again; its metadata says where it belongs."""
    more = dict(orjson.loads(row["metadata"])) if row["metadata"] else {}
    known = {name: more.pop(name, None) for name in asks.PLACES}
    return SourceRow(
        row["item_id"], row["text"], known["unit_id"] or "", known["rubric_id"], known["candidate"], known["input"],
        known["turn_no"], more, judged_by, known["tier"],
    )  # fmt: skip


@dataclass(frozen=True)
class _Said:
    """What was said in conversations: answers from turn 0 on without a gap, what `where` chose, and the questions."""

    answers: dict[inputs.Talk, list[str]]
    questions: dict[str, SourceRow]
    chosen: set[tuple[inputs.Talk, int]]


def _said(store: Store, staged: Study, stage: str, where: str = inputs.ALL) -> _Said:
    said = _Said({}, {}, set())
    for row in inputs.query(store, _SAID, study=staged.name, stage=stage, where=where):
        talk = inputs.Talk(row["unit_id"], row["candidate"], row["tactic_id"])
        if row["unit_id"] not in said.questions:
            more, tier = _shown(staged, row["metadata"]), asks.tier_in(row["metadata"])
            said.questions[row["unit_id"]] = SourceRow(row["unit_id"], row["question"], more=more, tier=tier)
        answers = said.answers.setdefault(talk, [])
        if len(answers) == row["turn_no"]:
            answers.append(row["text"])
        if row["is_chosen"]:
            said.chosen.add((talk, row["turn_no"]))
    return said


def from_table(rows: Iterable[Mapping[str, Any]], stage: StageSpec) -> Iterator[SourceRow]:
    """Yield the rows of a table by the stage's column names; raises StudyError for a row without id or text."""
    columns = {"id": "id", "text": "text", **stage.rows.columns}
    for number, row in enumerate(rows, 1):
        item_id, text = row.get(columns["id"]), row.get(columns["text"])
        if item_id is None or not isinstance(text, str) or not text.strip():
            raise StudyError(
                f"stage {stage.name}: row {number} has no {columns['id']!r} or no {columns['text']!r}",
                hint=f"its columns are {', '.join(map(repr, list(row)[:20]))}",
            )
        told = {name: row.get(column) for name, column in columns.items()}
        more = {key: value for key, value in row.items() if key not in columns.values() and value is not None}
        yield asks.placed_row(stage, str(item_id), text, told, more)


ITEMS: Final = tables.query(__package__, "items_shown")
"""The items of a stage that has been asked about all of them, which its first round is."""
_ASKED: Final = tables.query(__package__, "cells_asked", good=inputs.GOOD)
_CELL: Final = ("rubric_id", "provider", "request_model", "thinking", "template_id")


def adaptive_asks(
    store: Store, staged: Study, stage: StageSpec, rows: Sequence[SourceRow], until: int | None, stopped: Counter[str]
) -> Iterator[Ask]:
    """Yield what each cell of a stage is asked next; rounds after `until` are taken as not yet asked.

    Cells that are asked no further are counted into `stopped` by the reason.
    """
    ordered = sorted(rows, key=lambda row: row.item_id)
    places = {row.item_id: place for place, row in enumerate(ordered)}
    keys = adaptive.keys_of(list(places))
    rubrics = {rubric.rubric_id: rubric for rubric in stage.rubrics or (asks.NO_RUBRIC,)}
    for cell, said in itertools.groupby(
        inputs.query(store, _ASKED, study=staged.name, stage=stage.name), itemgetter(*_CELL)
    ):
        rubric_id, *way = cell
        asked = Asked.of([row for row in _told(said, places) if until is None or row[3] <= until])
        if rubric_id not in rubrics or not len(asked):
            continue
        found = adaptive.next_round(keys, asked, stage.pairs, adaptive.seed_of(staged.seed, stage.name))
        if isinstance(found, Stop):
            stopped[found] += 1
        else:
            only = label_of(*way, n_templates=len(stage.templates))
            for choice in found:
                yield asks.ask_of_pair(rubrics[rubric_id], ordered[choice.first], ordered[choice.second], choice, only)


def _told(rows: Iterator[dict[str, Any]], places: dict[str, int]) -> Iterator[tuple[int, int, str, int, str | None]]:
    for row in rows:
        first, second = places.get(row["item_first"]), places.get(row["item_second"])
        if first is not None and second is not None:
            yield first, second, row["purpose"] or "", row["round_no"], row["verdict"]
