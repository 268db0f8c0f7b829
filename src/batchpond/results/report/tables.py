"""An exhibit's rows: as printed cells, the same for the page and for Markdown, and for whoever wants to count again."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from batchpond.results.report.numbers import Kind, interval, shown
from batchpond.results.report.parts import Column, Exhibit
from batchpond.text import defused

TABLE_ROWS_MAX: Final = 200
INTERVAL_TITLE: Final = "95 % interval"


@dataclass(frozen=True, slots=True)
class Cell:
    """A printed value, or a head; numbers stand to the right."""

    text: str
    is_number: bool = False


@dataclass(frozen=True, slots=True)
class Printed:
    """A table ready to be set; the first `n_names` columns say what a row is. `is_cut`: there are more rows."""

    heads: Sequence[Cell]
    rows: Sequence[Sequence[Cell]]
    n_names: int
    is_cut: bool


def table(exhibit: Exhibit) -> Printed:
    """Return an exhibit's table as text."""
    heads = [cell for column in exhibit.columns for cell in _heads(column)]
    shown_rows = exhibit.frame.head(TABLE_ROWS_MAX).to_dicts()
    rows = [[cell for column in exhibit.columns for cell in _cells(column, row)] for row in shown_rows]
    n_names = next(
        (n for n, column in enumerate(exhibit.columns) if column.kind is not Kind.TEXT), len(exhibit.columns)
    )
    return Printed(heads, rows, n_names, is_cut=exhibit.is_cut or len(exhibit.frame) > TABLE_ROWS_MAX)


def _heads(column: Column) -> Iterator[Cell]:
    is_number = column.kind is not Kind.TEXT
    yield Cell(column.title, is_number)
    if column.has_ends:
        yield Cell(INTERVAL_TITLE, is_number)


def _cells(column: Column, row: dict[str, Any]) -> Iterator[Cell]:
    is_number = column.kind is not Kind.TEXT
    yield Cell(shown(row[column.name], column.kind), is_number)
    if column.has_ends:
        low, high = (row[name] for name in column.ends)
        yield Cell(interval(low, high, column.kind), is_number)


def csv_link(frame: pl.DataFrame) -> str:
    """Return a `data:` address that holds the rows as CSV; text that a spreadsheet would run gets a ' before it."""
    return "data:text/csv;charset=utf-8;base64," + base64.b64encode(csv_text(frame).encode()).decode("ascii")


def csv_text(frame: pl.DataFrame) -> str:
    """Return rows as CSV, lists joined and formulas defused."""
    flat = frame.with_columns(
        *(pl.col(name).list.join(", ") for name, kind in frame.schema.items() if isinstance(kind, pl.List)),
    )
    texts = [name for name, kind in flat.schema.items() if kind == pl.String]
    return flat.with_columns(pl.col(name).map_elements(defused, return_dtype=pl.String) for name in texts).write_csv()


def command(exhibit: Exhibit) -> str:
    """Return the shell command that prints all rows of an exhibit."""
    return exhibit.command or f"batchpond query {shlex.quote(exhibit.sql)} --format csv"
