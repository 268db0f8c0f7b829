"""The power fails at every failpoint: what was not flushed is gone, and nothing is bought twice or lost from sight.

The disk is worked out from the program's own system calls (`tests/rigs/power.py`); the provider goes on meanwhile.
Here at a provider that finds no batch by its name, so that all rests on the record; `python -m tests.sweeps.power_loss`
has all of them, with more than one way to lose.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from batchpond.errors import ExitCode
from batchpond.lake import failpoints
from batchpond.lake.store import Store
from batchpond.plan.verb import plan_study
from batchpond.study.file import load
from tests.process.test_kill_sweep import OF_UPLOADS
from tests.rigs import power
from tests.rigs.processes import PROGRAM, Rig, rig_at
from tests.rigs.sim_providers import SIMULATED
from tests.rigs.sim_study import STUDY, is_of, write_study
from tests.rigs.swept import every

N_SHARDS = 2
N_REQUESTS = 12
PASSES_MAX = 6
NAMELESS = next(name for name, provider in SIMULATED.items() if not provider.has_token)
# How many more ways to lose, beside losing everything, at how many providers.
WAYS = "BATCHPOND_POWER_WAYS"
SEEDS: tuple[int | None, ...] = (None, *range(int(os.environ.get(WAYS, "0"))))
PROVIDERS = tuple(SIMULATED) if WAYS in os.environ else (NAMELESS,)
IN_SUBMIT = every(6, (name for name in failpoints.NAMES if name.startswith("S") and name not in OF_UPLOADS))
IN_SYNC = every(6, (name for name in failpoints.NAMES if name.startswith("Y")))

needs_strace = pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed: what a disk holds without power is not tried"
)


@pytest.fixture(scope="module")
def planned_lakes(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """A planned lake for each provider."""
    lakes = {}
    for name in PROVIDERS:
        folder = tmp_path_factory.mktemp("planned")
        study = write_study(folder, max_requests=6, models=SIMULATED[name].models[:1])
        plan_study(Store.init(folder / "lake"), load(study))
        lakes[name] = folder / "lake"
    return lakes


@pytest.fixture(params=PROVIDERS)
def rig(request: pytest.FixtureRequest, tmp_path: Path, planned_lakes: Mapping[str, Path]):
    with rig_at(tmp_path, planned_lakes[request.param], request.param) as made:
        yield made


def lose_power(rig: Rig, seed: int | None, failpoint: str, *arguments: str) -> list[str]:
    """Run a command until it dies at a failpoint, cut the power, and return what was lost."""
    folder = rig.lake.parent
    disk = power.Power.of(rig.lake, folder / "backup")
    rig.let_batches_end()
    log = folder / "calls"
    ended = rig.start_program(*arguments, failpoint=failpoint, program=power.traced(log, PROGRAM)).wait(120)
    assert ended in {-signal.SIGKILL, ExitCode.DONE, ExitCode.ATTENTION}
    disk.replay(log)
    lost = disk.cut(seed)
    shutil.rmtree(folder / "backup")
    return lost


def recover(rig: Rig) -> None:
    """Go on as after a boot: approve once more if that is gone, then pass after pass."""
    for _ in range(PASSES_MAX):
        assert rig.here("submit", STUDY, "--yes") in {ExitCode.DONE, ExitCode.ATTENTION}
        assert rig.here("sync") in {ExitCode.DONE, ExitCode.ATTENTION}
        if rig.is_complete(N_SHARDS):
            return
    raise AssertionError(f"not complete after {PASSES_MAX} passes")


def assert_nothing_twice_nothing_lost(rig: Rig) -> None:
    attempts = rig.lake_state().attempts.values()
    entries = rig.simulator.world.ledger.batches.values()
    shards = Counter(attempt.shard_id for entry in entries for attempt in attempts if is_of(entry, attempt))
    assert (len(entries), len(shards), set(shards.values())) == (N_SHARDS, N_SHARDS, {1})
    assert rig.billed()[0] == N_REQUESTS
    assert rig.n_answers() == (N_REQUESTS, N_REQUESTS)


def assert_facts_are_whole(rig: Rig) -> None:
    """No fact that has its name lacks its bytes: a name is given to what was flushed, and never before."""
    for path in rig.lake.rglob("*.parquet"):
        if "_tmp" not in path.parts:
            assert pq.ParquetFile(path, page_checksum_verification=True).read().num_rows >= 0, path


@needs_strace
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", IN_SUBMIT)
def test_the_power_fails_in_submit(rig: Rig, name: str, seed: int | None) -> None:
    lose_power(rig, seed, f"{name}:kill", "submit", STUDY, "--yes")
    assert_facts_are_whole(rig)
    recover(rig)
    assert_nothing_twice_nothing_lost(rig)


@needs_strace
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", IN_SYNC)
def test_the_power_fails_in_sync(rig: Rig, name: str, seed: int | None) -> None:
    assert rig.here("submit", STUDY, "--yes") == ExitCode.DONE
    lose_power(rig, seed, f"{name}:kill", "sync")
    assert_facts_are_whole(rig)
    recover(rig)
    assert_nothing_twice_nothing_lost(rig)


@needs_strace
def test_what_was_reported_as_done_is_still_there(rig: Rig) -> None:
    """The command ended and the power failed right after: an answer that was shown is never downloaded again."""
    assert rig.here("submit", STUDY, "--yes") == ExitCode.DONE
    lose_power(rig, None, "none:kill", "sync")
    assert rig.is_complete(N_SHARDS)
    assert_nothing_twice_nothing_lost(rig)


WRITER = """
import os, sys
folder = sys.argv[1]
def flush(path, flags=os.O_RDONLY):
    descriptor = os.open(path, flags)
    os.fsync(descriptor)
    os.close(descriptor)
for name in ("kept", "unflushed", "unnamed"):
    with open(f"{folder}/{name}.tmp", "w") as out:
        out.write(name)
for name in ("kept", "unnamed"):
    flush(f"{folder}/{name}.tmp")
os.link(f"{folder}/kept.tmp", f"{folder}/kept")
os.rename(f"{folder}/unflushed.tmp", f"{folder}/unflushed")
os.unlink(f"{folder}/old")
flush(folder)
os.rename(f"{folder}/unnamed.tmp", f"{folder}/unnamed")
os.unlink(f"{folder}/older")
"""


@needs_strace
def test_what_nobody_flushed_is_lost(tmp_path: Path) -> None:
    """The rig can lose: bytes without their fsync, names and deletions without their folder's."""
    folder = tmp_path / "disk"
    folder.mkdir()
    for name in ("old", "older"):
        (folder / name).write_text(name)
    disk = power.Power.of(folder, tmp_path / "backup")
    log = tmp_path / "calls"
    subprocess.run(power.traced(log, (sys.executable, "-c", WRITER, str(folder))), check=True)
    disk.replay(log)
    lost = disk.cut()
    left = {path.name: path.read_text() for path in folder.iterdir()}
    assert left == {"kept": "kept", "kept.tmp": "kept", "unflushed": "", "unnamed.tmp": "unnamed", "older": "older"}
    assert lost == ["name unnamed", "bytes of unflushed"]
