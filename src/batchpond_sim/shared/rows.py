"""From a batch's requests to its result rows, in one pass and bounded memory; the same for every provider."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import orjson

from batchpond_sim.faults.faults import Value, number
from batchpond_sim.faults.mutators import RowWriter, Shape, forced_answers

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
class Said:
    """One answered request: its row, whether it counts as a success, and what it is billed for."""

    row: bytes
    is_good: bool
    is_billed: bool
    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0


class Speaker(Protocol):
    """What a provider's models answer, as rows of its result files."""

    def answered(self, i: int, custom_id: str, body: dict[str, Any], force: str) -> Said:
        """Return the row of the `i`-th request; `force` is a word of `mutators.forced_answers` or empty."""
        ...

    def not_run(self, i: int, custom_id: str, why: NotRun) -> bytes | None:
        """Return the row of a request that was not run, None where such requests have none."""
        ...


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

    def add(self, said: Said) -> None:
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


def load_row(line: bytes) -> Any:
    """Return parsed JSON; raises ValueError or RecursionError."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return json.loads(line)  # takes lone surrogates and giant integers, as the APIs do
