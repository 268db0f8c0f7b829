"""Anthropic carries no token: a lost create is found by its results alone, beside a foreign tool, and bought once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from batchpond.errors import UsageError
from batchpond.lake.attempts import Phase
from batchpond.lake.events import read
from batchpond.lake.records import Foreign, Resolution
from batchpond.run.resolve import resolve
from batchpond_sim.world.world import Settings
from tests.rigs.foreign_tool import make_batch
from tests.rigs.sim_study import LATENCY_S, Rig
from tests.rigs.swept import every

N = 12
SETTLE_S = 1_800.0


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """One Anthropic model and one shard of twelve requests, planned."""
    rig = Rig(tmp_path, max_requests=50, models=("claude-haiku-4-5",), with_lens=False)
    rig.plan()
    yield rig
    rig.world.close()


def pass_time(rig: Rig, seconds: float = 1_000.0, n_passes: int = 1) -> None:
    for _ in range(n_passes):
        rig.clock.advance(seconds)
        rig.sync()


def ours(rig: Rig) -> list[str]:
    return [batch_id for batch_id in rig.world.ledger.batches if batch_id not in rig.foreign]


def assert_bought_once(rig: Rig) -> None:
    assert len(ours(rig)) == 1
    assert len(rig.answers()) == N
    assert rig.violations() == []


@pytest.mark.parametrize(
    "fault", ["reset_after", "hang_after=9999", "html_after=502", "html_after=200", "status_after=500"]
)
@pytest.mark.parametrize("is_foreign_first", [True, False])
def test_a_lost_acknowledgement_is_found_by_its_results_beside_a_foreign_batch_of_the_same_size(
    rig: Rig, fault: str, is_foreign_first: bool
) -> None:
    if is_foreign_first:
        make_batch(rig, N)
    rig.world.add_fault("batches.create@1:" + fault)
    rig.submit()
    assert rig.only().phase is Phase.UNKNOWN
    if not is_foreign_first:
        make_batch(rig, N)
    pass_time(rig, n_passes=3)
    assert rig.only().phase is Phase.VERIFIED
    assert_bought_once(rig)


@pytest.mark.parametrize("held_s", [400, 1_200])
def test_a_create_that_is_held_back_while_we_give_up_is_unknown_and_found(rig: Rig, held_s: int) -> None:
    """It is carried out within the settle time, after nobody waited for its answer any more; it is bought once."""
    rig.world.add_fault(f"batches.create@1:delay_exec={held_s}")
    rig.submit()
    make_batch(rig, N)
    assert (rig.only().phase, rig.wire.n_create_posts) == (Phase.UNKNOWN, 1)
    pass_time(rig, SETTLE_S / 3, n_passes=5)
    assert (rig.only().phase, rig.wire.n_create_posts) == (Phase.VERIFIED, 1)
    assert_bought_once(rig)


@pytest.mark.parametrize("fault", ["reset_before", "html=502", "status=500", "hang_before=9999"])
def test_a_create_that_never_arrived_is_sent_again_only_when_no_foreign_batch_can_be_it(rig: Rig, fault: str) -> None:
    rig.world.add_fault("batches.create@1:" + fault)
    rig.submit()
    make_batch(rig, N)
    rig.world.add_fault("batches.list@*:regress")  # and looks unfinished for as long as the fault lasts
    pass_time(rig, SETTLE_S + 60, n_passes=4)
    assert (rig.only().phase, rig.wire.n_create_posts) == (Phase.UNKNOWN, 1), "an undecided candidate forbids a second"
    rig.world.clear_faults()
    pass_time(rig, n_passes=4)
    assert rig.wire.n_create_posts == 2
    assert [event.batch_id for event in read(rig.store()) if isinstance(event, Foreign)] == list(rig.foreign)
    assert_bought_once(rig)


@pytest.mark.parametrize("fault", ["status_after=429", "status_after=413", "status_after=400"])
def test_a_refused_create_beside_what_may_be_its_batch_is_in_doubt_until_the_results_tell(rig: Rig, fault: str) -> None:
    """Defect 3.2: made all the same, and not known by a token: a person may decide, and else the results do."""
    rig.world.add_fault("batches.create@1:" + fault)
    rig.submit()
    assert rig.only().phase is Phase.REJECTED
    rig.world.add_fault("batches.list@*:regress")  # what was made looks unfinished
    rig.clock.advance(SETTLE_S + 60)
    rig.submit()
    assert (rig.only().phase, rig.wire.n_create_posts) == (Phase.UNKNOWN, 1)
    (mine,) = ours(rig)
    assert any(f"{mine} may be attempt" in note for note in rig.notes)
    pass_time(rig, SETTLE_S, n_passes=3)
    assert (rig.only().phase, rig.wire.n_create_posts) == (Phase.UNKNOWN, 1)
    rig.world.clear_faults()
    pass_time(rig, n_passes=2)
    assert rig.wire.n_create_posts == 1
    assert_bought_once(rig)


def test_a_foreign_batch_of_another_size_is_not_waited_for(rig: Rig) -> None:
    rig.world.add_fault("batches.create@1:reset_before")
    rig.submit()
    make_batch(rig, N + 1)
    rig.world.add_fault("batches.list@*:regress")
    pass_time(rig, SETTLE_S + 60, n_passes=3)
    assert rig.wire.n_create_posts == 2


def test_a_foreign_tool_that_never_rests_cannot_keep_an_attempt_in_doubt_for_ever(rig: Rig) -> None:
    rig.world.add_fault("batches.create@1:reset_before")
    rig.submit()
    for _ in range(8):
        make_batch(rig, N)
        pass_time(rig)
    pass_time(rig, n_passes=3)
    assert_bought_once(rig)


def test_while_one_create_is_in_doubt_no_other_is_made(tmp_path: Path) -> None:
    rig = Rig(tmp_path, max_requests=3, models=("claude-haiku-4-5",), with_lens=False)
    rig.plan()
    rig.world.add_fault("batches.create@2:reset_after")
    rig.submit()
    assert rig.wire.n_create_posts == 2
    rig.clock.advance(10)
    rig.sync()
    assert rig.wire.n_create_posts == 2
    rig.settle()
    assert len(ours(rig)) == 4
    assert rig.violations() == []
    rig.world.close()


def test_another_workspaces_key_proves_nothing(tmp_path: Path) -> None:
    settings = Settings(seed=1, latency_s=LATENCY_S, keys={"sk-a": "work-a", "sk-b": "work-b"})
    rig = Rig(tmp_path, settings, max_requests=50, models=("claude-haiku-4-5",), key="sk-a", with_lens=False)
    rig.plan()
    rig.world.add_fault("batches.create@1:reset_after")
    rig.submit()
    rig.key = "sk-b"
    pass_time(rig, SETTLE_S, n_passes=4)
    assert rig.only().phase is Phase.UNKNOWN
    rig.key = "sk-a"
    pass_time(rig, n_passes=2)
    assert_bought_once(rig)
    rig.world.close()


def test_a_person_may_decide_before_the_results_do(rig: Rig) -> None:
    rig.world.add_fault("batches.create@1:reset_after")
    rig.submit()
    (mine,) = ours(rig)
    smaller = make_batch(rig, N - 1)
    with pytest.raises(UsageError, match="number of requests"):
        resolve(rig.store(), rig.only().attempt_id, Resolution.ADOPT, batch_id=smaller, providers=rig.providers())
    resolve(rig.store(), rig.only().attempt_id, Resolution.ADOPT, batch_id=mine, providers=rig.providers())
    pass_time(rig)
    assert_bought_once(rig)


@pytest.mark.parametrize("crash_in", every(3, range(0, 60, 4)))
def test_a_crash_while_looking_buys_nothing_twice(rig: Rig, crash_in: int) -> None:
    make_batch(rig, N)
    rig.world.add_fault("batches.create@1:reset_after")
    rig.submit()
    rig.clock.advance(1_000)
    rig.crash_in = crash_in
    rig.survive(rig.sync)
    rig.settle()
    assert_bought_once(rig)
