"""Result files of several batches travel at once: published in order, bounded, and nothing is left half done."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from pathlib import Path
from unittest.mock import patch

import httpx
import pytest

from batchpond.cli.frame import GRACE_S
from batchpond.errors import ExitCode, LakeError
from batchpond.lake import failpoints
from batchpond.lake.attempts import Phase
from batchpond.lake.records import Downloaded
from batchpond.lake.store import Store
from batchpond.plan.verb import plan_study
from batchpond.providers import registry
from batchpond.run import collect, sync
from batchpond.run.session import Note, Providers
from batchpond.study.file import load
from tests.rigs.processes import rig_at
from tests.rigs.sim_providers import SIMULATED, environ
from tests.rigs.sim_study import Rig, write_study
from tests.rigs.sim_transport import SimulatorTransport

N_BATCHES = 12
DEADLINE_S = 30.0


class Gate(httpx.BaseTransport):
    """The way to the simulator: downloads of batches pass it in fours only, and one provider's may be refused there."""

    def __init__(self, rig: Rig, refused: str = "/nothing") -> None:
        self._inner = SimulatorTransport(rig.world, rig.clock)
        self._refused = refused
        self._lock = threading.Lock()
        self._four = threading.Barrier(collect.AT_ONCE, timeout=DEADLINE_S)
        self.n_now = self.n_most = self.n_refused = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/content"):
            return self._inner.handle_request(request)
        if request.url.path.startswith(self._refused):
            with self._lock:
                self.n_refused += 1
            return httpx.Response(401, json={"error": {"message": "no such key", "code": "invalid_api_key"}})
        with self._lock:
            self.n_now += 1
            self.n_most = max(self.n_most, self.n_now)
        if self._refused == "/nothing":
            self._four.wait()
        try:
            return self._inner.handle_request(request)
        finally:
            with self._lock:
                self.n_now -= 1


def ended(path: Path, models: tuple[str, ...] = SIMULATED["openai"].models) -> Rig:
    """Return a lake of which all batches have ended, and none of which anything is here."""
    rig = Rig(path, max_requests=2, models=models, with_lens=False)
    rig.plan()
    rig.submit()
    rig.clock.advance(100_000)
    return rig


def collected(rig: Rig, gate: Gate) -> list[Note]:
    """Make one pass with threads as they are; returns what it said."""
    found = environ(rig.key)
    with Providers(lambda name: registry.connect(name, rig.clock, transport=gate, environ=found)) as providers:
        return list(sync.sync_once(rig.store(), providers=providers).notes)


def downloads(rig: Rig) -> list[Downloaded]:
    return sorted((one for attempt in rig.attempts() for one in attempt.downloads), key=lambda event: event.ord)


def passing(rig: Rig) -> list[Path]:
    return list((rig.lake / "_tmp").iterdir())


def test_files_of_four_batches_travel_at_once_and_are_published_most_perishable_first(tmp_path: Path) -> None:
    """No download of four is let through before the fourth is there: one after the other they would never come."""
    rig = ended(tmp_path)
    gate = Gate(rig)
    collected(rig, gate)
    assert {attempt.phase for attempt in rig.attempts()} == {Phase.VERIFIED}
    assert (len(rig.attempts()), gate.n_most) == (N_BATCHES, collect.AT_ONCE)
    made = {attempt.attempt_id: (attempt.created_at, attempt.attempt_id) for attempt in rig.attempts()}
    order = [made[event.attempt_id] for event in downloads(rig)]
    assert order == sorted(order)
    assert (rig.violations(), passing(rig)) == ([], [])


def test_a_provider_that_refuses_the_key_stops_its_own_files_only_and_says_so_once(tmp_path: Path) -> None:
    """Those of its batches that were begun beside the first are asked for; no further one is."""
    rig = ended(tmp_path, (SIMULATED["openai"].models[0], SIMULATED["mistral"].models[0]))
    gate = Gate(rig, refused="/openai/")
    notes = collected(rig, gate)
    assert 1 <= gate.n_refused <= collect.AT_ONCE
    assert {(one.provider, one.phase) for one in rig.attempts()} == {
        ("openai", Phase.ENDED),
        ("mistral", Phase.VERIFIED),
    }
    assert [note.exit_code for note in notes if "no such key" in note.message] == [ExitCode.ACCESS]
    assert passing(rig) == []
    rig.settle(is_begun=True)
    assert rig.violations() == []


def test_a_disk_that_fails_ends_the_pass_and_leaves_no_passing_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files that came beside the one that could not be published are removed: their room may be what lacks."""
    rig = ended(tmp_path)
    monkeypatch.setenv(failpoints.VARIABLE, "Y5:raise:2")
    with patch.object(failpoints, "_passes", {}), pytest.raises(LakeError):
        collected(rig, Gate(rig))
    assert passing(rig) == []
    assert sum(len(attempt.downloads) for attempt in rig.attempts()) == 1
    monkeypatch.delenv(failpoints.VARIABLE)
    rig.settle(is_begun=True)
    assert rig.violations() == []


def test_ctrl_c_ends_a_pass_at_once_whose_downloads_do_not_come(tmp_path: Path) -> None:
    """Four downloads say nothing for ten minutes: the process does not wait for them, and the next pass has all."""
    study = write_study(tmp_path / "study", max_requests=4, models=SIMULATED["openai"].models[:1])
    plan_study(Store.init(tmp_path / "planned"), load(study))
    with rig_at(tmp_path, tmp_path / "planned") as rig:
        assert rig.submit() == ExitCode.DONE
        rig.let_batches_end()
        rig.simulator.world.add_fault("files.content@*:hang_before=600")
        process = rig.start_program("sync", stderr=subprocess.PIPE)
        until_s = time.monotonic() + DEADLINE_S
        while rig.simulator.world.ledger.calls["openai.files.content"] < 3:
            assert time.monotonic() < until_s, "three downloads were never under way"
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=GRACE_S)  # after which its watcher would end it
        assert process.returncode == ExitCode.INTERRUPTED
        assert not rig.is_complete(3)
        rig.simulator.world.clear_faults()
        assert rig.sync() == ExitCode.DONE
        assert rig.is_complete(3)
        assert rig.n_answers() == (N_BATCHES, N_BATCHES)
