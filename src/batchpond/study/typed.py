"""A TOML document, where its keys stand, and a table read as a record whose annotations say what may stand there.

Every error names the file, the line and the dotted key. The types, bounds, defaults and descriptions of a record's
fields (`msgspec.Meta`) are the only place where the shape of a file is written; its JSON Schema is made of them. All
keys that nobody knows are named at once; then the first value that does not fit.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from functools import cache
from typing import Any, Final, NoReturn, TypeVar

import msgspec
from msgspec import Meta, inspect

from batchpond.errors import StudyError
from batchpond.files import SLASHES, decoded

Key = tuple[str | int, ...]

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_ASSIGNMENT = re.compile(
    r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*="""
)
_PART = re.compile(r"""\"[^\"]*\"|'[^']*'|[^.\s]+""")
_NOUNS = (
    (bool, "true or false"), (str, "a string"), ((int, float), "a number"), (list, "a list"), (dict, "a table"),
)  # fmt: skip
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

    def refuse(self, names: Iterable[str], problem: str, hint: str | None = None) -> None:
        """Raise a StudyError about the first of these keys that is written, if any is."""
        for name in filter(self.has, names):
            self.fail(name, problem, hint)

    def refuse_twice(self, name: str, labels: Sequence[str]) -> None:
        """Raise a StudyError where entries of a list cannot be told apart."""
        twice = sorted({label for label in labels if labels.count(label) > 1})
        if twice:
            problem = f"has more than one {', '.join(twice)}"
            self.fail(name, problem, "each must differ, or answers could not be told apart")

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
    text = decoded(data, source)
    try:
        return Table(source, text, (), tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        place = re.search(r"at line (\d+)", str(error))
        is_escape = place is not None and "\\" in text.split("\n")[int(place[1]) - 1]
        hint = SLASHES if is_escape else f"strings need quotes; {see}"
        raise StudyError(f"{source}: not valid TOML: {error}", hint=hint) from None


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
    return next((noun for kind, noun in _NOUNS if isinstance(value, kind)), "a date or time")


T = TypeVar("T")
Wrong = tuple[Key, str, str | None]

DEPTH_MAX: Final = 8
_WHOLE: Final = ("^(?:", r")(?!\n)$")
_KINDS: Final[dict[type[inspect.Type], tuple[str, type | tuple[type, ...]]]] = {
    inspect.StrType: ("a string", str), inspect.EnumType: ("a string", str), inspect.BoolType: ("true or false", bool),
    inspect.IntType: ("a whole number", int), inspect.FloatType: ("a number", (int, float)),
    inspect.VarTupleType: ("a list", list), inspect.DataclassType: ("a table", dict),
    inspect.DictType: ("a table", dict), inspect.NoneType: ("", ()),
}  # fmt: skip
_info: Callable[[Any], inspect.Type] = cache(inspect.type_info)  # which takes milliseconds


def about(meaning: str, **shown: Any) -> Meta:
    """Return what a key means; `shown` is JSON Schema of its own, of which `enum` and `uniqueItems` are held to."""
    return Meta(description=meaning, extra_json_schema=shown or None)


def between(low: float, high: float, meaning: str | None = None) -> Meta:
    """Return the bounds of a number, both included, and what it means."""
    return Meta(ge=low, le=high, description=meaning)


def at_most(size_max: int, meaning: str | None = None) -> Meta:
    """Return how many characters a text may have, which is never blank."""
    return Meta(min_length=1, max_length=size_max, pattern=r"\S", description=meaning)


def form(pattern: str, meaning: str | None = None) -> Meta:
    """Return the form that a text has from end to end, written so that JSON Schema understands it too."""
    return Meta(min_length=1, pattern=pattern.join(_WHOLE), description=meaning)


def entries(count_max: int, meaning: str | None = None, *, count_min: int = 1, **shown: Any) -> Meta:
    """Return how many entries a list may have."""
    return Meta(min_length=count_min, max_length=count_max, description=meaning, extra_json_schema=shown or None)


def read(table: Table, kind: type[T]) -> T:
    """Return a table as a record; raises StudyError that names file, line and key of what does not fit."""
    seen = _Seen()
    data = seen.value(_info(kind), table.data, ())
    table.refuse_unknown(seen.unknown)
    if seen.wrong:
        table.fail(*seen.wrong[0])
    return msgspec.convert(data, kind)


def of_plain(data: object, kind: type[T], other: Callable[[type, Any], Any]) -> T:
    """Return the record that plain values describe, as `asdict` gave them; raises ValueError where they do not.

    `other` makes what is no record: from its type and value.
    """
    seen = _Seen()
    seen.value(_info(kind), data, ())
    if seen.unknown:
        raise ValueError(f"nothing is known of {dotted(seen.unknown[0][0])}")
    try:
        return msgspec.convert(data, kind, dec_hook=other)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


class _Seen:
    """A walk over what is written beside what may be: keys nobody knows, and values that do not fit."""

    def __init__(self) -> None:
        self.unknown: list[tuple[Key, Sequence[str]]] = []
        self.wrong: list[Wrong] = []

    def value(self, info: inspect.Type, value: Any, key: Key) -> Any:
        """Return a value as msgspec takes it: a single text is a list of one where texts are listed."""
        extra = (info.extra_json_schema or {}) if isinstance(info, inspect.Metadata) else {}
        fitting = _fitting(info, value)
        if isinstance(fitting, inspect.VarTupleType) and isinstance(value, str) and _is_text(fitting.item_type):
            value = [value]
        if type(fitting) in _KINDS and not _is_of_kind(fitting, value):
            wanted = _noun(info, ".".join(names_in(key)))
            self.wrong.append((key, f"must be {wanted}, not {kind_of(value)}", _meaning(info)))
            return value
        match fitting:
            case inspect.DataclassType(fields=fields):
                return self._table(fields, value, key)
            case inspect.VarTupleType(item_type=inner, min_length=least, max_length=most):
                if extra.get("uniqueItems") and any(part in value[:place] for place, part in enumerate(value)):
                    self.wrong.append((key, "names something twice", None))
                if not (least or 0) <= len(value) <= (most or math.inf):
                    self.wrong.append((key, f"has {len(value)} entries, not between {least or 0} and {most:,}", None))
                return [self.value(inner, part, (*key, place)) for place, part in enumerate(value)]
            case inspect.AnyType():
                self.wrong += [(where, problem, None) for where, problem in _not_json(key, value)]
            case inspect.DictType(value_type=inner):
                return {name: self.value(inner, part, (*key, name)) for name, part in value.items()}
            case _:
                choices = [*map(str, fitting.cls)] if isinstance(fitting, inspect.EnumType) else extra.get("enum")
                self.wrong += [(key, *problem) for problem in _problems(fitting, value, choices)]
        return value

    def _table(self, fields: Sequence[inspect.Field], value: dict[str, Any], key: Key) -> dict[str, Any]:
        known = {field.name: field.type for field in fields}
        self.unknown += [((*key, name), tuple(known)) for name in value if name not in known]
        self.wrong += [((*key, field.name), "is missing", _meaning(field.type))
                       for field in fields if field.required and field.name not in value]  # fmt: skip
        return {name: self.value(known[name], value[name], (*key, name)) for name in value if name in known}


def _fitting(info: inspect.Type, value: object) -> inspect.Type:
    """Return what a value is held against: of a union, the member of the value's own kind."""
    if isinstance(info, inspect.Metadata):
        return _fitting(info.type, value)
    if not isinstance(info, inspect.UnionType):
        return info
    kinds = [_fitting(kind, value) for kind in info.types]
    return next((kind for kind in kinds if _is_of_kind(kind, value)), kinds[0])


def _is_of_kind(info: inspect.Type, value: object) -> bool:
    is_switch = isinstance(info, inspect.BoolType)
    return isinstance(value, _KINDS[type(info)][1]) and isinstance(value, bool) == is_switch


def _is_text(info: inspect.Type) -> bool:
    return isinstance(_fitting(info, {}), inspect.StrType | inspect.EnumType)


def _noun(info: inspect.Type, name: str) -> str:
    match info:
        case inspect.Metadata(type=inner):
            return _noun(inner, name)
        case inspect.UnionType(types=kinds):
            return " or ".join(filter(None, (_noun(kind, name) for kind in kinds)))
        case inspect.VarTupleType(item_type=inner):
            if type(_fitting(inner, 0)) in (inspect.IntType, inspect.FloatType):
                return "a list of numbers"
            return "a string or a list of strings" if _is_text(inner) else f"a list of tables, written [[{name}]]"
        case _:
            return _KINDS[type(info)][0]


def _meaning(info: inspect.Type) -> str | None:
    match info:
        case inspect.UnionType(types=kinds):
            return next(filter(None, map(_meaning, kinds)), None)
        case inspect.DataclassType(cls=kind):
            return kind.__doc__
        case inspect.Metadata(extra_json_schema={"description": str(meaning)}):
            return meaning
        case _:
            return None


def _problems(info: inspect.Type, value: Any, choices: Sequence[str] | None) -> Iterator[tuple[str, str | None]]:
    match info:
        case inspect.EnumType() | inspect.StrType() if choices is not None:
            if value not in choices:
                yield f"is {value!r}, not one of {', '.join(choices)}", did_you_mean(value, choices)
        case inspect.StrType(min_length=int()) if not value.strip():
            yield "is empty", None
        case inspect.StrType(max_length=int(most)) if len(value) > most:
            yield f"is longer than {most:,} characters", None
        case inspect.StrType(pattern=str(pattern)) if not re.search(pattern, value):
            shown = pattern.removeprefix(_WHOLE[0]).removesuffix(_WHOLE[1])
            yield f"is {value!r}, which does not have the form {shown}", None
        case inspect.IntType(ge=low, le=high) if low is not None and high is not None and not low <= value <= high:
            yield f"is {value}, not between {low:,} and {high:,}", None
        case inspect.FloatType(ge=low, le=high) if low is not None and high is not None and not low <= value <= high:
            yield f"is {value}, not between {low:g} and {high:g}", None


def _not_json(key: Key, value: object) -> Iterator[tuple[Key, str]]:
    match value:
        case _ if len(key) > DEPTH_MAX:
            yield key, f"is nested deeper than {DEPTH_MAX} levels"
        case bool() | str():
            return
        case int() if not -(2**63) <= value < 2**63:
            yield key, "does not fit 64 bits"
        case float() if not math.isfinite(value):
            yield key, f"is {value}, which JSON cannot say"
        case datetime() | date() | time():
            yield key, "is a date or time; write it as a string"
        case list():
            for place, part in enumerate(value, 1):
                yield from _not_json((*key, str(place)), part)
        case dict():
            for name, part in value.items():
                yield from _not_json((*key, name), part)


def json_schema(*kinds: type) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return a reference to each record's JSON Schema, and the schemas of all that they consist of, by name."""
    references, found = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    return list(references), {name: _of_toml(schema) for name, schema in found.items()}


def _of_toml(schema: Any) -> Any:
    """Return a schema for TOML, which has no null and where batchpond takes no key it does not know."""
    if isinstance(schema, list):
        return [_of_toml(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {name: _of_toml(part) for name, part in schema.items() if not (name == "default" and part is None)}
    options = [option for option in plain.pop("anyOf", ()) if option != {"type": "null"}]
    if len(options) == 1:
        plain |= options[0]
    elif options:
        plain["anyOf"] = options
    if plain.get("uniqueItems") or plain.get("items", {}).get("type") == "string":
        plain["type"] = ["array", "string"]  # a single text is a list of one
    return {**plain, "additionalProperties": False} if "properties" in plain else plain
