"""Spoiling result rows on purpose, a block at a time so that memory stays bounded.

A block is a list of encoded rows without line ends. Counted kinds spoil the first k rows that
come by.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

import orjson

from batchpond.simulators.faults import Value

BLOCK_ROWS = 2048
BOM = b"\xef\xbb\xbf"

Mutations = Sequence[tuple[str, Value]]

_FORCED = {
    "refusal": ("refusal",),
    "empty_text": ("empty_text",),
    "truncated_text": ("truncated_text",),
    "billing_rows": ("billing_rows",),
    "error_rows": ("error_429", "error_500", "error_400"),
    "status_in_output": ("output_500",),
    "status_code_0": ("status_0",),
}


def forced_answers(mutations: Mutations) -> list[str]:
    """Return what the first requests of a batch are made to answer, in order."""
    words: list[str] = []
    for kind, value in mutations:
        cycle = _FORCED.get(kind)
        if cycle is not None:
            words += [cycle[i % len(cycle)] for i in range(_count(value))]
    return words


def _count(value: Value) -> int:
    return int(value) if isinstance(value, int | float) else 0


# -- one row -----------------------------------------------------------------------------------


def _replaced_id(row: bytes, custom_id: str | None) -> bytes:
    data = orjson.loads(row)
    data["custom_id"] = custom_id
    return orjson.dumps(data)


def _in_text(row: bytes, insert: bytes) -> bytes:
    for field in (b'"content":"', b'"text":"', b'"refusal":"'):
        if field in row:
            return row.replace(field, field + insert, 1)
    return row


def _malformed(row: bytes) -> bytes:
    return row[: len(row) // 2]


def _without_usage(row: bytes) -> bytes:
    data = orjson.loads(row)
    body = (data.get("response") or {}).get("body")
    if body:
        body.pop("usage", None)
    return orjson.dumps(data)


def _twice_keyed(row: bytes) -> bytes:
    return b'{"custom_id":"another-id-of-the-same-row",' + row[1:]


_ROW_KINDS: dict[str, Callable[[bytes], bytes]] = {
    "malformed": _malformed,
    "missing_id": lambda row: _replaced_id(row, None),
    "duplicate_key": _twice_keyed,
    "u2028": lambda row: _in_text(row, "\u2028\u2029\u0085".encode()),
    "lone_surrogate": lambda row: _in_text(row, b"\\ud83d"),
    "nan": lambda row: b'{"score":NaN,' + row[1:],
    "no_usage": _without_usage,
}


# -- more or fewer rows ------------------------------------------------------------------------


def _differing(row: bytes) -> bytes:
    other = row.replace(b"SAMPLE_1", b"SAMPLE_#").replace(b"SAMPLE_2", b"SAMPLE_1").replace(b"SAMPLE_#", b"SAMPLE_2")
    return _in_text(other, b"On second thoughts: ")


def _unknown(row: bytes) -> bytes:
    custom_id = orjson.loads(row)["custom_id"]
    head, dash, tail = custom_id.partition("-")
    return _replaced_id(row, f"{head}{dash}{tail[::-1]}" if tail[::-1] != tail else f"{custom_id}x")


_EXTRA_KINDS: dict[str, Callable[[bytes], bytes]] = {
    "duplicate": lambda row: row,
    "duplicate_differs": _differing,
    "unknown_id": _unknown,
}


def _swapped(rows: list[bytes]) -> list[bytes]:
    out = list(rows)
    for i in range(0, len(out) - 1, 2):
        one, two = orjson.loads(out[i]), orjson.loads(out[i + 1])
        one["custom_id"], two["custom_id"] = two["custom_id"], one["custom_id"]
        out[i], out[i + 1] = orjson.dumps(one), orjson.dumps(two)
    return out


class RowWriter:
    """A result file in the making: rows are shuffled within blocks, then spoiled as asked.

    `spoil` False (an error file) keeps everything but the order out of it.
    """

    def __init__(self, path: Path, seed: int, mutations: Mutations, *, spoil: bool) -> None:
        self.n_rows = 0
        self._file = path.open("wb")
        self._random = random.Random(seed)
        kinds = dict(mutations)
        self._is_shuffled = "in_order" not in kinds
        self._is_reversed = "reorder" in kinds
        if not spoil:
            kinds = {}
        self._is_swapped = "swapped_bodies" in kinds
        self._end = b"\r\n" if "crlf" in kinds else b"\n"
        self._no_final_lf = "no_final_lf" in kinds
        self._head = BOM if "bom" in kinds else b""
        self._left = {kind: _count(value) for kind, value in kinds.items()}
        self._has_blank = "blank_lines" in kinds
        self._block: list[bytes] = []

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._flush()
            if self._has_blank:
                self._file.write(self._end)
        self._file.close()

    def add(self, row: bytes) -> None:
        """Add a row."""
        self.n_rows += 1
        self._block.append(row)
        if len(self._block) >= BLOCK_ROWS:
            self._flush()

    def _flush(self) -> None:
        rows, self._block = self._block, []
        if self._is_shuffled:
            self._random.shuffle(rows)
        if self._is_reversed:
            rows.reverse()
        if self._is_swapped:
            rows = _swapped(rows)
        if any(self._left.values()):
            rows = self._spoiled(rows)
        self._write(rows)

    def _take(self, kind: str, available: int) -> int:
        n = min(self._left.get(kind, 0), available)
        if n:
            self._left[kind] -= n
        return n

    def _spoiled(self, rows: list[bytes]) -> list[bytes]:
        rows = rows[self._take("drop", len(rows)) :]
        extra: list[bytes] = []
        for kind, make in _EXTRA_KINDS.items():
            extra += map(make, rows[: self._take(kind, len(rows))])
        # Each kind takes rows of its own where there are enough of them.
        at = 0
        for kind, change in _ROW_KINDS.items():
            n = self._take(kind, len(rows) - at)
            rows[at : at + n] = map(change, rows[at : at + n])
            at += n
        n_blank = self._take("blank_lines", len(rows))
        if n_blank:
            rows = [part for row in rows[:n_blank] for part in (row, b"")] + rows[n_blank:]
        return rows + extra

    def _write(self, rows: list[bytes]) -> None:
        if not rows:
            return
        joined = self._end.join(rows)
        if self._no_final_lf:
            self._file.write(self._head + joined)
            self._head = self._end
        else:
            self._file.write(self._head + joined + self._end)
            self._head = b""
