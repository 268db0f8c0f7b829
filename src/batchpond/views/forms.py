"""How views come into a database: bound one by one over stubs, and as tables where they are small and dear to plan.

A view over views over views is planned as one tree, each part as often as it is named. What has a row per study or
attempt is therefore kept as a table in the lens: made from the same files, in the same file, so that a reader sees
both of one moment or neither. Without Python the same SELECT is a view (`ddl`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import duckdb

from batchpond.lake.schemas import TABLES
from batchpond.lake.tables import quoted
from batchpond.views import refresh
from batchpond.views.refresh import Script

AS_TABLES: Final = ("studies_current", "attempts")  # a row per study or attempt, never one per request


def create(connection: duckdb.DuckDBPyConnection) -> None:
    """Make every macro and view over the tables that are there.

    Making a view binds all that it reads. So each is made while what it reads are empty tables of its columns:
    once in running order, to learn the columns, and then backwards, each before those that it reads.
    """
    views = [script for script in refresh.scripts() if script.views]
    for script in refresh.scripts():
        connection.execute(script.text)
        if script.views:
            columns = _columns(connection, script.name)
            connection.execute(f"DROP VIEW {quoted(script.name)}")
            connection.execute(f"CREATE TABLE {quoted(script.name)} ({columns})")
    for script in reversed(views):
        connection.execute(f"DROP TABLE {quoted(script.name)}")
        connection.execute(script.text)


def as_tables(connection: duckdb.DuckDBPyConnection, changed: Collection[str]) -> None:
    """Make those of AS_TABLES anew that read one of the changed tables of the lake; the open lens shows these already.

    Where a file turns out to be unreadable the view stays one, and says so to whoever reads it.
    """
    for script in refresh.scripts():
        if script.name not in AS_TABLES:
            continue
        is_table = _is_table(connection, script.name)
        if is_table and not _tables_read(script) & set(changed):
            continue
        connection.execute(f"DROP {'TABLE' if is_table else 'VIEW'} {quoted(script.name)}")
        connection.execute(script.text)
        with suppress(duckdb.Error), _all_or_nothing(connection):
            connection.execute(f"CREATE TABLE {quoted(_STAGED)} AS FROM {quoted(script.name)}")
            connection.execute(f"DROP VIEW {quoted(script.name)}")
            connection.execute(f"ALTER TABLE {quoted(_STAGED)} RENAME TO {quoted(script.name)}")


_STAGED: Final = "lens_staged"


@contextmanager
def _all_or_nothing(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    connection.execute("BEGIN")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _is_table(connection: duckdb.DuckDBPyConnection, name: str) -> bool:
    sql = "SELECT count(*) FROM duckdb_tables() WHERE database_name = current_database() AND table_name = ?"
    return bool(connection.execute(sql, [name]).fetchall()[0][0])


def _columns(connection: duckdb.DuckDBPyConnection, name: str) -> str:
    sql = """
    SELECT column_name, data_type FROM duckdb_columns()
    WHERE database_name = current_database() AND table_name = ? ORDER BY column_index
    """
    return ", ".join(f"{quoted(column)} {kind}" for column, kind in connection.execute(sql, [name]).fetchall())


def _tables_read(script: Script) -> frozenset[str]:
    """Return the lake's tables that a view reads, itself or through others."""
    by_name = {name: other for other in refresh.scripts() for name in other.views}
    found: set[str] = set()
    pending, seen = [script], {script.name}
    while pending:
        needs = pending.pop().needs
        found |= needs & TABLES.keys()
        further = needs & by_name.keys() - seen
        seen |= further
        pending += [by_name[name] for name in further]
    return frozenset(found)
