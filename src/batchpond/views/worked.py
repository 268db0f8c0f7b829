"""One study's views, each worked out once, as tables that are made when a query comes to name them.

A view over views is planned and run as one tree, each part as often as it is named. Whoever asks a study's views one
after another, as a report does, shares their parts this way instead.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from typing import Final

import duckdb

from batchpond.lake.schemas import TABLES
from batchpond.lake.tables import literal, query, quoted
from batchpond.views import refresh
from batchpond.views.draft import AS_TABLES, CATALOG
from batchpond.views.refresh import Script

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
