"""`lake/config.toml`: what is not secret and not part of a study; here the limits of an account.

    [limits."openai/gpt-5-mini"]        # or [limits.openai] for all models of a provider
    enqueued_tokens = 2_000_000         # prompt tokens that may wait in the provider's queue
    open_batches = 20

Its `[prices]` are read by `batchpond.prices`.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batchpond.errors import UsageError
from batchpond.lake.store import CONFIG

_SECTIONS = ("limits", "prices")
_LIMIT_KEYS = ("enqueued_tokens", "open_batches")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a provider lets an account have in its queue; None is no known limit."""

    enqueued_tokens: int | None = None
    open_batches: int | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """A lake's settings, by `provider` or `provider/model`."""

    limits: Mapping[str, Limits] = field(default_factory=dict)

    def limits_of(self, provider: str, model: str) -> Limits:
        """Return the limits of a model, or else of its provider."""
        return self.limits.get(f"{provider}/{model}") or self.limits.get(provider) or Limits()


def load(lake_path: Path) -> Config:
    """Read a lake's settings; raises UsageError that names the file and the key."""
    path = lake_path / CONFIG
    if not path.exists():
        return Config()
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}", hint="mend the TOML; nothing was done") from None
    _known(path, "", document, _SECTIONS)
    return Config({name: _limits(path, name, table) for name, table in _tables(path, document, "limits")})


def _tables(path: Path, document: Mapping[str, Any], section: str) -> list[tuple[str, Mapping[str, Any]]]:
    tables = document.get(section, {})
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise UsageError(f'{path}: [{section}] holds tables such as [{section}."openai/gpt-5-mini"]')
    return list(tables.items())


def _limits(path: Path, name: str, table: Mapping[str, Any]) -> Limits:
    _known(path, f"limits.{name}", table, _LIMIT_KEYS)
    for key, value in table.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UsageError(f"{path}: limits.{name}.{key} is {value!r}; it must be a whole number above 0")
    return Limits(**table)


def _known(path: Path, where: str, table: Mapping[str, Any], keys: tuple[str, ...]) -> None:
    for key in table:
        if key not in keys:
            near = difflib.get_close_matches(key, keys, 1)
            hint = f"did you mean `{near[0]}`?" if near else f"known keys: {', '.join(keys)}"
            raise UsageError(f"{path}: unknown key {f'{where}.' if where else ''}{key}", hint=hint)
