"""Reading published files once for all simulated processes of a test run."""

from __future__ import annotations

import functools
from pathlib import Path

import pyarrow as pa

from batchpond.lake.disk import read_rows


@functools.lru_cache(maxsize=100_000)
def read_once(path: Path) -> pa.Table:
    """Read a published file: it never changes, so a simulated process may have what another one read."""
    return read_rows(path)
