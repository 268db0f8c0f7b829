"""A lake of one shard against the simulator, for tests of one provider quirk each."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.rigs.sim_study import Rig

N = 12


def new_rig(path: Path) -> Rig:
    """Return a rig of one model and one shard."""
    return Rig(path, max_requests=50, models=("gpt-4.1-mini",), with_lens=False)


def planned(folder: Path) -> Path:
    """Plan one model and one shard of twelve requests; returns the lake."""
    rig = new_rig(folder)
    rig.plan()
    rig.world.close()
    return rig.lake


@contextmanager
def working_on(planned_lake: Path, folder: Path) -> Iterator[Rig]:
    """Work on a copy of a planned lake."""
    rig = new_rig(folder)
    shutil.copytree(planned_lake, rig.lake)
    yield rig
    rig.world.close()


def finish(rig: Rig, n_passes: int = 1) -> None:
    """Let time pass and sync, so many times."""
    for _ in range(n_passes):
        rig.clock.advance(1_000)
        rig.sync()


def assert_one_batch_with_every_answer(rig: Rig) -> None:
    """Nothing was bought twice, and nothing is lost."""
    assert len(rig.world.ledger.batches) == 1
    assert rig.billed()[0] == N
    assert len(rig.answers()) == N
    assert rig.violations() == []


def counts(rig: Rig) -> dict[object, object]:
    """Return how many lines there are by match and status."""
    rows = rig.rows("select match || ' ' || status, count(*) from responses group by all", "responses")
    return dict(rows)  # type: ignore[arg-type]
