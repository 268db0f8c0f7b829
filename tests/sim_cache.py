"""Reading published files once for all simulated processes of a test run."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


@functools.lru_cache(maxsize=100_000)
def _read_once(path: Path, **options: Any) -> pa.Table:
    # A published file never changes, so a simulated process may have what another one read.
    with pq.ParquetFile(path) as file:
        return file.read(use_threads=False)


class CachedParquet:
    """`pyarrow.parquet` for the events module, without reading an immutable file twice."""

    read_table = staticmethod(_read_once)
    read_schema = staticmethod(pq.read_schema)
