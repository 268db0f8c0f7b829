"""The rows behind an exhibit, for whoever wants to count again: as CSV inside the page, and as a command."""

from __future__ import annotations

import base64
import shlex

import polars as pl

from batchpond.results.report.parts import Exhibit

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def csv_link(frame: pl.DataFrame) -> str:
    """Return a `data:` address that holds the rows as CSV; text that a spreadsheet would run gets a ' before it."""
    return "data:text/csv;charset=utf-8;base64," + base64.b64encode(csv_text(frame).encode()).decode("ascii")


def csv_text(frame: pl.DataFrame) -> str:
    """Return rows as CSV, lists joined and formulas defused."""
    flat = frame.with_columns(
        *(pl.col(name).list.join(", ") for name, kind in frame.schema.items() if isinstance(kind, pl.List)),
    )
    texts = [name for name, kind in flat.schema.items() if kind == pl.String]
    return flat.with_columns(pl.col(name).map_elements(_defused, return_dtype=pl.String) for name in texts).write_csv()


def _defused(text: str) -> str:
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text


def command(exhibit: Exhibit) -> str:
    """Return the shell command that prints all rows of an exhibit."""
    return exhibit.command or f"batchpond query {shlex.quote(exhibit.sql)} --format csv"
