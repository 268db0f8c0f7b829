"""Reading what others wrote: a value of JSON as the type asked for, or None, and what separates a sheet's cells."""

from __future__ import annotations

import csv
import math
from datetime import UTC, datetime
from typing import Any, Final

import orjson

_INT64_MAX: Final = 2**63 - 1
_MS_FROM: Final = 1e11  # unix seconds reach this in the year 5138; a larger number is milliseconds
_US_FROM: Final = 1e14
_DELIMITERS: Final = ";\t|"


def mapping(value: object) -> dict[str, Any]:
    """Return a JSON object, or an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def json_object(text: str | bytes) -> dict[str, Any]:
    """Return the JSON object that a text is, or an empty one for anything else."""
    try:
        return mapping(orjson.loads(text))
    except orjson.JSONDecodeError:
        return {}


def inside(value: object, path: str) -> object:
    """Return what JSON objects inside one another hold at a path of names with dots between; None for nothing."""
    for name in path.split("."):
        value = mapping(value).get(name)
    return value


def sequence(value: object, limit: int) -> list[Any]:
    """Return a JSON array's first `limit` values, or an empty list for anything else."""
    return value[:limit] if isinstance(value, list) else []


def text(value: object) -> str | None:
    """Return a string, or None for anything else."""
    return value if isinstance(value, str) else None


def identifier(value: object) -> str | None:
    """Return a non-empty string; some servers send "" for an absent file id."""
    return value if isinstance(value, str) and value else None


def word(value: object, limit: int = 200) -> str | None:
    """Return a string or number as short text: codes arrive as either."""
    if isinstance(value, str):
        return value[:limit]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return repr(value)[:limit] if abs(value) < _INT64_MAX else None


def count(value: object) -> int | None:
    """Return a whole number of 0 to 2^63-1, also from "12" or 12.0; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        value = int(value) if len(value) < 20 and value.isascii() and value.isdigit() else None
    if isinstance(value, float):
        value = int(value) if math.isfinite(value) and value.is_integer() else None
    return value if isinstance(value, int) and 0 <= value <= _INT64_MAX else None


def moment(value: object) -> datetime | None:
    """Return a UTC time from unix seconds, ms or us, or ISO 8601 text; None for 0 and nonsense."""
    if isinstance(value, str):
        stripped = value.strip()
        try:
            parsed = datetime.fromisoformat(stripped)
        except ValueError:
            return _from_unix(float(stripped)) if stripped.isascii() and stripped.isdigit() else None
        # Eight digits are an ISO date to the standard library, but no provider sends one.
        try:
            return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
        except OverflowError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return _from_unix(value)


def _from_unix(value: float) -> datetime | None:
    if not 0 < value < 1e18:  # false for NaN too
        return None
    scale = 1_000_000 if value >= _US_FROM else 1_000 if value >= _MS_FROM else 1
    try:
        return datetime.fromtimestamp(value / scale, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def delimiter_of(header: str) -> str:
    """Return what stands between the names of a header: a comma, unless it has none and the sniffer finds another."""
    try:
        return "," if "," in header else csv.Sniffer().sniff(header, _DELIMITERS).delimiter
    except csv.Error:
        return ","
