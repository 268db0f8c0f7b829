"""The lines of an OpenAI input file, checked as the API checks them, and the rows that answer them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from batchpond_sim.judges.judge import Panel
from batchpond_sim.judges.speech import RowAnswer
from batchpond_sim.openai import answers
from batchpond_sim.shared.batches import End, FiledBatch, FileRecord, FilesAccount, RowsError, counted
from batchpond_sim.shared.rows import (
    AnsweredRow,
    NotRun,
    Outputs,
    RowCount,
    RowPlan,
    Shape,
    dump_row,
    loaded,
    numbered_lines,
    request_key,
    write_rows,
)
from batchpond_sim.world.world import World

MAX_LINES = 50_000
SHAPE = Shape(
    "custom_id", b'"id":"batch_req_', ("response", "body", "usage"), (b'"content":"', b'"text":"', b'"refusal":"')
)

_NOT_RUN = {
    NotRun.EXPIRED: ("batch_expired", "This request could not be executed before the completion window expired."),
    NotRun.CANCELLED: ("batch_cancelled", "This request was not executed because the batch was cancelled."),
}


class LineError(RowsError):
    """The first thing wrong with an input file, as the batch's `errors` will name it."""

    def __init__(self, code: str, message: str, param: str | None = None, line: int | None = None) -> None:
        super().__init__(message)
        self.row = {"code": code, "message": message, "param": param, "line": line}


@dataclass(frozen=True, slots=True)
class OpenAISpeaker:
    """Answers requests to one endpoint as rows of result files."""

    batch_id: str
    endpoint: str
    created_at: int
    panel: Panel
    answer: Callable[..., RowAnswer]

    def answered(self, i: int, custom_id: str, body: dict[str, Any], force: str) -> AnsweredRow:
        """Return the row of the `i`-th request."""
        wanted = "error_500" if force == "output_500" else force
        said = self.answer(self.endpoint, body, request_key(custom_id), self.panel, self.created_at, wanted)
        row_id = self._row_id(i)
        status = 0 if force == "status_0" else said.status
        response = {"status_code": status, "request_id": row_id[10:], "body": said.body}
        row = dump_row({"id": row_id, "custom_id": custom_id, "response": response, "error": None})
        is_billed = said.is_success and force != "status_0"
        tokens = said.input_tokens, said.output_tokens, said.reasoning_tokens
        return AnsweredRow(row, said.is_success or force == "output_500", is_billed, *tokens)

    def not_run(self, i: int, custom_id: str, why: NotRun) -> bytes:
        """Return the row of a request that was not run."""
        code, message = _NOT_RUN[why]
        error = {"code": code, "message": message}
        return dump_row({"id": self._row_id(i), "custom_id": custom_id, "response": None, "error": error})

    def _row_id(self, i: int) -> str:
        return f"batch_req_{self.batch_id[-12:]}{i:06x}"


class Lines:
    """The requests of an input file; iterating raises LineError at the first bad line or for none at all."""

    def __init__(self, source: Path, endpoint: str) -> None:
        self.model = ""
        self._source = source
        self._endpoint = endpoint

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        seen: set[str] = set()
        for number, line in numbered_lines(self._source):
            yield self._checked(line, number, seen)
        if not seen:
            text = "The batch input file is empty. Please ensure that the batch contains at least one request."
            raise LineError("empty_file", text)

    def _checked(self, line: bytes, number: int, seen: set[str]) -> tuple[str, dict[str, Any]]:
        data = loaded(line)
        if not isinstance(data, dict):
            raise LineError("invalid_json_line", "This line is not parseable as valid JSON.", None, number)
        custom_id = data.get("custom_id")
        if not isinstance(custom_id, str) or not custom_id:
            raise LineError(
                "missing_required_parameter", "Missing required parameter: 'custom_id'.", "custom_id", number
            )
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
        self._check_target(data, body, number)
        return custom_id, body

    def _check_target(self, data: dict[str, Any], body: dict[str, Any], number: int) -> None:
        if data.get("method") != "POST":
            raise LineError("invalid_method", "The method of every request must be POST.", "method", number)
        if data.get("url") != self._endpoint:
            text = "The URL provided for this request does not match the batch endpoint."
            raise LineError("invalid_url", text, "url", number)
        model = body.get("model")
        if not isinstance(model, str) or not model:
            raise LineError("invalid_request", "Missing required parameter: 'model'.", "body.model", number)
        if body.get("stream"):
            text = "Streaming is not supported in the Batch API."
            raise LineError("streaming_unsupported", text, "body.stream", number)
        if not self.model:
            if model.startswith("unknown-"):
                text = f"The provided model '{model}' is not supported by the Batch API."
                raise LineError("model_not_found", text, "body.model", number)
            self.model = model
        elif model != self.model:
            text = (
                f"The model '{model}' for this request does not match the rest of the batch. "
                "Each batch must contain requests for a single model."
            )
            raise LineError("mismatched_model", text, "body.model", number)


PROVIDER = "openai"
WINDOW_S = 86_400
RETENTION_S = 30 * 86_400
ENDED = frozenset(End)

_FAILURES = {
    "invalid_request": (
        "Cannot find file {file}, or organization org-simulated does not have access to it.",
        "file_id",
    ),
    "token_limit_exceeded": (
        "Enqueued token limit reached for {model} in organization org-simulated. Limit: {limit} enqueued tokens. "
        "Please try again once some in_progress batches have been completed.",
        None,
    ),
    "model_not_found": ("The provided model '{model}' is not supported by the Batch API.", "body.model"),
    "empty_file": ("The batch input file is empty. Please ensure that the batch contains at least one request.", None),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord(FiledBatch):
    """A batch over an uploaded file."""

    completion_window: str = "24h"
    output_expires_s: int | None = None
    errors: list[dict[str, Any]] | None = None

    def status(self, now_s: float) -> str:
        """Return the status word at a time."""
        if self.is_ended:
            return self.end
        if self.cancel_s is not None:
            return "cancelling"
        if not self.is_validated or now_s < self.valid_s:
            return "validating"
        return "in_progress" if now_s < self.ran_s else "finalizing"

    def usage(self) -> dict[str, Any] | None:
        """Return the batch's `usage` object."""
        if not self.is_counted:
            return None
        return {
            "input_tokens": self.input_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": self.output_tokens,
            "output_tokens_details": {"reasoning_tokens": self.reasoning_tokens},
            "total_tokens": self.input_tokens + self.output_tokens,
        }


class OpenAIAccount(FilesAccount[BatchRecord]):
    """All files and batches, and what models `answer`."""

    def __init__(
        self, world: World, provider: str = PROVIDER, answer: Callable[..., RowAnswer] = answers.answer
    ) -> None:
        self.answer = answer
        super().__init__(world, provider, BatchRecord, WINDOW_S)

    def begin(self, batch: BatchRecord) -> None:
        """Validate the input file, and answer or fail the batch."""
        code = batch.effects.get("fail")
        if "enqueued" in batch.effects:
            code = "token_limit_exceeded"
        source = self.files.get(batch.input_file_id)
        if isinstance(code, str):
            self.fail(batch, errors=[_failure(code, batch, batch.model or "the model", 2_000_000)])
        elif source is None or source.project != batch.project or source.purpose != "batch":
            self.fail(batch, errors=[_failure("invalid_request", batch, "", 0)])
        else:
            self._answer(batch)

    def _answer(self, batch: BatchRecord) -> None:
        try:
            count = self.write(batch, self.plan(batch))
        except LineError as error:
            self.fail(batch, errors=[error.row])
            return
        limit = self.full_queue(count.model, batch.project, count.input_tokens)
        if limit is not None:
            self.fail(batch, errors=[_failure("token_limit_exceeded", batch, count.model, limit)])
            return
        self.put(replace(counted(batch, count), is_validated=True, queued_tokens=count.input_tokens))

    def write(self, batch: BatchRecord, plan: RowPlan) -> RowCount:
        """Write both result files; raises LineError at the first bad line."""
        speaker = OpenAISpeaker(batch.id, batch.endpoint, int(batch.valid_s), self.world.panel, self.answer)
        lines = Lines(self.blob(batch.input_file_id), batch.endpoint)
        outputs = Outputs(self.part(batch, "output"), self.part(batch, "error"), SHAPE)
        count = write_rows(lines, outputs, plan, speaker)
        count.model = lines.model
        return count

    def result_file(self, batch: BatchRecord, role: str) -> FileRecord:
        """Return the file object of a result file, without its id, place and size."""
        kept_s = RETENTION_S if batch.output_expires_s is None else batch.output_expires_s
        name = f"{batch.id}_{role}.jsonl"
        return FileRecord("", 0, batch.project, name, "batch_output", 0, batch.done_s, batch.done_s + kept_s)


def _failure(code: str, batch: BatchRecord, model: str, limit: int) -> dict[str, Any]:
    text, param = _FAILURES.get(code, (f"The batch failed validation: {code}.", None))
    message = text.format(file=batch.input_file_id, model=model, limit=f"{limit:,}")
    return {"code": code, "message": message, "param": param, "line": None}
