"""The files of a simulated account: what was uploaded, and what batches left; for APIs that make batches of files."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from batchpond_sim.faults.faults import Stage, number
from batchpond_sim.host.wire import CHUNK_BYTES
from batchpond_sim.shared.life import Account, Batch
from batchpond_sim.world.shelf import Shelf
from batchpond_sim.world.world import Call, World


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

    roles = ("output", "error")

    def __init__(self, world: World, provider: str, make: Callable[..., F], window_s: float) -> None:
        super().__init__(world, provider, make, window_s)
        self.files: Shelf[FileRecord] = Shelf(world.folder(provider, "files"), FileRecord)

    @abstractmethod
    def result_file(self, batch: F, role: str) -> FileRecord:
        """Return the file object of a result file, without its id, place and size."""
        ...

    # -- files ------------------------------------------------------------------------------------

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

    # -- results ----------------------------------------------------------------------------------

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
