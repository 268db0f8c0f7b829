"""Values as text: what a terminal may safely show, and one spelling per type for every format."""

from __future__ import annotations

import base64
import math
import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any

import orjson

from batchpond.text import UNSAFE_BUT_NEWLINE, escape

_JSON_OPTIONS = orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS


def _json_escape_one(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def json_text(value: Any, *, indent: bool = False) -> str:
    """Return compact JSON on one line (or indented), with unsafe characters as \\u escapes.

    Times are RFC 3339 in UTC, NaN and infinities null, decimals exact numbers, bytes base64.
    """
    options = _JSON_OPTIONS | (orjson.OPT_INDENT_2 if indent else 0)
    text = orjson.dumps(value, default=_json_default, option=options).decode()
    return UNSAFE_BUT_NEWLINE.sub(_json_escape_one, text)


def _json_default(value: Any) -> Any:  # noqa: PLR0911 - one line per type
    match value:
        case Decimal():
            return orjson.Fragment(format(value, "f")) if value.is_finite() else None
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode("ascii")
        case timedelta():
            return _duration(value.total_seconds())
        case set() | frozenset():
            return sorted(value)
        case PurePath():
            return str(value)
        case tuple() if hasattr(value, "nanoseconds"):
            return _interval(value)
        case tuple():
            return list(value)
    raise TypeError(f"no JSON spelling for {type(value).__name__}")


def _duration(seconds: float) -> str:
    sign = "-" if seconds < 0 else ""
    return f"{sign}PT{abs(seconds):.6f}".rstrip("0").rstrip(".") + "S"


def _interval(value: Any) -> str:
    text = "P"
    if value.months:
        text += f"{value.months}M"
    if value.days:
        text += f"{value.days}D"
    if value.nanoseconds or text == "P":
        text += _duration(value.nanoseconds / 1e9).replace("P", "", 1)
    return text


def cell(value: Any) -> str:  # noqa: PLR0911 - one line per type
    """Return a value's one spelling in csv, markdown and tables; an unknown value is empty."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case Enum():
            return str(value.value)
        case str():
            return value
        case float():
            return _number(value)
        case Decimal():
            return format(value, "f")
        case datetime():
            return json_text(value)[1:-1]
        case date() | time():
            return value.isoformat()
        case list() | dict() | tuple() | set():
            text = json_text(value)
            return text[1:-1] if text.startswith('"') else text
        case bytes() | timedelta():
            return json_text(value)[1:-1]
    return str(value)


def short_cell(value: Any) -> str:
    """Return a value as a person at a terminal reads it: six digits, minutes, a dash for unknown."""
    match value:
        case None:
            return "-"
        case float() if math.isfinite(value):
            return f"{value:.6g}"
        case datetime():
            moment = value.astimezone(UTC) if value.tzinfo else value
            return moment.strftime("%Y-%m-%d %H:%M:%S")
    return escape(cell(value))


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def usd(value: float | Decimal | None) -> str:
    """Return money for people; an unknown price is said to be unknown, never shown as zero."""
    if value is None:
        return "unknown"
    amount = float(value)
    return f"${amount:,.4f}" if 0 < abs(amount) < 1 else f"${amount:,.2f}"


def age(seconds: float | None) -> str:
    """Return a duration in its two largest units."""
    if seconds is None:
        return "-"
    left = max(0, round(seconds))
    for size, unit, below, below_unit in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if left >= size:
            return f"{left // size}{unit} {left % size // below}{below_unit}"
    return f"{left}s"


def provider_text(provider: str, mode: str) -> str:
    """Return a provider's name, with the way it is asked unless that is the usual one."""
    return provider if mode == "batch" else f"{provider} ({mode})"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun, thousands separated."""
    endings = {"batch": "batches", "study": "studies", "settled batch": "settled batches"}
    return f"{count:,} {noun if count == 1 else endings.get(noun, noun + 's')}"
