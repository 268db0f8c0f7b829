"""What becomes of a create: lost, late, refused or sent again, but never two batches for one attempt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from batchpond.errors import ExitCode, UsageError
from batchpond.lake.attempts import UNSENT_PHASES, Phase
from batchpond.lake.events import read
from batchpond.lake.records import DuplicateRemote, Resolution
from batchpond.model import BatchState
from batchpond.run import due
from batchpond.run.dispatch import DOUBTS_MAX
from batchpond.run.resolve import resolve, tidy
from batchpond.run.submit import SubmitPreview, submit
from batchpond_sim.world.world import Settings
from tests.rigs.one_shard import N, assert_one_batch_with_every_answer, finish, planned, working_on
from tests.rigs.sim_providers import SIMULATED
from tests.rigs.sim_study import LATENCY_S, STUDY, Rig

SETTLE_S = 900.0


@pytest.fixture(scope="module")
def planned_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planned(tmp_path_factory.mktemp("planned"))


@pytest.fixture
def rig(tmp_path: Path, planned_lake: Path) -> Iterator[Rig]:
    with working_on(planned_lake, tmp_path) as rig:
        yield rig


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
    duplicates = [event for event in read(rig.store()) if isinstance(event, DuplicateRemote)]
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


def absent_and_late(path: Path, name: str, limit: int | None = None) -> Rig:
    """Return a lake whose only create was called absent, and comes to be later; no other batch has it listed."""
    models = SIMULATED[name].models[:1]
    rig = Rig(path, Settings(seed=1, latency_s=(10.0, 20.0)), max_requests=50, models=models, with_lens=False)
    rig.plan()
    rig.world.add_fault("batches.create@1:delay_exec=6000")
    rig.submit(limit=limit)
    for _ in range(4):
        rig.clock.advance(1_000)
        rig.sync(submit_due=False)
    assert rig.only().phase is Phase.ABSENT
    return rig


@pytest.mark.parametrize("name", ["openai", "together", "gemini", "mistral", "xai", "vertex", "anthropic"])
def test_a_batch_called_absent_is_looked_for_once_more_before_it_is_sent_again(tmp_path: Path, name: str) -> None:
    rig = absent_and_late(tmp_path, name)
    rig.clock.advance(5_000)
    finish(rig, 2)
    assert rig.wire.n_create_posts == 1
    assert (rig.only().phase, len(rig.world.ledger.batches)) == (Phase.VERIFIED, 1)


@pytest.mark.parametrize("name", ["openai", "together", "gemini"])
def test_a_late_batch_holds_what_a_process_meant_to_send_instead(tmp_path: Path, name: str) -> None:
    rig = absent_and_late(tmp_path, name)
    rig.crash_at = "S4"
    assert not rig.survive(rig.sync)
    rig.clock.advance(5_000)
    for _ in range(2):
        assert rig.sync().exit_code is ExitCode.ATTENTION
    assert (rig.wire.n_create_posts, len(rig.world.ledger.batches)) == (1, 1)
    second = next(attempt for attempt in rig.attempts() if attempt.is_duplicate)
    assert second.phase is Phase.VERIFIED, "its answers are here"
    resolve(rig.store(), second.known_batch_id, Resolution.KNOWN, providers=rig.providers())
    rig.submit()
    assert len(rig.world.ledger.batches) == 2, "a person may have it bought all the same"


@pytest.mark.parametrize("name", ["openai", "together", "gemini"])
def test_a_late_batch_holds_what_was_refused_when_it_was_sent_instead(tmp_path: Path, name: str) -> None:
    rig = absent_and_late(tmp_path, name)
    rig.world.add_fault("batches.create@1:status=429")
    rig.sync()
    assert rig.attempts()[-1].phase is Phase.REJECTED
    rig.clock.advance(5_000)
    for _ in range(2):
        assert rig.sync().exit_code is ExitCode.ATTENTION
        rig.clock.advance(1_000)
    assert len(rig.world.ledger.batches) == 1
    second = next(attempt for attempt in rig.attempts() if attempt.is_duplicate)
    resolve(rig.store(), second.known_batch_id, Resolution.KNOWN, providers=rig.providers())
    rig.submit()
    assert len(rig.world.ledger.batches) == 2, "a person may have it bought all the same"


def test_what_is_approved_and_cannot_be_cut_into_batches_counts_as_unsent(tmp_path: Path) -> None:
    """A late batch holds the whole study: half of it was approved later, and stands in no shard."""
    rig = absent_and_late(tmp_path, "openai", limit=N // 2)
    rig.crash_at = "S4"
    assert not rig.survive(rig.sync)
    rig.clock.advance(5_000)
    assert rig.sync().n_unsent == N // 2
    assert rig.submit().n_unsent == N
    assert rig.sync().n_unsent == N


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
    rig.world.add_fault(f"batches.list@2-999:{fault}")  # the first, before the create, shows that nothing was bought
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


def test_a_wait_that_a_clock_far_ahead_dated_keeps_nobody_from_the_results(rig: Rig) -> None:
    """A provider asked to wait a minute; by the clock that was mended since, that ends when its results are gone."""
    rig.submit()
    rig.clock.set_by(400 * 86_400)
    rig.world.add_fault("batches.list@*:retry_after=60")
    rig.sync()
    rig.world.clear_faults()
    rig.clock.set_by(-400 * 86_400)
    finish(rig)
    assert_one_batch_with_every_answer(rig)


def test_a_refusal_that_a_clock_far_ahead_dated_is_waited_for_by_nobody(rig: Rig) -> None:
    """Its back-off of a few minutes would be over in more than a year, by the clock that was mended since."""
    rig.world.add_fault("batches.create@1:status=429")
    rig.clock.set_by(400 * 86_400)
    rig.submit()
    assert rig.only().phase is Phase.REJECTED
    rig.clock.set_by(-400 * 86_400)
    finish(rig, 2)
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
    assert rig.submit().exit_code is ExitCode.ATTENTION
    finish(rig, 3)
    assert (rig.only().phase, rig.wire.n_create_posts) == (Phase.REJECTED, 1)
    held = rig.sync()
    assert [note.exit_code for note in held.notes] == [ExitCode.ATTENTION], "what only a person can mend ends with 3"
    assert held.exit_code is ExitCode.ATTENTION
    rig.submit()
    finish(rig)
    assert_one_batch_with_every_answer(rig)


def test_a_billing_stop_of_an_earlier_plan_holds_nothing_of_the_next(rig: Rig) -> None:
    """What was refused was given up, and nobody sends it again: what it waited for is not waited for any more."""
    rig.world.add_fault("batches.create@1:billing")
    rig.submit()
    rig.change()
    rig.world.add_fault("batches.create@1:status=429")
    rig.submit()
    finish(rig, 4)
    given_up, *sent = rig.attempts()
    assert (given_up.phase, {attempt.phase for attempt in sent}) == (Phase.REJECTED, {Phase.VERIFIED})
    assert rig.sync().n_unsent == 0


def test_an_approval_of_a_plan_that_is_over_does_not_replace_that_of_the_new_one(rig: Rig) -> None:
    """Two terminals: the study is planned anew and submitted while the first asks; nothing of it would be sent."""

    def agree(_: SubmitPreview) -> bool:
        rig.change()
        rig.world.add_fault("batches.create@1:status=429")
        rig.submit()
        return True

    with pytest.raises(UsageError, match="planned anew since its cost was shown"):
        submit(rig.store(), STUDY, confirm=agree, providers=rig.providers())
    finish(rig, 4)
    assert {attempt.phase for attempt in rig.attempts()} == {Phase.VERIFIED}
    assert rig.sync().n_unsent == 0


def test_what_another_sent_while_somebody_was_asked_is_not_sent_again(tmp_path: Path) -> None:
    """Two terminals ask the same; the shards that the first showed are not handed out once more."""
    rig = Rig(tmp_path, max_requests=5, models=("gpt-4.1-mini",), with_lens=False)
    rig.plan()

    def agree(_: SubmitPreview) -> bool:
        rig.submit()
        return True

    report = submit(rig.store(), STUDY, confirm=agree, providers=rig.providers())
    assert report.counts is not None
    assert report.counts.n_created == 0
    rig.settle()
    assert rig.billed()[0] == N
    assert rig.violations() == []


def test_what_was_shown_is_not_looked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shards are cut once where nothing changes between the question and the answer, and anew where it does."""
    rig = Rig(tmp_path, max_requests=5, models=("gpt-4.1-mini",), with_lens=False)
    cuts, cut = list[int](), due._cut
    monkeypatch.setattr(due, "_cut", lambda *asked: (cuts.append(1), cut(*asked))[1])
    rig.plan()
    rig.submit()
    assert len(cuts) == 1
    rig.world.add_fault("batches.create@*:status=429")
    rig.change()
    rig.submit()
    assert len(cuts) == 2
    rig.change()
    rig.submit()
    assert len(cuts) == 4, "what the change voids is due again"


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


@pytest.mark.parametrize("is_submitted", [True, False])
def test_what_a_full_queue_kept_out_is_asked_by_the_next_plan_too(rig: Rig, *, is_submitted: bool) -> None:
    """Its shard is of a plan that is over: nothing of it is sent as it is, and its requests stay due."""
    rig.world.add_fault("batches.create@1:enqueued")
    rig.submit()
    rig.clock.advance(400)
    rig.sync()
    rig.change()
    if not is_submitted:
        rig.sync()
        assert any("waits for an approval of the new plan" in note for note in rig.notes)
    rig.submit()
    rig.settle()
    ((n_planned,),) = rig.rows("select count(distinct request_id) from plan", "plan")
    assert rig.billed()[0] == len(rig.answers()) == n_planned > N
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


def test_an_attempt_in_doubt_waits_without_writing(rig: Rig) -> None:
    rig.world.add_fault("batches.create@1:reset_before")
    rig.submit()
    rig.sync()
    tree = rig.tree()
    rig.sync()
    assert rig.tree() == tree


def test_an_uploaded_attempt_that_was_never_sent_goes_to_the_address_of_now(rig: Rig) -> None:
    """No batch of it can be anywhere; what was uploaded elsewhere is of no use, so it is uploaded anew."""
    rig.crash_at = "S6"
    assert not rig.survive(rig.submit)
    assert rig.only().phase in UNSENT_PHASES
    rig.base_urls["openai"] = "http://localhost:1/openai/v1"
    report = rig.sync()
    assert report.exit_code is ExitCode.DONE
    assert (rig.wire.n_create_posts, len(rig.world.ledger.batches)) == (1, 1)
    rig.settle()
    assert_one_batch_with_every_answer(rig)


@pytest.mark.parametrize("is_in_doubt", [False, True], ids=["open", "in doubt"])
def test_a_batch_that_was_sent_is_asked_about_at_its_own_address_only(rig: Rig, is_in_doubt: bool) -> None:
    """Elsewhere it would be found absent, and bought again."""
    if is_in_doubt:
        rig.world.add_fault("batches.create@1:reset_after")
    rig.submit()
    rig.base_urls["openai"] = "http://localhost:1/openai/v1"
    n_calls = sum(rig.wire.calls.values())
    for _ in range(3):
        rig.clock.advance(100_000)
        assert rig.sync().exit_code is ExitCode.ACCESS
    assert sum(rig.wire.calls.values()) == n_calls
    del rig.base_urls["openai"]
    rig.settle()
    assert rig.wire.n_create_posts == 1
    assert_one_batch_with_every_answer(rig)


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


def test_a_429_that_came_after_the_batch_was_made_buys_nothing_twice(rig: Rig) -> None:
    """Defect 3.2: `sync` asks again by itself, but looks first, and the settle time after the refusal has to pass."""
    rig.world.add_fault("batches.create@1:status_after=429")
    rig.submit()
    assert rig.only().phase is Phase.REJECTED
    rig.clock.advance(60)
    rig.sync()
    assert (rig.only().phase, rig.wire.n_create_posts) == (Phase.REJECTED, 1)
    rig.clock.advance(SETTLE_S)
    rig.sync()
    finish(rig)
    assert rig.wire.n_create_posts == 1
    assert_one_batch_with_every_answer(rig)


def test_a_refused_create_is_sent_again_once_a_look_shows_nothing(rig: Rig) -> None:
    rig.world.add_fault("batches.create@1:status=429")
    rig.submit()
    rig.clock.advance(60)
    rig.sync()
    assert rig.wire.n_create_posts == 1
    assert any("is asked for again after" in note for note in rig.notes)
    rig.clock.advance(SETTLE_S)
    rig.sync()
    finish(rig)
    assert rig.wire.n_create_posts == 2
    assert_one_batch_with_every_answer(rig)


def test_creates_that_never_answer_clearly_end_at_a_person_and_leave_no_files_behind(rig: Rig) -> None:
    """Defect 3.4: each is proven absent first and waits longer; after the last of them only a person sends more."""
    rig.world.add_fault("batches.create@*:reset_before")
    rig.submit()
    for _ in range(60):
        rig.clock.advance(3 * 3_600)
        rig.sync()
    assert rig.wire.n_create_posts == DOUBTS_MAX + 1
    assert rig.notes[-1].endswith("never answered clearly; mend the cause, then `batchpond submit demo`")
    rig.world.clear_faults()
    rig.submit()
    finish(rig)
    assert_one_batch_with_every_answer(rig)
    tidied = tidy(rig.store(), None, providers=rig.providers())
    assert (tidied.n_deleted, tidied.n_gone) == (DOUBTS_MAX + 2, 0)
