"""Together carries no token, but every job names its input file: by that a lost create is found, and bought once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from batchpond.errors import UsageError
from batchpond.lake.attempts import Phase
from batchpond.lake.events import read
from batchpond.lake.records import DuplicateRemote, Resolution
from batchpond.run.resolve import resolve
from batchpond_sim.world.world import Settings
from tests.rigs.sim_providers import SIMULATED
from tests.rigs.sim_study import LATENCY_S, Rig
from tests.rigs.sim_transport import SimulatorTransport
from tests.rigs.simulator import CHAT
from tests.rigs.swept import every
from tests.rigs.together import payload

N = 12
TOGETHER = SIMULATED["together"]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """One Together model and one shard of twelve requests, planned."""
    rig = Rig(tmp_path, max_requests=50, models=TOGETHER.models[:1], with_lens=False)
    rig.plan()
    yield rig
    rig.world.close()


def make_foreign_batch(rig: Rig, n_requests: int = N) -> str:
    """Let another program make a batch of a file of its own in the same account."""
    before = set(rig.world.ledger.batches)
    headers = {"Authorization": f"Bearer {rig.key}"}
    with httpx.Client(transport=SimulatorTransport(rig.world, rig.clock), headers=headers) as client:
        form = {"purpose": "batch-api", "file_name": "theirs.jsonl"}
        files = {"file": ("theirs.jsonl", payload(n_requests))}
        file_id = client.post(f"{TOGETHER.base_url}/v1/files/upload", files=files, data=form).json()["id"]
        job = {"input_file_id": file_id, "endpoint": CHAT}
        made = client.post(f"{TOGETHER.base_url}/v1/batches", json=job).json()["job"]["id"]
    rig.foreign |= set(rig.world.ledger.batches) - before
    rig.wire.restart()
    return str(made)


def pass_time(rig: Rig, n_passes: int = 1, seconds: float = 1_000.0) -> None:
    for _ in range(n_passes):
        rig.clock.advance(seconds)
        rig.sync()


def lose_and_hide(rig: Rig) -> None:
    """Lose the answer to the next create, and hide its batch for some minutes: submit looks once itself."""
    for fault in ("reset_after", "stale_list=300"):
        rig.world.add_fault(f"batches.create@1:{fault}")


def ours(rig: Rig) -> list[str]:
    return [batch_id for batch_id in rig.world.ledger.batches if batch_id not in rig.foreign]


@pytest.mark.parametrize("fault", ["reset_after", "html_after=200", "status_after=503"])
def test_a_lost_acknowledgement_is_found_at_once_beside_a_foreign_batch_of_the_same_size(rig: Rig, fault: str) -> None:
    """The first look knows it, before it has any results."""
    make_foreign_batch(rig)
    rig.world.add_fault(f"batches.create@1:{fault}")
    rig.submit()
    assert (rig.only().phase, rig.only().batch_id) == (Phase.OPEN, ours(rig)[0])
    pass_time(rig)
    assert len(rig.answers()) == N
    assert rig.violations() == []


def test_a_create_that_never_arrived_is_sent_again_though_a_foreign_batch_is_as_large(rig: Rig) -> None:
    """Nothing is left undecided: a foreign batch is of a foreign file."""
    rig.world.add_fault("batches.create@1:reset_before")
    rig.submit()
    make_foreign_batch(rig)
    pass_time(rig, 4)
    assert rig.wire.n_create_posts == 2
    assert len(ours(rig)) == 1
    assert len(rig.answers()) == N
    assert rig.violations() == []


def test_a_batch_that_comes_to_be_after_its_absence_was_proven_is_noticed_by_its_file(rig: Rig) -> None:
    """Beyond what the settle time covers: it was bought twice, and that is said while the other one runs."""
    rig.world.add_fault("batches.create@1:delay_exec=6000")
    rig.world.add_fault("batches.create@2:stuck=in_progress")
    rig.submit()
    pass_time(rig, 8)
    assert rig.wire.n_create_posts == 2
    absent = next(attempt for attempt in rig.attempts() if attempt.phase is Phase.ABSENT)
    found = [event for event in read(rig.store()) if isinstance(event, DuplicateRemote)]
    assert [event.attempt_id for event in found] == [absent.attempt_id]
    assert any("is a second one for attempt" in note for note in rig.notes)


def test_while_batches_are_open_a_second_one_of_the_same_file_is_a_duplicate(rig: Rig) -> None:
    rig.submit()
    file_id = rig.only().file_id
    with httpx.Client(transport=SimulatorTransport(rig.world, rig.clock)) as client:
        headers = {"Authorization": f"Bearer {rig.key}"}
        job = {"input_file_id": file_id, "endpoint": CHAT}
        second = client.post(f"{TOGETHER.base_url}/v1/batches", json=job, headers=headers).json()["job"]["id"]
    rig.wire.restart()
    rig.sync()
    found = [event.batch_id for event in read(rig.store()) if isinstance(event, DuplicateRemote)]
    assert found == [second]
    assert any("is a second one for attempt" in note for note in rig.notes)


def test_a_key_that_does_not_see_the_file_proves_nothing(tmp_path: Path) -> None:
    settings = Settings(seed=1, latency_s=LATENCY_S, keys={"sk-a": "proj-a", "sk-b": "proj-b"})
    rig = Rig(tmp_path, settings, max_requests=50, models=TOGETHER.models[:1], key="sk-a", with_lens=False)
    rig.plan()
    lose_and_hide(rig)
    rig.submit()
    rig.key = "sk-b"
    pass_time(rig, 4)
    assert (rig.only().phase, rig.wire.n_create_posts) == (Phase.UNKNOWN, 1)
    rig.key = "sk-a"
    pass_time(rig, 2)
    assert len(rig.answers()) == N
    assert rig.violations() == []
    rig.world.close()


def test_a_person_cannot_give_an_attempt_a_batch_of_another_file(rig: Rig) -> None:
    foreign = make_foreign_batch(rig)
    lose_and_hide(rig)
    rig.submit()
    attempt_id = rig.only().attempt_id
    with pytest.raises(UsageError, match="was made of file"):
        resolve(rig.store(), attempt_id, Resolution.ADOPT, batch_id=foreign, providers=rig.providers())
    resolve(rig.store(), attempt_id, Resolution.ADOPT, batch_id=ours(rig)[0], providers=rig.providers())
    pass_time(rig)
    assert rig.violations() == []


def test_a_file_that_together_could_not_read_is_sent_again_by_itself(rig: Rig) -> None:
    """Nothing ran and nothing was billed; the second attempt uploads anew."""
    rig.world.add_fault("batches.create@1:fail=file_unavailable")
    rig.submit()
    pass_time(rig, 5)
    assert [attempt.phase for attempt in rig.attempts()] == [Phase.VERIFIED, Phase.VERIFIED]
    assert len(rig.answers()) == N
    assert rig.billed()[0] == N
    assert rig.violations() == []


@pytest.mark.parametrize("crash_in", every(3, range(0, 48, 6)))
def test_a_crash_while_looking_buys_nothing_twice(rig: Rig, crash_in: int) -> None:
    make_foreign_batch(rig)
    lose_and_hide(rig)
    rig.submit()
    rig.clock.advance(1_000)
    rig.crash_in = crash_in
    rig.survive(rig.sync)
    rig.settle()
    assert len(ours(rig)) == 1
    assert len(rig.answers()) == N
    assert rig.violations() == []
