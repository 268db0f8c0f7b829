"""The objects of a simulated OpenAI account: files, and batches that validate their input late.

validating -> in_progress -> finalizing -> completed | expired
validating -> failed            any open state -> cancelling -> cancelled
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from batchpond.simulators.faults import number
from batchpond.simulators.life import Account, Batch, End, counted
from batchpond.simulators.openai_rows import SHAPE, LineError, Lines, OpenAISpeaker
from batchpond.simulators.rows import Outputs, RowCount, RowPlan, write_rows
from batchpond.simulators.shelf import Shelf
from batchpond.simulators.world import World

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


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file object; its bytes are in the blob of the same id."""

    id: str
    n: int
    project: str
    filename: str
    purpose: str
    size_bytes: int
    created_s: float
    expires_s: float | None = None
    listed_s: float = 0.0
    n_404: int = 0

    def view(self) -> dict[str, Any]:
        """Return the file as the API shows it."""
        return {
            "object": "file",
            "id": self.id,
            "purpose": self.purpose,
            "filename": self.filename,
            "bytes": self.size_bytes,
            "created_at": int(self.created_s),
            "expires_at": None if self.expires_s is None else int(self.expires_s),
            "status": "processed",
            "status_details": None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord(Batch):
    """A batch over an uploaded file."""

    completion_window: str = "24h"
    output_expires_s: int | None = None
    errors: list[dict[str, Any]] | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None

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


class OpenAIAccount(Account[BatchRecord]):
    """All files and batches."""

    roles = ("output", "error")

    def __init__(self, world: World) -> None:
        super().__init__(world, PROVIDER, BatchRecord, WINDOW_S)
        self.files: Shelf[FileRecord] = Shelf(world.folder(PROVIDER, "files"), FileRecord)

    def drop_file(self, file_id: str) -> None:
        """Delete a file object and its bytes."""
        self.files.drop(file_id)
        self.blob(file_id).unlink(missing_ok=True)

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

    def publish(self, batch: BatchRecord) -> BatchRecord:
        """Turn what has been written into file objects."""
        if "expire_bare" in batch.effects:
            return batch
        output, error = (self._published(batch, role) for role in self.roles)
        return replace(batch, output_file_id=None if "empty_output" in batch.effects else output, error_file_id=error)

    def _published(self, batch: BatchRecord, role: str) -> str | None:
        part = self.part(batch, role)
        name = f"file-{self.world.name('file', batch.id, role)}"
        if name in self.files:
            return name
        if not part.exists() or part.stat().st_size == 0:
            return None
        size = part.stat().st_size
        part.replace(self.blob(name))
        kept_s = RETENTION_S if batch.output_expires_s is None else batch.output_expires_s
        n_404 = int(number(batch.effects.get("results_404")))
        record = FileRecord(
            name, self.files.next_n(), batch.project, f"{batch.id}_{role}.jsonl", "batch_output", size,
            batch.done_s, batch.done_s + kept_s, 0.0, n_404,
        )  # fmt: skip
        self.files.put(record)
        return name


def _failure(code: str, batch: BatchRecord, model: str, limit: int) -> dict[str, Any]:
    text, param = _FAILURES.get(code, (f"The batch failed validation: {code}.", None))
    message = text.format(file=batch.input_file_id, model=model, limit=f"{limit:,}")
    return {"code": code, "message": message, "param": param, "line": None}
