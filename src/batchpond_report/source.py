"""What a report reads: one snapshot of a lake's views, a bounded number of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import duckdb
import polars as pl

from batchpond.errors import UsageError
from batchpond.lake.tables import literal, query, reading
from batchpond.text import escape
from batchpond.views import database
from batchpond.views.draft import Worked
from batchpond.views.read import check_study, studies
from batchpond_report.parts import FIGURE_ROWS_MAX

ROWS_MAX: Final = FIGURE_ROWS_MAX
STUDIES_MAX: Final = 20
DIGITS: Final = 9  # sums of floats depend on the order in which threads add; what is left does not
_TWO_CANDIDATES: Final = "candidate_first IS NOT NULL AND candidate_second IS NOT NULL"


@dataclass(frozen=True, slots=True)
class Rows:
    """What a query gave: at most as many rows as were asked for, texts made harmless, floats to DIGITS digits."""

    sql: str
    frame: pl.DataFrame
    is_cut: bool = False
    command: str = ""  # what prints all rows, where that is not the query

    def __len__(self) -> int:
        return len(self.frame)

    @classmethod
    def of(cls, frame: pl.DataFrame, command: str) -> Rows:
        """Return the first rows of a frame that `command` prints whole."""
        return cls("", harmless(frame.head(ROWS_MAX)), is_cut=len(frame) > ROWS_MAX, command=command)

    @property
    def cut(self) -> str:
        """A sentence where the query has more rows than these."""
        return (
            f"The first {len(self):,} rows, of which alone this caption speaks; there are more." if self.is_cut else ""
        )


class Source:
    """One study in a lake, read through one connection, so that a sync beside it changes nothing in between."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, study: str) -> None:
        self.study = study
        self.name = literal(study)
        self._connection = connection
        with reading("the views"):
            self._worked = Worked(connection, study)
            connection.execute(query(__package__, "findings"))
        self._known: dict[tuple[str, int], Rows] = {}
        tasks = self.values(
            f"SELECT task FROM plan_current WHERE study = {self.name}\n"
            f"UNION\nSELECT coalesce(task, 'pairwise') FROM imported_judgments WHERE study = {self.name}\nORDER BY task"
        )
        self.tasks = frozenset(str(row["task"]) for row in tasks)
        self.is_adaptive = self.has("plan_current", "purpose IS NOT NULL")
        self.has_people = self.has("imported_judgments", "provider = 'human'")
        self.has_candidates = any(self.has(one, _TWO_CANDIDATES) for one in ("plan_current", "imported_judgments"))

    @property
    def has_pairs(self) -> bool:
        """Whether the study compares two things at a time."""
        return bool(self.tasks & {"pairwise", "ranking", "listwise"})

    def rows(self, sql: str, limit: int = ROWS_MAX) -> Rows:
        """Return the first rows of a SELECT, which states its order; raises LakeError when a file cannot be read."""
        if (sql, limit) not in self._known:
            frame = self._frame(sql, limit + 1)
            self._known[sql, limit] = Rows(sql, harmless(frame.head(limit)), is_cut=len(frame) > limit)
        return self._known[sql, limit]

    def values(self, sql: str, limit: int = ROWS_MAX) -> list[dict[str, Any]]:
        """Return the first rows of a SELECT as they are, to look something up with; never to be shown."""
        return self._frame(sql, limit).to_dicts()

    def _frame(self, sql: str, limit: int) -> pl.DataFrame:
        with reading("the views"):
            self._worked.make(sql)
            return pl.DataFrame(self._connection.sql(f"{sql}\nLIMIT {limit:d}"))

    def reading(self, view: str) -> duckdb.DuckDBPyConnection:
        """Return the connection, for whoever reads a whole view of the study there; LakeError as above."""
        with reading("the views"):
            self._worked.make(f"FROM {view}")
        return self._connection

    def is_small(self, items_max: int) -> bool:
        """Whether the study is known to be of at most so many items."""
        facts = self.values(f"SELECT n_items FROM report_facts WHERE study = {self.name}", limit=1)
        return bool(facts) and facts[0]["n_items"] <= items_max

    def has(self, view: str, where: str) -> bool:
        """Whether a view has a row of this study for which a condition holds."""
        return bool(self.values(f"SELECT 1 AS found FROM {view} WHERE study = {self.name} AND {where}", limit=1))


def harmless(frame: pl.DataFrame) -> pl.DataFrame:
    """Return rows whose texts hold no control characters, and whose floats are rounded to DIGITS digits."""
    visible = partial(escape, keep_newlines=True)
    texts = [name for name, kind in frame.schema.items() if kind == pl.String]
    numbers = [name for name, kind in frame.schema.items() if kind.is_float()]
    return frame.with_columns(
        *(pl.col(name).map_elements(visible, return_dtype=pl.String) for name in texts),
        *(pl.col(name).round_sig_figs(DIGITS) for name in numbers),
    )


@contextmanager
def opened(lake_path: Path, study: str | None) -> Iterator[Source]:
    """Open one study of a lake; raises UsageError when there is none, no such one, or a choice of several."""
    with closing(database.connect(lake_path)) as connection:
        yield Source(connection, _chosen(connection, study))


def _chosen(connection: duckdb.DuckDBPyConnection, study: str | None) -> str:
    with reading("the views"):
        check_study(connection, study)
        names = [study] if study is not None else studies(connection)
    shown = ", ".join(names[:STUDIES_MAX]) + (", ..." if len(names) > STUDIES_MAX else "")
    if len(names) == 1:
        return names[0]
    if not names:
        raise UsageError("there is nothing to report: the lake holds no study", hint="`batchpond demo` makes one")
    raise UsageError(f"the lake holds several studies: {shown}", hint="name one: `batchpond report STUDY`")
