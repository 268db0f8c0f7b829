"""The lines of an xAI input file, and the results that answer them, shown in pages: what models say.

Shapes: recorded traffic of 2026; `completion_tokens` leave the reasoning out, and a tick is 1e-10 USD.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from batchpond_sim.judges import speech
from batchpond_sim.judges.judge import Panel, Says
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

_EFFORTS = ("none", "low", "medium", "high", "xhigh")
_ROLES = ("system", "user", "assistant", "tool", "developer")
_TICKS_PER_TOKEN = 12_500
_OF_BATCHES = re.compile(r"grok-4\.(3|20)")


def is_for_batches(model: str) -> bool:
    """Return whether a model is taken in batches."""
    return _OF_BATCHES.match(model) is not None


def error(message: str, code: str = "Client specified an invalid argument") -> dict[str, Any]:
    """Return an error body of the API: two texts."""
    return {"code": code, "error": message}


def answer(body: dict[str, Any], request_key: str, panel: Panel, created_at: int, force: str = "") -> speech.RowAnswer:
    """Return the answer to one body; `request_key` makes repeats of it differ, `force` is a row fault or empty."""
    refused = _forced_error(force) or _refused(body)
    if refused is not None:
        return refused
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    effort = str(body.get("reasoning_effort") or "none")
    asked = speech.Asked(str(body["model"]), speech.messages_text(body["messages"]), effort, True, limit)
    judged = panel.answer(asked.model, asked.prompt, request_key)
    if judged.says is Says.ERROR:
        return _broken()
    said = speech.completed(asked, judged, force)
    tokens = said.input_tokens, said.output_tokens, said.reasoning_tokens
    return speech.RowAnswer(200, _chat_body(asked, said, created_at), *tokens)


def _bad(message: str) -> speech.RowAnswer:
    return speech.RowAnswer(400, error(message))


def _broken() -> speech.RowAnswer:
    return speech.RowAnswer(500, error("Internal server error", "The service is currently unavailable"))


def _forced_error(force: str) -> speech.RowAnswer | None:
    match force:
        case "error_429":
            return speech.RowAnswer(
                429, error("Too many requests: rate limit reached", "Some resource has been exhausted")
            )
        case "error_500" | "status_0" | "output_500":
            return _broken()
        case "error_400":
            return _bad("Maximum number of tokens max_tokens must be positive but max_tokens = -5")
        case "billing_rows":
            return speech.RowAnswer(402, error("The team is out of credits", "Some resource has been exhausted"))
        case "filtered_rows":
            text = "Content violates usage guidelines. Failed check: SAFETY_CHECK_TYPE_BIO"
            return speech.RowAnswer(403, error(text, "The caller does not have permission to execute the operation"))
        case _:
            return None


def _refused(body: dict[str, Any]) -> speech.RowAnswer | None:
    if not isinstance(body.get("messages"), list) or speech.stranger(body["messages"], _ROLES) is not None:
        return _bad("messages: every message needs a known role")
    if (problem := speech.picture_problem(body["messages"])) is not None:
        return _bad(problem)
    effort = body.get("reasoning_effort")
    if effort is not None and effort not in _EFFORTS:
        return _bad(f"Argument not supported on this model: reasoning_effort = {effort}")
    problem = speech.format_problem(body.get("response_format"))
    return None if problem is None else _bad(problem)


def _chat_body(asked: speech.Asked, said: speech.Completion, created_at: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": said.text, "refusal": said.refusal}
    if said.reasoning_tokens:
        message["reasoning_content"] = said.thoughts or "I compare the two."
    total = said.input_tokens + said.output_tokens
    return {
        "id": said.key,
        "object": "chat.completion",
        "created": created_at,
        "model": asked.model,
        "choices": [{"index": 0, "message": message, "finish_reason": said.finish}],
        "usage": {
            "prompt_tokens": said.input_tokens,
            "completion_tokens": said.output_tokens - said.reasoning_tokens,
            "total_tokens": total,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": said.reasoning_tokens},
            "cost_in_usd_ticks": total * _TICKS_PER_TOKEN,
        },
        "service_tier": "default",
    }


PROVIDER = "xai"
WINDOW_S = 30 * 86_400
SHAPE = Shape(
    "batch_request_id", b'"id":"', ("batch_result", "response", "chat_get_completion", "usage"), (b'"content":"',)
)


@dataclass(frozen=True, slots=True)
class XaiSpeaker:
    """Answers requests as results: an error is a bare text."""

    created_at: int
    panel: Panel

    def answered(self, _i: int, custom_id: str, body: dict[str, Any], force: str) -> AnsweredRow:
        """Return the result of a request."""
        said = answer(body, request_key(custom_id), self.panel, self.created_at, force)
        result = {"response": {"chat_get_completion": said.body}} if said.is_success else {"error": said.body["error"]}
        return AnsweredRow.of(dump_row({"batch_request_id": custom_id, "batch_result": result}), said)

    def not_run(self, _i: int, custom_id: str, why: NotRun) -> bytes | None:
        """Return the result of a request that was cancelled; one that waited until the end has none."""
        if why is NotRun.EXPIRED:
            return None
        return dump_row({"batch_request_id": custom_id, "batch_result": {"error": "Batch cancelled"}})


class Lines:
    """The requests of an input file; iterating raises RowsError, in xAI's words, at the first bad line."""

    def __init__(self, source: Path) -> None:
        self.model = ""
        self._source = source

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        seen: set[str] = set()
        for number, line in numbered_lines(self._source):
            data = loaded(line)
            body = data.get("body") if isinstance(data, dict) else None
            custom_id = data.get("custom_id") if isinstance(data, dict) else None
            where = f"JSONL file validation failed: line {number}"
            if not isinstance(body, dict) or not isinstance(custom_id, str):
                raise RowsError(f"{where}: invalid JSON: a custom_id and a body are required")
            if custom_id in seen:
                raise RowsError(f"{where}: duplicate custom_id '{custom_id}'")
            seen.add(custom_id)
            self.model = self.model or str(body.get("model") or "")
            if not is_for_batches(str(body.get("model") or "")):
                raise RowsError(f"{where}: Model {body.get('model')} is not supported for batch processing.")
            yield custom_id, body


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord(FiledBatch):
    """A batch over an uploaded file; its name stands where others have metadata."""

    message: str | None = None


class XaiAccount(FilesAccount[BatchRecord]):
    """All files and batches; the results of a batch are a blob that has its name."""

    roles = ("results",)

    def __init__(self, world: World) -> None:
        super().__init__(world, PROVIDER, BatchRecord, WINDOW_S)

    def begin(self, batch: BatchRecord) -> None:
        """Read the input file, and answer its requests or give the batch up."""
        if "fail" in batch.effects:
            self.fail(batch, message=f"JSONL file validation failed: line 1: {batch.effects['fail']}")
        elif self.file(batch.input_file_id, batch.project) is None:
            self.fail(batch, message=f"Input file {batch.input_file_id} was not found")
        else:
            try:
                count = self.write(batch, self.plan(batch))
            except RowsError as error:
                self.fail(batch, message=str(error))
            else:
                # Its counters alone say that it is over: the last answer is its end.
                done_s = batch.ran_s if batch.end == End.COMPLETED else batch.done_s
                self.put(replace(counted(batch, count), is_validated=True, done_s=done_s))

    def write(self, batch: BatchRecord, plan: RowPlan) -> RowCount:
        """Write the results; raises RowsError where the whole batch is given up."""
        lines = Lines(self.blob(batch.input_file_id))
        outputs = Outputs(self.part(batch, "results"), None, SHAPE)
        count = write_rows(lines, outputs, plan, XaiSpeaker(int(batch.valid_s), self.world.panel))
        count.model = lines.model
        return count

    def publish(self, batch: BatchRecord) -> BatchRecord:
        """Put the results where their pages are read from."""
        part = self.part(batch, "results")
        if part.exists():
            part.replace(self.blob(f"{batch.id}.results"))
        return batch

    def result_file(self, batch: BatchRecord, role: str) -> FileRecord:
        """Raise: results are no files here."""
        raise NotImplementedError(f"{batch.id} has no {role} file")

    def results(self, batch: BatchRecord, now_s: float) -> list[bytes]:
        """Return the results that can be read by now: while a batch runs those of the requests that were answered."""
        if batch.end == End.FAILED:
            return []
        path = self.blob(f"{batch.id}.results") if batch.is_ended else self.part(batch, "results")
        rows = path.read_bytes().splitlines() if path.exists() else []
        return rows if batch.is_ended else rows[: int(len(rows) * batch.share_done(now_s))]
