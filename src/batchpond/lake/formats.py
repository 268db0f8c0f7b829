"""Lakes of earlier formats: which are gone on with, and which are refused with what to do.

`FORMATS.md` beside this file has a line for each. The number in the marker is raised when a table gains columns. Files
of facts are never written anew: what they lack is NULL in them (`Table.later`), or the lake is refused.
"""

from __future__ import annotations

from pathlib import Path

from batchpond.errors import LakeError
from batchpond.lake import disk
from batchpond.lake.schemas import TABLES


def outdated(lake_path: Path) -> list[Path]:
    """Return the derived files of an earlier format that are to be dropped, for a pass makes them again.

    Raises LakeError where facts lack a column that this version cannot do without.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = []
    for name, table in TABLES.items():
        for path in disk.parquet_files(lake_path / name):
            try:
                written = pq.read_schema(path).names
            except (pa.ArrowException, OSError):
                continue  # damaged: whoever reads it says so
            lacks = sorted({*table.schema.names} - {*written} - table.later)
            if lacks and not table.is_derived:
                raise LakeError(
                    f"{lake_path} was written by a version too early for this one: "
                    f"its table {name} lacks {', '.join(lacks)}",
                    hint="collect its open batches with the version that wrote it; then `batchpond plan` the study in "
                    "a new lake and `batchpond adopt` its batches there, so that nothing is bought again",
                )
            if lacks:
                found.append(Path(path))
    return found
