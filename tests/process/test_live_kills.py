"""Live calls killed at every failpoint and at any moment: nothing lost, what is bought twice is in `doubts`.

The simulator's ledger, which knows nothing of batchpond, counts what was billed. The same at full size:
`python -m tests.sweeps.live_kills`.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from batchpond.errors import ExitCode
from batchpond.lake.attempts import Phase
from batchpond.lake.failpoints import NAMES
from tests.rigs.live_study import LiveRig, live_rig, wait_for
from tests.rigs.swept import every

N = 30
CONCURRENCY = 3
LATENCY_S = (0.002, 0.01)
SCALE = "BATCHPOND_LIVE_KILLS"
POINTS = tuple(name for name in NAMES if name.startswith("L"))
# Reached only by what takes in a dead run's spool.
ON_RECOVERY = ("L7",)


@dataclass(frozen=True)
class Scale:
    """How much is asked, how often it is killed, and how many calls are made at once."""

    n_requests: int = 60
    n_kills: int = 3
    concurrency: int = 4
    latency_s: tuple[float, float] = (0.01, 0.03)


FULL = Scale(n_requests=10_000, n_kills=20, concurrency=16, latency_s=(0.01, 0.03))


@pytest.fixture(scope="module")
def approved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake whose live calls are due."""
    with live_rig(tmp_path_factory.mktemp("approved")) as made:
        made.begin(N)
        return made.lake


@pytest.fixture
def rig(tmp_path: Path, approved: Path) -> Iterator[LiveRig]:
    with live_rig(tmp_path, live_latency_s=LATENCY_S) as made:
        shutil.copytree(approved, made.lake)
        yield made


def live(rig: LiveRig, failpoint: str) -> int:
    """Run `live` as a process that is to die."""
    return rig.run("live", "--concurrency", str(CONCURRENCY), failpoint=failpoint).returncode


def go_on(rig: LiveRig) -> None:
    """Let `sync` alone bring in what dead processes left, then ask what is left to ask."""
    n_answered = _n_spooled_answers(rig)
    assert rig.sync().exit_code is ExitCode.DONE
    assert rig.spooled() == []
    assert rig.n_answers()[0] >= n_answered
    report = rig.live(concurrency=CONCURRENCY)
    assert (report.n_left, report.exit_code) == (0, ExitCode.DONE)


def check(rig: LiveRig, n_requests: int, n_doubts_max: int) -> None:
    """Every request answered once in the lake; every call beyond the first is listed, and no more than may be."""
    rig.check_complete(n_requests)
    doubts = rig.doubts()
    assert doubts.total() <= n_doubts_max
    summary = rig.simulator.world.ledger.live_summary()
    assert summary["n_bodies_billed"] == n_requests
    assert summary["n_duplicates"] <= doubts.total()
    assert rig.view("select sum(n_in_doubt), bool_and(is_balanced), sum(n_succeeded) from audit") == [
        (doubts.total(), True, n_requests)
    ]
    assert {attempt.phase for attempt in rig.attempts()} == {Phase.VERIFIED}


@pytest.mark.parametrize(
    ("point", "nth"), [*every(3, ((point, 1) for point in POINTS if point not in ON_RECOVERY)), ("L3", 9)]
)
def test_killed_at_a_failpoint(rig: LiveRig, point: str, nth: int) -> None:
    """`sync` alone brings in what the dead process left; a second `live` asks again only what it must."""
    assert live(rig, f"{point}:kill:{nth}") == -signal.SIGKILL
    go_on(rig)
    check(rig, N, CONCURRENCY if point in ("L2", "L3") else 0)


def _n_spooled_answers(rig: LiveRig) -> int:
    paths = rig.lake.glob("_live/*/*.jsonl")
    return sum(path.read_bytes().count(b'\n{"custom_id"') for path in paths)


@pytest.mark.parametrize(
    ("point", "command"),
    every(3, [("L4", "sync"), ("L5", "live"), ("L6", "sync"), ("L7", "live"), ("L7", "sync"), ("L8", "sync")]),
)
def test_killed_while_bringing_in_what_a_killed_process_left(rig: LiveRig, point: str, command: str) -> None:
    """A seal that is cut off anywhere is completed without a trace, as often as it is cut off."""
    assert live(rig, "L0:kill" if point == "L8" else "L3:kill:12") == -signal.SIGKILL
    assert rig.run(command, failpoint=f"{point}:kill").returncode == -signal.SIGKILL
    go_on(rig)
    check(rig, N, CONCURRENCY)
    assert rig.rows("select count(*), count(distinct custom_id) from responses", "responses") == [(N, N)]


def test_killed_again_and_again_at_any_moment(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """By SIGKILL from outside, `sync` in between or not; seeds and sizes are fixed, moments are the machine's."""
    scale = FULL if os.environ.get(SCALE) == "full" else Scale()
    n_doubts = kill_at_random(tmp_path, scale, random.Random(7))
    said = f"{scale.n_requests:,} requests, killed {scale.n_kills} times: {n_doubts} in doubt, none lost"
    pytestconfig.get_terminal_writer().line(said)


def kill_at_random(folder: Path, scale: Scale, draw: random.Random) -> int:
    """Kill a run so often on its way, then let it end; returns how many calls were in doubt."""
    with live_rig(folder, live_latency_s=scale.latency_s) as rig:
        rig.begin(scale.n_requests)
        ledger = rig.simulator.world.ledger
        n_bounds = 0
        for n in range(scale.n_kills):
            share = scale.n_requests // (scale.n_kills + 1)
            n_wanted = n * share + draw.randint(1, share)
            process = rig.start("live", "--concurrency", str(scale.concurrency))
            wait_for(lambda n=n_wanted: ledger.live.n_billed >= n, process, 300.0)  # type: ignore[misc]
            time.sleep(draw.random() * 0.05)
            process.kill()
            process.wait()
            n_bounds += scale.concurrency
            if draw.random() < 0.5:
                assert rig.sync().exit_code is ExitCode.DONE
        assert rig.run("live", "--concurrency", str(scale.concurrency), bound_s=600.0).returncode == ExitCode.DONE
        check(rig, scale.n_requests, n_bounds)
        return rig.doubts().total()
