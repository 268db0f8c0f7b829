"""The tables of `lake/config.toml`, and reading them: each key with its type and bounds, written here and nowhere else.

It loads msgspec, so whoever needs it imports it where a file is there to be read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from batchpond.providers import registry
from batchpond.providers.shared.folder import FOLDER_ENV
from batchpond.study.typed import Table, at_most, between, parse, read
from batchpond.text import address

SECTIONS: Final = ("limits", "prices", "providers", "files", "live")
LIMIT_MAX: Final = 10**15
PRICE_MAX_USD: Final = 100_000.0

Limit = Annotated[int, between(1, LIMIT_MAX)]
Price = Annotated[float, between(0, PRICE_MAX_USD, "input and output are needed, in USD per 1M tokens")]


@dataclass(frozen=True, kw_only=True)
class ModelLimits:
    """What a provider lets one model have in its queue."""

    enqueued_tokens: Limit | None = None
    enqueued_requests: Limit | None = None
    open_batches: Limit | None = None


@dataclass(frozen=True, kw_only=True)
class AccountLimits(ModelLimits):
    """What a provider lets all models of an account have in its queue, and the tier that says the rest."""

    tier: str | None = None


@dataclass(frozen=True, kw_only=True)
class ModelPrices:
    """What a model costs; without prices of their own, cached tokens cost what others do."""

    input: Price
    output: Price
    cached_input: Price | None = None
    cache_write: Price | None = None


@dataclass(frozen=True, kw_only=True)
class Files:
    """Where `mode = "files"` puts requests and looks for results."""

    folder: Annotated[str, at_most(10_000)]


def document(data: bytes, source: str) -> Table:
    """Return a lake's configuration; raises StudyError for what is no TOML, or for a section nobody knows."""
    root = parse(data, source, "nothing was done")
    root.refuse_unknown([((name,), SECTIONS) for name in root.data if name not in SECTIONS])
    return root


def limits(root: Table) -> dict[str, ModelLimits]:
    """Return the limits by `provider`, or of one model by `provider/model`."""
    section = root.inside("limits")
    return {name: read(section.inside(name), ModelLimits if "/" in name else AccountLimits) for name in section.data}


def prices(root: Table) -> dict[str, ModelPrices]:
    """Return the prices by `provider/model`, or for live calls by `provider/model@live`."""
    section = root.inside("prices")
    for name in section.data:
        provider, slash, model = name.partition("/")
        if not (provider and slash and model):
            section.fail(name, 'is not a price: its name must be "provider/model" or "provider/model@live"')
    return {name: read(section.inside(name), ModelPrices) for name in section.data}


def variables(root: Table) -> Mapping[str, str]:
    """Return what the settings of providers stand for, by the names of environment variables."""
    section = root.inside("providers")
    section.refuse_unknown([((name,), registry.NAMES) for name in section.data if name not in registry.NAMES])
    found = {}
    for provider in section.data:
        table = section.inside(provider)
        names = dict(registry.module(provider).DESCRIPTOR.settings)
        table.refuse_unknown([((key,), tuple(names)) for key in table.data if key not in names])
        for key, value in table.data.items():
            if not isinstance(value, str) or not value.strip():
                table.fail(key, f"is {value!r}; it must be text")
            found[names[key]] = value
    return found


def files(root: Table, lake_path: Path) -> Mapping[str, str]:
    """Return what names the folder of `mode = "files"`, from the lake on, or its address, where one is written."""
    table = root.inside("files")
    if not table.data:
        return {}
    named = Path(read(table, Files).folder).expanduser()
    return {FOLDER_ENV: os.fspath(named if address(named) else lake_path / named)}
