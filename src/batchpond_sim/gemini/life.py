"""The batches of a simulated Gemini project.

pending -> running -> succeeded | failed | expired        any open state -> cancelled

What is wrong with the input is said at creation. Whatever has not succeeded has no output at all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from batchpond_sim.faults.faults import number
from batchpond_sim.gemini.models import Family, family_of
from batchpond_sim.gemini.rows import SHAPE, GeminiSpeaker, Lines
from batchpond_sim.gemini.store import GENERATED, FileRecord, Files
from batchpond_sim.shared.life import Account, Batch, End
from batchpond_sim.shared.rows import Outputs, RowCount, RowPlan, write_rows
from batchpond_sim.world.world import Call, World

PROVIDER = "gemini"
WINDOW_S = 48 * 3600
MAX_OPEN = 100
SUCCEEDED = "succeeded"
ENDED = frozenset({SUCCEEDED, "failed", "expired", "cancelled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord(Batch):
    """A batch of one model; `input_file_id` has `files/` before it and is empty for requests sent along."""

    display_name: str = ""
    priority: int = 0
    is_inline: bool = False
    is_deleted: bool = False
    output_file_id: str | None = None
    error: str = ""

    def state(self, now_s: float) -> str:
        """Return the state at a time, in lower case and without `BATCH_STATE_`."""
        if self.is_ended:
            return SUCCEEDED if self.end == End.COMPLETED else str(self.end)
        return "running" if self.is_validated and self.valid_s <= now_s else "pending"

    def changed_s(self, now_s: float) -> float:
        """Return when the state at a time began."""
        if self.is_ended:
            return self.done_s
        return self.valid_s if self.state(now_s) == "running" else self.created_s


class GeminiAccount(Account[BatchRecord]):
    """All files, uploads and batches."""

    def __init__(self, world: World) -> None:
        super().__init__(world, PROVIDER, BatchRecord, WINDOW_S)
        self.files = Files(world, PROVIDER, self.blob)

    def tick(self) -> float:
        """Make every change that is due by now, and return the time."""
        now_s = super().tick()
        self.files.expire(now_s)
        return now_s

    def open_count(self, project: str) -> int:
        """Return how many batches of a project have not ended."""
        return sum(self.batches[batch_id].project == project for batch_id in self._open)

    def begin(self, batch: BatchRecord) -> None:
        """Answer all requests, or fail."""
        code = batch.effects.get("fail")
        if isinstance(code, str):
            failed = replace(batch, is_ended=True, end=End.FAILED, done_s=batch.valid_s, error=code, queued_tokens=0)
            self.put(failed)
            self.clear(failed)
            return
        super().begin(batch)

    def _planned(self, batch: BatchRecord) -> BatchRecord:
        word = batch.effects.get("stuck")
        planned = super()._planned(batch)
        deadline = batch.created_s + WINDOW_S
        if word in ("pending", "validating"):
            return replace(planned, valid_s=deadline, ran_s=deadline, done_s=deadline, end=End.EXPIRED, done_share=0.0)
        if word is not None:
            return replace(planned, ran_s=deadline, done_s=deadline, end=End.EXPIRED)
        return planned

    def plan(self, batch: BatchRecord) -> RowPlan:
        """Return how rows are made: in the order of the input."""
        plan = super().plan(batch)
        return replace(plan, mutations=(*plan.mutations, ("in_order", None)))

    def input_of(self, batch_id: str) -> str:
        """Return the name of the blob that keeps a batch's requests, whatever becomes of the file."""
        return f"{batch_id}.input"

    def create_over(self, draft: BatchRecord, call: Call, key: str, source: Path) -> BatchRecord:
        """Store a new batch whose requests are in the file `source`, which it takes over."""
        source.replace(self.blob(self.input_of(draft.id)))
        return self.create(draft, call, key)

    def write(self, batch: BatchRecord, plan: RowPlan) -> RowCount:
        """Write the rows of a batch."""
        status_rows = any(kind == "status_rows" for kind, _ in plan.mutations)
        speaker = GeminiSpeaker(batch.model or "", self.family(batch), self.world.panel, status_rows)
        outputs = Outputs(self.part(batch, "output"), None, SHAPE)
        return write_rows(Lines(self.blob(self.input_of(batch.id))), outputs, plan, speaker)

    def family(self, batch: BatchRecord) -> Family:
        """Return the family of a batch's model; create has made sure that there is one."""
        family = family_of(batch.model or "")
        if family is None:
            raise LookupError(f"batch {batch.id} has the unknown model {batch.model}")
        return family

    def publish(self, batch: BatchRecord) -> BatchRecord:
        """Make the output of a batch that has succeeded available."""
        if batch.end == End.EXPIRED:
            return replace(batch, is_counted=False)  # nobody pays for answers that nobody can have
        if batch.end != End.COMPLETED or batch.is_deleted or "empty_output" in batch.effects:
            return batch
        name = f"batch-{batch.id}"
        part = self.part(batch, "output")
        if part.exists():
            part.replace(self.blob(name))
        if not batch.is_inline and name not in self.files.shelf:
            n_404 = int(number(batch.effects.get("results_404")))
            record = FileRecord(
                name, self.files.shelf.next_n(), batch.project, batch.display_name, "application/jsonl",
                self.blob(name).stat().st_size, batch.done_s, source=GENERATED, n_404=n_404,
            )  # fmt: skip
            self.files.shelf.put(record)
        return replace(batch, output_file_id=name)

    def clear(self, batch: BatchRecord) -> None:
        """Remove the parts and the requests of an ended batch."""
        super().clear(batch)
        self.blob(self.input_of(batch.id)).unlink(missing_ok=True)

    def find(self, batch_id: str, project: str, now_s: float) -> BatchRecord | None:
        """Return a batch that exists by now in a project and was not deleted, None otherwise."""
        batch = super().find(batch_id, project, now_s)
        return None if batch is None or batch.is_deleted else batch

    def listed(self, project: str, now_s: float, call: Call) -> list[BatchRecord]:
        """Return what a listing shows, newest first."""
        return [batch for batch in super().listed(project, now_s, call) if not batch.is_deleted]

    def delete(self, batch: BatchRecord) -> None:
        """Delete the record of a batch and its output; what is running runs on, and is billed."""
        if batch.output_file_id is not None:
            self.files.drop(batch.output_file_id)
        self.put(replace(batch, is_deleted=True, output_file_id=None))
