"""A map from a foreign batch's custom_ids to the requests that a study plans, checked as a whole.

A row names its request by whatever tells it apart in the study: its id, the part of it that a custom_id of a lake
carries, its slot, or any of the plan's columns. What is no planned request, could be several, or is another row's
too, is told with its line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from batchpond import ids
from batchpond.errors import UsageError
from batchpond.files import PROBLEMS_SHOWN_MAX, Columns, Problems, RowFile, listed
from batchpond.lake import tables
from batchpond.model import Mode
from batchpond.plan.versions import FIRST

if TYPE_CHECKING:
    import duckdb

ROWS_MAX: Final = 300_000  # more than any provider takes in one batch
_DIMENSIONS: Final = (
    "template_id", "rubric_id", "request_model", "thinking", "unit_id", "item_first", "item_second", "direction",
    "repeat_no",
)  # fmt: skip
_FILTERS: Final = ("request_id", "request_key", "slot", *_DIMENSIONS)
COLUMNS: Final = Columns(
    required=("custom_id",),
    optional=_FILTERS,
    aliases={
        "id": "custom_id", "key": "custom_id", "model": "request_model", "judge": "request_model",
        "id1": "item_first", "id2": "item_second", "item_a": "item_first", "item_b": "item_second",
        "template": "template_id", "trait": "rubric_id", "rubric": "rubric_id", "prompt_id": "unit_id",
        "repeat": "repeat_no",
    },
    suffixes=(".csv", ".jsonl", ".parquet"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Target:
    """What a map is read against: a study's plan at one provider, in one version or in any; `mode` is the batch's."""

    study: str
    version: str | None
    provider: str
    mode: Mode = Mode.BATCH


@dataclass(frozen=True, slots=True)
class LineRows:
    """The lines that a lake made a batch of, as a map: each custom_id carries a part of its request's id."""

    path: str
    custom_ids: Sequence[str]
    unit: str = "line"
    problems: Problems = field(default_factory=Problems)

    def blocks(self) -> Iterator[pa.Table]:
        """Yield one block of all lines."""
        schema = COLUMNS.schema
        n = len(self.custom_ids)
        given = {
            "line_no": range(1, n + 1),
            "custom_id": self.custom_ids,
            "request_key": [ids.request_key_of(custom_id) for custom_id in self.custom_ids],
        }
        yield pa.table([pa.array(given.get(f.name, [None] * n), f.type) for f in schema], schema=schema)


@dataclass(frozen=True, slots=True)
class BatchMap:
    """A map that holds: the requests of a batch in plan order, the custom_id of each, and one pair in words."""

    lines: pa.Table
    custom_ids: list[str]
    example: str


class MapReader:
    """A map's rows beside the lake's plan; `connection` has views of `TABLES`."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, file: RowFile | LineRows, target: Target) -> None:
        self._connection = connection
        self._file = file
        self._target = target

    def read(self) -> BatchMap:
        """Return the map; raises UsageError that lists the lines which cannot be used."""
        self._stage()
        for (mask,) in self._connection.execute("SELECT DISTINCT mask FROM given ORDER BY mask").fetchall():
            self._match(mask)
        self._check()
        lines = self._connection.sql(_LINES, params={"mode": self._target.mode, "tier": FIRST}).to_arrow_table()
        if not len(lines):
            raise UsageError(f"{self._file.path} has no rows", hint="it needs one per request of the batch")
        names = lines["custom_id"].to_pylist()
        return BatchMap(lines, names, f"{names[0]} = {lines['example'][0].as_py()}")

    def check_unasked(self, live: Mapping[str, str]) -> None:
        """Raise UsageError if a request that was read is answered, or in a shard of `live`, which says where."""
        where = {"shard_ids": list(live), "told": list(live.values())}
        ((n,),) = self._connection.execute(f"SELECT count(*) FROM ({_ASKED})", where).fetchall()
        if not n:
            return
        first = self._connection.execute(f"{_ASKED} ORDER BY line_no LIMIT {PROBLEMS_SHOWN_MAX}", where).fetchall()
        raise UsageError(
            f"{self._file.path}: {n:,} {'requests were' if n > 1 else 'request was'} asked by this lake already:"
            + listed((f"{self._file.unit} {line_no} {problem}" for line_no, problem in first), n),
            hint="`--force` takes the batch in all the same: `results` keeps what was answered first, and"
            " `result_attempts` shows both",
        )

    def _stage(self) -> None:
        blocks, n_rows = [], 0
        for block in self._file.blocks():
            n_rows += block.num_rows
            if n_rows > ROWS_MAX:
                raise UsageError(f"{self._file.path} has more than {ROWS_MAX:,} rows", hint="map one batch at a time")
            blocks.append(block)
        self._connection.register("map_file", pa.concat_tables(blocks))
        mask = ", ".join(f"CASE WHEN {name} IS NULL THEN '0' ELSE '1' END" for name in _FILTERS)
        self._connection.execute(tables.query(__package__, "map_given", mask=mask))
        target = self._target
        wanted = {"study": target.study, "version": target.version, "provider": target.provider}
        self._connection.execute(_WANTED, {**wanted, "key_length": ids.REQUEST_KEY_LENGTH})

    def _match(self, mask: str) -> None:
        """Match the rows that name their request by the same columns: each set of values is looked up once."""
        columns = ", ".join(name for name, bit in zip(_FILTERS, mask, strict=True) if bit == "1")
        if not columns:
            return
        told = "".join(f", CASE WHEN count(DISTINCT {name}) > 1 THEN '{name}' END" for name in _DIMENSIONS)
        matching = tables.query(__package__, "match", columns=columns, told=told)
        self._connection.execute(matching, {"mask": mask})

    def _check(self) -> None:
        file, target = self._file, self._target
        unit = {"unit": file.unit}
        ((n_found,),) = self._connection.execute(f"SELECT count(*) FROM ({_PROBLEMS})", unit).fetchall()
        n_bad = n_found + file.problems.n
        if not n_bad:
            return
        rows = self._connection.execute(
            f"SELECT line_no, problem, n FROM ({_PROBLEMS}) ORDER BY line_no LIMIT {PROBLEMS_SHOWN_MAX}", unit
        ).fetchall()
        unplanned = self._unplanned([line_no for line_no, _, n in rows if n == 0])
        first = [(line_no, unplanned.get(line_no, problem)) for line_no, problem, _ in rows]
        lines = (f"{file.unit} {line_no} {problem}" for line_no, problem in sorted([*first, *file.problems.shown]))
        raise UsageError(
            f"{file.path}: {n_bad:,} {'rows do' if n_bad > 1 else 'row does'} not name one {target.provider} request"
            f" of study {target.study}:{listed(lines, n_bad)}",
            hint=f"`batchpond query \"select * from plan_current where study = '{target.study}'\"` shows the"
            " requests; nothing was recorded",
        )

    def _unplanned(self, line_nos: list[int]) -> dict[int, str]:
        """Return which value of those lines no planned request has, for the lines where one alone is to blame."""
        found: dict[int, list[str]] = {}
        for name in _FILTERS if line_nos else ():
            unplanned = self._connection.execute(tables.query(__package__, "map_unplanned", column=name), [line_nos])
            for line_no, value in unplanned.fetchall():
                found.setdefault(line_no, []).append(f"{name} {value}")
        return {line_no: f"has {' and '.join(values)}, not planned" for line_no, values in found.items()}


_WANTED: Final = tables.query(__package__, "map_wanted")
_PROBLEMS: Final = tables.query(__package__, "map_problems")
# A request that several cells share is one line, described by the first of them.
_LINES: Final = tables.query(__package__, "matched_lines")
_ASKED: Final = tables.query(__package__, "matched_asked")
