"""SIGKILL while the real program opens rounds, over real HTTP: nothing asked twice, nothing missing, the same tables.

A study of answers, rankings and verdicts of three candidates, four statements and twelve inputs, from one file;
after the kill it is driven by nothing but `sync`. At every point: `python -m tests.sweeps.kills`.
"""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from batchpond.errors import ExitCode
from batchpond.lake.attempts import UNCLEAR_PHASES
from batchpond.lake.store import Store
from batchpond.plan.verb import plan_study
from batchpond.providers import registry
from batchpond.run import submit
from batchpond.run.session import Providers
from batchpond.study import file as study
from batchpond.views.read import Limits, run_query
from tests.process.test_kill_sweep import IN_SUBMIT
from tests.rigs.processes import Rig, rig_at
from tests.rigs.sim_inputs import STUDY
from tests.rigs.sim_study import is_of
from tests.rigs.stage_study import spec_study, write_files
from tests.rigs.swept import IS_ALL

# Killed with the intent on record and nothing at the provider: absence takes a while to be believed.
NOT_FOUND_AT_ONCE = ("S7", "S8.before")
SYNCS_MAX = 3
N_ALL = 36 + 72 + 36
N_SHARDS = 6
# At least so much is published by the pass that opens the rounds, from its first round on.
N_PUBLISHED_MIN = 20
TABLE = """
select slot, stage, round_no, template_id, rubric_id, request_model, unit_id, item_first, item_second, candidate_first,
       candidate_second, is_lo_first, direction, request_id, request_state, verdict, outcome, confidence, text, cost_usd
from results order by slot
"""

# The program, but it dies beside the nth file that it gives its final name once it has begun to open a round.
DYING = """
import os, signal, sys
from batchpond.plan import write
from batchpond.cli import program
from batchpond.lake import disk
moment, nth = sys.argv.pop(1), int(sys.argv.pop(1))
publish, link = write.publish, disk.link_into_place
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
    return is_new
write.publish, disk.link_into_place = opening, linking
sys.exit(program())
"""


@dataclass(frozen=True)
class Outcome:
    """What a study came to: its results, and what the provider charged."""

    results: list[dict[str, Any]]
    billed: tuple[int, int, int]


def dying(moment: str, nth: int) -> tuple[str, ...]:
    """Return the program that dies at a publication."""
    return (sys.executable, "-c", DYING, moment, str(nth))


@contextmanager
def asked(folder: Path, planned: Path) -> Iterator[Rig]:
    """Lay out a rig whose study's first stage has ended at the provider, and nobody knows it yet."""
    with rig_at(folder, planned) as rig:
        found = rig.environment()
        with httpx.HTTPTransport() as wire:
            report = submit.submit(
                Store.open(rig.lake), STUDY, confirm=lambda _: True,
                providers=Providers(lambda name: registry.connect(name, transport=wire, environ=found)),
            )  # fmt: skip
        assert report.exit_code is ExitCode.DONE
        rig.let_batches_end()
        yield rig


def finish(rig: Rig, *, is_in_doubt: bool = False) -> None:
    """Let `sync` and nothing else bring the study to its end; a batch in doubt is told while it is looked for."""
    for _ in range(SYNCS_MAX):
        assert rig.here("sync") in ({ExitCode.DONE, ExitCode.ATTENTION} if is_in_doubt else {ExitCode.DONE})
        if rig.is_complete(N_SHARDS):
            return
    raise AssertionError(f"{len(rig.lake_state().shards)} shards, not complete after {SYNCS_MAX} syncs")


def outcome_of(rig: Rig) -> Outcome:
    """Return what the study came to."""
    return Outcome(run_query(rig.lake, TABLE, Limits(max_rows=10_000)).to_pylist(), rig.billed())


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake where the study is planned."""
    folder = tmp_path_factory.mktemp("planned")
    write_files(folder / "study")
    (folder / "study" / "study.toml").write_text(spec_study())
    loaded = study.load(folder / "study" / "study.toml")
    store = Store.init(folder / "lake")
    plan_study(store, loaded)
    return folder / "lake"


@pytest.fixture(scope="module")
def undisturbed(planned: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """What the study comes to when nothing goes wrong."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with asked(folder, planned) as rig:
        assert rig.here("sync") == ExitCode.DONE
        finish(rig)
        found = outcome_of(rig)
    assert found.billed[0] == len(found.results) == N_ALL
    return found


def points() -> list[tuple[str, int]]:
    """Return the failpoints to die at: those of a round, and those of the sending of its batches."""
    if not IS_ALL:
        return [("R0", 2)]
    sending = [(name, nth) for name in IN_SUBMIT if name != "S0" for nth in (1, 2) if (name, nth) != ("S1", 2)]
    return [("R0", 1), ("R1", 1), ("R0", 2), ("R1", 2), ("R2", 1), *sending]


@pytest.mark.parametrize(("name", "nth"), points())
def test_killed_while_rounds_are_opened(
    planned: Path, undisturbed: Outcome, tmp_path: Path, name: str, nth: int
) -> None:
    with asked(tmp_path, planned) as rig:
        assert rig.start("sync", failpoint=f"{name}:kill:{nth}").wait(120) == -signal.SIGKILL
        finish(rig, is_in_doubt=name in NOT_FOUND_AT_ONCE)
        assert_asked_once(rig)
        assert outcome_of(rig) == undisturbed


def has_sent_nothing(rig: Rig) -> bool:
    """Whether an attempt is on record as sent of which the provider has never heard."""
    unclear = [a for a in rig.lake_state().attempts.values() if a.phase in UNCLEAR_PHASES]
    return any(not any(is_of(entry, a) for entry in rig.simulator.world.ledger.batches.values()) for a in unclear)


def is_killed_beside(folder: Path, planned: Path, undisturbed: Outcome, moment: str, nth: int) -> bool:
    """Whether a pass dies beside its nth publication; then the study must come to the same all the same."""
    folder.mkdir()
    with asked(folder, planned) as rig:
        ended = rig.start_program("sync", program=dying(moment, nth)).wait(120)
        if ended == ExitCode.DONE:
            return False
        assert ended == -signal.SIGKILL
        finish(rig, is_in_doubt=has_sent_nothing(rig))
        assert_asked_once(rig)
        assert outcome_of(rig) == undisturbed
    return True


@pytest.mark.parametrize("moment", ["before", "after"] if IS_ALL else ["before"])
def test_killed_beside_a_publication(planned: Path, undisturbed: Outcome, tmp_path: Path, moment: str) -> None:
    """Beside one of those of a round here; where everything is asked for, beside one after the other."""
    if not IS_ALL:
        assert is_killed_beside(tmp_path / "one", planned, undisturbed, moment, 6)
        return
    n_killed = 0
    while is_killed_beside(tmp_path / str(n_killed), planned, undisturbed, moment, n_killed + 1):
        shutil.rmtree(tmp_path / str(n_killed))
        n_killed += 1
    assert n_killed >= N_PUBLISHED_MIN


def assert_asked_once(rig: Rig) -> None:
    """One batch a shard by the provider's own ledger, one answer a request by the lake."""
    attempts = rig.lake_state().attempts.values()
    entries = rig.simulator.world.ledger.batches.values()
    owners = [[a.shard_id for a in attempts if is_of(entry, a)] for entry in entries]
    assert len(owners) == len({shard for found in owners for shard in found}) == N_SHARDS
    assert all(len(found) == 1 for found in owners)
    assert rig.n_answers() == (N_ALL, N_ALL)
