"""Reading what a study judges (CSV, JSONL, Parquet, a folder of .txt files, SQL on the lake), and which pairs of it.

All problems of one source are told in one error, with the line of each, up to a bound. Items are returned in id order,
so the order of rows in a file changes nothing.

Every choice of a pair is a number drawn from the seed and the two ids, smaller id first, so it is the same on every
machine and does not change when items are added. The one exception is the order `alternate`, which balances places over
all chosen pairs and so depends on all of them.
"""

from __future__ import annotations

import heapq
import itertools
import unicodedata
from codecs import BOM_UTF8
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from batchpond import ids
from batchpond.errors import StudyError, UsageError
from batchpond.files import FIELD_SIZE_MAX, csv_rows, json_rows, listed, read_text
from batchpond.study.spec import CANDIDATE, UNIT, ItemsFrom, ItemsSpec, Order, PairsSpec
from batchpond.text import is_unicode, plain

FILE_SIZE_MAX_BYTES: Final = 4_000_000_000
_HASH_BYTES: Final = 32
ROWS_AT_ONCE: Final = 256
_BUFFER_BYTES: Final = 1 << 18
_PART_PAIRS: Final = 1 << 15

SqlRows = Callable[[str], Iterable[Mapping[str, Any]]]
"""Runs one SELECT on the lake and gives its rows."""

Row = tuple[str, Mapping[str, Any]]
"""Where a row stands (`line 7`) and its columns."""

Take = Callable[[Row], Row]
"""Returns a row with the pictures and documents that it names read in; its text may be blank then."""


class _Item(NamedTuple):
    item_id: str
    text: str
    metadata: str | None = None


class Item(_Item):
    """One text to be judged; `metadata` is the JSON of its other columns, None when there are none."""

    @cached_property
    def item_hash(self) -> str:
        """The digest of id, text and metadata, so that a row of the lake is found by it alone."""
        return ids.digest("item", self.item_id, self.text, self.metadata or "")


def names_of(hashes: Iterable[bytes]) -> pa.StringArray:
    """Return the ids that hashes make, all at once: a tenth of the time that one by one takes."""
    raw = np.frombuffer(b"".join(hashes), np.uint8).reshape(-1, _HASH_BYTES)[:, :20].reshape(-1, 5)
    groups = np.zeros((len(raw), 8), np.uint8)
    groups[:, :5] = raw[:, ::-1]
    fives = (groups.view("<u8") >> np.arange(35, -1, -5, dtype=np.uint64)).astype(np.uint8)
    letters = np.frombuffer(ids.LETTERS, np.uint8)[fives].reshape(-1, 32)[:, : ids.ID_LENGTH]
    return strings_of(letters.tobytes(), np.full(len(letters), ids.ID_LENGTH))


def strings_of(data: bytes, sizes: NDArray[np.int64]) -> pa.StringArray:
    """Return texts that stand one after the other in UTF-8, each of its size in bytes."""
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return pa.StringArray.from_buffers(len(sizes), pa.py_buffer(offsets), pa.py_buffer(data))


def read_pairs(
    spec: ItemsSpec, base_path: Path, run_sql: SqlRows | None = None, take: Take | None = None
) -> list[Item]:
    """Return the items of a source that are compared, in id order; raises StudyError that lists what cannot be used."""
    items = read_any(spec, base_path, run_sql, take)
    if len(items) < 2:
        raise StudyError(f"{spec.location}: has {len(items)} usable items; pairs need at least 2")
    return items


def read_any(spec: ItemsSpec, base_path: Path, run_sql: SqlRows | None = None, take: Take | None = None) -> list[Item]:
    """Return the items of one source in id order, however few; raises StudyError that lists what cannot be used."""

    def read(row: Mapping[str, Any]) -> _Told[Item]:
        item_id, text = _as_id(row[spec.id_column]), row[spec.text_column]
        return f"id {item_id!r}", _problem(item_id, text, take), Item(item_id, text, _metadata(row, spec))

    rows = _rows(spec, base_path, run_sql)
    hints = "name the columns with `id` and `text` under [items]", "every item needs an id of its own and a text"
    found = _usable(rows if take is None else map(take, rows), spec, "items", hints, read)
    return sorted(found, key=lambda item: item.item_id)


ItemColumns = tuple[list[str], list[str], list[dict[str, Any]]]
"""Some items of a source, in its order: ids, texts, and what else each row says, as JSON gives it back."""


def each(
    spec: ItemsSpec, base_path: Path, run_sql: SqlRows | None = None, take: Take | None = None
) -> Iterator[ItemColumns]:
    """Yield the items of one source some at once, in its order, so that memory need not hold them.

    Raises StudyError as `read_any` does, except that ids which stand there twice are the caller's to find.
    """
    rows, own = _rows(spec, base_path, run_sql), {spec.id_column, spec.text_column}
    rest = rows if take is None else map(take, rows)
    while some := list(itertools.islice(rest, ROWS_AT_ONCE)):
        item_ids = [*map(_as_id, (row.get(spec.id_column) for _, row in some))]
        texts: list[Any] = [row.get(spec.text_column) for _, row in some]
        if not _are_usable(item_ids, texts, take):
            for (where, _), item_id, text in zip(some, item_ids, texts, strict=True):
                if (problem := _problem(item_id, text, take)) is not None:
                    read_any(spec, base_path, run_sql, take)  # tells of all that cannot be used
                    raise StudyError(f"{spec.location}: {where}: {problem}")
        all_said = (len(row) > len(own) and _metadata(row, spec) for _, row in some)
        yield item_ids, texts, [orjson.loads(said) if said else {} for said in all_said]


def _are_usable(item_ids: Sequence[str], texts: Sequence[object], take: Take | None) -> bool:
    """Whether all are items for sure, asked of all at once; of those that are not each is asked for its problem."""
    ids_said, shown = "".join(item_ids), [text for text in texts if isinstance(text, str)]
    is_said = take is not None or (all(shown) and not any(map(str.isspace, shown)))
    is_named = all(item_ids) and not any(map(str.isspace, item_ids)) and "\0" not in ids_said
    return is_said and is_named and len(shown) == len(texts) and is_unicode(ids_said) and all(map(is_unicode, shown))


_T = TypeVar("_T")
_Told = tuple[str, str | None, _T]
"""What names a row, what is wrong with it if anything, and what it is read as."""


def _usable(
    rows: Iterable[Row], spec: ItemsSpec, noun: str, hints: tuple[str, str],
    read: Callable[[Mapping[str, Any]], _Told[_T]],
) -> list[_T]:  # fmt: skip
    """Return rows as they are read; raises StudyError for a column that lacks, and one for all rows with a problem."""
    source = spec.location if spec.source is not ItemsFrom.SQL else f"{noun}.sql"
    problems: list[str] = []
    seen: dict[str, tuple[str, str]] = {}
    found = []
    for where, row in rows:
        missing = [column for column in (spec.id_column, spec.text_column) if column not in row]
        if missing:
            known = ", ".join(map(repr, list(row)[:20]))
            raise StudyError(f"{source}: {where} has no column {missing[0]!r}; it has {known}", hint=hints[0])
        name, problem, value = read(row)
        if problem is None:
            first, place = seen.setdefault(unicodedata.normalize("NFC", name), (name, where))
            if place != where:
                problem = f"{name} stands in {place} already" + ", in another Unicode form" * (first != name)
        if problem is None:
            found.append(value)
        else:
            problems.append(f"{where}: {problem}")
    if problems:
        text = f"{source}: {len(problems):,} unusable {noun}:{listed(problems, len(problems))}"
        raise StudyError(text, hint=f"{hints[1]}; nothing was planned")
    return found


def _as_id(value: object) -> str:
    if isinstance(value, str):
        return value
    # Numbers are common ids; 1.0 and True are not, and would hide a column chosen by mistake.
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def _problem(item_id: str, text: object, take: Take | None) -> str | None:
    if not item_id or item_id.isspace():
        return "no id, or not a text or whole number"
    if take is None and (text is None or (isinstance(text, str) and (not text or text.isspace()))):
        return f"id {item_id!r} has an empty text"
    if not isinstance(text, str):
        return f"id {item_id!r} has a text that is not a string"
    if not is_unicode(item_id) or not is_unicode(text):
        return f"id {item_id!r} holds a lone surrogate, which UTF-8 cannot say"
    if "\0" in item_id:
        return f"id {item_id!r} holds a NUL, at which many tools end a text"
    return None


def _metadata(row: Mapping[str, Any], spec: ItemsSpec) -> str | None:
    rest = dict(row)
    for own in (spec.id_column, spec.text_column):
        rest.pop(own, None)
    if rest and None in rest.values():
        rest = {name: value for name, value in rest.items() if value is not None}
    if not rest:
        return None
    return orjson.dumps(rest, default=plain, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS).decode("utf-8")


def _rows(spec: ItemsSpec, base_path: Path, run_sql: SqlRows | None) -> Iterator[Row]:
    rows = _rows_as_written(spec, base_path, run_sql)
    return _by_candidate(rows, spec) if spec.candidates else rows


def _by_candidate(rows: Iterable[Row], spec: ItemsSpec) -> Iterator[Row]:
    """Yield for each row one for each candidate's output, with all columns but those of the others'."""
    for where, row in rows:
        lacking = [name for name in (spec.id_column, *spec.candidates) if name not in row]
        if lacking or CANDIDATE in row:
            problem = f"has no column {lacking[0]!r}" if lacking else f"has a column {CANDIDATE!r}"
            known = ", ".join(map(repr, list(row)[:20]))
            hint = f"`candidates` names a column for each output, and makes the column {CANDIDATE!r}"
            raise StudyError(f"{spec.location}: {where} {problem}; it has {known}", hint=hint)
        unit_id = _as_id(row[spec.id_column])
        shared = {UNIT: unit_id} | {name: value for name, value in row.items() if name not in spec.candidates}
        for name in spec.candidates:
            item_id = f"{unit_id}/{name}" if unit_id else ""
            yield f"{where}, {name}", {**shared, spec.id_column: item_id, spec.text_column: row[name], CANDIDATE: name}


def _rows_as_written(spec: ItemsSpec, base_path: Path, run_sql: SqlRows | None) -> Iterator[Row]:
    path = base_path / spec.location
    match spec.source:
        case ItemsFrom.CSV | ItemsFrom.JSONL | ItemsFrom.LINES:
            yield from _line_rows(path, spec)
        case ItemsFrom.PARQUET:
            yield from _parquet_rows(path)
        case ItemsFrom.FOLDER:
            yield from _folder_rows(path, spec)
        case ItemsFrom.SQL:
            if run_sql is None:
                raise StudyError("sql needs a lake to run on", hint="plan the study with `--lake`")
            yield from ((f"row {number}", row) for number, row in enumerate(run_sql(spec.location), 1))


def _line_rows(path: Path, spec: ItemsSpec) -> Iterator[Row]:
    """Yield the rows of a file of lines as they are read; raises StudyError for one that cannot be."""
    if path.is_file() and path.stat().st_size > FILE_SIZE_MAX_BYTES:
        raise StudyError(f"{path}: larger than {FILE_SIZE_MAX_BYTES:,} bytes")
    for number, row in _numbered(path, spec):
        if isinstance(row, str):
            read_text(path, FILE_SIZE_MAX_BYTES)  # says which line is no UTF-8, if one is not
            hint = "texts with what separates columns, quotes or line ends must stand in double quotes"
            is_csv = spec.source is ItemsFrom.CSV
            raise StudyError(f"{spec.location}: line {number} {row}", hint=hint if is_csv else None)
        yield f"line {number}", row


def _numbered(path: Path, spec: ItemsSpec) -> Iterator[tuple[int, dict[str, Any] | str]]:
    try:
        if spec.source is ItemsFrom.CSV:
            yield from csv_rows(path, FIELD_SIZE_MAX)
            return
        if spec.source is ItemsFrom.JSONL:
            with path.open("rb", _BUFFER_BYTES) as file:
                yield from json_rows(itertools.chain([file.readline().removeprefix(BOM_UTF8)], file))
            return
        with path.open(encoding="utf-8-sig", newline="\n") as lines:
            for number, text in enumerate(lines, 1):
                if text.strip():
                    yield number, {spec.id_column: str(number), spec.text_column: text.rstrip("\r\n")}
    except (OSError, UnicodeDecodeError, UsageError) as error:
        read_text(path, FILE_SIZE_MAX_BYTES)  # says which line
        raise StudyError(str(error), hint=getattr(error, "hint", None)) from None


def _parquet_rows(path: Path) -> Iterator[Row]:
    try:
        number = 0
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1_000):
                for row in batch.to_pylist():
                    number += 1
                    yield f"row {number}", row
    except (OSError, pa.ArrowException) as error:
        raise StudyError(f"{path}: cannot be read as Parquet: {error}") from None


def _folder_rows(path: Path, spec: ItemsSpec) -> Iterator[Row]:
    try:
        entries = sorted(entry for entry in path.iterdir() if entry.suffix.lower() == ".txt" and entry.is_file())
    except OSError as error:
        raise StudyError(f"{path}: {error.strerror or error}", hint="paths start at the study file's folder") from None
    if not entries:
        raise StudyError(f"{path}: holds no .txt file", hint="each item is a .txt file there, named after its id")
    for file in entries:
        text = read_text(file, FIELD_SIZE_MAX)
        yield file.name, {spec.id_column: file.stem, spec.text_column: text}


PAIRS_MAX: Final = 50_000_000
UNEVEN_SHOWN_MAX: Final = 5

Indices = NDArray[np.int32]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Pairs:
    """The chosen pairs, as positions in the id-sorted list of items; one element per pair.

    `lo` < `hi` always. `lo_first` is the forward order; `has_reverse` says that the swapped order is
    asked too. Nine bytes and some per pair.
    """

    lo: Indices
    hi: Indices
    lo_first: Flags
    has_reverse: Flags
    n_possible: int

    def __len__(self) -> int:
        return len(self.lo)


@dataclass(frozen=True, slots=True)
class ItemBalance:
    """How often an item is shown, and how often in the first place."""

    item_id: str
    n_shown: int
    n_first: int


@dataclass(frozen=True, slots=True)
class Balance:
    """How evenly places came out, per prompt design; `uneven` holds the items furthest from half."""

    n_forward: int
    n_reverse: int
    lo_first_share: float
    first_share_min: float
    first_share_max: float
    uneven: tuple[ItemBalance, ...]


@dataclass(frozen=True, slots=True)
class Showings:
    """Every pair, direction and repeat that is asked, as positions; one array element each."""

    pair: Indices
    first: Indices
    second: Indices
    is_reverse: Flags
    repeat_no: Indices


def pair_ids(lo: Sequence[str], hi: Sequence[str]) -> pa.StringArray:
    """Return the ids of unordered pairs, forward and reverse alike; `lo` are the smaller ids."""
    return names_of(ids.hashes_of(("pair",), lo, hi))


def named(item_ids: Sequence[str], lo: Indices, hi: Indices) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the ids of pairs' items a part at a time: hashes of them take many times what is made of these."""
    for at in range(0, len(lo), _PART_PAIRS):
        part = slice(at, at + _PART_PAIRS)
        yield [item_ids[place] for place in lo[part].tolist()], [item_ids[place] for place in hi[part].tolist()]


def allowed_pairs(
    spec: PairsSpec, blocks: Mapping[str, object], base_path: Path, run_sql: SqlRows | None = None
) -> Pairs | None:
    """Return the pairs that are chosen from, None for all: those given, in their order, or those within a block.

    `blocks` has each item's value in the column of that name, in id order. Raises StudyError that lists what of the
    pairs given are none, or for an item without a value.
    """
    if spec.given is not None:
        return _given(spec.given, list(blocks), base_path, run_sql)
    return None if spec.block is None else _within(spec.block, blocks)


def _given(spec: ItemsSpec, item_ids: Sequence[str], base_path: Path, run_sql: SqlRows | None) -> Pairs:
    places = {item_id: place for place, item_id in enumerate(item_ids)}

    def read(row: Mapping[str, Any]) -> _Told[tuple[int, int]]:
        both = _as_id(row[spec.id_column]), _as_id(row[spec.text_column])
        problem = f"item {both[0]!r} is compared with itself" if both[0] == both[1] else None
        for item_id in both:
            if item_id not in places:
                problem = f"there is no item {item_id!r}" if item_id else "no id, or not a text or whole number"
        named = f"the pair of {' and '.join(map(repr, sorted(both)))}"
        return named, problem, (places.get(both[0], -1), places.get(both[1], -1))

    hints = "name the columns with `item_1` and `item_2` under [pairs]", "a pair is two items of the study, named once"
    found = np.array(_usable(_rows(spec, base_path, run_sql), spec, "pairs", hints, read), np.int32)
    return in_id_order(*found.reshape(-1, 2).T)


def _within(block: str, values: Mapping[str, object]) -> Pairs:
    places: dict[object, list[int]] = defaultdict(list)
    for place, (item_id, value) in enumerate(values.items()):
        if value is None or value == "":
            raise StudyError(f"pairs.block: item {item_id!r} has no {block!r}", hint="it is a column of the items")
        places[str(value)].append(place)
    _check_number(len(values), sum(len(some) * (len(some) - 1) // 2 for some in places.values()))
    parts = [np.array(some, np.int32)[np.array(np.triu_indices(len(some), k=1))] for some in places.values()]
    return in_id_order(*np.concatenate(parts, axis=1))


def in_id_order(first: Indices, second: Indices) -> Pairs:
    """Return pairs of items, each asked in one order, sorted by their ids."""
    lo, hi = np.minimum(first, second), np.maximum(first, second)
    order = np.lexsort((hi, lo))
    return Pairs(lo[order], hi[order], (first < second)[order], np.zeros(len(lo), np.bool_), len(lo))


def choose_pairs(item_ids: Sequence[str], spec: PairsSpec, seed: int, allowed: Pairs | None = None) -> Pairs:
    """Return the pairs of a study, of all or those allowed; `item_ids` are sorted and different.

    Raises StudyError when nothing is left or the count passes what one study may hold.
    """
    n = len(item_ids)
    n_possible = n * (n - 1) // 2 if allowed is None else len(allowed)
    _check_number(n, n_possible)
    count = round(spec.share * n_possible) if spec.is_exact and spec.share is not None else spec.count
    lo, hi = _chosen(item_ids, count, spec.share, seed, allowed)
    if not len(lo):
        problem = f"pairs.share = {spec.share} left none of {n_possible:,} pairs"
        hint = "raise share, or give count instead" if n_possible else "look at pairs.path, sql or block"
        raise StudyError(problem if n_possible else "there is no pair to ask", hint=hint)
    lo_first = _forward_order(item_ids, lo, hi, spec.order, seed)
    if allowed is not None and spec.order is Order.FIXED:
        known = allowed.lo.astype(np.int64) * n + allowed.hi
        lo_first = allowed.lo_first[np.searchsorted(known, lo.astype(np.int64) * n + hi)]
    return Pairs(lo, hi, lo_first, _reversed(item_ids, lo, hi, spec, seed), n_possible)


def _check_number(n: int, n_possible: int) -> None:
    if n_possible > PAIRS_MAX:
        raise StudyError(
            f"{n:,} items make {n_possible:,} pairs; one study holds at most {PAIRS_MAX:,}",
            hint="split the items over several studies",
        )


def _chosen(
    item_ids: Sequence[str], count: int | None, share: float | None, seed: int, allowed: Pairs | None
) -> tuple[Indices, Indices]:
    n = len(item_ids)
    if count is None and share in (None, 1.0):
        lo, hi = np.triu_indices(n, k=1) if allowed is None else (allowed.lo, allowed.hi)
        return lo.astype(np.int32), hi.astype(np.int32)
    drawn, chosen = np.empty(0), np.empty((2, 0), np.int32)
    least = 1.0 if count is not None or share is None else share
    for pairs in _all_pairs(n) if allowed is None else [np.stack([allowed.lo, allowed.hi])]:
        new = _draws(item_ids, pairs[0], pairs[1], "pair", seed)
        drawn, chosen = np.append(drawn, new[new < least]), np.append(chosen, pairs[:, new < least], axis=1)
        if count is not None and len(drawn) > count:
            kept = np.sort(np.argsort(drawn, kind="stable")[:count])
            drawn, chosen = drawn[kept], chosen[:, kept]
            least = drawn.max(initial=0.0)
    return chosen[0].copy(), chosen[1].copy()


def _all_pairs(n: int) -> Iterator[Indices]:
    """Yield all pairs of items in the order of their ids, a part at a time: a row of lo, and one of hi."""
    n_rows = max(1, _PART_PAIRS // n)
    for start in range(0, n, n_rows):
        rows = np.arange(start, min(start + n_rows, n), dtype=np.int32)
        pairs = np.stack(np.meshgrid(rows, np.arange(n, dtype=np.int32), indexing="ij")).reshape(2, -1)
        yield pairs[:, pairs[0] < pairs[1]]


def _draws(item_ids: Sequence[str], lo: Indices, hi: Indices, what: str, seed: int) -> NDArray[np.float64]:
    """Return a draw of each pair, as `ids.unit_interval` gives it."""
    drawn = (ids.unit_intervals(seed, what, *part) for part in named(item_ids, lo, hi))
    return np.fromiter(itertools.chain.from_iterable(drawn), np.float64, count=len(lo))


def _forward_order(item_ids: Sequence[str], lo: Indices, hi: Indices, order: Order, seed: int) -> Flags:
    match order:
        case Order.RANDOM:
            return _draws(item_ids, lo, hi, "order", seed) < 0.5
        case Order.FIXED:
            return np.ones(len(lo), np.bool_)
        case Order.ALTERNATE:
            return _alternate(len(item_ids), lo, hi)


def _alternate(n_items: int, lo: Indices, hi: Indices) -> Flags:
    """The item that has stood first less often, net, stands first; ties go by the parity of the distance."""
    net = [0] * n_items
    lo_first = np.empty(len(lo), np.bool_)
    for k, (i, j) in enumerate(zip(lo.tolist(), hi.tolist(), strict=True)):
        is_lo_first = net[i] < net[j] or (net[i] == net[j] and (j - i) % 2 == 1)
        lo_first[k] = is_lo_first
        change = 1 if is_lo_first else -1
        net[i] += change
        net[j] -= change
    return lo_first


def _reversed(item_ids: Sequence[str], lo: Indices, hi: Indices, spec: PairsSpec, seed: int) -> Flags:
    """Return which pairs are asked in the other order too: of an exact number those with the smallest draws."""
    if spec.n_reverse is None and spec.reverse in (0.0, 1.0):
        return np.full(len(lo), spec.reverse == 1.0)
    drawn = _draws(item_ids, lo, hi, "reverse", seed)
    if spec.n_reverse is None and not spec.is_exact:
        return drawn < spec.reverse
    n_reverse = round(spec.reverse * len(lo)) if spec.n_reverse is None else spec.n_reverse
    if n_reverse > len(lo):
        raise StudyError(f"pairs.n_reverse is {n_reverse:,}, and only {len(lo):,} pairs are asked", hint="lower it")
    found = np.zeros(len(lo), np.bool_)
    found[np.argsort(drawn, kind="stable")[:n_reverse]] = True
    return found


def showings(pairs: Pairs, repeats: int) -> Showings:
    """Return what is asked of chosen pairs: of each the forward repeats, then the reverse ones."""
    n_of_pair = (1 + pairs.has_reverse.astype(np.int32)) * repeats
    pair = np.repeat(np.arange(len(pairs), dtype=np.int32), n_of_pair)
    position = np.arange(len(pair)) - np.repeat(np.cumsum(n_of_pair) - n_of_pair, n_of_pair)
    is_reverse = position >= repeats
    lo_first = pairs.lo_first[pair] ^ is_reverse
    lo, hi = pairs.lo[pair], pairs.hi[pair]
    repeat_no = (position % repeats + 1).astype(np.int32)
    return Showings(pair, np.where(lo_first, lo, hi), np.where(lo_first, hi, lo), is_reverse, repeat_no)


def list_orders(names: Sequence[str], size: int, seed: int, salt: str = "") -> Iterator[tuple[int, ...]]:
    """Yield lists of `size` different items without end, as positions in `names`, in the order of their places.

    Each place has a queue. A list takes the first of each, who goes to the end of the next. So after as many lists as
    items, each item stood once at each place (a Youden square: Youden 1937); the seed draws who comes first.
    """
    for cycle in itertools.count():

        def drawn(item: int, n_shown: int, cycle: int = cycle) -> tuple[int, float, int]:
            return n_shown, ids.unit_interval(seed, "list", salt, str(cycle), str(n_shown), names[item]), item

        start = sorted(drawn(item, 0) for item in range(len(names)))
        queues = [start[place::size] for place in range(size)]
        for _ in names:
            shown = [heapq.heappop(queue) for queue in queues]
            yield tuple(item for *_, item in shown)
            for queue, (n_shown, _, item) in zip(queues[1:] + queues[:1], shown, strict=True):
                heapq.heappush(queue, drawn(item, n_shown + 1))


def balance(item_ids: Sequence[str], pairs: Pairs) -> Balance:
    """Return how evenly the chosen orders place each item first."""
    n = len(item_ids)
    forward_first = np.where(pairs.lo_first, pairs.lo, pairs.hi)
    reverse_first = np.where(pairs.lo_first, pairs.hi, pairs.lo)[pairs.has_reverse]
    n_first = np.bincount(forward_first, minlength=n) + np.bincount(reverse_first, minlength=n)
    both = np.concatenate([pairs.lo, pairs.hi, pairs.lo[pairs.has_reverse], pairs.hi[pairs.has_reverse]])
    n_shown = np.bincount(both, minlength=n)
    shown = np.flatnonzero(n_shown)
    shares = n_first[shown] / n_shown[shown]
    furthest = shown[np.argsort(-np.abs(shares - 0.5), kind="stable")[:UNEVEN_SHOWN_MAX]]
    uneven = (ItemBalance(item_ids[k], int(n_shown[k]), int(n_first[k])) for k in furthest.tolist())
    told = tuple(item for item in uneven if item.n_first * 2 != item.n_shown)
    n_forward, n_reverse = len(pairs), int(pairs.has_reverse.sum())
    n_lo_first = int(pairs.lo_first.sum()) + int((~pairs.lo_first & pairs.has_reverse).sum())
    return Balance(n_forward, n_reverse, 2 * n_lo_first / len(both), float(shares.min()), float(shares.max()), told)
