"""Numbers as a paper prints them, with a real minus and a dash for what is not known, and counts in words."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

import polars as pl

from batchpond.text import usd

UNKNOWN: Final = "\u2013"
MINUS: Final = "\u2212"
TIMES: Final = "\u00d7"
NARROW: Final = "\u202f"  # a narrow space that does not break
_SUPERSCRIPTS: Final = str.maketrans("-0123456789", "\u207b⁰¹²³⁴⁵⁶⁷⁸⁹")
_P_MIN: Final = 1e-300


class Kind(StrEnum):
    """What a column holds, hence how it is printed and aligned."""

    TEXT = "text"
    COUNT = "count"
    NUMBER = "number"
    SHARE = "share"
    P = "p"
    USD = "usd"
    TIME = "time"
    RANGE = "range"  # text that stands to the right, as numbers do


def shown(value: Any, kind: Kind) -> str:
    """Return a value as text; NULL and what is no number as a dash."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return UNKNOWN
    match kind:
        case Kind.TEXT | Kind.RANGE:
            return str(value)
        case Kind.COUNT:
            return f"{round(value):,}".replace("-", MINUS)
        case Kind.TIME:
            return moment(value)
        case _:
            return _OF_FLOATS[kind](float(value))


def number(value: float) -> str:
    """Return a number to three significant digits, thousands apart."""
    size = abs(value)
    if size >= 1000:
        text = f"{value:,.0f}"
    elif value == 0:
        text = "0"
    elif size < 1e-4:
        return _power(value, 2)
    else:
        text = f"{value:,.{max(0, 2 - math.floor(math.log10(size))):d}f}"
        text = text if size >= 0.1 else f"{value:.4f}".rstrip("0")
    return text.replace("-", MINUS)


def share(value: float) -> str:
    """Return a share of 1 in per cent, to a tenth."""
    return f"{round(100 * value, 1) + 0.0:.1f}{NARROW}%".replace("-", MINUS)  # + 0.0: no zero has a sign


def interval(low: Any, high: Any, kind: Kind) -> str:
    """Return both ends of an interval in brackets; an open end as infinity."""
    if low is None and high is None:
        return UNKNOWN
    unit = f"{NARROW}%" if kind is Kind.SHARE else ""
    ends = [
        end if value is None or math.isinf(value) else shown(value, kind).removesuffix(unit)
        for value, end in ((low, f"{MINUS}∞"), (high, "∞"))
    ]
    return f"[{ends[0]}, {ends[1]}]"


def probability(value: float) -> str:
    """Return a p value: three decimals, or two digits and a power of ten."""
    if value < _P_MIN:
        return "<" + NARROW + _power(_P_MIN, 0)
    if value < 0.001:
        return _power(value, 1)
    return "1" if value >= 0.9995 else f"{value:.3f}"


def moment(value: datetime) -> str:
    """Return a time in UTC to the second."""
    return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _power(value: float, digits: int) -> str:
    mantissa, exponent = f"{value:.{digits}e}".split("e")
    return f"{mantissa} {TIMES} 10{str(int(exponent)).translate(_SUPERSCRIPTS)}".replace("-", MINUS)


_OF_FLOATS: Final = {Kind.NUMBER: number, Kind.SHARE: share, Kind.P: probability, Kind.USD: usd}

PPI: Final = (
    "PPI++ corrects by the labelled part and is to be preferred where that part was drawn at random from all; where "
    "somebody chose it, what it corrects is that part. 95 % intervals are for statements in general, clustered by "
    "statement, and by prompt where these share prompts; none with labels on fewer than five of either."
)


def total(frame: pl.DataFrame, column: str) -> int:
    """Return the sum of a column of counts."""
    return int(frame[column].sum() or 0)


def ranged(frame: pl.DataFrame, column: str) -> str:
    """Return the smallest and the largest of a column of counts, in words."""
    low, high = (int(end or 0) for end in (frame[column].min(), frame[column].max()))  # type: ignore[arg-type] # counts
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def left_out(frame: pl.DataFrame, words: Iterable[tuple[str, str]], *, seen: int = 1) -> str:
    """Return a sentence on what counts say was left out: pairs of column and what it counts, each `seen` so often."""
    counts = [(total(frame, column) // seen, what) for column, what in words if column in frame.columns]
    found = [f"{n:,} {what.replace('s ', ' ', 1) if n == 1 else what}" for n, what in counts if n]
    return f"Left out: {', '.join(found)}." if found else "Nothing was left out."


def sentences(*parts: str) -> str:
    """Join what there is to say."""
    return " ".join(part for part in parts if part)
