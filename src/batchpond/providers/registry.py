"""The providers by name; each module is imported when it is first asked for."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from batchpond.clock import CLOCK_ENV, Clock, SystemClock
from batchpond.errors import BatchpondError, UsageError
from batchpond.model import FILES_MARK, Mode
from batchpond.providers.base import LIVE_CONNECTIONS, BatchProvider, Descriptor
from batchpond.providers.http.keys import KeyRow, listing
from batchpond.providers.shared import files
from batchpond.providers.shared import folder as folders
from batchpond.providers.shared.dialect import Dialect
from batchpond.text import did_you_mean

if TYPE_CHECKING:  # it brings the HTTP library, which a pass with nothing to ask does not need
    from batchpond.providers.shared.live import LiveApi, LiveClient

NAMES: Final = ("openai", "anthropic", "gemini", "vertex", "together", "groq", "mistral", "xai")
LIVE_ONLY: Final = ("ollama",)


@dataclass(frozen=True, slots=True)
class KeyCheck:
    """What one free call with a provider's key came to: the scope it belongs to, or the problem."""

    row: KeyRow
    scope: str | None
    problem: str | None


@cache
def module(name: str) -> Dialect:
    """Return how a provider's requests are written and its answers read; raises UsageError for a name that is none."""
    if name in NAMES:
        return cast(Dialect, importlib.import_module(f"batchpond.providers.{name}.dialect").DIALECT)
    if name in LIVE_ONLY:
        return cast(Dialect, wire(name).DIALECT)
    compatible = _compatible()
    if found := compatible.module_of(name):
        return cast(Dialect, found)
    names = (*NAMES, *LIVE_ONLY, *compatible.NAMES)
    hint = did_you_mean(name, names, f"providers: {', '.join(names)}, {compatible.PREFIX}NAME")
    raise UsageError(f"there is no provider {name!r}", hint=hint)


def caveats(found: Dialect, mode: Mode) -> tuple[str, ...]:
    """Return what to know about a provider, asked in this way, whatever its model."""
    of_batches = found.DESCRIPTOR.batch_caveats if mode is Mode.BATCH else ()
    return files.CAVEATS if mode is Mode.FILES else found.DESCRIPTOR.caveats + of_batches


def descriptors() -> list[Descriptor]:
    """Return the descriptors of all providers with a batch API, in the order they are listed to people."""
    return [module(name).DESCRIPTOR for name in NAMES]


def providers_of_batch(batch_id: str) -> list[str]:
    """Return whose batch an id may be of, where the id itself says it."""
    said = ((found.name, found.batch_id_prefix) for found in descriptors())
    return [name for name, prefix in said if prefix is not None and batch_id.startswith(prefix)]


def all_descriptors() -> list[Descriptor]:
    """Return also those of providers that take live calls alone, but for servers of one's own by name."""
    names = (*NAMES, *LIVE_ONLY, *_compatible().NAMES)
    return [module(name).DESCRIPTOR for name in names]


def connect(
    name: str,
    clock: Clock | None = None,
    *,
    transport: Any = None,
    environ: Mapping[str, str] = os.environ,
    lake_path: Path | None = None,
) -> BatchProvider:
    """Return a provider's client with the environment's key; raises AccessError when there is none.

    `transport` replaces the network, for simulation inside this process. `name@files` is the folder of the
    provider's request and result files, by default the lake's; it needs no key.
    """
    if name.endswith(FILES_MARK):
        folder = folders.folder(environ, lake_path)
        return files.Files(module(name.removesuffix(FILES_MARK)), folder, clock or SystemClock())
    clock = clock or SystemClock()
    client: BatchProvider = wire(name).BATCH.connect(clock, environ, transport)
    _refuse_false_time(client, clock)
    return client


def connect_live(
    name: str,
    clock: Clock | None = None,
    *,
    transport: Any = None,
    environ: Mapping[str, str] = os.environ,
    max_connections: int = LIVE_CONNECTIONS,
) -> LiveClient:
    """Return a client for live calls with the environment's key.

    Raises UsageError for a provider without live calls, AccessError when a key is needed and there is none.
    """
    if Mode.LIVE not in module(name).DESCRIPTOR.modes:
        live = ", ".join(found.name for found in all_descriptors() if Mode.LIVE in found.modes)
        raise UsageError(f"{name} takes no live calls", hint=f"live: {live}")
    api: LiveApi = wire(name).LIVE
    clock = clock or SystemClock()
    client = api.connect(clock, environ, transport, max_connections)
    _refuse_false_time(client, clock)
    return client


def _refuse_false_time(client: BatchProvider | LiveClient, clock: Clock) -> None:
    """Raise UsageError for the clock of tests at a provider that is not on this machine."""
    if isinstance(clock, SystemClock) and clock.file and not client.is_loopback:
        client.close()
        message = f"{CLOCK_ENV} is for simulators on this machine, and {client.host} is none"
        raise UsageError(message, hint=f"unset {CLOCK_ENV}; nothing was sent")


def check_keys(clock: Clock | None = None, environ: Mapping[str, str] = os.environ) -> Iterator[KeyCheck]:
    """Make one free call with each key that is set, and yield what it came to."""
    for row in listing(all_descriptors(), environ):
        if not row.is_found:
            yield KeyCheck(row, None, row.problem or f"{row.key_env} is not set")
            continue
        try:
            client = (connect if row.provider in NAMES else connect_live)(row.provider, clock, environ=environ)
            with closing(client):
                yield KeyCheck(row, client.check(), None)
        except BatchpondError as error:
            yield KeyCheck(row, None, error.message)


def wire(name: str) -> Any:
    """Return what has the BATCH and the LIVE of a provider: the module of its calls, or those of a host by its row.

    They bring the HTTP library, which who only reads and writes lines does not need.
    """
    if name in NAMES or name in LIVE_ONLY:
        return importlib.import_module(f"batchpond.providers.{name}.{'batch' if name in NAMES else 'live'}")
    return importlib.import_module("batchpond.providers.compatible.live").calls(module(name))


def _compatible() -> Any:
    return importlib.import_module("batchpond.providers.compatible.dialect")
