"""Reading what a study judges (CSV, JSONL, Parquet, a folder of .txt files, SQL on the lake), and which pairs of it.

All problems of one source are told in one error, with the line of each, up to a bound. Items are returned in id order,
so the order of rows in a file changes nothing.

Every choice of a pair is a number drawn from the seed and the two ids, smaller id first, so it is the same on every
machine and does not change when items are added. The one exception is the order `alternate`, which balances places over
all chosen pairs and so depends on all of them.
"""

from __future__ import annotations

import csv
import heapq
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from batchpond import ids
from batchpond.errors import StudyError
from batchpond.fields import delimiter_of
from batchpond.files import read_text
from batchpond.study.spec import ItemsFrom, ItemsSpec, Order, PairsSpec

PROBLEMS_SHOWN_MAX: Final = 20
FILE_SIZE_MAX_BYTES: Final = 4_000_000_000
_FIELD_SIZE_MAX: Final = 100_000_000
_HASH_BYTES: Final = 32
_BUFFER_BYTES: Final = 1 << 20

SqlRows = Callable[[str], Iterable[Mapping[str, Any]]]
"""Runs one SELECT on the lake and gives its rows."""

Row = tuple[str, Mapping[str, Any]]
"""Where a row stands (`line 7`) and its columns."""


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


def read_pairs(spec: ItemsSpec, base_path: Path, run_sql: SqlRows | None = None) -> list[Item]:
    """Return the items of a source that are compared, in id order; raises StudyError that lists what cannot be used."""
    items = read_any(spec, base_path, run_sql)
    if len(items) < 2:
        raise StudyError(f"{spec.location}: has {len(items)} usable items; pairs need at least 2")
    return items


def read_any(spec: ItemsSpec, base_path: Path, run_sql: SqlRows | None = None) -> list[Item]:
    """Return the items of one source in id order, however few; raises StudyError that lists what cannot be used."""
    source = spec.location if spec.source is not ItemsFrom.SQL else "items.sql"
    return collect(_rows(spec, base_path, run_sql), spec, source)


def each(spec: ItemsSpec, base_path: Path, run_sql: SqlRows | None = None) -> Iterator[Item]:
    """Yield the items of one source one by one, in its order, so that memory need not hold them.

    Raises StudyError as `read_any` does, except that ids which stand there twice are the caller's to find.
    """
    for where, row in _rows(spec, base_path, run_sql):
        item_id, text = _as_id(row.get(spec.id_column)), row.get(spec.text_column)
        if _problem(item_id, text) is not None:
            read_any(spec, base_path, run_sql)  # tells of all that cannot be used
            raise StudyError(f"{spec.location}: {where}: {_problem(item_id, text)}")
        yield Item(item_id, str(text), _metadata(row, spec))


def collect(rows: Iterable[Row], spec: ItemsSpec, source: str) -> list[Item]:
    """Return the items that rows hold, in id order; raises one StudyError for all unusable rows."""
    problems: list[str] = []
    seen: dict[str, str] = {}
    items = []
    for where, row in rows:
        missing = [column for column in (spec.id_column, spec.text_column) if column not in row]
        if missing:
            raise StudyError(
                f"{source}: {where} has no column {missing[0]!r}; it has {', '.join(map(repr, list(row)[:20]))}",
                hint="name the columns with `id` and `text` under [items]",
            )
        item_id, text = _as_id(row[spec.id_column]), row[spec.text_column]
        problem = _problem(item_id, text)
        if problem is None and item_id in seen:
            problem = f"id {item_id!r} stands in {seen[item_id]} already"
        if problem is not None:
            problems.append(f"{where}: {problem}")
            continue
        seen[item_id] = where
        items.append(Item(item_id, text, _metadata(row, spec)))
    if problems:
        raise StudyError(
            _summary(source, problems), hint="every item needs an id of its own and a text; nothing was planned"
        )
    return sorted(items, key=lambda item: item.item_id)


def _summary(source: str, problems: list[str]) -> str:
    shown = "\n  ".join(problems[:PROBLEMS_SHOWN_MAX])
    more = len(problems) - PROBLEMS_SHOWN_MAX
    rest = f"\n  and {more:,} more" if more > 0 else ""
    return f"{source}: {len(problems):,} unusable items:\n  {shown}{rest}"


def _as_id(value: object) -> str:
    # Numbers are common ids; 1.0 and True are not, and would hide a column chosen by mistake.
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else ""


def _problem(item_id: str, text: object) -> str | None:
    if not item_id or item_id.isspace():
        return "no id, or not a text or whole number"
    if text is None or (isinstance(text, str) and (not text or text.isspace())):
        return f"id {item_id!r} has an empty text"
    if not isinstance(text, str):
        return f"id {item_id!r} has a text that is not a string"
    if not _is_unicode(item_id) or not _is_unicode(text):
        return f"id {item_id!r} holds a lone surrogate, which UTF-8 cannot say"
    return None


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _metadata(row: Mapping[str, Any], spec: ItemsSpec) -> str | None:
    own = spec.id_column, spec.text_column
    rest = {k: v for k, v in row.items() if k not in own and v is not None}
    if not rest:
        return None
    return orjson.dumps(rest, default=str, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS).decode("utf-8")


def _rows(spec: ItemsSpec, base_path: Path, run_sql: SqlRows | None) -> Iterator[Row]:
    path = base_path / spec.location
    match spec.source:
        case ItemsFrom.CSV | ItemsFrom.JSONL:
            yield from _line_rows(path, spec)
        case ItemsFrom.PARQUET:
            yield from _parquet_rows(path)
        case ItemsFrom.FOLDER:
            yield from _folder_rows(path, spec)
        case ItemsFrom.SQL:
            if run_sql is None:
                raise StudyError("items.sql needs a lake to run on", hint="plan the study with `--lake`")
            yield from ((f"row {number}", row) for number, row in enumerate(run_sql(spec.location), 1))


def _line_rows(path: Path, spec: ItemsSpec) -> Iterator[Row]:
    """Yield the rows of a file of lines as they are read; raises StudyError for one that cannot be."""
    try:
        if path.stat().st_size > FILE_SIZE_MAX_BYTES:
            raise StudyError(f"{path}: larger than {FILE_SIZE_MAX_BYTES:,} bytes")
        if spec.source is ItemsFrom.CSV:
            with path.open(encoding="utf-8-sig", newline="") as lines:
                yield from _csv_rows(lines, spec.location)
        else:
            with path.open("rb", buffering=_BUFFER_BYTES) as lines:
                yield from _jsonl_rows(lines, spec.location)
    except (OSError, UnicodeDecodeError) as error:
        read_text(path, FILE_SIZE_MAX_BYTES)  # says which line
        raise StudyError(f"{spec.location}: cannot be read: {error}") from None


def _csv_rows(lines: TextIO, source: str) -> Iterator[Row]:
    # The reader's field limit is global to the process; long samples need more than its default.
    limit = csv.field_size_limit(_FIELD_SIZE_MAX)
    end = 0
    try:
        delimiter = delimiter_of(lines.readline())
        lines.seek(0)
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        header = next(reader, None)
        if header is None:
            raise StudyError(f"{source}: is empty; its first line must name the columns")
        if len(set(header)) != len(header):
            raise StudyError(f"{source}: line 1 names a column twice")
        end = reader.line_num
        for fields in reader:
            where, end = f"line {end + 1}", reader.line_num
            if not fields:
                continue
            if len(fields) != len(header):
                raise StudyError(
                    f"{source}: {where} has {len(fields)} fields, the header has {len(header)}",
                    hint=f"texts with {delimiter!r}, quotes or line ends must stand in double quotes",
                )
            yield where, dict(zip(header, fields, strict=True))
    except csv.Error as error:
        raise StudyError(
            f"{source}: the row that begins in line {end + 1} is not CSV: {error} (line {reader.line_num})",
            hint='look there for a quote that is opened and never closed; inside a quoted text a quote is doubled ("")',
        ) from None
    finally:
        csv.field_size_limit(limit)


def _jsonl_rows(lines: Iterable[bytes], source: str) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        if line.isspace():
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise StudyError(f"{source}: line {number} is not JSON: {error}") from None
        if not isinstance(row, dict):
            raise StudyError(f"{source}: line {number} is not a JSON object")
        yield f"line {number}", row


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
        text = read_text(file, _FIELD_SIZE_MAX)
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
    """How evenly places came out, per prompt design; `uneven` holds the items furthest from half.

    `lo_first_share` is over all orders asked, `forward_lo_first_share` over the forward ones only.
    """

    n_forward: int
    n_reverse: int
    lo_first_share: float
    forward_lo_first_share: float
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

    def __len__(self) -> int:
        return len(self.pair)


def pair_ids(lo: Sequence[str], hi: Sequence[str]) -> pa.StringArray:
    """Return the ids of unordered pairs, forward and reverse alike; `lo` are the smaller ids."""
    return names_of(ids.hashes_of("pair", lo, hi))


def choose_pairs(item_ids: Sequence[str], spec: PairsSpec, seed: int) -> Pairs:
    """Return the pairs of a study; `item_ids` are sorted and different.

    Raises StudyError when nothing is left or the count passes what one study may hold.
    """
    n = len(item_ids)
    n_possible = n * (n - 1) // 2
    if n_possible > PAIRS_MAX:
        raise StudyError(
            f"{n:,} items make {n_possible:,} pairs; one study holds at most {PAIRS_MAX:,}",
            hint="split the items over several studies",
        )
    lo, hi = _chosen(item_ids, spec, seed)
    if not len(lo):
        raise StudyError(
            f"pairs.share = {spec.share} left none of {n_possible:,} pairs", hint="raise share, or give count instead"
        )
    lo_first = _forward_order(item_ids, lo, hi, spec.order, seed)
    return Pairs(lo, hi, lo_first, _reversed(item_ids, lo, hi, spec.reverse, seed), n_possible)


def _all(n: int) -> Iterator[tuple[int, int]]:
    return ((i, j) for i in range(n) for j in range(i + 1, n))


def _chosen(item_ids: Sequence[str], spec: PairsSpec, seed: int) -> tuple[Indices, Indices]:
    n = len(item_ids)
    if spec.count is None and spec.share in (None, 1.0):
        lo, hi = np.triu_indices(n, k=1)
        return lo.astype(np.int32), hi.astype(np.int32)
    draws = ((ids.unit_interval(seed, "pair", item_ids[i], item_ids[j]), i, j) for i, j in _all(n))
    if spec.count is not None:
        kept = sorted((i, j) for _, i, j in heapq.nsmallest(spec.count, draws))
        flat = array("i", [index for pair in kept for index in pair])
    else:
        share = spec.share or 1.0
        flat = array("i", (index for draw, i, j in draws if draw < share for index in (i, j)))
    both = np.frombuffer(flat, dtype=np.int32) if flat else np.empty(0, np.int32)
    return both[0::2].copy(), both[1::2].copy()


def _draws_below(item_ids: Sequence[str], lo: Indices, hi: Indices, what: str, share: float, seed: int) -> Flags:
    pairs = zip(lo.tolist(), hi.tolist(), strict=True)
    drawn = (ids.unit_interval(seed, what, item_ids[i], item_ids[j]) < share for i, j in pairs)
    return np.fromiter(drawn, np.bool_, count=len(lo))


def _forward_order(item_ids: Sequence[str], lo: Indices, hi: Indices, order: Order, seed: int) -> Flags:
    match order:
        case Order.RANDOM:
            return _draws_below(item_ids, lo, hi, "order", 0.5, seed)
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


def _reversed(item_ids: Sequence[str], lo: Indices, hi: Indices, share: float, seed: int) -> Flags:
    if share in (0.0, 1.0):
        return np.full(len(lo), share == 1.0)
    return _draws_below(item_ids, lo, hi, "reverse", share, seed)


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
    uneven = tuple(ItemBalance(item_ids[k], int(n_shown[k]), int(n_first[k])) for k in furthest.tolist())
    n_forward, n_reverse = len(pairs), int(pairs.has_reverse.sum())
    n_lo_first = int(pairs.lo_first.sum()) + int((~pairs.lo_first & pairs.has_reverse).sum())
    return Balance(
        n_forward=n_forward,
        n_reverse=n_reverse,
        lo_first_share=n_lo_first / (n_forward + n_reverse),
        forward_lo_first_share=float(pairs.lo_first.mean()),
        first_share_min=float(shares.min()),
        first_share_max=float(shares.max()),
        uneven=tuple(item for item in uneven if item.n_first * 2 != item.n_shown),
    )
