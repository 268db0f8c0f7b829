"""Requests and plan rows on their way into the lake: one round of a stage.

A round is published like a plan: requests first, then the rows that refer to them, last the event that
says the round stands. The same asks make the same files, so a process may die anywhere and the next one
completes the round without a trace.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from batchpond import ids
from batchpond.errors import StudyError
from batchpond.lake import failpoints
from batchpond.lake.schemas import ITEMS, PLAN, REQUESTS, RUBRICS, TEMPLATES, Table
from batchpond.lake.store import Store, read_rows
from batchpond.lake.tables import literal
from batchpond.model import Prompt, Role, Turn
from batchpond.plan.asks import NO_RUBRIC, Ask, SourceRow
from batchpond.plan.cells import ModelConfig, canonical
from batchpond.plan.grid import BYTES_PER_TOKEN, FRAME_TOKENS, Block, Texts, blocks
from batchpond.plan.items import Item
from batchpond.plan.publish import (
    PLAN_FILE_ROWS,
    REQUEST_FILE_ROWS,
    Spool,
    publish_inputs,
    publish_requests,
    publish_rows,
)
from batchpond.plan.rows import Grid, GridRows, Round
from batchpond.plan.shards import Line, check_line, limits_of
from batchpond.study.spec import THINKING_DEFAULT
from batchpond.study.stages.spec import OWN_OUTPUT_TASKS, StageSpec
from batchpond.tasks.rubrics import Rubric
from batchpond.tasks.templates import Template

if TYPE_CHECKING:
    import duckdb

CHUNK_ROWS: Final = 512
ITEM_FILE_ROWS: Final = REQUEST_FILE_ROWS
_FETCH_ROWS: Final = 10_000
_SEPARATOR: Final = "\x1f"

_PLANNED: Final = """
select md5(concat_ws(chr(31), rubric_id, item_first, coalesce(item_second, ''), coalesce(turn_no::varchar, 'None'),
                     case when turn_no > 0 and task = 'conversation' then candidate_first else '' end)) as ask,
       case when turn_no > 0 and task = 'conversation' then $n_repeats else $n_rows end as n_wanted, count(*) as n_found
from plan where study = $study and study_version = $version and stage = $stage
group by ask, n_wanted having n_found >= n_wanted
"""
_FRESH: Final = """
create or replace temp table fresh_rows as
select {number} as file_number, file_row_number as place from read_parquet({path}, file_row_number = true) as staged
where not exists (
  select 1 from plan where plan.study = $study and plan.study_version = $version and plan.cell_id = staged.cell_id
    and plan.item_first = staged.item_first and plan.item_second is not distinct from staged.item_second
    and plan.turn_no is not distinct from staged.turn_no and plan.repeat_no = staged.repeat_no
)
"""


def candidate_label(config: ModelConfig, template: Template, stage: StageSpec) -> str:
    """Return the name under which a model's own outputs go on: what tells it from the stage's other ways."""
    spec = config.spec
    return label_of(spec.provider, spec.model, config.thinking, template.template_id, n_templates=len(stage.templates))


def label_of(provider: str, model: str, thinking: str, template_id: str, *, n_templates: int) -> str:
    """Return what tells one way to ask from the others of a stage."""
    label = f"{provider}/{model}" if thinking == THINKING_DEFAULT else f"{provider}/{model}@{thinking}"
    return label if n_templates == 1 else f"{label}#{template_id}"


def ask_id(ask: Ask) -> int:
    """Return a digest of what tells an ask from the stage's others."""
    return int(hashlib.md5(_SEPARATOR.join(ask.key).encode("utf-8"), usedforsecurity=False).hexdigest(), 16)


class PlannedAsks:
    """The `ask_id`s of asks that are planned, in 16 bytes each."""

    def __init__(self, digests: bytes) -> None:
        both = np.frombuffer(digests, np.dtype([("high", ">u8"), ("low", ">u8")]))
        self._sorted = np.sort(both.astype([("high", np.uint64), ("low", np.uint64)]))

    def __contains__(self, ask: int) -> bool:
        high, low = divmod(ask, 1 << 64)
        place = int(self._sorted["high"].searchsorted(np.uint64(high)))
        while place < len(self._sorted) and int(self._sorted["high"][place]) == high:
            if int(self._sorted["low"][place]) == low:
                return True
            place += 1
        return False


def planned_asks(connection: duckdb.DuckDBPyConnection, found: Round) -> PlannedAsks:
    """Return the `ask_id`s of a stage's asks of which every row is planned; `connection` has a view of `plan`."""
    stage = found.stage
    values = {
        "study": found.study,
        "version": found.version,
        "stage": stage.name,
        "n_rows": len(found.configs) * len(stage.templates) * stage.repeats,
        "n_repeats": stage.repeats,
    }
    result = connection.execute(_PLANNED, values)
    digests = bytearray()
    while rows := result.fetchmany(_FETCH_ROWS):
        digests += bytes.fromhex("".join(row[0] for row in rows))
    return PlannedAsks(bytes(digests))


def publish(store: Store, connection: duckdb.DuckDBPyConnection, found: Round, asks: Iterable[Ask]) -> int:
    """Write the requests and plan rows of asks, and return how many rows the lake lacked.

    `connection` has views of `plan`, `requests` and the input tables. Rows that stand already, as when a
    process died between two files of a round, are left out. Raises StudyError for a request that no batch
    could hold, before anything is written.
    """
    with (
        Spool(store, REQUESTS, REQUEST_FILE_ROWS) as requests,
        Spool(store, PLAN, PLAN_FILE_ROWS) as plan,
        Spool(store, ITEMS, ITEM_FILE_ROWS) as items,
    ):
        inputs = _Inputs(items)
        for chunk in _chunks(_planned(found, inputs.noted(asks)), CHUNK_ROWS):
            requests.add(_table(REQUESTS.schema, [request for request, _ in chunk]))
            plan.add(_table(PLAN.schema, [row for _, row in chunk]))
        return _settle(store, connection, found, (requests, plan, items), inputs.rubrics.values())


def publish_grid(store: Store, connection: duckdb.DuckDBPyConnection, found: Round, grid: Grid) -> int:
    """Write a grid's requests and plan rows as `publish` does those of asks, a block at a time."""
    with (
        Spool(store, REQUESTS, REQUEST_FILE_ROWS) as requests,
        Spool(store, PLAN, PLAN_FILE_ROWS) as plan,
        Spool(store, ITEMS, ITEM_FILE_ROWS) as items,
    ):
        rows = GridRows(found, grid)
        for block in blocks(found.cells(), grid.asks, Texts(grid.items), found.stage.rule.values()):
            _check_sizes(block)
            requests.add(rows.requests(block))
            plan.add(rows.plan(block))
        items.add(_columns(ITEMS, [_item_values(item) for item in grid.items]))
        return _settle(store, connection, found, (requests, plan, items), found.stage.rubrics or (NO_RUBRIC,))


def _check_sizes(block: Block) -> None:
    """Refuse a request that no batch could hold before anything is written."""
    config = block.cell.config
    largest = max(range(len(block.bodies)), key=lambda number: len(block.bodies[number]))
    line = Line(block.request_ids[largest], len(block.bodies[largest]), block.estimated_input_tokens[largest])
    check_line(line, limits_of(config.module.DESCRIPTOR, config.spec.mode))


def _settle(
    store: Store, connection: duckdb.DuckDBPyConnection, found: Round, spools: tuple[Spool, Spool, Spool],
    rubrics: Collection[Rubric],
) -> int:  # fmt: skip
    """Publish what is spooled, inputs and requests before the rows that refer to them; return how many rows are new."""
    requests, plan, items = spools
    if not rubrics:
        return 0
    publish_requests(store, connection, requests)
    _publish_inputs(store, connection, found.stage, rubrics, items)
    failpoints.reach("R0")
    return _publish_plan(store, connection, found, plan.finish())


def _publish_plan(store: Store, connection: duckdb.DuckDBPyConnection, found: Round, paths: Sequence[Path]) -> int:
    n_rows = 0
    for number, path in enumerate(paths):
        if found.is_fresh:
            n_rows += pq.read_metadata(path).num_rows
            store.publish_file(PLAN, found.file_name(number), path)
            continue
        sql = _FRESH.format(number=number, path=literal(os.fspath(path)))
        connection.execute(sql, {"study": found.study, "version": found.version})
        places = connection.execute("select place from fresh_rows").fetchnumpy()["place"]
        publish_rows(store, PLAN, path, places, found.file_name(number))
        n_rows += len(places)
    return n_rows


def _chunks(rows: Iterable[Any], size: int) -> Iterator[list[Any]]:
    iterator = iter(rows)
    while chunk := list(itertools.islice(iterator, size)):
        yield chunk


def _table(schema: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=schema)


def _planned(found: Round, asks: Iterable[Ask]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    slots = itertools.count(found.first_slot)
    schema_bytes = found.stage.schema_bytes
    asked = [
        (
            config,
            template,
            limits_of(config.module.DESCRIPTOR, config.spec.mode),
            candidate_label(config, template, found.stage),
        )
        for config in found.configs
        for template in found.stage.templates
    ]
    for ask in asks:
        for config, template, limits, label in asked:
            if ask.only not in (None, label):
                continue
            prompt = prompt_of(found.stage, template, ask)
            body = canonical(config.module.build_body(prompt, config.settings).body)
            tokens = tokens_of(size_bytes(prompt) + schema_bytes)
            place = _place(found, config, template, ask, label)
            for repeat_no in range(1, found.stage.repeats + 1):
                request = _request(config, body, tokens, repeat_no)
                check_line(Line(request["request_id"], len(body), tokens), limits)
                rest = {"slot": next(slots), "request_id": request["request_id"], "repeat_no": repeat_no}
                yield request, place | rest


def tokens_of(n_bytes: int) -> int:
    """Return the estimated tokens of a prompt."""
    return -(-n_bytes // BYTES_PER_TOKEN) + FRAME_TOKENS


def prompt_of(stage: StageSpec, template: Template, ask: Ask) -> Prompt:
    """Return what is asked: the filled template or the ask's own text, after the conversation so far."""
    if ask.text is not None:
        return (*ask.history, Turn(Role.USER, ask.text)) if ask.history else ask.text
    values = {**stage.rule.values(), **ask.values}
    try:
        return stage.rule.placeholders.fill(template.text, values)
    except KeyError as error:
        raise StudyError(
            f"stage {stage.name}: template {template.template_id} asks for {{{error.args[0]}}}, which"
            f" {ask.first.item_id!r} does not have",
            hint="name the column that holds it under [stages.items], or leave the placeholder out",
        ) from None


def size_bytes(prompt: Prompt) -> int:
    """Return the size of all texts of a prompt, in UTF-8."""
    texts = [prompt] if isinstance(prompt, str) else [turn.text for turn in prompt]
    return sum(len(text.encode("utf-8")) for text in texts)


def _request(config: ModelConfig, body: bytes, tokens: int, repeat_no: int) -> dict[str, Any]:
    settings, provider = config.settings, config.spec.provider
    return {
        "request_id": ids.request_id(provider, settings.endpoint, settings.request_model, body, repeat_no),
        "provider": provider,
        "endpoint": settings.endpoint,
        "request_model": settings.request_model,
        "repeat_no": repeat_no,
        "body": body.decode("utf-8"),
        "size_bytes": len(body),
        "estimated_input_tokens": tokens,
        "max_output_tokens": settings.max_output_tokens,
    }


def _place(found: Round, config: ModelConfig, template: Template, ask: Ask, label: str) -> dict[str, Any]:
    stage, first, second = found.stage, ask.first, ask.second
    is_own = stage.task in OWN_OUTPUT_TASKS
    return {
        "study": found.study,
        "study_version": found.version,
        "parser_id": stage.rule.parser_id,
        "task": stage.task,
        "stage": stage.name,
        "round_no": found.round_no,
        "mode": str(config.spec.mode),
        "cell_id": found.cell_id(config, template, ask.rubric),
        "template_id": template.template_id,
        "template_hash": template.template_hash,
        "rubric_id": ask.rubric.rubric_id,
        "rubric_hash": ask.rubric.rubric_hash,
        "provider": config.spec.provider,
        "endpoint": config.settings.endpoint,
        "request_model": config.spec.model,
        "thinking": config.thinking,
        "unit_id": ask.unit_id,
        "pair_id": ask.pair_id,
        "item_first": first.item_id,
        "item_second": second.item_id if second else None,
        "item_first_hash": first.item().item_hash,
        "item_second_hash": second.item().item_hash if second else None,
        "candidate_first": label if is_own else first.candidate,
        "candidate_second": second.candidate if second else None,
        "turn_no": ask.turn_no,
        "direction": str(ask.direction) if second else None,
        "is_lo_first": first.item_id < second.item_id if second else None,
        "purpose": ask.purpose,
        "gain": ask.gain,
        "tier": stage.tier if ask.tier is None else ask.tier,
    }


class _Inputs:
    """The rows and rubrics of the asks that passed by, each once; the rows are spooled."""

    def __init__(self, items: Spool) -> None:
        self.rubrics: dict[str, Rubric] = {}
        self.items = items
        self._seen: set[bytes] = set()
        self._fresh: list[SourceRow] = []

    def noted(self, asks: Iterable[Ask]) -> Iterator[Ask]:
        """Yield asks on, keeping what they are about."""
        for ask in asks:
            self.rubrics.setdefault(ask.rubric.rubric_hash, ask.rubric)
            for row in (ask.first, ask.second):
                if row is not None:
                    self._note(row)
            yield ask
        self._spool()

    def _note(self, row: SourceRow) -> None:
        key = hashlib.md5(row.item_id.encode("utf-8"), usedforsecurity=False).digest()
        if key not in self._seen:
            self._seen.add(key)
            self._fresh.append(row)
            if len(self._fresh) == CHUNK_ROWS:
                self._spool()

    def _spool(self) -> None:
        if self._fresh:
            self.items.add(_columns(ITEMS, [_item_values(row.item()) for row in self._fresh]))
        self._fresh = []


def _item_values(item: Item) -> tuple[str | None, ...]:
    return item.item_hash, item.item_id, item.text, item.metadata


def _publish_inputs(
    store: Store, connection: duckdb.DuckDBPyConnection, stage: StageSpec, rubrics: Iterable[Rubric], items: Spool
) -> None:
    templates = stage.templates
    _publish_table(store, connection, RUBRICS, [(r.rubric_hash, r.rubric_id, r.name, r.description) for r in rubrics])
    _publish_table(store, connection, TEMPLATES, [(t.template_hash, t.template_id, t.text) for t in templates])
    for path in items.finish():
        publish_inputs(store, connection, ITEMS, ITEMS.schema.names[0], read_rows(path).replace_schema_metadata(None))


def _publish_table(
    store: Store, connection: duckdb.DuckDBPyConnection, table: Table, rows: Sequence[tuple[str | None, ...]]
) -> None:
    publish_inputs(store, connection, table, table.schema.names[0], _columns(table, rows))


def _columns(table: Table, rows: Sequence[tuple[str | None, ...]]) -> pa.Table:
    columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    return pa.Table.from_arrays(columns, schema=table.schema)
