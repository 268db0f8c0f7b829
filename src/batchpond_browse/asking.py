"""Asking the lake: the SQL of the pages, from files, through the sandboxed reader; a user's words are only values."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from batchpond.views import read

FOLDER: Final = Path(__file__).with_name("queries")
TIMEOUT_S: Final = 60.0
KEPT_MAX: Final = 64  # answers of at most some hundred rows
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Query:
    """One SELECT with the values of the names behind its dollars."""

    sql: str
    values: Mapping[str, object] = field(default_factory=dict)

    def shown(self) -> str:
        """Return it as it can be run elsewhere: each value as a literal in the place of its name."""
        shown = self.sql
        for name in sorted(self.values, key=len, reverse=True):
            value = self.values[name]
            literal = str(value) if isinstance(value, int | float) else "'" + str(value).replace("'", "''") + "'"
            shown = shown.replace(f"${name}", literal)
        return shown


def query(name: str, values: Mapping[str, object], **pieces: str) -> Query:
    """Return the query of a file, its braces filled with pieces of our own SQL."""
    sql = (FOLDER / f"{name}.sql").read_text("utf-8").rstrip("\n")
    return Query(sql.format(**pieces), values)


def listed(name: str, **ids: Sequence[str]) -> Query:
    """Return the query of a file that asks for some ids, each bound to a name of its own: a list is not looked up."""
    values = {f"{kind}_{number}": value for kind, some in ids.items() for number, value in enumerate(some)}
    named = {kind: ", ".join(f"${kind}_{number}" for number in range(len(some))) for kind, some in ids.items()}
    return query(name, values, **{kind: some or "NULL" for kind, some in named.items()})


class Lake:
    """The lake as the pages read it: no connection is kept, so that a writer's next files are seen at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._turns = threading.Lock()  # a query may take two cores, and its own memory
        self._kept = lru_cache(KEPT_MAX)(self._read)

    def rows(self, asked: Query, near: str = "", *, is_kept: bool = True) -> list[Row]:
        """Return a query's rows, kept while nothing was published; raises UsageError and LakeError as `query` does.

        `near` is a condition on the plan that chooses all that is asked about: quicker than to look at everything.
        """
        ask = self._kept if is_kept else self._read
        with self._turns:
            return [dict(row) for row in ask(self.pulse(), asked.sql, near, tuple(asked.values.items()))]

    def _read(self, _pulse: str, sql: str, near: str, values: tuple[tuple[str, object], ...]) -> list[Row]:
        batches = read.stream_query(self.path, sql, read.Limits(TIMEOUT_S), values=dict(values) or None, near=near)
        return [row for batch in batches for row in batch.to_pylist()]

    def pulse(self) -> str:
        """Return what changes whenever a writer published something."""
        try:
            found = os.stat(self.path / "batchpond.duckdb")
        except OSError:
            return "none"
        return f"{found.st_ino}-{found.st_mtime_ns}"
