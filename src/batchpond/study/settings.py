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

Its `[prices]` are read by `batchpond.study.prices`, its `[live]` by `batchpond.run.live.run`.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchpond.lake.store import CONFIG
from batchpond.providers.shared.folder import FOLDER_ENV

if TYPE_CHECKING:
    from batchpond.study.typed import Table

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
    from batchpond.study import config_file  # an idle pass over a lake without settings needs no reader of them

    root = config_file.document(path.read_bytes(), str(path))
    written = {name: dict(vars(one)) for name, one in config_file.limits(root).items()}
    tiers = {name: one.pop("tier", None) for name, one in written.items()}
    known = {
        name: _tier(root.inside("limits").inside(name), name, tier) for name, tier in tiers.items() if tier is not None
    }
    folder = config_file.folder(root, lake_path)
    files = {} if folder is None else {FOLDER_ENV: folder}
    limits = {name: Limits(**one) for name, one in written.items()}
    return Config(limits, known, {**config_file.variables(root), **files})


def _tier(table: Table, provider: str, tier: str) -> Mapping[str, Any]:
    known: dict[str, Any] = tomllib.loads(_TIERS.read_text("utf-8")).get(provider, {})
    if not isinstance(known.get(tier), dict):
        hint = f"known tiers: {', '.join(known)}" if known else "write the limits themselves instead"
        table.fail("tier", f"is {tier!r}, which batchpond does not know", hint)
    found: dict[str, Any] = known[tier]
    return found
