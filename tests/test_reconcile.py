"""What provider and network do to a batch, one test a quirk: never bought twice, never lost, never mixed up."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sim_study import LATENCY_S, Rig

from batchpond.attempts import Phase
from batchpond.cancel import cancel
from batchpond.errors import ExitCode, UsageError
from batchpond.lake.events import Kind, read
from batchpond.model import BatchState
from batchpond.resolve import Resolution, resolve
from batchpond.simulators.world import Settings

SETTLE_S = 900.0
N = 12


def new_rig(path: Path) -> Rig:
    return Rig(path, max_requests=50, models=("gpt-4.1-mini",), with_lens=False)


@pytest.fixture(scope="module")
def planned_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rig = new_rig(tmp_path_factory.mktemp("planned"))
    rig.plan()
    rig.world.close()
    return rig.lake


@pytest.fixture
def rig(tmp_path: Path, planned_lake: Path) -> Iterator[Rig]:
    """One model and one shard of twelve requests, planned."""
    rig = new_rig(tmp_path)
    shutil.copytree(planned_lake, rig.lake)
    yield rig
    rig.world.close()


def finish(rig: Rig, n_passes: int = 1) -> None:
    for _ in range(n_passes):
        rig.clock.advance(1_000)
        rig.sync()


def assert_one_batch_with_every_answer(rig: Rig) -> None:
    assert len(rig.world.ledger.batches) == 1
    assert rig.billed()[0] == N
    assert len(rig.answers()) == N
    assert rig.violations() == []


def counts(rig: Rig) -> dict[object, object]:
    rows = rig.rows("select match || ' ' || status, count(*) from responses group by all", "responses")
    return dict(rows)  # type: ignore[arg-type]


# -- creating: the answer is lost, or never came to be ------------------------------------------------


@pytest.mark.parametrize(
    "fault", ["reset_after", "hang_after=9999", "html_after=502", "html_after=200", "status_after=500",
              "status_after=408", "status_after=409"]
)  # fmt: skip
def test_a_lost_acknowledgement_is_found_by_token_at_once(rig: Rig, fault: str) -> None:
    rig.world.add_fault(f"batches.create@1:{fault}")
    rig.submit()
    assert rig.only().phase in {Phase.OPEN, Phase.ENDED}
    assert rig.wire.n_create_posts == 1
    finish(rig)
    assert_one_batch_with_every_answer(rig)


@pytest.mark.parametrize("fault", ["reset_before", "refuse", "html=502", "status=500", "hang_before=9999"])
def test_a_create_that_never_arrived_is_sent_again_only_once_proven_absent(rig: Rig, fault: str) -> None:
    rig.world.add_fault(f"batches.create@1:{fault}")
    report = rig.submit()
    is_sent_later = rig.only().phase is Phase.REJECTED  # nothing left this machine: no doubt to settle
    if not is_sent_later:
        assert (rig.only().phase, report.exit_code) == (Phase.UNKNOWN, ExitCode.ATTENTION)
    rig.clock.advance(SETTLE_S - 60)
    rig.sync()
    if not is_sent_later:
        assert rig.only().phase is Phase.UNKNOWN, "nothing is sent within the settle time"
        assert rig.wire.n_create_posts == 1
    finish(rig, 3)
    assert_one_batch_with_every_answer(rig)
    if not is_sent_later:
        assert [a.phase for a in rig.attempts()] == [Phase.ABSENT, Phase.VERIFIED]


def test_absence_needs_the_settle_time_whatever_the_number_of_listings(rig: Rig) -> None:
    rig.world.add_fault("batches.create@1:reset_before")
    rig.submit()
    for _ in range(8):
        rig.clock.advance(100)
        rig.sync()
    assert rig.only().phase is Phase.UNKNOWN
    assert rig.wire.n_create_posts == 1


@pytest.mark.parametrize("delay_s", [30, 600])
def test_a_late_execution_within_the_settle_time_is_adopted(rig: Rig, delay_s: int) -> None:
    rig.world.add_fault(f"batches.create@1:delay_exec={delay_s}")
    rig.submit()
    assert rig.only().phase is Phase.UNKNOWN
    rig.clock.advance(delay_s / 2)
    rig.sync()
    assert rig.only().phase is Phase.UNKNOWN
    finish(rig, 2)
    assert len(rig.attempts()) == 1
    assert_one_batch_with_every_answer(rig)


def test_an_execution_later_than_the_settle_time_is_flagged_and_never_cancelled(rig: Rig) -> None:
    """The one way to a second batch that is left: it is found, told, and left to the user."""
    rig.world.add_fault("batches.create@1:delay_exec=2500")
    rig.world.add_fault("batches.create@2:stuck=in_progress")
    rig.submit()
    finish(rig, 4)
    assert len(rig.world.ledger.batches) == 2
    duplicates = [event for event in read(rig.store()) if event.kind is Kind.DUPLICATE_REMOTE]
    assert len(duplicates) == 1
    assert rig.world.ledger.calls["openai.batches.cancel"] == 0
    assert any("is a second one for attempt" in note for note in rig.notes)


def test_a_late_batch_is_adopted_while_its_requests_were_not_sent_again(tmp_path: Path) -> None:
    rig = Rig(tmp_path, max_requests=6, models=("gpt-4.1-mini",), with_lens=False)
    rig.plan()
    rig.world.add_fault("batches.create@1:delay_exec=2500")
    rig.world.add_fault("batches.create@2:stuck=in_progress")
    rig.submit()
    for _ in range(4):
        rig.clock.advance(1_000)
        rig.sync(submit_due=False)
    late = rig.attempts()[0]
    assert (late.batch_id is not None, len(rig.attempts())) == (True, 2)
    assert rig.wire.n_create_posts == 2


def test_a_batch_that_the_list_shows_late_is_not_sent_again(rig: Rig) -> None:
    rig.world.add_fault("batches.create@1:reset_after")
    rig.world.add_fault("batches.create@1:stale_list=600")
    rig.submit()
    assert rig.only().phase is Phase.UNKNOWN
    finish(rig, 2)
    assert_one_batch_with_every_answer(rig)


@pytest.mark.parametrize(
    "fault", ["list_error_page=1", "cursor_loop", "has_more_lies=true", "empty_page", "html=200", "status=500"]
)
def test_a_listing_that_breaks_off_is_no_proof_of_absence(rig: Rig, fault: str) -> None:
    rig.world.add_fault("batches.create@1:reset_before")
    rig.world.add_fault(f"batches.list@*:{fault}")
    rig.submit()
    finish(rig, 4)
    assert rig.only().phase is Phase.UNKNOWN
    assert rig.wire.n_create_posts == 1
    rig.settle()
    assert_one_batch_with_every_answer(rig)


def test_a_key_of_another_project_proves_nothing(tmp_path: Path) -> None:
    """Its complete, empty listing would call the batch absent; the input file that it cannot see tells."""
    keys = {"sk-a": "proj_a", "sk-b": "proj_b"}
    settings = Settings(seed=1, latency_s=LATENCY_S, keys=keys)
    rig = Rig(tmp_path, settings, max_requests=50, models=("gpt-4.1-mini",), key="sk-a", with_lens=False)
    rig.plan()
    rig.world.add_fault("batches.create@1:reset_after")
    rig.world.add_fault("batches.create@1:stale_list=60")
    rig.submit()
    rig.key = "sk-b"
    finish(rig, 4)
    assert rig.only().phase is Phase.UNKNOWN
    assert any("may belong to another project" in note for note in rig.notes)
    rig.key = "sk-a"
    finish(rig, 2)
    assert_one_batch_with_every_answer(rig)


def test_a_local_clock_far_ahead_does_not_cut_the_listing_short(rig: Rig) -> None:
    """Batches are dated by the provider: a window by the local clock would skip all of them."""
    rig.world.add_fault("batches.create@1:clock_skew=-4000000")
    rig.world.add_fault("batches.create@1:reset_after")
    rig.submit()
    finish(rig, 3)
    assert_one_batch_with_every_answer(rig)


# -- creating: refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["status=429", "status=529", "file_not_ready", "status=401"])
def test_a_refusal_that_may_pass_is_sent_again_under_a_new_record(rig: Rig, fault: str) -> None:
    rig.world.add_fault(f"batches.create@1:{fault}")
    rig.submit()
    if rig.only().phase is Phase.REJECTED:
        finish(rig, 2)
        assert rig.only().n_sends == 2
    else:
        finish(rig, 4)
    assert_one_batch_with_every_answer(rig)


def test_a_billing_stop_is_not_tried_again_by_itself(rig: Rig) -> None:
    rig.world.add_fault("batches.create@1:billing")
    assert rig.submit().exit_code is ExitCode.FAILED
    finish(rig, 3)
    assert (rig.only().phase, rig.wire.n_create_posts) == (Phase.REJECTED, 1)
    rig.submit()
    finish(rig)
    assert_one_batch_with_every_answer(rig)


def test_a_refused_key_stops_its_provider_at_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path, max_requests=2, models=("gpt-4.1-mini",), with_lens=False)
    rig.plan()
    rig.world.add_fault("*@*:status=401")
    report = rig.submit()
    assert report.exit_code is ExitCode.ACCESS
    assert sum(rig.wire.calls.values()) == 1, "no hammering with a key that is refused"
    rig.settle()
    assert rig.billed()[0] == N
    assert rig.violations() == []


def test_a_full_queue_is_sent_again_later_and_nothing_is_billed_for_the_failure(rig: Rig) -> None:
    rig.world.add_fault("batches.create@1:enqueued")
    rig.submit()
    rig.clock.advance(60)
    rig.sync()
    assert len(rig.attempts()) == 1, "no tight loop"
    finish(rig, 4)
    assert [(a.phase, a.state) for a in rig.attempts()] == [
        (Phase.VERIFIED, BatchState.FAILED),
        (Phase.VERIFIED, BatchState.COMPLETED),
    ]
    assert rig.billed()[0] == len(rig.answers()) == N
    assert rig.violations() == []


def test_a_batch_that_had_failed_when_it_was_found_is_sent_again_too(rig: Rig) -> None:
    """Its error is on no later status: adopting it must keep why it failed."""
    rig.world.add_fault("batches.create@1:enqueued")
    rig.world.add_fault("batches.create@1:reset_after")
    rig.world.add_fault("batches.create@1:stale_list=300")
    rig.submit()
    assert rig.only().phase is Phase.UNKNOWN
    finish(rig)
    assert rig.attempts()[0].failure_code == "token_limit_exceeded"
    finish(rig, 4)
    assert rig.billed()[0] == len(rig.answers()) == N
    assert rig.violations() == []


def test_a_truncated_upload_creates_no_batch(rig: Rig) -> None:
    rig.world.add_fault("files.create@1:store=0.5")
    rig.submit()
    assert rig.wire.n_create_posts == 0
    assert any("bytes of" in note for note in rig.notes)
    finish(rig, 2)
    assert_one_batch_with_every_answer(rig)


def test_a_redirect_is_not_followed(rig: Rig) -> None:
    rig.world.add_fault("batches.create@1:redirect=http://attacker.example/v1/batches")
    rig.submit()
    assert rig.wire.n_create_posts == 1
    assert set(rig.world.ledger.hosts) == {"127.0.0.1:1"}
    rig.settle()
    assert_one_batch_with_every_answer(rig)


# -- watching ------------------------------------------------------------------------------------------


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


# -- collecting ----------------------------------------------------------------------------------------


def test_results_that_are_404_at_first_are_fetched_later(rig: Rig) -> None:
    rig.world.add_fault("batches.create@1:results_404=2")
    rig.submit()
    finish(rig)
    assert rig.only().phase is Phase.ENDED
    finish(rig, 2)
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


# -- idle, and other hosts -----------------------------------------------------------------------------


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


def test_an_attempt_in_doubt_waits_without_writing(rig: Rig) -> None:
    rig.world.add_fault("batches.create@1:reset_before")
    rig.submit()
    rig.sync()
    tree = rig.tree()
    rig.sync()
    assert rig.tree() == tree


def test_an_uploaded_attempt_is_not_sent_to_another_host(rig: Rig) -> None:
    """Its batch would be looked for where its file is, found absent, and bought again there."""
    rig.crash_at = "S6"
    assert not rig.survive(rig.submit)
    assert rig.only().phase is Phase.UPLOADED
    rig.base_url = "http://localhost:1/openai/v1"
    report = rig.sync()
    assert report.exit_code is ExitCode.ACCESS
    assert rig.wire.n_create_posts == 0


def test_resolving_by_word_is_one_record(rig: Rig) -> None:
    rig.world.add_fault("batches.create@1:reset_after")
    rig.world.add_fault("batches.create@1:stale_list=999999")
    rig.submit()
    attempt = rig.only()
    (batch_id,) = rig.world.ledger.batches
    n_files = len(rig.store().files("events"))
    with pytest.raises(UsageError, match="knows no batch"):
        resolve(rig.store(), attempt.attempt_id, Resolution.ADOPT, providers=rig.providers(), batch_id="batch_none")
    resolve(rig.store(), attempt.attempt_id, Resolution.ADOPT, providers=rig.providers(), batch_id=batch_id)
    assert len(rig.store().files("events")) == n_files + 1
    finish(rig)
    assert_one_batch_with_every_answer(rig)
