"""The lines of a Mistral input file, checked when it is uploaded, and the rows that answer them: what models say.

Shapes: the OpenAPI file of 2026-08; a model that thinks answers in parts. Error texts are those that the API was seen
to give.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from batchpond_sim.judges import speech
from batchpond_sim.judges.judge import Panel, Says
from batchpond_sim.shared.batches import FiledBatch, FileRecord, FilesAccount, RowsError, counted
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

CHAT = "/v1/chat/completions"
TEMPERATURE_MAX = 1.5
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
_ROLES = ("system", "user", "assistant", "tool")


def error(message: str, kind: str = "invalid_request_error", code: str | None = None) -> dict[str, Any]:
    """Return an error body of the API."""
    return {"object": "error", "message": message, "type": kind, "param": None, "code": code, "raw_status_code": None}


def answer(
    body: dict[str, Any], model: str, request_key: str, panel: Panel, created_at: int, force: str = ""
) -> speech.RowAnswer:
    """Return the answer of a model to one body; `request_key` makes repeats differ, `force` is a row fault or empty."""
    refused = _forced_error(force) or _refused(body)
    if refused is not None:
        return refused
    limit = body.get("max_tokens")
    effort = "medium" if body.get("prompt_mode") == "reasoning" else str(body.get("reasoning_effort") or "none")
    asked = speech.Asked(model, speech.messages_text(body["messages"]), effort, True, limit, body["messages"])
    judged = panel.answer(asked.model, asked.prompt, request_key)
    if judged.says is Says.ERROR:
        return _broken()
    said = speech.completed(asked, judged, force)
    tokens = said.input_tokens, said.output_tokens, said.reasoning_tokens
    return speech.RowAnswer(200, _chat_body(asked, said, created_at), *tokens)


def _bad(message: str, code: str = "3051") -> speech.RowAnswer:
    return speech.RowAnswer(400, error(message, code=code))


def _broken() -> speech.RowAnswer:
    return speech.RowAnswer(500, error("Internal server error", "internal_server_error", "3700"))


def _forced_error(force: str) -> speech.RowAnswer | None:
    match force:
        case "error_429":
            return speech.RowAnswer(429, error("Rate limit exceeded", "rate_limited", "1300"))
        case "error_500" | "status_0" | "output_500":
            return _broken()
        case "error_400":
            return _bad("Invalid request")
        case "billing_rows":
            return speech.RowAnswer(402, error("Insufficient credits", "payment_required"))
        case _:
            return None


def _refused(body: dict[str, Any]) -> speech.RowAnswer | None:
    if not isinstance(body.get("messages"), list) or speech.stranger(body["messages"], _ROLES) is not None:
        return _bad("messages: every role must be one of system, user, assistant, tool")
    if (problem := speech.picture_problem(body["messages"])) is not None:
        return _bad(problem)
    effort, temperature = body.get("reasoning_effort"), body.get("temperature")
    if effort is not None and effort not in _EFFORTS:
        return _bad(f"reasoning_effort must be one of {', '.join(_EFFORTS)}")
    if temperature is not None and not (isinstance(temperature, int | float) and 0 <= temperature <= TEMPERATURE_MAX):
        return _bad(f"temperature must be from 0 to {TEMPERATURE_MAX}")
    problem = speech.format_problem(body.get("response_format"))
    return None if problem is None else _bad(problem)


def _chat_body(asked: speech.Asked, said: speech.Completion, created_at: int) -> dict[str, Any]:
    content: Any = said.refusal or said.text
    if said.reasoning_tokens:
        thought = {"type": "text", "text": said.thoughts or "I compare the two."}
        content = [{"type": "thinking", "thinking": [thought]}, {"type": "text", "text": content}]
    finish = "stop" if said.finish == "content_filter" else said.finish
    message = {"role": "assistant", "content": content, "tool_calls": None}
    return {
        "id": said.key,
        "object": "chat.completion",
        "created": created_at,
        "model": asked.model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": said.input_tokens,
            "completion_tokens": said.output_tokens,
            "total_tokens": said.input_tokens + said.output_tokens,
            "num_cached_tokens": 0,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


PROVIDER = "mistral"
SHAPE = Shape("custom_id", b'"id":"batch-', ("response", "body", "usage"), (b'"content":"', b'"text":"'))
_WORDS = {"completed": "SUCCESS", "failed": "FAILED", "expired": "TIMEOUT_EXCEEDED", "cancelled": "CANCELLED"}
_FAILURES = {"invalid_request": "Input file could not be read", "model_not_found": "Invalid model"}


@dataclass(frozen=True, slots=True)
class MistralSpeaker:
    """Answers requests as rows of result files."""

    batch_id: str
    model: str
    created_at: int
    panel: Panel

    def answered(self, i: int, custom_id: str, body: dict[str, Any], force: str) -> AnsweredRow:
        """Return the row of the `i`-th request; the body of a failed one is JSON in a text."""
        model = self.model or str(body.get("model") or "")
        said = answer(body, model, request_key(custom_id), self.panel, self.created_at, force)
        shown = said.body if said.is_success else dump_row(said.body).decode()
        status = 0 if force == "status_0" else said.status
        row = {
            "id": f"batch-{self.batch_id[:8]}-{i}",
            "custom_id": custom_id,
            "response": {"status_code": status, "body": shown},
            "error": None,
        }
        answered = AnsweredRow.of(dump_row(row), said)
        return replace(answered, is_good=True) if force == "output_500" else answered

    def not_run(self, _i: int, _custom_id: str, _why: NotRun) -> bytes | None:
        """Return nothing: no row was ever seen of a request that was not run."""
        return None


def requests(source: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what a file asks, by custom_id; raises RowsError, which names the line, for what upload refuses."""
    for number, line in numbered_lines(source):
        data = loaded(line)
        body = data.get("body") if isinstance(data, dict) else None
        if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
            raise RowsError(f"line {number}: a JSON object with a body is required")
        yield str(data.get("custom_id")), body


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord(FiledBatch):
    """A job over an uploaded file."""

    job_model: str = ""
    errors: list[dict[str, Any]] | None = None

    def status(self, now_s: float) -> str:
        """Return the status word at a time."""
        if self.is_ended:
            return _WORDS[self.end]
        if self.cancel_s is not None:
            return "CANCELLATION_REQUESTED"
        return "RUNNING" if self.is_validated and now_s >= self.valid_s else "QUEUED"


class MistralAccount(FilesAccount[BatchRecord]):
    """All files and jobs."""

    def __init__(self, world: World) -> None:
        super().__init__(world, PROVIDER, BatchRecord, 86_400)

    def begin(self, batch: BatchRecord) -> None:
        """Answer the requests of a job, or fail it."""
        code = batch.effects.get("fail")
        if isinstance(code, str):
            self.fail(batch, errors=[{"message": _FAILURES.get(code, f"The job failed: {code}"), "count": 1}])
        elif self.file(batch.input_file_id, batch.project) is None:
            self.fail(batch, errors=[{"message": "Input file not found", "count": 1}])
        else:
            self.put(replace(counted(batch, self.write(batch, self.plan(batch))), is_validated=True))

    def write(self, batch: BatchRecord, plan: RowPlan) -> RowCount:
        """Write both result files."""
        speaker = MistralSpeaker(batch.id, batch.job_model, int(batch.valid_s), self.world.panel)
        outputs = Outputs(self.part(batch, "output"), self.part(batch, "error"), SHAPE)
        count = write_rows(requests(self.blob(batch.input_file_id)), outputs, plan, speaker)
        count.model = batch.job_model
        return count

    def result_file(self, batch: BatchRecord, role: str) -> FileRecord:
        """Return the file object of a result file, without its id, place and size."""
        return FileRecord("", 0, batch.project, f"{batch.id}_{role}.jsonl", "batch", 0, batch.done_s)
