"""Input files of several batches travel at once: each batch after its own, bounded, and none is uploaded twice."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx
import pytest

from batchpond.errors import ExitCode
from batchpond.lake.attempts import Phase, fold
from batchpond.lake.events import read
from batchpond.lake.records import Created, Intent, Sent, Uploaded
from batchpond.providers import registry
from batchpond.run import dispatch, session, submit
from batchpond.run.session import Providers
from batchpond.run.submit import SubmitReport
from tests.rigs.sim_providers import SIMULATED, environ
from tests.rigs.sim_study import STUDY, Rig
from tests.rigs.sim_transport import SimulatorTransport

N_BATCHES = 12
AT_ONCE = dispatch.UPLOADS_MAX + 1
DEADLINE_S = 30.0


class Gate(httpx.BaseTransport):
    """The way to the simulator: after the first, as many uploads as may travel at once pass it together only.

    From the third on they are answered with a status where there is one to `refuse` them with.
    """

    def __init__(self, rig: Rig, refuse: int | None = None) -> None:
        self._inner = SimulatorTransport(rig.world, rig.clock)
        self._lock = threading.Lock()
        self._together = threading.Barrier(AT_ONCE, timeout=DEADLINE_S)
        self._refuse = refuse
        self.n_now = self.n_most = self.n_uploads = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.method != "POST" or not request.url.path.endswith("/files"):
            return self._inner.handle_request(request)
        with self._lock:
            self.n_uploads += 1
            number = self.n_uploads
            self.n_now += 1
            self.n_most = max(self.n_most, self.n_now)
        if 1 < number <= 1 + AT_ONCE and self._refuse is None:
            self._together.wait()
        try:
            if number > 2 and self._refuse is not None:
                return httpx.Response(self._refuse, json={"error": {"message": "no", "code": "no"}})
            with self._lock:
                return self._inner.handle_request(request)
        finally:
            with self._lock:
                self.n_now -= 1


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is: no file is late, so that the lake's lock is kept and those that wait meet."""
    monkeypatch.setattr(session, "PATIENCE_S", 2 * DEADLINE_S)


def planned(path: Path) -> Rig:
    rig = Rig(path, max_requests=1, models=SIMULATED["openai"].models[:1], with_lens=False)
    rig.plan()
    return rig


def submitted(rig: Rig, gate: Gate, max_cost_usd: float | None = None) -> SubmitReport:
    """Submit with threads as they are."""
    found = environ(rig.key)
    with Providers(lambda name: registry.connect(name, rig.clock, transport=gate, environ=found)) as providers:
        report = submit.submit(
            rig.store(), STUDY, submit.Bounds(max_cost_usd), confirm=lambda _: True, providers=providers
        )
    rig.wire.restart()
    return report


def test_files_travel_while_batches_are_created_and_each_batch_comes_after_its_own(tmp_path: Path) -> None:
    """No upload of four is let through before the fourth is there; order and protocol of each attempt are as ever."""
    rig = planned(tmp_path)
    gate = Gate(rig)
    report = submitted(rig, gate)
    assert report.exit_code is ExitCode.DONE
    assert report.counts is not None
    assert report.counts.n_created == gate.n_uploads == N_BATCHES
    assert gate.n_most == AT_ONCE
    kinds = (Intent, Uploaded, Sent, Created)
    by_attempt: dict[str, list[type]] = {}
    for event in read(rig.store()):
        if isinstance(event, kinds):
            by_attempt.setdefault(event.attempt_id, []).append(type(event))
    assert list(by_attempt.values()) == [list(kinds)] * N_BATCHES
    rig.settle(is_begun=True)
    assert rig.violations() == []


def test_what_is_kept_from_being_sent_after_its_file_travelled_is_not_uploaded_again(tmp_path: Path) -> None:
    """The provider takes no more batches for now: the files that are there are on record."""
    rig = planned(tmp_path)
    rig.world.add_fault("batches.create@3:status=429")
    gate = Gate(rig)
    submitted(rig, gate)
    phases = [attempt.phase for attempt in rig.attempts()]
    assert phases.count(Phase.OPEN) == 2
    assert phases.count(Phase.UPLOADED) == gate.n_uploads - 3 > 0
    rig.settle(is_begun=True)
    assert rig.wire.calls["POST /files"] == N_BATCHES - gate.n_uploads
    assert rig.violations() == []


@pytest.mark.parametrize("status", [401, 500])
def test_an_upload_that_fails_ahead_is_said_at_its_turn_and_done_again_by_a_later_pass(
    tmp_path: Path, status: int
) -> None:
    rig = planned(tmp_path)
    gate = Gate(rig, refuse=status)
    report = submitted(rig, gate)
    assert report.counts is not None
    assert report.counts.n_created <= 2
    assert report.notes
    assert gate.n_most <= AT_ONCE
    rig.settle(is_begun=True)
    assert len([one for one in rig.attempts() if one.phase is Phase.VERIFIED]) == N_BATCHES
    assert rig.violations() == []


def test_no_file_travels_whose_batch_the_money_would_not_reach_for(tmp_path: Path) -> None:
    rig = planned(tmp_path)
    store = rig.store()
    shown = submit.preview(store, fold(read(store)), STUDY, None)
    assert shown.cost_max_usd is not None
    gate = Gate(rig)
    report = submitted(rig, gate, max_cost_usd=shown.cost_max_usd / 2)
    assert report.counts is not None
    assert 2 < report.counts.n_created == gate.n_uploads < N_BATCHES
