"""What is the same for all simulated processes of a test run, and is therefore made once.

Published files are read, DuckDB is started, and what is installed is looked up."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from batchpond.lake import manifest, tables
from batchpond.lake.disk import is_merged, read_rows
from batchpond.lake.store import Store


@functools.lru_cache(maxsize=100_000)
def read_once(path: Path) -> pa.Table:
    """Read a published file: it never changes, so a simulated process may have what another one read."""
    return read_rows(path)


_start = tables._start
_started: list[tables._Engine] = []


def started_once(store: Store) -> tables._Engine:
    """Return the engine of all simulated processes, for this lake from now on: none asks two lakes at once."""
    if not (_started and _is_whole(_started[-1])):
        _started.append(_start(store))
    _started[-1].lake_path = store.path
    return _started[-1]


def _is_whole(engine: tables._Engine) -> bool:
    """Whether it can be asked, and spill: one that has spilled ends with its last connection, as the first lake may."""
    if engine.spill.exists() or not engine.spill.parent.exists():
        return False
    try:
        engine.database.execute("SELECT 1")
    except duckdb.ConnectionException:
        return False
    return True


def table_once(path: Path) -> pa.Table:
    """Read a published file without the product's reader; a lake that was lost may be made again under its name."""
    seen = path.stat()
    return _table_once(path, seen.st_ino, seen.st_mtime_ns)


@functools.lru_cache(maxsize=100_000)
def _table_once(path: Path, _inode: int, _mtime_ns: int) -> pa.Table:
    with pq.ParquetFile(path) as file:
        return file.read()


def no_lens(store: Store, *, is_for_us: bool = False) -> bool:  # as refresh is called
    """Do what a refresh does beside writing the lens, which is most of what a pass over a small lake takes."""
    if any(is_merged(path) for path in store.published("events")):
        manifest.take_up(store)  # what a merge took away is struck from the lists, as with the lens
    return False


@contextmanager
def without_lens() -> Iterator[None]:
    """Let plans, submits and passes leave no lens, for studies that are judged by the lake's tables alone."""
    with (
        patch("batchpond.views.refresh.refresh", no_lens),
        patch("batchpond.run.submit.refresh", no_lens),
        patch("batchpond.run.sync.refresh", no_lens),
    ):
        yield
