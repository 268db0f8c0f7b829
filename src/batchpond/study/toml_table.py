"""Reading TOML strictly: every key is expected, typed and in range, or an error that says where.

The errors name the file, the line where it can be found, and the dotted key.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from typing import Any, NoReturn

from batchpond.errors import StudyError

Key = tuple[str | int, ...]

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_ASSIGNMENT = re.compile(
    r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*="""
)
_PART = re.compile(r"""\"[^\"]*\"|'[^']*'|[^.\s]+""")
_BARE = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_DEPTH_MAX = 8


def parse(data: bytes, source: str) -> tuple[dict[str, Any], str]:
    """Return a TOML document and its text; raises StudyError for bad UTF-8 or syntax."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise StudyError(f"{source}:{line}: not valid UTF-8 ({error.reason})", hint="save the file as UTF-8") from None
    try:
        return tomllib.loads(text), text
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise StudyError(
            f"{source}: not valid TOML: {error}", hint="strings need quotes; see `batchpond init`"
        ) from None


def find_line(text: str, key: Key) -> int | None:
    """Return the line (from 1) on which a key, or else the table around it, is written, if found."""
    names = tuple(part for part in key if isinstance(part, str))
    wanted_index = tuple(part for part in key if isinstance(part, int))
    best: int | None = None
    header: tuple[str, ...] = ()
    counts: dict[tuple[str, ...], int] = {}
    quotes: str | None = None
    for number, line in enumerate(text.split("\n"), 1):
        if quotes is not None:
            quotes = None if line.count(quotes) % 2 else quotes
            continue
        if match := _HEADER.match(line):
            header = _names(match[2])
            counts[header] = counts.get(header, -1) + 1
        match = _ASSIGNMENT.match(line)
        written = header + _names(match[1]) if match else header
        if written and written == names[: len(written)] and _is_at(header, counts, wanted_index):
            if written == names and match:
                return number
            best = number if match else best or number
        quotes = next((q for q in ('"""', "'''") if line.count(q) % 2), None)
    return best


def _names(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))


def _is_at(header: tuple[str, ...], counts: Mapping[tuple[str, ...], int], index: tuple[int, ...]) -> bool:
    # Lists of tables stand at the top only, so the position is that of the outermost name.
    return not index or counts.get(header[:1], 0) == index[0]


def dotted(key: Key) -> str:
    """Return a key as people write it; positions in a list count from 1."""
    text = ""
    for part in key:
        if isinstance(part, int):
            text += f"[{part + 1}]"
        else:
            name = part if _BARE.fullmatch(part) else f'"{part}"'
            text += f".{name}" if text else name
    return text


class TomlTable:
    """One table of a TOML document whose keys are known."""

    def __init__(self, source: str, text: str, key: Key, data: object, known: Sequence[str]) -> None:
        self.source = source
        self.text = text
        self.key = key
        if not isinstance(data, dict):
            self.fail(None, f"must be a table, not {_kind(data)}")
        self.data: dict[str, Any] = data
        for name in data:
            if name not in known:
                self._fail_unknown(name, known)

    def has(self, name: str) -> bool:
        """Return whether the key is written."""
        return name in self.data

    def where(self, name: str | None = None) -> str:
        """Return `file:line: key` for messages."""
        key = self.key if name is None else (*self.key, *name.split("."))
        line = find_line(self.text, key)
        place = self.source if line is None else f"{self.source}:{line}"
        return f"{place}: {dotted(key)}" if key else place

    def fail(self, name: str | None, problem: str, hint: str | None = None) -> NoReturn:
        """Raise a StudyError about a key, or about the table itself."""
        raise StudyError(f"{self.where(name)} {problem}", hint=hint)

    def _fail_unknown(self, name: str, known: Sequence[str]) -> NoReturn:
        hint = _did_you_mean(name, known) or f"known keys here: {', '.join(known)}"
        self.fail(name, "is not a known key", hint)

    def string(
        self, name: str, default: str | None = None, *, pattern: str | None = None, size_max: int = 10_000
    ) -> str:
        """Return a text; raises StudyError when it is missing without default, empty, or ill-formed."""
        value = self._value(name, default)
        if not isinstance(value, str):
            self.fail(name, f"must be a string, not {_kind(value)}")
        if not value.strip() or len(value) > size_max:
            self.fail(name, "is empty" if not value.strip() else f"is longer than {size_max:,} characters")
        if pattern is not None and not re.fullmatch(pattern, value):
            self.fail(name, f"is {value!r}, which does not have the form {pattern}")
        return value

    def choice(self, name: str, default: str | None, choices: Sequence[str]) -> str:
        """Return one of a few words."""
        value = self.string(name, default)
        if value not in choices:
            self.fail(name, f"is {value!r}, not one of {', '.join(choices)}", _did_you_mean(value, choices))
        return value

    def integer(self, name: str, default: int | None, low: int, high: int) -> int | None:
        """Return a whole number from `low` to `high`, or the default."""
        if name not in self.data:
            return default
        value = self.data[name]
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(name, f"must be a whole number, not {_kind(value)}")
        if not low <= value <= high:
            self.fail(name, f"is {value}, not between {low:,} and {high:,}")
        return value

    def number(self, name: str, default: float | None, low: float, high: float) -> float | None:
        """Return a number from `low` to `high`, or the default."""
        if name not in self.data:
            return default
        value = self.data[name]
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(name, f"must be a number, not {_kind(value)}")
        if not low <= value <= high:  # false for nan too
            self.fail(name, f"is {value}, not between {low:g} and {high:g}")
        return float(value)

    def boolean(self, name: str, default: bool) -> bool:
        """Return true or false."""
        value = self.data.get(name, default)
        if not isinstance(value, bool):
            self.fail(name, f"must be true or false, not {_kind(value)}")
        return value

    def strings(self, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """Return a list of different non-empty texts; a single text is a list of one."""
        value = self.data.get(name, list(default))
        entries = [value] if isinstance(value, str) else value
        if not isinstance(entries, list) or not all(isinstance(entry, str) and entry.strip() for entry in entries):
            self.fail(name, "must be a string or a list of non-empty strings")
        if not entries or len(set(entries)) != len(entries):
            self.fail(name, "is an empty list" if not entries else "names something twice")
        return tuple(entries)

    def table(self, name: str, known: Sequence[str]) -> TomlTable:
        """Return a table inside this one, empty when it is not written."""
        return TomlTable(self.source, self.text, (*self.key, name), self.data.get(name, {}), known)

    def entries(self, name: str, count_max: int) -> list[tuple[Key, Any]]:
        """Return the elements of a required list with their keys."""
        value = self._value(name, None)
        if not isinstance(value, list):
            self.fail(name, f"must be a list of tables, written [[{name}]], not {_kind(value)}")
        if not 1 <= len(value) <= count_max:
            self.fail(name, f"has {len(value)} entries, not between 1 and {count_max}")
        return [((*self.key, name, index), entry) for index, entry in enumerate(value)]

    def json(self, name: str) -> dict[str, Any]:
        """Return a table of free parameters; raises StudyError for what JSON cannot say."""
        value = self.data.get(name, {})
        if not isinstance(value, dict):
            self.fail(name, f"must be a table, not {_kind(value)}")
        self._check_json((name,), value)
        return value

    def _check_json(self, key: tuple[str, ...], value: object) -> None:
        where = ".".join(key)
        if len(key) > _DEPTH_MAX:
            self.fail(where, f"is nested deeper than {_DEPTH_MAX} levels")
        match value:
            case bool() | str():
                pass
            case int() if not -(2**63) <= value < 2**63:
                self.fail(where, "does not fit 64 bits")
            case float() if not math.isfinite(value):
                self.fail(where, f"is {value}, which JSON cannot say")
            case datetime() | date() | time():
                self.fail(where, "is a date or time; write it as a string")
            case list():
                for index, entry in enumerate(value):
                    self._check_json((*key, str(index + 1)), entry)
            case dict():
                for name, entry in value.items():
                    self._check_json((*key, name), entry)
            case _:
                pass

    def _value(self, name: str, default: object) -> Any:
        value = self.data.get(name, default)
        if value is None:
            self.fail(name, "is missing")
        return value


def _did_you_mean(written: str, known: Sequence[str]) -> str | None:
    close = difflib.get_close_matches(written, known, n=2)
    return f"did you mean {' or '.join(f'`{name}`' for name in close)}?" if close else None


def _kind(value: object) -> str:
    match value:
        case bool():
            return "true or false"
        case str():
            return "a string"
        case int() | float():
            return "a number"
        case list():
            return "a list"
        case dict():
            return "a table"
        case _:
            return "a date or time"
