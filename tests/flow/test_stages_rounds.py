"""Rounds that `sync` opens by itself: from one study file to the last answer, whatever is killed on the way."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from batchpond.lake.store import LENS, Store
from batchpond.plan import write as stage_plan
from batchpond.run import stages
from batchpond.study.spec import Study
from tests.rigs.clock import ManualClock
from tests.rigs.stage_study import CANDIDATES, STATEMENTS, StageRig, spec_study
from tests.rigs.swept import IS_ALL

N_ANSWERS = 36
N_RANKED = 72
N_ALL = 144
TABLE = """
select stage, round_no, template_id, rubric_id, request_model, unit_id, item_first, item_second, candidate_first,
       candidate_second, is_lo_first, direction, request_id, request_state, verdict, outcome, confidence, text, cost_usd
from results order by all
"""


def copy_of(rig: StageRig, path: Path) -> StageRig:
    """Return a user with a copy of another's lake and provider, at the same time of day."""
    shutil.copytree(rig.path, path)
    return StageRig(path, toml=rig.toml, n_inputs=rig.n_inputs, clock=ManualClock(rig.clock.now()))


def asked_by_request(rig: StageRig) -> Counter[str]:
    """Return how often the provider has run each request."""
    rows = rig.rows("select request_id, count(*) from responses group by all", "responses")
    return Counter({str(request_id): int(str(n)) for request_id, n in rows})


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> StageRig:
    """A study whose first stage has ended at the provider, and nobody knows it yet."""
    rig = StageRig(tmp_path_factory.mktemp("answered") / "rig")
    rig.plan()
    rig.submit()
    rig.clock.advance(1_000.0)
    return rig


@pytest.fixture(scope="module")
def unkilled(answered: StageRig, tmp_path_factory: pytest.TempPathFactory) -> StageRig:
    """The same study, brought to its end by nothing but `sync`."""
    rig = copy_of(answered, tmp_path_factory.mktemp("unkilled") / "rig")
    assert rig.finish() <= 3
    return rig


@contextmanager
def replaced(path: Path) -> Iterator[list[object]]:
    """Collect a note each time that a file is put in this place."""
    told: list[object] = []
    is_over = False

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.rename" and not is_over and Path(os.fsdecode(arguments[1])) == path:
            told.append(event)

    sys.addaudithook(hear)  # which nothing takes away again
    try:
        yield told
    finally:
        is_over = True


def test_each_verb_and_pass_writes_the_lens_once_at_most(tmp_path: Path) -> None:
    """Rounds are opened by what the pass has at hand; what it writes is read by others, and so at its end."""
    rig = StageRig(tmp_path / "rig")
    rig.plan()
    with replaced(rig.lake / LENS) as written:
        rig.submit()
        assert len(written) == 1
        written.clear()
        n_asked = len(rig.ask("select request_id from plan"))
        while n_asked < N_ALL:
            rig.clock.advance(1_000.0)
            rig.sync()
            assert len(written) == 1
            written.clear()
            before, n_asked = n_asked, len(rig.ask("select request_id from plan"))
            assert n_asked > before


def test_one_file_becomes_answers_rankings_and_verdicts(unkilled: StageRig) -> None:
    found = unkilled.ask(
        "select stage, count(*) as n, count(distinct unit_id) as n_units, count(distinct rubric_id) as n_rubrics,"
        " bool_and(outcome = 'decided') as is_decided from results group by stage order by stage"
    )
    assert [tuple(row.values()) for row in found] == [
        ("answers", N_ANSWERS, 12, len(STATEMENTS), True),
        ("compliance", N_ANSWERS, 12, len(STATEMENTS), True),
        ("ranking", N_RANKED, 12, len(STATEMENTS), True),
    ]
    assert unkilled.violations() == []
    assert set(asked_by_request(unkilled).values()) == {1}
    assert len(asked_by_request(unkilled)) == N_ALL


def test_candidates_are_known_by_name_in_both_orders(unkilled: StageRig) -> None:
    rows = unkilled.ask(
        "select candidate_first, candidate_second, count(*) as n from results where stage = 'ranking' group by all"
    )
    names = [f"openai/{name}" for name in CANDIDATES]
    assert {(r["candidate_first"], r["candidate_second"]): r["n"] for r in rows} == {
        (a, b): 12 for a in names for b in names if a != b
    }


def test_the_judge_is_shown_the_real_outputs(unkilled: StageRig) -> None:
    rows = unkilled.ask(
        "select requests.body, answers.text from results as judged"
        " join results as answers on answers.stage = 'answers' and answers.unit_id = judged.unit_id"
        " and answers.candidate_first in (judged.candidate_first, judged.candidate_second)"
        " join requests on requests.request_id = judged.request_id where judged.stage <> 'answers'"
    )
    assert len(rows) == 2 * N_RANKED + N_ANSWERS
    assert all(row["text"] in row["body"] for row in rows)


def test_an_idle_sync_of_a_finished_study_writes_nothing(unkilled: StageRig, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("an idle pass has looked at the answers")

    before = unkilled.tree()
    monkeypatch.setattr("batchpond.plan.rounds.rounds.open_rounds", refuse)
    unkilled.clock.advance(1_000.0)
    unkilled.sync()
    assert unkilled.tree() == before


def test_only_the_study_whose_answers_came_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lake may hold any number of other studies, submitted or not: they cost the pass nothing."""
    looked: list[str] = []

    def open_rounds(store: Store, record: object, staged: Study, *rest: Any) -> object:
        looked.append(staged.name)
        return real(store, record, staged, *rest)

    real = stages.open_rounds
    monkeypatch.setattr(stages, "open_rounds", open_rounds)
    rig = StageRig(tmp_path / "rig", n_inputs=4)
    for name, n_tokens in (("never", "302"), ("first", "301"), ("demo", "300")):
        rig.write(spec_study().replace('study = "demo"', f'study = "{name}"').replace("= 300", f"= {n_tokens}"))
        rig.plan()
    rig.submit(study="first")
    rig.finish()
    assert {*looked} == {"first"}
    looked.clear()
    rig.submit()
    rig.finish()
    assert {*looked} == {"demo"}


def test_planning_the_same_file_again_changes_nothing(unkilled: StageRig) -> None:
    before = {name: digest for name, digest in unkilled.tree().items() if not name.endswith(".duckdb")}
    report = unkilled.planned()
    assert not report.is_new_version
    assert report.n_requests == N_ALL
    assert {name: digest for name, digest in unkilled.tree().items() if not name.endswith(".duckdb")} == before


# Of both rounds, and of what one publishes (requests, rubrics, templates, items, plan, event), some in this process and
# some as processes (test_stages_kills), and all if that is asked for.
POINTS = [("R0", 1), ("R1", 1), ("R0", 2), ("R1", 2), ("R2", 1)] if IS_ALL else [("R0", 1), ("R1", 2), ("R2", 1)]
LINKS = [("before link", nth) for nth in (range(1, 16) if IS_ALL else (1, 8))]
LINKS += [("after link", nth) for nth in (range(1, 16) if IS_ALL else (4,))]


class Countdown:
    """A rig's `pass_point` that dies at the nth passing of a name, once rounds are being opened."""

    def __init__(self, rig: StageRig, name: str, nth: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = nth
        self.is_opening = False
        self.n_died = 0
        self._name, self._pass = name, rig.pass_point
        monkeypatch.setattr(rig, "pass_point", self.pass_point)
        real = stage_plan.publish

        def publish(*args: object) -> int:
            self.is_opening = True
            return real(*args)  # type: ignore[arg-type]

        monkeypatch.setattr("batchpond.plan.write.publish", publish)
        self._rig = rig

    def pass_point(self, name: str) -> None:
        """Die if it is time."""
        if name == self._name and (self.is_opening or name.startswith("R")) and self.left > 0:
            self.left -= 1
            if self.left == 0:
                self.n_died += 1
                self._rig.crash_at = name
        self._pass(name)


@pytest.mark.parametrize(("name", "nth"), [*POINTS, *LINKS], ids=lambda value: str(value).replace(" ", "-"))
def test_a_kill_while_rounds_are_opened_asks_nothing_twice_and_misses_nothing(
    answered: StageRig, unkilled: StageRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, nth: int
) -> None:
    rig = copy_of(answered, tmp_path / "rig")
    countdown = Countdown(rig, name, nth, monkeypatch)
    assert not rig.survive(rig.sync)
    assert countdown.n_died == 1
    rig.finish()
    assert rig.ask(TABLE) == unkilled.ask(TABLE)
    assert rig.ask("select count(distinct slot) as n from results") == [{"n": N_ALL}]
    assert rig.violations() == []
    assert set(asked_by_request(rig).values()) == {1}
    assert rig.billed() == unkilled.billed()
