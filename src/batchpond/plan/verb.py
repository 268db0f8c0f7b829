"""The verb `plan`: a study becomes requests and plan rows in the lake, and a report. Talks to nobody.

Idempotent and safe to kill: requests are published before the rows that refer to them, then the
study's own row, and last the event that makes the version the study's newest. A version whose row
stands is complete and is not written again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import duckdb
import orjson
import pyarrow as pa

from batchpond import views
from batchpond.lake import tables
from batchpond.lake.events.log import EventLog
from batchpond.lake.events.records import Planned
from batchpond.lake.schemas import ITEMS, PLAN, REQUESTS, RUBRICS, STUDIES, TEMPLATES
from batchpond.lake.store import CONFIG, Store
from batchpond.model import PricedModel
from batchpond.plan import resolved
from batchpond.plan.cells import Cell, Grid, Modules, make
from batchpond.plan.grid import Asks, Block, Texts, asks, blocks
from batchpond.plan.items import SqlRows
from batchpond.plan.pairs import Pairs, balance, choose
from batchpond.plan.publish import (
    PLAN_FILE_ROWS,
    REQUEST_FILE_ROWS,
    Spool,
    publish_inputs,
    publish_plan,
    publish_requests,
)
from batchpond.plan.report import (
    Asked,
    CellCounts,
    PlanReport,
    cell_reports,
    limits_of,
    model_reports,
    read_asked,
    shard_counts,
)
from batchpond.plan.resolved import Resolved
from batchpond.plan.rows import Rows
from batchpond.plan.shard import Limits, Line, check_line
from batchpond.providers import registry
from batchpond.study.prices import NOTHING, Prices
from batchpond.study.spec import ItemsFrom, Order, Study
from batchpond.views import refresh

_SQL_TIMEOUT_S: Final = 600.0  # the work on its rows included
_SQL_ROWS: Final = 1_000
_TABLES: Final = ("items", "rubrics", "templates", "requests", "plan", "responses", "shard_requests")


@dataclass(frozen=True, slots=True)
class _Draft:
    """A study worked out, before anything is written."""

    resolved: Resolved
    grid: Grid
    pairs: Pairs
    asks: Asks
    version: str

    @property
    def study(self) -> Study:
        return self.resolved.study

    @property
    def n_plan_rows(self) -> int:
        return len(self.asks) * len(self.grid.cells)


def plan_study(
    store: Store,
    study: Study,
    *,
    now: datetime | None = None,
    modules: Modules = registry.module,
    run_sql: SqlRows | None = None,
) -> PlanReport:
    """Write a study's requests and plan into the lake and return what would be asked, at which rough cost.

    `now` dates the prices. Raises StudyError for what cannot be asked, BusyError when another process
    writes to the lake.
    """
    prices = Prices.of_lake(store.path / CONFIG, now or store.clock.now())
    with store.lock("plan"):
        draft = _draft(store, study, modules, run_sql)
        study_row = f"p_study={study.name}/{draft.version}"
        n_new = 0 if store.has(STUDIES, study_row) else _write(store, draft)
        with tables.connect(store, _TABLES) as connection:
            asked, counts = read_asked(connection, study.name, draft.version, len(draft.asks), draft.grid.cells)
            n_shards = shard_counts(connection, draft.grid.cells, counts, len(draft.asks), study.shards)
        store.publish(STUDIES, study_row, _study_row(draft, asked.n_requests))
        is_new_version = _make_newest(store, study.name, draft.version)
        refresh.refresh(store)
    return _report(draft, asked, counts, n_shards, prices, n_new=n_new, is_new_version=is_new_version)


def _draft(store: Store, study: Study, modules: Modules, run_sql: SqlRows | None) -> _Draft:
    if study.items.source is ItemsFrom.SQL and run_sql is None:
        run_sql = sql_on_lake(store)
    found = resolved.resolve(study, run_sql)
    grid = make(study, found.templates, modules)
    pairs = choose([item.item_id for item in found.items], study.pairs, study.seed)
    return _Draft(found, grid, pairs, asks(pairs, study.pairs.repeats), resolved.version(found, grid.cells))


def sql_on_lake(store: Store) -> SqlRows:
    """Return what runs a study's SELECT over the lake, its views brought up to date before."""

    def run(sql: str) -> Iterable[Mapping[str, Any]]:
        refresh.refresh(store)
        for batch in views.stream_query(store.path, sql, timeout_s=_SQL_TIMEOUT_S):
            for start in range(0, batch.num_rows, _SQL_ROWS):
                yield from batch.slice(start, _SQL_ROWS).to_pylist()

    return run


def _write(store: Store, draft: _Draft) -> int:
    items, study = draft.resolved.items, draft.study
    rows = Rows(study.name, draft.version, items, draft.pairs, draft.asks, study.answer)
    with Spool(store, REQUESTS, REQUEST_FILE_ROWS) as requests, Spool(store, PLAN, PLAN_FILE_ROWS) as plan:
        for block in blocks(draft.grid.cells, draft.asks, Texts(items), study.answer):
            _check_sizes(block, limits_of(block.cell, study.shards))
            requests.add(rows.requests(block))
            plan.add(rows.plan(block))
        with tables.connect(store, _TABLES) as connection:
            n_new = publish_requests(store, connection, requests)
            _publish_inputs(store, connection, draft)
        publish_plan(store, study.name, draft.version, plan)
    return n_new


def _check_sizes(block: Block, limits: Limits) -> None:
    """Refuse a request that no batch could hold before anything is written."""
    largest = max(range(len(block.bodies)), key=lambda number: len(block.bodies[number]))
    line = Line(block.request_ids[largest], len(block.bodies[largest]), block.estimated_input_tokens[largest])
    check_line(line, limits)


def _publish_inputs(store: Store, connection: duckdb.DuckDBPyConnection, draft: _Draft) -> None:
    items = [(item.item_hash, item.item_id, item.text, item.metadata) for item in draft.resolved.items]
    rubrics = [(r.rubric_hash, r.rubric_id, r.name, r.description) for r in draft.study.rubrics]
    templates = [(t.template_hash, t.template_id, t.text) for t in draft.resolved.templates]
    for table, rows in ((ITEMS, items), (RUBRICS, rubrics), (TEMPLATES, templates)):
        columns = [pa.array(values, pa.string()) for values in zip(*rows, strict=True)]
        data = pa.Table.from_arrays(columns, schema=table.schema)
        publish_inputs(store, connection, table, table.schema.names[0], data)


def _study_row(draft: _Draft, n_requests: int) -> list[dict[str, Any]]:
    answer = draft.study.answer
    return [
        {
            "study": draft.study.name,
            "study_version": draft.version,
            "config": resolved.config_json(draft.study),
            "parsers": orjson.dumps({answer.parser_id: answer.to_spec()}, option=orjson.OPT_SORT_KEYS).decode("utf-8"),
            "n_items": len(draft.resolved.items),
            "n_pairs": len(draft.pairs),
            "n_cells": len(draft.grid.cells),
            "n_plan_rows": draft.n_plan_rows,
            "n_requests": n_requests,
        }
    ]


def _make_newest(store: Store, study: str, version: str) -> bool:
    """Record that this version is the study's newest, unless it is already; return whether it was recorded."""
    log = EventLog(store)
    planned = [event for event in log.events if isinstance(event, Planned) and event.study == study]
    if planned and max(planned, key=lambda event: event.ord).study_version == version:
        return False
    log.append(Planned(study=study, study_version=version))
    return True


def _report(
    draft: _Draft, asked: Asked, counts: Sequence[CellCounts], n_shards: Mapping[tuple[str, ...], int], prices: Prices,
    *, n_new: int, is_new_version: bool,
) -> PlanReport:  # fmt: skip
    cells = draft.grid.cells
    reports = cell_reports(cells, counts, len(draft.asks), prices)
    cost = NOTHING
    for report in reports:
        cost = cost + report.cost
    return PlanReport(
        study=draft.study.name,
        study_version=draft.version,
        is_new_version=is_new_version,
        n_items=len(draft.resolved.items),
        n_pairs=len(draft.pairs),
        n_pairs_possible=draft.pairs.n_possible,
        n_cells=len(cells),
        n_plan_rows=draft.n_plan_rows,
        n_requests=asked.n_requests,
        n_shared=draft.n_plan_rows - asked.n_requests,
        n_new=n_new,
        n_answered_already=asked.n_answered,
        n_in_shards=asked.n_in_shards,
        n_to_ask=sum(count.n_to_ask for count in counts),
        n_shards=sum(n_shards.values()),
        estimated_input_tokens=sum(count.estimated_input_tokens for count in counts),
        cost=cost,
        cells=tuple(reports),
        models=tuple(model_reports(cells, counts, reports, n_shards)),
        dropped=draft.grid.dropped,
        balance=balance([item.item_id for item in draft.resolved.items], draft.pairs),
        caveats=_caveats(cells),
        notes=tuple(_notes(draft, prices)),
    )


def _caveats(cells: Sequence[Cell]) -> tuple[str, ...]:
    """What providers say of themselves and of the models, each once."""
    found = [
        f"{spec.provider}: {caveat}"
        for spec, module in ((cell.way.spec, cell.way.module) for cell in cells)
        for caveat in registry.caveats(module, spec.model, spec.mode)
    ]
    return tuple(dict.fromkeys(found))


def _notes(draft: _Draft, prices: Prices) -> list[str]:
    """What the study's author should know before paying, in sentences."""
    study, notes = draft.study, []
    for cell in {cell.template.template_id: cell for cell in draft.grid.cells}.values():
        text = cell.template.text
        has_answers = "{ANSWER_FIRST}" in text and "{ANSWER_SECOND}" in text
        if not has_answers and not (study.answer.answer_first in text and study.answer.answer_second in text):
            notes.append(
                f"template {cell.template.template_id} does not spell out the two answers; a reply counts only if it "
                f"holds exactly one of {study.answer.answer_first} and {study.answer.answer_second}"
            )
    models = dict.fromkeys(PricedModel(spec.provider, spec.model, spec.mode) for spec in study.models)
    notes += [
        f"no {asked.mode} price is known for {asked.provider}/{asked.model}, so its cost is unknown; "
        f'set it under [prices."{asked.override}"] in the lake\'s {CONFIG}'
        for asked in models
        if prices.unit(asked) is None
    ]
    if any(cell.way.settings.max_output_tokens is None for cell in draft.grid.cells):
        notes.append("without max_output_tokens the worst cost is unknown")
    if study.pairs.count is not None and study.pairs.count > draft.pairs.n_possible:
        notes.append(
            f"pairs.count is {study.pairs.count:,}, but there are only {draft.pairs.n_possible:,} pairs; all are asked"
        )
    if study.pairs.order is Order.FIXED and study.pairs.reverse < 1:
        notes.append("with a fixed order and not every pair reversed, position and item cannot be told apart")
    for way in {cell.way.fingerprint: cell.way for cell in draft.grid.cells}.values():
        if way.left_out:
            names = ", ".join(way.left_out)
            notes.append(
                f"{way.spec.provider}/{way.spec.model} at thinking {way.thinking} does not take {names}; left out"
            )
    return notes
