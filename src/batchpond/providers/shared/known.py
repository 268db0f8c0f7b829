"""What is known of a provider's requests and models, as data: `known.toml` in its folder, with its sources.

`fields` are what a body may hold, by endpoint and kind of value; `ended` are models that are no longer served, and
since when; `ends` are announced days, which providers move: they are told, and nothing is refused for them.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, cached_property, lru_cache
from importlib import resources
from typing import Any, Final, Generic, TypeVar

from batchpond.model import ErrorClass
from batchpond.providers.base import Descriptor

_FILE: Final = "known.toml"
_DATED: Final = re.compile(r"(?:-\d{8}|-\d{4}-\d{2}-\d{2}|-latest)?")
_NEAREST_MAX: Final = 3
_NEAR: Final = 0.5
_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "text": (str,),
    "number": (int, float),
    "whole": (int,),
    "switch": (bool,),
    "list": (list, tuple),
    "table": (dict,),
}


E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Known:
    """The kinds of value of each field, by endpoint; the days on which models ended or are to end, by name."""

    fields: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    ended: Mapping[str, str] = field(default_factory=dict)
    ends: Mapping[str, str] = field(default_factory=dict)

    def kinds(self, name: str, endpoint: str) -> tuple[str, ...] | None:
        """Return which kinds of value a field takes, `top_p` for `topP`; () for none by that name, None if unknown.

        An endpoint may have a version after an `@`.
        """
        fields = self.fields.get(endpoint.partition("@")[0])
        return None if fields is None else fields.get(name) or fields.get(_camel(name), ())

    def endpoints(self, name: str) -> list[str]:
        """Return the endpoints that take a field."""
        return [endpoint for endpoint in self.fields if self.kinds(name, endpoint)]


def descriptor(provider: str, **more: Any) -> Descriptor:
    """Return a provider's descriptor: its names, limits, caveats and notes by its file, and what its code says."""
    data = _data(provider)
    said = {"name": provider, **data["limits"], "caveats": data["caveats"], "notes": data["notes"]}
    return Descriptor(**{name: _frozen(value) for name, value in said.items()} | more)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def table(provider: str, name: str) -> dict[str, Any]:
    """Return a table of what is known of a provider alone."""
    found: dict[str, Any] = _data(provider)[name]
    return found


def by_word(provider: str, name: str, kind: type[E]) -> dict[str, E]:
    """Return what each of a provider's words means, from a table of the words of each meaning."""
    return {word: kind(meaning) for meaning, words in table(provider, name).items() for word in words}


Texts = tuple[tuple[ErrorClass, re.Pattern[str]], ...]
"""What texts of errors mean, the first that is found."""


def texts(provider: str, name: str) -> Texts:
    """Return what a provider's texts of errors mean, from a table of regular expressions by their meaning."""
    return tuple((ErrorClass(kind), re.compile(text, re.IGNORECASE)) for kind, text in table(provider, name).items())


def class_of(known: Texts, message: str) -> ErrorClass | None:
    """Return what kind of failure a message tells, None when it tells nothing."""
    return next((error_class for error_class, pattern in known if pattern.search(message)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Models that take the same parameters: those whose name begins so, dated ones included.

    Where a family `is_open` anything may follow its prefix. `source` says where the row is known from. The family of
    the models that no row names is not `is_known`.
    """

    prefix: str
    source: str
    is_open: bool = False
    is_known: bool = True


F = TypeVar("F", bound=Family)


class Families(Generic[F]):
    """A provider's families of models, in the order of its file: the first that a name belongs to is a model's.

    `[models]` there says what may stand before a family's prefix, what may follow it, and what is taken to hold for a
    model that no row names.
    """

    def __init__(self, provider: str, kind: type[F]) -> None:
        about = table(provider, "models")
        self._provider, self._kind = provider, kind
        self._before: str = about["before"]
        self._after = re.compile(about["after"], re.DOTALL)
        self._caveat: str = about["unknown"]
        self.of = lru_cache(maxsize=1024)(self._of)

    @cached_property
    def rows(self) -> tuple[F, ...]:
        """The families, read when one is asked for: a pass that only looks at batches asks for none."""
        return self._read(_data(self._provider)["families"])

    @cached_property
    def _unknown(self) -> F:
        other = {"prefix": "", "source": "not in the table", "is_known": False}
        return self._read([other | table(self._provider, "models")["other"]])[0]

    def _read(self, rows: list[dict[str, Any]]) -> tuple[F, ...]:
        import msgspec  # noqa: PLC0415 - a pass that only looks at batches asks for no family

        return tuple(msgspec.convert(row, self._kind) for row in rows)

    def _of(self, model: str) -> F:
        """Return the family of a model; one that no row names gets a family that takes what is written.

        A name that only begins like a family's is not of it: `gpt-5` is not the family of `gpt-5.9`.
        """
        name = model.lower().removeprefix(self._before)
        for family in self.rows:
            is_like = name.startswith(family.prefix)
            if is_like and (family.is_open or self._after.fullmatch(name, len(family.prefix))):
                return family
        return self._unknown

    def nearest(self, model: str) -> tuple[str, ...] | None:
        """Return the names of the table that are most like a model's, None where it is there itself."""
        if self.of(model).is_known:
            return None
        names = list(dict.fromkeys(family.prefix for family in self.rows))
        return tuple(difflib.get_close_matches(model.lower(), names, _NEAREST_MAX, _NEAR))

    def caveats(self, model: str) -> tuple[str, ...]:
        """Return what a person should know about a model that is in no family, before money is spent on it."""
        return () if self.of(model).is_known else (self._caveat.format(model=model),)


@cache
def of(provider: str) -> Known:
    """Return what is known of a provider; nothing of one without such data."""
    data = _data(provider)
    fields = {endpoint: _by_name(kinds) for endpoint, kinds in data.get("fields", {}).items()}
    return Known(fields, _days(data.get("ended", {})), _days(data.get("ends", {})))


@cache
def _data(provider: str) -> dict[str, Any]:
    file = resources.files("batchpond.providers") / provider / _FILE
    return tomllib.loads(file.read_text("utf-8")) if file.is_file() else {}


def fits(value: Any, kinds: Iterable[str]) -> bool:
    """Return whether a value is of one of these kinds."""
    if isinstance(value, bool):
        return "switch" in kinds
    return any(isinstance(value, _KINDS[kind]) for kind in kinds if kind != "switch")


def day_of(model: str, days: Mapping[str, str]) -> str | None:
    """Return the day of a model among days by name; dated names, `-latest` and fine-tuned models go with theirs."""
    name = model.lower().removeprefix("models/").removeprefix("ft:").partition(":")[0]
    found = (day for known, day in days.items() if name.startswith(known) and _DATED.fullmatch(name, len(known)))
    return next(found, None)


def _camel(name: str) -> str:
    return re.sub(r"_([a-z0-9])", lambda match: match[1].upper(), name)


def _by_name(kinds: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
    names = dict.fromkeys(name for listed in kinds.values() for name in listed)
    return {name: tuple(kind for kind, listed in kinds.items() if name in listed) for name in names}


def _days(by_day: Mapping[str, list[str]]) -> dict[str, str]:
    return {name: day for day, names in by_day.items() for name in names}
