"""One writer per lake: an exclusive `flock` that the kernel frees when its holder dies."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from batchpond.clock import Clock
from batchpond.errors import BusyError
from batchpond.lake.disk import FILE_MODE

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
