"""A lake at an address, as this machine has it: a folder with a copy of what is published there.

Whatever is published is published there first and here once it stands there; a process that dies in between leaves
what the next pull brings.

Payloads, live answers that are not handed in, labels that wait, and the file of views are of this machine alone.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import orjson

from batchpond import ids
from batchpond.clock import Clock, Work, random_hex
from batchpond.errors import LakeError, OvertakenError, UsageError
from batchpond.lake import disk
from batchpond.lake.schemas import LARGE, TABLES
from batchpond.lake.store import ADDRESS, LABELS, MARKER, PAYLOADS, SPOOL, TMP
from batchpond.text import plural
from batchpond_remote.bucket import Bucket, checked
from batchpond_remote.lease import Lease, locked
from batchpond_remote.pull import Pull, busy, is_part

MIRRORS_VARIABLE: Final = "BATCHPOND_MIRRORS"
_PULLING: Final = ".pulling"
_WRITING: Final = ".writing"
_LEASE: Final = ".lease"
_MACHINE: Final = ".machine"
_AGAIN_S: Final = 0.05
_PULL_WAIT_S: Final = 600.0


def folder_of(url: str) -> Path:
    """Return the folder that mirrors an address on this machine; it is made, and nothing is brought yet."""
    url = checked(url)
    folder = kept_at(url)
    for name in (TMP, PAYLOADS):
        disk.make_directory(folder / name)
    if not (folder / ADDRESS).exists():
        staged = folder / TMP / random_hex(12)
        disk.write_private(staged, f"{url}\n".encode())
        disk.link_into_place(staged, folder / ADDRESS)
    return folder


def kept_at(words: str) -> Path:
    """Return where this machine keeps what is at an address, under a name that says what."""
    base = os.environ.get(MIRRORS_VARIABLE) or Path.home() / ".local" / "share" / "batchpond" / "mirrors"
    told = re.sub(r"[^A-Za-z0-9]+", "-", words).strip("-")[-60:]
    return Path(base).absolute() / f"{told}-{ids.digest('mirror', words, length=8)}"


class Mirror:
    """A folder that mirrors an address."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path, self._clock = path, clock
        self.url = (path / ADDRESS).read_text("utf-8").strip()
        self.bucket = Bucket(self.url, clock)
        self._lease = Lease(self.bucket, clock, path / _LEASE)
        self._pull = Pull(path, self.bucket)

    def look(self, wanted: Collection[str] = ()) -> None:
        """Bring what is new, after whoever brings it now, unless a process of this machine writes: that has it all.

        Large tables come where they are `wanted`, or came before.
        """
        with self._alone(_PULLING), locked(self.path / _WRITING, self._clock, 0.0) as is_quiet:
            if is_quiet:
                self._pull.run(wanted, may_write=False)

    def bring(self, tables: Collection[str]) -> None:
        """Have these tables here; raises BusyError where whoever writes on this machine does not get there."""
        until_s = self._clock.monotonic_s() + _PULL_WAIT_S
        while not disk.aside(self.path).keys().isdisjoint(tables):
            if self._clock.monotonic_s() > until_s:
                raise busy(self.url)
            self.look(tables)
            self._clock.sleep(_AGAIN_S)

    def told(self) -> str:
        """Say how much of the lake is on this machine, and how much is not."""
        sizes = [os.path.getsize(path) for table in TABLES for path in disk.parquet_files(self.path / table)]
        aside = [f"{table} ({_amount(*found)})" for table, found in sorted(disk.aside(self.path).items())]
        text = f"{self.url} is mirrored in {self.path} ({_amount(len(sizes), sum(sizes))})"
        return f"{text} but for {' and '.join(aside)}, until something reads them" if aside else text

    def left(self) -> dict[str, list[str]]:
        """Return by table what stands at the store alone."""
        return {table: sorted(filter(is_part, self.bucket.objects(table))) for table in disk.aside(self.path)}

    @contextmanager
    def writing(self, purpose: str) -> Iterator[None]:
        """Hold the right to write, with all that is there brought; the folder's own lock is held."""
        with self._alone(_WRITING), self._lease.held(purpose):
            with self._alone(_PULLING):
                self._pull.run(LARGE, may_write=True)
            try:
                yield
            finally:
                self._pull.keep_tags()

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        with locked(self.path / name, self._clock, _PULL_WAIT_S) as is_mine:
            if not is_mine:
                raise busy(self.url)
            yield

    def put_new(self, path: Path, staged: Path) -> bool:
        """Publish a staged file under a name that nobody has; what stands there afterwards is in `staged`."""
        name, data = self._own_name(path), staged.read_bytes()
        is_mine, tag = self.bucket.put_new(name, data)
        if not is_mine and not self.bucket.fetch(name, staged):
            raise OvertakenError(f"{self.url}/{name} was taken, and is gone", hint="run the command again")
        if not is_mine:
            disk.sync(staged)
        self._pull.tags[name] = tag
        return is_mine

    def put(self, path: Path, staged: Path) -> None:
        """Publish a staged file in the place of another, if any."""
        name = self._own_name(path)
        self._pull.tags[name] = self.bucket.put(name, staged)

    def drop(self, path: Path) -> None:
        """Take what is published away."""
        name = self._own_name(path)
        self.bucket.drop(name)
        self._pull.tags.pop(name, None)

    def claim(self, path: Path) -> str | None:
        """Have a name be this machine's, by put if absent; return the host that has it where that is another."""
        name, said = self._own_name(path), self._machine()
        if self.bucket.put_new(name, said)[0]:
            return None
        return str(orjson.loads(self.bucket.get(name) or b"{}").get("host", "another machine"))

    def release(self, path: Path, *, is_anyones: bool = False) -> None:
        """Let a name go that is this machine's, or whosever it is."""
        name = self._own_name(path)
        if is_anyones or self.bucket.get(name) == self._machine():
            self.bucket.drop(name)

    def _machine(self) -> bytes:
        """Return what says that something is this machine's: the same for as long as this folder stands."""
        path = self.path / _MACHINE
        if not path.exists():
            staged = self.path / TMP / random_hex(12)
            disk.write_private(staged, orjson.dumps({"host": socket.gethostname(), "mirror": random_hex(16)}))
            disk.link_into_place(staged, path)
        return path.read_bytes()

    def _own_name(self, path: Path) -> str:
        self._lease.check()
        return path.relative_to(self.path).as_posix()


def _amount(n_files: int, size_bytes: int) -> str:
    return f"{plural(n_files, 'file')}, {size_bytes / 1e6:,.1f} MB"


def copy(lake_path: Path, address: Path, clock: Clock) -> int:
    """Copy a lake to an address, the marker that makes it one last, and read it there; return how many files it has.

    The lake's lock is held. Raises UsageError for a place that is no address or has a lake, and while something waits
    on this machine alone; LakeError for a file that came back otherwise.
    """
    folder = disk.local_folder(address)
    if folder == address:
        raise UsageError(f"{address} is no address of a bucket", hint="`cp -a` copies a lake to another folder")
    waiting = [path for path in (*(lake_path / SPOOL).rglob("*.*"), lake_path / LABELS) if path.is_file()]
    if waiting:
        raise UsageError(f"{waiting[0]} is of this machine alone", hint="`batchpond sync`, or `browse`, hands it in")
    mirror = Mirror(folder, clock)
    there = {*filter(is_part, mirror.bucket.objects())}
    if MARKER in there:
        raise UsageError(f"there is a lake at {mirror.url}", hint="give another address")
    names = [name for name in disk.relative(lake_path, map(str, lake_path.rglob("*"))) if is_part(name)]
    names.sort(key=lambda name: (name == MARKER, name))
    for name in there.difference(names):
        mirror.bucket.drop(name)  # of a copy that was not finished
    with Work(f"copying to {mirror.url}", "files", len(names)) as work:
        for name in names:
            mirror.bucket.put(name, lake_path / name)
            work.add()
    mirror.look(LARGE)
    for name in names:
        if disk.sha256(lake_path / name) != disk.sha256(folder / name):
            raise LakeError(
                f"{mirror.url}/{name} is not what was copied", hint="delete what is there, and copy it again"
            )
    return len(names)
