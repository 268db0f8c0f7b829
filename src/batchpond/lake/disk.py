"""Durable, private file operations, the primitives every publish is made of, and one writer per lake, by `flock`.

Then the Parquet files of a lake: how one is written and read, and which of a table's files hold each row once.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import socket
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import orjson

from batchpond.clock import Clock, SystemClock, random_hex
from batchpond.errors import BusyError, LakeError, UsageError, needed
from batchpond.lake.schemas import FORMAT_VERSION, Table
from batchpond.text import address

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from batchpond_remote.bucket import Place

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
DEPTH_MAX = 6
MERGED_PREFIX: Final = "c-"
MERGED_KEY: Final = "merged"
# Columns whose values hardly repeat: a dictionary would only cost time.
_PLAIN_COLUMNS = frozenset(
    {"body", "line", "line_bytes", "text", "thoughts", "detail", "request_id", "request_key", "custom_id", "metadata",
     "event_id", "provider_request_id", "line_number", "slot", "import_key", "explanation", "item_hash", "item_id"}
)  # fmt: skip
_SMALL_ROWS: Final = 64
CACHED_MAX: Final = 8
"""How many of one kind are kept beside a person's other caches."""
_CACHED_BYTES_MAX: Final = 64 << 20


def local_folder(path: Path) -> Path:
    """Return where a lake is on this machine: of one at `s3://...` and the like, its mirror."""
    if url := address(path):
        with needed("--lake ADDRESS", "cluster"):
            from batchpond_remote.mirror import folder_of
        return folder_of(url)
    return path


ASIDE: Final = ".aside"


def aside(lake_path: Path) -> dict[str, list[int]]:
    """Return the large tables that a mirror has nothing of, though there is: how many files, of how many bytes."""
    with suppress(FileNotFoundError):
        found: dict[str, list[int]] = orjson.loads((lake_path / ASIDE).read_bytes())
        return found
    return {}


def make_directory(path: Path) -> None:
    """Create a private directory and its missing parents, each durable in its own parent."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        try:
            folder.mkdir(mode=DIRECTORY_MODE)
        except FileExistsError:
            continue
        sync(folder.parent)


def sync(path: Path) -> None:
    """Make a file's bytes durable, or the names in a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_new(path: str | Path, flags: int = os.O_WRONLY | os.O_CREAT | os.O_EXCL) -> int:
    """Open a private file that is not there yet, as `opener` of `open` too; raises FileExistsError."""
    return os.open(path, flags | os.O_NOFOLLOW, FILE_MODE)


def write_private(path: Path, data: bytes) -> None:
    """Write a new private file durably, or leave none; raises FileExistsError."""
    descriptor = open_new(path)
    try:
        write_whole(descriptor, data)
        os.fsync(descriptor)
    except OSError:
        drop(path)
        raise
    finally:
        os.close(descriptor)


def write_whole(descriptor: int, data: bytes) -> None:
    """Write all of it, however little the system takes at once."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def drop(path: Path) -> None:
    """Remove a file that nobody wants any more, if the disk lets us; what stays is swept later."""
    with suppress(OSError):
        path.unlink()


def link_into_place(staged: Path, final: Path) -> bool:
    """Give a finished file its final name and drop the staged one; False if the name was taken.

    `staged` must already be fsynced; it is gone afterwards, whatever happens.
    """
    is_new = True
    try:
        make_directory(final.parent)
        os.link(staged, final)
    except FileExistsError:
        is_new = False
    except OSError:
        drop(staged)
        raise
    staged.unlink()
    sync(final.parent)
    return is_new


def replace(staged: Path, final: Path) -> None:
    """Put a finished file in the place of another, durably; `staged` is gone afterwards, whatever happens."""
    try:
        make_directory(final.parent)
        os.replace(staged, final)
    except OSError:
        drop(staged)
        raise
    sync(final.parent)


NAMED: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=@+-]*")
"""What files of a lake are named like: no other is published."""
# By Syncthing, git-annex and OneDrive; other tools put a blank in the name.
_COPY: Final = re.compile(r"(?:\.sync-conflict-[0-9A-Z-]+|\.variant-[0-9a-f]+|-(?:DESKTOP|LAPTOP)-[A-Z0-9]+)\.parquet$")


def is_strange(path: str) -> bool:
    """Whether no file or folder of a lake's tables is named so, whatever it holds."""
    name = path.rpartition("/")[2]
    return NAMED.fullmatch(name) is None or _COPY.search(name) is not None


def parquet_files(folder: str | Path, depth: int = DEPTH_MAX, strange: list[str] | None = None) -> Iterator[str]:
    """Yield the paths of the Parquet files below a folder, never following a symbolic link.

    What is named as no file of a lake is, as tools that synchronise folders name copies, is left out: its rows would
    count twice. `strange` takes what was left out. As text: a folder may hold tens of thousands of files that nobody
    needs a Path of.
    """
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        is_table, is_folder = entry.name.endswith(".parquet"), entry.is_dir(follow_symlinks=False)
        if is_strange(entry.name) or (is_table and entry.is_symlink()):
            if strange is not None and (is_table or is_folder):
                strange.append(entry.path)
        elif is_table and not is_folder:
            yield entry.path
        elif depth > 0 and is_folder:
            yield from parquet_files(entry.path, depth - 1, strange)


def relative(lake_path: Path, paths: Iterable[str]) -> list[str]:
    """Return paths of a lake as manifests and memos name them."""
    prefix = f"{lake_path}/"
    return [path.removeprefix(prefix) for path in paths]


_HOLDER_BYTES_MAX = 4096
LOCK_RETRY_S: Final = 0.1


@contextmanager
def exclusive(path: Path, purpose: str, clock: Clock) -> Iterator[None]:
    """Hold the lake's writer lock; raises BusyError that names the holder.

    The text in the file is for that message only: the lock is the kernel's, so a stale text
    or a reused process id never blocks anyone.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
    stood = os.fstat(descriptor)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(
                f"another process is writing to this lake: {_holder(descriptor)}",
                hint="run the command again when it is done; nothing was changed",
            ) from None
        note = {"pid": os.getpid(), "host": socket.gethostname(), "purpose": purpose}
        note["since"] = clock.now().isoformat(timespec="seconds")
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(note).encode(), 0)
        try:
            yield
        finally:
            # An idle lake holds no trace of who wrote last, so that a pass without news changes no byte and no time.
            os.ftruncate(descriptor, 0)
            os.utime(descriptor, ns=(stood.st_atime_ns, stood.st_mtime_ns))
    finally:
        os.close(descriptor)


@contextmanager
def waited_for(lock: Callable[[], AbstractContextManager[None]], clock: Clock, wait_s: float) -> Iterator[None]:
    """Hold a lock; raises BusyError when another process has it longer than `wait_s`."""
    until_s = clock.monotonic_s() + wait_s
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(lock())
                break
            except BusyError:
                if clock.monotonic_s() >= until_s:
                    raise
                clock.sleep(LOCK_RETRY_S)
        yield


def claim(path: Path) -> AbstractContextManager[object] | None:
    """Have a file to oneself until the context ends; None where another process of this machine has it.

    Of what is not there nobody can tell.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return nullcontext()
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def _holder(descriptor: int) -> str:
    try:
        note = json.loads(os.pread(descriptor, _HOLDER_BYTES_MAX, 0))
        return f"{note['purpose']} (process {note['pid']} on {note['host']}, since {note['since']})"
    except (ValueError, KeyError, TypeError):
        return "holder unknown"


class StagedTable:
    """A Parquet file being written outside the tables, row batch by row batch."""

    def __init__(self, path: Path, table: Table, metadata: dict[str, str]) -> None:
        self.path = path
        self.table = table
        self.n_rows = 0
        self._metadata = {"lake_format": str(FORMAT_VERSION), **metadata}
        self._file = open(path, "xb", opener=open_new)  # noqa: SIM115  # closed with the table
        self._writer: pq.ParquetWriter | None = None

    def _begun(self, n_rows: int) -> pq.ParquetWriter:
        """Return the writer, made for a first batch of so many rows: a few short ones gain nothing by being packed."""
        if self._writer is None:
            import pyarrow.parquet as pq  # a pass that publishes nothing has no use for it

            is_small = 0 < n_rows <= _SMALL_ROWS and not self.table.has_text
            names = () if is_small else self.table.schema.names
            self._writer = pq.ParquetWriter(
                self._file,
                self.table.schema.with_metadata(self._metadata),
                compression="none" if is_small else "zstd",
                compression_level=None if is_small else 3,
                use_dictionary=[name for name in names if name not in _PLAIN_COLUMNS],
                write_statistics=[name for name in self.table.schema.names if name not in {"content", "config"}],
                data_page_version="1.0",
                write_page_checksum=True,
            )
        return self._writer

    def write(self, rows: pa.Table | Sequence[dict[str, Any]]) -> None:
        """Append rows; raises LakeError when they do not have exactly the table's columns."""
        import pyarrow as pa

        if not isinstance(rows, pa.Table):
            rows = pa.Table.from_pylist(list(rows), schema=self.table.schema)
        if not rows.schema.equals(self.table.schema):
            raise LakeError(
                f"rows for table {self.table.name} do not have its columns: {rows.schema.names}",
                hint="this is a defect in batchpond; nothing was published",
            )
        self._begun(rows.num_rows).write_table(rows, row_group_size=self.table.row_group_rows)
        self.n_rows += rows.num_rows

    def close(self) -> None:
        """Finish the file and make it durable."""
        self._begun(0).close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def abandon(self) -> None:
        """Give the file up; on a full disk its room is wanted now, not when old scratch is swept."""
        if self._writer is not None:
            self._writer.is_open = False  # or it would finish the file, which is closed, once it is collected
        with suppress(OSError):
            self._file.close()
        drop(self.path)


@contextmanager
def intact(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file whose pages are held against their checksums as they are read.

    Raises LakeError where its bytes are not those that were written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            yield file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        is_of_the_system = isinstance(error, OSError) and error.errno is not None
        if is_of_the_system or isinstance(error, MemoryError):
            raise  # of a file that is not there or may not be read, or of this machine: not of its bytes
        raise LakeError(
            f"{path}: its bytes are not those that were written: {str(error).splitlines()[0]}",
            hint="`batchpond doctor --deep` names each damaged file, and what to do about it",
        ) from error


def read_through(path: Path) -> int:
    """Read all of a Parquet file, its pages held against their checksums, and return how many rows it has.

    Raises LakeError for a file whose bytes are not those that were written.
    """
    n_rows = 0
    with intact(path) as file:
        for number in range(file.num_row_groups):
            n_rows += file.read_row_group(number).num_rows
    return n_rows


def sha256(path: Path) -> str:
    """Return the digest of all bytes of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def stands(path: str) -> tuple[int, int] | None:
    """Return a file's size and when it was changed; None where it is not there."""
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return seen.st_size, seen.st_mtime_ns


def read_rows(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Return a published file's rows, or some columns of them; raises LakeError as `intact` does.

    Not by way of pyarrow's datasets, whose import takes longer than an idle pass may.
    """
    with intact(path) as file:
        return file.read(columns=columns, use_threads=False)


def held(folder: Path) -> list[Path]:
    """Return the files of a table's folder that hold each row once: without those that a merged one covers."""
    return [Path(path) for path in standing(list(parquet_files(folder)))]


def standing(paths: Collection[str]) -> list[str]:
    """Return those of a table's files that no other one of them covers, in name order."""
    covered = {name for path in paths if is_merged(path) for name in merged_paths(path)}
    return sorted(set(paths) - covered)


def is_merged(path: str) -> bool:
    """Whether a file holds the rows of others."""
    return path.rpartition("/")[2].startswith(MERGED_PREFIX)


def merged_paths(path: str) -> list[str]:
    """Return where the files stood whose rows a merged file holds; none where it cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_schema(path).metadata or {}
    except (pa.ArrowException, OSError):
        return []  # it covers nothing then; whoever reads it says what is wrong
    folder = os.path.dirname(path)
    return [f"{folder}/{name}" for name in orjson.loads(metadata.get(MERGED_KEY.encode(), b"[]"))]


def cached(kind: str, name: str) -> bytes | None:
    """Return what was worked out once for all of a person's lakes, beside other caches; to lose it costs time alone.

    None for nothing, and for what others could have written.
    """
    with suppress(OSError, RuntimeError):
        path = _cache_folder() / f"{kind}-{name}"
        found = path.lstat()
        is_own = stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
        if is_own and 0 < found.st_size <= _CACHED_BYTES_MAX:
            return path.read_bytes()
    return None


def cache(kind: str, name: str, content: bytes, most: int = CACHED_MAX) -> None:
    """Have something `cached`, if that is possible, and drop the oldest of more than `most` of its kind."""
    with suppress(OSError, RuntimeError):
        folder = _cache_folder()
        staged = folder / f".{random_hex(8)}"
        make_directory(folder)
        write_private(staged, content)
        replace(staged, folder / f"{kind}-{name}")
        kept = sorted(folder.glob(f"{kind}-*"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in kept[most:]:
            drop(path)


def _cache_folder() -> Path:
    """Return where it is; raises RuntimeError for who has no home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "batchpond"


@contextmanager
def placed(path: Path, *, force: bool) -> Iterator[Path]:
    """Yield an empty file that becomes `path` after the block, here or at an address; raises UsageError if one is."""
    with destined(path, force=force) as final:
        if not force:
            refuse_existing(final)
        staged = final.with_name(f".{final.name[:80]}.{random_hex(6)}.part")
        write_private(staged, b"")
        try:
            yield staged
            sync(staged)
            if force:
                replace(staged, final)
            elif not link_into_place(staged, final):
                refuse_existing(final)
        finally:
            staged.unlink(missing_ok=True)


@contextmanager
def destined(path: Path, *, force: bool) -> Iterator[Path]:
    """Yield where to write a file, or a folder of files: at `path` or, for an address, where they wait for the end.

    Of what goes to an address nothing is there before the block is over, and each file appears whole. Raises UsageError
    where anything is there already and `force` is not set, which replaces files of the same names.
    """
    place = _place(path, force=force)
    if place is None:
        yield path
        return
    with TemporaryDirectory(prefix="batchpond-") as waiting:
        written = Path(waiting) / path.name
        yield written
        place.put(written)


def _place(path: Path, *, force: bool) -> Place | None:
    url = address(path)
    if url is None:
        return None
    with needed(url, "cluster"):
        from batchpond_remote.bucket import Place
    return Place(url, SystemClock(), force=force)


def refuse_existing(path: Path) -> None:
    """Raise UsageError where something stands already, here or at an address."""
    if _place(path, force=False) is None and os.path.lexists(path):
        raise UsageError(f"{path} exists already", hint="give another name, or --force to replace it")
