"""An exhibit's rows as printed cells, the same for the page and for Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from batchpond.results.report.numbers import Kind, interval, shown
from batchpond.results.report.parts import Column, Exhibit

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
