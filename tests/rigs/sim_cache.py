"""What is the same for all simulated processes of a test run, read once: published files, and what is installed."""

from __future__ import annotations

import functools
from importlib import metadata
from pathlib import Path

import pyarrow as pa

from batchpond.lake.disk import read_rows


@functools.lru_cache(maxsize=100_000)
def read_once(path: Path) -> pa.Table:
    """Read a published file: it never changes, so a simulated process may have what another one read."""
    return read_rows(path)


version_once = functools.cache(metadata.version)
