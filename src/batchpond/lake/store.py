"""The lake on disk: a folder of immutable Parquet files that only ever grows.

Nothing here knows what the rows mean. Names are functions of content, so publishing a fact
twice changes nothing, and a process may die on any line without leaving half a file visible.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from batchpond import ids
from batchpond.clock import Clock, SystemClock, random_hex
from batchpond.errors import LakeError, UsageError, needed
from batchpond.lake import disk
from batchpond.lake.disk import StagedTable, held
from batchpond.lake.schemas import FORMAT_VERSION, TABLES, Table

if TYPE_CHECKING:
    import pyarrow as pa

    from batchpond_remote.mirror import Mirror

MARKER = "batchpond.json"
SECRET = ".secret"
LOCK = ".lock"
TMP = "_tmp"
PAYLOADS = "_payloads"
SPOOL = "_live"
LABELS = "_labels.csv"
CONFIG = "config.toml"
LENS = "batchpond.duckdb"
ADDRESS = ".address"  # says what a folder mirrors
LAKE_ID_LENGTH = 10
_PAYLOAD = ".jsonl"
STALE_SCRATCH_S = 86_400

_NAME = re.compile(rf"(?:{disk.NAMED.pattern}/)*{disk.NAMED.pattern}")


class Store:
    """An open lake."""

    def __init__(
        self, path: Path, lake_id: str, secret: bytes, clock: Clock, mirror: Mirror | None, *, is_outdated: bool
    ) -> None:
        self.is_outdated = is_outdated  # then files may lack columns that came later, until somebody writes
        self.mirror = mirror  # of a lake at an address: machines write to it that share no lock
        self.path = path
        self.lake_id = lake_id
        self.secret = secret
        self.clock = clock
        self.whole: set[str] = set()  # the tables of which no file was missed since the lock was taken last
        self._staged: dict[Path, Table] = {}

    @classmethod
    def init(cls, path: Path, clock: Clock | None = None) -> Store:
        """Make `path` a lake, or open the lake that it is already; raises UsageError for an address of another kind."""
        path, clock, mirror = _place(path, clock)
        with disk_errors(path):
            disk.make_directory(path)
            for name in (TMP, PAYLOADS):
                disk.make_directory(path / name)
            _publish_bytes(path, SECRET, random_hex(32).encode(), mirror)
            lake_id = ids.digest("lake", random_hex(16), length=LAKE_ID_LENGTH)
            _publish_bytes(path, MARKER, _marker(lake_id), mirror)
            os.chmod(path, disk.DIRECTORY_MODE)
        return cls._of(path, clock, mirror)

    @classmethod
    def open(cls, path: Path, clock: Clock | None = None) -> Store:
        """Open a lake; raises UsageError when there is none and LakeError when it cannot be read."""
        return cls._of(*_place(path, clock))

    @classmethod
    def _of(cls, path: Path, clock: Clock, mirror: Mirror | None) -> Store:
        where = mirror.url if mirror else path
        try:
            marker = json.loads((path / MARKER).read_bytes())
            version, lake_id = int(marker["format"]), str(marker["lake_id"])
            secret = (path / SECRET).read_bytes()
        except FileNotFoundError as error:
            if (path / MARKER).exists():
                raise LakeError(
                    f"{where}: the file {error.filename} is missing",
                    hint="restore it from a backup; without it batches in flight cannot be recognised",
                ) from None
            raise UsageError(
                f"{where} is not a lake",
                hint="`--lake` names another folder; `batchpond init` or `batchpond demo` makes one",
            ) from None
        except (ValueError, KeyError, TypeError):
            raise LakeError(f"{where}/{MARKER} is damaged", hint="restore it from a backup") from None
        if version > FORMAT_VERSION:
            raise LakeError(
                f"{where} has lake format {version}; this batchpond reads up to {FORMAT_VERSION}",
                hint="install a newer batchpond; the Parquet files stay readable without it",
            )
        if version < FORMAT_VERSION:
            from batchpond.lake import rewrite

            rewrite.outdated(path)  # there may be none that can be taken on
        return cls(path, lake_id, secret, clock, mirror, is_outdated=version < FORMAT_VERSION)

    def files(self, table: str) -> list[Path]:
        """Return the files that hold a table, each row once, in name order."""
        self._bring(table)
        return held(self.path / TABLES[table].name)

    def published(self, table: str) -> list[str]:
        """Return the paths of all published files of a table, those that a merged one covers included."""
        self._bring(table)
        return sorted(disk.parquet_files(self.path / TABLES[table].name))

    def final_path(self, table: Table, name: str) -> Path:
        """Return where a table's file of that name stands; raises LakeError for an unsafe name."""
        return Path(self._final(table, name))

    def has(self, table: Table, name: str) -> bool:
        """Return whether a table's file of that name is published."""
        return os.path.exists(self._final(table, name))

    def _bring(self, table: str) -> None:
        if self.mirror is not None:
            whole(self.path, [table], self.clock)

    def _final(self, table: Table, name: str) -> str:
        if not _NAME.fullmatch(name) or ".." in name:
            raise LakeError(f"unsafe file name for table {table.name}: {name!r}")
        self._bring(table.name)
        return f"{self.path}/{table.name}/{name}.parquet"

    @contextmanager
    def staging(self, table: Table, metadata: dict[str, str] | None = None) -> Iterator[StagedTable]:
        """Stream rows into a file that `publish_file` can publish after the block."""
        with disk_errors(self.path):
            staged = StagedTable(self.scratch(".parquet"), table, metadata or {})
            try:
                yield staged
                staged.close()
            except BaseException:
                staged.abandon()
                raise
            self._staged[staged.path] = table

    def publish_file(self, table: Table, name: str, staged: Path) -> bool:
        """Publish a staged file under its final name; False when it stood there already."""
        final = self.final_path(table, name)
        with disk_errors(self.path):
            if self._staged.pop(staged, None) is not table:
                raise LakeError(f"{staged}: not the columns of table {table.name}; nothing was published")
            return self.link(staged, final)

    def publish(
        self,
        table: Table,
        name: str,
        rows: pa.Table | Sequence[dict[str, Any]],
        metadata: dict[str, str] | None = None,
    ) -> bool:
        """Publish rows as one file; False when a file of that name stood there already."""
        if self.has(table, name):
            return False
        with self.staging(table, metadata) as staged:
            staged.write(rows)
        return self.publish_file(table, name, staged.path)

    def replace_file(self, table: Table, name: str, staged: Path) -> None:
        """Publish a staged file of a derived table in the place of an earlier one of that name, if any."""
        final = self.final_path(table, name)
        with disk_errors(self.path):
            if not table.is_derived or self._staged.pop(staged, None) is not table:
                raise LakeError(f"{staged}: cannot stand in table {table.name}; nothing was published")
            self.replace(staged, final)

    def link(self, staged: Path, final: Path) -> bool:
        """Give a finished file its final name, at the lake's address first; False if the name was taken."""
        return _link(self.mirror, staged, final)

    def replace(self, staged: Path, final: Path) -> None:
        """Put a finished file in the place of another, at the lake's address first."""
        if self.mirror is not None:
            self.mirror.put(final, staged)
        disk.replace(staged, final)

    def drop(self, path: Path) -> None:
        """Take a published file away, at the lake's address first; raises OSError where the disk does not let us."""
        if self.mirror is not None:
            self.mirror.drop(path)
        path.unlink(missing_ok=True)

    def copy_to(self, address: Path) -> int:
        """Copy the lake to an address that has none, each file read there again; return how many files that are.

        Raises UsageError for any other place, and while live answers or labels wait to be handed in.
        """
        from batchpond.lake import manifest

        with needed("--lake ADDRESS", "cluster"):
            from batchpond_remote.mirror import copy
        with self.lock("export"):
            manifest.take_up(self)
            return copy(self.path, address, self.clock)

    def claim(self, attempt_id: str) -> str | None:
        """Have an attempt's live calls be this machine's; return the host whose they are where that is another.

        Its answers are on that machine alone until they are handed in. Who has a lake in a folder shares its locks.
        """
        return self.mirror.claim(self.path / SPOOL / attempt_id) if self.mirror else None

    def release(self, attempt_id: str, *, is_anyones: bool = False) -> None:
        """Let whichever machine wants to make an attempt's live calls; it was this machine's, or `is_anyones`."""
        if self.mirror:
            self.mirror.release(self.path / SPOOL / attempt_id, is_anyones=is_anyones)

    @property
    def place(self) -> str:
        """Where the lake is, as people call it: its address, or the folder of one that has none."""
        return self.mirror.url if self.mirror else os.fspath(self.path)

    def scratch(self, suffix: str = "") -> Path:
        """Return a fresh path in the lake's staging folder."""
        return self.path / TMP / f"{random_hex(12)}{suffix}"

    def payload_path(self, attempt_id: str) -> Path:
        """Return where an attempt's payload is kept until its answers are verified."""
        return self.path / PAYLOADS / f"{attempt_id}{_PAYLOAD}"

    def payloads(self) -> list[str]:
        """Return the attempts whose payloads are kept now."""
        return [name.removesuffix(_PAYLOAD) for name in os.listdir(self.path / PAYLOADS)]

    @contextmanager
    def lock(self, purpose: str) -> Iterator[None]:
        """Hold the writer lock; raises BusyError when another process does.

        Whatever the disk refuses inside the block is a LakeError: nothing else a writer does raises OSError.
        """
        written = self.mirror.writing(purpose) if self.mirror is not None else nullcontext()
        with disk_errors(self.path), disk.exclusive(self.path / LOCK, purpose, self.clock), written:
            self.whole.clear()
            self._sweep_scratch()
            self._take_on()
            yield

    def _take_on(self) -> None:
        """Make a lake of an earlier format one of the present; the marker is raised last."""
        if not self.is_outdated:
            return
        from batchpond.lake import rewrite

        rewrite.take_on(self, rewrite.outdated(self.path))
        staged = self.scratch(MARKER)
        disk.write_private(staged, _marker(self.lake_id))
        self.replace(staged, self.path / MARKER)
        self.is_outdated = False

    def _sweep_scratch(self) -> None:
        stale_ns = (self.clock.now().timestamp() - STALE_SCRATCH_S) * 1e9
        for entry in os.scandir(self.path / TMP):
            stands = disk.stands(entry.path)
            if stands is None or stands[1] >= stale_ns:
                continue
            if entry.is_dir(follow_symlinks=False):  # what DuckDB spilled before its process was killed
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                Path(entry.path).unlink(missing_ok=True)


def _marker(lake_id: str) -> bytes:
    return json.dumps({"format": FORMAT_VERSION, "lake_id": lake_id}).encode() + b"\n"


def _place(path: Path, clock: Clock | None) -> tuple[Path, Clock, Mirror | None]:
    """Return where a lake is on this machine and, if it is at an address, what keeps the two the same, up to date."""
    path, clock = Path(os.path.abspath(disk.local_folder(path))), clock or SystemClock()
    if not (path / ADDRESS).is_file():
        return path, clock, None
    with needed("--lake ADDRESS", "cluster"), disk_errors(path):
        from batchpond_remote.mirror import Mirror

        mirror = Mirror(path, clock)
        mirror.look()
        return path, clock, mirror


def whole(lake_path: Path, tables: Collection[str], clock: Clock | None = None) -> None:
    """Have all files of these tables on this machine, before they are listed: a mirror brings what it had set aside."""
    if not disk.aside(lake_path).keys().isdisjoint(tables):
        with needed("--lake ADDRESS", "cluster"), disk_errors(lake_path):
            from batchpond_remote.mirror import Mirror

            Mirror(lake_path, clock or SystemClock()).bring(tables)


def _link(mirror: Mirror | None, staged: Path, final: Path) -> bool:
    is_new = mirror is None or mirror.put_new(final, staged)
    return disk.link_into_place(staged, final) and is_new


def _publish_bytes(folder: Path, name: str, data: bytes, mirror: Mirror | None) -> None:
    final = folder / name
    if final.exists():
        return
    staged = folder / TMP / f"{random_hex(12)}{name}"
    disk.write_private(staged, data)
    _link(mirror, staged, final)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Raise what the disk below `path` refuses as a LakeError."""
    try:
        yield
    except (ConnectionError, TimeoutError):
        raise  # a network's or a reader's, not the disk's
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        where = f" ({error.filename})" if error.filename else ""
        raise LakeError(
            f"{path}: {reason}{where}",
            hint="check free space, permissions and the disk; what was published before is intact",
        ) from error


_MEMO_FORMAT: Final = 2


@dataclass(frozen=True, slots=True)
class Memo:
    """What a pass read of a small table, kept so that the next one reads it in one go.

    A pass would otherwise spend most of its time on loading Arrow and opening many small files. A memo is derived: it
    counts only while every file that it was read from stands as it did (name, size, time of change), what it says is
    checked by a digest, and whatever is wrong with it means that the Parquet files are read. It may be deleted.
    `held` are the files that hold the rows, `names` all that were published then, relative to the lake: what is
    published and not named is news. `layout` says what `content` is.
    """

    layout: str
    held: Sequence[str]
    names: Sequence[str]
    content: dict[str, Any]


def recall_memo(store: Store, name: str, layout: str) -> Memo | None:
    """Return what was kept under a name, or None where it cannot be relied on."""
    try:
        digest, _, body = (store.path / name).read_bytes().partition(b"\n")
    except OSError:
        return None
    if digest != _memo_digest(body):
        return None
    kept = orjson.loads(body)
    if kept.get("format") != _MEMO_FORMAT or kept["layout"] != layout:
        return None
    if kept["stands"] != _stands(store, kept["held"]):
        return None
    return Memo(layout, kept["held"], kept["names"], kept["content"])


def keep_memo(store: Store, name: str, memo: Memo) -> None:
    """Keep what was read of a table; the lake's lock is held."""
    stands = _stands(store, memo.held)
    if stands is None:
        return
    said = {name: getattr(memo, name) for name in Memo.__slots__}
    body = orjson.dumps({"format": _MEMO_FORMAT, "stands": stands, **said})
    staged = store.scratch(name)
    disk.write_private(staged, _memo_digest(body) + b"\n" + body)
    disk.replace(staged, store.path / name)


def _stands(store: Store, held: Collection[str]) -> str | None:
    """Return a digest of how the files stand on disk, None where one is gone."""
    seen = hashlib.sha256()
    for name in held:
        if (found := disk.stands(f"{store.path}/{name}")) is None:
            return None
        seen.update(f"{name} {found[0]} {found[1]}\n".encode())
    return seen.hexdigest()


def _memo_digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=32).hexdigest().encode()
