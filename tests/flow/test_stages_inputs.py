"""Questions made by rounds: from statements to what is kept of them, driven by nothing but `sync`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from batchpond.errors import StudyError
from batchpond.lake.attempts import fold
from batchpond.lake.events import read
from batchpond.plan.report import PlanReport
from batchpond.plan.rounds.inputs import Rated, entry_rows, kept_rows, lacking_rows
from batchpond.plan.rows import SourceRow
from batchpond.run.stages import StageState, remarks, stages
from batchpond.study.file import load
from batchpond.study.spec import Kept, Study, from_config, to_config, to_json
from tests.flow.test_stages_rounds import asked_by_request
from tests.rigs.stage_study import RUBRICS, STATEMENTS, StageRig, models, stage, use

PER_STATEMENT = 3
MAKING = (
    "categories = 2\nscenarios_per_category = 2\nquestions_per_scenario = 2\nkeep_below = 3\n"
    f"per_statement = {PER_STATEMENT}\nmax_rounds = 2\npromising = 0.5\n"
)
JUDGE = '[[stages.judges]]\nprovider = "openai"\nmodel = "gpt-5.4-mini"\nmax_output_tokens = 300\n'


def inputs_study(making: str = MAKING, more: str = JUDGE) -> str:
    """Return questions made for four statements, and the answers of a model to those that are kept."""
    made = f'\n[[stages]]\nname = "asked"\ntask = "inputs"\n{making}{RUBRICS}{models("gpt-4.1-mini")}{more}'
    answers = stage("answers", "generation", 'stage = "asked"', f"---{RUBRICS}{use('question')}{models('gpt-4o-mini')}")
    return f'study = "demo"\n{made}{answers}'


RATED = """
select unit_id as question, avg(score) as rating from results
where stage like 'asked.ratings-%' and outcome = 'decided' group by all
"""


DEATHS = ("R0", "R1", "R2", "R1", "R0", "R2", "R0", "R1")


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[StageRig, PlanReport]:
    """A study whose categories are asked for, and what its plan foretold."""
    rig = StageRig(tmp_path_factory.mktemp("planned") / "rig", toml=inputs_study())
    report = rig.planned()
    rig.submit()
    return rig, report


@pytest.fixture(scope="module")
def done(planned: tuple[StageRig, PlanReport]) -> StageRig:
    """The same study, killed in one round after the other, and brought to its end."""
    rig, _ = planned
    n_died = 0
    for point in DEATHS:
        rig.clock.advance(1_000.0)
        rig.crash_at = point
        n_died += not rig.survive(rig.sync)
    rig.finish()
    assert n_died >= 6
    return rig


def asked_about(rig: StageRig, name: str) -> set[str]:
    """Return the rows that a stage has asked about."""
    return {row["item_first"] for row in rig.ask(f"select item_first from results where stage = '{name}'")}


def test_killed_at_every_failpoint_of_a_round_nothing_is_asked_twice_or_left_out(done: StageRig) -> None:
    staged = load(done.study_path)
    for name, after in (("categories", "scenarios"), ("scenarios", "questions-1"), ("questions-1", "ratings-1"),
                        ("questions-2", "ratings-2")):  # fmt: skip
        made = entry_rows(done.store(), "demo", [staged.stage(f"asked.{name}")])
        assert {row.item_id for row in made} == asked_about(done, f"asked.{after}") != set()
    kept = kept_rows(done.store(), staged, staged.stage("answers").rows.kept or pytest.fail("nothing is kept"))
    assert {row.item_id for row in kept} == asked_about(done, "answers")
    assert done.ask("select count(distinct slot) = count(*) as is_each_once from results")[0]["is_each_once"]
    assert set(asked_by_request(done).values()) == {1}
    assert done.violations() == []


def test_each_statement_gets_as_many_questions_that_are_rated_low(done: StageRig) -> None:
    kept = done.ask("select rubric_id, item_first, outcome from results where stage = 'answers'")
    counts = Counter(row["rubric_id"] for row in kept)
    assert set(counts) == set(STATEMENTS)
    assert len(set(counts.values())) == 1
    assert 1 < counts[STATEMENTS[0]] <= PER_STATEMENT
    ratings = {row["question"]: row["rating"] for row in done.ask(RATED)}
    assert all(ratings[row["item_first"]] < 3 for row in kept)
    assert {row["outcome"] for row in kept} == {"decided"}


def test_every_step_is_shown_what_it_was_made_from(done: StageRig) -> None:
    rows = done.ask(
        "select r.stage, r.rubric_id, q.body, i.text, i.metadata from results as r"
        " join requests as q on q.request_id = r.request_id join items as i on i.item_hash = r.item_first_hash"
    )
    assert Counter(row["stage"] for row in rows if not row["stage"].endswith("-2"))["asked.questions-1"] == 16
    for row in rows:
        shown = json.loads(row["body"])["messages"][0]["content"]
        more = json.loads(row["metadata"])
        assert row["text"] in shown
        if row["stage"].startswith("asked"):
            assert f"The assistant should {row['rubric_id']}." in shown
        if row["stage"].startswith("asked.questions"):
            assert more["category"] not in row["text"]
            assert more["scenario"] == row["text"]


def test_a_further_round_goes_into_statements_that_lack_questions_and_leaves_out_what_was_made(done: StageRig) -> None:
    low = "select rubric_id, count(*) as n from results where stage = 'asked.ratings-1' and score < 3 group by all"
    enough = {row["rubric_id"] for row in done.ask(low) if row["n"] >= PER_STATEMENT}
    further = done.ask(
        "select r.rubric_id, r.item_first, q.body from results as r join requests as q on q.request_id = r.request_id"
        " where r.stage = 'asked.questions-2'"
    )
    assert {row["rubric_id"] for row in further} == set(STATEMENTS) - enough != set()
    made = done.ask(
        "select distinct i.text, i.metadata from results as r join items as i on i.item_hash = r.item_first_hash"
        " where r.stage = 'asked.ratings-1'"
    )
    for row in further:
        here = [one["text"] for one in made if json.loads(one["metadata"])["made_from"] == row["item_first"]]
        assert len(here) == 2
        assert all(text in row["body"] for text in here)


def test_the_plan_foretells_every_step_and_at_worst_all_rounds(planned: tuple[StageRig, PlanReport]) -> None:
    """Of 8 questions of each statement 0.4 are foreseen to be rated low: enough for 3, so no round follows."""
    report = planned[1]
    assert [(stage.name, stage.n_requests, stage.is_forecast) for stage in report.stages] == [
        ("asked.categories", 4, False),
        ("asked.scenarios", 8, True),
        ("asked.questions-1", 16, True),
        ("asked.ratings-1", 32, True),
        ("asked.questions-2", 0, True),
        ("asked.ratings-2", 0, True),
        ("answers", 12, True),
    ]
    by_name = {stage.name: stage.cost for stage in report.stages}
    assert by_name["asked.questions-2"].expected_usd == 0.0
    assert (by_name["asked.questions-2"].worst_usd or 0.0) > 0.0


def test_what_failed_on_the_way_is_told_and_what_was_kept_stays_so_when_it_comes_late(tmp_path: Path) -> None:
    """One of four lists of two questions fails, so each statement keeps 6; once it has come each keeps its 7."""
    making = MAKING.replace("max_rounds = 2", "max_rounds = 1").replace("keep_below = 3", "keep_below = 6")
    making = making.replace(f"per_statement = {PER_STATEMENT}", "per_statement = 7")
    rig = StageRig(tmp_path / "rig", toml=inputs_study(making))
    rig.world.add_fault("lines@3:error_rows=1")
    rig.plan()
    rig.submit()
    rig.finish()
    store = rig.store()
    found = stages(store, fold(read(store)))
    assert {status.state for status in found} == {StageState.DONE}
    failed = rig.ask("select rubric_id from results where stage = 'asked.questions-1' and outcome = 'error'")
    assert [remark.message for remark in remarks(found)] == [
        "1 of 16 answers of stage asked.questions-1 of study demo are not usable, so not for asked.ratings-1",
        "stage asked.ratings-1 of study demo: 1 of 4 statements have fewer than 7 questions rated below 6: "
        f"{failed[0]['rubric_id']} 6; 6 of each are kept",
    ]
    kept = "select rubric_id, item_first from results where stage = 'answers' order by all"
    before = rig.ask(kept)
    assert Counter(row["rubric_id"] for row in before) == dict.fromkeys(STATEMENTS, 6)
    rig.retry()
    rig.finish()
    after = rig.ask(kept)
    assert Counter(row["rubric_id"] for row in after) == dict.fromkeys(STATEMENTS, 7)
    assert all(row in after for row in before)
    assert Counter(asked_by_request(rig).values())[2] == 1, "but what was retried nothing is asked twice"


def of(folder: Path, text: str) -> Study:
    """Return a study that is written in a folder with its inputs."""
    rig = StageRig(folder, toml=text)
    found = load(rig.study_path)
    return found


def test_answers_of_candidates_may_be_rated_in_place_of_the_questions(tmp_path: Path) -> None:
    more = JUDGE + JUDGE.replace("judges", "candidates").replace("gpt-5.4-mini", "gpt-4o-mini")
    study = of(tmp_path / "rig", inputs_study(more=more))
    assert [s.name for s in study.stages if s.name.endswith("-1")] == [
        "asked.questions-1", "asked.answers-1", "asked.ratings-1",
    ]  # fmt: skip
    assert study.stage("asked.ratings-1").templates[0].template_id == "likert_json"
    assert to_json(from_config(to_config(study))) == to_json(study)
    rig = StageRig(tmp_path / "planned", toml=inputs_study(more=more))
    assert [stage.n_requests for stage in rig.planned().stages if stage.name.endswith("-1")] == [16, 32, 32]


WRONG = {
    "no rubrics": (inputs_study().replace(RUBRICS, "", 1), "stages[1] has no rubrics"),
    "no judge": (inputs_study(more=""), "judges is missing"),
    "items of a step": (inputs_study("step = 1\n"), "step is not a known key"),
    "nothing can be kept": (inputs_study("keep_below = 1\n"), "keep_below is 1, so no question could be kept"),
    "repeats": (inputs_study("repeats = 2\n"), "repeats has no meaning where questions are made in rounds"),
    "its keys elsewhere": (inputs_study().replace('task = "generation"', 'task = "generation"\nmax_rounds = 2'),
                           "max_rounds has no meaning for the task generation"),
    "a choice of one's own": (inputs_study().replace('stage = "asked"', 'stage = "asked"\nwhere = "true"'),
                              "items.where cannot be given: asked itself says"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(tmp_path: Path, name: str) -> None:
    text, problem = WRONG[name]
    with pytest.raises(StudyError) as caught:
        of(tmp_path / "rig", text)
    assert problem in caught.value.message


def by_hand(step: str) -> str:
    """Return categories asked for by statement, and a step that takes their entries one by one."""
    tail = f'---{RUBRICS}{use("inputs_{}")}{models("gpt-4.1-mini")}[stages.answer]\nstep = "{{}}"\n'
    first, second = (tail.replace("{}", name) for name in ("categories", step))
    return (
        'study = "demo"\n'
        + stage("kinds", "inputs", 'path = "inputs.csv"\nrubric = "statement"', first)
        + stage("more", "inputs", 'stage = "kinds"', second)
    )


def test_a_step_by_itself_takes_the_entries_of_another_and_a_step_left_out_is_found_before_money_is_spent(
    tmp_path: Path,
) -> None:
    rig = StageRig(tmp_path / "rig", toml=by_hand("scenarios"), n_inputs=2)
    assert [stage.n_requests for stage in rig.planned().stages] == [2, 20]
    rig.write(by_hand("questions"))
    with pytest.raises(StudyError, match=r"inputs_questions asks for \{SCENARIO\}"):
        rig.planned()


def test_a_file_of_inputs_alone_needs_no_stages(tmp_path: Path) -> None:
    made = f"{MAKING}{RUBRICS}{models('gpt-4.1-mini')}{JUDGE}".replace("stages.", "")
    study = of(tmp_path / "rig", f'study = "demo"\ntask = "inputs"\ntier = 2\nstructured = true\n{made}')
    assert [stage.name for stage in study.stages][:2] == ["main.categories", "main.scenarios"]
    assert {stage.tier for stage in study.stages} == {2}
    assert {stage.name: stage.is_structured for stage in study.stages}["main.ratings-1"]
    assert not study.stages[0].is_structured


def test_a_scenario_whose_judges_all_failed_is_not_taken_for_a_promising_one() -> None:
    def row(name: str, scenario: str, statement: str = "s") -> SourceRow:
        return SourceRow(name, name, rubric_id=statement, more={"made_from": scenario})

    kept = Kept("asked", ("q",), ("r",), 3.0, 2, True, 0.5, 0.4)
    rows = {r.item_id: r for r in (row("a", "x"), row("b", "y"), row("c", "z"), row("d", "w", "t"), row("e", "w", "t"))}
    found = Rated(rows, {"b": 4.0, "c": 5.0, "d": 1.0, "e": 2.0})
    scenarios = [SourceRow(name, name) for name in "xyzw"]
    assert [one.item_id for one in lacking_rows(found, scenarios, kept, 1)] == ["y"]
