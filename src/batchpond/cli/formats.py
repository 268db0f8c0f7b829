"""Rows in each output format, as pure generators of text: the bytes are the contract; no terminal obeys them."""

from __future__ import annotations

import base64
import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from itertools import chain
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import orjson

from batchpond.text import UNSAFE_BUT_NEWLINE, defused, escape, plural, shown, usd

if TYPE_CHECKING:
    import pyarrow as pa

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
            return shown(value)
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
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(repr(value)) or repr(value)
        case Decimal():
            return format(value, "f")
        case datetime() | bytes() | timedelta():
            return json_text(value)[1:-1]
        case date() | time():
            return value.isoformat()
        case list() | dict() | tuple() | set():
            text = json_text(value)
            return text[1:-1] if text.startswith('"') else text
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


def summed(values: Iterable[float | None], form: str = "{} + unknown") -> str:
    """Return the sum of money for people; where a part is unknown, what is known of it, in that form."""
    costs = list(values)
    known = [cost for cost in costs if cost is not None]
    if any(known) and len(known) < len(costs):
        return form.format(usd(sum(known)))
    return "unknown" if len(known) < len(costs) else usd(sum(known))


def priced_by(modes: Iterable[str]) -> str:
    """Return by which prices questions are priced that are asked so."""
    found = {*modes}
    if "live" not in found:
        return "batch prices"
    return "standard prices" if found == {"live"} else "batch prices, live calls at standard ones"


def age(seconds: float | None) -> str:
    """Return a duration in its two largest units."""
    if seconds is None:
        return "-"
    left = max(0, round(seconds))
    for size, unit, below, below_unit in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s")):
        if left >= size:
            return f"{left // size}{unit} {left % size // below}{below_unit}"
    return f"{left}s"


def provider_text(provider: str, mode: str) -> str:
    """Return a provider's name, with the way it is asked unless that is the usual one."""
    return provider if mode == "batch" else f"{provider} ({mode})"


class Figure(str):
    """A number in words of its own, such as with its interval: never cut."""


TERMINAL_ROWS_MAX = 500
BLOCKS_MAX = 3
TEXT_FLOOR = 16
CUT_FLOOR = 8
GAP = 2
ROOM_MIN = 20
BLOCK_LINES_MAX = 20


class Format(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    TSV = "tsv"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    MARKDOWN = "markdown"
    PARQUET = "parquet"


Row = Sequence[Any]


def unique_names(names: Sequence[str]) -> list[str]:
    """Return column names with repeats numbered, since a JSON object has each key once."""
    taken: set[str] = set()
    result = []
    for name in names:
        candidate, n = name, 1
        while candidate in taken:
            n += 1
            candidate = f"{name}_{n}"
        taken.add(candidate)
        result.append(candidate)
    return result


def arrow_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    """Yield an Arrow stream's rows as Python values; times in UTC."""
    for batch in batches:
        yield from zip(*(_values(column) for column in batch.columns), strict=True)


def _values(column: pa.Array) -> list[Any]:
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        zone = "UTC" if column.type.tz else None
        column = column.cast(pa.timestamp("us", tz=zone), safe=False)
    elif pa.types.is_time64(column.type) or pa.types.is_duration(column.type):
        column = column.cast(pa.time64("us") if pa.types.is_time64(column.type) else pa.duration("us"), safe=False)
    try:
        values: list[Any] = column.to_pylist(maps_as_pydicts="lossy")
    except (ValueError, OverflowError):
        # Beyond what Python's calendar holds, such as DuckDB's infinite timestamps.
        values = [text and text.replace(" ", "T") for text in column.cast(pa.string()).to_pylist()]
    return values


def json_array(names: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    """Yield one JSON array, one row per line; no rows is `[]`."""
    opening = "[\n"
    for row in rows:
        yield opening + json_text(dict(zip(names, row, strict=True)))
        opening = ",\n"
    yield "[]\n" if opening == "[\n" else "\n]\n"


def json_lines(names: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    """Yield one JSON object per line."""
    for row in rows:
        yield json_text(dict(zip(names, row, strict=True))) + "\n"


def csv_lines(names: Sequence[str], rows: Iterable[Row], *, is_terminal: bool = False) -> Iterator[str]:
    """Yield RFC 4180 lines ended by a line feed; null is nothing, an empty text is `""`.

    A text that a spreadsheet would take for a formula gets a ' before it, as in what `export` writes.
    """
    for row in chain([names], rows):
        line = ",".join(_csv_cell(value) for value in row)
        yield (escape(line, keep_newlines=True) if is_terminal else line) + "\n"


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    text = cell(defused(value) if isinstance(value, str) else value)
    if not text or text != text.strip() or any(mark in text for mark in ',"\n\r'):
        return '"' + text.replace('"', '""') + '"'
    return text


def tab_lines(names: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    """Yield tab-separated lines, untruncated, floats to nine digits; tabs, line ends, control characters escaped."""
    for row in chain([names], rows):
        values = (float(f"{value:.9g}") if isinstance(value, float) else value for value in row)
        yield "\t".join(escape(cell(value)) for value in values) + "\n"


def markdown_lines(names: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    """Yield a Markdown table."""
    yield "| " + " | ".join(_markdown_cell(name) for name in names) + " |\n"
    yield "|" + "|".join(" --- " for _ in names) + "|\n"
    for row in rows:
        yield "| " + " | ".join(_markdown_cell(value) for value in row) + " |\n"


def _markdown_cell(value: Any) -> str:
    text = cell(value).replace("\\", "\\\\").replace("|", "\\|").replace("&", "&amp;").replace("<", "&lt;")
    lines = text.replace("\r\n", "\n").split("\n")
    return "<br>".join(escape(line) for line in lines)


def terminal_lines(names: Sequence[str], rows: Sequence[Row], width: int, *, has_color: bool) -> Iterator[str]:
    """Yield an aligned table of the columns that fit the width, and which do not; of few rows a block each.

    Columns that say the same in every row are said once, above it, where not all of them fit.
    """
    shown = [[short_cell(value) for value in row] for row in rows]
    kinds = [{type(row[place]) for row in rows if row[place] is not None} for place in range(len(names))]
    is_number = [bool(kind) and kind <= {int, float, Decimal, Figure} for kind in kinds]
    heads = [escape(name) for name in names]
    wanted: Sequence[int] = range(len(heads))
    same = [i for i in wanted if shown and all(row[i] == shown[0][i] for row in shown)]
    varying = [i for i in wanted if i not in same]
    is_table = not 0 < len(rows) <= BLOCKS_MAX or (varying and _fits(heads, shown, is_number, varying, width))
    if is_table and not _fits(heads, shown, is_number, wanted, width):
        wanted = _leading(heads, shown, is_number, varying, width) if varying else wanted
        for i in same if varying else ():
            yield set_width(f"{heads[i]}: {shown[0][i]}", width) + "\n"
        left_out = [heads[i] for i in varying if i not in wanted]
        if left_out:
            text = f"no room for {plural(len(left_out), 'column')}: {', '.join(left_out)}"
            yield from (f"{line}\n" for line in folded(text, width))
        yield "\n"
    cells = [[row[i] for i in wanted] for row in shown]
    heads, is_number = [heads[i] for i in wanted], [is_number[i] for i in wanted]
    widths = _fitted_widths(heads, cells, is_number, width)
    if widths is None:
        yield from _blocks(heads, cells, width, has_color=has_color)
        return
    yield _bold(_line(heads, widths, is_number), has_color=has_color) + "\n"
    for row in cells:
        yield _line(row, widths, is_number) + "\n"


def _fits(
    heads: Sequence[str], shown: Sequence[Sequence[str]], is_number: Sequence[bool], wanted: Sequence[int], width: int
) -> bool:
    chosen = [[row[i] for i in wanted] for row in (heads, *shown)]
    return _fitted_widths(chosen[0], chosen[1:], [is_number[i] for i in wanted], width) is not None


def _leading(
    heads: Sequence[str], shown: Sequence[Sequence[str]], is_number: Sequence[bool], wanted: Sequence[int], width: int
) -> Sequence[int]:
    """Return the first columns, as many as fit; one at least."""
    n = len(wanted)
    while n > 1 and not _fits(heads, shown, is_number, wanted[:n], width):
        n -= 1
    return wanted[:n]


def set_width(text: str, width: int) -> str:
    """Return a text no wider than that."""
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


def folded(line: str, width: int) -> list[str]:
    """Return a line as lines no wider than that; what stands in backticks, and words, stay whole to be copied."""
    held = re.sub(r"`[^`]*`", lambda match: match[0].replace(" ", "\0"), line)
    lines = textwrap.wrap(held, max(width, ROOM_MIN), break_long_words=False, break_on_hyphens=False)
    return [one.replace("\0", " ") for one in lines] if len(line) > width else [line]


def aligned(
    heads: Sequence[str], rows: Sequence[Sequence[str]], *, n_text_columns: int, width: int | None = None
) -> list[str]:
    """Return ready-made cells as aligned lines; columns after the first few are right-aligned.

    Within a `width`, texts are cut where that helps.
    """
    from rich.cells import cell_len

    safe = [[escape(text) for text in row] for row in (heads, *rows)]
    is_number = [index >= n_text_columns for index in range(len(heads))]
    widths = None if width is None else _fitted_widths(safe[0], safe[1:], is_number, width, CUT_FLOOR)
    widths = widths or [max(cell_len(text) for text in column) for column in zip(*safe, strict=True)]
    return [_line(row, widths, is_number) for row in safe]


def _fitted_widths(
    heads: Sequence[str],
    shown: Sequence[Sequence[str]],
    is_number: Sequence[bool],
    width: int,
    least: int = TEXT_FLOOR,
) -> list[int] | None:
    from rich.cells import cell_len

    natural = [max(cell_len(head), *(min(cell_len(row[i]), width) for row in shown), 0) for i, head in enumerate(heads)]
    floor = [
        max(cell_len(head), full if number else min(full, least))
        for head, full, number in zip(heads, natural, is_number, strict=True)
    ]
    room = width - GAP * (len(heads) - 1)
    if sum(floor) > room:
        return None
    widths = list(natural)
    while sum(widths) > room:
        widest = max(range(len(widths)), key=lambda i: widths[i] - floor[i])
        widths[widest] -= 1
    return widths


def _line(cells: Sequence[str], widths: Sequence[int], is_number: Sequence[bool]) -> str:
    from rich.cells import cell_len

    parts = []
    for text, width, number in zip(cells, widths, is_number, strict=True):
        shown = set_width(text, width)
        pad = " " * (width - cell_len(shown))
        parts.append(pad + shown if number else shown + pad)
    return (" " * GAP).join(parts).rstrip()


def _blocks(heads: Sequence[str], shown: Sequence[Sequence[str]], width: int, *, has_color: bool) -> Iterator[str]:
    from rich.cells import cell_len, chop_cells, set_cell_size

    label = max((cell_len(head) for head in heads), default=0)
    room = max(ROOM_MIN, width - label - GAP)
    for number, row in enumerate(shown, start=1):
        yield _bold(f"row {number}", has_color=has_color) + "\n"
        for head, text in zip(heads, row, strict=True):
            first, *more = chop_cells(text, room)[: BLOCK_LINES_MAX + 1] or [""]
            yield f"{set_cell_size(head, label)}{' ' * GAP}{first}\n"
            for line in more[: BLOCK_LINES_MAX - 1]:
                yield f"{' ' * (label + GAP)}{line}\n"
            if len(more) == BLOCK_LINES_MAX:
                yield f"{' ' * (label + GAP)}…\n"


def _bold(text: str, *, has_color: bool) -> str:
    return f"\x1b[1m{text}\x1b[0m" if has_color else text
