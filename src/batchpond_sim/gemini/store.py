"""The files of a simulated Gemini project: uploads under way, what was uploaded, what batches wrote."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from batchpond_sim.faults.faults import Value, number
from batchpond_sim.world.shelf import Shelf
from batchpond_sim.world.world import World

RETENTION_S = 48 * 3600
UPLOADED = "UPLOADED"
GENERATED = "GENERATED"


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file; its bytes are in the blob of the same id. `sha256` is hexadecimal."""

    id: str
    n: int
    project: str
    display_name: str
    mime_type: str
    size_bytes: int
    created_s: float
    expires_s: float | None = None
    sha256: str = ""
    source: str = UPLOADED
    listed_s: float = 0.0
    n_404: int = 0


@dataclass(frozen=True, slots=True)
class Upload:
    """A resumable upload; what has arrived is in the blob `part`. `status` is active, final or cancelled."""

    id: str
    n: int
    project: str
    name: str
    display_name: str
    mime_type: str
    size_bytes: int | None
    created_s: float
    status: str = "active"
    effects: dict[str, Value] = field(default_factory=dict)

    @property
    def part(self) -> str:
        """The name of the blob that grows."""
        return f"{self.id}.part"


class Files:
    """All files and uploads, in memory and in the world's folder; `blob` says where bytes are."""

    def __init__(self, world: World, provider: str, blob: Callable[[str], Path]) -> None:
        self.blob = blob
        self.shelf: Shelf[FileRecord] = Shelf(world.folder(provider, "files"), FileRecord)
        self.uploads: Shelf[Upload] = Shelf(world.folder(provider, "uploads"), Upload)

    def drop(self, file_id: str) -> None:
        """Delete a file and its bytes."""
        self.shelf.drop(file_id)
        self.blob(file_id).unlink(missing_ok=True)

    def expire(self, now_s: float) -> None:
        """Delete the files and the uploads whose time is over."""
        for file in [file for file in self.shelf if file.expires_s is not None and file.expires_s <= now_s]:
            self.drop(file.id)
        for upload in [upload for upload in self.uploads if upload.created_s + RETENTION_S <= now_s]:
            self.uploads.drop(upload.id)
            self.blob(upload.part).unlink(missing_ok=True)

    def find(self, file_id: str, project: str) -> FileRecord | None:
        """Return a project's file, None when there is none."""
        file = self.shelf.get(file_id)
        return None if file is None or file.project != project else file

    def received(self, upload: Upload) -> int:
        """Return how many bytes of an upload are here."""
        path = self.blob(upload.part)
        return path.stat().st_size if path.exists() else 0

    def finish(self, upload: Upload, now_s: float) -> FileRecord:
        """Turn a complete upload into a file."""
        path = self.blob(upload.part)
        path.touch()
        if "store" in upload.effects:
            with path.open("r+b") as file:
                file.truncate(int(path.stat().st_size * number(upload.effects["store"])))
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        record = FileRecord(
            upload.name, self.shelf.next_n(), upload.project, upload.display_name, upload.mime_type,
            path.stat().st_size, now_s, now_s + RETENTION_S, digest,
            listed_s=now_s + number(upload.effects.get("stale_list")),
        )  # fmt: skip
        path.replace(self.blob(record.id))
        self.shelf.put(record)
        self.uploads.put(replace(upload, status="final"))
        return record
