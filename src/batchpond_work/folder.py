"""The folder of mode `files`, as a worker sees it: batches, their parts, which answers are there, put-if-absent.

A part is a range of lines of `outbox/NAME.jsonl`, `part_requests` of them. The inbox is the only checkpoint: a request
whose custom_id a whole row of any file there names is answered. All that is written appears whole and durable
under a name that nobody had, or not at all, by `link`, which needs no lock and holds over NFS.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import json
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from batchpond_work import USAGE, WorkError

PROTOCOL: Final = 2
PART_REQUESTS: Final = 1_000
MANIFEST: Final = ".manifest.json"
_RESULTS: Final = re.compile(r"(?:[^A-Za-z0-9].*)?\.jsonl(?:\.gz)?")
_FIRST_ID: Final = re.compile(rb'\{"custom_id":\s?"([^"\\]+)"')


class NotWholeError(Exception):
    """A batch that cannot be worked on as it lies there, with the reason."""


@dataclass(frozen=True, slots=True)
class Part:
    """So many lines of a batch's requests, by the place of their first byte."""

    name: str
    requests: Path
    offset: int
    custom_ids: tuple[str, ...]

    def lines(self) -> dict[str, bytes]:
        """Return its request lines, without their ends, by custom_id."""
        with self.requests.open("rb") as file:
            file.seek(self.offset)
            return {custom_id: file.readline().rstrip(b"\n") for custom_id in self.custom_ids}


@dataclass(frozen=True, slots=True)
class Batch:
    """The requests of one batch, cut into parts."""

    name: str
    model: str
    first_line: bytes
    parts: tuple[Part, ...]


@dataclass(slots=True)
class Inbox:
    """Which custom_ids the result files of one batch hold; each file is read once, until it changes."""

    path: Path
    batch: str
    _read: dict[str, tuple[tuple[int, int], frozenset[str]]] = field(default_factory=dict)

    def files(self) -> list[Path]:
        """Return the result files, in name order."""
        found = (name for name in os.listdir(self.path) if name.startswith(self.batch))
        return [self.path / name for name in sorted(found) if _RESULTS.fullmatch(name[len(self.batch) :])]

    def held(self) -> set[str]:
        """Return the custom_ids of all whole rows that are there now."""
        # A directory that this machine has just written to is read anew, where NFS would show a remembered one.
        look = self.path / f".{self.batch}-look.part"
        look.touch()
        look.unlink(missing_ok=True)
        while True:
            try:
                known = {path.name: self._of(path) for path in self.files()}
            except FileNotFoundError:  # joined to another meanwhile, which is there now
                continue
            self._read = known
            return set().union(*(held for _, held in known.values()))

    def _of(self, path: Path) -> tuple[tuple[int, int], frozenset[str]]:
        status = path.lstat()
        mark = (status.st_size, status.st_mtime_ns)
        known = self._read.get(path.name)
        if known is not None and known[0] == mark:
            return known
        return mark, frozenset(_ids(path) if stat.S_ISREG(status.st_mode) else ())


def _ids(path: Path) -> Iterator[str]:
    """Yield the custom_ids of a file's whole rows; one that is cut or damaged has those before that place."""
    damages = (EOFError, gzip.BadGzipFile, zlib.error)
    with contextlib.suppress(*damages), gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
        for line in lines:
            row = parsed(line)
            if row is not None and isinstance(row.get("custom_id"), str):
                yield row["custom_id"]


def parsed(line: bytes) -> dict[str, Any] | None:
    """Return a line's JSON object, None where it is none that every reader takes."""
    try:
        row = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder; raises WorkError where there is none."""

    path: Path

    def __post_init__(self) -> None:
        if not self.outbox.is_dir():
            hint = 'it is made by `batchpond submit` of a study with `mode = "files"`; `lake/files` without settings'
            raise WorkError(f"{self.path} has no outbox", hint=hint, exit_code=USAGE)
        for side in (self.inbox, self.claims):
            with contextlib.suppress(FileExistsError):
                side.mkdir()
                side.chmod(stat.S_IMODE(self.outbox.stat().st_mode))

    @property
    def outbox(self) -> Path:
        """Where requests lie."""
        return self.path / "outbox"

    @property
    def inbox(self) -> Path:
        """Where results belong."""
        return self.path / "inbox"

    @property
    def claims(self) -> Path:
        """Where workers say what they work on."""
        return self.path / "claims"

    def names(self) -> list[str]:
        """Return the names of all batches, in order."""
        found = sorted(name for name in os.listdir(self.outbox) if name.endswith(MANIFEST))
        return [name.removesuffix(MANIFEST) for name in found if not name.startswith(".")]

    def is_closed(self, name: str) -> bool:
        """Whether somebody said of a batch that no more should come."""
        return (self.outbox / f"{name}.cancelled").exists() or (self.inbox / f"{name}.done").exists()

    def manifest(self, name: str) -> Mapping[str, Any]:
        """Return a batch's manifest; raises NotWholeError for none that could be one."""
        path = self.outbox / f"{name}{MANIFEST}"
        manifest = parsed(path.read_bytes()) if path.exists() else None
        if manifest is None or manifest.get("batch") != name:
            raise NotWholeError(f"{path} is no manifest of that batch")
        if manifest.get("protocol") not in (None, PROTOCOL):
            raise NotWholeError(f"{path} is of a later protocol than {PROTOCOL}")
        return manifest

    def batch(self, manifest: Mapping[str, Any]) -> Batch:
        """Return a batch with its parts; raises NotWholeError where its requests are not those of the manifest."""
        name = str(manifest["batch"])
        path, size = self.outbox / f"{name}.jsonl", manifest.get("part_requests")
        n_part = size if isinstance(size, int) and size > 0 else PART_REQUESTS
        if not path.exists():
            raise NotWholeError(f"{path} is not there")
        digest, place, offsets, ids, first = hashlib.sha256(), 0, list[int](), list[str](), b""
        with path.open("rb") as lines:
            for number, line in enumerate(lines):
                if number % n_part == 0:
                    offsets.append(place)
                first = first or line
                digest.update(line)
                place += len(line)
                ids.append(_asked_as(line, path, number))
        if digest.hexdigest() != manifest.get("sha256") or len(set(ids)) != len(ids):
            raise NotWholeError(f"{path} is not, or not yet, the file that its manifest describes")
        parts = (
            Part(f"{name}-p{number:04d}", path, offset, tuple(ids[number * n_part : (number + 1) * n_part]))
            for number, offset in enumerate(offsets)
        )
        return Batch(name, str(manifest.get("model") or ""), first, tuple(parts))

    def put(self, path: Path, data: bytes, by: str, is_allowed: Callable[[], bool] = lambda: True) -> bool:
        """Let a file appear, whole and durable, under a name that nobody has; whether this call did that.

        `is_allowed` is asked once the file stands under its passing name. Whoever takes the permission away sweeps
        passing names after that: so of what was forbidden nothing appears, however long this call slept in between.
        """
        passing = path.with_name(f".{path.name}.{by}.part")
        mode = 0o600 | stat.S_IMODE(path.parent.stat().st_mode) & 0o044
        try:
            with open(os.open(passing, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            is_done = is_allowed() and _linked(passing, path)
        finally:
            passing.unlink(missing_ok=True)
        sync_folder(path.parent)
        return is_done

    def sweep(self, name: str) -> None:
        """Take away what stands under passing names for a part or batch: whoever put it there holds it no more."""
        for passing in self.inbox.glob(f".{name}-*.part"):
            passing.unlink(missing_ok=True)


def _linked(passing: Path, path: Path) -> bool:
    """Give a file its name by the one call that elects; False where the name is taken or the file was swept away."""
    try:
        os.link(passing, path)
    except FileExistsError:
        # NFS may say so of a name that this very call made, when the answer to it was lost.
        return passing.stat().st_nlink == 2
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ESTALE}:
            return False
        raise
    return True


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _asked_as(line: bytes, path: Path, number: int) -> str:
    found = _FIRST_ID.match(line)
    if found is not None:
        return found[1].decode()
    custom_id = (parsed(line) or {}).get("custom_id")
    if not isinstance(custom_id, str):
        raise NotWholeError(f"line {number + 1} of {path} has no custom_id")
    return custom_id
