"""Requests by the block: what a round asks as columns and lists in step, and as rows of `requests` and `plan`.

Pairs that all cells are asked alike are a grid: cell by cell, `slot = cell number * asks of a cell + number of the
ask`. Any other asks go one after the other, each to every model configuration and template at once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from batchpond import ids
from batchpond.lake.schemas import PLAN, REQUESTS
from batchpond.plan.asks import NO_RUBRIC, Ask, SourceRow
from batchpond.plan.cells import Cell, ModelConfig, cell_id
from batchpond.plan.items import Item, Pairs, pair_id, showings
from batchpond.plan.prompts import (
    OF_PAIR,
    Bodies,
    Encoded,
    Form,
    Frame,
    Prompts,
    Turns,
    encoded,
    forms_of,
    prompt_of,
    rubric_values,
    size_bytes,
    tokens_of,
)
from batchpond.plan.versions import Line, check_line, limits_of
from batchpond.study.spec import OWN_OUTPUT_TASKS, THINKING_DEFAULT, StageSpec
from batchpond.tasks.templates import Rubric, Template

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
    return _table(REQUESTS.schema, columns, block)


def plan_table(found: Round, block: Block) -> pa.Table:
    """Return a block's rows of `plan`."""
    stage = found.stage
    of_all = {
        "study": found.study, "study_version": found.version, "parser_id": stage.rule.parser_id, "task": stage.task,
        "stage": stage.name, "round_no": found.round_no,
    }  # fmt: skip
    columns: dict[str, Any] = {
        **{name: _repeated(PLAN.schema, name, value, len(block.bodies)) for name, value in of_all.items()},
        "slot": pa.array(block.slots),
        "request_id": pa.array(block.request_ids, pa.string()),
        "repeat_no": pa.array(block.repeat_no),
        **dict(zip(ASK_COLUMNS, block.asks.columns, strict=True)),
    }
    return _table(PLAN.schema, columns, block)


def _repeated(schema: pa.Schema, name: str, value: object, n: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, schema.field(name).type), n)


_OF_CELL: Final[Mapping[str, Callable[[Cell], Any]]] = {
    "mode": lambda cell: cell.config.spec.mode.value,
    "cell_id": lambda cell: cell.cell_id,
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
_CELLS_KEPT_MAX: Final = 10_000

BodyOf = Callable[[int, int], bytes]


class Grid:
    """Every pair, direction and repeat that all cells are asked alike, one array element each; items in id order."""

    def __init__(self, stage: StageSpec, rows: Sequence[SourceRow], pairs: Pairs) -> None:
        self.items: Sequence[Item] = [row.item() for row in rows]
        self._pairs = pairs
        self.showings = showings(pairs, max(stage.repeats, stage.pairs.repeats))
        own = np.array([row.tier or 0 for row in rows], np.int32)
        tiers = np.maximum(own[self.showings.first], own[self.showings.second])
        self._tiers = np.where(tiers == 0, stage.tier or 0, tiers)  # that of the later item; 0 where there is none

    def __len__(self) -> int:
        return len(self.showings)

    def columns(self) -> Callable[[slice], pa.Table]:
        """Return what gives a part of the asks' columns; what all parts share is prepared once."""
        names = [item.item_id for item in self.items]
        item_ids = pa.array(names, pa.string())
        hashes = pa.array([item.item_hash for item in self.items], pa.string())
        members = zip(self._pairs.lo.tolist(), self._pairs.hi.tolist(), strict=True)
        pair_ids = pa.array((pair_id(names[lo], names[hi]) for lo, hi in members), pa.string())

        def of(part: slice) -> pa.Table:
            first, second, tiers = self.showings.first[part], self.showings.second[part], self._tiers[part]
            known = {
                "unit_id": pa.repeat(pa.scalar(""), len(first)),
                "pair_id": pair_ids.take(pa.array(self.showings.pair[part])),
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
    texts = [encoded(item.text) for item in grid.items]
    bodies_of: dict[int, Bodies] = {}
    for cell in found.cells():
        values = {**found.stage.rule.values(), **rubric_values(cell.rubric)}
        forms = forms_of(found.stage, cell.template, values, OF_PAIR)
        makes = bodies_of.setdefault(id(cell.config), Bodies(cell.config))
        body_of, id_of = _body_of(found.stage, cell, makes, forms, grid, texts), ids.request_ids(*cell.group)
        for start in range(0, len(grid), n_rows):
            part = slice(start, min(start + n_rows, len(grid)))
            first, second = shown.first[part].tolist(), shown.second[part].tolist()
            bodies = [body_of(f, s) for f, s in zip(first, second, strict=True)]
            slots = np.arange(part.start, part.stop, dtype=np.int64) + found.first_slot + cell.number * len(grid)
            repeat_no = shown.repeat_no[part]
            yield Block(
                [cell], np.zeros(len(first), np.int32), columns(part), slots, repeat_no,
                list(map(id_of, bodies, repeat_no.tolist())), bodies, _tokens(forms, texts, first, second),
            )  # fmt: skip


def _body_of(
    stage: StageSpec, cell: Cell, makes: Bodies, forms: Sequence[Form], grid: Grid, texts: Sequence[Encoded]
) -> BodyOf:
    """Return the fastest way to make bodies that gives the module's own bytes for the first ask."""
    rows = [SourceRow(item.item_id, item.text) for item in grid.items]

    def built(first: int, second: int) -> bytes:
        return makes.built(prompt_of(stage, cell.template, Ask(cell.rubric, rows[first], rows[second])))

    frame = makes.frame(cell.template)
    if frame is None:
        return built
    spliced = _spliced(forms, frame, texts)
    example = int(grid.showings.first[0]), int(grid.showings.second[0])
    return spliced if spliced(*example) == built(*example) else built


def _spliced(forms: Sequence[Form], frame: Frame, texts: Sequence[Encoded]) -> BodyOf:
    inner: list[bytes] = [frame.pieces[0]]
    names: list[str] = []
    for place, piece in zip(frame.order, frame.pieces[1:], strict=True):
        first_text, *others = (text.json for text in forms[place].texts)
        inner[-1] += first_text
        inner += others
        inner[-1] += piece
        names += forms[place].names
    json = [text.json for text in texts]
    if names == ["SAMPLE_1", "SAMPLE_2"]:
        head, middle, tail = inner
        return lambda first, second: b"".join((head, json[first], middle, json[second], tail))
    is_second = [name == "SAMPLE_2" for name in names]

    def splice(first: int, second: int) -> bytes:
        pair = (json[first], json[second])
        parts = [inner[0]]
        for text, place in zip(inner[1:], is_second, strict=True):
            parts += (pair[place], text)
        return b"".join(parts)

    return splice


def _tokens(forms: Sequence[Form], texts: Sequence[Encoded], first: Sequence[int], second: Sequence[int]) -> list[int]:
    own, names = sum(form.n_bytes for form in forms), [name for form in forms for name in form.names]
    n_first, n_second = names.count("SAMPLE_1"), names.count("SAMPLE_2")
    return [
        tokens_of(own + n_first * texts[f].n_bytes + n_second * texts[s].n_bytes)
        for f, s in zip(first, second, strict=True)
    ]


def candidate_label(config: ModelConfig, template: Template, stage: StageSpec) -> str:
    """Return the name under which a model's own outputs go on: what tells it from the stage's other ways."""
    spec = config.spec
    return label_of(spec.provider, spec.model, config.thinking, template.template_id, n_templates=len(stage.templates))


def label_of(provider: str, model: str, thinking: str, template_id: str, *, n_templates: int) -> str:
    """Return what tells one way to ask from the others of a stage."""
    label = f"{provider}/{model}" if thinking == THINKING_DEFAULT else f"{provider}/{model}@{thinking}"
    return label if n_templates == 1 else f"{label}#{template_id}"


class _Way:
    """A model configuration as asks go to it: its bodies and ids, each template with the label of its own outputs."""

    def __init__(self, stage: StageSpec, config: ModelConfig) -> None:
        self.config = config
        self.bodies = Bodies(config)
        self.id_of = ids.request_ids(config.spec.provider, config.settings.endpoint, config.settings.request_model)
        self.templates = [(template, candidate_label(config, template, stage)) for template in stage.templates]


@dataclass(slots=True)
class _Part:
    """A block in the making: lists in step, one element per request."""

    cells: list[Cell] = field(default_factory=list)
    places: dict[tuple[int, str, Rubric], int] = field(default_factory=dict)
    cell_no: list[int] = field(default_factory=list)
    ask_no: list[int] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    request_ids: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)


class AskBlocks:
    """Makes blocks of asks; `hash_of` gives the hash of a row as the lake keeps it."""

    def __init__(self, found: Round, hash_of: Callable[[SourceRow], str], n_rows: int = BLOCK_ROWS) -> None:
        self._round, self._stage = found, found.stage
        self._hash_of = hash_of
        self._ways = [_Way(found.stage, config) for config in found.configs]
        self._prompts = Prompts(found.stage)
        self._schema_bytes = found.stage.schema_bytes
        n_of_ask = len(found.configs) * len(found.stage.templates) * found.stage.repeats
        self._n_asks = max(1, n_rows // max(1, n_of_ask))
        self._cells: dict[tuple[int, str, Rubric], Cell] = {}

    def of(self, asks: Iterable[Ask]) -> Iterator[Block]:
        """Yield the requests of asks in their order; raises StudyError for a placeholder that a row lacks."""
        rest, slot = iter(asks), self._round.first_slot
        while some := list(itertools.islice(rest, self._n_asks)):
            part = _Part()
            for number, ask in enumerate(some):
                self._add(part, number, ask)
            if part.bodies:
                yield self._block(part, some, slot)
                slot += len(part.bodies)

    def _add(self, part: _Part, number: int, ask: Ask) -> None:
        prompts = [self._prompts.of(template, ask) for template in self._stage.templates]
        repeats = self._stage.repeats
        for way_no, way in enumerate(self._ways):
            for (template, label), prompt in zip(way.templates, prompts, strict=True):
                if ask.only not in (None, label):
                    continue
                body, n_bytes = self._body(way.bodies, template, ask, prompt)
                place = self._place(part, way_no, template, ask.rubric)
                part.cell_no += [place] * repeats
                part.ask_no += [number] * repeats
                part.labels += [label] * repeats
                part.bodies += [body] * repeats
                part.tokens += [tokens_of(n_bytes + self._schema_bytes)] * repeats
                part.request_ids += [way.id_of(body, repeat_no) for repeat_no in range(1, repeats + 1)]

    def _body(self, bodies: Bodies, template: Template, ask: Ask, turns: Turns | None) -> tuple[bytes, int]:
        if turns is not None:
            frame = bodies.frame_for(template, turns, lambda: prompt_of(self._stage, template, ask))
            if frame is not None:
                return frame.around(turns.json), turns.n_bytes
        text = prompt_of(self._stage, template, ask)
        return bodies.built(text), size_bytes(text)

    def _place(self, part: _Part, way_no: int, template: Template, rubric: Rubric) -> int:
        """Return which cell of a block is meant, as a new one of it where need be."""
        key = way_no, template.template_id, rubric
        place = part.places.get(key)
        if place is None:
            if key not in self._cells:
                if len(self._cells) >= _CELLS_KEPT_MAX:
                    self._cells.clear()
                self._cells[key] = self._round.cell(self._ways[way_no].config, template, rubric)
            place = part.places[key] = len(part.cells)
            part.cells.append(self._cells[key])
        return place

    def _block(self, part: _Part, asks: Sequence[Ask], first_slot: int) -> Block:
        n, repeats = len(part.bodies), self._stage.repeats
        columns = self._columns(asks).take(pa.array(part.ask_no, pa.int32()))
        if self._stage.task in OWN_OUTPUT_TASKS:
            place = ASK_COLUMNS.index("candidate_first")
            columns = columns.set_column(place, ASK_SCHEMA.field(place), pa.array(part.labels, pa.string()))
        return Block(
            part.cells, np.array(part.cell_no, np.int32), columns, np.arange(first_slot, first_slot + n),
            np.arange(n, dtype=np.int32) % repeats + 1, part.request_ids, part.bodies, part.tokens,
        )  # fmt: skip

    def _columns(self, asks: Sequence[Ask]) -> pa.Table:
        first, second = [ask.first for ask in asks], [ask.second for ask in asks]
        known: dict[str, list[Any]] = {
            "unit_id": [ask.unit_id for ask in asks],
            "pair_id": [ask.pair_id for ask in asks],
            "item_first": [row.item_id for row in first],
            "item_second": [row and row.item_id for row in second],
            "item_first_hash": [self._hash_of(row) for row in first],
            "item_second_hash": [row and self._hash_of(row) for row in second],
            "candidate_first": [row.candidate for row in first],
            "candidate_second": [row and row.candidate for row in second],
            "turn_no": [ask.turn_no for ask in asks],
            "direction": [ask.second and ask.direction.value for ask in asks],
            "is_lo_first": [row and one.item_id < row.item_id for one, row in zip(first, second, strict=True)],
            "purpose": [ask.purpose for ask in asks],
            "gain": [ask.gain for ask in asks],
            "tier": [self._stage.tier if ask.tier is None else ask.tier for ask in asks],
        }
        arrays = [pa.array(known[field.name], field.type) for field in ASK_SCHEMA]
        return pa.Table.from_arrays(arrays, schema=ASK_SCHEMA)
