"""Rounds: requests that could be built only from earlier answers, planned once those answers are there.

A stage is asked further when the stages it waits for are done: nothing of them is on its way, and what their
answers make possible is planned. What it asks is computed anew from the lake then and compared with what is
planned, so that a process may die anywhere, an answer may come late by a retry, and nothing is planned twice.

Planning a round costs nothing, so it needs no approval; sending it does. The event `round` says how many
requests the version has by now and, in `detail`, for which answers each stage was looked at last.

What a stage asks by now are rows read back from the lake, and the asks that they make. Each cell (template, rubric,
model, thinking) of an adaptive stage goes its own way from round 2 on, since each judge has its own order of the items.
Round 1 and the held-out pairs are the same in all cells, so that judges can be compared on them.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

import orjson
from msgspec.structs import replace

from batchpond.errors import StudyError, UsageError
from batchpond.lake import failpoints, tables
from batchpond.lake.records import COMPLETE, INCOMPLETE, Event, Rounds
from batchpond.lake.store import TMP, Store
from batchpond.plan import asks
from batchpond.plan.asks import Asks
from batchpond.plan.items import ROWS_AT_ONCE, Item
from batchpond.plan.rounds import adaptive, inputs
from batchpond.plan.rounds.adaptive import Asked, Stop
from batchpond.plan.rounds.inputs import GOOD, query, with_answers
from batchpond.plan.rows import (
    PLACES,
    Columns,
    SourceRow,
    SourceRows,
    SpilledRows,
    columns_of_rows,
    judged_by_of,
    placed,
    row_of_file,
    tier_in,
)
from batchpond.plan.versions import sampled
from batchpond.plan.write import publish_round
from batchpond.study.spec import StageSpec, Study, label_of
from batchpond.tasks.base import About, Gives
from batchpond.tasks.templates import column_of
from batchpond.views.refresh import refresh

_STANDINGS: Final = tables.query(__package__, "standings", good=GOOD)
_COUNTS: Final = tables.query(__package__, "counts")


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a stage stands: how many rows, how many still without an outcome, how many answers that count."""

    n_rows: int = 0
    n_open: int = 0
    n_good: int = 0
    n_unread: int = 0
    round_no: int | None = None


def standings_of(store: Store, staged: Study, sample: int | None = None) -> dict[str, Standing]:
    """Return where each stage of a study's current version stands; the lens is up to date.

    Of a `sample` of so many requests, stages stand where it stands; but adaptive rounds wait for all of theirs.
    """
    if sample is None:
        return standings_of_all(store, [staged.name])[staged.name]
    whole = [stage.name for stage in staged.stages if stage.pairs.adaptive is not None]
    sql = tables.query(__package__, "sample", sampled=sampled(sample), standings=_STANDINGS)
    return standings_of_all(store, [staged.name], sql, whole=whole)[staged.name]


def standings_of_all(
    store: Store, studies: Sequence[str], sql: str = _STANDINGS, **values: Any
) -> dict[str, dict[str, Standing]]:
    """Return where each stage of these studies' current versions stands, by one query; the lens is up to date."""
    found: dict[str, dict[str, Standing]] = {name: {} for name in studies}
    for row in query(store, sql, studies=list(studies), **values) if studies else ():
        name, stage = row.pop("study"), row.pop("stage")
        found[name][stage] = Standing(**row)
    return found


@dataclass
class Look:
    """One look at all stages of a version, which goes on from what its latest `round` event knows.

    `looked` says for which answers each stage was asked further, and why cells of adaptive stages stopped.
    """

    store: Store
    staged: Study
    last: Rounds
    record: Callable[[Event], object] = lambda _: None
    looked: dict[str, str] = field(init=False)
    standings: dict[str, Standing] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    _done: dict[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.looked = dict(orjson.loads(self.last.looked))

    def stand(self, standings: dict[str, Standing]) -> None:
        """Take where the stages stand, and for which answers they were looked at, by now."""
        self.standings = standings
        self._done = {}

    def standing(self, name: str) -> Standing:
        """Return where a stage stands; one without rows stands nowhere."""
        return self.standings.get(name, Standing())

    def basis(self, stage: StageSpec) -> str:
        """Return what the stage's asks depend on, as a text that changes when answers come."""
        names = [*stage.rows.waits_for, *([stage.name] if stage.goes_on else [])]
        found = [(name, self.standing(name)) for name in names]
        return " ".join(f"{name}:{standing.n_rows}:{standing.n_good}" for name, standing in found)

    def is_ready(self, stage: StageSpec) -> bool:
        """Whether all that the stage's next asks depend on has ended."""
        own = self.standing(stage.name)
        is_going_on = stage.goes_on and bool(own.n_open)
        return not is_going_on and all(self.is_done(self.staged.stage(name)) for name in stage.rows.waits_for)

    def is_due(self, stage: StageSpec) -> bool:
        """Whether a stage is to be asked further: it can be, and has not been since answers came."""
        basis = self.basis(stage)
        is_new = bool(basis) and self.looked.get(stage.name) != basis and self.is_ready(stage)
        # Where a process died after it planned files of an adaptive round and before it told of the round.
        round_no = self.standing(stage.name).round_no or 0
        is_half_planned = stage.pairs.adaptive is not None and round_no > self.last.round_no
        return stage.name not in self.failed and (is_new or is_half_planned)

    def is_done(self, stage: StageSpec) -> bool:
        """Whether a stage has ended: nothing on its way, nothing left to ask."""
        if stage.name not in self._done:
            own, basis = self.standing(stage.name), self.basis(stage)
            is_asked = self.looked.get(stage.name) == basis if basis else bool(own.n_rows)
            self._done[stage.name] = is_asked and not own.n_open and self.is_ready(stage)
        return self._done[stage.name]

    def why_stopped(self, stage: StageSpec) -> str:
        """Return why cells of an adaptive stage were asked no further, with how many; empty while none was."""
        return self.looked.get(_stopped(stage.name), "")

    def stop(self, stage: StageSpec, reasons: Mapping[str, int]) -> None:
        """Take why cells are asked no further by now; answers that came late may have made them go on."""
        if reasons:
            self.looked[_stopped(stage.name)] = "; ".join(f"{reason}: {n:,}" for reason, n in sorted(reasons.items()))
        else:
            self.looked.pop(_stopped(stage.name), None)

    def tell(self, state: str, stage: str | None = None, n_new: int | None = None) -> None:
        """Record how far the rounds are, unless that is on record."""
        self.last = round_event(self.store, self.staged.name, self.last.study_version, state, self.looked)
        self.last = replace(self.last, stage=stage, n_new=n_new)
        self.record(self.last)


def _stopped(stage: str) -> str:
    # Names of stages have no space, so that this is none.
    return f"{stage} stopped"


def round_event(store: Store, study: str, version: str, state: str, looked: Mapping[str, str]) -> Rounds:
    """Return the event that says how many requests and rounds a version has by now."""
    n_requests, round_no = counts_of(store, study, version)
    return Rounds(
        study=study,
        study_version=version,
        round_no=round_no,
        n_requests=n_requests,
        progress=state,
        looked=orjson.dumps(looked, option=orjson.OPT_SORT_KEYS).decode(),
    )


def open_rounds(
    store: Store,
    record: Callable[[Event], object],
    staged: Study,
    last: Rounds,
    isolated: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext(),
    sample: int | None = None,
) -> list[tuple[str, int]]:
    """Plan every round that is due of a study's current version; return the stages with how many rows each adds.

    `last` is the version's latest `round` event; with a `sample` nothing is waited for but that. A stage that fails
    inside `isolated` is tried again next time.
    """
    look = Look(store, staged, last, record)
    before = dict(look.looked)
    opened: list[tuple[str, int]] = []
    is_any = True
    while is_any:
        is_any = False
        refresh(store, is_for_us=True)
        look.stand(standings_of(store, staged, sample))
        for stage in staged.stages:
            n_new = 0
            if look.is_due(stage):
                look.failed.add(stage.name)
                with isolated(stage.name):
                    n_new = _open(look, stage)
                    look.failed.remove(stage.name)
            if n_new:
                opened.append((stage.name, n_new))
                is_any = True
                break
    is_unread = any(standing.n_unread for standing in look.standings.values())
    state = INCOMPLETE if look.failed or is_unread else COMPLETE
    if state == COMPLETE or before != look.looked:
        look.tell(state)
        failpoints.reach("R2")
    return opened


def _open(look: Look, stage: StageSpec) -> int:
    basis, is_begun = look.basis(stage), look.standing(stage.name).n_rows > 0
    stopped: Counter[str] = Counter()
    found = asks_by_now(look.store, look.staged, stage, look.last.round_no, stopped, is_begun=is_begun)
    asked = asks.in_columns(with_answers(look.store, look.staged, stage, found)) if stage.answers else found
    version = look.last.study_version
    n_new = publish_round(look.store, look.staged, version, look.last.round_no + 1, stage, asked)
    failpoints.reach("R1")
    look.looked[stage.name] = basis
    look.stop(stage, stopped)
    look.stand(look.standings)
    _, round_no = counts_of(look.store, look.staged.name, version)
    if n_new or round_no != look.last.round_no:  # a process may have died before it told of its round
        look.tell(INCOMPLETE, stage.name, n_new)
    return n_new


def counts_of(store: Store, study: str, version: str) -> tuple[int, int]:
    """Return how many requests a version has by now, and the number of its last round."""
    ((n_requests, round_no),) = tables.rows(store, ["plan"], _COUNTS, {"study": study, "version": version})
    return n_requests, round_no


_OUTPUTS: Final = tables.query(__package__, "outputs", chosen=inputs.CHOSEN)
_SAID: Final = tables.query(__package__, "said", good=GOOD)
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
) -> Iterator[Asks]:
    """Yield what a waiting stage, or one that goes on, asks by what the lake holds now; the lens is up to date.

    The rounds of an adaptive stage go on where it `is_begun`: it has been asked something.
    `until` is the last round that stands for sure: what an adaptive stage has of later ones is chosen anew.
    Its cells that are asked no further are counted into `stopped` by the reason.
    """
    if stage.about is About.TALK:
        yield from inputs.talk_asks(stage, _rows_by_now(store, staged, stage), _said(store, staged, stage.name).answers)
        return
    if stage.rows.lacking is not None:
        yield from asks.in_columns(inputs.further_asks(store, staged, stage, stage.rows.lacking))
        return
    if stage.pairs.adaptive is not None and is_begun:
        yield from adaptive_asks(store, staged, stage, _rows_by_now(store, staged, stage), until, stopped)
        return
    found = asks.asks(stage, source_rows(store, staged, stage), staged.seed)
    source = staged.stage(stage.rows.stage) if stage.rows.stage else None
    if source is None or not (source.about.is_of_two and stage.about.is_of_two):
        yield from found
        return
    # What an earlier stage compared is compared in the same pairs; of any rubric, where one answer has all fields, or
    # where the stage has none of those.
    is_any = bool(stage.rule.parts or (stage.rubrics and not stage.shared_rubrics(source)))
    rows = query(store, _PAIRS, stage.rows.where or inputs.ALL, study=staged.name, stage=source.name)
    pairs = {("" if is_any else row["rubric_id"], row["lo"], row["hi"]) for row in rows}
    for some in found:
        keys = (("" if is_any else ask.rubric.rubric_id, *sorted(ask.item_ids)) for ask in some)
        yield some.take([place for place, key in enumerate(keys) if key in pairs])


def _rows_by_now(store: Store, staged: Study, stage: StageSpec) -> SourceRows:
    """Return the rows of a stage that goes on: by what the lake holds now, or as its first round read them."""
    if stage.waits:
        return source_rows(store, staged, stage)
    items = query(store, ITEMS, study=staged.name, stage=stage.name)
    if not staged.is_pairs_alone:
        return [_judged_row(row) for row in items]
    return [row_of_file(Item(row["item_id"], row["text"], row["metadata"]), stage) for row in items]


def source_rows(store: Store, staged: Study, stage: StageSpec) -> SourceRows:
    """Return the rows that a waiting stage asks about, from what the lake holds now."""
    if stage.rows.sql is not None:
        return SpilledRows(store.path / TMP, from_table(inputs.users(store, stage.rows.sql), stage))
    if stage.rows.kept is not None:
        return inputs.kept_rows(store, staged, stage.rows.kept)
    source = staged.stage(stage.rows.stage or "")
    where = stage.rows.where or inputs.ALL
    if source.about is About.TALK:
        said = _said(store, staged, source.name, where)
        rows = inputs.talk_rows(source, said.questions, said.answers)
        return [row for talk, row in rows if (talk, row.turn_no) in said.chosen]
    if source.gives is Gives.ROWS:
        return inputs.entry_rows(store, staged.name, [source], where)
    if source.gives is Gives.OUTPUT:
        found = query(store, _OUTPUTS, study=staged.name, stage=source.name, where=where)
        return SpilledRows(store.path / TMP, columns_of_rows(_output_row(row, staged, stage) for row in found))
    found = query(store, _JUDGED, study=staged.name, stage=source.name, where=where)
    has_same = bool(stage.shared_rubrics(source))
    judged = (_judged_row(row, tuple(row["judged_by"]) if has_same else None) for row in found)
    return SpilledRows(store.path / TMP, columns_of_rows(judged))


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
        judged_by=judged_by_of(stage, item_id, of_question),
        tier=tier_in(row["metadata"]),
    )


def _judged_row(row: Mapping[str, Any], judged_by: tuple[str, ...] | None = None) -> SourceRow:
    """Return an item that was judged before as a row again; its metadata says where it belongs."""
    more = dict(orjson.loads(row["metadata"])) if row["metadata"] else {}
    known = {name: more.pop(name, None) for name in PLACES}
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
    for row in query(store, _SAID, study=staged.name, stage=stage, where=where):
        talk = inputs.Talk(row["unit_id"], row["candidate"], row["tactic_id"])
        if row["unit_id"] not in said.questions:
            more, tier = _shown(staged, row["metadata"]), tier_in(row["metadata"])
            said.questions[row["unit_id"]] = SourceRow(row["unit_id"], row["question"], more=more, tier=tier)
        answers = said.answers.setdefault(talk, [])
        if len(answers) == row["turn_no"]:
            answers.append(row["text"])
        if row["is_chosen"]:
            said.chosen.add((talk, row["turn_no"]))
    return said


def from_table(rows: Iterable[Mapping[str, Any]], stage: StageSpec) -> Iterator[Columns]:
    """Yield the rows of a table by the stage's column names; raises StudyError for a row without id or text."""
    columns, rest, numbers = {"id": "id", "text": "text", **stage.rows.columns}, iter(rows), itertools.count(1)
    while some := list(itertools.islice(rest, ROWS_AT_ONCE)):
        told = {name: [row.get(column) for row in some] for name, column in columns.items()}
        for item_id, text, row, number in zip(told["id"], told["text"], some, numbers, strict=False):
            if item_id is None or not isinstance(text, str) or not text or text.isspace():
                raise StudyError(
                    f"stage {stage.name}: row {number} has no {columns['id']!r} or no {columns['text']!r}",
                    hint=f"its columns are {', '.join(map(repr, list(row)[:20]))}",
                )
        own = {*columns.values()}
        more = [{key: value for key, value in row.items() if key not in own and value is not None} for row in some]
        yield placed(stage, ([*map(str, told["id"])], [*map(str, told["text"])], more), told)


ITEMS: Final = tables.query(__package__, "items_shown")
"""The items of a stage that has been asked about all of them, which its first round is."""
_ASKED: Final = tables.query(__package__, "cells_asked", good=GOOD)
_CELL: Final = ("rubric_id", "provider", "request_model", "thinking", "template_id")


def adaptive_asks(
    store: Store, staged: Study, stage: StageSpec, rows: SourceRows, until: int | None, stopped: Counter[str]
) -> Iterator[Asks]:
    """Yield what each cell of a stage is asked next; rounds after `until` are taken as not yet asked.

    Cells that are asked no further are counted into `stopped` by the reason.
    """
    ordered = sorted(rows, key=lambda row: row.item_id)
    yield from asks.of_pairs(stage, ordered, _chosen(store, staged, stage, ordered, until, stopped), *asks.OF_CHOICE)


def _chosen(
    store: Store, staged: Study, stage: StageSpec, ordered: Sequence[SourceRow], until: int | None,
    stopped: Counter[str],
) -> Iterator[tuple[Any, ...]]:  # fmt: skip
    places = {row.item_id: place for place, row in enumerate(ordered)}
    keys = adaptive.keys_of(list(places))
    rubrics = {rubric.rubric_id: rubric for rubric in stage.rubrics or (asks.NO_RUBRIC,)}
    for cell, said in itertools.groupby(query(store, _ASKED, study=staged.name, stage=stage.name), itemgetter(*_CELL)):
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
                yield asks.of_choice(rubrics[rubric_id], choice, only)


def _told(rows: Iterator[dict[str, Any]], places: dict[str, int]) -> Iterator[tuple[int, int, str, int, str | None]]:
    for row in rows:
        first, second = places.get(row["item_first"]), places.get(row["item_second"])
        if first is not None and second is not None:
            yield first, second, row["purpose"] or "", row["round_no"], row["verdict"]
