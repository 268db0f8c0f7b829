"""One study's views, each worked out once, as tables that are made when a query comes to name them.

A view over views is planned and run as one tree, each part as often as it is named. Whoever asks a study's views one
after another, as a report does, shares their parts this way instead.
"""

from __future__ import annotations

from typing import Final

import duckdb

from batchpond.lake.schemas import TABLES
from batchpond.lake.tables import literal, query, quoted
from batchpond.views import refresh
from batchpond.views.draft import AS_TABLES, CATALOG
from batchpond.views.refresh import Script

ROWS_MAX: Final = 100_000  # of a larger study, what has a row per request stays a view: its texts fill the memory
_WITHOUT_TEXTS: Final = frozenset({"pair_judgments", "item_judgments"})  # with which nearly every metric begins
# What the optimisers of some DuckDB lines take a tenth of all time for, over rows that are few anyway.
_IN_VAIN: Final = (
    "SELECT coalesce(string_agg(name, ','), '') FROM duckdb_optimizers()"
    " WHERE name IN ('partial_aggregate_pushdown', 'projection_pullup')"
)


class Worked:
    """A study's views on a connection of its own to the lens; the lens stays as it is."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, study: str, rows_max: int = ROWS_MAX) -> None:
        self._connection = connection
        self._of_study = f"WHERE study = {literal(study)}"
        self._made = set(AS_TABLES)
        self._n_rows: dict[str, int] = {}  # of each table that holds this study's rows alone
        self._definer = {name: script for script in refresh.scripts() for name in script.views}
        # What is not made, the lake's tables and the macros, is the lens's.
        connection.execute(f"SET search_path = 'memory.main,{CATALOG}.main'")
        counted = connection.execute(f"SELECT count(*) FROM plan {self._of_study}").fetchall()
        self._is_small = counted[0][0] <= rows_max
        if self._is_small:
            connection.execute("SET threads = 1")  # what threads say to each other takes longer than they save
            connection.execute(f"SET disabled_optimizers = {literal(connection.execute(_IN_VAIN).fetchall()[0][0])}")

    def make(self, sql: str) -> None:
        """Make every view that a query reads, after those that it reads itself."""
        needs = refresh.parse("", "", sql).needs
        wanted = refresh.reached(needs, lambda name: None if name in self._made else self._definer.get(name))
        for script in refresh.scripts():
            if script.name in wanted:
                self._make(script)
                self._made.add(script.name)

    def _make(self, script: Script) -> None:
        read = script.needs & (self._definer.keys() | TABLES.keys())
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
