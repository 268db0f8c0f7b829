"""Conversations under pressure: every turn is built from the model's real answers, and judged by several judges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from batchpond.interop import labels
from batchpond.tasks.pressure import tactics
from batchpond_browse import cases
from batchpond_browse.asking import Lake
from batchpond_sim.world.world import Settings
from tests.rigs.sim_study import LATENCY_S
from tests.rigs.stage_study import StageRig, models, stage, use

TURNS = 3
PLANTED = {"gpt-4.1-mini": 0.3, "gpt-4o": 0.6}
JUDGES = ("gpt-5.4-mini", "gpt-5.4-nano")
TACTIC = "false_research"
HAZARD = """
with labelled as (
  select candidate_first, unit_id, turn_no, label in ('soft_flip', 'explicit_flip') as is_flip
  from results where stage = 'labels' and request_model = 'gpt-5.4-mini'
), risks as (
  select now.candidate_first, now.is_flip
  from labelled as now join labelled as before
    on before.candidate_first = now.candidate_first and before.unit_id = now.unit_id
    and before.turn_no = now.turn_no - 1 and not before.is_flip
)
select candidate_first, wilson_lo(count(*) filter (is_flip), count(*), 2.5758) as lo,
       wilson_hi(count(*) filter (is_flip), count(*), 2.5758) as hi
from risks group by all
"""


def pressure_study(candidates: tuple[str, ...], judges: tuple[str, ...], turns: int) -> str:
    """Return a study of conversations and judges who label each answer."""
    return (
        'study = "demo"\n'
        + stage("talk", "conversation", 'path = "questions.csv"',
                f'turns = {turns}\ntactics = ["{TACTIC}"]\n---{models(*candidates)}')
        + stage("labels", "pressure", 'stage = "talk"', f"---{use('pressure_label')}{models(*judges)}")
    )  # fmt: skip


def rig_of(path: Path, toml: str, n_inputs: int, *judges: str, faults: tuple[str, ...] = ()) -> StageRig:
    """Return a user with that study and planted behaviour."""
    settings = Settings(seed=1, latency_s=LATENCY_S, judges=judges, faults=faults)
    return StageRig(path, settings=settings, toml=toml, n_inputs=n_inputs)


@pytest.fixture(scope="module")
def pressed(tmp_path_factory: pytest.TempPathFactory) -> StageRig:
    """Two models under three levels of pressure, labelled by two judges."""
    planted = [f"{model}:flip_rate={rate},wrong_rate=0" for model, rate in PLANTED.items()]
    toml = pressure_study(tuple(PLANTED), JUDGES, TURNS)
    rig = rig_of(tmp_path_factory.mktemp("pressed") / "rig", toml, 60, *planted, f"{JUDGES[1]}:unparsed_rate=0.2")
    rig.plan()
    rig.submit()
    rig.finish()
    return rig


def turns_of(rig: StageRig) -> dict[tuple[str, str], dict[int, dict[str, Any]]]:
    """Return each conversation's turns with request body and answer."""
    found: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for row in rig.ask(
        "select unit_id, candidate_first, turn_no, text, outcome, body from results"
        " join requests using (request_id) where stage = 'talk'"
    ):
        found.setdefault((row["unit_id"], row["candidate_first"]), {})[row["turn_no"]] = row
    return found


def test_every_turn_contains_the_models_own_earlier_answers(pressed: StageRig) -> None:
    tactic = tactics()[TACTIC]
    talks = turns_of(pressed)
    assert len(talks) == 60 * len(PLANTED)
    for turns in talks.values():
        assert sorted(turns) == list(range(TURNS + 1))
        for number, turn in turns.items():
            said = [message["content"] for message in orjson.loads(turn["body"])["messages"]]
            expected = [said[0]]
            for level in range(1, number + 1):
                expected += [turns[level - 1]["text"], tactic.phrase(level)]
            assert said == expected


def test_the_planted_flip_rate_is_recovered(pressed: StageRig) -> None:
    found = {row["candidate_first"].removeprefix("openai/"): (row["lo"], row["hi"]) for row in pressed.ask(HAZARD)}
    assert set(found) == set(PLANTED)
    for model, rate in PLANTED.items():
        assert found[model][0] <= rate <= found[model][1]


def test_each_answer_is_labelled_by_each_judge_and_a_judges_failure_is_no_label(pressed: StageRig) -> None:
    rows = pressed.ask(
        "select request_model, outcome, count(*) as n, count(label) as n_labels from results"
        " where stage = 'labels' group by all"
    )
    n = {(row["request_model"], row["outcome"]): (row["n"], row["n_labels"]) for row in rows}
    n_answers = 60 * len(PLANTED) * (TURNS + 1)
    assert n[JUDGES[0], "decided"] == (n_answers, n_answers)
    n_failed, n_labels = n[JUDGES[1], "unparsed"]
    assert n_failed > 50
    assert n_labels == 0
    assert n[JUDGES[1], "decided"] == (n_answers - n_failed, n_answers - n_failed)


def test_who_labels_a_turn_sees_the_first_answer_that_it_is_held_against(pressed: StageRig) -> None:
    """In a sheet, and in the pages: whether a model gave way cannot be told of its last words alone."""
    sheet = labels.draw(pressed.lake, "demo", 20)
    talks = turns_of(pressed)
    units = {one["text"]: (key, number) for key, turns in talks.items() for number, one in turns.items()}
    for asked in sheet.questions:
        key, number = units[asked.texts[0]]
        for turn_no in range(number + 1):
            assert talks[key][turn_no]["text"] in asked.question
        assert key[1] not in asked.question
    case = next(row for row in pressed.ask("select * from results where stage = 'labels'") if row["turn_no"] == TURNS)
    address = {"task": "pressure", "item": case["item_first"], "unit": case["unit_id"], "rubric": TACTIC}
    page = cases.case(Lake(pressed.lake), "demo", address)
    assert talks[case["unit_id"], case["candidate_first"]][0]["text"] in page.question


def test_a_turn_whose_answer_failed_stops_that_conversation_only(tmp_path: Path) -> None:
    toml = pressure_study(("gpt-4.1-mini",), ("gpt-5.4-mini",), 2)
    rig = rig_of(tmp_path / "rig", toml, 4, faults=("lines@2:error_rows=1",))
    rig.plan()
    rig.submit()
    rig.finish()
    talks = turns_of(rig)
    stopped = [turns for turns in talks.values() if len(turns) == 2]
    assert len(stopped) == 1
    assert stopped[0][1]["outcome"] == "error"
    assert all(len(turns) == 3 for turns in talks.values() if turns is not stopped[0])
    assert len(rig.ask("select 1 from results where stage = 'labels'")) == 3 * 3 + 1


def test_a_late_answer_goes_on_with_its_conversation_and_asks_nothing_else(tmp_path: Path) -> None:
    toml = pressure_study(("gpt-4.1-mini",), ("gpt-5.4-mini",), 2)
    rig = rig_of(tmp_path / "rig", toml, 4, faults=("lines@2:error_rows=1",))
    rig.plan()
    rig.submit()
    rig.finish()
    before = len(rig.ask("select 1 from responses"))
    rig.retry()
    rig.finish()
    assert all(len(turns) == 3 for turns in turns_of(rig).values())
    assert len(rig.ask("select 1 from results where stage = 'labels'")) == 4 * 3
    n_new = len(rig.ask("select 1 from responses")) - before
    assert n_new == 1 + 1 + 2  # the failed turn, the turn after it, and a label for each
    assert rig.violations() == []


def test_a_first_answer_that_tactics_share_is_foreseen_once(tmp_path: Path) -> None:
    """Each question is asked once, whatever number of tactics goes on from its answer."""
    toml = pressure_study(("gpt-4.1-mini",), ("gpt-5.4-mini",), 2).replace(
        f'["{TACTIC}"]', f'["{TACTIC}", "social_proof"]'
    )
    rig = rig_of(tmp_path / "rig", toml, 4)
    foreseen = {one.name: one.n_requests for one in rig.planned().stages}
    rig.submit()
    rig.finish()
    (asked,) = rig.ask("select count(distinct request_id) as n from results where stage = 'talk'")
    assert foreseen["talk"] == asked["n"] == 4 * (1 + 2 * 2)
