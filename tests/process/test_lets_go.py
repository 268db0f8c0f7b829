"""While files travel, the lake is there for others: no command waits for an upload or a download of another one."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import httpx
import pytest

from batchpond.errors import BusyError, ExitCode
from batchpond.lake.attempts import Phase
from batchpond.lake.store import Store
from batchpond.plan.verb import plan_study
from batchpond.providers import registry
from batchpond.run import session, submit, sync
from batchpond.run.collect import AT_ONCE
from batchpond.run.session import Providers
from batchpond.study.file import load
from tests.rigs.processes import rig_at
from tests.rigs.sim_providers import SIMULATED, environ
from tests.rigs.sim_study import STUDY, Rig, write_study
from tests.rigs.sim_transport import SimulatorTransport

DEADLINE_S = 60.0
N_BATCHES = 6
T = TypeVar("T")


class Gate(httpx.BaseTransport):
    """The way to the simulator, on which what `holds` says stands still until the gate is opened."""

    def __init__(self, rig: Rig, holds: Callable[[httpx.Request], bool]) -> None:
        self._inner = SimulatorTransport(rig.world, rig.clock)
        self._lock = threading.Lock()
        self._holds = holds
        self.opened = threading.Event()
        self.n_held = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self._holds(request):
            with self._lock:
                self.n_held += 1
            if not self.opened.wait(DEADLINE_S):
                raise httpx.ReadTimeout("nobody opened the gate")
        with self._lock:
            return self._inner.handle_request(request)


def is_upload(request: httpx.Request) -> bool:
    return request.method == "POST" and request.url.path.endswith("/files")


def is_download(request: httpx.Request) -> bool:
    return request.url.path.endswith("/content")


def providers(rig: Rig, transport: httpx.BaseTransport) -> Providers:
    found = environ(rig.key)
    return Providers(lambda name: registry.connect(name, rig.clock, transport=transport, environ=found))


def submitted(rig: Rig, transport: httpx.BaseTransport) -> submit.SubmitReport:
    with providers(rig, transport) as found:
        return submit.submit(rig.store(), STUDY, confirm=lambda _: True, providers=found)


def synced(rig: Rig, transport: httpx.BaseTransport) -> sync.SyncReport:
    with providers(rig, transport) as found:
        return sync.sync_once(rig.store(), providers=found)


def in_background(work: Callable[[], T]) -> Future[T]:
    found: Future[T] = Future()

    def run() -> None:
        try:
            found.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised by whoever asks for the result
            found.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return found


@contextmanager
def held_at(gate: Gate, work: Future[T], rig: Rig) -> Iterator[None]:
    """Wait until files stand at the gate and the lake can be had; open the gate in the end."""
    until_s = time.monotonic() + DEADLINE_S
    try:
        while True:
            assert not work.done(), work.result()
            assert time.monotonic() < until_s, "the lake's lock was kept"
            try:
                if gate.n_held:
                    with rig.store().lock("try"):
                        break
            except BusyError:
                pass
            time.sleep(0.02)
        yield
    finally:
        gate.opened.set()


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path, max_requests=2, models=SIMULATED["openai"].models[:1], with_lens=False)
    rig.plan()
    return rig


def test_another_command_has_the_lake_while_a_submit_uploads(rig: Rig) -> None:
    """Every file goes once, every batch comes to be once, whatever was written meanwhile."""
    gate = Gate(rig, is_upload)
    sending = in_background(lambda: submitted(rig, gate))
    with held_at(gate, sending, rig):
        rig.change()  # the study is planned anew while its files travel
        meanwhile = synced(rig, SimulatorTransport(rig.world, rig.clock))
        assert meanwhile.n_waiting > 0
    report = sending.result(DEADLINE_S)
    assert report.counts is not None
    rig.wire.restart()
    rig.submit()
    rig.settle(is_begun=True)
    assert rig.violations() == []


def test_a_pass_beside_an_upload_neither_uploads_the_same_nor_sends_it(rig: Rig) -> None:
    gate = Gate(rig, is_upload)
    sending = in_background(lambda: submitted(rig, gate))
    with held_at(gate, sending, rig):
        n_held = gate.n_held
        travelling = {attempt.attempt_id for attempt in rig.attempts()}
        beside = Gate(rig, is_upload)
        beside.opened.set()
        synced(rig, beside)
        sent = {attempt.attempt_id for attempt in rig.attempts() if attempt.phase is Phase.OPEN}
        assert not sent & travelling
        assert len(sent) == beside.n_held == N_BATCHES - len(travelling) > 0
    report = sending.result(DEADLINE_S)
    assert report.counts is not None
    assert report.counts.n_created == gate.n_held == n_held == len(travelling)
    rig.wire.restart()
    rig.settle(is_begun=True)
    assert rig.violations() == []


def test_another_command_has_the_lake_while_a_pass_downloads_and_brings_nothing_twice(rig: Rig) -> None:
    rig.submit()
    rig.clock.advance(3_000)
    gate = Gate(rig, is_download)
    bringing = in_background(lambda: synced(rig, gate))
    with held_at(gate, bringing, rig):
        beside = Gate(rig, is_download)
        beside.opened.set()
        synced(rig, beside)
        assert beside.n_held == N_BATCHES - AT_ONCE
        assert all(attempt.phase in {Phase.ENDED, Phase.VERIFIED} for attempt in rig.attempts())
    assert bringing.result(DEADLINE_S).n_pending == 0
    assert gate.n_held + beside.n_held == N_BATCHES
    rig.wire.restart()
    assert all(attempt.phase is Phase.VERIFIED for attempt in rig.attempts())
    rig.settle(is_begun=True)
    assert rig.violations() == []


def test_who_does_not_get_the_lake_again_says_that_what_was_sent_stands(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Busy, as every command that finds another writer, but something was changed; a later pass sends the rest."""
    monkeypatch.setattr(session, "TURN_WAIT_S", 0.0)
    gate = Gate(rig, is_upload)
    sending = in_background(lambda: submitted(rig, gate))
    with held_at(gate, sending, rig), rig.store().lock("other"):
        gate.opened.set()
        with pytest.raises(BusyError) as told:
            sending.result(DEADLINE_S)
    assert "nothing was changed" not in f"{told.value.hint}"
    assert "goes on with the rest" in f"{told.value.hint}"
    rig.wire.restart()
    rig.settle(is_begun=True)
    assert rig.violations() == []


class FirstIsLate(random.Random):
    """Draws by which the first file comes late, and no other."""

    n_drawn = 0

    def random(self) -> float:
        self.n_drawn += 1
        return 0.0 if self.n_drawn == 1 else 0.9


def test_a_batch_that_is_found_for_a_shard_sent_before_is_not_bought_again_in_the_same_pass(rig: Rig) -> None:
    """The second batch was refused and made all the same; the first, whose file was late, is what looks for it."""
    rig.lateness = FirstIsLate()
    rig.world.add_fault("batches.create@1:status_after=400")
    rig.submit()
    assert [attempt.phase for attempt in rig.attempts()][:2] == [Phase.UPLOADED, Phase.REJECTED]
    rig.lateness = None
    rig.submit()
    rig.settle(is_begun=True)
    assert rig.violations() == []


def test_who_is_killed_while_files_travel_leaves_them_to_the_next_pass(tmp_path: Path) -> None:
    """The real program, over real HTTP, with a download of two bytes a second."""
    folder = tmp_path / "planned"
    plan_study(
        Store.init(folder / "lake"), load(write_study(folder, max_requests=12, models=SIMULATED["openai"].models))
    )
    with rig_at(tmp_path / "rig", folder / "lake") as rig:
        assert rig.submit() == ExitCode.DONE
        rig.simulator.world.add_fault("files.content@1:slow=2")
        assert rig.sync(failpoint="W0:kill") == -signal.SIGKILL
        rig.simulator.world.clear_faults()
        rig.simulator.world.add_fault("files.content@1:slow=4000")
        holder = rig.start("sync", failpoint="W0:stop")
        try:
            holder.wait_until_stopped()
            assert rig.run("status") == ExitCode.DONE
            assert rig.run("sync") != ExitCode.BUSY
        finally:
            holder.send_signal(signal.SIGCONT)
        assert holder.wait(120) in {ExitCode.DONE, ExitCode.PENDING}
        rig.sync()
        assert rig.is_complete(len(rig.lake_state().shards))
        n_answers, n_requests = rig.n_answers()
        assert n_answers == n_requests == rig.billed()[0]
