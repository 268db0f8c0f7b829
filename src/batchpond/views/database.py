"""The lens: a small DuckDB file of views over an explicit list of the lake's Parquet files.

An empty one is kept beside the user's other caches: making all views takes seconds, copying them does not."""

from __future__ import annotations

import functools
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

import duckdb

from batchpond.clock import random_hex
from batchpond.errors import LakeError
from batchpond.lake import disk
from batchpond.lake.schemas import TABLES, Table
from batchpond.lake.store import LENS, TMP, held
from batchpond.lake.tables import lacks_later, literal, quoted
from batchpond.views import forms, scripts
from batchpond.views.refresh import Files, fingerprint, views_digest

if TYPE_CHECKING:
    import pyarrow as pa

FILES_MAX: Final = 8
_SIZE_MAX_BYTES: Final = 64 << 20
_PREFIX: Final = "lens-"


def read(name: str) -> bytes | None:
    """Return what is kept under a name, None for nothing, or what others could have written."""
    path = _folder() / f"{_PREFIX}{name}.duckdb"
    with suppress(OSError):
        found = path.lstat()
        is_own = stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
        if is_own and 0 < found.st_size <= _SIZE_MAX_BYTES:
            return path.read_bytes()
    return None


def write(name: str, content: bytes) -> None:
    """Keep an empty lens, and drop the oldest of too many."""
    folder = _folder()
    staged = folder / f".{random_hex(8)}"
    with suppress(OSError):
        disk.make_directory(folder)
        disk.write_private(staged, content)
        disk.replace(staged, folder / f"{_PREFIX}{name}.duckdb")
        kept = sorted(folder.glob(f"{_PREFIX}*.duckdb"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in kept[FILES_MAX:]:
            disk.drop(path)


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "batchpond"


STORAGE_VERSION: Final = "v1.0.0"  # the oldest that all supported DuckDB lines read and write
CATALOG: Final = "batchpond"
MEMORY_LIMIT: Final = "1GB"  # a dozen joins and their buffers need up to half of it on tiny lakes
THREADS_MAX: Final = 4
_REUSED_BYTES_MAX = 64 << 20

_TYPES: Final = {
    "string": "VARCHAR",
    "int64": "BIGINT",
    "int32": "INTEGER",
    "float64": "DOUBLE",
    "bool": "BOOLEAN",
    "binary": "BLOB",
    "timestamp": "TIMESTAMPTZ",
}

_INFO = """
CREATE TABLE lens_info (
  fingerprint VARCHAR, lake_path VARCHAR, n_files BIGINT, views_digest VARCHAR, duckdb_version VARCHAR
);
CREATE TABLE lens_files (table_name VARCHAR, path VARCHAR, problem VARCHAR);
"""
_BAD = "SELECT table_name, path, problem FROM lens_files WHERE problem IS NOT NULL ORDER BY path"


@dataclass(frozen=True, slots=True)
class BadFile:
    """A published file that the views leave out because it cannot be read."""

    table: str
    path: Path
    problem: str


@dataclass(frozen=True, slots=True)
class _Info:
    """The row of `lens_info`: what a lens was written from, and by which engine."""

    fingerprint: str
    lake_path: str
    n_files: int
    views_digest: str
    duckdb_version: str


def is_current(lake_path: Path, files: Files) -> bool:
    """Whether the lens on disk shows exactly these files through the present views."""
    info = _recorded(lake_path / LENS)
    return info is not None and info.fingerprint == fingerprint(lake_path, files)


def build(lake_path: Path, files: Files) -> list[BadFile]:
    """Write the lens anew; returns the files that it had to leave out.

    The caller holds the lake's lock, and asks `is_current` first where nothing may have changed.
    One unreadable file costs its own rows and nothing else.
    """
    good, bad = _sorted_out(files)
    info = _info(lake_path, files, good)
    try:
        _put_in_place(lake_path, _remade_of(_bases(lake_path / LENS), info, good, bad))
    except (duckdb.Error, OSError) as error:
        raise LakeError(
            f"the views of {lake_path} could not be written: {_first_line(error)}",
            hint="check free space; the Parquet files are intact and `batchpond doctor` writes the views again",
        ) from error
    return bad


def bad_files(lake_path: Path) -> list[BadFile]:
    """Return the files that the lens on disk leaves out."""
    with connect(lake_path) as connection:
        rows = connection.execute(_BAD).fetchall()
    return [BadFile(table, Path(path), problem) for table, path, problem in rows]


def check_file(table: str, path: Path) -> str | None:
    """Return why a table's file cannot be read, judged by its footer; None when it can."""
    import pyarrow as pa  # takes longer than all else that a reader does who finds its lens in place

    try:
        schema = _schema(path)
    except (pa.ArrowException, OSError) as error:
        return f"not a readable Parquet file: {_first_line(error)}"
    wanted, written = TABLES[table], schema.remove_metadata()
    kept = [field for field in wanted.schema if field.name in written.names or field.name not in wanted.later]
    if not written.equals(pa.schema(kept)):
        return f"its columns are not those of table {table}"
    return None


def _schema(path: Path) -> pa.Schema:
    import pyarrow.parquet as pq

    return pq.read_schema(path)


def ddl(lake_path: Path, files: Files) -> str:
    """Return the whole lens as one SQL script that plain DuckDB runs."""
    good, _ = _sorted_out(files)
    head = f"-- Views over the lake {os.path.abspath(lake_path)}: run in an empty DuckDB, or `.read` this file.\n"
    return "\n".join([head, *_table_views(good), *(script.text for script in scripts.scripts())])


def connect(lake_path: Path, *, memory_limit: str = MEMORY_LIMIT) -> duckdb.DuckDBPyConnection:
    """Open the lens to read, for our own SQL; close it after use.

    A lake whose lens is missing, damaged, or was written at another path or by another version is shown
    through one of the reader's own, so reading never depends on a writer.
    """
    lake_path = Path(os.path.abspath(lake_path))
    connection = duckdb.connect(":memory:", config=_config(lake_path, memory_limit))
    try:
        if not _attach(connection, lake_path):
            _attach_own(connection, lake_path)
    except duckdb.Error as error:
        connection.close()
        raise LakeError(
            f"the views of {lake_path} could not be opened: {_first_line(error)}", hint="run `batchpond doctor`"
        ) from error
    return connection


@contextmanager
def empty() -> Iterator[duckdb.DuckDBPyConnection]:
    """Open all views over a lake without any file, in memory."""
    with duckdb.connect(":memory:") as connection:
        _create(connection)
        yield connection


def listed(lake_path: Path) -> dict[str, list[Path]]:
    """Return the published files of every table, in name order."""
    return {name: held(lake_path / name) for name in TABLES}


def _config(lake_path: Path, memory_limit: str) -> dict[str, str | bool | int | float | list[str]]:
    return {
        "memory_limit": memory_limit,
        "threads": min(THREADS_MAX, os.cpu_count() or 1),
        "temp_directory": os.fspath(lake_path / TMP / f"{random_hex(12)}.spill"),
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,
    }


def _attach(connection: duckdb.DuckDBPyConnection, lake_path: Path) -> bool:
    path = lake_path / LENS
    if not path.is_file():
        return False
    try:
        connection.execute(f"ATTACH {literal(os.fspath(path))} AS {CATALOG} (READ_ONLY)")
        found = connection.execute(f"SELECT lake_path, views_digest FROM {CATALOG}.lens_info").fetchall()
    except duckdb.Error:
        found = []
    if found == [(os.fspath(lake_path), views_digest())]:
        connection.execute(f"USE {CATALOG}")
        return True
    connection.execute(f"DETACH DATABASE IF EXISTS {CATALOG}")
    return False


def _attach_own(connection: duckdb.DuckDBPyConnection, lake_path: Path) -> None:
    files = listed(lake_path)
    good, bad = _sorted_out(files)
    content = _remade_of(_unfilled(), _info(lake_path, files, good), good, bad)
    with _scratch() as path:
        path.write_bytes(content)
        # The engine holds the file open: it may lose its name at once.
        connection.execute(f"ATTACH {literal(os.fspath(path))} AS {CATALOG} (READ_ONLY)")
        connection.execute(f"USE {CATALOG}")


def _recorded(lens_path: Path) -> _Info | None:
    """Return what the lens on disk says it was written from; None when there is none to read."""
    if not lens_path.is_file():
        return None
    seen = lens_path.stat()
    return _read_info(os.fspath(lens_path), (seen.st_ino, seen.st_size, seen.st_mtime_ns))


@functools.lru_cache(maxsize=8)
def _read_info(lens_path: str, _seen: tuple[int, int, int]) -> _Info | None:
    # A lens is replaced, never changed, and a pass looks at the same one twice.
    try:
        with duckdb.connect(":memory:", config={"threads": 1}) as connection:
            connection.execute(f"ATTACH {literal(lens_path)} AS {CATALOG} (READ_ONLY)")
            rows = connection.execute(f"SELECT * FROM {CATALOG}.lens_info").fetchall()
    except duckdb.Error:
        return None
    return _Info(*rows[0]) if len(rows) == 1 and len(rows[0]) == len(fields(_Info)) else None


def _sorted_out(files: Files) -> tuple[dict[str, list[Path]], list[BadFile]]:
    good: dict[str, list[Path]] = {}
    bad: list[BadFile] = []
    for name in TABLES:
        good[name] = []
        for path in files.get(name, ()):
            problem = check_file(name, path)
            if problem is None:
                good[name].append(path)
            else:
                bad.append(BadFile(name, path, problem))
    return good, bad


def _put_in_place(lake_path: Path, content: bytes) -> None:
    staged = lake_path / TMP / f"{random_hex(12)}.duckdb"
    try:
        disk.write_private(staged, content)
        disk.replace(staged, lake_path / LENS)
    finally:
        staged.unlink(missing_ok=True)
    # A write-ahead log that some other program left behind would make the new file unopenable.
    (lake_path / f"{LENS}.wal").unlink(missing_ok=True)


def _remade_of(bases: Iterator[bytes], info: _Info, good: Files, bad: Sequence[BadFile]) -> bytes:
    """Return a lens made from the first base that is sound; raises what the last one failed with."""
    failure: duckdb.Error | OSError = OSError("no base")
    for base in bases:
        try:
            return _remade(base, info, good, bad)
        except (duckdb.Error, OSError) as error:
            failure = error
    raise failure


def _remade(base: bytes, info: _Info, good: Files, bad: Sequence[BadFile]) -> bytes:
    """Return a lens made from one with the same views, because making those costs most of a second."""
    with _scratch() as path:
        path.write_bytes(base)
        with duckdb.connect(":memory:", config={"threads": 1}) as connection:
            connection.execute(f"ATTACH {literal(os.fspath(path))} AS {CATALOG}")
            connection.execute(f"USE {CATALOG}")
            shown = _shown(connection)
            changed = [n for n in TABLES if shown.get(n, []) != sorted(map(os.path.abspath, good[n]))]
            for name in changed:
                connection.execute(_table_view(name, TABLES[name], good[name]))
            forms.as_tables(connection, changed)
            connection.execute("DELETE FROM lens_info")
            connection.execute("DELETE FROM lens_files")
            _record(connection, info, good, bad)
            _finish(connection)
        return path.read_bytes()


def _shown(connection: duckdb.DuckDBPyConnection) -> dict[str, list[str]]:
    """Return the files that the open lens shows as each table, in order."""
    sql = "SELECT table_name, list(path ORDER BY path) FROM lens_files WHERE problem IS NULL GROUP BY table_name"
    return dict(connection.execute(sql).fetchall())


@contextmanager
def _scratch() -> Iterator[Path]:
    # Not in the lake: DuckDB cannot write a database below a folder with a question mark in its name.
    with tempfile.TemporaryDirectory(prefix="batchpond-") as folder:
        yield Path(folder) / LENS


def _bases(lens_path: Path) -> Iterator[bytes]:
    """Yield what a new lens can be made from: the present one if only its files differ, a kept one, a fresh one."""
    info = _recorded(lens_path)
    is_same = info is not None and (info.views_digest, info.duckdb_version) == (views_digest(), duckdb.__version__)
    if is_same and lens_path.stat().st_size <= _REUSED_BYTES_MAX:
        yield lens_path.read_bytes()
    yield from _unfilled()


def _unfilled() -> Iterator[bytes]:
    """Yield lenses over no files: one that was kept, then a fresh one, which is kept from then on."""
    name = f"{views_digest()[:32]}-{duckdb.__version__}"
    if (kept := read(name)) is not None:
        yield kept
    made = _template()
    write(name, made)
    yield made


@functools.cache
def _template() -> bytes:
    """Return a lens over no files."""
    with _scratch() as path:
        with duckdb.connect(":memory:", config={"threads": 1}) as connection:
            version = literal(STORAGE_VERSION)
            connection.execute(f"ATTACH {literal(os.fspath(path))} AS {CATALOG} (STORAGE_VERSION {version})")
            connection.execute(f"USE {CATALOG}")
            _create(connection)
            forms.as_tables(connection, TABLES)
            _finish(connection)
        return path.read_bytes()


def _finish(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute(f"CHECKPOINT {CATALOG}")
    connection.execute("USE memory")
    connection.execute(f"DETACH {CATALOG}")


def _create(connection: duckdb.DuckDBPyConnection) -> None:
    for statement in _table_views({}):
        connection.execute(statement)
    forms.create(connection)
    connection.execute(_INFO)


def _info(lake_path: Path, files: Files, good: Files) -> _Info:
    n_files = sum(map(len, good.values()))
    return _Info(fingerprint(lake_path, files), os.path.abspath(lake_path), n_files, views_digest(), duckdb.__version__)


def _record(connection: duckdb.DuckDBPyConnection, info: _Info, good: Files, bad: Sequence[BadFile]) -> None:
    connection.execute("INSERT INTO lens_info VALUES (?, ?, ?, ?, ?)", list(astuple(info)))
    for name, paths in good.items():
        shown = [os.path.abspath(path) for path in paths]
        connection.execute("INSERT INTO lens_files SELECT ?, unnest(CAST(? AS VARCHAR[])), NULL", [name, shown])
    for file in bad:
        connection.execute("INSERT INTO lens_files VALUES (?, ?, ?)", [file.table, os.fspath(file.path), file.problem])


def _table_views(files: Files) -> Iterator[str]:
    for name, table in TABLES.items():
        yield _table_view(name, table, files.get(name, ()))


def _table_view(name: str, table: Table, files: Sequence[Path]) -> str:
    head = f"CREATE OR REPLACE VIEW {quoted(name)} AS\n"
    columns = ",\n".join(f"  CAST(NULL AS {_TYPES[kind]}) AS {quoted(column)}" for column, kind in table.columns)
    nothing = f"SELECT\n{columns}\nWHERE FALSE"
    if not files:
        return f"{head}{nothing};\n"
    paths = ",\n".join(f"  {literal(os.path.abspath(path))}" for path in files)
    if table.later and any(lacks_later(table, _schema(path)) for path in files):
        options = "hive_partitioning = FALSE, union_by_name = TRUE"
        return f"{head}{nothing}\nUNION ALL BY NAME\nFROM read_parquet([\n{paths}\n], {options});\n"
    columns = ",\n".join(
        f"  CAST({quoted(column)} AS {_TYPES[kind]}) AS {quoted(column)}" for column, kind in table.columns
    )
    return f"{head}SELECT\n{columns}\nFROM read_parquet([\n{paths}\n], hive_partitioning = FALSE);\n"


def _first_line(error: Exception | None) -> str:
    return str(error).split("\n", 1)[0]
