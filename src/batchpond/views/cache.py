"""An empty lens kept beside the user's other caches: making all views takes seconds, copying them does not.

What is kept holds no data, is named after the views and the engine that made it, and can be deleted at any
time. Where the folder cannot be used, everything works as without it.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from batchpond.clock import random_hex
from batchpond.lake import disk

FILES_MAX: Final = 8
_SIZE_MAX_BYTES: Final = 64 << 20
_PREFIX: Final = "lens-"


def read(name: str) -> bytes | None:
    """Return what is kept under a name, None for nothing, or what others could have written."""
    path = _folder() / f"{_PREFIX}{name}.duckdb"
    with suppress(OSError):
        found = path.lstat()
        is_own = stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
        if is_own and 0 < found.st_size <= _SIZE_MAX_BYTES:
            return path.read_bytes()
    return None


def write(name: str, content: bytes) -> None:
    """Keep an empty lens, and drop the oldest of too many."""
    folder = _folder()
    staged = folder / f".{random_hex(8)}"
    with suppress(OSError):
        disk.make_directory(folder)
        disk.write_private(staged, content)
        disk.replace(staged, folder / f"{_PREFIX}{name}.duckdb")
        kept = sorted(folder.glob(f"{_PREFIX}*.duckdb"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in kept[FILES_MAX:]:
            disk.drop(path)


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "batchpond"
