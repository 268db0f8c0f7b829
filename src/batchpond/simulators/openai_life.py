"""The objects of a simulated OpenAI account and what time makes of them.

    validating -> in_progress -> finalizing -> completed | expired
    validating -> failed            any open state -> cancelling -> cancelled

Every due change up to "now" is made, in the order of its due time, before a request is looked at;
so what a client sees does not depend on how often it looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

import orjson

from batchpond.simulators.faults import Value
from batchpond.simulators.ledger import BatchEntry, Bill
from batchpond.simulators.openai_rows import LineError, RowCount, RowPlan, write_rows
from batchpond.simulators.world import World, write_atomically

PROVIDER = "openai"
WINDOW_S = 86_400
RETENTION_S = 30 * 86_400
NEVER_S = 4e18
ENDED = frozenset({"completed", "failed", "expired", "cancelled"})

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


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """A batch: when it is planned to change (virtual seconds), and what has become of it."""

    id: str
    n: int
    project: str
    created_s: float
    valid_s: float
    ran_s: float
    done_s: float
    endpoint: str
    input_file_id: str
    completion_window: str
    metadata: dict[str, str] | None
    output_expires_s: int | None = None
    end: str = "completed"
    done_share: float = 1.0
    is_validated: bool = False
    is_ended: bool = False
    cancel_s: float | None = None
    effects: dict[str, Value] = field(default_factory=dict)
    mutations: list[tuple[str, Value]] = field(default_factory=list)
    model: str | None = None
    n_total: int = 0
    n_completed: int = 0
    n_failed: int = 0
    n_billed: int = 0
    queued_tokens: int = 0
    usage: dict[str, Any] | None = None
    errors: list[dict[str, Any]] | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    n_404: int = 0
    listed_s: float = 0.0

    def status(self, now_s: float) -> str:
        """Return the status word at a time."""
        if self.is_ended:
            return self.end
        if self.cancel_s is not None:
            return "cancelling"
        if not self.is_validated or now_s < self.valid_s:
            return "validating"
        return "in_progress" if now_s < self.ran_s else "finalizing"

    def share_done(self, now_s: float) -> float:
        """Return the share of lines answered at a time."""
        if not self.is_validated:
            return 0.0
        return max(0.0, min(1.0, (now_s - self.valid_s) / max(1e-9, min(self.ran_s, NEVER_S) - self.valid_s)))


Record = TypeVar("Record", FileRecord, BatchRecord)


def _loaded(folder: Path, make: Callable[..., Record]) -> dict[str, Record]:
    records = [make(**orjson.loads(path.read_bytes())) for path in folder.glob("*.json")]
    return {record.id: record for record in sorted(records, key=lambda record: record.n)}


class Account:
    """All files and batches, in memory and in the world's folder."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._file_folder = world.folder(PROVIDER, "files")
        self._batch_folder = world.folder(PROVIDER, "batches")
        self._blob_folder = world.folder(PROVIDER, "blobs")
        for left in self._blob_folder.glob("upload-*.part"):
            left.unlink()  # of an upload that a kill cut off
        self.files = _loaded(self._file_folder, FileRecord)
        self.batches = _loaded(self._batch_folder, BatchRecord)
        self._open = {batch.id for batch in self.batches.values() if not batch.is_ended}
        self._n_files = max((file.n for file in self.files.values()), default=0)
        for batch in self.batches.values():
            # The object is written before its ledger line: a kill between the two is made good here.
            self._enter(batch, "recovered", 0)
            if batch.is_ended:
                self._bill(batch)

    # -- files --------------------------------------------------------------------------------

    def blob(self, file_id: str) -> Path:
        """Return where a file's bytes are."""
        return self._blob_folder / file_id

    def next_file_n(self) -> int:
        """Return the ordinal of a new file."""
        self._n_files += 1
        return self._n_files

    def put_file(self, record: FileRecord) -> None:
        """Store a file object."""
        self.files[record.id] = record
        write_atomically(self._file_folder / f"{record.id}.json", orjson.dumps(record))

    def drop_file(self, file_id: str) -> None:
        """Delete a file object and its bytes."""
        self.files.pop(file_id, None)
        (self._file_folder / f"{file_id}.json").unlink(missing_ok=True)
        self.blob(file_id).unlink(missing_ok=True)

    # -- batches ------------------------------------------------------------------------------

    def put_batch(self, record: BatchRecord) -> None:
        """Store a batch."""
        write_atomically(self._batch_folder / f"{record.id}.json", orjson.dumps(record))
        self.batches[record.id] = record
        if record.is_ended:
            self._open.discard(record.id)
        else:
            self._open.add(record.id)

    def create(self, record: BatchRecord, key: str, call: int) -> BatchRecord:
        """Plan the times of a new batch and store it."""
        planned = self._planned(record)
        self.put_batch(planned)
        self._enter(planned, key, call)
        return planned

    def _enter(self, batch: BatchRecord, key: str, call: int) -> None:
        entry = BatchEntry(batch.id, PROVIDER, batch.created_s, key, batch.input_file_id, batch.metadata, call)
        self._world.ledger.created(entry)

    def _planned(self, batch: BatchRecord) -> BatchRecord:
        low, high = self._world.settings.latency_s
        total = low + (high - low) * self._world.draw("latency", batch.n)
        valid, ran, done = (batch.created_s + total * share for share in (0.1, 0.9, 1.0))
        end, share = "completed", 1.0
        deadline = batch.created_s + WINDOW_S
        if done > deadline:
            share = max(0.0, min(1.0, (deadline - valid) / (ran - valid)))
            done, ran, end = deadline, min(ran, deadline), "expired"
        if "expire" in batch.effects or "expire_bare" in batch.effects:
            end, share = "expired", _number(batch.effects.get("expire"), 0.0)
        match batch.effects.get("stuck"):
            case "validating":
                valid = ran = done = NEVER_S
            case "finalizing":
                done = NEVER_S
            case None:
                pass
            case _:
                ran = done = NEVER_S
        return replace(batch, valid_s=valid, ran_s=ran, done_s=done, end=end, done_share=share)

    def cancel(self, batch: BatchRecord, now_s: float, race: Value) -> BatchRecord:
        """Ask an open batch to stop."""
        if batch.cancel_s is not None:
            return batch
        done_s = now_s + self._world.settings.cancel_s
        share = batch.share_done(now_s)
        changed = replace(batch, cancel_s=now_s, end="cancelled", done_share=share, done_s=done_s)
        if race is not None:
            changed = replace(changed, effects={**batch.effects, "cancel_race": race})
        if changed.effects.get("cancel_race") == "full":
            changed = replace(changed, end="completed", done_share=1.0)
        self.put_batch(changed)
        return changed

    # -- time ---------------------------------------------------------------------------------

    def tick(self, now_s: float) -> None:
        """Make every change that is due by `now_s`, the earliest first."""
        while True:
            due = min(self._due(now_s), default=None)
            if due is None:
                return
            _, is_validation, _, batch_id = due
            if is_validation:
                self._validate(self.batches[batch_id])
            else:
                self._finish(self.batches[batch_id])

    def _due(self, now_s: float) -> Iterator[tuple[float, bool, int, str]]:
        # At one instant, what ends frees its place in the queue before what is validated takes one.
        for batch_id in self._open:
            batch = self.batches[batch_id]
            is_cancelling = batch.cancel_s is not None and batch.end == "cancelled"
            if not batch.is_validated and not is_cancelling:
                if batch.valid_s <= now_s:
                    yield batch.valid_s, True, batch.n, batch_id
            elif batch.done_s <= now_s:
                yield batch.done_s, False, batch.n, batch_id

    def _validate(self, batch: BatchRecord) -> None:
        code = batch.effects.get("fail")
        if "enqueued" in batch.effects:
            code = "token_limit_exceeded"
        source = self.files.get(batch.input_file_id)
        if isinstance(code, str):
            self._fail(batch, [self._failure(code, batch, batch.model or "the model", 2_000_000)])
        elif source is None or source.project != batch.project or source.purpose != "batch":
            self._fail(batch, [self._failure("invalid_request", batch, "", 0)])
        else:
            self._answer(batch)

    def _failure(self, code: str, batch: BatchRecord, model: str, limit: int) -> dict[str, Any]:
        text, param = _FAILURES.get(code, (f"The batch failed validation: {code}.", None))
        message = text.format(file=batch.input_file_id, model=model, limit=f"{limit:,}")
        return {"code": code, "message": message, "param": param, "line": None}

    def _fail(self, batch: BatchRecord, errors: list[dict[str, Any]]) -> None:
        self.put_batch(replace(batch, is_ended=True, end="failed", done_s=batch.valid_s, errors=errors))

    def _answer(self, batch: BatchRecord) -> None:
        try:
            count = self._rows(batch, self._plan(batch))
        except LineError as error:
            self._fail(batch, [error.row])
            return
        limit = self._limit(count.model)
        queued = sum(
            other.queued_tokens
            for other in (self.batches[batch_id] for batch_id in self._open)
            if other.model == count.model and other.project == batch.project
        )
        if limit is not None and queued + count.input_tokens > limit:
            self._fail(batch, [self._failure("token_limit_exceeded", batch, count.model, limit)])
            return
        counted = _counted(batch, count)
        self.put_batch(replace(counted, is_validated=True, queued_tokens=count.input_tokens))

    def _limit(self, model: str) -> int | None:
        limits = self._world.settings.enqueued_limits
        return next((limit for pattern, limit in limits.items() if fnmatchcase(model, pattern)), None)

    def _plan(self, batch: BatchRecord) -> RowPlan:
        seed = int.from_bytes(self._world.digest("shuffle", batch.n)[:6], "big")
        return RowPlan(batch.id, batch.endpoint, seed, int(batch.valid_s), tuple(batch.mutations))

    def _rows(self, batch: BatchRecord, plan: RowPlan) -> RowCount:
        output, errors = (self.blob(f"{batch.id}.{role}.part") for role in ("output", "error"))
        try:
            return write_rows(self.blob(batch.input_file_id), output, errors, plan, self._world.panel)
        except LineError:
            output.unlink(missing_ok=True)
            errors.unlink(missing_ok=True)
            raise

    def _finish(self, batch: BatchRecord) -> None:
        if batch.end != "completed" or not self._has_parts(batch):
            batch = self._partial(batch)
        ended = replace(batch, is_ended=True, queued_tokens=0)
        if "expire_bare" not in batch.effects:
            ended = replace(
                ended, output_file_id=self._publish(batch, "output"), error_file_id=self._publish(batch, "error")
            )
        if "empty_output" in batch.effects:
            ended = replace(ended, output_file_id=None)
        self._bill(ended)
        self.put_batch(ended)
        for role in ("output", "error"):
            self.blob(f"{batch.id}.{role}.part").unlink(missing_ok=True)

    def _has_parts(self, batch: BatchRecord) -> bool:
        return all(self.blob(f"{batch.id}.{role}.part").exists() for role in ("output", "error"))

    def _partial(self, batch: BatchRecord) -> BatchRecord:
        plan = self._plan(batch)
        if batch.end != "completed":
            plan = replace(
                plan,
                n_total=batch.n_total,
                n_done=int(batch.n_total * batch.done_share + 1e-9),
                not_run="batch_expired" if batch.end == "expired" else "batch_cancelled",
                is_lost=batch.end == "cancelled" and batch.effects.get("cancel_race") == "lost",
            )
        try:
            return _counted(batch, self._rows(batch, plan))
        except (LineError, FileNotFoundError):
            # Cancelled before validation could refuse the file, or the input was deleted meanwhile.
            return replace(batch, n_total=0, n_completed=0, n_failed=0, usage=None)

    def _publish(self, batch: BatchRecord, role: str) -> str | None:
        part = self.blob(f"{batch.id}.{role}.part")
        name = f"file-{self._world.name('file', batch.id, role)}"
        if name in self.files:
            return name
        if not part.exists() or part.stat().st_size == 0:
            return None
        size = part.stat().st_size
        part.replace(self.blob(name))
        kept_s = RETENTION_S if batch.output_expires_s is None else batch.output_expires_s
        n_404 = int(_number(batch.effects.get("results_404"), 0))
        record = FileRecord(
            name, self.next_file_n(), batch.project, f"{batch.id}_{role}.jsonl", "batch_output", size,
            batch.done_s, batch.done_s + kept_s, 0.0, n_404,
        )  # fmt: skip
        self.put_file(record)
        return name

    def _bill(self, batch: BatchRecord) -> None:
        if batch.usage is None or batch.end == "failed":
            return
        tokens = batch.usage["input_tokens"], batch.usage["output_tokens"]
        self._world.ledger.billed(Bill(batch.id, PROVIDER, batch.model or "", batch.n_billed, *tokens))


def _number(value: Value, default: float) -> float:
    return float(value) if isinstance(value, int | float) else default


def _counted(batch: BatchRecord, count: RowCount) -> BatchRecord:
    return replace(
        batch,
        model=count.model,
        n_total=count.n_total,
        n_completed=count.n_completed,
        n_failed=count.n_failed,
        n_billed=count.n_billed,
        usage=count.usage(),
    )
