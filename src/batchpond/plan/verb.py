"""The verb `plan`: a study becomes requests and plan rows in the lake, and a report. Talks to nobody.

Stages that wait for nothing become requests, the others a forecast. Idempotent and safe to kill: requests are
published before the rows that refer to them, then the study's own row, and last the event that makes the version the
study's newest. A version whose row stands is complete and is not written again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import orjson

from batchpond.lake import tables
from batchpond.lake.attempts import fold
from batchpond.lake.events import EventLog
from batchpond.lake.records import FINAL, INCOMPLETE, Planned
from batchpond.lake.schemas import REQUESTS, STUDIES
from batchpond.lake.store import CONFIG, Store
from batchpond.plan import cells as forms
from batchpond.plan import drafts, versions
from batchpond.plan.cells import Modules
from batchpond.plan.drafts import Draft, StageDraft
from batchpond.plan.forecast import Forecast, forecast
from batchpond.plan.items import Balance, SqlRows, balance
from batchpond.plan.report import (
    CellReport,
    Counted,
    PlanReport,
    StageReport,
    caveats,
    cell_reports,
    count,
    model_reports,
    notes,
)
from batchpond.plan.rounds.inputs import query
from batchpond.plan.rounds.rounds import FIRST_ROUND, open_rounds, publish_round, round_event
from batchpond.providers import registry
from batchpond.study.prices import Prices, total
from batchpond.study.spec import Study
from batchpond.tasks.base import READER
from batchpond.views import refresh

_TABLES: Final = ("requests", "plan", "responses", "shard_requests")


def plan_study(
    store: Store,
    study: Study,
    *,
    now: datetime | None = None,
    modules: Modules = registry.module,
    run_sql: SqlRows | None = None,
    is_bought: bool = False,
) -> PlanReport:
    """Write what a study asks from the start into the lake and return what all of it would ask, at which rough cost.

    `now` dates the prices. A study that `is_bought` was asked from another lake: what speaks against asking its models
    now, such as that they have ended, is no error. Raises StudyError for what cannot be asked, BusyError when another
    process writes to the lake.
    """
    prices = Prices.of_lake(store.path / CONFIG, now or store.clock.now())
    with store.lock("plan"):
        draft = drafts.read(store, study, modules, run_sql or sql_on_lake(store), is_bought=is_bought)
        is_known = any(one.stage.waits or one.stage.goes_on for one in draft.stages)
        foreseen = forecast([drafts.known(one) for one in draft.stages], prices) if is_known else []
        study_row = f"p_study={study.name}/{draft.version}"
        n_before = _n_requests(store)
        is_planned = store.has(STUDIES, study_row)
        told = _told(store, draft, is_planned=is_planned)
        if not is_planned:
            drafts.check_later(store, draft)
            _write(store, draft)
        counted = _counted(store, draft)
        if not is_planned:
            store.publish(STUDIES, study_row, [_study_row(draft, foreseen, counted.n_requests)])
        log = EventLog(store)
        is_new_version = _make_newest(store, log, draft)
        refresh.refresh(store)
        if _open_rounds(store, log, draft):
            counted = _counted(store, draft)
        n_new = _n_requests(store) - n_before
    return _report(draft, counted, foreseen, prices, told, n_new=n_new, is_new_version=is_new_version)


def sql_on_lake(store: Store) -> SqlRows:
    """Return what runs a study's SELECT over the lake, its views brought up to date before."""

    def run(sql: str) -> Iterable[Mapping[str, Any]]:
        refresh.refresh(store)
        yield from query(store, sql)

    return run


def _told(store: Store, draft: Draft, *, is_planned: bool) -> set[str]:
    """Return the providers whose general facts an earlier plan of this lake has told."""
    if is_planned:
        return {config.spec.provider for config in draft.configs.values()}
    with tables.connect(store, ["plan"]) as connection:
        return {provider for (provider,) in connection.execute("SELECT DISTINCT provider FROM plan").fetchall()}


def _n_requests(store: Store) -> int:
    with tables.connect(store, [REQUESTS.name]) as connection:
        ((n_requests,),) = connection.execute("SELECT count(*) FROM requests").fetchall()
    return int(n_requests)


def _write(store: Store, draft: Draft) -> None:
    for one in draft.stages:
        if one.rows is not None:
            asked = one.grid or one.asks()
            publish_round(
                store, draft.study, draft.version, FIRST_ROUND, one.stage, asked, configs=one.configs,
                is_only=not draft.study.has_rounds,
            )  # fmt: skip


def _counted(store: Store, draft: Draft) -> Counted:
    with tables.connect(store, _TABLES) as connection:
        return count(connection, draft.study.name, draft.version, draft.configs, draft.study.shards)


def _study_row(draft: Draft, foreseen: Sequence[Forecast], n_requests: int) -> dict[str, Any]:
    stages = draft.stages
    parsers = {one.stage.rule.parser_id: dict(one.stage.rule.to_spec()) for one in stages}
    n_pairs, _ = _n_pairs(stages)
    return {
        "study": draft.study.name,
        "study_version": draft.version,
        "config": forms.config_json(draft.study, foreseen),
        "parsers": orjson.dumps(parsers, option=orjson.OPT_SORT_KEYS).decode("utf-8"),
        "n_items": sum(len(one.rows or ()) for one in stages),
        "n_pairs": n_pairs,
        "n_cells": sum(one.n_cells for one in stages),
        "n_plan_rows": sum(one.n_plan_rows for one in stages),
        "n_requests": n_requests,
    }


def _n_pairs(stages: Sequence[StageDraft]) -> tuple[int, int] | tuple[None, None]:
    """Return how many pairs are compared from the start, and of how many, where any are."""
    found = [one.pairs for one in stages if one.pairs is not None]
    return (sum(map(len, found)), sum(pairs.n_possible for pairs in found)) if found else (None, None)


def _make_newest(store: Store, log: EventLog, draft: Draft) -> bool:
    """Record that this version is the newest, unless it is, and return whether; a new study has the newest reader."""
    study, version = draft.study.name, draft.version
    if draft.study.has_rounds and version not in fold(log.events).rounds:
        is_open = any(stage.waits or stage.goes_on for stage in draft.study.stages)
        log.append(round_event(store, study, version, INCOMPLETE if is_open else FINAL, {}))
    planned = [event for event in log.events if isinstance(event, Planned) and event.study == study]
    last = max(planned, key=lambda event: event.ord, default=None)
    if last and last.study_version == version:
        return False
    log.append(Planned(study=study, study_version=version, reader=last.reader if last else READER))
    return True


def _open_rounds(store: Store, log: EventLog, draft: Draft) -> bool:
    """Plan what answers that the lake has make possible; return whether that is anything."""
    if not draft.study.has_rounds:
        return False
    lake_state = fold(log.events)
    last, sample = lake_state.rounds[draft.version], versions.sample_of(lake_state, draft.study.name)
    if last.is_final:
        return False
    is_due = not last.is_complete or bool(lake_state.settled_since(last.ord))
    opened = is_due and open_rounds(store, log.append, draft.study, last, sample=sample)
    refresh.refresh(store)
    return bool(opened)


def _report(
    draft: Draft,
    counted: Counted,
    foreseen: Sequence[Forecast],
    prices: Prices,
    told: Collection[str],
    *,
    n_new: int,
    is_new_version: bool,
) -> PlanReport:
    stages = draft.stages
    cells = cell_reports(counted, draft.configs, draft.study.stages, prices)
    n_pairs, n_pairs_possible = _n_pairs(stages)
    compared = [one for one in stages if one.pairs is not None]
    stage_reports = _stage_reports(draft, cells, foreseen)
    return PlanReport(
        study=draft.study.name,
        study_version=draft.version,
        is_new_version=is_new_version,
        n_items=sum(len(one.rows or ()) for one in stages),
        n_pairs=n_pairs,
        n_pairs_possible=n_pairs_possible,
        n_cells=len(cells),
        n_plan_rows=counted.n_plan_rows,
        n_requests=counted.n_requests,
        n_shared=counted.n_plan_rows - counted.n_requests,
        n_new=n_new,
        n_answered_already=counted.n_answered,
        n_in_shards=counted.n_in_shards,
        n_to_ask=sum(cell.n_to_ask for cell in cells),
        n_shards=sum(counted.n_shards.values()),
        estimated_input_tokens=sum(cell.estimated_input_tokens for cell in cells),
        cost=total(stage.cost for stage in stage_reports),
        stages=tuple(stage_reports),
        cells=tuple(cells),
        models=tuple(model_reports(counted, cells)),
        dropped=tuple(draft.dropped),
        balance=_balance(compared[0]) if len(compared) == 1 else None,
        caveats=caveats(draft, told),
        notes=notes(draft, prices),
    )


def _balance(one: StageDraft) -> Balance | None:
    return None if one.pairs is None else balance([row.item_id for row in one.rows or ()], one.pairs)


def _stage_reports(draft: Draft, cells: Sequence[CellReport], foreseen: Sequence[Forecast]) -> list[StageReport]:
    """Return what is told of each stage: what is planned of it, and what is foreseen where it waits."""
    later = {found.stage.name: found for found in foreseen if found.stage.waits or found.stage.goes_on}
    reports = []
    for stage in draft.study.stages:
        own = [cell for cell in cells if cell.stage == stage.name]
        n_requests, input_tokens = (
            sum(cell.n_requests for cell in own),
            sum(cell.estimated_input_tokens for cell in own),
        )
        cost = total(cell.cost for cell in own)
        if found := later.get(stage.name):
            n_requests, input_tokens, cost = found.n_requests, found.input_tokens, cost + found.later
        reports.append(
            StageReport(stage.name, stage.task, stage.rows.waits_for, found is not None, n_requests, input_tokens, cost)
        )
    return reports
