"""A ranking against a baseline: each other candidate is compared with it, in both orders, and with nobody else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from batchpond.errors import StudyError
from batchpond_sim.world.world import Settings
from tests.rigs.sim_study import LATENCY_S
from tests.rigs.stage_study import CANDIDATES, StageRig, models, stage, use

HELPFUL = '[[stages.rubrics]]\nid = "helpful"\nname = "Helpful"\ndescription = "It helps who asked."\n'
NAMES = tuple(f"openai/{name}" for name in CANDIDATES)
JUDGE = models("gpt-5.4-mini")
ROWS = 'path = "outputs.csv"\nunit = "prompt"\ncandidate = "model"\ninput = "question"'
PAIRS = "select unit_id, candidate_first, candidate_second, outcome from results where stage = 'judge'"
N_UNITS = 4


def ranked(items: str, template: str, baseline: str, more: str = "") -> str:
    """Return a stage that compares each candidate with the baseline."""
    pairs = f'[stages.pairs]\nbaseline = "{baseline}"\n{more}'
    return stage("judge", "ranking", items, f"---{pairs}{HELPFUL}{use(template)}{JUDGE}")


def answered(name: str, *names: str) -> str:
    """Return a stage in which models answer the questions."""
    return stage(name, "generation", 'path = "asked.csv"', f"---{use('question')}{models(*names)}")


def rig_of(path: Path, *stages: str) -> StageRig:
    """Return a rig with questions, and with outputs of three candidates to them."""
    settings = Settings(seed=1, latency_s=LATENCY_S)
    rig = StageRig(path / "rig", settings=settings, toml='study = "demo"\n' + "".join(stages))
    folder = rig.study_path.parent
    (folder / "asked.csv").write_text("id,text\n" + "".join(f"q{n},Question {n}?\n" for n in range(N_UNITS)))
    rows = [
        f"{name}{n},Answer {n} of {name}.,q{n},{name},Question {n}?,Reference {n}."
        for n in range(N_UNITS) for name in ("low", "mid", "top")
    ]  # fmt: skip
    (folder / "outputs.csv").write_text("\n".join(["id,text,prompt,model,question,reference", *rows]) + "\n")
    return rig


def finished(rig: StageRig) -> set[tuple[str, str, str]]:
    """Bring a study to its end and return its comparisons: of each unit the ordered pairs of candidates."""
    rig.plan()
    rig.submit()
    rig.finish()
    assert rig.violations() == []
    rows = rig.ask(PAIRS)
    assert {row["outcome"] for row in rows} <= {"decided", "tie"}
    found = [(row["unit_id"], row["candidate_first"], row["candidate_second"]) for row in rows]
    assert len(found) == len(set(found))
    return set(found)


def both_orders(baseline: str, others: tuple[str, ...]) -> set[tuple[str, str, str]]:
    """Return every unit's pairs of the baseline and each other one, whichever stands first."""
    pairs = {pair for other in others for pair in ((baseline, other), (other, baseline))}
    return {(f"q{n}", *pair) for n in range(N_UNITS) for pair in pairs}


@pytest.mark.parametrize("template", ["ranking_plain", "ranking_reference", "ranking_lines"])
def test_outputs_of_a_file_are_compared_with_the_baseline_alone(tmp_path: Path, template: str) -> None:
    """Whatever place the baseline's name has among the others."""
    found = finished(rig_of(tmp_path, ranked(ROWS, template, "mid")))
    assert found == both_orders("mid", ("low", "top"))


def test_answers_of_a_stage_are_compared_with_one_models_and_as_many_as_foreseen(tmp_path: Path) -> None:
    rig = rig_of(tmp_path, answered("answers", *CANDIDATES), ranked('stage = "answers"', "ranking_plain", NAMES[1]))
    foreseen = {one.name: one.n_requests for one in rig.planned().stages}
    found = finished(rig)
    assert found == both_orders(NAMES[1], (NAMES[0], NAMES[2]))
    assert foreseen["judge"] == len(found)


def test_a_judge_of_two_has_answered_itself_before_it_sees_either(tmp_path: Path) -> None:
    """By a built-in template; both orders show the same answer of its own."""
    answers = answered("own", "gpt-5.4-mini"), answered("answers", *CANDIDATES)
    rig = rig_of(tmp_path, *answers, ranked('stage = "answers"', "ranking_own_answer", NAMES[0]))
    assert finished(rig) == both_orders(NAMES[0], NAMES[1:])
    own = {row["unit_id"]: row["text"] for row in rig.ask("select * from results where stage = 'own'")}
    for row in rig.ask("select unit_id, body from results join requests using (request_id) where stage = 'judge'"):
        mine, _, theirs = json.loads(row["body"])["messages"][0]["content"].partition("end of what you answered")
        assert own[row["unit_id"]] in mine
        assert own[row["unit_id"]] not in theirs


def test_a_reference_is_the_units_and_every_row_needs_one(tmp_path: Path) -> None:
    """Without the column the plan stops, and nothing is asked."""
    rig = rig_of(tmp_path, ranked(ROWS, "ranking_reference", "mid"))
    path = rig.study_path.parent / "outputs.csv"
    path.write_text(path.read_text().replace("reference", "sources"))
    with pytest.raises(StudyError, match=r"OUTPUT_A\.reference"):
        rig.plan()


@pytest.mark.parametrize(
    ("stages", "says"),
    [
        ([ranked(ROWS, "ranking_plain", "mdi")], "pairs.baseline is 'mdi', and no row has that candidate"),
        ([answered("answers", *CANDIDATES), ranked('stage = "answers"', "ranking_plain", "gpt-4o")],
         "pairs.baseline is 'gpt-4o', which nobody of answers is called"),
        ([ranked(ROWS, "ranking_plain", "mid", "count = 3\n")], "pairs.count has no meaning for the task ranking"),
        ([stage("p", "pairwise", 'path = "asked.csv"',
                f"---[stages.pairs]\nbaseline = 'q1'\n{HELPFUL}{use('plain')}{JUDGE}")],
         "pairs.baseline has no meaning for the task pairwise"),
        ([stage("first", "ranking", ROWS, f"---{HELPFUL}{use('ranking_plain')}{JUDGE}"),
          ranked('stage = "first"\nwhere = "outcome = \'tie\'"', "ranking_plain", "mid")],
         "pairs cannot have a baseline: this stage compares just what first compared"),
    ],
    ids=["no row's", "nobody's", "with a count", "of items", "of chosen pairs"],
)  # fmt: skip
def test_a_baseline_that_could_not_be_meant_is_refused_before_anything_is_planned(
    tmp_path: Path, stages: list[str], says: str
) -> None:
    rig = rig_of(tmp_path, *stages)
    with pytest.raises(StudyError) as caught:
        rig.plan()
    assert says in caught.value.message
    assert caught.value.hint


def test_inputs_without_a_second_candidate_and_rubrics_without_rows_are_said_by_plan(tmp_path: Path) -> None:
    """Nothing is asked there, and whoever reads a statement's absence from the tables should have known before."""
    by_statement = ROWS.replace("path =", 'rubric = "statement"\npath =')
    judged = f'---[stages.rubrics]\npath = "said.jsonl"\n{use("ranking_lines")}{JUDGE}'
    rig = rig_of(tmp_path, stage("judge", "ranking", by_statement, judged))
    folder = rig.study_path.parent
    said = [{"id": name, "text": f"Be {name}."} for name in ("brief", "kind", "sure")]
    (folder / "said.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in said))
    rows = [("a1", "q1", "low", "brief"), ("a2", "q1", "mid", "brief"), ("a3", "q2", "low", "brief"),
            ("a4", "q3", "mid", "kind")]  # fmt: skip
    lines = [f"{name},An answer.,{prompt},{model},A question?,{statement}" for name, prompt, model, statement in rows]
    (folder / "outputs.csv").write_text("\n".join(["id,text,prompt,model,question,statement", *lines]) + "\n")
    told = rig.planned().notes
    assert "stage judge: nothing is compared on 2 of 3 inputs: no answers of two candidates" in told
    assert "stage judge: nothing is asked by 2 rubrics, kind, sure" in told
    assert rig.ask("select count(*) as n from plan_current") == [{"n": 2}]
