"""What a plan says about itself: counts, shards, tokens and a rough cost, read back from the lake."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import duckdb
import pyarrow as pa

from batchpond.model import Mode, PricedModel
from batchpond.plan.cells import Cell, Dropped
from batchpond.plan.pairs import Balance
from batchpond.plan.shard import GroupedLine, Limits, Line, own_limits, split_groups
from batchpond.study.prices import NOTHING, Estimate, Prices
from batchpond.study.spec import ShardsSpec

_FETCH_ROWS: Final = 10_000

Group = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CellReport:
    """One cell; a request that cells share is counted in the first of them only."""

    cell_id: str
    template_id: str
    rubric_id: str
    provider: str
    request_model: str
    thinking: str
    n_plan_rows: int
    n_requests: int
    n_to_ask: int
    estimated_input_tokens: int
    cost: Estimate
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModelReport:
    """One provider, endpoint, model and mode; tokens, shards and cost are of what is still to be asked."""

    provider: str
    endpoint: str
    request_model: str
    mode: Mode
    n_requests: int
    n_to_ask: int
    n_shards: int
    estimated_input_tokens: int
    size_bytes: int
    cost: Estimate


@dataclass(frozen=True, slots=True)
class PlanReport:
    """What planning found and wrote.

    `n_requests` counts different requests; `n_shared` is how many plan rows reuse one of them;
    `n_new` requests were added to the lake by this run; `n_answered_already` have a successful answer;
    `n_in_shards` were put into a batch before, answered or not; `n_to_ask` is neither.
    Costs are rough; None is unknown.
    """

    study: str
    study_version: str
    is_new_version: bool
    n_items: int
    n_pairs: int
    n_pairs_possible: int
    n_cells: int
    n_plan_rows: int
    n_requests: int
    n_shared: int
    n_new: int
    n_answered_already: int
    n_in_shards: int
    n_to_ask: int
    n_shards: int
    estimated_input_tokens: int
    cost: Estimate
    cells: tuple[CellReport, ...]
    models: tuple[ModelReport, ...]
    dropped: tuple[Dropped, ...]
    balance: Balance
    caveats: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CellCounts:
    """What the lake says of one cell."""

    n_requests: int = 0
    n_to_ask: int = 0
    estimated_input_tokens: int = 0
    size_bytes: int = 0


class Asked(NamedTuple):
    """Counts over a version's different requests."""

    n_requests: int
    n_answered: int
    n_in_shards: int


def read_asked(
    connection: duckdb.DuckDBPyConnection, study: str, version: str, n_asks: int, cells: Sequence[Cell]
) -> tuple[Asked, list[CellCounts]]:
    """Return the counts of a version, whole and by cell number, and leave the table `asked` behind.

    `connection` has views of plan, requests, responses and shard_requests. Each request counts in the
    cell of its first slot.
    """
    connection.execute(_ASKED, [study, version])
    total = connection.execute(
        "select count(*), count(*) filter (is_answered), count(*) filter (is_in_shard) from asked"
    ).fetchall()[0]
    by_cell = connection.execute(_BY_CELL, [n_asks]).fetchall()
    counts = [CellCounts()] * len(cells)
    for number, n_requests, n_to_ask, tokens, size_bytes in by_cell:
        counts[number] = CellCounts(n_requests, n_to_ask, tokens, size_bytes)
    return Asked(*total), counts


_ASKED = """
create or replace temp table asked as
with first_slots as (
    select request_id, min(slot) as slot from plan where study = ? and study_version = ? group by request_id
)
select
    f.slot, r.request_id, r.size_bytes, r.estimated_input_tokens,
    exists (
        select 1 from responses as a
        where a.request_id = r.request_id and a.status = 'succeeded' and a.match = 'matched'
    ) as is_answered,
    exists (select 1 from shard_requests as s where s.request_id = r.request_id) as is_in_shard
from first_slots as f
join requests as r on r.request_id = f.request_id
"""

_BY_CELL = """
select
    cast(slot // ? as integer) as cell_number,
    count(*) as n_requests,
    count(*) filter (not is_answered and not is_in_shard) as n_to_ask,
    cast(coalesce(sum(estimated_input_tokens) filter (not is_answered and not is_in_shard), 0) as bigint) as tokens,
    cast(coalesce(sum(size_bytes) filter (not is_answered and not is_in_shard), 0) as bigint) as size_bytes
from asked
group by cell_number
"""


def cell_reports(cells: Sequence[Cell], counts: Sequence[CellCounts], n_asks: int, prices: Prices) -> list[CellReport]:
    """Return what is told of each cell."""
    return [
        CellReport(
            cell_id=cell.cell_id,
            template_id=cell.template.template_id,
            rubric_id=cell.rubric.rubric_id,
            provider=cell.way.spec.provider,
            request_model=cell.way.spec.model,
            thinking=cell.way.thinking,
            n_plan_rows=n_asks,
            n_requests=count.n_requests,
            n_to_ask=count.n_to_ask,
            estimated_input_tokens=count.estimated_input_tokens,
            cost=prices.estimate(
                PricedModel(cell.way.spec.provider, cell.way.spec.model, cell.way.spec.mode),
                cell.way.thinking,
                cell.way.settings.max_output_tokens,
                count.n_to_ask,
                count.estimated_input_tokens,
            ),
            left_out=cell.way.left_out,
        )
        for cell, count in zip(cells, counts, strict=True)
    ]


def model_reports(
    cells: Sequence[Cell], counts: Sequence[CellCounts], reports: Sequence[CellReport], n_shards: Mapping[Group, int]
) -> list[ModelReport]:
    """Return what is told of each provider, endpoint and model, in the order of the study."""
    found = []
    for group in dict.fromkeys(cell.shard_group for cell in cells):
        members = [number for number, cell in enumerate(cells) if cell.shard_group == group]
        cost = NOTHING
        for number in members:
            cost = cost + reports[number].cost
        provider, endpoint, model, mode = group
        found.append(
            ModelReport(
                provider=provider,
                endpoint=endpoint,
                request_model=model,
                mode=mode,
                n_requests=sum(counts[number].n_requests for number in members),
                n_to_ask=sum(counts[number].n_to_ask for number in members),
                n_shards=n_shards.get(group, 0),
                estimated_input_tokens=sum(counts[number].estimated_input_tokens for number in members),
                size_bytes=sum(counts[number].size_bytes for number in members),
                cost=cost,
            )
        )
    return found


def shard_counts(
    connection: duckdb.DuckDBPyConnection,
    cells: Sequence[Cell],
    counts: Sequence[CellCounts],
    n_asks: int,
    spec: ShardsSpec,
) -> dict[Group, int]:
    """Return how many shards each (provider, endpoint, model, mode) takes; needs the table `asked`.

    Streams over ids and sizes. Raises UsageError for a request that no batch can hold.
    """
    keys: list[Group] = [(*cell.shard_group, cell.cell_id) if spec.per_cell else cell.shard_group for cell in cells]
    groups = list(dict.fromkeys(keys))
    n_lines = {group: 0 for group in groups}
    for group, count in zip(keys, counts, strict=True):
        n_lines[group] += count.n_to_ask
    limits = {group: limits_of(cell, spec) for group, cell in zip(keys, cells, strict=True)}
    segments = None if spec.segments is None else {group: (n, spec.segments) for group, n in n_lines.items()}
    rows = _lines(connection, [groups.index(group) for group in keys], groups, n_asks)
    found: dict[Group, int] = {}
    for group, _ in split_groups(rows, limits, segments):
        found[group[:4]] = found.get(group[:4], 0) + 1
    return found


def limits_of(cell: Cell, spec: ShardsSpec) -> Limits:
    """Return the limits of a cell's shards: the provider's, and the study's where it is stricter."""
    descriptor = cell.way.module.DESCRIPTOR
    if cell.way.spec.mode is not Mode.BATCH:
        return own_limits(spec.max_requests)
    return Limits(min(descriptor.max_requests, spec.max_requests or descriptor.max_requests), descriptor.max_bytes)


def _lines(
    connection: duckdb.DuckDBPyConnection, group_of_cell: Sequence[int], groups: Sequence[Group], n_asks: int
) -> Iterator[GroupedLine[Group]]:
    numbers = pa.table({"cell_number": pa.array(range(len(group_of_cell)), pa.int64()), "group_number": group_of_cell})
    connection.register("cell_groups", numbers)
    relation = connection.sql(
        "select group_number, request_id, size_bytes, estimated_input_tokens from asked "
        f"join cell_groups on cell_number = slot // {n_asks} "
        "where not is_answered and not is_in_shard order by group_number, slot"
    )
    for batch in relation.to_arrow_reader(_FETCH_ROWS):
        for group_number, *line in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield GroupedLine(groups[group_number], Line(*line))
