"""From a batch's requests to its result rows, in one pass and bounded memory; the same for every provider."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import orjson

from batchpond_sim.judges.speech import RowAnswer
from batchpond_sim.world.faults import Value, number

BLOCK_ROWS = 2048
BOM = b"\xef\xbb\xbf"

Mutations = Sequence[tuple[str, Value]]

_FORCED = {
    "refusal": ("refusal",),
    "empty_text": ("empty_text",),
    "truncated_text": ("truncated_text",),
    "billing_rows": ("billing_rows",),
    "filtered_rows": ("filtered_rows",),
    "error_rows": ("error_429", "error_500", "error_400"),
    "status_in_output": ("output_500",),
    "status_code_0": ("status_0",),
}
_FORCED_WORDS = frozenset({"finish", "blocked"})


@dataclass(frozen=True, slots=True)
class Shape:
    """Where a provider's result rows keep what faults spoil.

    `row_id` is how a row's own id starts, such as `"id":"batch_req_`; `usage` the way to the usage
    object; `texts` how a spoken text starts, the first that a row has.
    """

    id_field: str
    row_id: bytes
    usage: tuple[str, ...]
    texts: tuple[bytes, ...]


def forced_answers(mutations: Mutations) -> list[str]:
    """Return what the first requests of a batch are made to answer, in order."""
    words: list[str] = []
    for kind, value in mutations:
        cycle = _FORCED.get(kind)
        if cycle is not None:
            words += [cycle[i % len(cycle)] for i in range(int(number(value)))]
        elif kind in _FORCED_WORDS:
            words.append(f"{kind}:{value}")
    return words


def _replaced_id(row: bytes, shape: Shape, custom_id: str | None) -> bytes:
    data = orjson.loads(row)
    data[shape.id_field] = custom_id
    return orjson.dumps(data)


def _in_text(row: bytes, shape: Shape, insert: bytes) -> bytes:
    for field in shape.texts:
        if field in row:
            return row.replace(field, field + insert, 1)
    return row


def _without_usage(row: bytes, shape: Shape) -> bytes:
    data = orjson.loads(row)
    within = data
    for name in shape.usage[:-1]:
        within = within.get(name) or {}
    within.pop(shape.usage[-1], None)
    return orjson.dumps(data)


ROW_KINDS: dict[str, Callable[[bytes, Shape], bytes]] = {
    "malformed": lambda row, _: row[: len(row) // 2],
    "missing_id": lambda row, shape: _replaced_id(row, shape, None),
    "duplicate_key": lambda row, shape: b'{"%b":"another-id-of-the-same-row",' % shape.id_field.encode() + row[1:],
    "u2028": lambda row, shape: _in_text(row, shape, "\u2028\u2029\u0085".encode()),
    "lone_surrogate": lambda row, shape: _in_text(row, shape, b"\\ud83d"),
    "nan": lambda row, _: b'{"score":NaN,' + row[1:],
    "no_usage": _without_usage,
}


def _differing(row: bytes, shape: Shape) -> bytes:
    other = row.replace(b"SAMPLE_1", b"SAMPLE_#").replace(b"SAMPLE_2", b"SAMPLE_1").replace(b"SAMPLE_#", b"SAMPLE_2")
    return _in_text(other, shape, b"On second thoughts: ")


def _unknown(row: bytes, shape: Shape) -> bytes:
    custom_id = orjson.loads(row)[shape.id_field]
    head, dash, tail = custom_id.partition("-")
    return _replaced_id(row, shape, f"{head}{dash}{tail[::-1]}" if tail[::-1] != tail else f"{custom_id}x")


_EXTRA_KINDS: dict[str, Callable[[bytes, Shape], bytes]] = {
    "duplicate": lambda row, _: row,
    "duplicate_differs": _differing,
    "unknown_id": _unknown,
}


def _swapped(rows: list[bytes], name: str) -> list[bytes]:
    out = list(rows)
    for i in range(0, len(out) - 1, 2):
        one, two = orjson.loads(out[i]), orjson.loads(out[i + 1])
        one[name], two[name] = two[name], one[name]
        out[i], out[i + 1] = orjson.dumps(one), orjson.dumps(two)
    return out


class RowWriter:
    """A result file in the making: rows are shuffled within blocks, then spoiled as asked.

    `spoil` False (an error file) keeps everything but the order out of it.
    """

    def __init__(self, path: Path, seed: int, mutations: Mutations, shape: Shape, *, spoil: bool = True) -> None:
        self._shape = shape
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
        self._left = {kind: int(number(value)) for kind, value in kinds.items()}
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
            rows = _swapped(rows, self._shape.id_field)
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
            extra += [make(row, self._shape) for row in rows[: self._take(kind, len(rows))]]
        # Each kind takes rows of its own where there are enough of them.
        at = 0
        for kind, change in ROW_KINDS.items():
            n = self._take(kind, len(rows) - at)
            rows[at : at + n] = [change(row, self._shape) for row in rows[at : at + n]]
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


_SCATTER = 7919


class NotRun(StrEnum):
    """Why a request of an ended batch was not run."""

    EXPIRED = "expired"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class RowPlan:
    """How one batch's rows are made.

    Of `n_total` requests, `n_done` were answered; the others become rows that say `not_run`.
    `n_done` None means that all are. `is_lost` drops the answered rows.
    """

    seed: int
    mutations: tuple[tuple[str, Value], ...] = ()
    n_total: int = 0
    n_done: int | None = None
    not_run: NotRun = NotRun.EXPIRED
    is_lost: bool = False

    def is_done(self, i: int) -> bool:
        """Return whether the `i`-th request was answered; done ones are scattered over the file."""
        if self.n_done is None:
            return True
        step = 1 if self.n_total % _SCATTER == 0 else _SCATTER
        return i * step % max(1, self.n_total) < self.n_done


@dataclass(frozen=True, slots=True)
class AnsweredRow:
    """One answered request: its row, whether it counts as a success, and what it is billed for."""

    row: bytes
    is_good: bool
    is_billed: bool
    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0

    @classmethod
    def of(cls, row: bytes, answer: RowAnswer) -> AnsweredRow:
        """Return the row of an answer: a success is billed, an error is not."""
        tokens = answer.input_tokens, answer.output_tokens, answer.reasoning_tokens
        return cls(row, answer.is_success, answer.is_success, *tokens)


class Speaker(Protocol):
    """What a provider's models answer, as rows of its result files."""

    def answered(self, i: int, custom_id: str, body: dict[str, Any], force: str) -> AnsweredRow:
        """Return the row of the `i`-th request; `force` is a word of `forced_answers` or empty."""

    def not_run(self, i: int, custom_id: str, why: NotRun) -> bytes | None:
        """Return the row of a request that was not run, None where such requests have none."""


@dataclass(slots=True)
class RowCount:
    """What the rows of a batch add up to."""

    model: str = ""
    n_total: int = 0
    n_completed: int = 0
    n_failed: int = 0
    n_billed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0

    def add(self, said: AnsweredRow) -> None:
        """Count an answered request."""
        if said.is_good:
            self.n_completed += 1
        else:
            self.n_failed += 1
        if said.is_billed:
            self.n_billed += 1
            self.input_tokens += said.input_tokens
            self.output_tokens += said.output_tokens
            self.reasoning_tokens += said.reasoning_tokens


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where rows go: without `errors`, rows of every kind share one file."""

    output: Path
    errors: Path | None
    shape: Shape


def write_rows(
    requests: Iterable[tuple[str, dict[str, Any]]], outputs: Outputs, plan: RowPlan, speaker: Speaker
) -> RowCount:
    """Answer every (custom_id, body) as planned; whatever the requests raise passes through."""
    count = RowCount()
    forced = forced_answers(plan.mutations)
    n_both = sum(int(number(value)) for kind, value in plan.mutations if kind == "both_files")
    with ExitStack() as stack:
        good = stack.enter_context(RowWriter(outputs.output, plan.seed, plan.mutations, outputs.shape))
        bad = good
        if outputs.errors is not None:
            bad = stack.enter_context(RowWriter(outputs.errors, plan.seed, plan.mutations, outputs.shape, spoil=False))
        for i, (custom_id, body) in enumerate(requests):
            count.n_total += 1
            if not plan.is_done(i):
                _add(bad, speaker.not_run(i, custom_id, plan.not_run))
                continue
            if plan.is_lost:
                continue
            said = speaker.answered(i, custom_id, body, forced[i] if i < len(forced) else "")
            count.add(said)
            (good if said.is_good else bad).add(said.row)
            if i < n_both:
                _add(bad, speaker.not_run(i, custom_id, plan.not_run))
    return count


def _add(writer: RowWriter, row: bytes | None) -> None:
    if row is not None:
        writer.add(row)


def request_key(custom_id: str) -> str:
    """Return the part of a custom_id that names the request, whatever batch it is in."""
    head, dash, tail = custom_id.partition("-")
    return tail if dash else head


def dump_row(row: dict[str, Any]) -> bytes:
    """Return a row's JSON."""
    try:
        return orjson.dumps(row)
    except orjson.JSONEncodeError:  # half a surrogate pair in an echoed id or instruction
        return json.dumps(row, separators=(",", ":")).encode("ascii")


def numbered_lines(source: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file with their numbers, from 1 on, but for blank ones."""
    with source.open("rb") as lines:
        yield from ((number, line) for number, line in enumerate(lines, 1) if not line.isspace())


def loaded(line: bytes) -> Any:
    """Return parsed JSON, None for what is none."""
    try:
        return load_row(line)
    except (ValueError, RecursionError):
        return None


def load_row(line: bytes) -> Any:
    """Return parsed JSON; raises ValueError or RecursionError."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return json.loads(line)  # takes lone surrogates and giant integers, as the APIs do
