"""Clocks that jump, keys that are replaced, weeks without a pass, a provider that is away or wants money."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from batchpond.errors import ExitCode
from batchpond.lake.attempts import Phase
from batchpond.lake.events import read
from batchpond.lake.records import Access, Resolution
from batchpond.model import ErrorClass, PricedModel, Response, ResponseStatus
from batchpond.run.resolve import resolve
from batchpond.run.submit import retry
from batchpond.study.prices import Prices
from batchpond_sim.world.world import Settings
from tests.rigs.clock import ManualClock
from tests.rigs.one_shard import N, assert_one_batch_with_every_answer, finish, planned, working_on
from tests.rigs.sim_providers import SIMULATED
from tests.rigs.sim_study import LATENCY_S, STUDY, Rig

DAY_S = 86_400.0


class SetClock(ManualClock):
    """The machine's clock, whose wall somebody sets while the rest of it goes on."""

    def __init__(self, true: ManualClock) -> None:
        super().__init__(true.now())
        self.true = true
        self.set_by_s = 0.0

    def now(self) -> datetime:
        """Return what the wall shows."""
        return self.true.now() + timedelta(seconds=self.set_by_s)

    def monotonic_s(self) -> float:
        """Return what nobody can set."""
        return self.true.monotonic_s()

    def advance(self, seconds: float) -> None:
        """Let time pass for everyone."""
        self.true.advance(seconds)


@pytest.fixture(scope="module")
def planned_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planned(tmp_path_factory.mktemp("planned"))


@pytest.fixture
def rig(tmp_path: Path, planned_lake: Path) -> Iterator[Rig]:
    with working_on(planned_lake, tmp_path) as rig:
        yield rig


@pytest.fixture
def wall(rig: Rig) -> SetClock:
    """The clock of this machine, apart from the provider's."""
    wall = SetClock(rig.clock)
    rig.clock = wall
    return wall


@pytest.mark.parametrize("has_earlier", [True, False], ids=["not the first", "the first batch of the lake"])
def test_a_create_in_doubt_is_looked_at_after_its_file_was_deleted(tmp_path: Path, has_earlier: bool) -> None:
    """Wires D9: Gemini deletes files after 48 hours; a Friday's 503 is sent again on Wednesday, or says why not."""
    rig = Rig(tmp_path, max_requests=5, models=("gemini-2.5-flash-lite",), with_lens=False)
    rig.plan()
    if has_earlier:
        rig.submit(limit=5)
        finish(rig, 2)
    rig.world.add_fault(f"batches.create@{1 + has_earlier}:status=503")
    rig.submit(limit=None if has_earlier else 5)
    rig.clock.advance(121 * 3600.0)
    for _ in range(3):
        rig.sync()
        rig.clock.advance(2 * 3600.0)
    doubtful = [attempt.phase for attempt in rig.attempts() if attempt.phase in {Phase.UNKNOWN, Phase.ABSENT}]
    said = " ".join(rig.notes)
    if has_earlier:
        assert doubtful == [Phase.ABSENT]
        assert "project" not in said
        rig.settle()
        assert rig.violations() == []
    else:
        assert doubtful == [Phase.UNKNOWN]
        assert "has deleted the file that attempt" in said
        assert "another project" not in said


def test_a_provider_that_asks_for_a_long_wait_holds_up_no_other(tmp_path: Path) -> None:
    """Defect 4.5: the pass goes on with the rest; it comes back to the one that put it off when that time is over."""
    rig = Rig(tmp_path, max_requests=50, models=("gpt-4.1-mini", "gemini-2.5-flash-lite"), with_lens=False)
    rig.plan()
    rig.submit()
    rig.clock.advance(1_000)
    rig.world.add_fault("batches.list@1:retry_after=2099")
    begun_s = rig.clock.monotonic_s()
    report = rig.sync()
    assert rig.clock.monotonic_s() - begun_s < 60, "nobody sleeps on it with the lock held"
    assert {attempt.provider: attempt.phase for attempt in rig.attempts()} == {
        "gemini": Phase.OPEN, "openai": Phase.VERIFIED,
    }  # fmt: skip
    assert report.n_pending == 1
    n_calls = rig.wire.calls.total()
    rig.clock.advance(1_000)
    rig.sync()
    assert rig.wire.calls.total() == n_calls, "nothing is asked of it before"
    finish(rig, 2)
    assert {attempt.phase for attempt in rig.attempts()} == {Phase.VERIFIED}


# -- clocks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("set_by_s", [-2 * 3600.0, -400 * DAY_S, 30 * DAY_S], ids=["2 h back", "400 d back", "30 d on"])
def test_a_clock_that_is_set_between_two_passes_changes_no_outcome(rig: Rig, wall: SetClock, set_by_s: float) -> None:
    rig.submit()
    wall.set_by_s = set_by_s
    finish(rig, 2)
    assert_one_batch_with_every_answer(rig)
    assert rig.only().phase is Phase.VERIFIED
    tree = rig.tree()
    wall.set_by_s = 0.0
    finish(rig)
    assert rig.tree() == tree


@pytest.mark.parametrize("set_by_s", [-400 * DAY_S, 30 * DAY_S], ids=["400 d back", "30 d on"])
def test_a_clock_that_is_set_neither_shortens_nor_stretches_the_wait_for_answers(
    rig: Rig, wall: SetClock, set_by_s: float
) -> None:
    """An expired batch whose files lack a row that the provider counts is looked at for the settle time, no less."""
    rig.world.add_fault("batches.create@1:expire=0.5")
    rig.world.add_fault("lines@1:drop=2")
    rig.submit()
    finish(rig)
    assert rig.only().phase is Phase.ENDED
    wall.set_by_s = set_by_s
    rig.clock.advance(60)
    rig.sync()
    assert rig.only().phase is Phase.ENDED
    finish(rig, 2)
    assert rig.only().phase is not Phase.ENDED


def test_a_clock_that_jumps_ahead_does_not_shorten_the_settle_time(rig: Rig, wall: SetClock) -> None:
    """By the wall a month went by since the create, by what nobody can set a minute: it may still be carried out."""
    rig.world.add_fault("batches.create@1:delay_exec=400")
    rig.submit()
    assert rig.only().phase is Phase.UNKNOWN
    wall.set_by_s = 30 * DAY_S
    for _ in range(3):
        rig.clock.advance(60)
        rig.sync()
        assert (rig.only().phase, rig.wire.n_create_posts) == (Phase.UNKNOWN, 1)
    finish(rig, 2)
    assert_one_batch_with_every_answer(rig)


@pytest.mark.parametrize("n_days", [8, 29])
def test_a_week_or_a_month_without_a_pass_loses_nothing_that_is_still_kept(rig: Rig, n_days: int) -> None:
    rig.submit()
    rig.clock.advance(n_days * DAY_S)
    finish(rig, 2)
    assert_one_batch_with_every_answer(rig)


def test_results_that_were_deleted_meanwhile_are_told_at_each_pass_and_not_bought_again(rig: Rig) -> None:
    """The provider keeps them for a month: after two they are gone, and giving them up is for a person to say."""
    rig.submit()
    rig.clock.advance(65 * DAY_S)
    for _ in range(3):
        finish(rig, 10)
        rig.notes.clear()
        assert rig.sync().exit_code is ExitCode.ATTENTION
        assert any("results are kept about 30 days" in note for note in rig.notes)
    assert (rig.only().phase, rig.wire.n_create_posts) == (Phase.ENDED, 1)
    resolve(rig.store(), rig.only().attempt_id, Resolution.LOST, providers=rig.providers())
    finish(rig)
    assert (rig.only().phase, rig.wire.n_create_posts) == (Phase.LOST, 1)
    assert rig.answers() == {}


# -- keys ------------------------------------------------------------------------------------------


def two_keys(path: Path, second: str, name: str = "openai") -> Rig:
    keys = {"sk-a": "proj_a", "sk-b": second}
    settings = Settings(seed=1, latency_s=LATENCY_S, keys=keys)
    rig = Rig(path, settings, max_requests=50, models=SIMULATED[name].models[:1], key="sk-a", with_lens=False)
    rig.plan()
    return rig


@pytest.mark.parametrize("fault", [None, "batches.create@1:reset_after"], ids=["open", "in doubt"])
def test_a_new_key_of_the_same_project_goes_on_where_the_old_one_was(tmp_path: Path, fault: str | None) -> None:
    rig = two_keys(tmp_path, "proj_a")
    if fault is not None:
        rig.world.add_fault(fault)
        rig.world.add_fault("batches.create@1:stale_list=60")
    rig.submit()
    rig.key = "sk-b"
    finish(rig, 3)
    assert_one_batch_with_every_answer(rig)
    rig.world.close()


def met(rig: Rig) -> list[Access]:
    """Return what is on record of passes that were not let in, and of those that were after that."""
    return [event for event in read(rig.store()) if isinstance(event, Access)]


def test_a_key_of_another_organisation_buys_nothing_again(tmp_path: Path) -> None:
    """Open batches are 404 to it: that is no loss, however long, nor a reason to send them anew, and it is said."""
    rig = two_keys(tmp_path, "proj_b")
    rig.submit()
    rig.key = "sk-b"
    for _ in range(30):
        rig.clock.advance(3_600)
        assert rig.sync().exit_code is ExitCode.ACCESS
    assert rig.only().phase is Phase.OPEN
    assert any("are not seen by this key, which is of " in note for note in rig.notes)
    assert [("which is of " in (one.message or "")) for one in met(rig)] == [True], "on record once, for `status`"
    rig.key = "sk-a"
    finish(rig, 2)
    assert [one.message is None for one in met(rig)] == [False, True]
    assert_one_batch_with_every_answer(rig)
    rig.world.close()


def test_a_batch_that_a_wrong_key_hid_for_days_comes_back_with_the_right_one(tmp_path: Path) -> None:
    """Where no answer says whose a key is it counts as missing by then; it is asked about, and said, all the same."""
    rig = two_keys(tmp_path, "proj_b", "mistral")
    rig.submit()
    rig.key = "sk-b"
    for _ in range(30):
        rig.clock.advance(3_600)
        rig.sync()
    assert rig.only().phase is Phase.MISSING_REMOTE
    rig.notes.clear()
    assert rig.sync().exit_code is ExitCode.ATTENTION
    (told,) = rig.notes
    assert "it was deleted, or this key is of another account" in told, "at each pass, not only at that which found it"
    rig.key = "sk-a"
    finish(rig, 2)
    assert_one_batch_with_every_answer(rig)
    rig.world.close()


# -- a provider that is away -----------------------------------------------------------------------


def test_a_day_without_the_provider_changes_and_writes_nothing(rig: Rig) -> None:
    """And what comes after it is as if it had not been."""
    rig.submit()
    rig.sync()
    tree = rig.tree()
    rig.world.add_fault("*@*:status=503")
    for _ in range(24):
        rig.clock.advance(3_600)
        rig.sync()
    assert rig.only().phase is Phase.OPEN
    assert rig.tree() == tree
    rig.world.clear_faults()
    finish(rig, 2)
    assert rig.billed()[0] == N
    assert_one_batch_with_every_answer(rig)


def test_requests_that_failed_for_want_of_money_are_kept_and_wait_for_a_person(rig: Rig) -> None:
    """The batch ran, and some lines say that there was no credit: no fault of the model, and not to be retried."""
    rig.world.add_fault("lines@1:billing_rows=3")
    rig.submit()
    finish(rig)
    assert rig.rows("select count(*) from responses where error_class = 'billing'", "responses") == [(3,)]
    assert (rig.only().phase, len(rig.answers())) == (Phase.VERIFIED, N - 3)

    def asked_again(classes: list[ErrorClass] | None) -> int:
        more = {} if classes is None else {"classes": classes}
        done = retry(rig.store(), STUDY, confirm=lambda *_: True, providers=rig.providers(), **more)
        return done.submitted.preview.n_requests

    assert asked_again(None) == 0
    assert asked_again([ErrorClass.BILLING]) == 3


def test_a_queue_that_is_full_stops_no_other_models(tmp_path: Path) -> None:
    rig = Rig(tmp_path, max_requests=50, models=("gpt-4.1-mini", "gpt-5.4-mini"), with_lens=False)
    rig.plan()
    rig.world.add_fault("batches.create@1:status=429")
    rig.submit()
    first, second = rig.attempts()
    assert (first.phase, second.phase) == (Phase.REJECTED, Phase.OPEN)
    finish(rig, 3)
    assert len(rig.world.ledger.batches) == 2
    assert rig.violations() == []
    rig.world.close()


def test_what_the_provider_deletes_first_is_fetched_first(tmp_path: Path) -> None:
    """Whatever the order in which batches were meant: the one that was made first has the least time left."""
    rig = Rig(tmp_path, max_requests=50, models=("gpt-4.1-mini", "gpt-5.4-mini"), with_lens=False)
    rig.plan()
    rig.world.add_fault("batches.create@1:status=429")
    rig.submit()
    rig.world.add_fault("files.content@*:status=404")
    finish(rig, 4)
    meant_first, made_first = rig.attempts()
    assert {meant_first.phase, made_first.phase} == {Phase.ENDED}
    assert meant_first.created_at is not None
    assert made_first.created_at is not None
    assert made_first.created_at < meant_first.created_at
    rig.world.clear_faults()
    rig.world.add_fault("files.content@1:status=404")
    finish(rig)
    assert [attempt.phase for attempt in rig.attempts()] == [Phase.VERIFIED, Phase.ENDED]
    rig.world.close()


def test_answers_cost_what_they_did_when_their_batch_was_made(tmp_path: Path) -> None:
    """A price that changed while it ran is for later batches."""
    asked = PricedModel("gemini", "gemini-3.6-flash")
    rig = Rig(tmp_path, max_requests=50, models=(asked.model,), with_lens=False)
    rig.plan()
    rig.clock.advance((datetime(2026, 12, 31, 12, tzinfo=UTC) - rig.clock.now()).total_seconds())
    rig.submit()
    before = Prices(now=rig.clock.now())
    rig.clock.advance(DAY_S)
    rig.sync()
    assert before.unit(asked) != Prices(now=rig.clock.now()).unit(asked)
    for n_in, n_out, cost_usd in rig.rows("select input_tokens, output_tokens, cost_usd from responses", "responses"):
        said = Response(None, ResponseStatus.SUCCEEDED, input_tokens=int(str(n_in)), output_tokens=int(str(n_out)))
        assert cost_usd == before.cost(asked, said)
    assert len(rig.answers()) == N
    rig.world.close()


def test_the_clocks_of_these_tests_are_two() -> None:
    """The tests above could fail: setting the wall moves nothing else."""
    true = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    wall = SetClock(true)
    wall.set_by_s = -60.0
    wall.advance(10)
    assert (wall.monotonic_s(), true.monotonic_s()) == (10, 10)
    assert (true.now() - wall.now()).total_seconds() == 60
