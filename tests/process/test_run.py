"""`run`: the whole study in one process, taken up again wherever the last one stopped, and nothing asked twice."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from batchpond.errors import ExitCode
from batchpond.lake.store import LENS
from batchpond_sim.host import server
from batchpond_sim.host.server import Simulator
from batchpond_sim.world.world import Settings
from tests.rigs.live_study import wait_for
from tests.rigs.program import N, Program
from tests.rigs.sim_providers import SIMULATED
from tests.rigs.swept import some

LIVE = '\n[[models]]\nprovider = "openai"\nmodel = "gpt-4o"\nmode = "live"\nmax_output_tokens = 200\n'


@pytest.fixture
def simulator(tmp_path: Path) -> Iterator[Simulator]:
    with server.running(Settings(seed=1, latency_s=(0.5, 1.0)), tmp_path / "world") as simulator:
        yield simulator


@pytest.fixture
def program(simulator: Simulator, tmp_path: Path) -> Program:
    program = Program(tmp_path, simulator.base_url_of("openai"))
    program.write()
    return program


def test_the_lens_is_written_by_the_first_pass_or_when_it_ends_before_that(program: Program) -> None:
    lens = program.folder / "lake" / LENS
    program.more = {"BATCHPOND_FAILPOINT": "S0:kill"}
    killed = program.run("run", "study.toml", "--yes")
    program.more = {}
    assert killed.returncode == -signal.SIGKILL
    assert not lens.exists()
    assert program.outcomes() == {None: N}  # whoever looks next sees it all the same
    lens.unlink(missing_ok=True)
    assert program.run("run", "--yes", "--max-cost", "0.0000001").returncode == ExitCode.USAGE
    with duckdb.connect(str(lens), read_only=True) as connection:
        assert connection.sql("SELECT count(*) FROM plan_current").fetchall() == [(N,)]


def test_a_study_is_planned_sent_and_read_in_one_process(program: Program) -> None:
    done = program.run("run", "study.toml", "--yes", "--interval", "1")
    assert done.returncode == ExitCode.DONE, done.stderr
    assert "nothing pending" in done.stderr
    assert "small" in done.stdout
    assert program.outcomes() == {"decided": N}


def test_a_second_run_buys_nothing_and_says_so_as_json(program: Program) -> None:
    assert program.run("run", "--yes", "--interval", "1").returncode == ExitCode.DONE
    done = program.run("run", "--interval", "1", "--json")  # nobody is asked: nothing is left to agree to
    assert done.returncode == ExitCode.DONE, done.stderr
    found = json.loads(done.stdout)
    assert (found["plan"]["n_to_ask"], found["submit"]["n_requests"], found["sync"]["n_pending"]) == (0, 0, 0)
    assert program.rows("select count(*) as n from batches") == [{"n": 1}]


def test_what_other_studies_wait_for_is_neither_waited_for_nor_told(program: Program) -> None:
    """A study that somebody must answer by hand is pending in the same lake, and another is not approved."""
    text = (program.folder / "study.toml").read_text()
    by_hand = text.replace('study = "small"', 'study = "by-hand"').replace("max_output_tokens = 200", 'mode = "files"')
    (program.folder / "by-hand.toml").write_text(by_hand)
    (program.folder / "never.toml").write_text(text.replace('study = "small"', 'study = "never"\nseed = 9'))
    assert program.run("plan", "never.toml").returncode == ExitCode.DONE
    done = program.run("run", "by-hand.toml", "--yes", "--timeout", "0")
    assert "1 batch pending" in done.stderr, done.stderr
    done = program.run("run", "study.toml", "--yes", "--interval", "1", "--timeout", "60")
    assert done.returncode == ExitCode.DONE, done.stderr
    assert "nothing pending" in done.stderr.splitlines()[-1]
    assert "1 batch pending" in program.run("sync").stderr


def test_nobody_who_has_not_agreed_pays(program: Program) -> None:
    done = program.run("run", "study.toml")
    assert done.returncode == ExitCode.USAGE
    assert program.rows("select count(*) as n from batches") == [{"n": 0}]
    assert program.run("run", "--yes", "--max-cost", "0.0000001").returncode == ExitCode.USAGE
    assert program.rows("select count(*) as n from batches") == [{"n": 0}]


@pytest.mark.parametrize("signal_number", some(signal.SIGKILL, swept=[signal.SIGINT]))
def test_a_run_that_was_stopped_goes_on_where_it_stood(program: Program, signal_number: int) -> None:
    command = [sys.executable, "-m", "batchpond", "run", "study.toml", "--yes", "--interval", "600"]
    said = program.folder / "said"
    with said.open("wb") as stderr:
        process = subprocess.Popen(command, cwd=program.folder, env=program.environment, stderr=stderr)
    wait_for(lambda: "pending" in said.read_text(), process, bound_s=120.0)
    process.send_signal(signal_number)
    process.wait(timeout=60)
    assert process.returncode != ExitCode.DONE
    done = program.run("run", "--interval", "1")  # what was approved needs no second yes
    assert done.returncode == ExitCode.DONE, done.stderr
    assert program.outcomes() == {"decided": N}
    assert program.rows("select count(*) as n from batches") == [{"n": 1}]


def test_what_is_asked_live_is_part_of_it(program: Program, simulator: Simulator) -> None:
    path = program.folder / "study.toml"
    path.write_text(path.read_text() + LIVE)
    openai = SIMULATED["openai"]
    program.more = {openai.url_env: simulator.base_url_of("openai"), openai.key_env: "sk-simulated"}
    done = program.run("run", "--yes", "--interval", "1")
    assert done.returncode == ExitCode.DONE, done.stderr
    assert program.outcomes() == {"decided": 2 * N}


@pytest.mark.parametrize(
    ("fault", "code"), some(("status=429", ExitCode.PENDING), swept=[("status=401", ExitCode.ACCESS)])
)
def test_live_calls_that_came_to_nothing_are_no_success(
    program: Program, simulator: Simulator, fault: str, code: ExitCode
) -> None:
    """A key that is refused, or no more time: the exit code says so, the last line what is left of both."""
    path = program.folder / "study.toml"
    path.write_text(path.read_text() + LIVE)
    openai = SIMULATED["openai"]
    program.more = {openai.url_env: simulator.base_url_of("openai"), openai.key_env: "sk-simulated"}
    simulator.world.add_fault(f"live:{fault}")
    began_s = time.monotonic()
    done = program.run("run", "--yes", "--interval", "1", "--timeout", "12")
    assert done.returncode == code, done.stderr
    assert f"{N} live requests due" in done.stderr.splitlines()[-2]
    assert time.monotonic() - began_s < 40
    assert program.outcomes() == {"decided": N, None: N}


def test_a_run_that_may_not_wait_ends_with_what_is_pending(tmp_path: Path) -> None:
    with server.running(Settings(seed=1, latency_s=(1e6, 1e6)), tmp_path / "world") as simulator:
        program = Program(tmp_path, simulator.base_url_of("openai"))
        program.write()
        done = program.run("run", "--yes", "--timeout", "0")
    assert done.returncode == ExitCode.PENDING, done.stderr
    assert "1 batch pending" in done.stderr
