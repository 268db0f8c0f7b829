"""What ended batches give up, however their files come: every line kept, counted, and at its own request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from batchpond.errors import ExitCode
from batchpond.lake.attempts import Phase
from batchpond.lake.records import Resolution
from batchpond.model import BatchState
from batchpond.run.resolve import cancel, resolve
from tests.rigs.one_shard import N, assert_one_batch_with_every_answer, counts, finish, planned, working_on
from tests.rigs.sim_study import Rig


@pytest.fixture(scope="module")
def planned_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planned(tmp_path_factory.mktemp("planned"))


@pytest.fixture
def rig(tmp_path: Path, planned_lake: Path) -> Iterator[Rig]:
    with working_on(planned_lake, tmp_path) as rig:
        yield rig


def test_results_that_are_404_at_first_are_fetched_later(rig: Rig) -> None:
    """Each pass that does not get them says so to a person, and one that does counts what it brought."""
    rig.world.add_fault("batches.create@1:results_404=2")
    rig.submit()
    rig.clock.advance(1_000)
    passes = [rig.sync() for _ in range(3)]
    assert [one.exit_code for one in passes] == [ExitCode.ATTENTION, ExitCode.ATTENTION, ExitCode.DONE]
    assert all(any("404 for the output file" in note.message for note in one.notes) for one in passes[:2])
    assert [(one.counts.n_files_downloaded, one.counts.n_lines) for one in passes] == [(0, 0), (0, 0), (1, N)]
    assert_one_batch_with_every_answer(rig)


def test_one_file_that_cannot_be_fetched_does_not_keep_the_other_from_disk(rig: Rig) -> None:
    rig.world.add_fault("lines@1:error_rows=3")
    rig.submit()
    rig.world.add_fault("files.content@2-99:status=404")
    finish(rig)
    assert rig.only().phase is Phase.ENDED
    assert rig.rows("select count(*) from raw", "raw") == [(N - 3,)]
    for _ in range(30):
        rig.clock.advance(3_600)
        rig.sync()
    assert rig.only().phase is Phase.MISMATCH
    assert len(rig.answers()) == N - 3
    rig.world.clear_faults()
    resolve(rig.store(), rig.only().attempt_id, Resolution.REFETCH, providers=rig.providers())
    finish(rig)
    assert rig.only().phase is Phase.VERIFIED
    assert counts(rig) == {"matched succeeded": N - 3, "matched errored": 3}


@pytest.mark.parametrize("spoilt", ["changed", "truncate=0.5", "garbage"])
@pytest.mark.parametrize("point", ["Y8", "Y9"])
def test_what_was_read_of_a_download_that_was_never_recorded_does_not_stand_beside_what_came_later(
    rig: Rig, spoilt: str, point: str
) -> None:
    """The process dies once responses are published; the file comes otherwise the next time: one answer a request."""
    rig.submit()
    rig.world.add_fault(f"files.content@1:{spoilt}")
    rig.clock.advance(1_000)
    rig.crash_at = point
    assert not rig.survive(rig.sync)
    rig.world.clear_faults()
    finish(rig, 3)
    assert_one_batch_with_every_answer(rig)
    assert rig.rows("select count(*), count(distinct request_id) from judgments", "judgments") == [(N, N)]


def test_completed_without_any_file_is_a_mismatch_not_an_endless_wait(rig: Rig) -> None:
    rig.world.add_fault("batches.create@1:empty_output")
    rig.submit()
    finish(rig, 3)
    assert rig.only().phase is Phase.MISMATCH
    assert rig.wire.n_create_posts == 1


def test_an_empty_string_as_file_id_is_no_file(rig: Rig) -> None:
    rig.world.add_fault("batches.create@1:error_file_empty_string")
    rig.submit()
    finish(rig, 2)
    assert_one_batch_with_every_answer(rig)


def test_an_error_file_alone_ends_the_batch(rig: Rig) -> None:
    rig.world.add_fault(f"lines@1:error_rows={N}")
    rig.submit()
    finish(rig)
    assert rig.only().phase is Phase.VERIFIED
    assert counts(rig) == {"matched errored": N}


def test_an_expired_batch_gives_up_what_it_has(rig: Rig) -> None:
    rig.world.add_fault("batches.create@1:expire=0.5")
    rig.submit()
    finish(rig, 1)
    rig.clock.advance(90_000)
    finish(rig)
    assert (rig.only().phase, rig.only().state) == (Phase.VERIFIED, BatchState.EXPIRED)
    assert counts(rig) == {"matched succeeded": N // 2, "matched expired": N // 2}
    assert rig.violations() == []


def test_an_expired_batch_without_counters_is_fetched_again_when_its_file_came_too_short(rig: Rig) -> None:
    """Nothing but another download tells that the first one held too little."""
    for fault in ("expire=0.5", "counts_null"):
        rig.world.add_fault(f"batches.create@1:{fault}")
    rig.world.add_fault("files.content@1:truncate=0.5")
    rig.submit()
    rig.clock.advance(90_000)
    finish(rig)
    assert (rig.only().phase, rig.only().state) == (Phase.VERIFIED, BatchState.EXPIRED)
    assert counts(rig) == {"matched succeeded": N // 2, "matched expired": N // 2}


def test_a_batch_that_expires_without_files_is_done_too(rig: Rig) -> None:
    rig.world.add_fault("batches.create@1:expire_bare")
    rig.submit()
    rig.clock.advance(90_000)
    finish(rig, 3)
    assert rig.only().state is BatchState.EXPIRED
    assert rig.only().phase in {Phase.VERIFIED, Phase.MISMATCH}
    assert rig.wire.n_create_posts == 1


@pytest.mark.parametrize("fault", ["full", "conflict", "lost"])
def test_a_batch_that_completes_while_it_is_cancelled_gives_up_what_it_has(rig: Rig, fault: str) -> None:
    rig.world.add_fault(f"batches.create@1:cancel_race={fault}")
    rig.submit()
    rig.clock.advance(200)
    rig.sync()
    cancel(rig.store(), [rig.only().batch_id or ""], providers=rig.providers())
    finish(rig, 3)
    assert rig.only().state in {BatchState.COMPLETED, BatchState.CANCELLED}
    assert rig.only().phase in {Phase.VERIFIED, Phase.MISMATCH}
    assert rig.wire.n_create_posts == 1
    assert rig.violations() == []


def test_a_batch_that_failed_validation_is_not_sent_again(rig: Rig) -> None:
    rig.world.add_fault("batches.create@1:fail=invalid_request")
    rig.submit()
    finish(rig, 3)
    assert (rig.only().phase, rig.only().state) == (Phase.VERIFIED, BatchState.FAILED)
    assert rig.wire.n_create_posts == 1


def test_a_download_that_ends_cleanly_too_early_is_fetched_again(rig: Rig) -> None:
    rig.submit()
    rig.world.add_fault("files.content@1-2:truncate=0.5")
    finish(rig)
    assert (rig.only().phase, rig.only().n_mismatches) == (Phase.ENDED, 0)
    finish(rig)
    assert_one_batch_with_every_answer(rig)


def test_a_completed_batch_owes_a_line_per_request_whatever_its_counters_say(rig: Rig) -> None:
    """Its file may not be the last word: it is looked at again for a while before the rest is called missing."""
    rig.world.add_fault("batches.create@1:counts_wrong")
    rig.world.add_fault("lines@1:drop=8")
    rig.submit()
    finish(rig)
    assert rig.only().phase is Phase.ENDED
    finish(rig)
    assert rig.only().phase is Phase.MISMATCH
    assert counts(rig) == {"matched succeeded": N - 8}


def test_a_download_that_stays_too_short_is_a_mismatch_until_it_is_fetched_whole(rig: Rig) -> None:
    rig.submit()
    rig.world.add_fault("files.content@*:truncate=0.5")
    finish(rig)
    assert rig.only().phase is Phase.ENDED
    finish(rig)
    assert rig.only().phase is Phase.MISMATCH
    partial = rig.answers()
    assert 0 < len(partial) < N
    rig.world.clear_faults()
    resolve(rig.store(), rig.only().attempt_id, Resolution.REFETCH, providers=rig.providers())
    finish(rig)
    assert rig.only().phase is Phase.VERIFIED
    assert partial.items() <= rig.answers().items()
    assert_one_batch_with_every_answer(rig)


@pytest.mark.parametrize("share", ["0.5", "0.97"])
def test_a_download_cut_inside_its_last_line_is_fetched_again(rig: Rig, share: str) -> None:
    """It has as many lines as were sent: only the broken last one, and then its size, tell."""
    rig.submit(limit=1)
    rig.world.add_fault(f"files.content@*:truncate_mid={share}")
    finish(rig, 2)
    assert rig.answers() == {}
    rig.world.clear_faults()
    if rig.only().phase is Phase.MISMATCH:
        resolve(rig.store(), rig.only().attempt_id, Resolution.REFETCH, providers=rig.providers())
    finish(rig)
    assert rig.only().phase is Phase.VERIFIED
    assert len(rig.answers()) == 1
    assert rig.violations() == []


@pytest.mark.parametrize("fault", ["truncate_mid=0.5", "reset_at=300", "status=503", "html=200", "slow=2"])
def test_a_broken_download_leaves_nothing_and_is_made_again(rig: Rig, fault: str) -> None:
    rig.submit()
    rig.world.add_fault(f"files.content@1:{fault}")
    finish(rig, 2)
    assert_one_batch_with_every_answer(rig)
    assert list((rig.lake / "_tmp").iterdir()) == []


LINE_FAULTS = {
    "duplicate=2": ({"matched succeeded": N, "duplicate succeeded": 2}, Phase.VERIFIED),
    "duplicate_differs=2": ({"matched succeeded": N, "conflict succeeded": 2}, Phase.MISMATCH),
    "unknown_id=2": ({"matched succeeded": N, "unmatched succeeded": 2}, Phase.MISMATCH),
    "drop=2": ({"matched succeeded": N - 2}, Phase.MISMATCH),
    "malformed=2": ({"matched succeeded": N - 2, "unmatched unreadable": 2}, Phase.MISMATCH),
    "missing_id=2": ({"matched succeeded": N - 2, "unmatched succeeded": 2}, Phase.MISMATCH),
    "both_files=2": ({"matched succeeded": N, "duplicate expired": 2}, Phase.VERIFIED),
    "reorder": ({"matched succeeded": N}, Phase.VERIFIED),
    "in_order": ({"matched succeeded": N}, Phase.VERIFIED),
    "bom": ({"matched succeeded": N}, Phase.VERIFIED),
    "crlf": ({"matched succeeded": N}, Phase.VERIFIED),
    "no_final_lf": ({"matched succeeded": N}, Phase.VERIFIED),
    "u2028=3": ({"matched succeeded": N}, Phase.VERIFIED),
    "lone_surrogate=3": ({"matched succeeded": N}, Phase.VERIFIED),
    "status_in_output=3": ({"matched succeeded": N - 3, "matched errored": 3}, Phase.VERIFIED),
}


@pytest.mark.parametrize("fault", LINE_FAULTS)
def test_every_line_is_kept_and_counted_for_what_it_is(rig: Rig, fault: str) -> None:
    rig.world.add_fault(f"lines@1:{fault}")
    rig.submit()
    finish(rig, 3)
    assert (counts(rig), rig.only().phase) == LINE_FAULTS[fault]
    assert rig.violations() == []


def test_answers_do_not_depend_on_the_order_of_lines(tmp_path: Path) -> None:
    found = []
    for fault in ("in_order", "reorder"):
        rig = Rig(tmp_path / fault, max_requests=50, models=("gpt-4.1-mini",), with_lens=False)
        rig.plan()
        rig.world.add_fault(f"lines@1:{fault}")
        rig.submit()
        finish(rig)
        found.append(rig.answers())
    assert found[0] == found[1]
