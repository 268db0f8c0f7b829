"""A grid of pairs, and its blocks of planned requests as rows of the tables `requests` and `plan`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from batchpond.lake.schemas import PLAN, REQUESTS
from batchpond.plan.asks import NO_RUBRIC, SourceRow
from batchpond.plan.cells import Cell, ModelConfig, cell_id
from batchpond.plan.grid import Asks, Block, asks
from batchpond.plan.pairs import Pairs, pair_id
from batchpond.study.stages.spec import StageSpec
from batchpond.tasks.rubrics import Rubric
from batchpond.tasks.templates import Template

_DIRECTIONS = pa.array(["forward", "reverse"])


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

    def cell_id(self, config: ModelConfig, template: Template, rubric: Rubric) -> str:
        """Return the id of one of its cells."""
        return cell_id(self.study, config.dimensions(template.template_id, rubric.rubric_id), self.stage_in_cells)

    def cells(self) -> list[Cell]:
        """Return the cells of its stage's own rubrics, one model after the other."""
        parts = itertools.product(self.configs, self.stage.templates, self.stage.rubrics or (NO_RUBRIC,))
        return [
            Cell(number, self.cell_id(config, template, rubric), template, rubric, config)
            for number, (config, template, rubric) in enumerate(parts)
        ]


class Grid:
    """Pairs of items that every cell is asked alike, so that they are written by blocks; items are in id order."""

    def __init__(self, stage: StageSpec, rows: Sequence[SourceRow], pairs: Pairs) -> None:
        self.items = [row.item() for row in rows]
        self.pairs = pairs
        self.asks: Asks = asks(pairs, max(stage.repeats, stage.pairs.repeats))
        own = np.array([row.tier or 0 for row in rows], np.int32)
        tiers = np.maximum(own[self.asks.first], own[self.asks.second])
        self.tiers = np.where(tiers == 0, stage.tier or 0, tiers)
        """The tier of each ask, that of its later item; 0 where there is none."""


def _constant(value: object, n: int, kind: pa.DataType | None = None) -> pa.Array:
    kind = kind or pa.string()
    return pa.nulls(n, kind) if value is None else pa.repeat(pa.scalar(value, kind), n)


class GridRows:
    """Makes rows of a grid's blocks; what all rows share is prepared once."""

    def __init__(self, place: Round, grid: Grid) -> None:
        self._place = place
        self._plan = grid.asks
        self._has_tiers = bool(grid.tiers.any())
        self._tiers = grid.tiers
        names = [item.item_id for item in grid.items]
        self._item_ids = pa.array(names, pa.string())
        self._item_hashes = pa.array([item.item_hash for item in grid.items], pa.string())
        members = zip(grid.pairs.lo.tolist(), grid.pairs.hi.tolist(), strict=True)
        self._pair_ids = pa.array((pair_id(names[lo], names[hi]) for lo, hi in members), pa.string())

    def requests(self, block: Block) -> pa.Table:
        """Return the block's rows of `requests`, one per slot, duplicates included."""
        n = len(block.bodies)
        provider, endpoint, model = block.cell.group
        bodies = pa.array(block.bodies, pa.binary()).cast(pa.string())
        columns: dict[str, Any] = {
            "request_id": pa.array(block.request_ids, pa.string()),
            "provider": _constant(provider, n),
            "endpoint": _constant(endpoint, n),
            "request_model": _constant(model, n),
            "repeat_no": pa.array(self._plan.repeat_no[block.start : block.start + n]),
            "body": bodies,
            "size_bytes": pc.binary_length(bodies),
            "estimated_input_tokens": pa.array(block.estimated_input_tokens, pa.int32()),
            "max_output_tokens": _constant(block.cell.config.settings.max_output_tokens, n, pa.int32()),
        }
        return pa.Table.from_arrays([columns[name] for name in REQUESTS.schema.names], schema=REQUESTS.schema)

    def plan(self, block: Block) -> pa.Table:
        """Return the block's rows of `plan`."""
        n, cell, place = len(block.bodies), block.cell, self._place
        part = slice(block.start, block.start + n)
        first, second = self._plan.first[part], self._plan.second[part]
        first_slot = place.first_slot + cell.number * len(self._plan)
        slots = np.arange(part.start, part.stop, dtype=np.int64) + first_slot
        provider, endpoint, model = cell.group
        columns: dict[str, Any] = {
            "study": _constant(place.study, n),
            "study_version": _constant(place.version, n),
            "slot": pa.array(slots),
            "request_id": pa.array(block.request_ids, pa.string()),
            "parser_id": _constant(place.stage.rule.parser_id, n),
            "task": _constant(place.stage.task, n),
            "stage": _constant(place.stage.name, n),
            "round_no": _constant(place.round_no, n, pa.int32()),
            "mode": _constant(cell.config.spec.mode.value, n),
            "cell_id": _constant(cell.cell_id, n),
            "template_id": _constant(cell.template.template_id, n),
            "template_hash": _constant(cell.template.template_hash, n),
            "rubric_id": _constant(cell.rubric.rubric_id, n),
            "rubric_hash": _constant(cell.rubric.rubric_hash, n),
            "provider": _constant(provider, n),
            "endpoint": _constant(endpoint, n),
            "request_model": _constant(model, n),
            "thinking": _constant(cell.config.thinking, n),
            "unit_id": _constant("", n),
            "pair_id": self._pair_ids.take(pa.array(self._plan.pair[part])),
            "item_first": self._item_ids.take(pa.array(first)),
            "item_second": self._item_ids.take(pa.array(second)),
            "item_first_hash": self._item_hashes.take(pa.array(first)),
            "item_second_hash": self._item_hashes.take(pa.array(second)),
            "candidate_first": _constant(None, n),
            "candidate_second": _constant(None, n),
            "turn_no": _constant(None, n, pa.int32()),
            "direction": _DIRECTIONS.take(pa.array(self._plan.is_reverse[part].astype(np.int8))),
            # Items are in id order, so the smaller position is the smaller id.
            "is_lo_first": pa.array(first < second),
            "repeat_no": pa.array(self._plan.repeat_no[part]),
            "purpose": _constant(None, n),
            "gain": _constant(None, n, pa.float64()),
            "tier": self._tiers_of(part),
        }
        return pa.Table.from_arrays([columns[name] for name in PLAN.schema.names], schema=PLAN.schema)

    def _tiers_of(self, part: slice) -> pa.Array:
        tiers = self._tiers[part]
        if not self._has_tiers:
            return pa.nulls(len(tiers), pa.int32())
        return pa.array(tiers, pa.int32(), mask=tiers == 0)
