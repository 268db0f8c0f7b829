"""The providers by name; each module is imported when it is first asked for."""

from __future__ import annotations

import difflib
import importlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from batchpond.clock import Clock, SystemClock
from batchpond.errors import BatchpondError, UsageError
from batchpond.keys import KeyRow, listing
from batchpond.providers.base import BatchProvider, Descriptor, ProviderModule

NAMES: Final = ("openai", "anthropic", "gemini")


class _Connectable(Protocol):
    def connect(
        self, clock: Clock, *, transport: Any = None, environ: Mapping[str, str] = ..., base_url: str | None = None
    ) -> BatchProvider: ...


@dataclass(frozen=True, slots=True)
class KeyCheck:
    """What one free call with a provider's key came to: the scope it belongs to, or the problem."""

    row: KeyRow
    scope: str | None
    problem: str | None


def module(name: str) -> ProviderModule:
    """Return a provider's module; raises UsageError for a name that is none."""
    return cast(ProviderModule, _import(name))


def descriptors() -> list[Descriptor]:
    """Return all providers' descriptors, in the order they are listed to people."""
    return [module(name).DESCRIPTOR for name in NAMES]


def connect(
    name: str,
    clock: Clock | None = None,
    *,
    transport: Any = None,
    environ: Mapping[str, str] | None = None,
    base_url: str | None = None,
) -> BatchProvider:
    """Return a provider's wire with the environment's key; raises AccessError when there is none.

    `transport` replaces the network, for simulation inside this process.
    """
    provider = cast(_Connectable, _import(name))
    return provider.connect(
        clock or SystemClock(),
        transport=transport,
        environ=os.environ if environ is None else environ,
        base_url=base_url,
    )


def check_keys(clock: Clock | None = None, environ: Mapping[str, str] | None = None) -> Iterator[KeyCheck]:
    """Make one free call with each key that is set, and yield what it came to."""
    environ = os.environ if environ is None else environ
    for row in listing(descriptors(), environ):
        if not row.is_found:
            yield KeyCheck(row, None, row.problem or f"{row.key_env} is not set")
            continue
        try:
            yield KeyCheck(row, connect(row.provider, clock, environ=environ).check(), None)
        except BatchpondError as error:
            yield KeyCheck(row, None, error.message)


def _import(name: str) -> Any:
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"providers: {', '.join(NAMES)}"
        raise UsageError(f"there is no provider {name!r}", hint=hint)
    return importlib.import_module(f"batchpond.providers.{name}")
