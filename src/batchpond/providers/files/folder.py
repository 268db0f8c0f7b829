"""The folder of mode `files`: where it is, and putting requests into its outbox, durable, private and whole.

A file is staged in the outbox itself, under a name with a dot that no worker looks for, and linked to the name
that one does: no link crosses file systems, and nobody sees half a file.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from batchpond import ids
from batchpond.errors import ProviderError, UsageError
from batchpond.lake import disk
from batchpond.model import RemoteFile
from batchpond.providers.files import inbox as common_inbox

FOLDER_ENV: Final = "BATCHPOND_FILES"
HOST_MARK: Final = "files:"
OUTBOX, INBOX = "outbox", "inbox"
TOKEN: Final = re.compile(rf"{ids.TOKEN_PREFIX}-[a-z2-7]+-([a-z2-7]{{26}})-[a-z2-7]{{8}}")


@dataclass(frozen=True, slots=True)
class Folder:
    """Where files are exchanged; `host` is what attempts remember of it.

    A folder inside the lake is made when needed, and remembered by its place there, so that the lake can be
    moved. Any other must exist: making it where a disk is not mounted would hide files under the mount.
    """

    path: Path
    host: str
    is_in_lake: bool

    @classmethod
    def of(cls, path: Path, lake: Path | None = None) -> Folder:
        """Return the folder at a path, which need not exist yet."""
        absolute = Path(os.path.abspath(path))
        lake = None if lake is None else Path(os.path.abspath(lake))
        if lake is not None and absolute.is_relative_to(lake):
            return cls(absolute, f"{HOST_MARK}./{absolute.relative_to(lake).as_posix()}", is_in_lake=True)
        return cls(absolute, f"{HOST_MARK}{absolute}", is_in_lake=False)

    @property
    def outbox(self) -> Path:
        """Where requests appear."""
        return self.path / OUTBOX

    @property
    def inbox(self) -> Path:
        """Where results belong."""
        return self.path / INBOX

    def strays(self, known: Mapping[str, frozenset[str] | None]) -> list[str]:
        """Return the result files in `inbox` that nobody will read, by name.

        `known` has the batches by token, each with the files that were read of it; None while it
        is open, since it reads whatever comes.
        """
        if not (os.path.isdir(self.inbox) and os.access(self.inbox, os.R_OK | os.X_OK)):
            return []
        names = sorted(name for name in os.listdir(self.inbox) if not name.startswith("."))
        return [name for name in names if name.endswith((".jsonl", ".jsonl.gz")) and _is_stray(name, known)]


def _is_stray(name: str, known: Mapping[str, frozenset[str] | None]) -> bool:
    token = TOKEN.match(name)
    if token is None:
        return True
    if token.group() not in known:  # another lake may use the same folder
        return False
    read = known[token.group()]
    return (read is not None and name not in read) or not common_inbox.is_named(name, token.group())


def folder(environ: Mapping[str, str], lake: Path | None) -> Folder:
    """Return the folder that the environment names, else the lake's own; raises UsageError for none."""
    named = environ.get(FOLDER_ENV, "").strip()
    if not named and lake is None:
        raise UsageError("no folder for request and result files", hint=f"set {FOLDER_ENV}")
    return Folder.of(Path(named).expanduser() if named else Path(lake or "") / "files", lake)


class Outbox:
    """The side of a folder where requests appear."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def make(self) -> None:
        """Make both sides of the folder; raises FileNotFoundError for a folder outside the lake that is not there."""
        if not self._folder.is_in_lake:
            os.stat(self._folder.path)
        for side in (self._folder.outbox, self._folder.inbox):
            disk.make_directory(side)

    def record(self, token: str) -> Path:
        """Return the file that is a batch: it exists from the creation on."""
        return self._hidden(token, "batch")

    def tokens(self) -> list[str]:
        """Return the batches that exist."""
        names = (name[1:].rpartition(".") for name in sorted(os.listdir(self._folder.outbox)) if name[0] == ".")
        return [token for token, _, kind in names if kind == "batch" and TOKEN.fullmatch(token)]

    def requests(self, filename: str) -> RemoteFile | None:
        """Return the requests of that name, hidden before their batch exists, visible after."""
        path = self._requests(filename)
        return None if path is None else RemoteFile(filename, filename, path.stat().st_size)

    def stage(self, payload: Path, filename: str) -> None:
        """Put requests into the outbox, hidden; raises ProviderError for other content of that name."""
        known = self._requests(filename)
        if known is not None:
            _check_same(known, payload)
            return
        with payload.open("rb") as source, self._published(self._staged(filename)) as out:
            shutil.copyfileobj(source, out)

    def announce(self, token: str, manifest: bytes) -> None:
        """Put a batch's manifest into the outbox, hidden."""
        with self._published(self._hidden(token, "manifest")) as out:
            out.write(manifest)

    def commit(self, token: str, manifest: bytes) -> None:
        """Make the batch: from here on it exists, whoever dies."""
        with self._published(self.record(token)) as out:
            out.write(manifest)

    def show(self, token: str) -> None:
        """Show a batch's requests, and after them the manifest, unless that was done: they may be tidied away."""
        manifest = self._hidden(token, "manifest")
        if not manifest.exists():
            return
        requests = self._staged(f"{token}.jsonl")
        if requests.exists():
            _show(requests, self._folder.outbox / f"{token}.jsonl")
        _show(manifest, self._folder.outbox / f"{token}.manifest.json")

    def is_cancelled(self, token: str) -> bool:
        """Whether somebody ended a batch."""
        return self._cancelled(token).exists()

    def cancel(self, token: str) -> None:
        """End a batch, for workers to see."""
        if not self.is_cancelled(token):
            disk.write_private(self._cancelled(token), b"")
            disk.sync_directory(self._folder.outbox)

    def _cancelled(self, token: str) -> Path:
        return self._folder.outbox / f"{token}.cancelled"

    def _hidden(self, token: str, kind: str) -> Path:
        return self._folder.outbox / f".{token}.{kind}"

    def _staged(self, filename: str) -> Path:
        return self._hidden(filename.removesuffix(".jsonl"), "requests")

    def _requests(self, filename: str) -> Path | None:
        paths = (self._staged(filename), self._folder.outbox / filename)
        return next((path for path in paths if path.exists()), None)

    @contextmanager
    def _published(self, final: Path) -> Iterator[IO[bytes]]:
        """Open a file that appears under its name once it is whole and durable; one that is there stays.

        It is as private as the outbox: readable by whom that lets in.
        """
        part = final.with_name(f"{final.name}.part")
        disk.drop(part)
        mode = disk.FILE_MODE | stat.S_IMODE(final.parent.stat().st_mode) & 0o044
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        try:
            with os.fdopen(descriptor, "wb") as out:
                os.fchmod(descriptor, mode)
                yield out
                out.flush()
                os.fsync(descriptor)
        except OSError:
            disk.drop(part)
            raise
        disk.link_into_place(part, final)


def _show(hidden: Path, visible: Path) -> None:
    if visible.exists():
        _check_same(visible, hidden)
    disk.link_into_place(hidden, visible)


def _check_same(path: Path, wanted: Path) -> None:
    if sha256(path) != sha256(wanted):
        raise ProviderError(f"{path} is there with other content: move that file away")


def sha256(path: Path) -> str:
    """Return the digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
