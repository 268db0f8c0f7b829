"""Views made into tables: in the lens while it is written, and those of one study on a connection of its own.

A lens that is written is a database whose file has lost its name, so that nothing of it outlives its writer. The last
one stays open, for the lake it was written for: to change it takes no new engine and reads no catalog of views again,
which together take longer than most changes. What it keeps as tables is folded from the events, of new ones only what
those are about.

A view over views is planned and run as one tree, each part as often as it is named. Whoever asks a study's views one
after another, as a report does, shares their parts this way instead: each is worked out once, when a query names it.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import threading
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb

from batchpond.clock import random_hex
from batchpond.lake.schemas import EVENTS, TABLES
from batchpond.lake.store import TMP
from batchpond.lake.tables import QUIET, literal, query, quoted
from batchpond.views import refresh
from batchpond.views.refresh import Script

CATALOG: Final = "batchpond"
STORAGE_VERSION: Final = "v1.0.0"  # the oldest that all supported DuckDB lines read and write
BLOCK_BYTES: Final = 16_384  # the least: of larger ones each of a dozen small tables would fill several
MEMORY_LIMIT: Final = "1GB"  # a dozen joins and their buffers need up to half of it on tiny lakes
THREADS_MAX: Final = 4


def config(lake_path: Path, memory_limit: str) -> dict[str, str | bool | int | float | list[str]]:
    """Return the settings of an engine that shows a lake."""
    return {
        "memory_limit": memory_limit,
        "threads": min(THREADS_MAX, os.cpu_count() or 1),
        "temp_directory": os.fspath(lake_path / TMP / f"{random_hex(12)}.spill"),
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,
    }


@dataclass(slots=True)
class Draft:
    """A lens open to be written; `content` is what it would be as a file."""

    connection: duckdb.DuckDBPyConnection
    _file: int

    @classmethod
    def opened(cls, base: bytes | None, lake_path: Path) -> Draft:
        """Open a copy of a lens, or an empty one; raises duckdb.Error for what is no database, OSError for no space."""
        # Not in the lake: DuckDB cannot write a database below a folder with a question mark in its name.
        file, path = tempfile.mkstemp(prefix="batchpond-", suffix=".duckdb")
        connection = duckdb.connect(":memory:", config=config(lake_path, MEMORY_LIMIT))
        options = f"STORAGE_VERSION {literal(STORAGE_VERSION)}, BLOCK_SIZE {BLOCK_BYTES}, " if base is None else ""
        try:
            with os.fdopen(file, "wb") as content:
                content.write(base or b"")
            if base is None:
                os.unlink(path)
            connection.execute(f"ATTACH {literal(path)} AS {CATALOG} ({options}RECOVERY_MODE 'no_wal_writes')")
            connection.execute(f"{QUIET} USE {CATALOG}")
            return cls(connection, os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except BaseException:
            connection.close()
            raise
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def content(self) -> bytes:
        """Write what has changed and return the whole database."""
        self.connection.execute(f"CHECKPOINT {CATALOG}")
        size = os.fstat(self._file).st_size
        content = os.pread(self._file, size, 0)
        if len(content) != size:
            raise OSError(f"{len(content):,} of {size:,} bytes of the views could be read")
        return content

    def close(self) -> None:
        """Let go of it, and of its file; once more does nothing, for its number may be another file's by then."""
        self.connection.close()
        if self._file >= 0:
            os.close(self._file)
        self._file = -1


Seen = tuple[str, int, int, int]  # a lens on disk: its path, and what changes when another is put in its place


def seen(lens_path: Path) -> Seen | None:
    """Return how a lens stands on disk; None where there is none."""
    try:
        found = lens_path.stat()
    except FileNotFoundError:
        return None
    return os.path.abspath(lens_path), found.st_ino, found.st_size, found.st_mtime_ns


class _AtHand:
    """The draft of the lens that this process wrote or opened last."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._seen: Seen | None = None
        self._draft: Draft | None = None
        self._lost: list[Draft] = []

    @contextlib.contextmanager
    def of(self, lens_path: Path) -> Iterator[Draft | None]:
        """Lend the draft of the lens on disk, opened from it where another is at hand; None for no lens.

        It may be ahead of that, by what this process has published since, and is no current one then.
        Who writes says `keep`; whoever fails has it closed.
        """
        with self._lock:
            now = seen(lens_path)
            if now is None or now != self._seen:
                self.keep(None, None)
            try:
                if now is not None and self._draft is None:
                    with contextlib.suppress(duckdb.Error, OSError):
                        self.keep(Draft.opened(lens_path.read_bytes(), lens_path.parent), now)
                yield self._draft
            except BaseException:
                self.keep(None, None)
                raise

    def keep(self, draft: Draft | None, now: Seen | None) -> None:
        """Have this draft at hand, which became the lens that was `seen`; another one is closed."""
        with self._lock:
            if self._draft is not None and self._draft is not draft:
                self._draft.close()
            self._draft, self._seen = draft, now

    def forget(self) -> None:
        """Start anew in a forked child: what is at hand is its parent's, and so is its file."""
        self._lock = threading.RLock()
        if self._draft is not None:
            self._lost.append(self._draft)
        self._draft = self._seen = None


AT_HAND = _AtHand()
os.register_at_fork(after_in_child=AT_HAND.forget)


# A row per study, attempt or shard, never one per request, and the events that they are folded from.
AS_TABLES: Final = {
    "attempts": "TRUE",
    "studies_current": "kind IN ('planned', 'forget')",
    "retries": "kind = 'voided' OR (kind = 'sharded' AND shard_kind = 'retry')",
}


def as_tables(connection: duckdb.DuckDBPyConnection, changed: Mapping[str, Sequence[str] | None]) -> None:
    """Make those of AS_TABLES anew that read one of the changed tables of the lake; the open lens shows these already.

    `changed` has the paths of the files that a table gained, None where it lost some too. A table of events is folded
    anew for what the new ones are about alone. Where a file turns out to be unreadable the view stays one, and says so
    to whoever reads it.
    """
    rows = connection.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = current_database()")
    tables, views = {name for (name,) in rows.fetchall()}, refresh.view_names()
    for script in map(refresh.script, AS_TABLES):
        is_table = script.name in tables
        read = refresh.reached([script.name], lambda name: refresh.script(name) if name in views else None)
        changes = {name for one in read.values() for name in one.needs} & TABLES.keys() & changed.keys()
        new = changed.get(EVENTS.name) if is_table and changes <= {EVENTS.name} else None
        if is_table and not changes:
            continue
        with contextlib.suppress(duckdb.Error), _all_or_nothing(connection):
            sql = f"SELECT 1 FROM read_parquet($new, hive_partitioning = FALSE) WHERE {AS_TABLES[script.name]} LIMIT 1"
            if new is None or (new and connection.execute(sql, {"new": [*new]}).fetchall()):
                _fold(connection, script, new, is_table=is_table)
            continue
        connection.execute(f"DROP {'TABLE' if is_table else 'VIEW'} {quoted(script.name)}")
        connection.execute(script.text)


def _fold(connection: duckdb.DuckDBPyConnection, script: Script, new: Sequence[str] | None, *, is_table: bool) -> None:
    """Make a view's table from the events, read once; with `new` ones only the rows of the shards that they name."""
    table = quoted(script.name)
    chosen, kept = f"FROM events WHERE {AS_TABLES[script.name]}", ""
    if new is not None and script.name == "attempts":
        attempts, shards = (", ".join(map(literal, ids)) for ids in _named(connection, new))
        if not shards:
            return
        chosen = (
            f"FROM events WHERE attempt_id IN ({attempts or 'NULL'})"
            f" UNION ALL FROM events WHERE kind = 'voided' AND shard_id IN ({shards})"
        )
        kept = f" UNION ALL FROM {table} WHERE coalesce(shard_id NOT IN ({shards}), TRUE)"
    # Our own table stands before the lake's of that name; its SELECT is bound and planned over that instead of files.
    connection.execute(f"CREATE TEMP TABLE {EVENTS.name} AS {chosen}")
    connection.execute(f"CREATE TABLE {quoted(_STAGED)} AS ({script.select}){kept}")
    connection.execute(f"DROP TABLE temp.{EVENTS.name}")
    connection.execute(f"DROP {'TABLE' if is_table else 'VIEW'} {table}")
    connection.execute(f"ALTER TABLE {quoted(_STAGED)} RENAME TO {table}")


def _named(connection: duckdb.DuckDBPyConnection, paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the attempts whose rows events in these files may change, and their shards: all attempts of each shard."""
    rows = connection.execute(query(__package__, "touched"), {"paths": list(paths)}).fetchall() if paths else []
    return [attempt for attempt, _ in rows if attempt is not None], list(dict.fromkeys(shard for _, shard in rows))


_STAGED: Final = "lens_staged"


@contextlib.contextmanager
def _all_or_nothing(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    connection.execute("BEGIN")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


ROWS_MAX: Final = 100_000  # of a larger study, what has a row per request stays a view: its texts fill the memory
_WITHOUT_TEXTS: Final = frozenset({"pair_judgments", "item_judgments"})  # with which nearly every metric begins


# What is not made, the lake's tables and the macros, is the lens's.
_HERE_FIRST: Final = f"SET search_path = 'memory.main,{CATALOG}.main'"
_OF_THOSE: Final = "request_id IN (SELECT request_id FROM plan_current)"
_ASKED: Final = f"{_OF_THOSE} AND attempt_id IN (SELECT attempt_id FROM shard_requests JOIN attempts USING (shard_id))"
# Of tables with words most queries read few columns.
_NEAR: Final = {"shard_requests": ("TABLE", _OF_THOSE), "responses": ("VIEW", _ASKED), "judgments": ("VIEW", _ASKED)}


def narrow(connection: duckdb.DuckDBPyConnection, sql: str, near: str, values: Mapping[str, object]) -> None:
    """Have a query find in the plan only what a condition chooses, and of the answers only those to that.

    A view of a million requests joins them all before it drops what nobody asked for. Of what is chosen it says the
    same, but for what it makes of several rows of the plan, some of which were not chosen. The condition may name any
    of the query's `values`.
    """
    named = {name: value for name, value in values.items() if re.search(rf"\${name}\b", near)}
    connection.execute(_HERE_FIRST)
    connection.execute(f"CREATE TABLE plan_current AS FROM plan_current WHERE {near}", named)
    for table, (kind, chosen) in _NEAR.items():
        connection.execute(f"CREATE {kind} {table} AS FROM {CATALOG}.{table} WHERE {chosen}")
    for script in _lacking(sql, {"plan_current", *_NEAR, *AS_TABLES}):
        connection.execute(script.text)


def _lacking(sql: str, made: Container[str]) -> list[Script]:
    """Return the views that a query reads and that are not made, each after those that it reads itself."""
    definer = {name: script for script in refresh.scripts() for name in script.views if name not in made}
    wanted = refresh.reached(refresh.parse("", "", sql).needs, definer.get)
    return [script for script in refresh.scripts() if script.name in wanted]


class Worked:
    """A study's views on a connection of its own to the lens; the lens stays as it is."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, study: str, rows_max: int = ROWS_MAX) -> None:
        self._connection = connection
        self._of_study = f"WHERE study = {literal(study)}"
        self._made = set(AS_TABLES)
        self._n_rows: dict[str, int] = {}  # of each table that holds this study's rows alone
        connection.execute(_HERE_FIRST)
        counted = connection.execute(f"SELECT count(*) FROM plan {self._of_study}").fetchall()
        self._is_small = counted[0][0] <= rows_max
        if self._is_small:
            connection.execute("SET threads = 1")  # what threads say to each other takes longer than they save

    def make(self, sql: str) -> None:
        """Make every view that a query reads, after those that it reads itself."""
        for script in _lacking(sql, self._made):
            self._make(script)
            self._made.add(script.name)

    def _make(self, script: Script) -> None:
        read = script.needs & (refresh.view_names() | TABLES.keys())
        is_of_study = read <= self._n_rows.keys()
        is_kept = not self._is_small and script.stage == "1_core" and script.name not in _WITHOUT_TEXTS
        if is_kept or not (is_of_study or script.header["grain"].startswith("study")):
            self._connection.execute(script.text)
            return
        if is_of_study and not any(map(self._n_rows.get, read)):  # of nothing comes nothing, without a plan
            ((columns,),) = self._connection.execute(query(__package__, "columns"), {"name": script.name}).fetchall()
            content = f"({columns})"
        else:
            content = f"AS FROM ({script.select}\n) {'' if is_of_study else self._of_study}"
        counted = self._connection.execute(f"CREATE TABLE {quoted(script.name)} {content}").fetchall()
        self._n_rows[script.name] = sum(n for (n,) in counted)
