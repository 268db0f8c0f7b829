"""The real program is interrupted, ended, hung up on and put to sleep while its create is on the wire: one batch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from batchpond.errors import ExitCode
from batchpond.lake.store import Store
from batchpond.plan.verb import plan_study
from batchpond.study.file import load
from tests.rigs.processes import Rig, rig_at
from tests.rigs.sim_study import STUDY, write_study
from tests.rigs.swept import some

N_REQUESTS = 12
SUBMIT = ("submit", STUDY, "--yes")
LEASE_S = 0.5
# The same program with a short send lease and no back-off, so that a nap outlasts the one and nobody waits the other.
HASTY = (
    sys.executable,
    "-c",
    "import sys; from datetime import timedelta; from batchpond.run import dispatch, send;"
    " from batchpond.cli import main;"
    f" send.SEND_LEASE_S = {LEASE_S}; dispatch.BACKOFF_FIRST = timedelta(0); sys.exit(main())",
)
# What a shell does to a job that it starts in the background of a script.
IN_BACKGROUND = (
    sys.executable,
    "-c",
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN);"
    " os.execv(sys.executable, [sys.executable, '-m', 'batchpond', *sys.argv[1:]])",
)


@pytest.fixture(scope="module")
def planned_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planned")
    plan_study(Store.init(folder / "lake"), load(write_study(folder, max_requests=50, models=("gpt-4.1-mini",))))
    return folder / "lake"


@pytest.fixture
def rig(tmp_path: Path, planned_lake: Path) -> Iterator[Rig]:
    with rig_at(tmp_path, planned_lake) as made:
        yield made


def wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


def submit_into_silence(rig: Rig, seconds: float, program: tuple[str, ...] | None = None) -> subprocess.Popen[bytes]:
    """Start `submit`, and return once its batch is made and its answer is not coming."""
    rig.simulator.world.add_fault(f"batches.create@1:hang_after={seconds}")
    more = {} if program is None else {"program": program}
    process = rig.start_program(*SUBMIT, stderr=subprocess.PIPE, **more)
    wait_until(lambda: bool(rig.simulator.world.ledger.batches))
    return process


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    _, stderr = process.communicate(timeout=30)
    return process.returncode, stderr.decode()


def assert_one_batch_with_every_answer(rig: Rig) -> None:
    assert rig.sync() == ExitCode.DONE
    assert rig.is_complete(1)
    assert len(rig.simulator.world.ledger.batches) == 1
    assert rig.billed()[0] == N_REQUESTS
    assert rig.n_answers() == (N_REQUESTS, N_REQUESTS)


@pytest.mark.parametrize("number", some(signal.SIGTERM, swept=[signal.SIGHUP]))
def test_ended_while_the_create_is_on_the_wire(rig: Rig, number: signal.Signals) -> None:
    """A process that is told to go goes at once, by the signal, as shells expect; not so under `nohup`."""
    before = signal.signal(number, signal.SIG_DFL)  # the tests themselves may run under `nohup`
    try:
        process = submit_into_silence(rig, 60)
    finally:
        signal.signal(number, before)
    process.send_signal(number)
    assert ended(process)[0] == -number
    assert_one_batch_with_every_answer(rig)


@pytest.mark.parametrize("is_impatient", some(True, swept=[False]))
def test_ctrl_c_while_the_create_is_on_the_wire(rig: Rig, is_impatient: bool) -> None:
    """130 and what is safe, once; however often it is pressed, until the process is gone."""
    process = submit_into_silence(rig, 60)
    process.send_signal(signal.SIGINT)
    while is_impatient and process.poll() is None:
        process.send_signal(signal.SIGINT)
        time.sleep(0.005)
    code, stderr = ended(process)
    assert code == ExitCode.INTERRUPTED
    assert stderr.count("interrupted. What was recorded is safe") == 1
    assert "Traceback" not in stderr
    assert_one_batch_with_every_answer(rig)


def test_ctrl_c_does_not_reach_a_job_in_the_background(rig: Rig) -> None:
    """A shell starts it with SIGINT ignored, so that Ctrl-C ends what is in the foreground only."""
    process = submit_into_silence(rig, 1.0, IN_BACKGROUND)
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == ExitCode.DONE
    assert_one_batch_with_every_answer(rig)


def test_asleep_longer_than_the_lease_while_the_create_is_on_the_wire(rig: Rig) -> None:
    """The lock is held all the while, and the batch is found although its answer went by unheard."""
    process = submit_into_silence(rig, LEASE_S / 2, HASTY)
    process.send_signal(signal.SIGSTOP)
    assert rig.sync() == ExitCode.BUSY
    time.sleep(LEASE_S)
    process.send_signal(signal.SIGCONT)
    assert ended(process)[0] == ExitCode.DONE
    assert_one_batch_with_every_answer(rig)


def test_asleep_between_the_record_and_the_create(rig: Rig) -> None:
    """What was decided before the nap is not sent after it: it is given up, and sent anew by a later pass."""
    process = rig.start_program(*SUBMIT, failpoint="S8.before:stop", program=HASTY)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    time.sleep(2 * LEASE_S)
    process.send_signal(signal.SIGCONT)
    assert process.wait(30) == ExitCode.DONE
    assert not rig.simulator.world.ledger.batches
    assert rig.start_program("sync", program=HASTY).wait(30) == ExitCode.DONE
    rig.let_batches_end()
    assert_one_batch_with_every_answer(rig)
