"""A folder of files in another tool's layout, as it is being written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from batchpond.errors import UsageError
from batchpond.lake import disk
from batchpond.results.export import placed, write_query

if TYPE_CHECKING:
    import duckdb

FILES_MAX: Final = 1_000_000
_UNSAFE: Final = re.compile(r"[^\w.@+=-]+")
_CSV: Final = "FORMAT csv, HEADER true, NULLSTR 'NA'"
_FETCH_ROWS: Final = 1_000


@dataclass
class LayoutReport:
    """The files that were written, and how many rows the layout has no place for, by reason."""

    files: list[Path] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)

    def leave_out(self, why: str, n: int = 1) -> None:
        """Count rows that were not written."""
        if n:
            self.left_out[why] = self.left_out.get(why, 0) + n


@dataclass(frozen=True)
class Tree:
    """A folder that is being filled; `where_study` is SQL that keeps one study, or all."""

    connection: duckdb.DuckDBPyConnection
    folder: Path
    where_study: str
    report: LayoutReport
    is_forced: bool

    def rows(self, query: str) -> Iterator[dict[str, Any]]:
        """Yield a query's rows by column name, without holding them all."""
        cursor = self.connection.execute(query)
        names = [column[0] for column in cursor.description or ()]
        while block := cursor.fetchmany(_FETCH_ROWS):
            for row in block:
                yield dict(zip(names, row, strict=True))

    def json(self, name: str, value: Any) -> None:
        """Write one JSON document."""
        self._place(name, json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n")

    def json_lines(self, name: str, values: list[Any]) -> None:
        """Write one JSON document per line."""
        self._place(name, "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values))

    def csv(self, name: str, query: str) -> None:
        """Write a query's rows as R reads them: a missing value is NA."""
        write_query(self.connection, query, self._path(name), _CSV, force=self.is_forced)

    def _place(self, name: str, text: str) -> None:
        with placed(self._path(name), force=self.is_forced) as staged:
            staged.write_text(text, "utf-8")

    def _path(self, name: str) -> Path:
        path = self.folder / name
        disk.make_directory(path.parent)
        self.report.files.append(path)
        if len(self.report.files) > FILES_MAX:
            raise UsageError(f"more than {FILES_MAX:,} files to write", hint="export one `--study` at a time")
        return path


def safe(name: str) -> str:
    """Return a name as one part of a path, as SpecEval writes models: `org/model` is `org-model`."""
    return _UNSAFE.sub("-", name).strip(".") or "unnamed"
