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
from functools import cache
from importlib import resources
from typing import Any, Final

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


def texts(provider: str, name: str) -> tuple[str, ...]:
    """Return the `caveats` or the `notes` of a provider."""
    return tuple(_data(provider)[name])


def table(provider: str, name: str) -> dict[str, Any]:
    """Return a table of what is known of a provider alone."""
    found: dict[str, Any] = _data(provider)[name]
    return found


def limits(provider: str) -> dict[str, Any]:
    """Return a provider's names and limits, by the fields of its descriptor."""
    found: dict[str, Any] = _with_tuples(_data(provider)["limits"])
    return found


def families(provider: str) -> list[dict[str, Any]]:
    """Return the rows of what a provider's families of models accept, as their file has them; lists are tuples."""
    return list(map(_with_tuples, _data(provider)["families"]))


def _with_tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_with_tuples, value))
    return {name: _with_tuples(one) for name, one in value.items()} if isinstance(value, dict) else value


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


def nearest(model: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of a table that are most like a model's."""
    return tuple(difflib.get_close_matches(model.lower(), list(dict.fromkeys(names)), _NEAREST_MAX, _NEAR))


def _camel(name: str) -> str:
    return re.sub(r"_([a-z0-9])", lambda match: match[1].upper(), name)


def _by_name(kinds: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
    names = dict.fromkeys(name for listed in kinds.values() for name in listed)
    return {name: tuple(kind for kind, listed in kinds.items() if name in listed) for name in names}


def _days(by_day: Mapping[str, list[str]]) -> dict[str, str]:
    return {name: day for day, names in by_day.items() for name in names}
