"""Everything that reads the lake through SQL: the lens file, its views, and the sandbox for users' queries."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from batchpond.views.database import (
        TABLE_STAGE,
        ViewInfo,
        bad_files,
        build,
        columns,
        connect,
        ddl,
        empty,
        is_current,
        is_view,
        listed,
        views,
    )
    from batchpond.views.expressions import evaluate, why_not
    from batchpond.views.refresh import BadFile, check_file, fingerprint
    from batchpond.views.sandbox import run_query, shown_query, stream_query

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
    "evaluate",
    "fingerprint",
    "is_current",
    "is_view",
    "listed",
    "run_query",
    "shown_query",
    "stream_query",
    "views",
    "why_not",
]

_HOMES: Final = {
    **dict.fromkeys(("evaluate", "why_not"), "expressions"),
    "fingerprint": "refresh",
    **dict.fromkeys(("run_query", "shown_query", "stream_query"), "sandbox"),
    **dict.fromkeys(("BadFile", "check_file"), "refresh"),
}


def __getattr__(name: str) -> Any:
    # A pass with nothing new reads `refresh` alone: DuckDB takes longer to load than such a pass may take.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'database')}"), name)
