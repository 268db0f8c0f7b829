"""The lines of a Together input file, as far as they are checked, and the rows that answer them.

Shapes of what models say: recorded traffic of 2026-09 and together 3.1 `types/chat/chat_completion.py`; error texts are
those that the API was seen to give.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from batchpond_sim.judges import speech
from batchpond_sim.judges.judge import Panel, Says
from batchpond_sim.shared.api import openai_error
from batchpond_sim.shared.batches import FiledBatch, FileRecord, FilesAccount, Records, RowsError, counted
from batchpond_sim.shared.rows import (
    AnsweredRow,
    NotRun,
    Outputs,
    RowCount,
    RowPlan,
    Shape,
    dump_row,
    load_row,
    numbered_lines,
    request_key,
    write_rows,
)
from batchpond_sim.world.world import World

CHAT = "/v1/chat/completions"
STOPS_MAX = 4
_EFFORTS = ("low", "medium", "high")
_ROLES = ("system", "user", "assistant", "tool", "function")
_REASONS = re.compile(r"openai/gpt-oss-")
_STOPS_WITH_EOS = re.compile(r"meta-llama/")


def _bad(message: str) -> speech.RowAnswer:
    return speech.RowAnswer(400, openai_error(message))


def answer(body: dict[str, Any], request_key: str, panel: Panel, created_at: int, force: str = "") -> speech.RowAnswer:
    """Return the answer to one body; `request_key` makes repeats of it differ, `force` is a row fault or empty."""
    refused = _forced_error(force) or _refused(body)
    if refused is not None:
        return refused
    asked = _asked(body)
    judged = panel.answer(asked.model, asked.prompt, request_key)
    if judged.says is Says.ERROR:
        return speech.RowAnswer(500, openai_error("Internal server error", "server_error"))
    said = speech.completed(asked, judged, force)
    tokens = said.input_tokens, said.output_tokens, said.reasoning_tokens
    return speech.RowAnswer(200, _chat_body(asked, said, created_at, speech.logprobs(said.text, body)), *tokens)


def _forced_error(force: str) -> speech.RowAnswer | None:
    match force:
        case "error_429":
            return speech.RowAnswer(429, openai_error("You have reached the rate limit of this model.", "rate_limit"))
        case "error_500" | "status_0" | "output_500":
            return speech.RowAnswer(500, openai_error("Internal server error", "server_error"))
        case "error_400":
            return _bad("Input validation error")
        case "billing_rows":
            return speech.RowAnswer(402, openai_error("Insufficient credits: add some to go on.", "credit_limit"))
        case _:
            return None


def _refused(body: dict[str, Any]) -> speech.RowAnswer | None:
    model = body.get("model")
    if not isinstance(model, str) or not model:
        return _bad("missing 'model' field in body or not a string")
    if model.startswith(("unknown-", "nonexistent/")):
        text = f"Unable to access model {model}. Please visit https://api.together.ai/models to see what there is."
        return speech.RowAnswer(404, openai_error(text, code="model_not_available"))
    stops = body.get("stop")
    if isinstance(stops, list) and len(stops) > STOPS_MAX:
        return _bad("Maximum four stop sequences allowed")
    effort = body.get("reasoning_effort")
    if effort is not None and effort not in _EFFORTS:
        return _bad(f"Invalid reasoning_effort: expected one of {', '.join(_EFFORTS)}")
    return _refused_messages(body) or _refused_format(body.get("response_format")) or _refused_number(body)


def _refused_messages(body: dict[str, Any]) -> speech.RowAnswer | None:
    if not isinstance(body.get("messages"), list):
        return _bad("missing field `messages`")
    if speech.stranger(body["messages"], _ROLES) is not None:
        return _bad(f"Input validation error: role must be one of {', '.join(_ROLES)}")
    problem = speech.picture_problem(body["messages"])
    return None if problem is None else _bad(problem)


def _refused_format(form: Any) -> speech.RowAnswer | None:
    problem = speech.format_problem(form)
    return None if problem is None else _bad(problem)


def _refused_number(body: dict[str, Any]) -> speech.RowAnswer | None:
    temperature, limit = body.get("temperature"), body.get("max_tokens")
    if temperature is not None and not (isinstance(temperature, int | float) and 0 <= temperature <= 2):
        return _bad("temperature must be from 0 to 2")
    if limit is not None and not (isinstance(limit, int) and limit > 0):
        return _bad("max_tokens must be at least 1")
    return None


def _asked(body: dict[str, Any]) -> speech.Asked:
    model, switch = str(body["model"]), body.get("reasoning")
    is_on = _REASONS.match(model) is not None or (isinstance(switch, dict) and switch.get("enabled") is True)
    effort = str(body.get("reasoning_effort") or ("medium" if is_on else "none"))
    said = body["messages"]
    return speech.Asked(model, speech.messages_text(said), effort, False, body.get("max_tokens"), said)


def _chat_body(
    asked: speech.Asked, said: speech.Completion, created_at: int, found: dict[str, Any] | None
) -> dict[str, Any]:
    finish = "eos" if said.finish == "stop" and _STOPS_WITH_EOS.match(asked.model) else said.finish
    if finish == "content_filter":
        finish = "stop"  # an empty answer: there is no word for a filter
    message = {"role": "assistant", "content": said.refusal or said.text, "tool_calls": []}
    if said.reasoning_tokens:
        message["reasoning"] = said.thoughts or "I compare the two."
    return {
        "id": f"o{said.key}",
        "object": "chat.completion",
        "created": created_at,
        "model": asked.model,
        "prompt": [],
        "choices": [{"index": 0, "finish_reason": finish, "logprobs": found, "seed": None, "message": message}],
        "usage": {
            "prompt_tokens": said.input_tokens,
            "completion_tokens": said.output_tokens,
            "total_tokens": said.input_tokens + said.output_tokens,
            "reasoning_tokens": said.reasoning_tokens,
        },
    }


MAX_LINES = 50_000
LINE_MAX_BYTES = 10_000_000
SHAPE = Shape("custom_id", b'"id":"br_', ("response", "body", "usage"), (b'"content":"',))


class LineError(RowsError):
    """What makes a whole batch fail, in the words of its `error`."""


@dataclass(frozen=True, slots=True)
class TogetherSpeaker:
    """Answers requests as rows of result files."""

    batch_id: str
    created_at: int
    panel: Panel

    def answered(self, i: int, custom_id: str, body: dict[str, Any], force: str) -> AnsweredRow:
        """Return the row of the `i`-th request: a success has a response alone, a failure an error alone."""
        said = answer(body, request_key(custom_id), self.panel, self.created_at, force)
        head = {"id": f"br_{self.batch_id[-12:]}{i:06x}", "custom_id": custom_id}
        if said.is_success:
            return AnsweredRow.of(dump_row(head | {"response": {"status_code": 200, "body": said.body}}), said)
        error = {"code": "batch_client_error", "message": said.body["error"]["message"]}
        return AnsweredRow(dump_row(head | {"error": error}), force == "output_500", False)

    def not_run(self, _i: int, _custom_id: str, _why: NotRun) -> bytes | None:
        """Return nothing: no row was ever seen of a request that was not run."""
        return None


class Lines:
    """The requests of an input file; iterating raises LineError where the whole batch fails."""

    def __init__(self, source: Path) -> None:
        self.model = ""
        self._source = source

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        n = 0
        for n, (number, line) in enumerate(numbered_lines(self._source), 1):
            if n > MAX_LINES:
                raise LineError(f"Failed to calculate tokens: more than {MAX_LINES} requests")
            yield self._checked(line, number)
        if not n:
            raise LineError("Failed to calculate tokens: the input file holds no requests")

    def _checked(self, line: bytes, number: int) -> tuple[str, dict[str, Any]]:
        if len(line) > LINE_MAX_BYTES:
            raise LineError("error reading input file")
        where = f"Failed to calculate tokens: input format error: Line {number} (within chunk)"
        try:
            data = load_row(line)
        except (ValueError, RecursionError):
            raise LineError(f"{where}: Invalid JSON format") from None
        custom_id = data.get("custom_id") if isinstance(data, dict) else None
        body = data.get("body") if isinstance(data, dict) else None
        if not isinstance(custom_id, str) or not isinstance(body, dict):
            raise LineError(f"{where}: a line needs a custom_id and a body")
        self.model = self.model or str(body.get("model") or "")
        if self.model.startswith("dedicated/"):
            text = f"Unable to access non-serverless model {self.model}. It needs a dedicated endpoint."
            raise LineError(f"Invalid model ID: {text}")
        return custom_id, body


PROVIDER = "together"
WINDOW_S = 86_400
_FAILURES = {
    "invalid_request": "Failed to calculate tokens: input format error: Line 1 (within chunk): Invalid JSON format",
    "model_not_found": "Invalid model ID: Unable to access non-serverless model of this batch.",
    "file_unavailable": "Failed to download input file: the storage answered 404",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord(FiledBatch):
    """A job over an uploaded file."""

    file_size_bytes: int = 0
    error: str | None = None

    def status(self, now_s: float) -> str:
        """Return the status word at a time."""
        if self.is_ended:
            return self.end.upper()
        if self.cancel_s is not None:
            return "CANCELING"
        return "IN_PROGRESS" if self.is_validated and now_s >= self.valid_s else "VALIDATING"


class TogetherAccount(FilesAccount[BatchRecord]):
    """All files and batches; `uploads` are files whose bytes are still to come."""

    def __init__(self, world: World) -> None:
        super().__init__(world, PROVIDER, BatchRecord, WINDOW_S)
        self.uploads: Records[FileRecord] = Records(world.folder(PROVIDER, "uploads"), FileRecord)

    def same_content(self, project: str, sha256: str) -> FileRecord | None:
        """Return the file that already has this content."""
        same = (record for record in self.files if record.sha256 == sha256 and record.project == project)
        return next(same, None)

    def first_custom_id(self, file_id: str) -> str:
        """Return the custom_id of a file's first line, empty where there is none."""
        try:
            with self.blob(file_id).open("rb") as lines:
                return str(orjson.loads(lines.readline())["custom_id"])
        except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
            return ""

    def begin(self, batch: BatchRecord) -> None:
        """Look at the input file, and answer or fail the batch."""
        code = batch.effects.get("fail")
        if isinstance(code, str):
            self.fail(batch, error=_FAILURES.get(code, f"The batch failed: {code}"))
        elif self.file(batch.input_file_id, batch.project) is None:
            self.fail(batch, error=f"Failed to download input file: {batch.input_file_id}: the storage answered 404")
        else:
            self._answer(batch)

    def _answer(self, batch: BatchRecord) -> None:
        try:
            count = self.write(batch, self.plan(batch))
        except RowsError as error:
            self.fail(batch, error=str(error))
            return
        self.put(replace(counted(batch, count), is_validated=True))

    def write(self, batch: BatchRecord, plan: RowPlan) -> RowCount:
        """Write both result files; raises LineError where the whole batch fails."""
        speaker = TogetherSpeaker(batch.id, int(batch.valid_s), self.world.panel)
        lines = Lines(self.blob(batch.input_file_id))
        outputs = Outputs(self.part(batch, "output"), self.part(batch, "error"), SHAPE)
        count = write_rows(lines, outputs, plan, speaker)
        count.model = lines.model
        return count

    def result_file(self, batch: BatchRecord, role: str) -> FileRecord:
        """Return the file object of a result file, without its id, place and size."""
        name = "output.jsonl" if role == "output" else "errors.jsonl"
        return FileRecord("", 0, batch.project, name, "batch-generated", 0, batch.done_s)
