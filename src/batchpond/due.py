"""What is due: planned requests that no shard holds yet, cut into shards; set-based throughout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

import duckdb
import pyarrow as pa

from batchpond import ids, shard
from batchpond.lake import tables
from batchpond.lake.events import Event, Kind
from batchpond.lake.schemas import SHARD_REQUESTS
from batchpond.lake.store import Store
from batchpond.payload import shard_file_name
from batchpond.prices import PriceBook

CUSTOM_ID_BYTES = ids.ATTEMPT_PREFIX_LENGTH + 1 + ids.REQUEST_KEY_LENGTH
CELLS_TEXT_MAX = 500
_FETCH_ROWS = 10_000

_DUE = """
with wanted as (
  select request_id, min(slot) as slot, min(pair_id) as pair_id, min(cell_id) as cell_id,
         min(template_id) as template_id, min(rubric_id) as rubric_id, min(thinking) as thinking
  from plan where study = $study and study_version = $version and mode = 'batch'
  group by request_id
), sampled as (
  select * from wanted order by pair_id, slot limit $sample
)
select s.request_id, s.slot, s.cell_id, s.template_id, s.rubric_id, s.thinking,
       r.provider, r.endpoint, r.request_model, r.size_bytes, r.estimated_input_tokens, r.max_output_tokens, r.filename
from sampled s
join requests r using (request_id)
where s.request_id not in (select request_id from shard_requests)
order by r.provider, r.endpoint, r.request_model, s.slot
"""


@dataclass(frozen=True, slots=True)
class DueRequest:
    """A planned request that has not been asked, with what sharding needs of it."""

    request_id: str
    provider: str
    endpoint: str
    request_model: str
    cell: tuple[str, str, str, str]
    size_bytes: int
    input_tokens: int
    max_output_tokens: int | None
    requests_file: str


@dataclass(frozen=True, slots=True)
class NewShard:
    """A shard that is about to be recorded: its fact, and its rows."""

    event: Event
    rows: tuple[DueRequest, ...]


def due_requests(store: Store, study: str, version: str, sample: int | None) -> Iterator[DueRequest]:
    """Yield the requests of a study version that no shard holds, by model, in plan order.

    `sample` keeps to the first so many of the plan in an order by pair that never changes: both
    directions and all cells of a pair come together, and a larger sample contains a smaller one.
    """
    names = ["plan", "requests", "shard_requests"]
    with tables.connect(store, names) as connection:
        parameters = {"study": study, "version": version, "sample": sample if sample is not None else 2**62}
        connection.execute(_DUE, parameters)
        while rows := connection.fetchmany(_FETCH_ROWS):
            yield from (_due_request(store, row) for row in rows)


def _due_request(store: Store, row: tuple[object, ...]) -> DueRequest:
    request_id, _, cell_id, template_id, rubric_id, thinking, provider, endpoint, model, size, tokens, out, path = row
    relative = str(path).removeprefix(f"{store.path}/requests/").removesuffix(".parquet")
    return DueRequest(
        str(request_id), str(provider), str(endpoint), str(model),
        (str(cell_id), str(template_id), str(rubric_id), str(thinking)),
        int(str(size)), int(str(tokens)), None if out is None else int(str(out)), relative,
    )  # fmt: skip


def new_shards(store: Store, picture: Picture, study: str, version: str, sample: int | None) -> Iterator[NewShard]:
    """Yield the shards that the study's due requests make, one at a time; reads only."""
    settings = config.load(store.path)
    book = PriceBook.load(store.path)
    rule = shard_rule(store, version)
    rows = due_requests(store, study, version, sample, void_shards(picture, study, version))
    for (provider, endpoint, model, _), group in groupby(rows, key=lambda row: _group(row, rule)):
        limits = _limits(provider, settings.limits_of(provider, model), rule)
        for members in shard.split(group, limits):
            yield _new_shard(study, version, provider, endpoint, model, members, book)
"""placeholder"""
