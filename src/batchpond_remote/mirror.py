"""A lake at an address, as this machine has it: a folder with a copy of what is published there.

Names of facts never change, so a mirror is a copy of what is missing. Whatever is published is published there first
and here once it stands there; a process that dies in between leaves what the next pull brings. What the mirror has
and the store lacks was dropped there (it was merged, forgotten or made again), unless the manifests still list it:
then the store has lost it, and gets it back from here.

Payloads, live answers that are not handed in, labels that wait, and the file of views are of this machine alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import orjson

from batchpond import ids
from batchpond.clock import Clock, Work, random_hex
from batchpond.errors import BusyError, LakeError, OvertakenError, UsageError
from batchpond.lake import disk, manifest
from batchpond.lake.schemas import TABLES
from batchpond.lake.store import ADDRESS, CONFIG, LABELS, MARKER, PAYLOADS, SECRET, SPOOL, TMP
from batchpond_remote.bucket import Bucket, checked
from batchpond_remote.lease import Lease, locked

MIRRORS_VARIABLE: Final = "BATCHPOND_MIRRORS"
_TAGS: Final = ".tags"
_PULLING: Final = ".pulling"
_WRITING: Final = ".writing"
_LEASE: Final = ".lease"
_LISTINGS_MAX: Final = 5
_SINGLE: Final = frozenset({MARKER, SECRET, CONFIG})
_SAFE: Final = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.=@+-]*/)+[A-Za-z0-9_][A-Za-z0-9_.=@+-]*")
_AT_ONCE: Final = 8
_PULL_WAIT_S: Final = 600.0


def folder_of(url: str) -> Path:
    """Return the folder that mirrors an address on this machine; it is made, and nothing is brought yet."""
    url = checked(url)
    base = os.environ.get(MIRRORS_VARIABLE) or Path.home() / ".local" / "share" / "batchpond" / "mirrors"
    words = re.sub(r"[^A-Za-z0-9]+", "-", url).strip("-")[-60:]
    folder = Path(base).absolute() / f"{words}-{ids.digest('mirror', url, length=8)}"
    for name in (TMP, PAYLOADS):
        disk.make_directory(folder / name)
    if not (folder / ADDRESS).exists():
        staged = folder / TMP / random_hex(12)
        disk.write_private(staged, f"{url}\n".encode())
        disk.link_into_place(staged, folder / ADDRESS)
    return folder


class Mirror:
    """A folder that mirrors an address."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path, self._clock = path, clock
        self.url = (path / ADDRESS).read_text("utf-8").strip()
        self.bucket = Bucket(self.url, clock)
        self._lease = Lease(self.bucket, clock, path / _LEASE)
        self._tags: dict[str, str] = {}

    def look(self) -> None:
        """Bring what is new, after whoever brings it now, unless a process of this machine writes: that has it all."""
        with self._alone(_PULLING), locked(self.path / _WRITING, self._clock, 0.0) as is_quiet:
            if is_quiet:
                self._pull()

    @contextmanager
    def writing(self, purpose: str) -> Iterator[None]:
        """Hold the right to write, with all that is there brought; the folder's own lock is held."""
        with self._alone(_WRITING), self._lease.held(purpose):
            with self._alone(_PULLING):
                self._pull()
            try:
                yield
            finally:
                self._keep_tags()

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        with locked(self.path / name, self._clock, _PULL_WAIT_S) as is_mine:
            if not is_mine:
                raise BusyError(f"another process brings what is new at {self.url}", hint="come back when it is done")
            yield

    def put_new(self, path: Path, staged: Path) -> bool:
        """Publish a staged file under a name that nobody has; what stands there afterwards is in `staged`."""
        self._lease.check()
        name, data = self._name(path), staged.read_bytes()
        is_mine, tag = self.bucket.put_new(name, data)
        if not is_mine and not self.bucket.fetch(name, staged):
            raise OvertakenError(f"{self.url}/{name} was taken, and is gone", hint="run the command again")
        if not is_mine:
            disk.sync(staged)
        self._tags[name] = tag
        return is_mine

    def put(self, path: Path, staged: Path) -> None:
        """Publish a staged file in the place of another, if any."""
        self._lease.check()
        name = self._name(path)
        self._tags[name] = self.bucket.put(name, staged.read_bytes())

    def drop(self, path: Path) -> None:
        """Take what is published away."""
        self._lease.check()
        name = self._name(path)
        self.bucket.drop(name)
        self._tags.pop(name, None)

    def _name(self, path: Path) -> str:
        return path.relative_to(self.path).as_posix()

    def _pull(self) -> None:
        self._tags = self._kept_tags()
        for _ in range(_LISTINGS_MAX):
            there = {name: tag for name, tag in self.bucket.tags().items() if is_part(name)}
            if MARKER not in there and self._stands(MARKER):
                raise LakeError(
                    f"there is no lake at {self.url} any more",
                    hint=f"its mirror is {self.path}: `batchpond --lake {self.path} export` writes what it holds",
                )
            if MARKER not in there or self._bring_all(there):
                break  # else something was merged or dropped since it was listed: what stands in its place is not here
        if MARKER in there:
            self._settle(there)
            self._keep_tags()

    def _bring_all(self, there: Mapping[str, str]) -> bool:
        """Bring what is not here as it stands there, what makes it whole last; whether all of it was still there."""
        new = [name for name, tag in there.items() if self._tags.get(name) != tag or not self._stands(name)]
        new.sort(key=lambda name: (name == MARKER, name.startswith(manifest.FOLDER), name))
        what = f"bringing what is new at {self.url}"
        with Work(what, "files", len(new)) as work, ThreadPoolExecutor(_AT_ONCE) as pool:
            for name, is_there in zip(new, pool.map(self._bring, new), strict=True):
                if is_there:
                    self._tags[name] = there[name]
                work.add()
        return all(map(self._stands, new))

    def _bring(self, name: str) -> bool:
        staged = self._scratch()
        try:
            if not self.bucket.fetch(name, staged):
                return False  # it was dropped since it was listed
            if name == MARKER and self._stands(name):
                self._check_marker(staged)
            os.chmod(staged, disk.FILE_MODE)
            disk.sync(staged)
            disk.replace(staged, self.path / name)
        finally:
            staged.unlink(missing_ok=True)
        return True

    def _check_marker(self, staged: Path) -> None:
        here, there = (orjson.loads(path.read_bytes())["lake_id"] for path in (self.path / MARKER, staged))
        if here != there:
            raise LakeError(
                f"{self.url} holds another lake than its mirror {self.path} is of",
                hint="move that folder away: what it holds of this machine alone is in _live and _labels.csv",
            )

    def _settle(self, there: Collection[str]) -> None:
        """Drop what is here alone, but for what the lists of files still name: the store has lost it.

        Who may write gives it back. Others may have listed while it was being forgotten.
        """
        for path in (self.path / manifest.FOLDER).glob("*.jsonl"):
            if self._name(path) not in there:
                disk.drop(path)
        here = [path for table in TABLES for path in disk.parquet_files(self.path / table)]
        alone = {*disk.relative(self.path, here)} - {*there}
        if not alone:
            return
        covered = (covered for path in filter(disk.is_merged, here) for covered in disk.merged_paths(path))
        listed = manifest.load(self.path).entries.keys() - {*disk.relative(self.path, covered)}
        for name in sorted(alone):
            if name not in listed:
                disk.drop(self.path / name)
                self._tags.pop(name, None)
            elif self._lease.is_held:
                self._tags[name] = self.bucket.put_new(name, (self.path / name).read_bytes())[1]

    def _stands(self, name: str) -> bool:
        return os.path.exists(f"{self.path}/{name}")

    def _scratch(self) -> Path:
        return self.path / TMP / f"{random_hex(12)}.mirror"

    def _kept_tags(self) -> dict[str, str]:
        with suppress(OSError, ValueError):
            found: dict[str, str] = orjson.loads((self.path / _TAGS).read_bytes())
            return found
        return {}

    def _keep_tags(self) -> None:
        staged = self._scratch()
        disk.write_private(staged, orjson.dumps(self._tags))
        disk.replace(staged, self.path / _TAGS)


def is_part(name: str) -> bool:
    """Whether an object is part of a lake: whatever else stands in a bucket is nobody's business here."""
    if name in _SINGLE:
        return True
    first, _, rest = name.partition("/")
    suffix = ".jsonl" if first == manifest.FOLDER else ".parquet"
    is_named_so = first in {*TABLES, manifest.FOLDER} and name.endswith(suffix)
    return bool(rest) and is_named_so and _SAFE.fullmatch(name) is not None


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
    there = {*filter(is_part, mirror.bucket.tags())}
    if MARKER in there:
        raise UsageError(f"there is a lake at {mirror.url}", hint="give another address")
    names = [name for name in disk.relative(lake_path, map(str, lake_path.rglob("*"))) if is_part(name)]
    names.sort(key=lambda name: (name == MARKER, name))
    for name in there.difference(names):
        mirror.bucket.drop(name)  # of a copy that was not finished
    with Work(f"copying to {mirror.url}", "files", len(names)) as work:
        for name in names:
            mirror.bucket.put(name, (lake_path / name).read_bytes())
            work.add()
    mirror.look()
    for name in names:
        if disk.sha256(lake_path / name) != disk.sha256(folder / name):
            raise LakeError(
                f"{mirror.url}/{name} is not what was copied", hint="delete what is there, and copy it again"
            )
    return len(names)
