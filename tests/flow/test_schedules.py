"""Seeded random histories of plan, submit, sync, time, faults and crashes end as an undisturbed run does.

`python -m tests.sweeps.schedules --seeds N` plays as many as wanted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from unittest.mock import patch

import duckdb
import pytest

from batchpond.answers import derive
from batchpond.model import CreateAnswer, CreateSpec, Match, Response, Unclear
from batchpond.providers.openai.batch import OpenAIClient
from batchpond.run import send
from batchpond.run.session import Session
from batchpond.views.draft import AS_TABLES
from batchpond.views.refresh import scripts
from tests.rigs import schedules
from tests.rigs.sim_study import Rig
from tests.rigs.swept import some, sweep

SEEDS_PER_TEST = 3


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> schedules.Undisturbed:
    return schedules.Undisturbed(tmp_path_factory.mktemp("undisturbed"))


@pytest.mark.parametrize("first", some(0, swept=(3, 6, 9)))
def test_any_history_ends_as_an_undisturbed_run(first: int, tmp_path: Path, undisturbed: schedules.Undisturbed) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        outcome = schedules.run(seed, tmp_path / str(seed), undisturbed)
        assert not outcome.problems, f"replay with --first {seed} --seeds 1\n{outcome}"


def _check_lens(rig: Rig) -> None:
    """Hold the tables of the lens against the views that they are made of, over the same files."""
    lens = rig.lake / "batchpond.duckdb"
    if not lens.exists():
        return
    with duckdb.connect(lens, read_only=True) as connection:
        files = {
            name: connection.execute("SELECT path FROM lens_files WHERE table_name = ?", [name]).fetchall()
            for name in ("events", "studies")
        }
        shown = {name: connection.sql(f"FROM {name} ORDER BY ALL").to_arrow_table() for name in AS_TABLES}
    if not all(files.values()):
        return
    with duckdb.connect() as connection:
        for name, paths in files.items():
            connection.read_parquet([str(rig.lake / path) for (path,) in paths]).create_view(name)
        for script in scripts():
            if script.name in AS_TABLES:
                connection.execute(script.text)
        anew = {name: connection.sql(f"FROM {name} ORDER BY ALL").to_arrow_table() for name in AS_TABLES}
    assert shown == anew


@sweep
@pytest.mark.parametrize("seeds", [(109, 114), (104, 120, 123)], ids=str)
def test_what_the_lens_folds_bit_by_bit_is_what_it_folds_anew(
    seeds: tuple[int, ...], tmp_path: Path, undisturbed: schedules.Undisturbed
) -> None:
    """After every step of histories in which much was sent: with retries, crashes, lost copies and changed studies."""
    n_attempts = 0

    def look(rig: Rig) -> None:
        nonlocal n_attempts
        n_attempts += len(rig.attempts())
        _check_lens(rig)

    for seed in seeds:
        schedules.run(seed, tmp_path / str(seed), undisturbed, look=look)
    assert n_attempts > 100, "there was little to fold"


def test_events_of_no_shard_leave_the_attempts_of_the_lens(tmp_path: Path) -> None:
    """A study that is planned anew, with other items, while its batches are open."""
    rig = Rig(tmp_path, with_lens=True)
    rig.plan()
    rig.submit()
    rig.change()
    _check_lens(rig)
    with duckdb.connect(rig.lake / "batchpond.duckdb", read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM attempts").fetchall() == [(len(rig.attempts()),)]


# -- negative controls: with a rule broken, the same judges must find the damage ------------------------


def _retrying() -> AbstractContextManager[object]:
    create = OpenAIClient.create

    def twice(self: OpenAIClient, spec: CreateSpec) -> CreateAnswer:
        answer = create(self, spec)
        return create(self, spec) if isinstance(answer, Unclear) else answer

    return patch.object(OpenAIClient, "create", twice)


def _unsettled() -> AbstractContextManager[object]:
    return patch.object(Session, "settle_s", lambda *_: 0.0)


def _unrecorded() -> AbstractContextManager[object]:
    return patch.object(Session, "elect", lambda *_: True)


def _positional() -> AbstractContextManager[object]:
    def by_position(
        matcher: derive._Once, line: bytes, response: Response, place: tuple[int, int]
    ) -> tuple[Match, str | None]:
        matcher.seen[str(len(matcher.seen))] = 0
        return Match.MATCHED, list(matcher.expected.values())[len(matcher.seen) - 1]

    return patch.object(derive, "_matched", by_position)


def _lost_answers(rig: Rig) -> None:
    rig.world.add_fault("batches.create@1-2:reset_after")


def _late_execution(rig: Rig) -> None:
    rig.world.add_fault("batches.create@1-2:delay_exec=500")


def _killed_after_create(rig: Rig) -> None:
    rig.crash_at = "S8.after"


def _nothing(rig: Rig) -> None:
    rig.world.clear_faults()


@pytest.mark.parametrize(
    ("broken", "misfortune"),
    [
        pytest.param(_retrying, _lost_answers, id="the client retries a create"),
        pytest.param(_unsettled, _late_execution, id="no settle time"),
        pytest.param(_unrecorded, _killed_after_create, id="no sent record before the POST"),
        pytest.param(_positional, _nothing, id="answers joined by position"),
    ],
)
def test_the_judges_see_a_broken_rule(
    broken: Callable[[], AbstractContextManager[object]], misfortune: Callable[[Rig], None], tmp_path: Path
) -> None:
    rig = Rig(tmp_path, with_lens=False)
    rig.plan()
    misfortune(rig)
    with broken():
        rig.survive(rig.submit)
        for _ in range(4):
            rig.clock.advance(100)
            rig.survive(rig.sync)
        rig.clock.advance(1_000)
        rig.survive(rig.sync)
    assert rig.violations() != []


def test_a_lease_that_ran_out_sends_nothing(tmp_path: Path) -> None:
    """A process that slept between its record and its POST must not send what others may have judged absent."""
    rig = Rig(tmp_path, with_lens=False)
    rig.plan()

    def slept(name: str) -> None:
        if name == "S8.before":
            rig.clock.advance(send.SEND_LEASE_S + 1)

    rig.pass_point = slept  # type: ignore[method-assign]
    rig.submit()
    assert rig.wire.n_create_posts == 0


def test_a_seed_replays_exactly(tmp_path: Path, undisturbed: schedules.Undisturbed) -> None:
    seed = random.Random(5).randrange(1_000)
    runs: Iterator[schedules.Outcome] = (schedules.run(seed, tmp_path / name, undisturbed) for name in ("one", "two"))
    first, second = runs
    assert (first.history, first.problems) == (second.history, second.problems)
