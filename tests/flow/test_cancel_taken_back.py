"""Where a cancelled batch's counters may turn back, they are believed only after a while: no answer is given up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from batchpond.model import BatchState
from batchpond.run.resolve import cancel
from batchpond_sim.world.world import Settings
from tests.rigs.sim_providers import SIMULATED
from tests.rigs.sim_study import Rig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """A batch of xAI's that runs."""
    settings = Settings(seed=1, latency_s=(1_000.0, 1_000.0), cancel_s=60.0)
    made = Rig(tmp_path, settings, models=SIMULATED["xai"].models[:1], max_requests=50, with_lens=False)
    made.plan()
    made.submit()
    made.clock.advance(500)
    made.sync()
    yield made
    made.world.close()


def stop(rig: Rig) -> None:
    """Cancel the batch, and look at it at once."""
    cancel(rig.store(), [rig.only().attempt_id], providers=rig.providers())
    rig.sync()
    assert (rig.only().state, rig.answers()) == (BatchState.CANCELLING, {}), "its counters say that it has ended"


def test_what_turns_back_into_answers_is_collected_whole(rig: Rig) -> None:
    rig.world.add_fault("batches.cancel@1:cancel_race=full")
    stop(rig)
    rig.clock.advance(100)
    rig.sync()
    assert (rig.only().state, len(rig.answers())) == (BatchState.COMPLETED, 12)
    assert rig.violations() == []


def test_what_stays_cancelled_is_believed_after_three_minutes(rig: Rig) -> None:
    """And what was answered before is kept."""
    stop(rig)
    rig.clock.advance(100)
    rig.sync()
    assert (rig.only().state, rig.answers()) == (BatchState.CANCELLING, {})
    rig.clock.advance(100)
    rig.sync()
    assert rig.only().state is BatchState.CANCELLED
    statuses = rig.rows("select distinct status::varchar from responses order by all", "responses")
    assert statuses == [("cancelled",), ("succeeded",)]
    assert 0 < len(rig.answers()) < 12
    assert rig.violations() == []
