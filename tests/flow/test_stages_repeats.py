"""Several answers of each candidate to a question: each is judged as an item of its own, and foreseen as such."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from batchpond_sim.world.world import Settings
from tests.rigs.sim_study import LATENCY_S
from tests.rigs.stage_study import CANDIDATES, StageRig, models, stage, use

N_UNITS, N_REPEATS = 3, 3
HELPFUL = '[[stages.rubrics]]\nid = "helpful"\nname = "Helpful"\ndescription = "It helps who asked."\n'
JUDGE = models("gpt-5.4-mini")
ANSWERS = stage(
    "answers", "generation", 'path = "questions.csv"',
    f"repeats = {N_REPEATS}\n---{use('question')}{models(*CANDIDATES[:2])}",
)  # fmt: skip
STUDY = (
    'study = "demo"\n'
    + ANSWERS
    + stage("judged", "compliance", 'stage = "answers"', f"---{HELPFUL}{use('compliance_json')}{JUDGE}")
    + stage("ranked", "ranking", 'stage = "answers"', f"---{HELPFUL}{use('ranking_plain')}{JUDGE}")
    + stage("listed", "listwise", 'stage = "answers"',
            f"---[stages.lists]\nsize = 2\n{HELPFUL}{use('listwise_answers')}{JUDGE}")
)  # fmt: skip


@pytest.fixture(scope="module")
def foreseen_and_done(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, int], StageRig]:
    """How many requests of each stage were foreseen, and the study at its end."""
    settings = Settings(seed=1, latency_s=LATENCY_S)
    path = tmp_path_factory.mktemp("repeats") / "rig"
    rig = StageRig(path, settings=settings, toml=STUDY, n_inputs=N_UNITS)
    foreseen = {one.name: one.n_requests for one in rig.planned().stages}
    rig.submit()
    rig.finish()
    assert rig.violations() == []
    return foreseen, rig


def test_every_answer_is_judged_and_each_as_its_own_item(foreseen_and_done: tuple[dict[str, int], StageRig]) -> None:
    """The first keeps the name that an only answer has; the texts judged are the texts answered."""
    _, rig = foreseen_and_done
    answers = rig.ask("select unit_id, candidate_first, repeat_no, text from results where stage = 'answers'")
    named = {
        f"{row['unit_id']}/{row['candidate_first']}" + (f"#{row['repeat_no']}" if row["repeat_no"] > 1 else ""):
        row["text"] for row in answers
    }  # fmt: skip
    assert len(named) == N_UNITS * 2 * N_REPEATS
    judged = rig.ask(
        "select item_first, candidate_first, unit_id, items.text from results join items"
        " on items.item_hash = results.item_first_hash where stage = 'judged'"
    )
    assert {row["item_first"]: row["text"] for row in judged} == named
    assert len(judged) == len(named)


def test_a_ranking_compares_each_answer_with_each_of_the_other_candidates(
    foreseen_and_done: tuple[dict[str, int], StageRig],
) -> None:
    _, rig = foreseen_and_done
    rows = rig.ask("select unit_id, item_first, item_second, candidate_first, candidate_second from results"
                   " where stage = 'ranked'")  # fmt: skip
    assert all(row["candidate_first"] != row["candidate_second"] for row in rows)
    assert Counter(row["unit_id"] for row in rows) == dict.fromkeys((f"q{n}" for n in range(N_UNITS)), 2 * N_REPEATS**2)


def test_what_follows_is_foreseen_as_often_as_it_is_asked(foreseen_and_done: tuple[dict[str, int], StageRig]) -> None:
    foreseen, rig = foreseen_and_done
    asked = rig.ask("select stage, count(distinct request_id) as n from results group by all")
    assert foreseen == {row["stage"]: row["n"] for row in asked}


def test_a_study_of_nothing_but_answers_can_be_repeated(tmp_path: Path) -> None:
    rig = StageRig(tmp_path / "rig", toml='study = "demo"\n' + ANSWERS, n_inputs=N_UNITS)
    rig.plan()
    assert rig.ask("select count(distinct request_id) as n from plan_current") == [{"n": N_UNITS * 2 * N_REPEATS}]
