"""From a batch's input file to its two result files, in one pass and bounded memory."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from batchpond.simulators.faults import Value
from batchpond.simulators.judge import Panel
from batchpond.simulators.mutators import RowWriter, forced_answers
from batchpond.simulators.openai_answers import RowAnswer, answer

MAX_LINES = 50_000
_SCATTER = 7919

_NOT_RUN = {
    "batch_expired": "This request could not be executed before the completion window expired.",
    "batch_cancelled": "This request was not executed because the batch was cancelled.",
}


class LineError(ValueError):
    """The first thing wrong with an input file, as the batch's `errors` will name it."""

    def __init__(self, code: str, message: str, param: str | None = None, line: int | None = None) -> None:
        super().__init__(message)
        self.row = {"code": code, "message": message, "param": param, "line": line}


@dataclass(frozen=True, slots=True)
class RowPlan:
    """How one batch's rows are made.

    Of `n_total` lines, `n_done` were answered; the others become rows with the code `not_run`.
    `n_done` None means that all are. `is_lost` drops the answered rows.
    """

    batch_id: str
    endpoint: str
    seed: int
    created_at: int
    mutations: tuple[tuple[str, Value], ...] = ()
    n_total: int = 0
    n_done: int | None = None
    not_run: str = "batch_expired"
    is_lost: bool = False

    def is_done(self, i: int) -> bool:
        """Return whether the `i`-th line was answered; done lines are scattered over the file."""
        if self.n_done is None:
            return True
        step = 1 if self.n_total % _SCATTER == 0 else _SCATTER
        return i * step % max(1, self.n_total) < self.n_done


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

    def usage(self) -> dict[str, Any]:
        """Return the batch's `usage` object."""
        return {
            "input_tokens": self.input_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": self.output_tokens,
            "output_tokens_details": {"reasoning_tokens": self.reasoning_tokens},
            "total_tokens": self.input_tokens + self.output_tokens,
        }


def write_rows(source: Path, output: Path, errors: Path, plan: RowPlan, panel: Panel) -> RowCount:
    """Validate and answer every line of `source`; raises LineError at the first bad line."""
    count = RowCount()
    forced = forced_answers(plan.mutations)
    n_both = sum(
        int(value or 0) for kind, value in plan.mutations if kind == "both_files" and not isinstance(value, str)
    )
    seen: set[str] = set()
    row_head = f"batch_req_{plan.batch_id[-12:]}"
    with (
        source.open("rb") as lines,
        RowWriter(output, plan.seed, plan.mutations, spoil=True) as good,
        RowWriter(errors, plan.seed, plan.mutations, spoil=False) as bad,
    ):
        for number, line in enumerate(lines, 1):
            if line.isspace():
                continue
            custom_id, body = _checked(line, number, plan.endpoint, count, seen)
            i = count.n_total
            count.n_total += 1
            if not plan.is_done(i):
                bad.add(_not_run_row(f"{row_head}{i:06x}", custom_id, plan.not_run))
                continue
            if plan.is_lost:
                continue
            force = forced[i] if i < len(forced) else ""
            said = answer(plan.endpoint, body, _request_key(custom_id), panel, plan.created_at, _as_error(force))
            row = _row(f"{row_head}{i:06x}", custom_id, 0 if force == "status_0" else said.status, said.body)
            _add(count, said, force)
            (good if said.is_success or force == "output_500" else bad).add(row)
            if i < n_both:
                bad.add(_not_run_row(f"{row_head}{i:06x}", custom_id, plan.not_run))
    if count.n_total == 0:
        raise LineError(
            "empty_file", "The batch input file is empty. Please ensure that the batch contains at least one request."
        )
    return count


def _as_error(force: str) -> str:
    return "error_500" if force == "output_500" else force


def _add(count: RowCount, said: RowAnswer, force: str) -> None:
    if said.is_success or force == "output_500":
        count.n_completed += 1
    else:
        count.n_failed += 1
    if said.is_success and force != "status_0":
        count.n_billed += 1
        count.input_tokens += said.input_tokens
        count.output_tokens += said.output_tokens
        count.reasoning_tokens += said.reasoning_tokens


def _request_key(custom_id: str) -> str:
    head, dash, tail = custom_id.partition("-")
    return tail if dash else head


def _row(row_id: str, custom_id: str, status: int, body: dict[str, Any]) -> bytes:
    response = {"status_code": status, "request_id": row_id[10:], "body": body}
    return _dump({"id": row_id, "custom_id": custom_id, "response": response, "error": None})


def _not_run_row(row_id: str, custom_id: str, code: str) -> bytes:
    error = {"code": code, "message": _NOT_RUN[code]}
    return _dump({"id": row_id, "custom_id": custom_id, "response": None, "error": error})


def _dump(row: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(row)
    except orjson.JSONEncodeError:  # half a surrogate pair in an echoed id or instruction
        return json.dumps(row, separators=(",", ":")).encode("ascii")


def _load(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return json.loads(line)  # takes lone surrogates and giant integers, as the API does


def _checked(line: bytes, number: int, endpoint: str, count: RowCount, seen: set[str]) -> tuple[str, dict[str, Any]]:
    try:
        data = _load(line)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise LineError("invalid_json_line", "This line is not parseable as valid JSON.", None, number)
    custom_id = data.get("custom_id")
    if not isinstance(custom_id, str) or not custom_id:
        raise LineError("missing_required_parameter", "Missing required parameter: 'custom_id'.", "custom_id", number)
    if custom_id in seen:
        text = (
            f"The custom_id '{custom_id}' for this request is a duplicate of another request. "
            "The custom_id parameter must be unique for each request in a batch."
        )
        raise LineError("duplicate_custom_id", text, "custom_id", number)
    seen.add(custom_id)
    if len(seen) > MAX_LINES:
        text = f"The batch input file contains more than the maximum of {MAX_LINES} requests."
        raise LineError("too_many_requests", text, None, number)
    body = data.get("body")
    if not isinstance(body, dict):
        raise LineError("missing_required_parameter", "Missing required parameter: 'body'.", "body", number)
    _check_target(data, body, number, endpoint, count)
    return custom_id, body


def _check_target(data: dict[str, Any], body: dict[str, Any], number: int, endpoint: str, count: RowCount) -> None:
    if data.get("method") != "POST":
        raise LineError("invalid_method", "The method of every request must be POST.", "method", number)
    if data.get("url") != endpoint:
        text = "The URL provided for this request does not match the batch endpoint."
        raise LineError("invalid_url", text, "url", number)
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise LineError("invalid_request", "Missing required parameter: 'model'.", "body.model", number)
    if body.get("stream"):
        raise LineError("streaming_unsupported", "Streaming is not supported in the Batch API.", "body.stream", number)
    if not count.model:
        if model.startswith("unknown-"):
            text = f"The provided model '{model}' is not supported by the Batch API."
            raise LineError("model_not_found", text, "body.model", number)
        count.model = model
    elif model != count.model:
        text = (
            f"The model '{model}' for this request does not match the rest of the batch. "
            "Each batch must contain requests for a single model."
        )
        raise LineError("mismatched_model", text, "body.model", number)
