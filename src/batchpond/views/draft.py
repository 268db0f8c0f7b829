"""The lens while it is written: a database whose file has lost its name, so that nothing of it outlives its writer.

The last one stays open, for the lake it was written for: to change it takes no new engine and reads no catalog of
views again, which together take longer than most changes.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb

from batchpond.lake.tables import literal

CATALOG: Final = "batchpond"
STORAGE_VERSION: Final = "v1.0.0"  # the oldest that all supported DuckDB lines read and write
BLOCK_BYTES: Final = 16_384  # the least: of larger ones each of a dozen small tables would fill several


@dataclass(slots=True)
class Draft:
    """A lens open to be written; `content` is what it would be as a file."""

    connection: duckdb.DuckDBPyConnection
    _file: int

    @classmethod
    def opened(cls, base: bytes | None) -> Draft:
        """Open a copy of a lens, or an empty one; raises duckdb.Error for what is no database, OSError for no space."""
        # Not in the lake: DuckDB cannot write a database below a folder with a question mark in its name.
        file, path = tempfile.mkstemp(prefix="batchpond-", suffix=".duckdb")
        connection = duckdb.connect(":memory:", config={"threads": 1})
        options = f"STORAGE_VERSION {literal(STORAGE_VERSION)}, BLOCK_SIZE {BLOCK_BYTES}, " if base is None else ""
        try:
            with os.fdopen(file, "wb") as content:
                content.write(base or b"")
            if base is None:
                os.unlink(path)
            connection.execute(f"ATTACH {literal(path)} AS {CATALOG} ({options}RECOVERY_MODE 'no_wal_writes')")
            connection.execute(f"USE {CATALOG}")
            return cls(connection, os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except BaseException:
            connection.close()
            raise
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def content(self) -> bytes:
        """Write what has changed and return the whole database."""
        self.connection.execute(f"CHECKPOINT {CATALOG}")
        size = os.fstat(self._file).st_size
        content = os.pread(self._file, size, 0)
        if len(content) != size:
            raise OSError(f"{len(content):,} of {size:,} bytes of the views could be read")
        return content

    def close(self) -> None:
        """Let go of it, and of its file."""
        self.connection.close()
        os.close(self._file)


Seen = tuple[str, int, int, int]  # a lens on disk: its path, and what changes when another is put in its place


def seen(lens_path: Path) -> Seen | None:
    """Return how a lens stands on disk; None where there is none."""
    try:
        found = lens_path.stat()
    except FileNotFoundError:
        return None
    return os.path.abspath(lens_path), found.st_ino, found.st_size, found.st_mtime_ns


class _AtHand:
    """The draft of the lens that this process wrote or opened last."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._seen: Seen | None = None
        self._draft: Draft | None = None
        self._lost: list[Draft] = []

    @contextlib.contextmanager
    def of(self, lens_path: Path) -> Iterator[Draft | None]:
        """Lend the draft that is exactly the lens on disk; opened from it where another is at hand, None for no lens.

        Who writes says `keep`; whoever fails has it closed.
        """
        with self._lock:
            now = seen(lens_path)
            if now is None or now != self._seen:
                self.keep(None, None)
            try:
                if now is not None and self._draft is None:
                    with contextlib.suppress(duckdb.Error, OSError):
                        self.keep(Draft.opened(lens_path.read_bytes()), now)
                yield self._draft
            except BaseException:
                self.keep(None, None)
                raise

    def keep(self, draft: Draft | None, now: Seen | None) -> None:
        """Have this draft at hand, which became the lens that was `seen`; another one is closed."""
        with self._lock:
            if self._draft is not None and self._draft is not draft:
                self._draft.close()
            self._draft, self._seen = draft, now

    def forget(self) -> None:
        """Start anew in a forked child: what is at hand is its parent's, and so is its file."""
        self._lock = threading.RLock()
        if self._draft is not None:
            self._lost.append(self._draft)
        self._draft = self._seen = None


AT_HAND = _AtHand()
os.register_at_fork(after_in_child=AT_HAND.forget)
