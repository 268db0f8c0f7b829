"""A round's requests as rows of the tables `requests` and `plan`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from batchpond.lake.schemas import PLAN, REQUESTS
from batchpond.plan.asks import NO_RUBRIC
from batchpond.plan.cells import Cell, ModelConfig, cell_id
from batchpond.plan.shards import Line, check_line, limits_of
from batchpond.study.spec import StageSpec
from batchpond.tasks.rubrics import Rubric
from batchpond.tasks.templates import Template

ASK_COLUMNS: Final = (
    "unit_id", "pair_id", "item_first", "item_second", "item_first_hash", "item_second_hash",
    "candidate_first", "candidate_second", "turn_no", "direction", "is_lo_first", "purpose", "gain", "tier",
)  # fmt: skip
"""What the rows of `plan` say of an ask, whichever cell it goes to."""
ASK_SCHEMA: Final = pa.schema([PLAN.schema.field(name) for name in ASK_COLUMNS])


@dataclass(frozen=True, slots=True)
class Round:
    """Where a stage's new rows stand: study, version, number of the round, its first free slot and file number.

    `stage_in_cells` is the stage as it enters the ids of cells, if it does; `is_only` says that the study has no
    rounds, so that its files are not named by them, and `is_fresh` that no row of the version is planned.
    """

    study: str
    version: str
    round_no: int
    stage: StageSpec
    configs: Sequence[ModelConfig]
    first_slot: int = 0
    first_file: int = 0
    stage_in_cells: str | None = None
    is_only: bool = False
    is_fresh: bool = False

    def file_name(self, number: int) -> str:
        """Return the name of its plan file `number`, from 0."""
        round_name = "" if self.is_only else f"-r{self.round_no:04d}"
        return f"p_study={self.study}/{self.version}{round_name}-{self.first_file + number:05d}"

    def cell(self, config: ModelConfig, template: Template, rubric: Rubric, number: int = 0) -> Cell:
        """Return one of its cells."""
        name = cell_id(self.study, config.dimensions(template.template_id, rubric.rubric_id), self.stage_in_cells)
        return Cell(number, name, template, rubric, config)

    def cells(self) -> list[Cell]:
        """Return the cells of its stage's own rubrics, one model after the other."""
        parts = itertools.product(self.configs, self.stage.templates, self.stage.rubrics or (NO_RUBRIC,))
        return [self.cell(*part, number) for number, part in enumerate(parts)]


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive requests; `cell_no` are places in `cells`, `asks` has the columns of `plan` that an ask decides."""

    cells: Sequence[Cell]
    cell_no: NDArray[np.int32]
    asks: pa.Table
    slots: NDArray[np.int64]
    repeat_no: NDArray[np.int32]
    request_ids: list[str]
    bodies: list[bytes]
    estimated_input_tokens: list[int]

    def check(self) -> None:
        """Raise StudyError for a request that no batch could hold."""
        for number, cell in enumerate(self.cells):
            places = np.flatnonzero(self.cell_no == number).tolist()
            largest = max(places, key=lambda place: len(self.bodies[place]))
            size_bytes, tokens = len(self.bodies[largest]), self.estimated_input_tokens[largest]
            limits = limits_of(cell.config.module.DESCRIPTOR, cell.config.spec.mode)
            check_line(Line(self.request_ids[largest], size_bytes, tokens), limits)


def requests_table(block: Block) -> pa.Table:
    """Return a block's rows of `requests`, one per slot, duplicates included."""
    bodies = pa.array(block.bodies, pa.binary()).cast(pa.string())
    columns: dict[str, Any] = {
        "request_id": pa.array(block.request_ids, pa.string()),
        "repeat_no": pa.array(block.repeat_no),
        "body": bodies,
        "size_bytes": pc.binary_length(bodies),
        "estimated_input_tokens": pa.array(block.estimated_input_tokens, pa.int32()),
    }
    of_cells: dict[str, list[Any]] = {
        "provider": [cell.group[0] for cell in block.cells],
        "endpoint": [cell.group[1] for cell in block.cells],
        "request_model": [cell.group[2] for cell in block.cells],
        "max_output_tokens": [cell.config.settings.max_output_tokens for cell in block.cells],
    }
    return _table(REQUESTS.schema, columns | _taken(REQUESTS.schema, of_cells, block))


def plan_table(found: Round, block: Block) -> pa.Table:
    """Return a block's rows of `plan`."""
    n, stage, cells = len(block.bodies), found.stage, block.cells
    columns: dict[str, Any] = {
        "study": _constant(found.study, n),
        "study_version": _constant(found.version, n),
        "parser_id": _constant(stage.rule.parser_id, n),
        "task": _constant(stage.task, n),
        "stage": _constant(stage.name, n),
        "round_no": pa.repeat(pa.scalar(found.round_no, pa.int32()), n),
        "slot": pa.array(block.slots),
        "request_id": pa.array(block.request_ids, pa.string()),
        "repeat_no": pa.array(block.repeat_no),
    }
    of_cells = {
        "mode": [cell.config.spec.mode.value for cell in cells],
        "cell_id": [cell.cell_id for cell in cells],
        "template_id": [cell.template.template_id for cell in cells],
        "template_hash": [cell.template.template_hash for cell in cells],
        "rubric_id": [cell.rubric.rubric_id for cell in cells],
        "rubric_hash": [cell.rubric.rubric_hash for cell in cells],
        "provider": [cell.group[0] for cell in cells],
        "endpoint": [cell.group[1] for cell in cells],
        "request_model": [cell.group[2] for cell in cells],
        "thinking": [cell.config.thinking for cell in cells],
    }
    of_asks = dict(zip(ASK_COLUMNS, block.asks.columns, strict=True))
    return _table(PLAN.schema, columns | _taken(PLAN.schema, of_cells, block) | of_asks)


def _constant(value: str, n: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.string()), n)


def _taken(schema: pa.Schema, of_cells: dict[str, list[Any]], block: Block) -> dict[str, pa.Array]:
    """Return what each row's cell says."""
    places = pa.array(block.cell_no)
    return {name: pa.array(values, schema.field(name).type).take(places) for name, values in of_cells.items()}


def _table(schema: pa.Schema, columns: dict[str, Any]) -> pa.Table:
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)
