"""Which of a lake's files can be shown: judged by their footers, each once for as long as it stands as it did."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from batchpond.lake import manifest
from batchpond.lake.manifest import Damage
from batchpond.lake.schemas import TABLES
from batchpond.lake.tables import lacks_later
from batchpond.views.refresh import Files, names


@dataclass(frozen=True, slots=True)
class BadFile:
    """A published file that the views leave out because it cannot be read."""

    table: str
    path: Path
    problem: str

    def damage(self, lake_path: Path) -> Damage:
        """Return it as the lake's own words for what is not as it was published."""
        (name,) = names(lake_path, [self.path])
        return Damage(name, self.problem)


class Sound(NamedTuple):
    """How a file stood on disk when it was found readable; `is_older` says that it lacks columns that came later."""

    size_bytes: int
    changed_ns: int
    is_older: bool


Good = Mapping[str, Mapping[Path, Sound]]


def check_file(table: str, path: Path) -> str | None:
    """Return why a table's file cannot be read, judged by its footer; None when it can."""
    found = _examined(table, path, None)
    return found if isinstance(found, str) else None


def _examined(table: str, path: Path, known: Sound | None) -> Sound | str:
    """Return how a file stands, or what is wrong with it; one that stands as it did when it was read is not again."""
    try:
        seen = os.stat(path)
        if known is not None and (known.size_bytes, known.changed_ns) == (seen.st_size, seen.st_mtime_ns):
            return known
    except OSError as error:
        return _unreadable(error)
    import pyarrow as pa  # takes longer than all else that a reader does who finds its lens in place
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError) as error:
        return _unreadable(error)
    wanted, written = TABLES[table], schema.remove_metadata()
    kept = [field for field in wanted.schema if field.name in written.names or field.name not in wanted.later]
    if not written.equals(pa.schema(kept)):
        return f"its columns are not those of table {table}"
    return Sound(seen.st_size, seen.st_mtime_ns, lacks_later(wanted, written))


def _unreadable(error: Exception) -> str:
    return f"not a readable Parquet file: {first_line(error)}"


def sorted_out(
    lake_path: Path, files: Files, known: Mapping[str, Sound]
) -> tuple[dict[str, dict[Path, Sound]], list[BadFile]]:
    """Return the files that can be shown and how they stand, and the others; `known` need not be read again."""
    good: dict[str, dict[Path, Sound]] = {name: {} for name in TABLES}
    root = f"{lake_path}/"
    gone = manifest.missing(Path(os.path.abspath(lake_path)))
    bad = [BadFile(name.partition("/")[0], lake_path / name, manifest.GONE) for name in gone]
    for name in TABLES:
        for path in files.get(name, ()):
            found = _examined(name, path, known.get(os.fspath(path).removeprefix(root)))
            if isinstance(found, str):
                bad.append(BadFile(name, path, found))
            else:
                good[name][path] = found
    return good, bad


def first_line(error: Exception | None) -> str:
    """Return what an error says first."""
    return str(error).split("\n", 1)[0]
