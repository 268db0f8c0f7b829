"""A map from a foreign batch's custom_ids to the requests that a study plans, checked as a whole.

A row names its request by whatever tells it apart in the study: its id, its slot, or any of the
plan's columns. What is no planned request, could be several, or is another row's too, is told with
its line.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from batchpond.errors import UsageError
from batchpond.files import PROBLEMS_SHOWN_MAX, Columns, RowFile, listed
from batchpond.plan.shards import FIRST
from batchpond.run.due import DueRequest

if TYPE_CHECKING:
    import duckdb

ROWS_MAX: Final = 300_000  # more than any provider takes in one batch
TABLES: Final = ("plan", "requests", "shard_requests", "responses")
_DIMENSIONS: Final = (
    "template_id", "rubric_id", "request_model", "thinking", "unit_id", "item_first", "item_second", "direction",
    "repeat_no",
)  # fmt: skip
_FILTERS: Final = ("request_id", "slot", *_DIMENSIONS)
_NUMBERS: Final = ("slot", "repeat_no")
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
    """What a map is read against: a study version's plan at one provider."""

    study: str
    version: str
    provider: str


@dataclass(frozen=True, slots=True)
class BatchMap:
    """A map that holds: the requests of a batch in plan order, the custom_id of each, and one pair in words."""

    lines: list[DueRequest]
    custom_ids: list[str]
    example: str


class MapReader:
    """A map's rows beside the lake's plan; `connection` has views of `TABLES`."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, file: RowFile, target: Target) -> None:
        self._connection = connection
        self._file = file
        self._target = target

    def read(self) -> BatchMap:
        """Return the map; raises UsageError that lists the lines which cannot be used."""
        self._stage()
        for (mask,) in self._connection.execute("select distinct mask from given order by mask").fetchall():
            self._match(mask)
        self._check()
        rows = self._connection.execute(_LINES).fetchall()
        if not rows:
            raise UsageError(f"{self._file.path} has no rows", hint="it needs one per request of the batch")
        lines = [DueRequest._make((*row[2:], "", 0, FIRST, "")) for row in rows]
        return BatchMap(lines, [row[0] for row in rows], f"{rows[0][0]} = {rows[0][1]}")

    def check_unasked(self, live: Mapping[str, str]) -> None:
        """Raise UsageError if a request that was read is answered, or in a shard of `live`, which says where."""
        where = {"shard_ids": list(live), "told": list(live.values())}
        ((n,),) = self._connection.execute(f"select count(*) from ({_ASKED})", where).fetchall()
        if not n:
            return
        first = self._connection.execute(f"{_ASKED} order by line_no limit {PROBLEMS_SHOWN_MAX}", where).fetchall()
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
        self._connection.execute(_GIVEN)
        self._connection.execute(_WANTED, dataclasses.asdict(self._target))
        self._connection.execute(_MATCHED)

    def _match(self, mask: str) -> None:
        """Match the rows that name their request by the same columns: each set of values is looked up once."""
        columns = ", ".join(name for name, bit in zip(_FILTERS, mask, strict=True) if bit == "1")
        if not columns:
            return
        told = "".join(f", case when count(distinct {name}) > 1 then '{name}' end" for name in _DIMENSIONS)
        self._connection.execute(
            f"""
            insert into matched
            select line_no, coalesce(n, 0), found_id, differing
            from given
            left join (
                select {columns}, count(distinct request_id) as n, min(request_id) as found_id,
                       concat_ws(', '{told}) as differing
                from wanted group by {columns}
            ) as found using ({columns})
            where mask = $mask""",
            {"mask": mask},
        )

    def _check(self) -> None:
        file, target = self._file, self._target
        ((n_found,),) = self._connection.execute(f"select count({_problem(file.unit)}) from {_JUDGED}").fetchall()
        n_bad = n_found + file.problems.n
        if not n_bad:
            return
        rows = self._connection.execute(
            f"select line_no, {_problem(file.unit)} as problem, n from {_JUDGED}"
            f" where problem is not null order by line_no limit {PROBLEMS_SHOWN_MAX}"
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
            rows = self._connection.execute(
                f"select line_no, {_shown(name)} from given where list_contains($1, line_no) and {name} is not null"
                f" and {name} not in (select {name} from wanted where {name} is not null)",
                [line_nos],
            ).fetchall()
            for line_no, value in rows:
                found.setdefault(line_no, []).append(f"{name} {value}")
        return {line_no: f"has {' and '.join(values)}, not planned" for line_no, values in found.items()}


def _is_given(column: str) -> str:
    # pandas and R write a missing number as nan and NA.
    return f"lower(trim({column})) not in ('', 'nan', 'na')"


def _whole(column: str) -> str:
    return f"try_cast(case when {_is_given(column)} then regexp_replace(trim({column}), '\\.0+$', '') end as bigint)"


def _shown(column: str) -> str:
    return f"'''' || left(cast({column} as varchar), 60) || ''''"


def _bad_number(name: str) -> str:
    text = f"{name}_text"
    return f"when {_is_given(text)} and {name} is null then 'has {name} ' || {_shown(text)} || ', not a whole number'"


def _problem(unit: str) -> str:
    """Return the SQL of what is wrong with a row of `_JUDGED`, NULL where nothing is."""
    return f"""
        case
            when custom_id is null then 'has no custom_id'
            {" ".join(map(_bad_number, _NUMBERS))}
            when n is null then 'has a custom_id, but nothing that names its request'
            when n = 0 then 'combines what is not planned together'
            when n > 1 then 'fits ' || n || ' requests; give also ' || coalesce(nullif(differing, ''), 'slot')
            when id_line < line_no then 'repeats the custom_id of {unit} ' || id_line
            when request_line < line_no then 'names the same request as {unit} ' || request_line
        end"""


_GIVEN: Final = f"""
create temp table given as
select *, concat({", ".join(f"case when {name} is null then '0' else '1' end" for name in _FILTERS)}) as mask
from (
    select line_no, custom_id, {", ".join(name for name in _FILTERS if name not in _NUMBERS)},
           {", ".join(f"{name} as {name}_text, {_whole(name)} as {name}" for name in _NUMBERS)}
    from map_file
)"""

_WANTED: Final = f"""
create temp table wanted as
select {", ".join(_FILTERS)}
from plan where study = $study and study_version = $version and provider = $provider"""

_MATCHED: Final = "create temp table matched (line_no bigint, n bigint, found_id varchar, differing varchar)"

_JUDGED: Final = """
    given
    left join matched using (line_no)
    left join (select custom_id, min(line_no) as id_line from given group by custom_id) using (custom_id)
    left join (
        select found_id, min(line_no) as request_line from matched where n = 1 group by found_id
    ) using (found_id)"""

# A request that several cells share is one line, described by the first of them.
_LINES: Final = """
with described as (
    select request_id, min(slot) as slot, arg_min(template_id, slot) as template_id,
           arg_min(rubric_id, slot) as rubric_id, arg_min(thinking, slot) as thinking,
           concat_ws(' before ', arg_min(item_first, slot), arg_min(item_second, slot)) as items
    from wanted where request_id in (select found_id from matched) group by request_id
)
select given.custom_id, concat_ws(', ', d.template_id, d.rubric_id, r.request_model, d.thinking, d.items) as example,
       r.request_id, r.size_bytes, r.estimated_input_tokens, r.max_output_tokens, r.filename,
       r.provider, r.endpoint, r.request_model, 'batch' as mode, d.template_id, d.rubric_id, d.thinking
from matched
join given using (line_no)
join described as d on d.request_id = found_id
join requests as r on r.request_id = found_id
order by d.slot"""

_ASKED: Final = """
select line_no, case when attempt_id is not null then 'is answered in attempt ' || attempt_id else told end as problem
from matched
left join (
    select request_id, min(attempt_id) as attempt_id from responses
    where match = 'matched' and status = 'succeeded' group by request_id
) as answered on answered.request_id = found_id
left join (
    select request_id, min(told) as told
    from shard_requests join (select unnest($shard_ids) as shard_id, unnest($told) as told) using (shard_id)
    group by request_id
) as asked on asked.request_id = found_id
where attempt_id is not null or told is not null"""
