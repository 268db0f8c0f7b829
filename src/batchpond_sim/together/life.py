"""The objects of a simulated Together account: files, and batches that look at their input late.

VALIDATING -> IN_PROGRESS -> COMPLETED | EXPIRED
VALIDATING -> FAILED            any open state -> CANCELING -> CANCELLED
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import orjson

from batchpond_sim.shared.filed import FiledBatch, FileRecord, FilesAccount
from batchpond_sim.shared.life import End, RowsError, counted
from batchpond_sim.shared.rows import Outputs, RowCount, RowPlan, write_rows
from batchpond_sim.together.rows import SHAPE, Lines, TogetherSpeaker
from batchpond_sim.world.shelf import Shelf
from batchpond_sim.world.world import World

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
        self.uploads: Shelf[FileRecord] = Shelf(world.folder(PROVIDER, "uploads"), FileRecord)

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
            self._fail(batch, _FAILURES.get(code, f"The batch failed: {code}"))
        elif self.file(batch.input_file_id, batch.project) is None:
            self._fail(batch, f"Failed to download input file: {batch.input_file_id}: the storage answered 404")
        else:
            self._answer(batch)

    def _answer(self, batch: BatchRecord) -> None:
        try:
            count = self.write(batch, self.plan(batch))
        except RowsError as error:
            self.clear(batch)
            self._fail(batch, str(error))
            return
        self.put(replace(counted(batch, count), is_validated=True))

    def _fail(self, batch: BatchRecord, error: str) -> None:
        self.put(replace(batch, is_ended=True, end=End.FAILED, done_s=batch.valid_s, error=error))

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
