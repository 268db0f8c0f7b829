"""The rows that a stage asks about: as they are read, one by one, in columns, or in a file meanwhile."""

from __future__ import annotations

import itertools
import os
import pickle  # rows of this process only, in a file that no other can open
import tempfile
import weakref
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from batchpond import ids
from batchpond.errors import StudyError
from batchpond.plan.items import ROWS_AT_ONCE, Item, ItemColumns, names_of, strings_of
from batchpond.study.spec import TIER_MAX, StageSpec
from batchpond.tasks.base import About
from batchpond.text import plain

PLACES: Final = ("unit_id", "rubric_id", "candidate", "input", "turn_no", "tier")
"""What an item's metadata says of where its row belongs, in the order of its fields."""
NOTHING: Final[Mapping[str, Any]] = {}
_TIER_DIGITS_MAX: Final = 8
_HASHES_AT_ONCE: Final = 512 * 32  # bytes


class _SourceRow(NamedTuple):
    item_id: str
    text: str
    unit_id: str = ""
    rubric_id: str | None = None
    candidate: str | None = None
    input_text: str | None = None
    turn_no: int | None = None
    more: Mapping[str, Any] = NOTHING
    judged_by: tuple[str, ...] | None = None
    tier: int | None = None
    of_file: Item | None = None


class SourceRow(_SourceRow):
    """One row that is asked about: an input, a question, or a candidate's output with the input it answers.

    `judged_by` are the rubrics by which an earlier stage chose it, where the stage has those rubrics too. What a
    row of a `tier` leads to in later stages is of that tier too. `of_file` is the item as it was read, where the
    lake keeps it so.
    """

    @cached_property
    def item_hash(self) -> str:
        """The hash of what the lake keeps of it."""
        return self.item().item_hash

    def item(self) -> Item:
        """Return it as the lake keeps items."""
        return self.of_file or Item(self.item_id, self.text, self.metadata)

    @cached_property
    def metadata(self) -> str | None:
        """What the lake keeps of it besides: as its file has it, or where it belongs, as JSON."""
        return self.of_file.metadata if self.of_file else _metadata_of([[value] for value in self])[0]


Columns = Sequence[Sequence[Any]]
"""Rows in columns: the fields of `SourceRow`, in their order."""


def columns_of_rows(rows: Iterable[SourceRow]) -> Iterator[Columns]:
    """Yield rows in columns, some at once."""
    rest = iter(rows)
    while some := list(itertools.islice(rest, ROWS_AT_ONCE)):
        yield [*zip(*some, strict=True)]


def json_each(texts: Sequence[str]) -> list[bytes]:
    """Return texts as they stand inside JSON strings."""
    return [orjson.dumps(text)[1:-1] for text in texts]


def _metadata_of(columns: Columns) -> list[str | None]:
    """Return where rows belong, and what more they say, as JSON."""
    _, _, unit_ids, rubric_ids, candidates, asked, turns, more, _, tiers, _ = columns
    told = zip(PLACES, ([one or None for one in unit_ids], rubric_ids, candidates, asked, turns, tiers), strict=True)
    known = {name: values for name, values in sorted(told) if values.count(None) < len(values)}
    is_text = known.keys().isdisjoint({"turn_no", "tier"}) and not any(None in values for values in known.values())
    if known and is_text and not any(more):
        form = b"{" + b",".join(b'"%b":"%%b"' % name.encode() for name in known) + b"}"
        return [(form % values).decode() for values in zip(*map(json_each, known.values()), strict=True)]
    rows = zip(*known.values(), strict=True) if known else itertools.repeat((), len(more))
    return [_json_of({**dict(zip(known, row, strict=True)), **own}) for row, own in zip(rows, more, strict=True)]


def _json_of(said: Mapping[str, Any]) -> str | None:
    known = {name: value for name, value in said.items() if value is not None}
    return orjson.dumps(known, default=plain, option=orjson.OPT_SORT_KEYS).decode() if known else None


class Rows:
    """Rows in columns, as they are kept: of each the sizes of its parts, -1 where it has none, and then these.

    What nobody asks for is not decoded. `hashes` are of what the lake keeps of each row; in `shown` whoever shows them
    keeps what is shown.
    """

    def __init__(
        self, hashes: Sequence[str], data: memoryview, starts: NDArray[np.int64], sizes: NDArray[np.int32]
    ) -> None:
        self.hashes = hashes
        self.shown: dict[str, Any] = {}
        self._data, self._starts, self._sizes = data, starts, sizes
        self._stops = np.cumsum(np.maximum(sizes, 0), axis=1) + (starts + _SIZES_BYTES)[:, None]
        self._columns: dict[str, Sequence[Any]] = {}

    @classmethod
    def of(cls, rows: Sequence[SourceRow]) -> Rows:
        """Return rows one by one as columns."""
        columns = [*zip(*rows, strict=True)] or [()] * len(SourceRow._fields)
        parts, sizes = _packed(columns, [row.metadata for row in rows])
        starts = np.append(0, _ends(sizes))[:-1]
        return cls([row.item_hash for row in rows], memoryview(_joined(parts, sizes)), starts, sizes)

    def __len__(self) -> int:
        return len(self.hashes)

    def take(self, places: Sequence[int]) -> Rows:
        """Return those that stand at some places."""
        hashes = [self.hashes[place] for place in places]
        return Rows(hashes, self._data, self._starts[places], self._sizes[places])

    def column(self, name: str) -> Sequence[Any]:
        """Return the metadata, or one of the fields of `SourceRow`."""
        if name not in self._columns and name in _TEXTS:
            self._columns[name] = self._texts(_TEXTS.index(name))
        elif name not in self._columns:
            found = [pickle.loads(part) if part else _ELSE for part in self._parts(-1)]  # noqa: S301 (our own bytes)
            self._columns |= zip(SourceRow._fields[-len(_ELSE) :], zip(*found, strict=True), strict=True)
        return self._columns[name]

    def arrow(self, name: str) -> pa.StringArray:
        """Return a column of texts."""
        sizes = self._sizes[:, _TEXTS.index(name)]
        if sizes.min() < 0:
            return pa.array(self.column(name), pa.string())
        return strings_of(b"".join(self._parts(_TEXTS.index(name))), sizes.astype(np.int64))

    @cached_property
    def each(self) -> list[SourceRow]:
        """The rows one by one."""
        columns = map(self.column, SourceRow._fields)
        found = [tuple.__new__(SourceRow, values) for values in zip(*columns, strict=True)]
        for row, metadata, name in zip(found, self.column("metadata"), self.hashes, strict=True):
            row.metadata, row.item_hash = metadata, name
        return found

    def _parts(self, at: int) -> list[memoryview]:
        stops = self._stops[:, at]
        starts = (stops - np.maximum(self._sizes[:, at], 0)).tolist()
        return [self._data[start:stop] for start, stop in zip(starts, stops.tolist(), strict=True)]

    def _texts(self, at: int) -> Sequence[str | None]:
        is_none = self._sizes[:, at] < 0
        if is_none.all():
            return [None] * len(self)
        texts = [str(part, "utf-8") for part in self._parts(at)]
        return [None if lacks else text for text, lacks in zip(texts, is_none, strict=True)] if is_none.any() else texts


def some_rows(rows: SourceRows) -> Iterator[Rows]:
    """Yield all rows in columns, some at once."""
    if isinstance(rows, SpilledRows):
        return rows.some()
    return (Rows.of(rows[at : at + _AHEAD_ROWS]) for at in range(0, len(rows), _AHEAD_ROWS))


_AHEAD_ROWS: Final = 2_048
_AHEAD_BYTES: Final = 4 << 20
_TEXTS: Final = ("item_id", "text", "metadata", "unit_id", "rubric_id", "candidate", "input_text")
_ELSE: Final = (None, NOTHING, None, None, None)
"""What most rows have in their other fields."""
_SIZES_BYTES: Final = 4 * (len(_TEXTS) + 1)


class SpilledRows:
    """Rows in id order, hashed once; `folder` is where their file, which has no name, takes its space."""

    def __init__(self, folder: Path, some: Iterable[Columns]) -> None:
        file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (closed with the rows)
        weakref.finalize(self, file.close)
        self._descriptor = file.fileno()
        starts, chunks, hashes = array("q", [0]), [], bytearray()
        self.n_text_bytes, self.rubric_ids, self.is_chosen = 0, Counter[str | None](), False
        for columns in some:
            parts, sizes = _packed(columns, _metadata_of(columns))
            hashes += b"".join(ids.hashes_of(("item",), *parts[:3]))
            file.write(_joined(parts, sizes))
            starts.extend((starts[-1] + _ends(sizes)).tolist())
            self.n_text_bytes += int(sizes[:, 1].sum())
            self.rubric_ids.update(columns[3])
            self.is_chosen |= any(one is not None for one in columns[8])
            chunks.append(pa.array(columns[0], pa.string()))
        file.flush()
        # By bytes of UTF-8, which is the order of the texts themselves.
        names = pa.chunked_array(chunks, pa.string())
        order = pc.sort_indices(names)
        self._order: NDArray[np.int64] = np.asarray(np.from_dlpack(order), np.int64)
        ordered = names.take(order)
        self.is_in_order: bool = pc.any(pc.equal(ordered[1:], ordered[:-1])).as_py() is not True
        """Whether each id stands there once, so that nothing but the ids makes the order."""
        self._starts: NDArray[np.int64] = np.frombuffer(starts, np.int64)
        found = (bytes(hashes[at : at + _HASHES_AT_ONCE]) for at in range(0, len(hashes), _HASHES_AT_ONCE))
        self._hashes = b"".join([names_of([part]).buffers()[2] for part in found]).decode()

    def hashes(self) -> list[str]:
        """Return the hashes of all rows as the lake keeps them, in no order."""
        return self._hashes_of(range(len(self)))

    def _hashes_of(self, numbers: Iterable[int]) -> list[str]:
        starts = (number * ids.ID_LENGTH for number in numbers)
        return [self._hashes[at : at + ids.ID_LENGTH] for at in starts]

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[SourceRow]:
        return itertools.chain.from_iterable(some.each for some in self.some())

    def some(self) -> Iterator[Rows]:
        """Yield all rows, some at once."""
        ends = np.cumsum(np.diff(self._starts)[self._order])
        start = n_bytes = 0
        while start < len(ends):
            within = int(ends.searchsorted(n_bytes + _AHEAD_BYTES, "right"))
            stop = min(max(within, start + 1), start + _AHEAD_ROWS, len(ends))
            yield self._read(self._order[start:stop])
            start, n_bytes = stop, int(ends[stop - 1])

    def _read(self, numbers: NDArray[np.int64]) -> Rows:
        """Return rows, those that stand side by side in the file read at once."""
        sides = np.sort(numbers)
        firsts = np.flatnonzero(np.diff(sides, prepend=-2) > 1)
        lasts = np.append(firsts[1:], len(sides)) - 1
        runs = zip(self._starts[sides[firsts]].tolist(), self._starts[sides[lasts] + 1].tolist(), strict=True)
        data = memoryview(b"".join([os.pread(self._descriptor, stop - start, start) for start, stop in runs]))
        ends = np.cumsum(self._starts[sides + 1] - self._starts[sides])
        starts = np.append(0, ends[:-1])[sides.searchsorted(numbers)]
        sizes = np.frombuffer(data, np.uint8)[starts[:, None] + np.arange(_SIZES_BYTES)].view(np.int32)
        return Rows(self._hashes_of(numbers.tolist()), data, starts, sizes)

    def take(self, places: Sequence[int]) -> Rows:
        """Return the rows at some places, each once."""
        return self._read(self._order[np.array(places, np.int64)])


def _packed(columns: Columns, metadata: Sequence[str | None]) -> tuple[list[list[bytes]], NDArray[np.int32]]:
    """Return rows part by part, and the sizes of these."""
    rest = zip(*columns[6:], strict=True)
    others = [b"" if one == _ELSE else pickle.dumps(one, pickle.HIGHEST_PROTOCOL) for one in rest]
    texts, nothing = [*columns[:2], metadata, *columns[2:6]], [b""] * len(metadata)
    parts = [[(text or "").encode("utf-8") for text in column] if any(column) else nothing for column in texts]
    sizes = np.array([[*map(len, part)] for part in (*parts, others)], np.int32)
    for size, column in zip(sizes, texts, strict=False):
        if None in column:
            size[[text is None for text in column]] = -1
    return [*parts, others], sizes.T


def _joined(parts: Sequence[Sequence[bytes]], sizes: NDArray[np.int32]) -> bytes:
    written = sizes.tobytes()
    heads = (written[at : at + _SIZES_BYTES] for at in range(0, len(written), _SIZES_BYTES))
    return b"".join(itertools.chain.from_iterable(zip(heads, *parts, strict=True)))


def _ends(sizes: NDArray[np.int32]) -> NDArray[np.int64]:
    return np.cumsum(np.maximum(sizes, 0).sum(axis=1, dtype=np.int64) + _SIZES_BYTES)


SourceRows = Sequence[SourceRow] | SpilledRows


def size_of(text: str) -> int:
    """Return the size of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8"))


def tier_of(stage: StageSpec, item_id: str, value: object) -> int | None:
    """Return a row's tier as a column gives it, None where it is blank; raises StudyError for what is no tier."""
    if value is None or value == "":
        return None
    text = str(value).strip()
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:_TIER_DIGITS_MAX]) <= TIER_MAX):
        raise StudyError(
            f"stage {stage.name}: the tier of {item_id!r} is {text[:40]!r}, not a whole number from 1 to {TIER_MAX:,}",
            hint="1 is sent first; leave the cell empty for the tier of the stage",
        )
    return int(text)


def tier_in(metadata: str | None) -> int | None:
    """Return the tier that an item's metadata names."""
    tier = orjson.loads(metadata).get("tier") if metadata else None
    return tier if isinstance(tier, int) else None


def row_of_file(item: Item, stage: StageSpec) -> SourceRow:
    """Return an item of a study that is nothing but pairs: its file says its tier at most."""
    more: dict[str, Any] = orjson.loads(item.metadata) if item.metadata else {}
    column = stage.rows.columns.get("tier")
    # Of a version planned with tiers by that name, the column is gone.
    value = None if column is None else more.get(column, tier_in(item.metadata))
    tier = tier_of(stage, item.item_id, value)
    return SourceRow(item.item_id, item.text, more=more, tier=tier, of_file=item)


def placed(stage: StageSpec, items: ItemColumns, told: Mapping[str, Sequence[object]]) -> Columns:
    """Return items as rows by what their columns for unit, rubric, candidate, input, tier say.

    A list of rubrics is of those that it is judged by, each by itself. Raises StudyError for no tier.
    """
    item_ids, texts, more = items
    none, by = [None] * len(item_ids), told.get("rubric")
    # Of pairs and lists any two rows are compared.
    own_units = [""] * len(item_ids) if stage.about in {About.PAIR, About.LIST} else item_ids
    judged_by = [judged_by_of(stage, *one) for one in zip(item_ids, by, strict=True)] if by else none
    if any(judged_by):
        column, lists = stage.rows.columns["rubric"], [*zip(judged_by, by or none, strict=True)]
        more = [{**one, column: names} if names else one for one, (names, _) in zip(more, lists, strict=True)]
        by = [None if names else one for names, one in lists]
    units, rubric_ids, candidates, asked = (
        [*map(_said, values)] if values else none
        for values in (told.get("unit"), by, told.get("candidate"), told.get("input"))
    )
    unit_ids = [unit or own for unit, own in zip(units, own_units, strict=True)] if "unit" in told else own_units
    tiers = [tier_of(stage, *one) for one in zip(item_ids, told["tier"], strict=True)] if "tier" in told else none
    inputs = [one or None for one in asked]
    return item_ids, texts, unit_ids, rubric_ids, candidates, inputs, none, more, judged_by, tiers, none


def judged_by_of(stage: StageSpec, item_id: str, value: object) -> tuple[str, ...] | None:
    """Return the rubrics that a list names, each once, None for what is none.

    Raises StudyError for an empty list, or a rubric that the stage lacks.
    """
    if not isinstance(value, list):
        return None
    found, known = tuple(dict.fromkeys(map(str, value))), stage.rubric_places
    if not found:
        raise StudyError(f"stage {stage.name}: {item_id!r} has an empty list of rubrics", hint="leave such an item out")
    if lacking := [name for name in found if known and name not in known]:
        raise unknown_rubric(stage, item_id, lacking[0])
    return found


def _said(value: object) -> str | None:
    """Return a column's value as prompts show it: lists and objects, such as messages of a chat, as JSON."""
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value, default=plain).decode() if isinstance(value, list | dict) else str(value)


def unknown_rubric(stage: StageSpec, item_id: str, name: str) -> StudyError:
    """Return the error of a row that names a rubric which its stage lacks."""
    hint = f"its rubrics: {', '.join(rubric.rubric_id for rubric in stage.rubrics[:20])}"
    if name.startswith("["):
        hint = f"a cell of CSV is one rubric's id; lists of them stand in JSON Lines or Parquet; {hint}"
    return StudyError(
        f"stage {stage.name}: {item_id!r} belongs to the rubric {name!r}, which the stage lacks", hint=hint
    )
