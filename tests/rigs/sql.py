"""Views over rows given in a test: the product's own SQL, with chosen tables or views replaced."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from batchpond.views import database

TESTS = Path(__file__).parents[1]
CELL = ("study", "template_id", "rubric_id", "provider", "request_model", "thinking")
CELL_DEFAULT = dict(zip(CELL, ("study", "template", "rubric", "provider", "model", "none"), strict=True))
RELATIVE_TOLERANCE = 1e-9
ABSOLUTE_TOLERANCE = 1e-12

Row = dict[str, Any]
_OPEN = ExitStack()


@cache
def _all_views() -> duckdb.DuckDBPyConnection:
    # Making every view takes half a second: once per test run is enough.
    connection = _OPEN.enter_context(database.empty())
    connection.execute("SET threads = 1")  # what threads say to each other takes longer than a few rows do
    return connection


@cache
def columns_of_all() -> dict[str, dict[str, str]]:
    """Return the columns of every table and view with their types: a DESCRIBE would bind all that a view reads."""
    found: dict[str, dict[str, str]] = {}
    sql = "SELECT table_name, column_name, data_type FROM duckdb_columns() ORDER BY table_oid, column_index"
    for name, column, kind in _all_views().execute(sql).fetchall():
        found.setdefault(name, {})[column] = kind
    return found


@contextmanager
def views_over(tables: Mapping[str, pa.Table]) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open all views of the product, with `tables` standing in for the tables or views of those names.

    Given judgments are the `calls` too, and those of people `imported_judgments`, unless these are given.
    """
    connection = _all_views()
    columns_of_all()
    connection.execute("BEGIN")  # going back costs nothing; making the views again would bind all that they read
    try:
        tables = {**_calls(tables), **_imported(tables), **tables}
        for name, rows in tables.items():
            replace(connection, name, rows)
        yield connection
    finally:
        connection.execute("ROLLBACK")


def _calls(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Return what the given judgments are as `calls`."""
    names = {"item": "item_first", "candidate": "candidate_first"}
    judged = [tables[name] for name in ("pair_judgments", "item_judgments") if name in tables]
    known = columns_of_all()["calls"]
    parts = [part.rename_columns([names.get(name, name) for name in part.column_names]) for part in judged]
    chosen = [part.select([name for name in known if name in part.column_names]) for part in parts]
    return {"calls": pa.concat_tables(chosen, promote_options="default")} if chosen else {}


def _imported(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Return what the given judgments of people are as imported ones."""
    task = {"pair_judgments": "pairwise", "item_judgments": None}
    known = columns_of_all()["imported_judgments"]
    found = []
    for name in task.keys() & tables.keys():
        for row in tables[name].to_pylist():
            if row.get("provider") == "human":
                given = row | {"item_first": row.get("item_first", row.get("item"))}
                given |= {"candidate_first": row.get("candidate_first", row.get("candidate"))}
                given |= {"task": task[name] or row["task"]}
                found.append({column: value for column, value in given.items() if column in known})
    return {"imported_judgments": table(found)} if found else {}


def replace(connection: duckdb.DuckDBPyConnection, name: str, rows: pa.Table) -> None:
    """Let `rows` stand in for a table or view; columns that they lack are NULL."""
    columns = columns_of_all()[name]
    unknown = set(rows.column_names) - columns.keys()
    assert not unknown, f"{name} has no column {sorted(unknown)}"
    connection.register(f"given_{name}", rows)
    chosen = ", ".join(
        f"CAST({quoted(column) if column in rows.column_names else 'NULL'} AS {kind}) AS {quoted(column)}"
        for column, kind in columns.items()
    )
    connection.execute(f"CREATE OR REPLACE TABLE held_{name} AS SELECT {chosen} FROM given_{name}")
    connection.unregister(f"given_{name}")
    connection.execute(f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM held_{name}")


def quoted(name: str) -> str:
    """Return an identifier in quotes."""
    return '"' + name.replace('"', '""') + '"'


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> pa.Table:
    """Return rows as a table of strings; `columns` names them when there are no rows."""
    names = list(dict.fromkeys([*columns, *(name for row in rows for name in row)]))
    return pa.table({name: pa.array([text(row.get(name)) for row in rows], pa.string()) for name in names})


def text(value: Any) -> str | None:
    """Return a value as DuckDB casts it from text; NULL stays NULL."""
    if value is None or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else repr(value)


def read_csv(block: str) -> list[Row]:
    """Read a CSV text; an empty field is NULL."""
    return [{name: value or None for name, value in row.items()} for row in csv.DictReader(io.StringIO(block))]


def judged(rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Complete rows of `pair_judgments` from what a test says about them.

    `verdict` may be any outcome word (unparsed, error ...) or None for a request not answered yet.
    """
    return [_judged(dict(row)) for row in rows]


def _judged(row: Row) -> Row:
    first, second, word = row["item_first"], row["item_second"], row.get("verdict")
    lo, hi = sorted((first, second), key=str.encode)
    is_vote = word in {"first", "second", "tie"}
    completed = {**CELL_DEFAULT, "unit_id": "", "repeat_no": 1, "pair_id": f"{lo} | {hi}", "item_lo": lo, "item_hi": hi}
    completed |= {"is_lo_first": first == lo, "direction": "forward" if first == lo else "reverse"}
    completed |= {"outcome": "decided" if word in {"first", "second"} else word, "origin": "batch"}
    completed |= {name: value for name, value in row.items() if value is not None}
    return completed | {"verdict": word if is_vote else None}


def judged_items(rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Complete rows of `item_judgments`; `verdict` may be true, false, any outcome word, or None if not answered yet.

    A label or score without a verdict is decided; so is a row whose outcome is given.
    """
    return [_judged_item(dict(row)) for row in rows]


def _judged_item(row: Row) -> Row:
    word = row.pop("verdict", None)
    said = word if word in {"true", "false"} else None
    is_decided = said or row.get("label") or row.get("score") is not None
    completed = {**CELL_DEFAULT, "task": "compliance", "unit_id": "", "repeat_no": 1, "origin": "batch"}
    completed |= {"outcome": "decided" if is_decided else word}
    completed |= {name: value for name, value in row.items() if value is not None}
    return completed | {"verdict": said}


def result(connection: duckdb.DuckDBPyConnection, query: str) -> list[Row]:
    """Return a query's rows as dicts; a query is planned once, where a relation over it would be planned twice."""
    connection.execute(f"CREATE OR REPLACE TEMP TABLE answer AS {query}")
    return connection.sql("FROM answer").to_arrow_table().to_pylist()


def differs(got: Any, expected: Any) -> bool:
    """Whether a value is not the expected one; floats to 1e-9."""
    if isinstance(expected, float) or isinstance(got, float):
        if got is None or expected is None:
            return got is not expected
        return not math.isclose(float(got), float(expected), rel_tol=RELATIVE_TOLERANCE, abs_tol=ABSOLUTE_TOLERANCE)
    return bool(got != expected)
