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
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from batchpond.errors import UsageError
from batchpond.lake.store import CONFIG
from batchpond.run.live.calls import CallRules, OnDoubt
from batchpond.run.live.pace import PaceSettings
from batchpond.study.toml_table import TomlTable

CONCURRENCY_MAX: Final = 256
_KEYS: Final = ("concurrency", "qps", "requests_per_minute", "tokens_per_minute", "gap_s", "deadline_s", "on_doubt",
                "max_doubts")  # fmt: skip
_RATES: Final = frozenset({"qps", "requests_per_minute"})


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
    try:
        text = path.read_text("utf-8")
        written = tomllib.loads(text).get("live", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}", hint="mend the TOML; nothing was asked") from None
    names = [name for name, value in written.items() if isinstance(value, dict)] if isinstance(written, dict) else []
    root = TomlTable(str(path), text, ("live",), written, (*_KEYS, *names))
    scopes = {"": _values(root, names)}
    for name in names:
        scopes[name] = _values(root.table(name, _KEYS), [])
    return LiveSettings(scopes)


def _values(table: TomlTable, others: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "concurrency": table.integer("concurrency", None, 1, CONCURRENCY_MAX),
        "qps": table.number("qps", None, 0.0001, 10_000),
        "requests_per_minute": table.number("requests_per_minute", None, 0.001, 1e6),
        "tokens_per_minute": table.number("tokens_per_minute", None, 1, 1e12),
        "gap_s": table.number("gap_s", None, 0, 86_400),
        "deadline_s": table.number("deadline_s", None, 1, 86_400),
        "max_doubts": table.integer("max_doubts", None, 0, 100),
    }
    if table.has("on_doubt"):
        found["on_doubt"] = OnDoubt(table.choice("on_doubt", None, list(OnDoubt)))
    if table.has("qps") and table.has("requests_per_minute"):
        table.fail("qps", "cannot be given together with requests_per_minute")
    return {key: value for key, value in found.items() if value is not None and key not in others}
