"""Requests by the block: what a round asks as columns and lists in step, and as rows of `requests` and `plan`.

Pairs that all cells are asked alike are a grid: cell by cell, `slot = cell number * asks of a cell + number of the
ask`. Any other asks go one after the other, each to every model configuration and template at once. And the draft of a
study, all stages worked out: what they ask from the start."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from batchpond import ids
from batchpond.lake.jsonl import sent_bytes
from batchpond.lake.schemas import PLAN, REQUESTS
from batchpond.model import Direction, Media, Prompt
from batchpond.plan import asks as questions
from batchpond.plan import prompts
from batchpond.plan.asks import NO_RUBRIC, Ask, Asks
from batchpond.plan.cells import Cell, Dropped, ModelConfig, cell_id
from batchpond.plan.items import Item, Pairs, named, names_of, pair_ids, showings, strings_of
from batchpond.plan.prompts import Bodies, Column, Prompts, Said
from batchpond.plan.rounds import adaptive
from batchpond.plan.rounds.inputs import talk_asks
from batchpond.plan.rows import Rows, SourceRow, SourceRows
from batchpond.plan.versions import check_line, limits_of
from batchpond.study.spec import StageSpec, Study, label_of
from batchpond.tasks.base import About, Gives
from batchpond.tasks.templates import Rubric, Template

ASK_COLUMNS: Final = (
    "unit_id", "pair_id", "item_first", "item_second", "item_first_hash", "item_second_hash",
    "candidate_first", "candidate_second", "turn_no", "direction", "is_lo_first", "purpose", "gain", "tier",
)  # fmt: skip
"""What the rows of `plan` say of an ask, whatever cell it goes to; of a list, pair_id is its id, turn_no the place."""
ASK_SCHEMA: Final = pa.schema([PLAN.schema.field(name) for name in ASK_COLUMNS])


@dataclass(frozen=True, slots=True)
class Round:
    """Where a stage's new rows stand: study, version, number of the round, its first free slot and file number.

    `stage_in_cells` is the stage as it enters the ids of cells, if it does; `is_only` says that the study has no
    rounds, so that its files are not named by them, `is_fresh` that no row of the version is planned, and `has_alike`
    that another stage may have some of its requests.
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
    has_alike: bool = False

    def file_name(self, number: int) -> str:
        """Return the name of its plan file `number`, from 0."""
        round_name = "" if self.is_only else f"-r{self.round_no:04d}"
        return f"p_study={self.study}/{self.version}{round_name}-{self.first_file + number:05d}"

    def cell(self, config: ModelConfig, template: Template, rubric: Rubric, number: int = 0) -> Cell:
        """Return one of its cells."""
        name = cell_id(self.study, config.dimensions(template.template_id, rubric.rubric_id), self.stage_in_cells)
        rule = self.stage.rule.parts.get(rubric.rubric_id, self.stage.rule)
        return Cell(number, name, template, rubric, config, rule.parser_id)

    def cells(self) -> list[Cell]:
        """Return the cells of its stage's own rubrics, one model after the other."""
        parts = itertools.product(self.configs, self.stage.templates, self.stage.rubrics or (NO_RUBRIC,))
        return [self.cell(*part, number) for number, part in enumerate(parts)]


@dataclass(frozen=True)
class Block:
    """Consecutive requests; `cell_no` are places in `cells`, `asks` has the columns of `plan` that an ask decides."""

    cells: Sequence[Cell]
    cell_no: NDArray[np.int32]
    asks: pa.Table
    slots: NDArray[np.int64]
    repeat_no: NDArray[np.int32]
    request_ids: pa.StringArray
    bodies: list[bytes]
    estimated_input_tokens: NDArray[np.int64]

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """The size of each body as it is kept, in bytes."""
        return np.fromiter(map(len, self.bodies), np.int64, len(self.bodies))

    @cached_property
    def sent_sizes(self) -> NDArray[np.int64]:
        """The size of each body as it is sent, with what it shows."""
        has_media = any(cell.template.media for cell in self.cells)
        return np.fromiter(map(sent_bytes, self.bodies), np.int64, len(self.bodies)) if has_media else self.sizes

    def check(self) -> None:
        """Raise StudyError for a request that no batch could hold."""
        for number, cell in enumerate(self.cells):
            places = np.flatnonzero(self.cell_no == number)
            largest = int(places[np.argmax(self.sent_sizes[places])])
            limits = limits_of(cell.config.module.DESCRIPTOR, cell.config.spec.mode)
            size_bytes, tokens = int(self.sent_sizes[largest]), int(self.estimated_input_tokens[largest])
            if size_bytes > self.sizes[largest]:
                limits = replace(limits, max_bytes=min(limits.max_bytes, cell.config.module.sight.max_request_bytes))
            check_line(self.request_ids[largest].as_py(), size_bytes, tokens, limits)


def requests_table(block: Block) -> pa.Table:
    """Return a block's rows of `requests`, one per slot, duplicates included."""
    is_small = int(block.sizes.sum()) <= _ARRAY_BYTES_MAX
    columns: dict[str, Any] = {
        "request_id": block.request_ids,
        "repeat_no": pa.array(block.repeat_no),
        "body": strings_of(b"".join(block.bodies), block.sizes) if is_small else pa.array(block.bodies, pa.string()),
        "size_bytes": pa.array(block.sent_sizes.astype(np.int32)),
        "estimated_input_tokens": pa.array(block.estimated_input_tokens.astype(np.int32)),
    }
    return _table(REQUESTS.schema, columns, block)


def plan_table(found: Round, block: Block) -> pa.Table:
    """Return a block's rows of `plan`."""
    stage, n = found.stage, len(block.bodies)
    of_all = {
        "study": found.study, "study_version": found.version, "task": stage.task, "stage": stage.name,
        "round_no": found.round_no,
    }  # fmt: skip
    columns: dict[str, Any] = {
        **{name: pa.repeat(pa.scalar(value, PLAN.schema.field(name).type), n) for name, value in of_all.items()},
        "slot": pa.array(block.slots),
        "request_id": block.request_ids,
        "repeat_no": pa.array(block.repeat_no),
        **dict(zip(ASK_COLUMNS, block.asks.columns, strict=True)),
    }
    return _table(PLAN.schema, columns, block)


_OF_CELL: Final[Mapping[str, Callable[[Cell], Any]]] = {
    "mode": lambda cell: cell.config.spec.mode.value,
    "cell_id": lambda cell: cell.cell_id,
    "parser_id": lambda cell: cell.parser_id,
    "template_id": lambda cell: cell.template.template_id,
    "template_hash": lambda cell: cell.template.template_hash,
    "rubric_id": lambda cell: cell.rubric.rubric_id,
    "rubric_hash": lambda cell: cell.rubric.rubric_hash,
    "provider": lambda cell: cell.group[0],
    "endpoint": lambda cell: cell.group[1],
    "request_model": lambda cell: cell.group[2],
    "thinking": lambda cell: cell.config.thinking,
    "max_output_tokens": lambda cell: cell.config.settings.max_output_tokens,
}
"""What a row's cell says of it, by column."""


def _table(schema: pa.Schema, columns: Mapping[str, Any], block: Block) -> pa.Table:
    places = pa.array(block.cell_no)

    def of_cells(name: str) -> pa.Array:
        return pa.array(map(_OF_CELL[name], block.cells), schema.field(name).type).take(places)

    arrays = [columns[name] if name in columns else of_cells(name) for name in schema.names]
    return pa.Table.from_arrays(arrays, schema=schema)


BLOCK_ROWS: Final = 2_048
_DIRECTIONS: Final = pa.array(["forward", "reverse"])
_CELLS_KEPT_MAX: Final = 100_000
_ARRAY_BYTES_MAX: Final = (1 << 31) - 1


class Grid:
    """Every pair, direction and repeat that all cells are asked alike, one array element each; items in id order."""

    def __init__(self, stage: StageSpec, rows: SourceRows, pairs: Pairs) -> None:
        self.items: Sequence[Item] = [row.item() for row in rows]
        self._pairs = pairs
        self.showings = showings(pairs, max(stage.repeats, stage.pairs.repeats))
        own = np.array([row.tier or 0 for row in rows], np.int32)
        tiers = np.maximum(own[self.showings.first], own[self.showings.second])
        self._tiers = np.where(tiers == 0, stage.tier or 0, tiers)  # that of the later item; 0 where there is none

    def __len__(self) -> int:
        return len(self.showings.pair)

    def columns(self) -> Callable[[slice], pa.Table]:
        """Return what gives a part of the asks' columns; what all parts share is prepared once."""
        names = [item.item_id for item in self.items]
        item_ids = pa.array(names, pa.string())
        hashes = pa.array([item.item_hash for item in self.items], pa.string())
        of_pairs = pa.concat_arrays([pair_ids(*part) for part in named(names, self._pairs.lo, self._pairs.hi)])

        def of(part: slice) -> pa.Table:
            first, second, tiers = self.showings.first[part], self.showings.second[part], self._tiers[part]
            known = {
                "unit_id": pa.repeat(pa.scalar(""), len(first)),
                "pair_id": of_pairs.take(pa.array(self.showings.pair[part])),
                "item_first": item_ids.take(pa.array(first)),
                "item_second": item_ids.take(pa.array(second)),
                "item_first_hash": hashes.take(pa.array(first)),
                "item_second_hash": hashes.take(pa.array(second)),
                "direction": _DIRECTIONS.take(pa.array(self.showings.is_reverse[part].astype(np.int8))),
                # Items are in id order, so the smaller position is the smaller id.
                "is_lo_first": pa.array(first < second),
                "tier": pa.array(tiers, pa.int32(), mask=tiers == 0),
            }
            arrays = [known.get(field.name, pa.nulls(len(first), field.type)) for field in ASK_SCHEMA]
            return pa.Table.from_arrays(arrays, schema=ASK_SCHEMA)

        return of


def grid_blocks(found: Round, grid: Grid, n_rows: int = BLOCK_ROWS) -> Iterator[Block]:
    """Yield all requests of a grid in slot order, at most `n_rows` of one cell at a time."""
    columns, shown = grid.columns(), grid.showings
    rows = [SourceRow(item.item_id, item.text) for item in grid.items]
    json, sizes = prompts.columns_of([item.text for item in grid.items])
    ways: dict[int, _Way] = {}
    for cell in found.cells():
        values = {**found.stage.rule.values(), **prompts.rubric_values(cell.rubric)}
        forms = prompts.forms_of(found.stage, cell.template, values, prompts.OF_PAIR)
        way = ways.setdefault(id(cell.config), _Way(found.stage, cell.config))
        own = sum(form.n_bytes for form in forms) + found.stage.schema_bytes
        for start in range(0, len(grid), n_rows):
            part = slice(start, min(start + n_rows, len(grid)))
            shows = {"SAMPLE_1": shown.first[part], "SAMPLE_2": shown.second[part]}
            places = {name: at.tolist() for name, at in shows.items()}
            n_bytes = np.full(part.stop - part.start, own, np.int64)
            for name in (name for form in forms for name in form.names):
                n_bytes += sizes[shows[name]]
            between = [[[json[at] for at in places[name]] for name in form.names] for form in forms]

            def prompt(number: int, cell: Cell = cell, places: Mapping[str, list[int]] = places) -> Prompt:
                first, second = (rows[at[number]] for at in places.values())
                return prompts.prompt_of(found.stage, cell.template, Ask(cell.rubric, first, second))

            n, said = part.stop - part.start, Said(forms, between, n_bytes)
            bodies = way.bodies.of(cell.template, said, n, prompt)
            slots = np.arange(part.start, part.stop, dtype=np.int64) + found.first_slot + cell.number * len(grid)
            repeat_no = shown.repeat_no[part]
            yield Block(
                [cell], np.zeros(n, np.int32), columns(part), slots, repeat_no,
                names_of(way.hash_of(bodies, repeat_no.tolist())), bodies, prompts.tokens_of(n_bytes),
            )  # fmt: skip


class _Way:
    """A model configuration as asks go to it: its bodies and ids, each template with the label of its own outputs."""

    def __init__(self, stage: StageSpec, config: ModelConfig) -> None:
        self.config = config
        self.bodies = Bodies(config)
        self.hash_of = ids.request_hashes(config.spec.provider, config.settings.endpoint, config.settings.request_model)
        n, way = len(stage.templates), (config.spec.provider, config.spec.model, config.thinking)
        self.templates = [(one, label_of(*way, one.template_id, n_templates=n)) for one in stage.templates]


@dataclass(slots=True)
class _Part:
    """Like asks that go to one cell: their places among a block's requests, and what each becomes."""

    order: NDArray[np.int64]
    ask_no: NDArray[np.int64]
    cell: Cell
    label: str
    repeat_no: int
    bodies: list[bytes]
    hashes: list[bytes]
    n_bytes: NDArray[np.int64]


class AskBlocks:
    """Makes blocks of asks; `keep` is handed their rows, for the lake."""

    def __init__(self, found: Round, keep: Callable[[Rows], None], n_rows: int = BLOCK_ROWS) -> None:
        self._round, self._stage = found, found.stage
        self._keep = keep
        self._ways = [_Way(found.stage, config) for config in found.configs]
        self._prompts = Prompts(found.stage)
        self._n_of_ask = max(1, len(found.configs) * len(found.stage.templates) * found.stage.repeats)
        self._n_asks = max(1, n_rows // self._n_of_ask)
        self._cells: dict[tuple[int, str, Rubric], Cell] = {}

    def of(self, asked: Iterable[Asks]) -> Iterator[Block]:
        """Yield the requests of asks in their order; raises StudyError for a placeholder that a row lacks."""
        slot = self._round.first_slot
        for asks in itertools.chain.from_iterable(some.parts(self._n_asks) for some in asked):
            parts = [part for places in _alike(asks) for part in self._parts(asks.take(places), places)]
            if parts:
                self._keep(asks.rows)
                block = self._block(parts, asks, slot)
                yield block
                slot += len(block.bodies)

    def _parts(self, asks: Asks, places: Sequence[int]) -> Iterator[_Part]:
        """Yield what asks of one kind become, for each template, way to ask and repeat."""
        at, only = np.array(places), asks.of_first("only")
        known: dict[str, Column] = {}
        for template_no, template in enumerate(self._stage.templates):
            said = self._prompts.of(template, asks, known)

            def prompt(number: int, template: Template = template) -> Prompt:
                return prompts.prompt_of(self._stage, template, asks.one(number))

            for way_no, way in enumerate(self._ways):
                _, label = way.templates[template_no]
                if only not in (None, label):
                    continue
                bodies = way.bodies.of(template, said, len(asks), prompt)
                all_shown = (prompt(number) for number in range(len(asks)))
                sizes = said.n_bytes if said else np.array([prompts.size_bytes(one, way.config) for one in all_shown])
                cell = self._cell(way_no, template, asks.rubrics[0])
                first = (way_no * len(self._stage.templates) + template_no) * self._stage.repeats
                for number in range(self._stage.repeats):
                    hashes = way.hash_of(bodies, [number + 1] * len(bodies))
                    order = at * self._n_of_ask + first + number
                    yield _Part(order, at, cell, label, number + 1, bodies, hashes, sizes)

    def _cell(self, way_no: int, template: Template, rubric: Rubric) -> Cell:
        key = way_no, template.template_id, rubric
        if key not in self._cells:
            if len(self._cells) >= _CELLS_KEPT_MAX:
                self._cells.clear()
            self._cells[key] = self._round.cell(self._ways[way_no].config, template, rubric)
        return self._cells[key]

    def _block(self, parts: Sequence[_Part], asks: Asks, first_slot: int) -> Block:
        """Put the parts of a block together, ask by ask."""
        order = np.argsort(np.concatenate([part.order for part in parts]))
        places = order.tolist()
        n_of_part = [len(part.bodies) for part in parts]

        def of_parts(values: Iterable[int]) -> NDArray[np.int32]:
            return np.repeat(np.fromiter(values, np.int32, len(parts)), n_of_part)[order]

        bodies = [body for part in parts for body in part.bodies]
        hashes = [one for part in parts for one in part.hashes]
        tokens = prompts.tokens_of(np.concatenate([part.n_bytes for part in parts]) + self._stage.schema_bytes)
        columns, ask_no = self._columns(asks), np.concatenate([part.ask_no for part in parts])[order]
        if len(ask_no) != len(asks) or bool((np.diff(ask_no) < 1).any()):  # and not each ask once, in its place
            columns = columns.take(pa.array(ask_no))
        if self._stage.gives is Gives.OUTPUT:
            place = ASK_COLUMNS.index("candidate_first")
            labels = pa.array([part.label for part in parts], pa.string()).take(pa.array(of_parts(range(len(parts)))))
            columns = columns.set_column(place, ASK_SCHEMA.field(place), labels)
        cells = {id(part.cell): part.cell for part in parts}
        numbers = {key: number for number, key in enumerate(cells)}
        return Block(
            list(cells.values()), of_parts(numbers[id(part.cell)] for part in parts), columns,
            np.arange(first_slot, first_slot + len(places)), of_parts(part.repeat_no for part in parts),
            names_of([hashes[place] for place in places]), [bodies[place] for place in places], tokens[order],
        )  # fmt: skip

    def _columns(self, asks: Asks) -> pa.Table:
        rows, first, second, others = asks.rows, asks.first, asks.second, asks.others
        is_alone, units = second is None and "list_id" not in others, rows.arrow("unit_id")
        if is_alone:
            units = pc.if_else(pc.equal(units, ""), rows.arrow("item_id"), units)
        tiers = np.array([tier or 0 for tier in rows.column("tier")], np.int32)
        later = tiers[first] if second is None else np.maximum(tiers[first], tiers[second])
        later = np.where(later == 0, self._stage.tier or 0, later)
        known: dict[str, Any] = {
            **{name: others.get(name) for name in ("turn_no", "purpose", "gain")},
            "unit_id": units.take(pa.array(first)),
            **_of_rows("first", rows, first),
            "pair_id": others.get("list_id"),
            "direction": None if is_alone else others.get("direction", [Direction.FORWARD] * len(asks)),
            "tier": pa.array(later, pa.int32(), mask=later == 0),
        }
        if second is not None:
            names = rows.column("item_id")
            members = [(names[one], names[two]) for one, two in zip(first.tolist(), second.tolist(), strict=True)]
            pairs = [(one, two) if one < two else (two, one) for one, two in members]
            places = {pair: place for place, pair in enumerate(dict.fromkeys(pairs))}
            known |= {
                **_of_rows("second", rows, second),
                "pair_id": pair_ids(*zip(*places, strict=True)).take(pa.array([places[pair] for pair in pairs])),
                "is_lo_first": [one < two for one, two in members],
            }
        given = ((field, known.get(field.name)) for field in ASK_SCHEMA)
        arrays = [
            pa.nulls(len(asks), field.type) if values is None else pa.array(values, field.type)
            for field, values in given
        ]
        return pa.Table.from_arrays(arrays, schema=ASK_SCHEMA)


def _of_rows(which: str, rows: Rows, places: NDArray[np.int64]) -> dict[str, Any]:
    names = {f"item_{which}": rows.arrow("item_id"), f"candidate_{which}": rows.arrow("candidate")}
    found = {**names, f"item_{which}_hash": pa.array(rows.hashes)}
    return {name: column.take(pa.array(places)) for name, column in found.items()}


def _alike(asks: Asks) -> Iterable[Sequence[int]]:
    """Return the places of asks of one kind, as `Prompts` and `Bodies` take them."""
    told: Mapping[str, Callable[[Any], object]] = {"values": tuple, "text": bool, "history": bool, "only": repr}
    kinds = [map(kind, asks.others[name]) for name, kind in told.items() if name in asks.others]
    keys: list[object] = [*zip(map(id, asks.rubrics), *kinds, strict=True)] if kinds else [*map(id, asks.rubrics)]
    if keys.count(keys[0]) == len(keys):
        return [range(len(keys))]
    found: dict[object, list[int]] = {}
    for place, key in enumerate(keys):
        found.setdefault(key, []).append(place)
    return found.values()


@dataclass(frozen=True, slots=True)
class StageDraft:
    """A stage with its ways to ask; where it waits for nothing, its rows, the pairs of them and how many asks.

    `choices` are what an adaptive first round asks, from which its pairs follow.
    It `is_grid` where every cell is asked the same pairs and the study is nothing but them. `n_listed` is by how many
    rubrics an answer is judged, on average, where its question says by which.
    """

    stage: StageSpec
    configs: Sequence[ModelConfig]
    seed: int
    rows: SourceRows | None = None
    n_asks: int = 0
    pairs: Pairs | None = None
    choices: Sequence[adaptive.Choice] = ()
    is_grid: bool = False
    n_listed: float = 0.0

    @property
    def n_cells(self) -> int:
        """How many cells it has, as far as its own rubrics make them."""
        return len(self.configs) * len(self.stage.templates) * max(1, len(self.stage.rubrics))

    @property
    def n_plan_rows(self) -> int:
        """How many rows its first round has, where it waits for nothing."""
        repeats = max(self.stage.repeats, self.stage.pairs.repeats if self.is_grid else 1)
        return self.n_asks * len(self.configs) * len(self.stage.templates) * repeats

    def asks(self) -> Iterator[Asks]:
        """Yield the asks of a stage that waits for nothing."""
        stage, rows = self.stage, self.rows or ()
        if stage.about is About.TALK:
            return talk_asks(stage, rows, {})
        return questions.asks(stage, rows, self.seed, self.pairs, self.choices)


@dataclass(frozen=True, slots=True)
class Draft:
    """A study worked out; `media` is all that it shows, once each."""

    study: Study
    stages: Sequence[StageDraft]
    dropped: Sequence[Dropped]
    version: str
    media: Sequence[Media] = ()

    @property
    def configs(self) -> Mapping[tuple[str, str, str, str], ModelConfig]:
        """All ways to ask, by stage, provider, model and thinking."""
        return {
            (draft.stage.name, config.spec.provider, config.spec.model, config.thinking): config
            for draft in self.stages
            for config in draft.configs
        }
