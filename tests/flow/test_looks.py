"""What looking before a create costs: a contract, at every provider that has batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rigs.sim_providers import SIMULATED
from tests.rigs.sim_study import Rig

SHARDS = 21


def sent(path: Path, provider: str, *, upload_s: float) -> Rig:
    """Return a rig whose study of many batches was sent, each upload taking so long."""
    rig = Rig(path, models=SIMULATED[provider].models[:1], n_items=7, max_requests=2, with_lens=False)

    def passed(name: str) -> None:
        rig.clock.advance(upload_s if name == "S4" else 0.0)

    rig.pass_point = passed  # type: ignore[method-assign]
    rig.plan()
    rig.submit()
    assert rig.wire.n_create_posts == SHARDS
    return rig


@pytest.mark.parametrize("provider", SIMULATED)
def test_looks_cost_one_listing_and_little_more_where_nothing_was_refused(provider: str, tmp_path: Path) -> None:
    """A submit asks for at most one page in twenty creates more than the one before the first."""
    rig = sent(tmp_path, provider, upload_s=0.0)
    assert rig.world.ledger.calls[f"{provider}.batches.list"] <= 1 + SHARDS / 20


@pytest.mark.parametrize("provider", SIMULATED)
def test_looks_cost_at_most_one_page_a_create_however_slow_the_uploads_are(provider: str, tmp_path: Path) -> None:
    """What is older than five seconds is looked at again right before a create, and never twice for one."""
    rig = sent(tmp_path, provider, upload_s=6.0)
    assert rig.world.ledger.calls[f"{provider}.batches.list"] <= 1 + SHARDS
