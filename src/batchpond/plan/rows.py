"""Blocks of planned requests as rows of the tables `requests` and `plan`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from batchpond.lake.schemas import PLAN, REQUESTS
from batchpond.plan.grid import Asks, Block
from batchpond.plan.items import Item
from batchpond.plan.pairs import Pairs, pair_id
from batchpond.tasks.pairwise import TASK, AnswerRule

MAIN_STAGE = "main"
_DIRECTIONS = pa.array(["forward", "reverse"])


def _constant(value: object, n: int, kind: pa.DataType | None = None) -> pa.Array:
    kind = kind or pa.string()
    return pa.nulls(n, kind) if value is None else pa.repeat(pa.scalar(value, kind), n)


class Rows:
    """Makes rows for one study version; what all rows share is prepared once."""

    def __init__(
        self, study: str, version: str, items: Sequence[Item], pairs: Pairs, plan: Asks, answer: AnswerRule
    ) -> None:
        self._study = study
        self._version = version
        self._plan = plan
        self._parser_id = answer.parser_id
        names = [item.item_id for item in items]
        self._item_ids = pa.array(names, pa.string())
        self._item_hashes = pa.array([item.item_hash for item in items], pa.string())
        members = zip(pairs.lo.tolist(), pairs.hi.tolist(), strict=True)
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
            "max_output_tokens": _constant(block.cell.way.settings.max_output_tokens, n, pa.int32()),
        }
        return pa.Table.from_arrays([columns[name] for name in REQUESTS.schema.names], schema=REQUESTS.schema)

    def plan(self, block: Block) -> pa.Table:
        """Return the block's rows of `plan`."""
        n, cell = len(block.bodies), block.cell
        part = slice(block.start, block.start + n)
        first, second = self._plan.first[part], self._plan.second[part]
        slots = np.arange(part.start, part.stop, dtype=np.int64) + cell.number * len(self._plan)
        provider, endpoint, model = cell.group
        columns: dict[str, Any] = {
            "study": _constant(self._study, n),
            "study_version": _constant(self._version, n),
            "slot": pa.array(slots),
            "request_id": pa.array(block.request_ids, pa.string()),
            "parser_id": _constant(self._parser_id, n),
            "task": _constant(TASK, n),
            "stage": _constant(MAIN_STAGE, n),
            "round_no": _constant(1, n, pa.int32()),
            "mode": _constant(cell.way.spec.mode.value, n),
            "cell_id": _constant(cell.cell_id, n),
            "template_id": _constant(cell.template.template_id, n),
            "template_hash": _constant(cell.template.template_hash, n),
            "rubric_id": _constant(cell.rubric.rubric_id, n),
            "rubric_hash": _constant(cell.rubric.rubric_hash, n),
            "provider": _constant(provider, n),
            "endpoint": _constant(endpoint, n),
            "request_model": _constant(model, n),
            "thinking": _constant(cell.way.thinking, n),
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
            "tier": _constant(None, n, pa.int32()),
        }
        return pa.Table.from_arrays([columns[name] for name in PLAN.schema.names], schema=PLAN.schema)
