"""Everything that reads the lake through SQL: the lens file, its views, and the sandbox for users' queries."""

from __future__ import annotations

from batchpond.lens.catalog import TABLE_STAGE, ViewInfo, columns, views
from batchpond.lens.database import (
    BadFile,
    bad_files,
    build,
    check_file,
    connect,
    ddl,
    empty,
    fingerprint,
    is_current,
    listed,
)
from batchpond.lens.sandbox import run_query

__all__ = [
    "TABLE_STAGE",
    "BadFile",
    "ViewInfo",
    "bad_files",
    "build",
    "check_file",
    "columns",
    "connect",
    "ddl",
    "empty",
    "fingerprint",
    "is_current",
    "listed",
    "run_query",
    "views",
]
