"""How live calls are made, from the lake's `config.toml`; what is written for a model wins over its provider's.

[live]                              # every model
concurrency = 16                    # calls at once
deadline_s = 600                    # of one call
on_doubt = "again"                  # or "hold": a call that may have been answered is left to a person
max_doubts = 3                      # how often such a request is asked again at most

[live.openai]                       # a provider
requests_per_minute = 500
tokens_per_minute = 200_000

[live."ollama/llama3.2"]            # a model
qps = 0.5                           # calls per second, in place of requests_per_minute
gap_s = 2.0                         # at least so long between two calls
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

from batchpond.lake.store import CONFIG
from batchpond.run.live.calls import CallRules, OnDoubt
from batchpond.run.live.pace import PaceSettings
from batchpond.study import config_file
from batchpond.study.toml import Table
from batchpond.study.typed import between, read

CONCURRENCY_MAX: Final = 256
_RATES: Final = frozenset({"qps", "requests_per_minute"})


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What may be written for every model, a provider or a model."""

    concurrency: Annotated[int, between(1, CONCURRENCY_MAX)] | None = None
    qps: Annotated[float, between(0.0001, 10_000)] | None = None
    requests_per_minute: Annotated[float, between(0.001, 1e6)] | None = None
    tokens_per_minute: Annotated[float, between(1, 1e12)] | None = None
    gap_s: Annotated[float, between(0, 86_400)] | None = None
    deadline_s: Annotated[float, between(1, 86_400)] | None = None
    on_doubt: OnDoubt | None = None
    max_doubts: Annotated[int, between(0, 100)] | None = None


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """What a lake says about live calls: values by scope, which is empty, a provider, or `provider/model`."""

    scopes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    forced: Mapping[str, Any] = field(default_factory=dict)

    def over(self, **forced: Any) -> LiveSettings:
        """Return these settings with some of them set for every model; None leaves one as it is."""
        return dataclasses.replace(self, forced={key: value for key, value in forced.items() if value is not None})

    def of_model(self, provider: str, model: str, usual_concurrency: int) -> tuple[PaceSettings, CallRules]:
        """Return how a model is asked; as many calls at once as are usual with its provider, unless it is written."""
        values: dict[str, Any] = {"concurrency": usual_concurrency}
        scopes = (self.scopes.get(scope, {}) for scope in ("", provider, f"{provider}/{model}"))
        for written in (*scopes, self.forced):
            if written.keys() & _RATES:  # the two say the same thing, so that the one stands for both
                values = {key: value for key, value in values.items() if key not in _RATES}
            values |= written
        if (qps := values.pop("qps", None)) is not None:
            values["requests_per_minute"] = qps * 60
        rules = {key: values.pop(key) for key in ("deadline_s", "on_doubt", "max_doubts") if key in values}
        return PaceSettings(**values), CallRules(**rules)


def load(lake_path: Path) -> LiveSettings:
    """Read a lake's `[live]`; raises UsageError that names the file, line and key."""
    path = lake_path / CONFIG
    if not path.exists():
        return LiveSettings()
    live = config_file.document(path.read_bytes(), str(path)).inside("live")
    scopes = [name for name, value in live.data.items() if isinstance(value, dict)]
    own = Table(live.source, live.text, live.key, {key: live.data[key] for key in live.data if key not in scopes})
    return LiveSettings({"": _values(own), **{name: _values(live.inside(name)) for name in scopes}})


def _values(table: Table) -> dict[str, Any]:
    found = read(table, Scope)
    if found.qps is not None and found.requests_per_minute is not None:
        table.fail("qps", "cannot be given together with requests_per_minute")
    return {key: value for key, value in vars(found).items() if value is not None}
