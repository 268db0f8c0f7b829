"""A TOML document and where its keys stand, so that every error names the file, the line and the dotted key."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from batchpond.errors import StudyError

Key = tuple[str | int, ...]

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_ASSIGNMENT = re.compile(
    r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*="""
)
_PART = re.compile(r"""\"[^\"]*\"|'[^']*'|[^.\s]+""")
_BARE = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


class Table:
    """One table of a TOML document: what is written in it, and how to say that something there is wrong."""

    def __init__(self, source: str, text: str, key: Key, data: object) -> None:
        self.source = source
        self.text = text
        self.key = key
        if not isinstance(data, dict):
            self.fail((), f"must be a table, not {kind_of(data)}")
        self.data: dict[str, Any] = data

    def has(self, name: str) -> bool:
        """Return whether the key is written."""
        return name in self.data

    def required(self, name: str) -> str:
        """Return a text that must be written here; raises StudyError when it is not."""
        if not self.has(name):
            self.fail(name, "is missing")
        return str(self.data[name])

    def inside(self, name: str) -> Table:
        """Return a table inside this one, empty when it is not written."""
        return Table(self.source, self.text, (*self.key, name), self.data.get(name, {}))

    def without(self, name: str) -> Table:
        """Return this table as if a key were not written."""
        rest = {key: value for key, value in self.data.items() if key != name}
        return Table(self.source, self.text, self.key, rest)

    def elements(self, name: str) -> list[Table]:
        """Return the tables of a list inside this one; a bare text stands for `use = "..."`."""
        entries = enumerate(self.data.get(name, ()))
        return [
            Table(self.source, self.text, (*self.key, name, place), {"use": entry} if isinstance(entry, str) else entry)
            for place, entry in entries
        ]

    def where(self, *key: str | int) -> str:
        """Return `file:line: key` for messages."""
        whole = (*self.key, *key)
        line = find_line(self.text, whole)
        place = self.source if line is None else f"{self.source}:{line}"
        return f"{place}: {dotted(whole)}" if whole else place

    def fail(self, key: str | Key, problem: str, hint: str | None = None) -> NoReturn:
        """Raise a StudyError about a key, or with () about the table itself."""
        parts = (key,) if isinstance(key, str) else key
        raise StudyError(f"{self.where(*parts)} {problem}", hint=hint)

    def refuse_unknown(self, unknown: Iterable[tuple[Key, Sequence[str]]]) -> None:
        """Raise a StudyError that names all keys nobody knows, each given with those that are known beside it."""
        found = list(unknown)
        hints = [
            did_you_mean(str(key[-1]), known) or f"known keys here: {', '.join(known) or 'none'}"
            for key, known in found
        ]
        if found:
            lines = (f"{self.where(*key)} is not a known key" for key, _ in found)
            raise StudyError("\n".join(lines), hint=" ".join(dict.fromkeys(hints)))

    def choose(self, name: str, value: str, choices: Sequence[str]) -> str:
        """Return a value that is one of a few words; raises StudyError for any other."""
        if value not in choices:
            self.fail(name, f"is {value!r}, not one of {', '.join(choices)}", did_you_mean(value, choices))
        return value


def parse(data: bytes, source: str, see: str = "see `batchpond init`") -> Table:
    """Return the whole of a TOML document; raises StudyError for bad UTF-8 or syntax."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise StudyError(f"{source}:{line}: not valid UTF-8 ({error.reason})", hint="save the file as UTF-8") from None
    try:
        return Table(source, text, (), tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise StudyError(f"{source}: not valid TOML: {error}", hint=f"strings need quotes; {see}") from None


def find_line(text: str, key: Key) -> int | None:
    """Return the line (from 1) on which a key, or else the table around it, is written, if found."""
    names = tuple(part for part in key if isinstance(part, str))
    lists = {names_in(key[:place]): part for place, part in enumerate(key) if isinstance(part, int)}
    best: int | None = None
    depth = 0
    header: tuple[str, ...] = ()
    places: dict[tuple[str, ...], int] = {}
    quotes: str | None = None
    for number, line in enumerate(text.split("\n"), 1):
        if quotes is not None:
            quotes = None if line.count(quotes) % 2 else quotes
            continue
        if match := _HEADER.match(line):
            header = _names(match[2])
            if match[1] == "[[":
                places = _next(places, header)
        match = _ASSIGNMENT.match(line)
        written = header + _names(match[1]) if match else header
        is_here = all(places.get(within, place) == place for within, place in lists.items() if _begins(header, within))
        if written and _begins(names, written) and is_here:
            if written == names and match:
                return number
            best, depth = (number, len(written)) if len(written) > depth else (best, depth)
        quotes = next((q for q in ('"""', "'''") if line.count(q) % 2), None)
    return best


def _names(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))


def names_in(key: Key) -> tuple[str, ...]:
    """Return a key without positions in lists, as headers name it."""
    return tuple(part for part in key if isinstance(part, str))


def _begins(names: tuple[str, ...], head: tuple[str, ...]) -> bool:
    return names[: len(head)] == head


def _next(places: Mapping[tuple[str, ...], int], header: tuple[str, ...]) -> dict[tuple[str, ...], int]:
    """Return the place in each list of tables after one more `[[header]]`; the lists inside it begin anew."""
    kept = {names: place for names, place in places.items() if names == header or not _begins(names, header)}
    return {**kept, header: places.get(header, -1) + 1}


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


def did_you_mean(written: str, known: Sequence[str]) -> str | None:
    """Return the question that names what is nearly written so, if anything is."""
    close = difflib.get_close_matches(written, known, n=2)
    return f"did you mean {' or '.join(f'`{name}`' for name in close)}?" if close else None


def kind_of(value: object) -> str:
    """Return what a TOML value is, as a message says it."""
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
