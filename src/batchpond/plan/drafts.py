"""A study read in whole and checked, before anything is written: its stages, ways to ask, rows, and its version."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import orjson

from batchpond.errors import StudyError
from batchpond.lake.store import TMP, Store
from batchpond.plan.asks import NO_RUBRIC, Ask, SourceRow, SpilledRows, asks, placed_row, row_of_file, rubric_row
from batchpond.plan.blocks import Grid
from batchpond.plan.cells import (
    Dropped,
    ModelConfig,
    Modules,
    check_meant,
    check_served,
    make_model_configs,
    version,
)
from batchpond.plan.forecast import Known
from batchpond.plan.items import Item, Pairs, SqlRows, choose_pairs, each, read_any, read_pairs
from batchpond.plan.prompts import prompt_of, size_bytes
from batchpond.plan.rounds import adaptive
from batchpond.plan.rounds.inputs import KINDS, OF_TALK, talk_asks
from batchpond.plan.rounds.source import check
from batchpond.study.spec import CONVERSATION, INPUTS, OWN_OUTPUT_TASKS, PAIR_TASKS, ItemsFrom, StageSpec, Study
from batchpond.tasks import inputs
from batchpond.views.refresh import refresh

CELLS_MAX: Final = 10_000
_SAMPLE_ASKS: Final = 200


@dataclass(frozen=True, slots=True)
class StageDraft:
    """A stage with its ways to ask; where it waits for nothing, its rows, the pairs of them and how many asks.

    `grid` is set where every cell is asked the same pairs and the study is nothing but them.
    """

    stage: StageSpec
    configs: Sequence[ModelConfig]
    seed: int
    rows: Sequence[SourceRow] | None = None
    n_asks: int = 0
    pairs: Pairs | None = None
    grid: Grid | None = None

    @property
    def n_cells(self) -> int:
        """How many cells it has, as far as its own rubrics make them."""
        return len(self.configs) * len(self.stage.templates) * max(1, len(self.stage.rubrics))

    @property
    def n_plan_rows(self) -> int:
        """How many rows its first round has, where it waits for nothing."""
        if self.grid is not None:
            return len(self.grid) * self.n_cells
        return self.n_asks * len(self.configs) * len(self.stage.templates) * self.stage.repeats

    def asks(self) -> Iterator[Ask]:
        """Yield the asks of a stage that waits for nothing."""
        rows = self.rows or ()
        return talk_asks(self.stage, rows, {}) if self.stage.task == CONVERSATION else asks(self.stage, rows, self.seed)


@dataclass(frozen=True, slots=True)
class Draft:
    """A study worked out."""

    study: Study
    stages: Sequence[StageDraft]
    dropped: Sequence[Dropped]
    version: str

    @property
    def configs(self) -> Mapping[tuple[str, str, str, str], ModelConfig]:
        """All ways to ask, by stage, provider, model and thinking."""
        return {
            (draft.stage.name, config.spec.provider, config.spec.model, config.thinking): config
            for draft in self.stages
            for config in draft.configs
        }


def read(store: Store, study: Study, modules: Modules, run_sql: SqlRows, *, is_bought: bool = False) -> Draft:
    """Return a study with all it names read in; raises StudyError for what cannot be asked.

    One that `is_bought` was asked before, so that nothing is said against its models.
    """
    dropped: list[Dropped] = []
    stages = [_draft(store, study, stage, modules, run_sql, dropped) for stage in study.stages]
    if (n_cells := sum(draft.n_cells for draft in stages)) > CELLS_MAX:
        raise StudyError(f"{study.source}: makes {n_cells:,} cells; one study holds at most {CELLS_MAX:,}")
    if not is_bought:
        for draft in stages:
            check_meant(draft.configs, study.unsupported, study.place_of(draft.stage))
        check_served(store, (one for draft in stages for one in draft.configs), study.source)
    parts = [(draft.stage, draft.configs, draft.rows or ()) for draft in stages]
    return Draft(study, stages, dropped, version(study, parts))


def _draft(
    store: Store, study: Study, stage: StageSpec, modules: Modules, run_sql: SqlRows, dropped: list[Dropped]
) -> StageDraft:
    place = study.place_of(stage)
    configs, refused = make_model_configs(stage.models, modules, study.unsupported, place, stage.output_schema)
    dropped += refused
    draft = StageDraft(stage, configs, study.seed)
    if stage.waits:
        return draft
    draft = dataclasses.replace(draft, rows=_rows(store, study, stage, run_sql))
    draft = dataclasses.replace(draft, pairs=_pairs(draft))
    if draft.pairs is not None and study.is_pairs_alone and stage.pairs.adaptive is None and not stage.columns:
        return _grid_draft(draft, draft.pairs)
    return _asks_draft(study, draft)


def _grid_draft(draft: StageDraft, pairs: Pairs) -> StageDraft:
    n_asks = (len(pairs) + int(pairs.has_reverse.sum())) * max(1, len(draft.stage.rubrics))
    return dataclasses.replace(draft, n_asks=n_asks, grid=Grid(draft.stage, draft.rows or (), pairs))


def _asks_draft(study: Study, draft: StageDraft) -> StageDraft:
    stage, rows, n_asks = draft.stage, draft.rows or (), 0
    for n_asks, ask in enumerate(draft.asks(), 1):
        if n_asks == 1:
            _check_templates(stage, ask)
    if not n_asks:
        raise StudyError(f"{study.source}: stage {stage.name} has nothing to ask about")
    adaptive.check_size(stage.name, stage.pairs, len(rows), draft.n_cells)
    return dataclasses.replace(draft, n_asks=n_asks)


def _pairs(draft: StageDraft) -> Pairs | None:
    """Return the pairs of items that a stage compares in its first round, None for another task."""
    stage = draft.stage
    if stage.task != "pairwise":
        return None
    names = [row.item_id for row in draft.rows or ()]
    if stage.pairs.adaptive is None:
        return choose_pairs(names, stage.pairs, draft.seed)
    return adaptive.pairs_of(len(names), adaptive.first_round(names, stage.pairs, draft.seed, stage.name))


def _check_templates(stage: StageSpec, ask: Ask) -> None:
    for template in stage.templates:
        prompt_of(stage, template, ask)


def check_later(store: Store, draft: Draft) -> None:
    """Raise StudyError for what would fail only once earlier stages are paid for: SQL, and lacking placeholders."""
    study = draft.study
    for stage in (one for one in study.stages if one.waits):
        refresh(store)
        check(store, stage)
        source = _source(study, stage)
        if stage.task != CONVERSATION and source is not None and source.task in OWN_OUTPUT_TASKS | {INPUTS}:
            made = SourceRow("id", "text", "unit", None, "candidate", "input", more=_more(study, source))
            for row in _made_of(draft, source, made) if stage.columns else (made,):
                other = dataclasses.replace(row, text="other") if stage.task in PAIR_TASKS else None
                _check_templates(stage, Ask((*stage.rubrics, NO_RUBRIC)[0], row, other))


def _source(study: Study, stage: StageSpec) -> StageSpec | None:
    """Return the stage whose answers a stage asks about."""
    kept = stage.rows.kept
    name = kept.questions[0] if kept else stage.rows.stage
    return study.stage(name) if name else None


def _made_of(draft: Draft, source: StageSpec | None, made: SourceRow) -> Iterator[SourceRow]:
    """Yield a row that a stage's answers come to with what each item has that they are made of, as far as known."""
    rows = {one.stage.name: one.rows for one in draft.stages}
    while source is not None and rows[source.name] is None:
        source = _source(draft.study, source)
    for row in (rows[source.name] or ()) if source is not None else ():
        yield dataclasses.replace(made, item_id=row.item_id, more={**row.more, **made.more})


def _more(study: Study, source: StageSpec) -> dict[str, Any]:
    """Return what a stage's rows will have besides their texts, as placeholders in small letters."""
    names: tuple[str, ...] = OF_TALK if source.task == CONVERSATION else ()
    step: StageSpec | None = source
    while step is not None and isinstance(step.rule, inputs.InputsRule):
        names = (*names, KINDS[step.rule.step])
        step = _source(study, step)
    return dict.fromkeys(names, "text")


def _rows(store: Store, study: Study, stage: StageSpec, run_sql: SqlRows) -> Sequence[SourceRow]:
    if stage.rows.items is None:
        return [rubric_row(rubric) for rubric in stage.rubrics]
    source = (stage.rows.items, study.base_path, run_sql if stage.rows.items.source is ItemsFrom.SQL else None)
    if study.is_pairs_alone:
        return [row_of_file(item, stage) for item in read_pairs(*source)]
    rows = SpilledRows(store.path / TMP, (_row(item, stage) for item in each(*source)))
    if not rows.is_in_order:
        read_any(*source)  # tells which ids, and in which lines
    return rows


def _row(item: Item, stage: StageSpec) -> SourceRow:
    """Return a file's item as a row; the columns that say where it belongs are taken out of its metadata."""
    found: dict[str, Any] = orjson.loads(item.metadata) if item.metadata else {}
    told = {name: found.get(column) for name, column in stage.rows.columns.items()}
    more = {name: value for name, value in found.items() if name not in stage.rows.columns.values()}
    return placed_row(stage, item.item_id, item.text, told, more)


def known(draft: StageDraft) -> Known:
    """Return what the forecast knows of a stage: of one that waits for nothing, what it asks."""
    if draft.rows is None:
        return Known(draft.stage, draft.configs, ask_bytes=_frame_bytes(draft.stage))
    sizes = [_size_of(draft.stage, ask) for ask in islice(draft.asks(), _SAMPLE_ASKS)]
    has_rubrics = bool(draft.stage.rubrics) or any(row.rubric_id is not None for row in draft.rows)
    return Known(
        draft.stage, draft.configs, len(draft.rows),
        sum(len(row.text.encode()) for row in draft.rows) / len(draft.rows),
        draft.n_asks, sum(sizes) / len(sizes), has_rubrics,
    )  # fmt: skip


def _frame_bytes(stage: StageSpec) -> float:
    """Return the mean size of a waiting stage's prompts without the texts of its rows."""
    if stage.task == CONVERSATION:
        return 0.0
    empty = SourceRow("", "", "", None, "", "", more=dict.fromkeys((*OF_TALK, *KINDS.values()), ""))
    other = empty if stage.task in PAIR_TASKS else None
    rubrics = stage.rubrics[:_SAMPLE_ASKS] or (NO_RUBRIC,)
    try:
        return sum(_size_of(stage, Ask(rubric, empty, other)) for rubric in rubrics) / len(rubrics)
    except StudyError:  # a template names columns that only the rows will have
        return sum(len(template.text.encode()) for template in stage.templates) / len(stage.templates)


def _size_of(stage: StageSpec, ask: Ask) -> float:
    sizes = [size_bytes(prompt_of(stage, template, ask)) for template in stage.templates]
    return sum(sizes) / len(sizes) + stage.schema_bytes
