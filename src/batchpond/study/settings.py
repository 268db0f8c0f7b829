"""`lake/config.toml`: what is not secret and not part of a study; here the limits of an account.

    [limits.openai]                     # the account: batches and requests over all its models
    tier = "tier-1"                     # what `tiers.toml` knows of it; what is written here wins
    open_batches = 100
    enqueued_requests = 200_000
    enqueued_tokens = 900_000           # prompt tokens of any one model

    [limits."openai/gpt-5-mini"]        # one model
    enqueued_tokens = 2_000_000
    open_batches = 20

    [providers.vertex]                  # where a provider's batches are made: wins over the variables
    project = "my-project"
    location = "us-central1"
    bucket = "gs://my-bucket/batchpond"

    [files]                             # where `mode = "files"` puts requests and looks for results:
    folder = "/mnt/cluster/judging"     # a path from the lake's folder on; without it `files/` in the lake

Its `[prices]` are read by `batchpond.study.prices`.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from batchpond.errors import UsageError
from batchpond.lake.store import CONFIG
from batchpond.providers import registry
from batchpond.providers.files.folder import FOLDER_ENV

_SECTIONS = ("limits", "prices", "providers", "files")
_LIMIT_KEYS = ("enqueued_tokens", "enqueued_requests", "open_batches")
_TIERS = Path(__file__).parent / "tiers.toml"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a provider lets an account have in its queue; None is no known limit."""

    enqueued_tokens: int | None = None
    enqueued_requests: int | None = None
    open_batches: int | None = None

    def over(self, other: Limits) -> Limits:
        """Return these limits, and the other's where these say nothing."""
        mine = {name: value for name, value in dataclasses.asdict(self).items() if value is not None}
        return dataclasses.replace(other, **mine)


@dataclass(frozen=True, slots=True)
class Config:
    """A lake's settings: limits by `provider` or `provider/model`, and the tier of each account.

    `variables` are what the settings of a provider stand for, by the names of environment variables.
    """

    limits: Mapping[str, Limits] = field(default_factory=dict)
    tiers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)

    def of_account(self, provider: str) -> Limits:
        """Return what all models of a provider share: open batches and requests that wait."""
        tier = self.tiers.get(provider, {})
        shipped = Limits(enqueued_requests=tier.get("enqueued_requests"), open_batches=tier.get("open_batches"))
        return dataclasses.replace(self.limits.get(provider, Limits()).over(shipped), enqueued_tokens=None)

    def of_model(self, provider: str, model: str) -> Limits:
        """Return the limits of one model: its own, the account's for any one model, or its tier's."""
        tier = self.tiers.get(provider, {})
        named = (tokens for pattern, tokens in tier.get("models", {}).items() if fnmatchcase(model, pattern))
        tokens = self.limits.get(provider, Limits()).enqueued_tokens or next(named, tier.get("enqueued_tokens"))
        return self.limits.get(f"{provider}/{model}", Limits()).over(Limits(enqueued_tokens=tokens))


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
    tables = _tables(path, document, "limits")
    limits = {name: _limits(path, name, table) for name, table in tables}
    tiers = {name: _tier(path, name, table["tier"]) for name, table in tables if "tier" in table}
    variables = _variables(path, _tables(path, document, "providers"))
    return Config(limits, tiers, {**variables, **_files(path, document.get("files", {}))})


def _tier(path: Path, provider: str, tier: object) -> Mapping[str, Any]:
    known: dict[str, Any] = tomllib.loads(_TIERS.read_text("utf-8")).get(provider, {})
    found = known.get(tier) if isinstance(tier, str) else None
    if not isinstance(found, dict):
        hint = f"known tiers: {', '.join(known)}" if known else "write the limits themselves instead"
        raise UsageError(f"{path}: limits.{provider}.tier is {tier!r}, which batchpond does not know", hint=hint)
    return found


def _tables(path: Path, document: Mapping[str, Any], section: str) -> list[tuple[str, Mapping[str, Any]]]:
    tables = document.get(section, {})
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise UsageError(f'{path}: [{section}] holds tables such as [{section}."openai/gpt-5-mini"]')
    return list(tables.items())


def _variables(path: Path, tables: list[tuple[str, Mapping[str, Any]]]) -> Mapping[str, str]:
    _known(path, "providers", dict(tables), registry.NAMES)
    found = {}
    for provider, table in tables:
        names = dict(registry.module(provider).DESCRIPTOR.settings)
        _known(path, f"providers.{provider}", table, tuple(names))
        for key, value in table.items():
            if not isinstance(value, str) or not value.strip():
                raise UsageError(f"{path}: providers.{provider}.{key} is {value!r}; it must be text")
            found[names[key]] = value
    return found


def _files(path: Path, table: object) -> Mapping[str, str]:
    written = table if isinstance(table, dict) else {"": table}
    _known(path, "files", written, ("folder",))
    folder = written.get("folder", "")
    if not isinstance(folder, str) or not (folder.strip() or not written):
        raise UsageError(f"{path}: files.folder is {folder!r}; it must be a path")
    return {FOLDER_ENV: os.fspath(path.parent / Path(folder).expanduser())} if written else {}


def _limits(path: Path, name: str, table: Mapping[str, Any]) -> Limits:
    _known(path, f"limits.{name}", table, _LIMIT_KEYS if "/" in name else ("tier", *_LIMIT_KEYS))
    numbers = {key: value for key, value in table.items() if key != "tier"}
    for key, value in numbers.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UsageError(f"{path}: limits.{name}.{key} is {value!r}; it must be a whole number above 0")
    return Limits(**numbers)


def _known(path: Path, where: str, table: Mapping[str, Any], keys: tuple[str, ...]) -> None:
    for key in table:
        if key not in keys:
            near = difflib.get_close_matches(key, keys, 1)
            hint = f"did you mean `{near[0]}`?" if near else f"known keys: {', '.join(keys)}"
            raise UsageError(f"{path}: unknown key {f'{where}.' if where else ''}{key}", hint=hint)
