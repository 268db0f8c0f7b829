"""Clocks that jump and months of sleep, as processes: programs and simulator share a clock, which a file moves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from batchpond.clock import CLOCK_ENV, SystemClock
from batchpond_sim.host import server
from batchpond_sim.world.world import Settings
from tests.rigs.clock import ClockFile
from tests.rigs.program import STUDY, N, Program

DAY_S = 86_400.0
SETTLE_S = 600
SETTINGS = Settings(seed=1, latency_s=(60.0, 600.0))


@dataclass
class Desk:
    """A study, the simulator that it is sent to, and the time of both."""

    program: Program
    simulator: server.Running
    clock: ClockFile

    @property
    def n_batches(self) -> int:
        """How many batches the provider made."""
        return len(self.simulator.world.ledger.batches)

    def sync(self, after_s: float) -> subprocess.CompletedProcess[str]:
        """Let time pass, and make a pass."""
        self.clock.let_pass(after_s)
        return self.program.sync()

    def assert_one_batch_with_every_answer(self) -> None:
        assert (self.n_batches, self.program.outcomes()) == (1, {"decided": N})


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planned")
    Program(folder, "http://127.0.0.1:9/v1").prepare()
    return folder


@pytest.fixture
def desk(planned: Path, tmp_path: Path) -> Iterator[Desk]:
    folder = tmp_path / "study"
    shutil.copytree(planned, folder)
    clock = ClockFile(tmp_path / "clock")
    with server.running(SETTINGS, tmp_path / "world", clock=SystemClock(clock.path, is_set=False)) as simulator:
        program = Program(folder, simulator.base_url, settle_s=str(SETTLE_S), more={CLOCK_ENV: os.fspath(clock.path)})
        yield Desk(program, simulator, clock)


def test_a_wall_that_is_set_back_between_two_commands_changes_no_outcome(desk: Desk) -> None:
    """The batch is found ended, its answers are taken in, and nothing is sent again, then or once the wall is right."""
    assert desk.program.submit().returncode == 0
    desk.clock.set_by(-400 * DAY_S)
    desk.sync(700)
    desk.clock.set_by(0)
    done = desk.sync(60)
    assert (done.returncode, "nothing new; nothing pending" in done.stderr) == (0, True)
    desk.assert_one_batch_with_every_answer()


def test_a_wall_that_jumps_ahead_shortens_no_settle_time(desk: Desk) -> None:
    """By the wall a month went by since the create, by what nobody can set a minute: it may still be carried out."""
    desk.simulator.world.add_fault("batches.create@1:delay_exec=400")
    desk.program.submit()
    desk.clock.set_by(30 * DAY_S)
    desk.sync(60)
    assert desk.program.rows("select attempt_state from batches") == [{"attempt_state": "unknown"}]
    desk.sync(SETTLE_S)
    desk.sync(700)
    desk.assert_one_batch_with_every_answer()


def test_a_month_of_sleep_after_a_lost_answer_buys_nothing_twice(desk: Desk) -> None:
    """The batch was made, ran, and its results were deleted: it is found, told at each pass, and not sent again."""
    for fault in ("batches.create@1:reset_after", "batches.list@1-2:stale_list=3000"):
        desk.simulator.world.add_fault(fault)
    desk.program.submit()
    for _ in range(2):
        told = desk.sync(31 * DAY_S)
        assert told.returncode == 3
        assert "results are kept about 30 days" in told.stderr
    assert desk.n_batches == 1


def test_a_day_at_the_provider_is_a_word_in_a_file(planned: Path, tmp_path: Path) -> None:
    """`simulate` goes by the same file as the commands: a batch of hours is tried out in seconds."""
    shutil.copytree(planned, tmp_path / "study")
    clock = ClockFile(tmp_path / "clock")
    said = f'batchpond() {{ "{sys.executable}" -m batchpond "$@"; }}\n' + (
        f"batchpond submit {STUDY} --yes && batchpond sync --exit-code\n"
        f"test $? = 8 && echo 40000 0 > {clock.path} && batchpond sync --exit-code\n"
    )
    program = Program(tmp_path / "study", "", more={CLOCK_ENV: os.fspath(clock.path)})
    done = program.run("simulate", "--latency", "36000", "36000", "--", "/bin/sh", "-c", said)
    assert done.returncode == 0, done.stderr
    assert f"{N} lines downloaded, 1 verified" in done.stderr
