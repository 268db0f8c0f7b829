"""What is worked out once for all lakes of a person, beside their other caches; to lose it costs time alone."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from batchpond.clock import random_hex
from batchpond.lake import disk

FILES_MAX: Final = 8
"""How many of one kind are kept."""
_SIZE_MAX_BYTES: Final = 64 << 20


def read(kind: str, name: str) -> bytes | None:
    """Return what is kept under a name, None for nothing, or what others could have written."""
    with suppress(OSError, RuntimeError):
        path = _folder() / f"{kind}-{name}"
        found = path.lstat()
        is_own = stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
        if is_own and 0 < found.st_size <= _SIZE_MAX_BYTES:
            return path.read_bytes()
    return None


def write(kind: str, name: str, content: bytes) -> None:
    """Keep something, if that is possible, and drop the oldest of too many of its kind."""
    with suppress(OSError, RuntimeError):
        folder = _folder()
        staged = folder / f".{random_hex(8)}"
        disk.make_directory(folder)
        disk.write_private(staged, content)
        disk.replace(staged, folder / f"{kind}-{name}")
        kept = sorted(folder.glob(f"{kind}-*"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in kept[FILES_MAX:]:
            disk.drop(path)


def _folder() -> Path:
    """Return where it is; raises RuntimeError for who has no home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "batchpond"
