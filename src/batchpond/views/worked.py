"""One study's views, each worked out once, as tables that are made when a query comes to name them.

A view over views is planned and run as one tree, each part as often as it is named. Whoever asks a study's views one
after another, as a report does, shares their parts this way instead.
"""

from __future__ import annotations

import re
from typing import Final

import duckdb

from batchpond.lake.schemas import TABLES
from batchpond.lake.tables import literal, quoted
from batchpond.views import refresh
from batchpond.views.draft import AS_TABLES, CATALOG
from batchpond.views.refresh import Script

ROWS_MAX: Final = 100_000  # of a larger study, what has a row per request stays a view: its texts fill the memory
_BY_REQUEST: Final = "1_core"
# What the optimisers of some DuckDB lines take a tenth of all time for, over rows that are few anyway.
_IN_VAIN: Final = (
    "SELECT coalesce(string_agg(name, ','), '') FROM duckdb_optimizers()"
    " WHERE name IN ('partial_aggregate_pushdown', 'projection_pullup')"
)
_HEAD: Final = re.compile(r"(?:--[^\n]*\n)*CREATE OR REPLACE VIEW \w+ AS\b")


class Worked:
    """A study's views on a connection of its own to the lens; the lens stays as it is."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, study: str, rows_max: int = ROWS_MAX) -> None:
        self._connection = connection
        self._study = {"study": study}
        self._made: set[str] = set()
        self._definer = {name: script for script in refresh.scripts() for name in script.views}
        connection.execute("USE memory")
        for name in (*TABLES, *AS_TABLES):
            connection.execute(f"CREATE VIEW {quoted(name)} AS FROM {CATALOG}.{quoted(name)}")
            self._made.add(name)
        for script in refresh.scripts():
            if script.macros:
                connection.execute(script.text)
        counted = connection.execute("SELECT count(*) FROM plan WHERE study = $study", self._study).fetchall()
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

    def _make(self, script: Script) -> None:
        is_kept = not self._is_small and script.stage == _BY_REQUEST
        if not is_kept and script.header["grain"].startswith("study"):
            rows = _HEAD.sub("", script.text, count=1).rstrip("; \n")
            text = f"CREATE TABLE {quoted(script.name)} AS FROM ({rows}\n) WHERE study = $study"
            self._connection.execute(text, self._study)
        else:
            self._connection.execute(script.text)
        self._made.add(script.name)
