"""The objects of a simulated OpenAI account: files, and batches that validate their input late.

validating -> in_progress -> finalizing -> completed | expired
validating -> failed            any open state -> cancelling -> cancelled
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from batchpond_sim.openai.rows import SHAPE, LineError, Lines, OpenAISpeaker
from batchpond_sim.shared.filed import FiledBatch, FileRecord, FilesAccount
from batchpond_sim.shared.life import End, counted
from batchpond_sim.shared.rows import Outputs, RowCount, RowPlan, write_rows
from batchpond_sim.world.world import World

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
    """All files and batches."""

    def __init__(self, world: World) -> None:
        super().__init__(world, PROVIDER, BatchRecord, WINDOW_S)

    def begin(self, batch: BatchRecord) -> None:
        """Validate the input file, and answer or fail the batch."""
        code = batch.effects.get("fail")
        if "enqueued" in batch.effects:
            code = "token_limit_exceeded"
        source = self.files.get(batch.input_file_id)
        if isinstance(code, str):
            self._fail(batch, _failure(code, batch, batch.model or "the model", 2_000_000))
        elif source is None or source.project != batch.project or source.purpose != "batch":
            self._fail(batch, _failure("invalid_request", batch, "", 0))
        else:
            self._answer(batch)

    def _fail(self, batch: BatchRecord, error: dict[str, Any]) -> None:
        self.put(replace(batch, is_ended=True, end=End.FAILED, done_s=batch.valid_s, errors=[error]))

    def _answer(self, batch: BatchRecord) -> None:
        try:
            count = self.write(batch, self.plan(batch))
        except LineError as error:
            self.clear(batch)
            self._fail(batch, error.row)
            return
        limit = self.full_queue(count.model, batch.project, count.input_tokens)
        if limit is not None:
            self._fail(batch, _failure("token_limit_exceeded", batch, count.model, limit))
            return
        self.put(replace(counted(batch, count), is_validated=True, queued_tokens=count.input_tokens))

    def write(self, batch: BatchRecord, plan: RowPlan) -> RowCount:
        """Write both result files; raises LineError at the first bad line."""
        speaker = OpenAISpeaker(batch.id, batch.endpoint, int(batch.valid_s), self.world.panel)
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
