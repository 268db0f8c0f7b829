"""SIGKILL at every failpoint of the real program, over real HTTP: one batch a shard, nothing bought or lost twice."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from batchpond.errors import ExitCode
from batchpond.lake import failpoints
from batchpond.lake.store import Store
from batchpond.plan.verb import plan_study
from batchpond.study.file import load
from tests.rigs.processes import Rig, rig_at
from tests.rigs.sim_cache import without_lens
from tests.rigs.sim_providers import SIMULATED
from tests.rigs.sim_study import STUDY, is_of, write_study
from tests.rigs.swept import IS_ALL, every

SYNCS_MAX = 3
N_REQUESTS = 24
N_SHARDS = 4
IN_SUBMIT = tuple(name for name in failpoints.NAMES if name.startswith("S"))
IN_SYNC = tuple(name for name in failpoints.NAMES if name.startswith("Y"))
# Half the failpoints are passed at the first provider and at the others a few, unless everything is asked for, as
# `python -m tests.sweeps.kills` does.
FIRST = next(iter(SIMULATED))
ELSEWHERE = ("S8.before", "S8.after", "Y1")
OF_UPLOADS = ("S5.before", "S5", "S6")
# Where only the way back to a batch differs from a provider that is swept above, only that is tried.
FEW = {
    "gemini": ("S6",),
    "together": ("S8.after",),
    "groq": (),
    "mistral": ("Y4",),
    "xai": ("S8.after",),
    "vertex": ("S5",),
}
SWEPT = tuple(name for name in SIMULATED if name not in FEW or IS_ALL)
Costs = Mapping[str, tuple[int, int, int]]


@pytest.fixture(scope="module")
def planned_lakes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A planned lake for each provider."""
    lakes = {}
    for name, provider in SIMULATED.items():
        folder = tmp_path_factory.mktemp("planned")
        plan_study(Store.init(folder / "lake"), load(write_study(folder, max_requests=6, models=provider.models)))
        lakes[name] = folder / "lake"
    return lakes


@pytest.fixture(scope="module")
def unkilled(
    tmp_path_factory: pytest.TempPathFactory, planned_lakes: Mapping[str, Path]
) -> dict[str, tuple[int, int, int]]:
    """What the study costs at each provider when nothing goes wrong."""
    costs = {}
    for name in SIMULATED:
        with rig_at(tmp_path_factory.mktemp("unkilled"), planned_lakes[name], name) as rig, without_lens():
            assert rig.here("submit", STUDY, "--yes") == ExitCode.DONE
            assert rig.here("sync") == ExitCode.DONE
            assert rig.is_complete(N_SHARDS)
            costs[name] = rig.billed()
    return costs


READER = """
import os, sys, time
from pathlib import Path
import duckdb
from batchpond.api import Lake
base, report, stop = map(Path, sys.argv[1:4])
n, parent = 0, os.getppid()
while not stop.exists() and os.getppid() == parent:
    lenses = sorted(base.glob("*/lake/batchpond.duckdb"), key=lambda lens: lens.parent.parent.name)
    for lens in lenses[-1:]:
        try:
            with duckdb.connect(str(lens), read_only=True) as connection:
                connection.execute("select count(*) from results").fetchall()
                connection.execute("select count(*) from audit").fetchall()
            Lake(lens.parent).scan("responses").select("text").collect()
            n += 1
        except Exception as error:
            with report.open("a") as out:
                out.write(f"{lens}: {type(error).__name__}: {error}\\n")
    time.sleep(float(sys.argv[4]))
with report.open("a") as out:
    out.write(f"{n} readings\\n")
"""


@pytest.fixture(scope="module")
def rigs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of rigs that a reader reads all the while: no reading may ever fail."""
    base = tmp_path_factory.mktemp("rigs")
    report, stop = base / "report.txt", base / "stop"
    # A reading takes as long as half a pass: without pauses it would take one of a small machine's two processors.
    pause_s = "0.1" if IS_ALL else "3"
    reader = subprocess.Popen([sys.executable, "-c", READER, base, report, stop, pause_s])
    yield base
    stop.touch()
    assert reader.wait(60) == 0
    lines = report.read_text().splitlines()
    assert len(lines) == 1, lines[:5]
    assert int(lines[0].split()[0]) > 0, "the reader has read nothing"


def cases(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the (provider, failpoint) pairs to kill at."""
    at_first = every(2, names)
    return [
        (p, name)
        for p in SIMULATED
        for name in names
        if IS_ALL or name in (at_first if p == FIRST else FEW.get(p, ELSEWHERE))
    ]


@pytest.fixture(params=[FIRST])
def rig(request: pytest.FixtureRequest, rigs: Path, planned_lakes: Mapping[str, Path]) -> Iterator[Rig]:
    folder = rigs / f"rig-{time.monotonic_ns():020d}"
    folder.mkdir()
    with rig_at(folder, planned_lakes[request.param], request.param) as made:
        yield made
    shutil.rmtree(folder / "world")


def assert_nothing_twice_nothing_lost(rig: Rig, unkilled: Costs) -> None:
    attempts = rig.lake_state().attempts.values()
    entries = rig.simulator.world.ledger.batches.values()
    shards = Counter(attempt.shard_id for entry in entries for attempt in attempts if is_of(entry, attempt))
    assert (len(entries), len(shards), set(shards.values())) == (N_SHARDS, N_SHARDS, {1})
    assert rig.billed() == unkilled[rig.provider]
    assert rig.n_answers() == (N_REQUESTS, N_REQUESTS)


def recover(rig: Rig) -> None:
    for _ in range(SYNCS_MAX):
        assert rig.here("sync") in {ExitCode.DONE, ExitCode.ATTENTION}
        if rig.is_complete(N_SHARDS):
            return
    raise AssertionError(f"not complete after {SYNCS_MAX} syncs")


@pytest.mark.parametrize(("rig", "name"), cases(IN_SUBMIT), indirect=["rig"])
def test_killed_in_submit(rig: Rig, unkilled: Costs, name: str) -> None:
    if name in OF_UPLOADS and not SIMULATED[rig.provider].has_files:
        assert rig.submit(failpoint=f"{name}:kill") == ExitCode.DONE, "nothing is uploaded there"
        recover(rig)
        return
    assert rig.submit(failpoint=f"{name}:kill") == -signal.SIGKILL
    with without_lens():  # what a kill leaves of the views is shown by those in a sync
        if name == "S0":  # the approval was not recorded yet: nothing may be sent until it is given again
            assert rig.here("sync") == ExitCode.DONE
            assert not rig.simulator.world.ledger.batches
            assert rig.here("submit", STUDY, "--yes") == ExitCode.DONE
        recover(rig)
    assert_nothing_twice_nothing_lost(rig, unkilled)


@pytest.mark.parametrize(("rig", "name"), cases(IN_SYNC), indirect=["rig"])
def test_killed_in_sync(rig: Rig, unkilled: Costs, name: str) -> None:
    if name == "Y1":  # looking for a batch whose answer was lost
        assert rig.submit(failpoint="S8.after:kill:2") == -signal.SIGKILL
    else:
        with without_lens():
            assert rig.here("submit", STUDY, "--yes") == ExitCode.DONE
    assert rig.sync(failpoint=f"{name}:kill") == -signal.SIGKILL
    recover(rig)
    assert_nothing_twice_nothing_lost(rig, unkilled)


@pytest.mark.parametrize("rig", SWEPT, indirect=True)
@pytest.mark.parametrize(("first", "failpoint"), [("submit", "S4"), ("sync", "Y2")])
def test_a_second_writer_leaves_with_its_own_exit_code(rig: Rig, unkilled: Costs, first: str, failpoint: str) -> None:
    arguments = ("submit", STUDY, "--yes") if first == "submit" else ("sync",)
    if first == "sync":
        with without_lens():
            assert rig.here("submit", STUDY, "--yes") == ExitCode.DONE
    holder = rig.start(*arguments, failpoint=f"{failpoint}:stop")
    try:
        holder.wait_until_stopped()
        assert rig.run(*arguments) == ExitCode.BUSY
        assert rig.run("sync") == ExitCode.BUSY
    finally:
        holder.send_signal(signal.SIGCONT)
    assert holder.wait(120) == ExitCode.DONE
    recover(rig)
    assert_nothing_twice_nothing_lost(rig, unkilled)


@pytest.mark.parametrize("rig", SWEPT, indirect=True)
def test_two_of_each_at_once(rig: Rig, unkilled: Costs) -> None:
    for arguments in (("submit", STUDY, "--yes"), ("sync",)):
        both = [rig.start(*arguments) for _ in range(2)]
        assert {process.wait(120) for process in both} <= {ExitCode.DONE, ExitCode.BUSY}
    recover(rig)
    assert_nothing_twice_nothing_lost(rig, unkilled)
