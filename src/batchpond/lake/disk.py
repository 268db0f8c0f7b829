"""Durable, private file operations, the primitives every publish is made of; and one writer per lake, by `flock`."""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from batchpond.clock import Clock
from batchpond.errors import BusyError, UsageError

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
DEPTH_MAX = 6
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", re.DOTALL)


def local_folder(path: Path) -> Path:
    """Return where a lake's folder is; raises UsageError for `s3://...` and the like, which would be made a folder."""
    if found := _ADDRESS.fullmatch(os.fspath(path)):
        raise UsageError(
            f"a lake is a folder on this machine, and {found[1]}://{found[2]} is none",
            hint="keep it on a local disk, and copy the folder where others read it",
        )
    return Path(os.path.abspath(path))


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
        sync_directory(folder.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make a file's bytes durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_private(path: Path, data: bytes) -> None:
    """Write a new private file durably, or leave none; raises FileExistsError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, FILE_MODE)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    except OSError:
        drop(path)
        raise
    finally:
        os.close(descriptor)


def drop(path: Path) -> None:
    """Remove a file that nobody wants any more, if the disk lets us; what stays is swept later."""
    with suppress(OSError):
        path.unlink()


def link_into_place(staged: Path, final: Path) -> bool:
    """Give a finished file its final name and drop the staged one; False if the name was taken.

    `staged` must already be fsynced; it is gone afterwards, whatever happens.
    """
    try:
        make_directory(final.parent)
        is_new = _linked(staged, final)
    except OSError:
        drop(staged)
        raise
    staged.unlink()
    sync_directory(final.parent)
    return is_new


def _linked(staged: Path, final: Path) -> bool:
    try:
        os.link(staged, final)
    except FileExistsError:
        return False
    return True


def replace(staged: Path, final: Path) -> None:
    """Put a finished file in the place of another, durably; `staged` is gone afterwards, whatever happens."""
    try:
        make_directory(final.parent)
        os.replace(staged, final)
    except OSError:
        drop(staged)
        raise
    sync_directory(final.parent)


def parquet_files(folder: str | os.PathLike[str], depth: int = DEPTH_MAX) -> Iterator[str]:
    """Yield the paths of the Parquet files below a folder, never following a symbolic link.

    As text: a folder may hold tens of thousands of files that nobody needs a Path of.
    """
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.name.endswith(".parquet") and entry.is_file(follow_symlinks=False):
            yield entry.path
        elif depth > 0 and entry.is_dir(follow_symlinks=False):
            yield from parquet_files(entry.path, depth - 1)


_HOLDER_BYTES_MAX = 4096


@contextmanager
def exclusive(path: Path, purpose: str, clock: Clock) -> Iterator[None]:
    """Hold the lake's writer lock; raises BusyError that names the holder.

    The text in the file is for that message only: the lock is the kernel's, so a stale text
    or a reused process id never blocks anyone.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
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
            # An idle lake holds no trace of who wrote last, so that a pass without news changes no byte.
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _holder(descriptor: int) -> str:
    try:
        note = json.loads(os.pread(descriptor, _HOLDER_BYTES_MAX, 0))
        return f"{note['purpose']} (process {note['pid']} on {note['host']}, since {note['since']})"
    except (ValueError, KeyError, TypeError):
        return "holder unknown"
