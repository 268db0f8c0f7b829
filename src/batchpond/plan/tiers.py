"""Which shards go first: those of an earlier tier are sent before all others, and keep what they wait for.

A shard of a later tier never takes the money, or the room in a provider's queue, that an earlier one waits for:
it would otherwise slip past it whenever it is the smaller of the two. Money is the study's, so it holds back all
later tiers; room is a provider's or a model's, so it holds back those of that provider or model only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from batchpond.lake.events.records import Sharded

FIRST: Final = 1
LAST: Final = 1_000_000
ALL: Final = ""
"""What a shard waits for that all others could take from it: money."""


def tier_of(shard: Sharded) -> int:
    """Return a shard's tier, from 1 on; the smallest goes first."""
    return FIRST if shard.tier is None else shard.tier


def in_order(shards: Iterable[Sharded]) -> list[Sharded]:
    """Return shards by tier, and within one as they were made."""
    return sorted(shards, key=tier_of)


@dataclass(slots=True)
class Precedence:
    """The tiers that wait in a pass, by what for: money, a provider, a provider's model."""

    _waiting: dict[str, int] = field(default_factory=dict)

    def hold(self, shard: Sharded, scope: str) -> None:
        """Note that a shard waits, so that no later tier takes what it waits for."""
        self._waiting[scope] = min(tier_of(shard), self._waiting.get(scope, LAST))

    def before(self, shard: Sharded) -> int | None:
        """Return the tier that a shard must let go first, if there is one."""
        scopes = (ALL, of_provider(shard), of_model(shard))
        first = min(self._waiting.get(scope, LAST) for scope in scopes)
        return first if first < tier_of(shard) else None

    def is_for_money(self, shard: Sharded) -> bool:
        """Whether what a shard must let go first waits for money, which waiting alone does not bring."""
        return self._waiting.get(ALL, LAST) < tier_of(shard)


def of_provider(shard: Sharded) -> str:
    """Return the scope of a provider's account."""
    return shard.provider


def of_model(shard: Sharded) -> str:
    """Return the scope of a provider's model."""
    return f"{shard.provider}/{shard.request_model}"
