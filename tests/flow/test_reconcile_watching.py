"""What a provider says of batches that are on their way, and what is believed of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from batchpond.lake.attempts import Phase
from batchpond.lake.records import Resolution
from batchpond.model import BatchState
from batchpond.run import sync
from batchpond.run.resolve import resolve
from tests.rigs.one_shard import assert_one_batch_with_every_answer, finish, planned, working_on
from tests.rigs.sim_study import Rig


@pytest.fixture(scope="module")
def planned_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planned(tmp_path_factory.mktemp("planned"))


@pytest.fixture
def rig(tmp_path: Path, planned_lake: Path) -> Iterator[Rig]:
    with working_on(planned_lake, tmp_path) as rig:
        yield rig


def test_404_just_after_create_is_no_loss(rig: Rig) -> None:
    rig.world.add_fault("batches.create@1:notfound_after_create=4")
    rig.world.add_fault("batches.create@1:stale_list=400")
    rig.submit()
    for _ in range(6):
        rig.clock.advance(60)
        rig.sync()
        assert rig.only().phase in {Phase.OPEN, Phase.ENDED, Phase.VERIFIED}
    finish(rig)
    assert_one_batch_with_every_answer(rig)


def test_404s_of_a_day_that_come_and_go_are_no_loss(rig: Rig) -> None:
    rig.world.add_fault("batches.create@1:stuck=in_progress")
    rig.submit()
    for _ in range(8):
        rig.world.add_fault("batches.list@1:has_more_lies=false")
        rig.world.add_fault("batches.list@1:stale_list=9999999")
        rig.world.add_fault("batches.get@1:status=404")
        rig.clock.advance(4 * 3600)
        rig.sync()
        rig.clock.advance(3600)
        rig.sync()
    assert rig.only().phase is Phase.OPEN
    assert len(rig.only().not_found) <= 1


def test_404_for_a_day_is_missing_and_is_never_bought_again(rig: Rig) -> None:
    rig.world.add_fault("batches.create@1:stuck=in_progress")
    rig.submit()
    rig.world.add_fault("batches.list@*:stale_list=9999999")
    rig.world.add_fault("batches.get@*:status=404")
    for _ in range(4):
        finish(rig)
    assert rig.only().phase is Phase.OPEN
    for _ in range(30):
        rig.clock.advance(3_600)
        report = rig.sync()
    assert rig.only().phase is Phase.MISSING_REMOTE
    assert report.n_attention == 1
    assert rig.wire.n_create_posts == 1
    resolve(rig.store(), rig.only().attempt_id, Resolution.LOST, providers=rig.providers())
    finish(rig, 2)
    assert (rig.only().phase, rig.wire.n_create_posts) == (Phase.LOST, 1)


def test_each_of_many_batches_that_no_listing_shows_has_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that never ends takes no other's turn, though a pass asks about one alone."""
    monkeypatch.setattr(sync, "GETS_MAX", 1)
    rig = Rig(tmp_path, max_requests=4, models=("gpt-4.1-mini",), with_lens=False)
    rig.plan()
    rig.world.add_fault("batches.create@1:stuck=in_progress")
    rig.submit()
    rig.world.add_fault("batches.list@*:stale_list=9999999")
    for _ in range(60):
        rig.clock.advance(600)
        rig.sync()
    assert sorted(attempt.phase for attempt in rig.attempts()) == [Phase.OPEN, Phase.VERIFIED, Phase.VERIFIED]
    rig.world.close()


@pytest.mark.parametrize("fault", ["status_word=archiving", "counts_wrong", "counts_null", "counts_text", "regress"])
def test_odd_statuses_change_no_outcome(rig: Rig, fault: str) -> None:
    rig.submit()
    rig.world.add_fault(f"batches.list@1:{fault}")
    finish(rig, 3)
    assert_one_batch_with_every_answer(rig)


def test_an_ended_batch_that_a_stale_replica_shows_running_stays_ended_and_is_collected(rig: Rig) -> None:
    rig.world.add_fault("batches.create@1:results_404=3")
    rig.submit()
    finish(rig)
    assert rig.only().phase is Phase.ENDED
    rig.world.add_fault("batches.get@1-3:regress")
    finish(rig, 3)
    assert (rig.only().phase, rig.only().state) == (Phase.ENDED, BatchState.COMPLETED)
    finish(rig, 3)
    assert_one_batch_with_every_answer(rig)


def test_a_broken_listing_does_not_stop_the_watching(rig: Rig) -> None:
    rig.submit()
    rig.world.add_fault("batches.list@*:status=500")
    finish(rig, 2)
    assert_one_batch_with_every_answer(rig)


def test_a_pass_with_nothing_new_writes_and_asks_nothing(tmp_path: Path) -> None:
    rig = Rig(tmp_path, max_requests=5)
    rig.plan()
    rig.submit()
    rig.clock.advance(1)
    rig.sync()
    tree, calls = rig.tree(), dict(rig.wire.calls)
    rig.sync()
    assert rig.tree() == tree
    assert {name: n - calls.get(name, 0) for name, n in rig.wire.calls.items() if n > calls.get(name, 0)} == {
        "GET /batches": 1
    }
    finish(rig)
    tree, n_calls = rig.tree(), sum(rig.wire.calls.values())
    finish(rig, 2)
    assert (rig.tree(), sum(rig.wire.calls.values())) == (tree, n_calls)
