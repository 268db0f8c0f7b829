"""Live calls end to end against the simulators: every answer joined, none bought twice but what `doubts` lists."""

from __future__ import annotations

import contextlib
import functools
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchpond.cli import sync
from batchpond.cli.output import Diagnostics
from batchpond.cli.sync import progress_text
from batchpond.doctor import Level, examine
from batchpond.errors import BusyError, ExitCode, LakeError
from batchpond.lake.attempts import Phase
from batchpond.lake.records import Voided
from batchpond.model import BatchState, ErrorClass, RemoteBatch
from batchpond.run import find
from batchpond.run.live import run
from batchpond.run.live.calls import CallCounts
from batchpond.run.live.run import LaneProgress, LiveReport
from batchpond.run.resolve import cancel
from batchpond.run.session import Session
from batchpond.run.submit import retry
from batchpond.run.told import looking, waits
from batchpond_sim.world.world import Settings
from tests.rigs import live_study
from tests.rigs.live_study import Asked, LiveRig, billed, document, hasten, wait_for
from tests.rigs.sim_providers import LIVE
from tests.rigs.small_disk import fill, make_read_only, mounted
from tests.rigs.swept import every

ENDPOINTS = tuple(LIVE)
N = 24
live_rig = functools.partial(live_study.live_rig, with_lens=False)  # but for the tests that say otherwise
DISK_BYTES = 10 << 20


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[LiveRig]:
    with live_rig(tmp_path) as made:
        yield made


# -- the whole flow --------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", every(3, ENDPOINTS))
def test_a_live_study_is_answered_and_accounted_for(rig: LiveRig, endpoint: str) -> None:
    rig.with_lens = True
    rig.begin(N, [Asked(endpoint)])
    report = rig.live(concurrency=4)
    assert (report.n_left, report.exit_code, report.notes) == (0, ExitCode.DONE, ())
    rig.check_complete(N)
    assert billed(rig) == N
    (attempt,) = rig.attempts()
    assert (attempt.phase, attempt.state, attempt.mode) == (Phase.VERIFIED, BatchState.COMPLETED, "live")
    found = rig.view("select outcome, origin, mode, count(*) from results group by all")
    assert found == [("decided", "simulated", "live", N)]
    assert rig.live().lanes == ()


def test_batch_and_live_models_stand_in_one_study(rig: LiveRig) -> None:
    """`submit` sends the one and leaves the other to `live`; `sync` brings in the one and never the other."""
    rig.plan(N, [Asked(), Asked("openai", "gpt-4o", "batch")])
    assert rig.submit().n_live == N
    assert rig.live(concurrency=4).n_left == 0
    rig.simulator.world.advance(100)
    assert rig.sync().n_pending == 0
    assert rig.n_answers() == (2 * N, 2 * N)
    rig.check_ledger()
    assert rig.view("select mode, count(*) from results where outcome = 'decided' group by all order by all") == [
        ("batch", N), ("live", N)
    ]  # fmt: skip


def test_two_models_are_asked_at_once(tmp_path: Path) -> None:
    with live_rig(tmp_path, live_latency_s=(0.5, 0.5)) as rig:
        rig.begin(16, [Asked(), Asked("anthropic")])
        seen: list[tuple[LaneProgress, ...]] = []
        report = rig.live(concurrency=2, on_progress=seen.append)
        assert [lane.n_answered for lane in report.lanes] == [16, 16]
        assert any(all(lane.n_in_flight for lane in lanes) for lanes in seen if len(lanes) == 2)
        rig.check_complete(32)


def test_a_server_of_one_model_at_a_time_is_asked_one_model_after_the_other(tmp_path: Path) -> None:
    with live_rig(tmp_path, live_latency_s=(0.02, 0.02)) as rig:
        rig.begin(12, [Asked("ollama"), Asked("ollama", "qwen3:8b")])
        seen: list[tuple[LaneProgress, ...]] = []
        assert rig.live(concurrency=2, on_progress=seen.append).n_left == 0
        assert all(sum(bool(lane.n_in_flight) for lane in lanes) <= 1 for lanes in seen)


def test_several_shards_of_a_model_are_asked_at_one_pace(rig: LiveRig) -> None:
    rig.begin(N, shards="[shards]\nmax_requests = 5")
    report = rig.live(concurrency=4)
    assert [lane.n_requests for lane in report.lanes] == [N]
    assert len(rig.attempts()) == 5
    rig.check_complete(N)


def test_answers_are_brought_into_the_lake_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "SEAL_LINES", 10)
    with live_rig(tmp_path, live_latency_s=(0.02, 0.02)) as rig:
        rig.begin(60)
        seen: list[int] = []
        rig.live(
            concurrency=4,
            on_progress=lambda _: seen.append(len(rig.attempts()[0].downloads) if rig.attempts() else 0),
        )
        assert max(seen) >= 2
        rig.check_complete(60)
        assert rig.view("select n_raw_lines, n_raw_lines_superseded from audit") == [(60, 0)]


# -- stopping and going on -------------------------------------------------------------------------


class Stopped(Exception):
    """The user has seen enough."""


def stop_after(rig: LiveRig, n_answered: int) -> None:
    """Run `live` until so many requests are answered."""

    def look(lanes: tuple[LaneProgress, ...]) -> None:
        if sum(lane.n_answered for lane in lanes) >= n_answered:
            raise Stopped

    with pytest.raises(Stopped):
        rig.live(on_progress=look, concurrency=2)


def test_a_run_that_is_stopped_goes_on_where_it_was_as_often_as_one_likes(tmp_path: Path) -> None:
    """Also when `sync` brings in what each run left: no answer takes another's place, none is bought again."""
    with live_rig(tmp_path, live_latency_s=(0.01, 0.03)) as rig:
        rig.begin(60)
        for n in (8, 20, 32):
            stop_after(rig, n)
            assert rig.spooled()
            if n == 20:
                rig.sync()
                assert not rig.spooled()
                assert rig.n_answers()[0] >= 20
        assert rig.live(concurrency=2).n_left == 0
        rig.check_complete(60)
        assert billed(rig) == 60
        assert rig.doubts().total() == 0
        assert rig.view("select n_raw_lines, n_raw_lines_superseded from audit") == [(60, 0)]


def test_sync_alone_brings_a_finished_run_to_its_end(rig: LiveRig) -> None:
    """A run that dies with all its answers spooled leaves nothing to ask."""
    rig.begin(N)
    assert rig.run("live", failpoint="L0:kill").returncode == -signal.SIGKILL
    rig.sync()
    rig.check_complete(N)
    assert rig.attempts()[0].phase is Phase.VERIFIED
    assert rig.live().lanes == ()


def test_an_idle_sync_after_live_calls_writes_nothing(rig: LiveRig) -> None:
    rig.with_lens = True
    rig.begin(N)
    rig.live()
    rig.sync()
    before = {path: path.stat().st_mtime_ns for path in rig.lake.rglob("*")}
    rig.sync()
    after = {path: path.stat().st_mtime_ns for path in rig.lake.rglob("*") if path.name != ".lock"}
    assert {path for path, at in after.items() if before.get(path) != at} <= {rig.lake, rig.lake / "_tmp"}


def test_a_second_run_says_who_is_at_it(tmp_path: Path) -> None:
    with live_rig(tmp_path, live_latency_s=(0.2, 0.2)) as rig:
        rig.begin(N)
        rig.simulator.world.add_fault("live@3-:status=529")  # calls that are put off keep it going
        first = rig.start("live", "--concurrency", "1")
        wait_for(lambda: billed(rig) > 0, first)
        second = rig.run("live")
        assert second.returncode == ExitCode.BUSY
        assert f"live (process {first.pid}" in second.stderr.decode()
        with pytest.raises(BusyError):
            rig.live()
        first.send_signal(signal.SIGINT)
        assert first.wait(30) == ExitCode.INTERRUPTED


def test_sync_goes_on_beside_live_calls(tmp_path: Path) -> None:
    """A batch study in the same lake comes to its end meanwhile; each stands back for the other's moments."""
    with live_rig(tmp_path, settings=Settings(seed=1, latency_s=(0.5, 1.0), live_latency_s=(0.01, 0.02))) as rig:
        rig.begin(120)
        rig.begin(N, [Asked("openai", "gpt-4o", "batch")], name="batches")
        # Calls that are put off keep the live run going for as long as the batches take.
        rig.simulator.world.add_fault("live@60-:status=529")
        process = rig.start("live", "--concurrency", "4", stderr=subprocess.PIPE)
        wait_for(lambda: billed(rig) >= 50, process)

        def is_batch_read() -> bool:
            with contextlib.suppress(BusyError):
                rig.sync()
            return rig.view("select count(*) from results where study = 'batches' and outcome = 'decided'") == [(N,)]

        wait_for(is_batch_read, process, bound_s=120.0)
        rig.simulator.world.clear_faults()
        process.communicate(timeout=120)
        assert process.returncode == ExitCode.DONE
        rig.sync()
        rig.check_complete(120 + N)
        assert billed(rig) == 120


@pytest.mark.parametrize("is_impatient", [False, True], ids=["once", "twice"])
def test_ctrl_c_ends_with_130_and_all_that_was_answered(tmp_path: Path, is_impatient: bool) -> None:
    with live_rig(tmp_path, live_latency_s=(0.1, 0.2)) as rig:
        rig.begin(60)
        if is_impatient:
            rig.simulator.world.add_fault("live@9:hang_after=60")
        process = rig.start("live", "--concurrency", "3", stderr=subprocess.PIPE)
        wait_for(lambda: billed(rig) >= 12, process)
        process.send_signal(signal.SIGINT)
        if is_impatient:
            time.sleep(0.1)
            process.send_signal(signal.SIGINT)
        stderr = process.communicate(timeout=30)[1].decode()  # half as long as the call that hangs
        assert (process.returncode, "Traceback" in stderr) == (ExitCode.INTERRUPTED, False)
        assert "interrupted" in stderr
        n_before = billed(rig)
        rig.simulator.world.clear_faults()
        assert rig.live(concurrency=3).n_left == 0
        rig.check_complete(60)
        n_doubts = rig.doubts().total()
        assert billed(rig) == 60 + n_doubts
        assert n_doubts <= (3 if is_impatient else 0)
        assert n_before >= 12


def test_a_plan_that_changed_leaves_no_begun_calls_behind(tmp_path: Path) -> None:
    """What an earlier version began is asked to its end: the new version shares those requests, and holds none back."""
    with live_rig(tmp_path, live_latency_s=(0.01, 0.01)) as rig:
        rig.begin(30)
        stop_after(rig, 5)
        rig.begin(45)
        assert rig.live(concurrency=4).n_left == 0
        assert rig.view("select count(*) from results where outcome = 'decided'") == [(45,)]
        rig.check_ledger()
        assert rig.simulator.world.ledger.live_summary()["n_duplicates"] == 0


def test_a_plan_that_changes_on_the_way_is_heard_of(tmp_path: Path) -> None:
    """What of the earlier version was not begun is not asked: nobody wants it, and no approval is of it any more."""
    with live_rig(tmp_path, live_latency_s=(0.01, 0.01)) as rig:
        rig.begin(N, shards="[shards]\nmax_requests = 12")
        is_changed = False

        def change(_: tuple[LaneProgress, ...]) -> None:
            nonlocal is_changed
            if not is_changed and rig.attempts():
                is_changed = True
                rig.plan(N, (Asked(model="gpt-4o-mini"),))

        report = rig.live(concurrency=2, on_progress=change)
        assert (is_changed, billed(rig), report.n_left) == (True, 12, 12)
        assert any("waits for" in note.message for note in report.notes)
        assert [attempt.phase for attempt in rig.attempts()] == [Phase.VERIFIED]


def test_a_study_that_waits_for_a_person_stops_no_other(tmp_path: Path) -> None:
    """A batch came of what was given up: nothing of its study is asked, all of the other is, and the exit code is 3."""
    with live_rig(tmp_path) as rig:
        rig.begin(4, (Asked(model="gpt-4o-mini", mode="batch"),), name="held")
        rig.begin(8)
        (attempt,) = rig.attempts()
        with rig.store().lock("test"):
            session = Session.begin(rig.store(), rig.providers())
            batch = RemoteBatch("batch_other", BatchState.RUNNING, "in_progress", {}, n_total=4)
            find.note_duplicate(session, attempt, batch)
            session.record(Voided(study="held", shard_id=attempt.shard_id))
        report = rig.live()
        assert (report.n_left, report.exit_code) == (0, ExitCode.ATTENTION)
        assert billed(rig) == 8


# -- disks -------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", DISK_BYTES) as disk:
        yield disk


@pytest.mark.parametrize("n_pages_free", [0, 12, 40])
def test_a_full_disk_stops_the_run_and_keeps_what_was_answered(
    tmp_path: Path, small_disk: Path, n_pages_free: int
) -> None:
    with live_rig(tmp_path, live_latency_s=(0.002, 0.004)) as outside:
        rig = LiveRig(small_disk, outside.simulator)
        rig.begin(60)
        filler = fill(small_disk, n_pages_free)
        with pytest.raises(LakeError, match="No space left") as caught:
            rig.live(concurrency=4)
        assert (caught.value.exit_code, bool(caught.value.hint)) == (ExitCode.LAKE, True)
        n_asked = billed(rig)
        filler.unlink()
        assert rig.live(concurrency=4).n_left == 0
        rig.check_complete(60)
        assert rig.doubts().total() <= 4
        assert billed(rig) == 60 + sum(rig.doubts().values())
        assert n_asked == 0 or n_pages_free


def test_a_lake_that_cannot_be_written_is_said_before_anything_is_asked(tmp_path: Path, small_disk: Path) -> None:
    with live_rig(tmp_path) as outside:
        rig = LiveRig(small_disk, outside.simulator)
        rig.begin(N)
        make_read_only(small_disk)
        done = rig.run("live")
        assert done.returncode == ExitCode.LAKE
        assert "Read-only" in done.stderr.decode()
        make_read_only(small_disk, is_so=False)
        assert outside.simulator.world.ledger.live.n_asked == 0
        assert rig.live().n_left == 0


# -- other commands ------------------------------------------------------------------------------------


def test_cancel_ends_a_live_attempt_and_keeps_its_answers(tmp_path: Path) -> None:
    with live_rig(tmp_path, live_latency_s=(0.01, 0.01)) as rig:
        rig.begin(40)
        stop_after(rig, 6)
        (attempt,) = rig.attempts()
        report = cancel(rig.store(), [attempt.attempt_id[:10]], providers=rig.providers())
        assert (report.asked, report.exit_code) == ((attempt.batch_id,), ExitCode.DONE)
        (attempt,) = rig.attempts()
        assert (attempt.phase, attempt.state) == (Phase.VERIFIED, BatchState.CANCELLED)
        n_answered = rig.n_answers()[0]
        assert 6 <= n_answered < 40
        assert rig.view("select is_balanced, n_missing from audit") == [(True, 40 - n_answered)]
        assert rig.live().lanes == ()
        assert cancel(rig.store(), [attempt.attempt_id], providers=rig.providers()).asked == ()
        cancelled = (ErrorClass.CANCELLED,)
        retry(rig.store(), "live", classes=cancelled, confirm=lambda *_: True, providers=rig.providers())
        assert rig.live().n_left == 0
        assert rig.view("select count(*) from results where outcome = 'decided'") == [(40,)]
        assert billed(rig) == 40 + rig.doubts().total()


def test_cancel_of_what_is_being_asked_says_who_is_at_it(tmp_path: Path) -> None:
    with live_rig(tmp_path, live_latency_s=(0.2, 0.2)) as rig:
        rig.begin(N)
        rig.simulator.world.add_fault("live@3-:status=529")  # calls that are put off keep it going
        process = rig.start("live", "--concurrency", "1")
        wait_for(lambda: billed(rig) > 1, process)
        (attempt,) = rig.attempts()
        with pytest.raises(BusyError, match=f"process {process.pid}") as caught:
            cancel(rig.store(), [attempt.attempt_id], providers=rig.providers())
        assert caught.value.hint
        process.kill()
        process.wait()


def test_doctor_says_that_answers_wait_outside_the_tables(tmp_path: Path) -> None:
    with live_rig(tmp_path, live_latency_s=(0.01, 0.01)) as rig:
        rig.begin(30)
        stop_after(rig, 6)
        (found,) = [found for found in examine(rig.store()) if found.check == "live"]
        assert found.level is Level.WARNING
        assert "batchpond sync" in (found.hint or "")


def test_status_and_results_show_an_attempt_that_is_half_done(tmp_path: Path) -> None:
    with live_rig(tmp_path, live_latency_s=(0.01, 0.01)) as rig:
        rig.begin(30)
        stop_after(rig, 6)
        rig.sync()
        ((n_planned, n_answered, n_outstanding),) = rig.view(
            "select n_planned, n_answered, n_outstanding from report_status"
        )
        assert n_planned == n_answered + n_outstanding == 30
        assert n_answered >= 6
        assert rig.run("status").returncode == ExitCode.DONE


def test_progress_says_where_the_calls_stand() -> None:
    counts = CallCounts(n_answered=10, n_failed=1, n_deferred=2, n_doubts=3)
    shown = progress_text((LaneProgress("openai/m", 100, 20, 4, counts, is_stalled=True),), 2.0)
    assert shown == (
        "20 of 100 answered, 4 in flight, 2.0/s, 40s left, 2 put off, 3 in doubt, 1 failed, waiting for openai/m"
    )


def test_a_run_without_a_terminal_prints_a_document_and_few_lines(rig: LiveRig) -> None:
    rig.begin(N)
    done = rig.run("live", "--json")
    assert document(done) == {
        "models": [
            {"model": "openai/gpt-4.1-mini", "n_requests": N, "n_answered": N, "n_calls_answered": N, "n_deferred": 0,
             "n_doubts": 0, "n_failed": 0, "n_held": 0}
        ],
        "n_left": 0,
        "notes": [],
    }  # fmt: skip
    assert len(done.stderr.decode().splitlines()) <= 4


def test_nothing_goes_on_after_a_run_has_returned(rig: LiveRig) -> None:
    """No thread of a run outlives it, but one whose call hangs; what that brings later is not written."""
    rig.with_lens = True
    rig.begin(N)
    before = set(threading.enumerate())
    report = rig.live(concurrency=8)
    assert isinstance(report, LiveReport)
    assert not [thread for thread in threading.enumerate() if thread not in before and "batchpond" in thread.name]


def test_a_log_gets_a_line_a_minute(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """However often the calls say where they stand, and at once when they begin."""
    now_s = iter(range(100_000))
    monkeypatch.setattr(sync.time, "monotonic", lambda: float(next(now_s)))
    ticker = sync._Ticker(Diagnostics())
    for n_answered in range(300):
        ticker.show((LaneProgress("openai/m", 1_000, n_answered, 4, CallCounts(), is_stalled=False),))
    shown = capsys.readouterr().err.splitlines()
    assert 4 <= len(shown) <= 6
    assert "0 of 1,000 answered, 4 in flight" in shown[0]


def test_calls_that_were_begun_under_an_earlier_plan_are_told_approved_anew_and_made(rig: LiveRig) -> None:
    """The new plan asks the same: but for these calls nothing of it is due, and nobody could approve or make them."""
    rig.begin(N)
    assert rig.run("live", failpoint="L1:kill").returncode == -signal.SIGKILL
    rig.plan(N, shards="[shards]\nmax_requests = 50\n")
    told = rig.sync()
    assert (told.n_live, told.n_unapproved) == (N, 0)
    assert any("an approval of the new plan" in note.message for note in told.notes)
    assert [row["n_requests"] for row in waits(looking(rig.store(), rig.providers()), live_study.STUDY)] == [N]
    assert not rig.live().lanes
    submitted = rig.submit()
    assert (submitted.preview.n_requests, submitted.n_live) == (N, N)
    assert rig.live().n_left == 0
    rig.check_complete(N)
    assert (rig.submit().preview.n_requests, rig.sync().n_live) == (0, 0)


def test_of_calls_that_were_begun_what_is_left_is_told_and_approved(rig: LiveRig) -> None:
    """What is answered is no part of what `submit` shows, and of its worst cost, or of what `sync` and `status` say."""
    rig.plan(N)
    whole_usd = rig.submit().preview.cost_max_usd
    assert rig.run("live", "--concurrency", "2", failpoint="L3:kill:8").returncode == -signal.SIGKILL
    rig.sync()
    n_left = N - rig.n_answers()[0]
    assert 0 < n_left < N
    assert rig.sync().n_live == n_left
    rig.plan(N, shards="[shards]\nmax_requests = 50\n")
    assert [row["n_requests"] for row in waits(looking(rig.store(), rig.providers()), live_study.STUDY)] == [n_left]
    shown = rig.submit().preview
    assert (shown.n_requests, shown.cost_max_usd) == (n_left, pytest.approx(whole_usd * n_left / N))
    assert rig.live().n_left == 0
    rig.check_complete(N)
