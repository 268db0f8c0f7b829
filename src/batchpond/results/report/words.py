"""Counts in words, and what several sections say alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import polars as pl

from batchpond.results.report.numbers import spread
from batchpond.results.report.source import Rows

PPI: Final = (
    "PPI++ corrects by the labelled part and is to be preferred where that part was drawn at random. 95 % intervals, "
    "none with fewer than five labels."
)


def total(frame: pl.DataFrame, column: str) -> int:
    """Return the sum of a column of counts."""
    return int(frame[column].sum() or 0)


def ranged(frame: pl.DataFrame, column: str) -> str:
    """Return the smallest and the largest of a column of counts, in words."""
    low, high = frame[column].min(), frame[column].max()
    return spread(int(low or 0), int(high or 0))  # type: ignore[arg-type] # counts are integers


def left_out(frame: pl.DataFrame, words: Iterable[tuple[str, str]], *, seen: int = 1) -> str:
    """Return a sentence on what counts say was left out: pairs of column and what it counts, each `seen` so often."""
    said = [f"{total(frame, column) // seen:,} {what}" for column, what in words if column in frame.columns]
    found = [text for text in said if not text.startswith("0 ")]
    return f"Left out: {', '.join(found)}." if found else "Nothing was left out."


def sentences(*parts: str) -> str:
    """Join what there is to say."""
    return " ".join(part for part in parts if part)


def cut(rows: Rows) -> str:
    """Return a sentence when a query has more rows than are shown."""
    return f"The first {len(rows):,} rows; there are more." if rows.is_cut else ""


def counted(n: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"
