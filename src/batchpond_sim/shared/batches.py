"""Objects of a simulated account in a folder, one JSON file each, and in memory."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import orjson

from batchpond_sim.host.messages import CHUNK_BYTES
from batchpond_sim.shared.rows import NotRun, RowCount, RowPlan
from batchpond_sim.world.faults import Call, Stage, Value, number
from batchpond_sim.world.world import BatchEntry, Bill, World, write_atomically


class Record(Protocol):
    """A frozen dataclass of JSON values with an id, good as a file name, and an ordinal."""

    @property
    def id(self) -> str:
        """What the object is called, and its file."""

    @property
    def n(self) -> int:
        """Its place in the order of creation."""


R = TypeVar("R", bound=Record)


class Records(Generic[R]):
    """All objects of one kind; a change is in the folder before it is seen."""

    def __init__(self, folder: Path, make: Callable[..., R]) -> None:
        self._folder = folder
        loaded = [make(**orjson.loads(path.read_bytes())) for path in folder.glob("*.json")]
        self._records = {record.id: record for record in sorted(loaded, key=lambda record: record.n)}
        self._n_made = max((record.n for record in loaded), default=0)

    def __iter__(self) -> Iterator[R]:
        return iter(self._records.values())

    def __getitem__(self, name: str) -> R:
        return self._records[name]

    def __contains__(self, name: str) -> bool:
        return name in self._records

    def get(self, name: str) -> R | None:
        """Return an object, None when there is none."""
        return self._records.get(name)

    def next_n(self) -> int:
        """Return the ordinal of a new object."""
        self._n_made += 1
        return self._n_made

    def put(self, record: R) -> None:
        """Store an object, new or changed."""
        write_atomically(self._folder / f"{record.id}.json", orjson.dumps(record))
        self._records[record.id] = record

    def drop(self, name: str) -> None:
        """Delete an object."""
        self._records.pop(name, None)
        (self._folder / f"{name}.json").unlink(missing_ok=True)


NEVER_S = 4e18


class End(StrEnum):
    """How a batch ends."""

    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class RowsError(ValueError):
    """A batch's input cannot be turned into rows; providers raise classes of their own below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch: when it is planned to change (virtual seconds), and what has become of it.

    A provider adds fields with defaults. `effects` are the faults of its creation, `mutations`
    those of its rows.
    """

    id: str
    project: str
    n: int = 0
    created_s: float = 0.0
    valid_s: float = 0.0
    ran_s: float = 0.0
    done_s: float = 0.0
    endpoint: str = ""
    input_file_id: str = ""
    metadata: dict[str, str] | None = None
    first_custom_id: str = ""
    end: str = End.COMPLETED
    done_share: float = 1.0
    is_validated: bool = False
    is_ended: bool = False
    is_counted: bool = False
    cancel_s: float | None = None
    effects: dict[str, Value] = field(default_factory=dict)
    mutations: list[tuple[str, Value]] = field(default_factory=list)
    model: str | None = None
    n_total: int = 0
    n_completed: int = 0
    n_failed: int = 0
    n_billed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    queued_tokens: int = 0
    n_404: int = 0
    listed_s: float = 0.0

    def share_done(self, now_s: float) -> float:
        """Return the share of requests answered at a time."""
        if self.cancel_s is not None:
            return self.done_share
        if not self.is_validated:
            return 0.0
        share = (now_s - self.valid_s) / max(1e-9, self.ran_s - self.valid_s)
        return self.done_share * max(0.0, min(1.0, share))


B = TypeVar("B", bound=Batch)


class Account(ABC, Generic[B]):
    """All batches of one provider, in memory and in the world's folder.

    A provider says how rows are written (`write`) and made available (`publish`); one that looks
    at its input late overrides `begin`. `roles` are the parts that `write` leaves behind.
    """

    roles: tuple[str, ...] = ("output",)

    def __init__(self, world: World, provider: str, make: Callable[..., B], window_s: float) -> None:
        self.world = world
        self.provider = provider
        self.window_s = window_s
        self._blobs = world.folder(provider, "blobs")
        for left in self._blobs.glob("upload-*.part"):
            left.unlink()  # of an upload that a kill cut off
        self.batches: Records[B] = Records(world.folder(provider, "batches"), make)
        self._open = {batch.id for batch in self.batches if not batch.is_ended}
        for batch in self.batches:
            # The object is written before its ledger line: a kill between the two is made good here.
            self._enter(batch, "recovered", 0)
            if batch.is_ended:
                self._bill(batch)

    @abstractmethod
    def write(self, batch: B, plan: RowPlan) -> RowCount:
        """Write the rows of a batch into `part(batch, role)` for every role; raises RowsError."""

    @abstractmethod
    def publish(self, batch: B) -> B:
        """Make the parts of an ended batch available; called again after a kill in the middle."""

    def begin(self, batch: B) -> None:
        """Start to run a batch whose `valid_s` has come."""
        self.put(replace(counted(batch, self.write(batch, self.plan(batch))), is_validated=True))

    def blob(self, name: str) -> Path:
        """Return where a file's bytes are."""
        return self._blobs / name

    def part(self, batch: B, role: str) -> Path:
        """Return where rows wait for the end of their batch."""
        return self.blob(f"{batch.id}.{role}.part")

    def put(self, batch: B) -> None:
        """Store a batch."""
        self.batches.put(batch)
        if batch.is_ended:
            self._open.discard(batch.id)
        else:
            self._open.add(batch.id)

    def drop(self, batch: B) -> None:
        """Delete a batch; the ledger keeps it."""
        self._open.discard(batch.id)
        self.batches.drop(batch.id)

    def create(self, draft: B, call: Call, key: str) -> B:
        """Store a new batch with its ordinal, its times and its faults; `key` is a fingerprint."""
        n = len(self.world.ledger.batches) + 1
        effects = call.values(Stage.EFFECT)
        created_s = self.world.now_s() + number(effects.get("delay_exec"))
        batch = self._planned(
            replace(
                draft,
                n=n,
                created_s=created_s,
                effects=effects,
                mutations=self.world.line_faults(n),
                n_404=int(number(effects.get("notfound_after_create"))),
                listed_s=created_s + number(effects.get("stale_list")),
            )
        )
        self.put(batch)
        self._enter(batch, key, call.op_n)
        return batch

    def _enter(self, batch: B, key: str, call_n: int) -> None:
        entry = BatchEntry(
            batch.id, self.provider, batch.created_s, key, batch.input_file_id, batch.metadata, call_n,
            batch.first_custom_id,
        )  # fmt: skip
        self.world.ledger.created(entry)

    def _bill(self, batch: B) -> None:
        if batch.is_counted and batch.end != End.FAILED:
            tokens = batch.input_tokens, batch.output_tokens
            self.world.ledger.billed(Bill(batch.id, self.provider, batch.model or "", batch.n_billed, *tokens))

    def _planned(self, batch: B) -> B:
        low, high = self.world.settings.latency_s
        total = low + (high - low) * self.world.draw("latency", batch.n)
        valid, ran, done = (batch.created_s + total * share for share in (0.1, 0.9, 1.0))
        end, share = End.COMPLETED, 1.0
        deadline = batch.created_s + self.window_s
        if done > deadline:
            share = max(0.0, min(1.0, (deadline - valid) / (ran - valid)))
            done, ran, end = deadline, min(ran, deadline), End.EXPIRED
        if "expire" in batch.effects or "expire_bare" in batch.effects:
            end, share = End.EXPIRED, number(batch.effects.get("expire"))
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

    def fail(self, batch: B, **why: Any) -> None:
        """End a batch as failed at the time when its input was looked at, with what the provider says about it."""
        failed = replace(batch, is_ended=True, end=End.FAILED, done_s=batch.valid_s, queued_tokens=0, **why)
        self.put(failed)
        self.clear(failed)

    def find(self, batch_id: str, project: str, now_s: float) -> B | None:
        """Return a batch that exists by now in a project, None otherwise."""
        batch = self.batches.get(batch_id)
        if batch is None or batch.project != project or batch.created_s > now_s:
            return None
        return batch

    def fetch(self, batch_id: str, project: str, now_s: float) -> B | None:
        """Return what a get finds: like `find`, but for the first gets that a fault answers 404."""
        batch = self.find(batch_id, project, now_s)
        if batch is not None and batch.n_404 > 0:
            self.put(replace(batch, n_404=batch.n_404 - 1))
            return None
        return batch

    def listed(self, project: str, now_s: float, call: Call) -> list[B]:
        """Return what a listing shows, newest first."""
        stale = number(call.value(Stage.VIEW, "stale_list")[1])
        seen = [
            batch
            for batch in self.batches
            if batch.project == project and max(batch.created_s + stale, batch.listed_s) <= now_s
        ]
        return sorted(seen, key=lambda batch: (batch.created_s, batch.n), reverse=True)

    def cancel(self, batch: B, call: Call, now_s: float) -> B | None:
        """Ask an open batch to stop; None where a fault makes that a conflict."""
        race = call.value(Stage.EFFECT, "cancel_race")[1] or batch.effects.get("cancel_race")
        if race == "conflict":
            return None
        if batch.cancel_s is not None:
            return batch
        share = batch.share_done(now_s)
        done_s = now_s + self.world.settings.cancel_s
        changed = replace(batch, cancel_s=now_s, end=End.CANCELLED, done_share=share, done_s=done_s)
        if race is not None:
            changed = replace(changed, effects={**batch.effects, "cancel_race": race})
        if race == "full":
            changed = replace(changed, end=End.COMPLETED, done_share=1.0)
        self.put(changed)
        return changed

    def full_queue(self, model: str, project: str, tokens: int) -> int | None:
        """Return the limit of prompt tokens in queue that `tokens` more would pass, None when they fit."""
        limits = self.world.settings.enqueued_limits
        limit = next((limit for pattern, limit in limits.items() if fnmatchcase(model, pattern)), None)
        waiting = (self.batches[batch_id] for batch_id in self._open)
        queued = sum(batch.queued_tokens for batch in waiting if batch.model == model and batch.project == project)
        return limit if limit is not None and queued + tokens > limit else None

    def tick(self) -> float:
        """Make every change that is due by now, the earliest first, and return the time."""
        now_s = self.world.now_s()
        while (due := min(self._due(now_s), default=None)) is not None:
            _, is_beginning, _, batch_id = due
            if is_beginning:
                self.begin(self.batches[batch_id])
            else:
                self._finish(self.batches[batch_id])
        return now_s

    def _due(self, now_s: float) -> Iterator[tuple[float, bool, int, str]]:
        # At one instant, what ends frees its place in the queue before what begins takes one.
        for batch_id in self._open:
            batch = self.batches[batch_id]
            is_cancelling = batch.cancel_s is not None and batch.end == End.CANCELLED
            if not batch.is_validated and not is_cancelling:
                if batch.valid_s <= now_s:
                    yield batch.valid_s, True, batch.n, batch_id
            elif batch.done_s <= now_s:
                yield batch.done_s, False, batch.n, batch_id

    def plan(self, batch: B) -> RowPlan:
        """Return how the rows of a batch are made when all of them are answered."""
        seed = int.from_bytes(self.world.digest("shuffle", batch.n)[:6], "big")
        return RowPlan(seed, tuple(batch.mutations))

    def _finish(self, batch: B) -> None:
        if batch.end != End.COMPLETED or not all(self.part(batch, role).exists() for role in self.roles):
            batch = self._partial(batch)
        ended = self.publish(replace(batch, is_ended=True, queued_tokens=0))
        self._bill(ended)
        self.put(ended)
        self.clear(ended)

    def clear(self, batch: B) -> None:
        """Remove the parts of a batch."""
        for role in self.roles:
            self.part(batch, role).unlink(missing_ok=True)

    def _partial(self, batch: B) -> B:
        plan = self.plan(batch)
        if batch.end != End.COMPLETED:
            plan = replace(
                plan,
                n_total=batch.n_total,
                n_done=int(batch.n_total * batch.done_share + 1e-9),
                not_run=NotRun.EXPIRED if batch.end == End.EXPIRED else NotRun.CANCELLED,
                is_lost=batch.end == End.CANCELLED and batch.effects.get("cancel_race") == "lost",
            )
        try:
            return counted(batch, self.write(batch, plan))
        except (RowsError, FileNotFoundError):
            # Cancelled before its input could be refused, or the input was deleted meanwhile.
            self.clear(batch)
            return replace(batch, n_total=0, n_completed=0, n_failed=0, is_counted=False)


def counted(batch: B, count: RowCount) -> B:
    """Return a batch with what its rows add up to."""
    return replace(batch, **asdict(count) | {"model": count.model or batch.model}, is_counted=True)


def view_faults(batch: Batch, call: Call) -> dict[str, Value]:
    """Return the faults that change how a batch looks in the answer to a call."""
    return batch.effects | call.values(Stage.VIEW)


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
    sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FiledBatch(Batch):
    """A batch over an uploaded file, which leaves files."""

    output_file_id: str | None = None
    error_file_id: str | None = None


F = TypeVar("F", bound=FiledBatch)


class FilesAccount(Account[F]):
    """All files and batches of one account; a provider says what result files are called (`result_file`)."""

    roles: tuple[str, ...] = ("output", "error")

    def __init__(self, world: World, provider: str, make: Callable[..., F], window_s: float) -> None:
        super().__init__(world, provider, make, window_s)
        self.files: Records[FileRecord] = Records(world.folder(provider, "files"), FileRecord)

    @abstractmethod
    def result_file(self, batch: F, role: str) -> FileRecord:
        """Return the file object of a result file, without its id, place and size."""

    def file(self, file_id: str, project: str) -> FileRecord | None:
        """Return a file that is there now."""
        record = self.files.get(file_id)
        if record is None or record.project != project:
            return None
        if record.expires_s is not None and record.expires_s <= self.world.now_s():
            return None
        return record

    def listed_files(self, project: str, now_s: float, call: Call) -> Iterator[FileRecord]:
        """Yield the files that a listing shows, the oldest first."""
        stale = number(call.value(Stage.VIEW, "stale_list")[1])
        for record in self.files:
            if max(record.listed_s, record.created_s + stale) <= now_s and self.file(record.id, project) is not None:
                yield record

    def content(self, file_id: str, project: str) -> Path | None:
        """Return where a file's bytes are, None for no such file or while a fault hides it."""
        record = self.file(file_id, project)
        if record is not None and record.n_404 > 0:
            self.files.put(replace(record, n_404=record.n_404 - 1))
            return None
        return None if record is None else self.blob(record.id)

    def keep(self, part: Path, draft: FileRecord, call: Call) -> FileRecord:
        """Store an uploaded file whose bytes are at `part`, or as much of it as a fault of the call allows."""
        size = draft.size_bytes
        is_cut, share = call.value(Stage.EFFECT, "store")
        if is_cut:
            size = int(size * number(share))
            with part.open("r+b") as file:
                file.truncate(size)
        listed_s = self.world.now_s() + number(call.value(Stage.EFFECT, "stale_list")[1])
        record = replace(draft, n=self.files.next_n(), size_bytes=size, created_s=self.world.now_s(), listed_s=listed_s)
        part.replace(self.blob(record.id))
        self.files.put(record)
        return record

    def drop_file(self, file_id: str) -> None:
        """Delete a file object and its bytes."""
        self.files.drop(file_id)
        self.blob(file_id).unlink(missing_ok=True)

    def publish(self, batch: F) -> F:
        """Turn what has been written into file objects."""
        if "expire_bare" in batch.effects:
            return batch
        output, error = (self._published(batch, role) for role in self.roles)
        return replace(batch, output_file_id=None if "empty_output" in batch.effects else output, error_file_id=error)

    def _published(self, batch: F, role: str) -> str | None:
        part = self.part(batch, role)
        name = f"file-{self.world.name('file', batch.id, role)}"
        if name in self.files:
            return name
        if not part.exists() or part.stat().st_size == 0:
            return None
        size = part.stat().st_size
        part.replace(self.blob(name))
        n_404 = int(number(batch.effects.get("results_404")))
        draft = self.result_file(batch, role)
        self.files.put(replace(draft, id=name, n=self.files.next_n(), size_bytes=size, n_404=n_404))
        return name


def sha256_of(path: Path) -> str:
    """Return the digest of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
