"""The hosts of OpenAI-compatible chat endpoints, as `hosts.toml` has them with its sources."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

from batchpond.providers.shared.live import ANY_RATES, NO_RATES, Per, RateNames, rate_limit

Words = Mapping[str, Mapping[str, Any]]
"""Thinking words, and what each puts into a body."""


@dataclass(frozen=True, slots=True)
class Family:
    """Models that take the same thinking words: those whose name, without its maker, begins with `prefix`."""

    prefix: str
    words: Words
    source: str


_ANY_MODEL: Final = ("",)


@dataclass(frozen=True, slots=True)
class Host:
    """One host, or one kind of server; `base_path` is what its SDK adds to a base URL without a path.

    `schema_prefixes` begin the names of the models whose answers can be held to a JSON schema; () is none.
    `reasoning_is_apart` where `completion_tokens` leave the reasoning out. `is_free` for servers of one's own.
    `price_name` is what the price data call the host.
    """

    name: str
    base_url: str
    base_url_env: str
    key_env: tuple[str, ...]
    families: tuple[Family, ...]
    source: str
    limit_name: str = "max_tokens"
    base_path: str = ""
    rates: RateNames = ANY_RATES
    is_free: bool = False
    reasoning_is_apart: bool = False
    schema_prefixes: tuple[str, ...] = _ANY_MODEL
    caveats: tuple[str, ...] = ()
    price_name: str | None = None


_RATES: Final = {
    "none": NO_RATES,
    "groq": RateNames((rate_limit("requests", Per.UNKNOWN),), (rate_limit("tokens"),)),
    "mistral": RateNames(
        (rate_limit("req-minute"), rate_limit("requests")), (rate_limit("tokens-minute"), rate_limit("tokens"))
    ),
}


def _family(
    prefix: str,
    source: str,
    *,
    words: Words | None = None,
    efforts: tuple[str, ...] = (),
    template_efforts: tuple[str, ...] = (),
    switch: str | None = None,
) -> Family:
    found: dict[str, Mapping[str, Any]] = dict(words or {})
    found |= {word: {"reasoning_effort": word} for word in efforts}
    found |= {word: {"chat_template_kwargs": {"reasoning_effort": word}} for word in template_efforts}
    if switch is not None:
        found |= {word: {"chat_template_kwargs": {switch: word == "enabled"}} for word in ("none", "enabled")}
    return Family(prefix, found, source)


_DATA: Final = tomllib.loads((resources.files(__package__) / "hosts.toml").read_text("utf-8"))
_SHARED: Final = {name: _family(**row) for name, row in _DATA["families"].items()}
OWN_FAMILIES: Final = tuple(_SHARED[name] for name in _DATA["own"]["families"])


def _host(row: Mapping[str, Any]) -> Host:
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    families = tuple(_SHARED[one] if isinstance(one, str) else _family(**one) for one in row["families"])
    rates = _RATES[row["rates"]] if "rates" in row else ANY_RATES
    return Host(**values | {"families": families, "rates": rates})


HOSTS: Final = tuple(map(_host, _DATA["hosts"]))
