"""Finding a judge's JSON in whatever stands around it, in time linear in the text, and pointers (RFC 6901) into it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import orjson

from batchpond.errors import StudyError
from batchpond.model import Outcome
from batchpond.tasks import base
from batchpond.tasks.base import Care, CarefulRule, Judgment, Text, agreed

CONFLICT: Final = object()
_OBJECT: Final = re.compile(r'\{(?=\s*")')
_ARRAY: Final = re.compile(r'\[(?=\s*["{])')
_LAST_COMMA: Final = re.compile(r",(?=\s*[}\]])")
_LOOKS_MAX: Final = 500
_CHARS_MIN: Final = 1_000_000
_CHARS_FACTOR: Final = 2

Object = dict[str, Any]


@lru_cache(maxsize=1_000)
def fold(key: str) -> str:
    """Return a key of a rule as objects have it here."""
    return key.strip().casefold()


def _object(pairs: list[tuple[str, Any]]) -> Object:
    found: Object = {}
    for key, value in pairs:
        name = key.strip().casefold()
        found[name] = CONFLICT if name in found and found[name] != value else value
    return found


# float() reads any number of digits in linear time; int() refuses long ones with another error.
_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=float, parse_constant=lambda _: None, strict=False
)


def whole(text: str) -> Object | None:
    """Return the object that a text is, as `_DECODER` reads it; None where there is more, or more in it than values.

    None also where it may name a key twice: then it has more quotes than what was read of it.
    """
    if not text.startswith("{"):
        return None
    try:
        pairs = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    found: Object = {}
    n_quotes = 2 * len(pairs)
    for key, value in pairs.items():
        kind = type(value)
        if kind is dict or kind is list:
            return None
        n_quotes += 2 * (kind is str)
        found[key.strip().casefold()] = float(value) if kind is int else value
    n_escaped = text.count('\\"') if "\\" in text else 0
    is_plain = "\\\\" not in text and "-0" not in text  # a quote after `\\` ends a text, and -0 is no int
    is_once = n_quotes == text.count('"') - n_escaped and len(found) == len(pairs)
    return found if found and is_plain and is_once else None


def _scan(text: str, start: re.Pattern[str]) -> list[Any]:
    found: list[Any] = []
    looks, chars_left, position = _LOOKS_MAX, _CHARS_MIN + _CHARS_FACTOR * len(text), 0
    while (match := start.search(text, position)) is not None:
        if looks <= 0 or chars_left <= 0:
            return []
        position = match.end()
        try:
            value, position = _DECODER.raw_decode(text, match.start())
        except json.JSONDecodeError as error:
            # An unterminated string is reported where it begins, but was looked for to the end.
            end = len(text) if error.msg.startswith("Unterminated") else error.pos
            looks, chars_left = looks - 1, chars_left - (end - match.start())
        except RecursionError:
            looks, chars_left = looks - 1, chars_left - (len(text) - match.start())
        else:
            found.append(value)
    return found


def _first_found(text: str, start: re.Pattern[str], keep: Callable[[Any], Iterable[Any]]) -> list[Any]:
    kept = [part for value in _scan(text, start) for part in keep(value)]
    if kept:
        return kept
    mended = _LAST_COMMA.sub("", text.replace("{{", "{").replace("}}", "}"))
    return [] if mended == text else [part for value in _scan(mended, start) for part in keep(value)]


def objects(text: str, wanted: Callable[[Object], Iterable[Object]]) -> list[Object]:
    """Return what is wanted of the complete outermost objects of a text, in order."""
    alone = whole(text)
    return (alone and [*wanted(alone)]) or _first_found(text, _OBJECT, wanted)


def holders(text: str, key: str) -> list[Object]:
    """Return the complete objects that have a key, in order; inside one of them none is looked for."""
    name = fold(key)

    def keep(value: Any) -> list[Object]:
        kept: list[Object] = []
        stack = [value]
        while stack:
            match stack.pop():
                case dict() as found if name in found:
                    kept.append(found)
                case dict() as other:
                    stack.extend(reversed(other.values()))
                case list() as entries:
                    stack.extend(reversed(entries))
                case _:
                    pass
        return kept

    return _first_found(text, _OBJECT, keep)


def arrays(text: str, wanted: Callable[[list[Any]], bool]) -> list[list[Any]]:
    """Return the complete outermost arrays, of texts or objects, that are wanted, in order."""
    return _first_found(text, _ARRAY, lambda value: [value] if wanted(value) else [])


def read_objects(text: str, key: str, reader: Callable[[Object], Judgment]) -> Judgment | None:
    """Return what all objects with a key agree on, as `reader` reads one; None when there is none."""
    name = fold(key)
    return agreed(
        [
            Judgment(None, Outcome.AMBIGUOUS) if found[name] is CONFLICT else reader(found)
            for found in holders(text, key)
        ]
    )


_QUOTES: Final = "\"'\u201c\u201d\u00ab\u00bb"
_CONSTANTS: Final[dict[str, object]] = {"true": True, "false": False, "null": None, "none": None}


def _values(text: str, key: str) -> list[tuple[object, int, int]]:
    """Return the values that a key has in a plain text that is no JSON, such as a Python dict, with their places."""
    value = (
        r"[\"\u201c\u00ab](?P<two>[^\"\u201d\u00bb\n]{0,200})[\"\u201d\u00bb]"
        r"|'(?P<one>[^'\n]{0,200})'|(?P<bare>[\w.+/-]{1,60})"
    )
    pattern = rf"(?:^|[{{,\[{_QUOTES}])\s{{0,20}}{re.escape(key.strip())}[{_QUOTES}]?\s{{0,20}}:\s{{0,20}}(?:{value})"
    found = re.finditer(rf"{pattern}(?=\s{{0,20}}(?:[,;}}\])`\n{_QUOTES}]|\Z))", text, re.IGNORECASE | re.MULTILINE)
    return [
        (_CONSTANTS.get((match["bare"] or "").casefold(), match[match.lastgroup or 0]), *match.span())
        for match in found
    ]


def read_with_care(
    text: str, keys: Sequence[str], bare: Callable[[object], object], reader: Callable[[Object], Judgment], care: Care
) -> Judgment | None:
    """Return what `read_objects` does of the first of the keys, also of what is no JSON but names it, if it is meant.

    `bare` takes the form off its value; the other keys are those that `reader` looks at.
    """
    key, *others = map(fold, keys)

    def read_bare(found: Object) -> Judgment:
        return reader({**found, key: bare(found[key])})

    if (alone := whole(text)) and key in alone:
        return read_bare(alone)
    shown = base.plain(text).replace("**", "" if care.doubts else "**")
    found, start, end = read_objects(text, key, read_bare), shown.find("{"), shown.rfind("}") + 1
    if found is None and (values := _values(shown, key)):
        rest = {other: value for other in others for value, _, _ in _values(shown, other)}
        found = agreed([read_bare({**rest, key: value}) for value, _, _ in values])
        start, end = start if start >= 0 else values[0][1], max(end, values[-1][2])
    return None if found is None else care.meant(shown, [(found, base.Found("", start, end))])


@dataclass(frozen=True)
class ObjectRule(CarefulRule):
    """A rule whose answers are JSON objects: the key that decides, and the one of the judge's reason."""

    key: Text = ""
    explanation_key: Text = "explanation"

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that are read, the one that decides first."""
        return self.key, self.explanation_key

    def check(self, where: str) -> None:
        """Raise StudyError when two keys could not be told apart."""
        check_keys(where, *self.keys)

    def _found(self, text: str) -> Judgment | None:
        return read_objects(text, self.key, self._reading)

    def _found_with_care(self, text: str, care: Care) -> Judgment | None:
        return read_with_care(text, self.keys, self._bare, self._reading, care)

    def _bare(self, value: object) -> object:
        return value

    def _reading(self, found: Object) -> Judgment:
        raise NotImplementedError

    def _reason(self, found: Object) -> str | None:
        return base.explanation(found.get(fold(self.explanation_key)))

    def _asked(self, meanings: Mapping[str, str]) -> str:
        parts = {self.explanation_key: "your reason in one to three sentences", **meanings}
        return "{" + ", ".join(f'"{key}": {meaning}' for key, meaning in parts.items()) + "}"

    def _schema(self, properties: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """Return the schema of an answer, in the subset that all providers take; its reason is not made up afterwards.

        Ranges of numbers are left to descriptions: some providers refuse a schema that has `minimum`.
        """
        reason = {"type": "string", "description": "the reason, in one to three sentences"}
        whole = {self.explanation_key: reason, **properties}
        return {"type": "object", "properties": whole, "required": list(whole), "additionalProperties": False}


def check_keys(where: str, *keys: str) -> None:
    """Raise StudyError when a key is blank, cannot stand in a prompt's JSON as it is, or equals another."""
    for key in keys:
        if not key.strip() or any(sign in key for sign in '"\\{}\n'):
            raise StudyError(f"{where}: {key!r} cannot be the name of a key in a judge's JSON")
    if len({fold(key) for key in keys}) < len(keys):
        raise StudyError(f"{where}: two keys of a judge's JSON have one name (case does not count)")


def pointed(value: Any, pointer: str) -> Any:
    """Return what a pointer leads to, or None where it leads nowhere."""
    for name, folded in zip(steps(pointer, is_written=True), steps(pointer), strict=True):
        if isinstance(value, dict):
            value = value.get(folded)
        elif isinstance(value, list) and name.isascii() and name.isdigit() and len(name) <= 9:
            value = value[int(name)] if int(name) < len(value) else None
        else:
            return None
    return value


@lru_cache(maxsize=1_000)
def steps(pointer: str, *, is_written: bool = False) -> tuple[str, ...]:
    """Return the names that a pointer goes by, as objects have them here, or as they are written."""
    names = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
    return tuple(names if is_written else map(fold, names))
