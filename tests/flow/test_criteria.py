"""Criteria of a prompt's own: an item's list says by which it is judged, points what it earns."""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pytest

from batchpond.cli.plan import report_lines
from batchpond.errors import StudyError
from batchpond.results.compare.verb import compare
from batchpond.views.read import run_query
from batchpond_report import build, markdown
from tests.rigs.stage_study import StageRig, models, stage, use

CRITERIA = '[stages.rubrics]\npath = "criteria.jsonl"\n{}'
OUTPUTS = 'path = "outputs.jsonl"\nunit = "prompt"\ncandidate = "model"\nrubric = "criteria"'
QUESTIONS = 'path = "questions.jsonl"'
OF_QUESTIONS = 'stage = "answers"\nrubric = "criteria"'
POINTS = 'points = "worth"\n'
JUDGE = models("gpt-5.4-mini")


def grade(items: str, points: str = POINTS, task: str = "compliance", template: str = "compliance_brief") -> str:
    """Return a stage that judges by the criteria."""
    return stage("grade", task, items, f"---{CRITERIA.format(points)}{use(template)}{JUDGE}")


ANSWERS = stage("answers", "generation", QUESTIONS, f"---{use('question')}{models('gpt-4o', 'gpt-4o-mini')}")
AGAIN = grade('stage = "grade"').replace('name = "grade"', 'name = "again"')


def rig_of(path: Path, *stages: str, n_prompts: int = 12, n_lists: int | None = None) -> StageRig:
    """Return a rig with prompts of two to five criteria each, the answers of two candidates, and the criteria."""
    rig = StageRig(path / "rig", toml='study = "demo"\n' + "".join(stages))
    folder, draw = rig.study_path.parent, random.Random(1)
    criteria, prompts = [], []
    for prompt in range(n_prompts):
        names = [f"p{prompt}-{n}" for n in range(draw.randint(2, 5))]
        worth = [draw.choice([1, 2, 5.5]), *(draw.choice([3, 7, -2, -6]) for _ in names[1:])]
        criteria += [
            {"id": name, "text": f"It says {name}.", "worth": one, "axis": f"axis of {name}"}
            for name, one in zip(names, worth, strict=True)
        ]
        prompts.append({"id": f"q{prompt}", "text": f"Question {prompt}?", "criteria": names})
    outputs = [
        {"id": f"{model}/{one['id']}", "text": f"Answer of {model}.", "prompt": one["id"], "model": model,
         "criteria": one["criteria"]}
        for one in prompts for model in ("big", "small")
    ]  # fmt: skip
    for name, rows in (("criteria", criteria), ("questions", prompts[:n_lists]), ("outputs", outputs)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rig


def finished(rig: StageRig) -> StageRig:
    """Plan, send and collect; what was foreseen is what is asked."""
    foreseen = {one.name: one.n_requests for one in rig.planned().stages}
    rig.submit()
    rig.finish()
    assert rig.violations() == []
    asked = rig.ask("SELECT stage, count(DISTINCT request_id) AS n FROM plan_current GROUP BY ALL")
    for row in asked:
        if row["stage"] != "again":
            assert foreseen[row["stage"]] == row["n"]
    return rig


def test_an_item_is_judged_by_the_criteria_of_its_list_and_no_others(tmp_path: Path) -> None:
    """Each of them once; a later stage may ask about them again."""
    rig = finished(rig_of(tmp_path, grade(OUTPUTS), AGAIN))
    lines = (rig.study_path.parent / "outputs.jsonl").read_text().splitlines()
    wanted = {(row["id"], name) for row in map(json.loads, lines) for name in row["criteria"]}
    for name in ("grade", "again"):
        rows = rig.ask(f"SELECT item_first, rubric_id FROM plan_current WHERE stage = '{name}'")
        assert sorted((row["item_first"], row["rubric_id"]) for row in rows) == sorted(wanted)


def test_answers_are_judged_by_the_criteria_of_their_question(tmp_path: Path) -> None:
    """The forecast counts them, although no answer is there yet."""
    rig = finished(rig_of(tmp_path, ANSWERS, grade(OF_QUESTIONS)))
    lines = (rig.study_path.parent / "questions.jsonl").read_text().splitlines()
    wanted = {(row["id"], name) for row in map(json.loads, lines) for name in row["criteria"]}
    rows = rig.ask("SELECT unit_id, rubric_id, candidate_first FROM plan_current WHERE stage = 'grade'")
    for model in {row["candidate_first"] for row in rows}:
        of_model = {(row["unit_id"], row["rubric_id"]) for row in rows if row["candidate_first"] == model}
        assert of_model == wanted
    assert len(rows) == 2 * len(wanted)


def test_two_answers_are_compared_by_the_criteria_that_both_have(tmp_path: Path) -> None:
    """In both orders; a criterion of one of them alone is asked about neither."""
    rig = rig_of(tmp_path, grade(OUTPUTS, "", "ranking", "ranking_lines"), n_prompts=2)
    path = rig.study_path.parent / "outputs.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    first = rows[0]["criteria"][0]
    rows[0]["criteria"] = [first, first, *rows[2]["criteria"]]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    rig.planned()
    asked = rig.ask("SELECT rubric_id, direction FROM plan_current WHERE unit_id = 'q0' ORDER BY ALL")
    assert asked == [{"rubric_id": first, "direction": one} for one in ("forward", "reverse")]


def test_a_score_is_what_is_earned_of_what_could_be(tmp_path: Path) -> None:
    """Of each candidate, over prompts of equal weight, as a loop over the verdicts counts it; and of two beside."""
    rig = finished(rig_of(tmp_path, grade(OUTPUTS)))
    lines = (rig.study_path.parent / "criteria.jsonl").read_text().splitlines()
    worth = {row["id"]: row["worth"] for row in map(json.loads, lines)}
    earned, possible = defaultdict[tuple[str, str], float](float), defaultdict[tuple[str, str], float](float)
    n_open = 0
    for row in rig.ask("SELECT candidate_first AS candidate, unit_id, rubric_id, verdict FROM results"):
        key = row["candidate"], row["unit_id"]
        n_open += row["verdict"] is None
        if row["verdict"] is not None:
            earned[key] += worth[row["rubric_id"]] * (row["verdict"] == "true")
            possible[key] += max(0.0, worth[row["rubric_id"]])
    assert n_open == 0
    scores = {key: earned[key] / possible[key] for key in earned}
    assert {row["candidate"]: row["score"] for row in rig.ask("SELECT candidate, score FROM metric_points")} == {
        model: pytest.approx(fmean(value for (name, _), value in scores.items() if name == model), abs=1e-12)
        for model in ("big", "small")
    }
    (pair,) = rig.ask("SELECT candidate_a, candidate_b, n_prompts, diff FROM metric_points_paired")
    diff = fmean(scores["big", unit] - scores["small", unit] for name, unit in scores if name == "big")
    assert pair == {"candidate_a": "big", "candidate_b": "small", "n_prompts": 12, "diff": pytest.approx(diff)}
    n_good = sum(one > 0 for one in worth.values())
    assert {row["n_rubrics"] for row in rig.ask("SELECT n_rubrics FROM metric_compliance_overall")} == {n_good}


def test_candidates_are_compared_by_points_as_the_view_of_pairs_does(tmp_path: Path) -> None:
    """A prompt each, the main metric; compliance is of what is no fault, but where faults alone are compared."""
    rig = finished(rig_of(tmp_path, grade(OUTPUTS)))
    (wanted,) = rig.ask("FROM metric_points_paired")
    big, small = "demo:candidate=big", "demo:candidate=small"
    by_metric = {row["metric"]: row for row in compare(rig.lake, big, small).differences.to_pylist()}
    points = by_metric["points"]
    assert (points["n"], points["is_main"], by_metric["compliance"]["is_main"]) == (12, True, False)
    same = {"diff_se": "diff_se", "p_diff": "p_diff", "value_a": "score_a", "value_b": "score_b"}
    assert {key: points[key] for key in same} == {
        key: pytest.approx(wanted[name], abs=1e-12) for key, name in same.items()
    }
    ends = [-wanted[key] for key in ("diff", "diff_hi", "diff_lo")]
    assert [points[key] for key in ("diff", "diff_lo", "diff_hi")] == pytest.approx(ends, abs=1e-12)
    n_good, n_bad = (
        rig.ask(f"SELECT count(*) AS n FROM criteria_points WHERE points {sign} 0")[0]["n"] for sign in (">", "<")
    )
    assert by_metric["compliance"]["n"] == n_good
    (fault,) = rig.ask("SELECT min(rubric_id) AS name FROM criteria_points WHERE points < 0")
    of_fault = [f"{side},rubric={fault['name']}" for side in (big, small)]
    alone = {row["metric"]: row["n"] for row in compare(rig.lake, *of_fault).differences.to_pylist()}
    assert n_bad > 0
    assert alone["compliance"] == 1
    assert "points" not in alone


def test_the_report_argues_by_points_and_counts_all_cells(tmp_path: Path) -> None:
    """A fault that is met is no compliance; many criteria are one row of the coverage, with all that was asked."""
    rig = finished(rig_of(tmp_path, grade(OUTPUTS), n_prompts=70))
    said = markdown.render(build.build(rig.lake, "demo"))
    n_asked = run_query(rig.lake, "SELECT count(*) FROM plan_current").column(0)[0].as_py()
    n_cells = run_query(rig.lake, "SELECT count(DISTINCT cell_id) FROM plan_current").column(0)[0].as_py()
    assert n_cells > 200
    assert f"n = {n_asked:,} judgments expected in {n_cells:,} cells" in said
    assert "earns the most points of 2 candidates" in said
    assert "By the points that they earn" in said
    assert "| points | no | in general |" in said
    assert "Left out, to meet them being no merit:" in said


def test_a_plan_of_many_criteria_is_told_in_a_row_for_each_way_to_ask(tmp_path: Path) -> None:
    """And not in one for each criterion, which nobody reads; few are told one by one."""
    few, many = (rig_of(tmp_path / str(n), grade(OUTPUTS), n_prompts=n).planned() for n in (3, 30))
    assert sum(line.startswith("compliance_brief") for line in report_lines(few)) == few.n_cells
    (line,) = [line for line in report_lines(many) if line.startswith("compliance_brief")]
    assert f"{many.n_cells} rubrics" in line
    assert f"  {many.n_to_ask}  " in line


def test_a_template_shows_whatever_a_statement_says(tmp_path: Path) -> None:
    """Its own keys as they stand in the file, the points too; what a template does not show changes nothing."""
    text = "{INPUT} {STATEMENT} ({statement.axis}, {statement.worth}) {OUTPUT} compliant: true or false"
    own = f'[[stages.templates]]\nid = "own"\ntext = "{text}"\n'
    rig = rig_of(tmp_path, grade(OUTPUTS).replace(use("compliance_brief"), own), n_prompts=1)
    rig.planned()
    assert "It says p0-0. (axis of p0-0, " in rig.ask("SELECT body FROM requests ORDER BY body")[0]["body"]
    hashes = "SELECT DISTINCT rubric_hash FROM rubrics ORDER BY ALL"
    plain = rig_of(tmp_path / "plain", grade(OUTPUTS, ""), n_prompts=1)
    plain.planned()
    path = plain.study_path.parent / "criteria.jsonl"
    before = plain.ask(hashes)
    path.write_text(path.read_text().replace("axis of", "another axis of"))
    assert plain.planned().n_new == 0
    assert plain.ask(hashes) == before


def test_what_was_shown_of_statements_is_shown_as_before(tmp_path: Path) -> None:
    """Examples, numbered, and what stands for a section: not the file's own words for them, which another prompt is."""
    text = "{INPUT} {OUTPUT} {STATEMENT} [{statement.examples}] [{statement.section}]"
    text += " [{#statement.input}yes{/statement.input}]"
    own = f'[[stages.templates]]\nid = "own"\ntext = "{text}"\n'
    rig = rig_of(tmp_path, grade(OUTPUTS, "").replace(use("compliance_brief"), own), n_prompts=1)
    path = rig.study_path.parent / "criteria.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    example = {"description": "Vague", "user_query": "What?", "bad_response": "It.", "good_response": "That."}
    more = {"examples": [example], "section": " Facts ", "input": "is no input"}
    path.write_text("".join(json.dumps(row | more) + "\n" for row in rows))
    rig.planned()
    body = json.loads(rig.ask("SELECT body FROM requests ORDER BY body")[0]["body"])
    (turn,) = body["body"]["messages"] if "body" in body else body["messages"]
    assert "[Example 1: Vague\n- Request: What?\n- Goes against the statement: It." in turn["content"]
    assert "[ Facts ] [yes]" in turn["content"]
    assert "is no input" not in turn["content"]


def test_a_criterion_that_is_added_later_is_all_that_is_asked(tmp_path: Path) -> None:
    """No answer is bought again, neither a candidate's nor a judge's, though the question's list is another."""
    rig = finished(rig_of(tmp_path, ANSWERS, grade(OF_QUESTIONS), n_prompts=3))
    before = {row["request_id"] for row in rig.ask("SELECT request_id FROM plan_current")}
    folder = rig.study_path.parent
    with (folder / "criteria.jsonl").open("a") as file:
        file.write(json.dumps({"id": "late", "text": "It says late.", "worth": 1, "axis": "late"}) + "\n")
    questions = folder / "questions.jsonl"
    questions.write_text(questions.read_text().replace('"p0-0", ', '"p0-0", "late", '))
    assert rig.planned().n_to_ask == 2  # by the two candidates' answers that are there
    rig.submit()
    rig.finish()
    rows = rig.ask("SELECT request_id, rubric_id FROM plan_current")
    assert [row["rubric_id"] for row in rows if row["request_id"] not in before] == ["late", "late"]
    assert before < {row["request_id"] for row in rows}


def test_what_follows_a_ranking_by_lists_is_foreseen(tmp_path: Path) -> None:
    """Each answer is judged again by the criteria that it was compared by."""
    ranked = grade(OUTPUTS, "", "ranking", "ranking_lines")
    rig = rig_of(tmp_path, ranked, AGAIN)
    foreseen = {one.name: one.n_requests for one in rig.planned().stages}
    rig.submit()
    rig.finish()
    asked = rig.ask("SELECT stage, count(DISTINCT request_id) AS n FROM plan_current GROUP BY ALL")
    assert foreseen == {row["stage"]: row["n"] for row in asked}


def test_criteria_that_no_list_names_are_told(tmp_path: Path) -> None:
    """They cost nothing, and say nothing: somebody may have meant them."""
    rig = rig_of(tmp_path, grade(OUTPUTS), n_prompts=2)
    with (rig.study_path.parent / "criteria.jsonl").open("a") as file:
        file.write(json.dumps({"id": "nobody's", "text": "It says so.", "worth": 1}) + "\n")
    assert "stage grade: nothing is asked by 1 rubric, nobody's" in rig.planned().notes


@pytest.mark.parametrize(
    ("stages", "old", "new", "problem"),
    [
        ((grade(OUTPUTS),), '["p0-0", ', '["nope", ', "belongs to the rubric 'nope', which the stage lacks"),
        ((grade(OUTPUTS),), '["p0-0", "p0-1"', '[], "other": ["p0-1"', "'big/q0' has an empty list of rubrics"),
        ((grade(OUTPUTS),), '"worth": ', '"worth": "much", "was": ', "has no number in 'worth', which the study names"),
        ((grade(OUTPUTS, task="likert", template="likert_json"),), "x", "x", "which answers of the task likert"),
        ((ANSWERS, grade(OF_QUESTIONS)), '"criteria": ["p0-0"', '"criteria": ["nope"', "which the stage lacks"),
        ((ANSWERS, grade(OF_QUESTIONS)), '"criteria": ["p3-', '"others": ["p3-', "'q3' has no list of rubrics in"),
        ((grade(OUTPUTS), AGAIN.replace('"grade"', '"grade"\nrubric = "criteria"', 1)), "x", "x",
         "grade does not answer the items of a file"),
    ],
)  # fmt: skip
def test_what_cannot_be_judged_is_refused_before_anything_is_bought(
    tmp_path: Path, stages: tuple[str, ...], old: str, new: str, problem: str
) -> None:
    """A list that names what is not there, or nothing; points that are no number; a stage without questions."""
    rig = rig_of(tmp_path, *stages)
    for path in rig.study_path.parent.glob("*.jsonl"):
        path.write_text(path.read_text().replace(old, new))
    with pytest.raises(StudyError, match=problem.replace("'", ".").replace("/", ".")):
        rig.planned()


def test_a_list_that_is_text_is_told_where_lists_go(tmp_path: Path) -> None:
    """As it stands in a cell of CSV: it is no rubric's id."""
    rig = rig_of(tmp_path, grade(OUTPUTS))
    for path in rig.study_path.parent.glob("*.jsonl"):
        text = path.read_text()
        path.write_text(re.sub(r'"criteria": (\[.*?\])', lambda one: f'"criteria": {json.dumps(one[1])}', text))
    with pytest.raises(StudyError) as told:
        rig.planned()
    assert "lists of them stand in JSON Lines or Parquet" in (told.value.hint or "")
