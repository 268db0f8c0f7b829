"""SIGKILL while the real program opens rounds, over real HTTP: nothing asked twice, nothing missing, the same tables.

A study of answers, rankings and verdicts of three candidates, four statements and twelve inputs, from one file;
after the kill it is driven by nothing but `sync`. At every point: `python -m tests.sweeps.kills`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.processes import PROGRAM, Desk, desk_at
from tests.sim_inputs import STUDY
from tests.sim_study import is_of
from tests.stage_study import spec_study, write_files
from tests.test_kill_sweep import EVERYTHING, IN_SUBMIT

from batchpond import study, submit
from batchpond.errors import ExitCode
from batchpond.lake.store import Store
from batchpond.lens import run_query
from batchpond.plan import sql_on_lake
from batchpond.providers import registry
from batchpond.session import Providers
from batchpond.stage_planning import plan_staged
from batchpond.stage_spec import StagedStudy

SYNCS_MAX = 3
N_ALL = 36 + 72 + 36
N_SHARDS = 6
# What the pass that opens the rounds publishes from its first round on, the sending of their batches included.
N_PUBLISHED = 31
TABLE = """
select slot, stage, round_no, template_id, rubric_id, request_model, unit_id, item_first, item_second, candidate_first,
       candidate_second, is_lo_first, direction, request_id, request_state, verdict, outcome, confidence, text, cost_usd
from results order by slot
"""

# The program, but it dies beside the nth file that it gives its final name once it has begun to open a round.
DYING = """
import os, signal, sys
from pathlib import Path
from batchpond import rounds
from batchpond.cli import program
from batchpond.lake import disk
moment, nth, count = sys.argv.pop(1), int(sys.argv.pop(1)), Path(sys.argv.pop(1))
publish, link = rounds.publish, disk.link_into_place
is_opening, n_links = False, 0
def opening(*arguments):
    global is_opening
    is_opening = True
    return publish(*arguments)
def linking(staged, final):
    global n_links
    n_links += is_opening
    if moment == "before" and n_links == nth:
        os.kill(os.getpid(), signal.SIGKILL)
    is_new = link(staged, final)
    if moment == "after" and n_links == nth:
        os.kill(os.getpid(), signal.SIGKILL)
    count.write_text(str(n_links))
    return is_new
rounds.publish, disk.link_into_place = opening, linking
sys.exit(program())
"""


@dataclass(frozen=True)
class Outcome:
    """What a study came to: its results, and what the provider charged."""

    results: list[dict[str, Any]]
    billed: tuple[int, int, int]


def dying(moment: str, nth: int, count: Path) -> tuple[str, ...]:
    """Return the program that dies at a publication."""
    return (sys.executable, "-c", DYING, moment, str(nth), os.fspath(count))


@contextmanager
def asked(folder: Path, planned: Path) -> Iterator[Desk]:
    """Lay out a desk whose study's first stage has ended at the provider, and nobody knows it yet."""
    with desk_at(folder, planned) as desk:
        found = desk.environment()
        with httpx.HTTPTransport() as wire:
            report = submit.submit(
                Store.open(desk.lake), STUDY, max_cost_usd=None, limit=None, confirm=lambda _: True,
                providers=Providers(lambda name: registry.connect(name, transport=wire, environ=found)),
            )  # fmt: skip
        assert report.exit_code is ExitCode.DONE
        desk.let_batches_end()
        yield desk


def finish(desk: Desk) -> None:
    """Let `sync` and nothing else bring the study to its end."""
    for _ in range(SYNCS_MAX):
        assert desk.sync() == ExitCode.DONE
        if desk.is_complete(N_SHARDS):
            return
    raise AssertionError(f"{len(desk.picture().shards)} shards, not complete after {SYNCS_MAX} syncs")


def outcome_of(desk: Desk) -> Outcome:
    """Return what the study came to."""
    return Outcome(run_query(desk.lake, TABLE, max_rows=10_000).to_pylist(), desk.billed())


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake where the study is planned."""
    folder = tmp_path_factory.mktemp("planned")
    write_files(folder / "study")
    (folder / "study" / "study.toml").write_text(spec_study())
    loaded = study.load(folder / "study" / "study.toml")
    assert isinstance(loaded, StagedStudy)
    store = Store.init(folder / "lake")
    plan_staged(store, loaded, run_sql=sql_on_lake(store))
    return folder / "lake"


@pytest.fixture(scope="module")
def undisturbed(planned: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """What the study comes to when nothing goes wrong."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with asked(folder, planned) as desk:
        assert desk.start("sync", program=dying("never", 0, folder / "count")).wait(120) == ExitCode.DONE
        assert int((folder / "count").read_text()) == N_PUBLISHED, "the sweep of publications is not whole"
        finish(desk)
        found = outcome_of(desk)
    assert found.billed[0] == len(found.results) == N_ALL
    return found


def points() -> list[tuple[str, int]]:
    """Return where to die: failpoints of a round and of the sending of its batches, and publications."""
    every = [(name, nth) for name in ("R0", "R1") for nth in (1, 2)] + [("R2", 1)]
    every += [(name, nth) for name in IN_SUBMIT if name != "S0" for nth in (1, 2)]
    every += [(moment, nth) for moment in ("before", "after") for nth in range(1, N_PUBLISHED + 1)]
    few = {("R0", 2), ("before", 6)}
    return every if EVERYTHING in os.environ else [point for point in every if point in few]


@pytest.mark.parametrize(("name", "nth"), points())
def test_killed_while_rounds_are_opened(
    planned: Path, undisturbed: Outcome, tmp_path: Path, name: str, nth: int
) -> None:
    with asked(tmp_path, planned) as desk:
        is_link = name in ("before", "after")
        program = dying(name, nth, tmp_path / "count") if is_link else PROGRAM
        failpoint = None if is_link else f"{name}:kill:{nth}"
        assert desk.start("sync", program=program, failpoint=failpoint).wait(120) == -signal.SIGKILL
        finish(desk)
        assert_asked_once(desk)
        assert outcome_of(desk) == undisturbed


def assert_asked_once(desk: Desk) -> None:
    """One batch a shard by the provider's own ledger, one answer a request by the lake."""
    attempts = desk.picture().attempts.values()
    entries = desk.simulator.world.ledger.batches.values()
    owners = [[a.shard_id for a in attempts if is_of(entry, a)] for entry in entries]
    assert len(owners) == len({shard for found in owners for shard in found}) == N_SHARDS
    assert all(len(found) == 1 for found in owners)
    assert desk.n_answers() == (N_ALL, N_ALL)
