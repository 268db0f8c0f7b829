"""Live calls that are refused, in doubt or out of money: what is asked again, what is given up, what is said."""

from __future__ import annotations

import functools
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchpond.errors import ExitCode, UsageError
from batchpond.providers import registry
from batchpond.run import dispatch
from batchpond.run.live import calls, run
from batchpond.run.live.calls import CallCounts, OnDoubt
from batchpond.run.live.run import LaneProgress
from batchpond.run.live.seal import recover
from batchpond.run.session import Providers, Session
from batchpond.run.submit import retry
from batchpond.run.told import looking, waits
from tests.rigs import live_study
from tests.rigs.live_study import Asked, LiveRig, billed, document, hasten, settings_of
from tests.rigs.sim_providers import LIVE
from tests.rigs.swept import some

ENDPOINTS = tuple(LIVE)
N = 24
live_rig = functools.partial(live_study.live_rig, with_lens=False)


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[LiveRig]:
    with live_rig(tmp_path) as made:
        yield made


# -- refusals ----------------------------------------------------------------------------------------

STORMS = ["status=429", "status=529", "retry_after=1", "reset_before"]


@pytest.mark.parametrize("fault", STORMS)
def test_a_storm_is_waited_out_and_nothing_is_bought_twice(rig: LiveRig, fault: str) -> None:
    rig.begin(N)
    rig.simulator.world.add_fault(f"live@4-12:{fault}")
    report = rig.live(concurrency=6)
    assert (report.n_left, report.exit_code) == (0, ExitCode.DONE)
    rig.check_complete(N)
    if fault != "reset_before":
        assert report.lanes[0].counts.n_deferred == 9
        assert billed(rig) == N


@pytest.mark.parametrize(
    ("limit", "floor_s"),
    [("*:rps=20,burst=1", 59 / 20), ("*:rpm=1200,burst=10", 50 / 20), ("*:concurrent=2", 60 / 2 * 0.05)],
)
@pytest.mark.parametrize("endpoint", some("anthropic", swept=["openai"]))
def test_a_providers_limits_are_learnt_and_kept(tmp_path: Path, endpoint: str, limit: str, floor_s: float) -> None:
    """As long as the limit takes at least, and few calls are refused on the way (seen: 2 to 11), each asked once more.

    That a limit is used up as well is shown in a time of its own, by `test_live_pace`.
    """
    with live_rig(tmp_path, live_limits=(limit,), live_latency_s=(0.05, 0.05)) as rig:
        rig.begin(60, [Asked(endpoint)])
        start = time.monotonic()
        report = rig.live(concurrency=8)
        took_s = time.monotonic() - start
        assert report.n_left == 0
        rig.check_complete(60)
        assert billed(rig) == 60
        assert took_s >= 0.9 * floor_s
        n_deferred = report.lanes[0].counts.n_deferred
        assert rig.simulator.world.ledger.live_summary()["n_asked"] == 60 + n_deferred
        assert n_deferred < 30


def test_ones_own_rate_is_kept(rig: LiveRig) -> None:
    rig.begin(20)
    start = time.monotonic()
    rig.live(qps=10.0)
    assert time.monotonic() - start >= 0.9
    rig.check_complete(20)


def test_one_model_may_have_limits_of_its_own(rig: LiveRig) -> None:
    """One at a time with a delay, for a model with very low limits; the other goes on at full speed."""
    (rig.folder / "lake").mkdir(exist_ok=True)
    rig.begin(8, [Asked(), Asked("anthropic")])
    (rig.lake / "config.toml").write_text(
        f'[live."anthropic/{LIVE["anthropic"].model}"]\nconcurrency = 1\ngap_s = 0.1\n'
    )
    start = time.monotonic()
    seen: list[tuple[LaneProgress, ...]] = []
    rig.live(on_progress=seen.append)
    assert time.monotonic() - start >= 0.7
    slow = [lane for lanes in seen for lane in lanes if lane.name.startswith("anthropic/")]
    assert max(lane.n_in_flight for lane in slow) <= 1
    rig.check_complete(16)


def test_a_key_that_is_refused_on_the_way_stops_and_keeps_what_was_answered(rig: LiveRig) -> None:
    rig.begin(N)
    rig.simulator.world.add_fault("live@9-:status=401")
    done = rig.run("live", "--json", "--concurrency", "3")
    assert done.returncode == ExitCode.ACCESS
    assert document(done)["n_left"] == N - 8
    assert "OPENAI_API_KEY" in done.stderr.decode()
    told = rig.run("status")
    assert (told.returncode, b"nothing goes on at openai since 20" in told.stderr) == (ExitCode.ACCESS, True)
    rig.simulator.world.clear_faults()
    assert rig.live().n_left == 0
    assert rig.run("status").returncode == 0
    rig.check_complete(N)
    assert billed(rig) == N


def test_a_model_that_is_not_there_is_said_and_nothing_is_burnt(rig: LiveRig) -> None:
    rig.begin(N, [Asked("openai", "unknown-9"), Asked("anthropic")])
    report = rig.live(concurrency=4)
    assert report.exit_code is ExitCode.FAILED
    (note,) = [note for note in report.notes if note.exit_code is not ExitCode.DONE]
    assert "unknown-9" in note.message
    assert note.hint
    ledger = rig.simulator.world.ledger
    assert ledger.live.n_asked <= N + 4
    assert (report.n_left, rig.n_answers(), ledger.live.n_billed) == (N, (N, N), N)
    assert rig.doubts().total() == 0


def test_calls_that_a_server_will_not_take_are_no_answers(rig: LiveRig) -> None:
    """Of a request that is wrong for every model the run says that all failed, and ends as whoever looks later does."""
    rig.begin(4)
    rig.simulator.world.add_fault("live@*:status=400")
    report = rig.live()
    assert (report.lanes[0].counts, report.exit_code) == (CallCounts(n_failed=4), ExitCode.ATTENTION)
    assert report.notes[-1] == rig.sync().notes[-1]


def test_an_account_without_credit_stops_at_once(rig: LiveRig) -> None:
    """Whoever only looks is told, too, until calls are answered again."""
    rig.begin(N)
    rig.simulator.world.add_fault("live@5-:billing=429")
    report = rig.live(concurrency=2)
    assert report.exit_code is ExitCode.FAILED
    assert any("credit" in (note.hint or "") for note in report.notes)
    assert rig.simulator.world.ledger.live.n_asked <= 4 + 2 * 2
    said = f"live calls to openai/{LIVE['openai'].model} stopped at 20".encode()
    told = [rig.run(*command) for command in (("sync", "--no-submit"), ("status",), ("doctor",))]
    assert [(one.returncode, said in one.stderr + one.stdout) for one in told] == [(ExitCode.ATTENTION, True)] * 3
    rig.simulator.world.clear_faults()
    rig.live()
    rig.check_complete(N)
    assert rig.run("sync").returncode == 0


def test_a_server_that_puts_off_everything_is_given_up_some_day(rig: LiveRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "STALL_S", 0.3)
    rig.begin(N)
    rig.simulator.world.add_fault("live@3-:status=529")
    report = rig.live(concurrency=2)
    assert report.exit_code is ExitCode.FAILED
    assert "put off" in report.notes[0].message
    rig.simulator.world.clear_faults()
    rig.live()
    rig.check_complete(N)


@pytest.mark.parametrize("late", ["", "live@2:delay=0.5"])
def test_a_longer_wait_than_a_run_has_is_kept_to_and_said_at_once(rig: LiveRig, late: str) -> None:
    """Nobody is asked before the time that it named, and a person hears of it now and not in half an hour.

    Also where a call that had left before is answered only then.
    """
    rig.begin(N)
    for fault in filter(None, (late, "live@3-:retry_after=2700")):
        rig.simulator.world.add_fault(fault)
    report = rig.live(concurrency=2)
    assert report.exit_code is ExitCode.FAILED
    (note,) = report.notes
    assert "has put off every call" in note.message
    assert note.hint
    assert rig.simulator.world.ledger.live.n_asked <= 2 + 2
    rig.simulator.world.clear_faults()
    rig.live()
    rig.check_complete(N)


def test_a_request_that_is_refused_for_itself_is_given_up_and_the_others_go_on(
    rig: LiveRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "REFUSALS_OF_ONE_MAX", 1)
    rig.begin(N)
    rig.simulator.world.add_fault("live@3:status=409")
    report = rig.live(concurrency=1)
    assert (report.n_left, report.lanes[0].counts.n_failed) == (0, 1)
    rig.check_complete(N)
    assert rig.view("select outcome, count(*) from results group by all order by all") == [
        ("decided", N - 1), ("error", 1)
    ]  # fmt: skip


def test_a_request_that_is_refused_for_itself_is_asked_again_later(rig: LiveRig) -> None:
    rig.begin(6)
    rig.simulator.world.add_fault("live@3:status=409")
    report = rig.live(concurrency=2)
    assert (report.n_left, report.lanes[0].counts) == (0, CallCounts(n_answered=6, n_deferred=1))
    rig.check_complete(6)


# -- doubts ------------------------------------------------------------------------------------------

CUTS = [
    ("reset_after", True), ("truncate_mid=0.5", True), ("short", True), ("html_after=200", True), ("html=502", False),
    ("html=200", False), ("malformed", True), ("hang_after=30", True), ("empty_body", True), ("status_after=502", True),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "is_billed"), CUTS, ids=[fault for fault, _ in CUTS])
def test_an_answer_that_is_not_whole_is_a_doubt_and_asked_again(rig: LiveRig, fault: str, is_billed: bool) -> None:
    """Never an answer, never lost, never silently paid twice: `doubts` and the ledger agree."""
    rig.begin(N)
    rig.simulator.world.add_fault(f"live@7:{fault}")
    report = rig.live(settings_of(deadline_s=1.0), concurrency=3)
    assert (report.n_left, report.lanes[0].counts.n_doubts) == (0, 1)
    rig.check_complete(N)
    assert rig.doubts().total() == 1
    assert billed(rig) == N + is_billed
    ((reason, asked_before),) = rig.view("select reason, asked_at <= found_at from doubts")
    assert (bool(reason), asked_before) == (True, True)
    assert rig.view("select sum(n_in_doubt) from audit") == [(1,)]


def test_a_doubt_is_held_back_when_asked_to_and_asked_again_when_told(rig: LiveRig) -> None:
    rig.begin(N)
    rig.simulator.world.add_fault("live@7:reset_after")
    report = rig.live(concurrency=2, on_doubt=OnDoubt.HOLD)
    assert (report.n_left, report.exit_code) == (1, ExitCode.ATTENTION)
    assert billed(rig) == N
    again = rig.live(on_doubt=OnDoubt.HOLD)
    assert (again.n_left, again.exit_code, again.lanes[0].counts.n_held) == (1, ExitCode.ATTENTION, 1)
    assert billed(rig) == N
    assert rig.live().n_left == 0
    rig.check_complete(N)
    assert billed(rig) == N + 1


def test_a_request_that_stays_in_doubt_is_given_up_and_retry_asks_it_again(rig: LiveRig) -> None:
    rig.begin(1)
    rig.simulator.world.add_fault("live@1-3:reset_after")
    report = rig.live(settings_of(max_doubts=2), concurrency=1)
    assert (report.n_left, report.lanes[0].counts.n_failed) == (0, 1)
    rig.check_complete(1)
    assert max(rig.doubts().values()) == 3
    retried = retry(rig.store(), "live", confirm=lambda *_: True, providers=rig.providers())
    assert retried.submitted.preview.n_requests == 1
    assert rig.live().n_left == 0
    assert rig.view("select outcome, count(*) from results group by all") == [("decided", 1)]
    rig.check_ledger()


@pytest.mark.parametrize("max_doubts", [0, 1])
def test_the_bound_on_doubts_holds_over_processes_that_die(rig: LiveRig, max_doubts: int) -> None:
    """A request that was under way in each process that was killed is not asked for ever."""
    rig.begin(6)
    rig.lake.joinpath("config.toml").write_text(f"[live]\nmax_doubts = {max_doubts}\n")
    for _ in range(max_doubts + 1):
        assert rig.run("live", "--concurrency", "1", failpoint="L3:kill").returncode == -signal.SIGKILL
    report = rig.live(concurrency=1)
    assert (report.n_left, report.lanes[0].counts.n_failed) == (0, 1)
    rig.check_complete(6)
    assert billed(rig) == 5 + max_doubts + 1


# -- money -------------------------------------------------------------------------------------------


def test_what_was_approved_is_not_overspent(rig: LiveRig) -> None:
    """The second shard's worst cost does not fit beside the first's: it is not asked, and that is said."""
    rig.plan(N, shards="[shards]\nmax_requests = 12")
    shown = rig.submit(max_cost_usd=None).preview
    assert shown.cost_max_usd
    assert shown.cost_expected_usd
    with live_rig(rig.folder / "poor") as poor:
        poor.plan(N, shards="[shards]\nmax_requests = 12")
        poor.submit(max_cost_usd=(shown.cost_max_usd + shown.cost_expected_usd) / 2)
        report = poor.live()
        assert any("wait for money" in note.message for note in report.notes)
        assert [row["reason"] for row in waits(looking(poor.store(), poor.providers()), "live")] == [dispatch.MONEY]
        assert billed(poor) == 12
        poor.submit()
        assert poor.live().n_left == 0
        poor.check_complete(N)


def test_calls_in_doubt_count_against_what_was_approved(rig: LiveRig) -> None:
    """Each may have been paid: money that was just enough for the second shard is not after them."""
    rig.plan(N, shards="[shards]\nmax_requests = 12")
    shown = rig.submit(max_cost_usd=None).preview
    assert shown.cost_max_usd
    with live_rig(rig.folder / "poor") as poor:
        poor.plan(N, shards="[shards]\nmax_requests = 12")
        poor.submit(max_cost_usd=shown.cost_max_usd)
        assert poor.run("live", "--concurrency", "4", failpoint="L3:kill").returncode == -signal.SIGKILL
        session = Session.begin(poor.store(), Providers(registry.connect))
        with poor.store().lock("test"):
            recover(session)
        n_doubts = poor.doubts().total()
        assert n_doubts
        approval = session.lake_state.approvals["live"]
        taken_usd = dispatch.Budget.of(session, approval).caps[0].taken_usd
        (attempt,) = session.lake_state.attempts.values()
        worst_usd = attempt.intent.cost_max_usd or 0.0
        assert taken_usd == pytest.approx(worst_usd * (1 + n_doubts / 12))


def test_money_that_is_gone_by_then_buys_no_second_shard(rig: LiveRig) -> None:
    """Calls in doubt of the first shard took what the second was to have: it is not begun, and that is said."""
    rig.plan(N, shards="[shards]\nmax_requests = 12")
    shown = rig.submit(max_cost_usd=None).preview
    assert shown.cost_max_usd
    with live_rig(rig.folder / "poor") as poor:
        poor.plan(N, shards="[shards]\nmax_requests = 12")
        poor.submit(max_cost_usd=shown.cost_max_usd)
        for call_no in range(1, 13):
            poor.simulator.world.add_fault(f"live@{call_no}:reset_after")
        report = poor.live(concurrency=4)
        assert (report.n_left, billed(poor)) == (12, 24)
        assert any("wait for money" in note.message for note in report.notes)
        approval = poor.lake_state().approvals["live"]
        session = Session.begin(poor.store(), Providers(registry.connect))
        assert dispatch.Budget.of(session, approval).caps[0].taken_usd <= shown.cost_max_usd


def test_a_study_that_was_never_submitted_is_refused(rig: LiveRig) -> None:
    rig.plan(N)
    done = rig.run("live", "live")
    assert done.returncode == ExitCode.USAGE
    assert "never submitted" in done.stderr.decode()
    with pytest.raises(UsageError):
        run.check_studies(rig.store(), ["other"])
    assert rig.live().lanes == ()
