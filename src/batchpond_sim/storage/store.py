"""The objects of a simulated Cloud Storage: their bytes, uploads under way, and who may see them.

Every bucket is there, but for those with `no-such` in their names; in those with `forbidden` the caller may do
nothing, and those with `no-agent` the service agent of Vertex AI cannot write to.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, urlsplit

from batchpond_sim import SimulatorError
from batchpond_sim.faults.faults import Value, number
from batchpond_sim.shared.batches import Shelf
from batchpond_sim.world.world import World

SESSION_S = 7 * 86_400
NO_BUCKET, FORBIDDEN, NO_AGENT = "no-such", "forbidden", "no-agent"


class NoBucketError(LookupError):
    """There is no bucket of that name."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where an object is, and whose key put it there."""

    project: str
    bucket: str
    name: str

    @property
    def id(self) -> str:
        """What stands for the place in file names."""
        return hashlib.sha256(f"{self.bucket}/{self.name}".encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class ObjectRecord:
    """The live version of an object; its bytes are in the blob of the same generation."""

    id: str
    n: int
    project: str
    bucket: str
    name: str
    content_type: str
    size_bytes: int
    md5: str
    created_s: float
    listed_s: float = 0.0
    n_404: int = 0

    @property
    def generation(self) -> int:
        """The number of this version."""
        return int(self.created_s * 1e6) * 1_000 + self.n % 1_000

    @property
    def blob(self) -> str:
        """The name of the file with its bytes."""
        return f"{self.id}.{self.n}"


@dataclass(frozen=True, slots=True)
class Upload:
    """A resumable upload; what has arrived is in its part. `made` is the object's id once it is whole."""

    id: str
    n: int
    project: str
    bucket: str
    name: str
    content_type: str
    size_bytes: int | None
    if_generation: int | None
    created_s: float
    effects: dict[str, Value] = field(default_factory=dict)
    made: str = ""

    @property
    def part(self) -> str:
        """The name of the file that grows."""
        return f"{self.id}.part"

    @property
    def target(self) -> Target:
        """Where the object will be."""
        return Target(self.project, self.bucket, self.name)


class ObjectStore(Protocol):
    """What a job needs of Cloud Storage."""

    def fetch(self, bucket: str, name: str, path: Path) -> bool:
        """Copy an object's bytes to `path`; False when there is none. Raises NoBucketError."""
        ...

    def put(self, target: Target, source: Path, n_404: int) -> None:
        """Store a copy of a file; its first `n_404` downloads will find nothing. Raises NoBucketError."""
        ...


class LocalStore:
    """All objects of a world, in memory and in its folder."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._blobs = world.folder("storage", "blobs")
        self.objects: Shelf[ObjectRecord] = Shelf(world.folder("storage", "objects"), ObjectRecord)
        self.uploads: Shelf[Upload] = Shelf(world.folder("storage", "uploads"), Upload)

    def blob(self, name: str) -> Path:
        """Return where bytes are."""
        return self._blobs / name

    def find(self, bucket: str, name: str) -> ObjectRecord | None:
        """Return an object, None when there is none."""
        return self.objects.get(Target("", bucket, name).id)

    def below(self, bucket: str, prefix: str) -> Iterator[ObjectRecord]:
        """Yield the objects of a bucket whose names begin so, by name."""
        found = [record for record in self.objects if record.bucket == bucket and record.name.startswith(prefix)]
        yield from sorted(found, key=lambda record: record.name)

    def received(self, upload: Upload) -> int:
        """Return how many bytes of an upload are here."""
        path = self.blob(upload.part)
        return path.stat().st_size if path.exists() else 0

    def finish(self, upload: Upload) -> ObjectRecord:
        """Turn a complete upload into an object, or as much of it as its faults allow."""
        path = self.blob(upload.part)
        path.touch()
        if "store" in upload.effects:
            with path.open("r+b") as file:
                file.truncate(int(path.stat().st_size * number(upload.effects["store"])))
        listed_s = self._world.now_s() + number(upload.effects.get("stale_list"))
        record = self.keep(upload.target, path, upload.content_type, listed_s=listed_s)
        self.uploads.put(replace(upload, made=record.id))
        return record

    def keep(
        self, target: Target, part: Path, content_type: str, *, listed_s: float = 0.0, n_404: int = 0
    ) -> ObjectRecord:
        """Make a file, which it takes over, the live version of an object."""
        with part.open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).digest()
        record = ObjectRecord(
            target.id, self.objects.next_n(), target.project, target.bucket, target.name, content_type,
            part.stat().st_size, base64.b64encode(digest).decode("ascii"), self._world.now_s(), listed_s, n_404,
        )  # fmt: skip
        old = self.objects.get(record.id)
        part.replace(self.blob(record.blob))
        self.objects.put(record)
        if old is not None:
            self.blob(old.blob).unlink(missing_ok=True)
        return record

    def drop(self, record: ObjectRecord) -> None:
        """Delete an object."""
        self.objects.drop(record.id)
        self.blob(record.blob).unlink(missing_ok=True)

    def fetch(self, bucket: str, name: str, path: Path) -> bool:
        """Copy an object's bytes to `path`; False when there is none. Raises NoBucketError."""
        _check(bucket)
        record = self.find(bucket, name)
        if record is not None:
            shutil.copyfile(self.blob(record.blob), path)
        return record is not None

    def put(self, target: Target, source: Path, n_404: int) -> None:
        """Store a copy of a file; its first `n_404` downloads will find nothing. Raises NoBucketError."""
        _check(target.bucket)
        part = self.blob(f"{target.id}.copy.part")
        shutil.copyfile(source, part)
        self.keep(target, part, "application/octet-stream", n_404=n_404)


def _check(bucket: str) -> None:
    if NO_BUCKET in bucket:
        raise NoBucketError(bucket)


_TIMEOUT_S = 30.0


class RemoteStore:
    """The objects behind an emulator's JSON API, such as `http://127.0.0.1:9023`."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise SimulatorError(
                f"{url!r} is not the address of a storage emulator", hint="write http://127.0.0.1:9023"
            )
        self._host, self._port, self._path = parts.hostname, parts.port or 80, parts.path.rstrip("/")

    def fetch(self, bucket: str, name: str, path: Path) -> bool:
        """Copy an object's bytes to `path`; False when there is none."""
        connection = self._connection()
        try:
            connection.request("GET", f"{self._path}/storage/v1/b/{bucket}/o/{quote(name, safe='')}?alt=media")
            answer = connection.getresponse()
            if answer.status != 200:
                return False
            with path.open("wb") as file:
                shutil.copyfileobj(answer, file)
        finally:
            connection.close()
        return True

    def put(self, target: Target, source: Path, n_404: int) -> None:  # noqa: ARG002  # faults are not the emulator's
        """Store a copy of a file; raises NoBucketError where the emulator will not have it."""
        query = f"uploadType=media&name={quote(target.name, safe='')}"
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(source.stat().st_size)}
        connection = self._connection()
        try:
            with source.open("rb") as file:
                path = f"{self._path}/upload/storage/v1/b/{target.bucket}/o?{query}"
                connection.request("POST", path, body=file, headers=headers)
                status = connection.getresponse().status
        finally:
            connection.close()
        if status != 200:
            raise NoBucketError(target.bucket)

    def _connection(self) -> HTTPConnection:
        return HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)
