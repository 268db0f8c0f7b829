"""The verb `plan` for a study of stages: the stages that wait for nothing become requests, the others a forecast.

Idempotent and safe to kill, as for a study without stages: requests, plan rows, the study's row, and last
the event that makes the version the study's newest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Final

import orjson

from batchpond import ids
from batchpond.errors import StudyError
from batchpond.lake.attempts import fold
from batchpond.lake.events.log import EventLog
from batchpond.lake.events.records import Planned
from batchpond.lake.schemas import STUDIES
from batchpond.lake.store import CONFIG, TMP, Store
from batchpond.plan.cells import Dropped, Modules, Way, make_ways
from batchpond.plan.items import Item, SqlRows, each, read_any
from batchpond.plan.rounds import adaptive
from batchpond.plan.rounds import talk as stage_talk
from batchpond.plan.rounds.inputs import KINDS
from batchpond.plan.rounds.rounds import (
    INCOMPLETE,
    counts_of,
    may_have_answers,
    open_rounds,
    publish_round,
    round_event,
)
from batchpond.plan.rounds.source import check
from batchpond.plan.rounds.talk import asks as talk_asks
from batchpond.plan.stages.forecast import Forecast, Known, forecast
from batchpond.plan.stages.plan import prompt_of, size_bytes
from batchpond.plan.stages.rows import NO_RUBRIC, Ask, SourceRow, asks, probe, rubric_row, tier_of
from batchpond.plan.stages.shelf import Shelf
from batchpond.providers import registry
from batchpond.study.prices import NOTHING, Estimate, Prices
from batchpond.study.spec import ItemsFrom
from batchpond.study.stages.config import to_config, to_json
from batchpond.study.stages.spec import CONVERSATION, INPUTS, OWN_OUTPUT_TASKS, PAIR_TASKS, StagedStudy, StageSpec
from batchpond.tasks import inputs
from batchpond.views.refresh import refresh

FIRST_ROUND: Final = 1
_SAMPLE_ASKS: Final = 200


@dataclass(frozen=True, slots=True)
class StageReport:
    """What is told of a stage; of one that waits, or has adaptive rounds, it is a forecast (`is_forecast`)."""

    name: str
    task: str
    waits_for: tuple[str, ...]
    is_forecast: bool
    n_requests: int
    input_tokens: int
    cost: Estimate


@dataclass(frozen=True, slots=True)
class StagedReport:
    """What planning a study of stages found and wrote; `cost` is of all stages, the forecast ones included."""

    study: str
    study_version: str
    is_new_version: bool
    n_requests: int
    stages: tuple[StageReport, ...]
    cost: Estimate
    dropped: tuple[Dropped, ...]
    caveats: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _StageDraft:
    """A stage with its ways, and its rows where it waits for nothing."""

    stage: StageSpec
    ways: Sequence[Way]
    rows: Sequence[SourceRow] | None
    seed: int
    n_asks: int = 0

    def asks(self) -> Iterator[Ask]:
        """Yield the asks of a stage that waits for nothing."""
        rows = self.rows or ()
        return talk_asks(self.stage, rows, {}) if self.stage.task == CONVERSATION else asks(self.stage, rows, self.seed)


def plan_staged(
    store: Store,
    study: StagedStudy,
    *,
    now: datetime | None = None,
    modules: Modules = registry.module,
    run_sql: SqlRows,
) -> StagedReport:
    """Write the first rounds of a study into the lake and return what all of it would ask and cost.

    Raises StudyError for what cannot be asked, BusyError when another process writes to the lake.
    """
    prices = Prices.of_lake(store.path / CONFIG, now or store.clock.now())
    with store.lock("plan"):
        dropped: list[Dropped] = []
        drafts = [_draft(store, study, stage, modules, run_sql, dropped) for stage in study.stages]
        version = _version(study, drafts)
        foreseen = forecast([_known(draft) for draft in drafts], prices)
        log = EventLog(store)
        study_row = f"p_study={study.name}/{version}"
        if not store.has(STUDIES, study_row):
            _check_later(store, study, drafts)
            for draft in drafts:
                if draft.rows is not None:
                    publish_round(store, study, version, FIRST_ROUND, draft.stage, draft.asks())
            store.publish(STUDIES, study_row, [_study_row(store, study, version, drafts, foreseen)])
        if version not in fold(log.events).rounds:
            log.append(round_event(store, study.name, version, INCOMPLETE, {}))
        is_new = _make_newest(log, study.name, version)
        refresh(store)
        last = fold(log.events).rounds[version]
        if may_have_answers(log.events, last):
            open_rounds(store, log.append, study, last)
            refresh(store)
        n_requests, _ = counts_of(store, study.name, version)
    return _report(study, version, n_requests, foreseen, dropped, _caveats(drafts), is_new=is_new)


def _draft(
    store: Store, study: StagedStudy, stage: StageSpec, modules: Modules, run_sql: SqlRows, dropped: list[Dropped]
) -> _StageDraft:
    ways, refused = make_ways(
        stage.models, modules, study.unsupported, f"{study.source}: stage {stage.name}", stage.output_schema
    )
    dropped += refused
    if stage.waits:
        return _StageDraft(stage, ways, None, study.seed)
    rows = _rows(store, study, stage, run_sql)
    draft = _StageDraft(stage, ways, rows, study.seed)
    n_asks = 0
    for ask in draft.asks():
        if not n_asks:
            _check_templates(stage, ask)
        n_asks += 1
    if not n_asks:
        raise StudyError(f"{study.source}: stage {stage.name} has nothing to ask about")
    n_cells = len(ways) * len(stage.templates) * max(1, len(stage.rubrics))
    adaptive.check_size(stage.name, stage.pairs, len(rows), n_cells)
    return dataclasses.replace(draft, n_asks=n_asks)


def _check_templates(stage: StageSpec, ask: Ask) -> None:
    for template in stage.templates:
        prompt_of(stage, template, ask)


def _check_later(store: Store, study: StagedStudy, drafts: Sequence[_StageDraft]) -> None:
    """Raise StudyError for what would fail only once earlier stages are paid for: SQL, and lacking placeholders."""
    for draft in drafts:
        stage = draft.stage
        if not stage.waits:
            continue
        refresh(store)
        check(store, stage)
        source = _source(study, stage)
        if source is not None and source.task in OWN_OUTPUT_TASKS | {INPUTS}:
            row = SourceRow("id", "text", "unit", None, "candidate", "input", more=_more(study, source))
            other = dataclasses.replace(row, item_id="other") if stage.task in PAIR_TASKS else None
            if stage.task != CONVERSATION:
                _check_templates(stage, probe((*stage.rubrics, NO_RUBRIC)[0], row, other))


def _source(study: StagedStudy, stage: StageSpec) -> StageSpec | None:
    """Return the stage whose answers a stage asks about."""
    kept = stage.rows.kept
    name = kept.questions[0] if kept else stage.rows.stage
    return study.stage(name) if name else None


def _more(study: StagedStudy, source: StageSpec) -> dict[str, Any]:
    """Return what a stage's rows will have besides their texts, as placeholders in small letters."""
    names: tuple[str, ...] = stage_talk.PLACES if source.task == CONVERSATION else ()
    step: StageSpec | None = source
    while step is not None and isinstance(step.rule, inputs.AnswerRule):
        names = (*names, KINDS[step.rule.step])
        step = _source(study, step)
    return dict.fromkeys(names, "text")


def _rows(store: Store, study: StagedStudy, stage: StageSpec, run_sql: SqlRows) -> Sequence[SourceRow]:
    if stage.rows.items is None:
        return [rubric_row(rubric) for rubric in stage.rubrics]
    source = (stage.rows.items, study.base_path, run_sql if stage.rows.items.source is ItemsFrom.SQL else None)
    rows = Shelf(store.path / TMP, (_row(item, stage) for item in each(*source)))
    if not rows.is_in_order:
        read_any(*source)  # tells which ids, and in which lines
    return rows


def _row(item: Item, stage: StageSpec) -> SourceRow:
    """Return a file's item as a row; the columns that say where it belongs are taken out of its metadata."""
    more: dict[str, Any] = orjson.loads(item.metadata) if item.metadata else {}
    taken = {name: more.pop(column, None) for name, column in stage.rows.columns.items()}
    tier = tier_of(stage, item.item_id, taken.pop("tier", None))
    known = {name: None if value is None else str(value) for name, value in taken.items()}
    unit_id = known.get("unit") or ("" if stage.task == "pairwise" else item.item_id)
    return SourceRow(
        item.item_id, item.text, unit_id, known.get("rubric"), known.get("candidate"), more=more, tier=tier
    )


def _version(study: StagedStudy, drafts: Sequence[_StageDraft]) -> str:
    parts = [to_json(study)]
    for draft in drafts:
        parts += [way.fingerprint for way in draft.ways]
        parts += sorted(row.item().item_hash for row in draft.rows or ())
    return ids.digest("staged study", *parts)


def _study_row(
    store: Store, study: StagedStudy, version: str, drafts: Sequence[_StageDraft], foreseen: Sequence[Forecast]
) -> dict[str, Any]:
    parsers = {draft.stage.rule.parser_id: dict(draft.stage.rule.to_spec()) for draft in drafts}
    later = {
        found.stage.name: {**dataclasses.asdict(found.later), "n_rounds": found.stage.n_later_rounds}
        for found in foreseen
        if found.later != NOTHING
    }
    return {
        "study": study.name,
        "study_version": version,
        "config": orjson.dumps({**to_config(study), "later": later}).decode("utf-8"),
        "parsers": orjson.dumps(parsers, option=orjson.OPT_SORT_KEYS).decode("utf-8"),
        "n_items": sum(len(draft.rows or ()) for draft in drafts),
        "n_pairs": None,
        "n_cells": sum(len(d.ways) * len(d.stage.templates) * max(1, len(d.stage.rubrics)) for d in drafts),
        "n_plan_rows": sum(d.n_asks * len(d.ways) * len(d.stage.templates) * d.stage.repeats for d in drafts),
        "n_requests": counts_of(store, study.name, version)[0],
    }


def _make_newest(log: EventLog, study: str, version: str) -> bool:
    planned = [event for event in log.events if isinstance(event, Planned) and event.study == study]
    if planned and max(planned, key=lambda event: event.ord).study_version == version:
        return False
    log.append(Planned(study=study, study_version=version))
    return True


# -- what is told ---------------------------------------------------------------------------------


def _known(draft: _StageDraft) -> Known:
    """Return what the forecast knows of a stage: of one that waits for nothing, what it asks."""
    if draft.rows is None:
        return Known(draft.stage, draft.ways, ask_bytes=_frame_bytes(draft.stage))
    sizes = [_size_of(draft.stage, ask) for ask in islice(draft.asks(), _SAMPLE_ASKS)]
    has_rubrics = bool(draft.stage.rubrics) or any(row.rubric_id is not None for row in draft.rows)
    return Known(
        draft.stage, draft.ways, len(draft.rows), sum(len(row.text.encode()) for row in draft.rows) / len(draft.rows),
        draft.n_asks, sum(sizes) / len(sizes), has_rubrics,
    )  # fmt: skip


def _frame_bytes(stage: StageSpec) -> float:
    """Return the mean size of a waiting stage's prompts without the texts of its rows."""
    if stage.task == CONVERSATION:
        return 0.0
    empty = SourceRow("", "", "", None, "", "", more=dict.fromkeys((*stage_talk.PLACES, *KINDS.values()), ""))
    other = empty if stage.task in PAIR_TASKS else None
    rubrics = stage.rubrics[:_SAMPLE_ASKS] or (NO_RUBRIC,)
    try:
        return sum(_size_of(stage, probe(rubric, empty, other)) for rubric in rubrics) / len(rubrics)
    except StudyError:  # a template names columns that only the rows will have
        return sum(len(template.text.encode()) for template in stage.templates) / len(stage.templates)


def _size_of(stage: StageSpec, ask: Ask) -> float:
    sizes = [size_bytes(prompt_of(stage, template, ask)) for template in stage.templates]
    return sum(sizes) / len(sizes) + stage.schema_bytes


def _report(
    study: StagedStudy, version: str, n_requests: int, foreseen: Sequence[Forecast], dropped: Sequence[Dropped],
    caveats: tuple[str, ...], *, is_new: bool,
) -> StagedReport:  # fmt: skip
    cost = NOTHING
    for found in foreseen:
        cost = cost + found.now + found.later
    reports = tuple(
        StageReport(
            found.stage.name, found.stage.task, found.stage.rows.waits_for,
            found.stage.waits or found.stage.pairs.adaptive is not None, found.n_requests,
            found.input_tokens, found.now + found.later,
        )
        for found in foreseen
    )  # fmt: skip
    return StagedReport(study.name, version, is_new, n_requests, reports, cost, tuple(dropped), caveats)


def _caveats(drafts: Sequence[_StageDraft]) -> tuple[str, ...]:
    rounds = [
        f"stage {draft.stage.name} asks in up to {draft.stage.pairs.adaptive.rounds} rounds, each chosen by the answers"
        " before it, and stops earlier where more would not help"
        for draft in drafts
        if draft.stage.pairs.adaptive is not None
    ]
    found = rounds + [
        f"{way.spec.provider}: {caveat}"
        for draft in drafts
        for way in draft.ways
        for caveat in registry.caveats(way.module, way.spec.model, way.spec.mode)
    ]
    found += [
        f"stage {draft.stage.name}: {way.spec.provider}/{way.spec.model} at thinking {way.thinking} does not take"
        f" {', '.join(way.left_out)}; left out"
        for draft in drafts
        for way in draft.ways
        if way.left_out
    ]
    return tuple(dict.fromkeys(found))
