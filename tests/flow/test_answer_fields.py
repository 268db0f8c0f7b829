"""Studies with many fields in one answer, whole: asked and paid once, a row for each field in every figure."""

from __future__ import annotations

import tomllib
from pathlib import Path

import jsonschema
import orjson
import pytest
from polars.testing import assert_frame_equal

from batchpond import Lake
from batchpond.errors import StudyError
from batchpond.interop import labels
from batchpond.lake.store import Store
from batchpond.model import Mode
from batchpond.plan.verb import plan_study
from batchpond.results.export import ExportFormat, export
from batchpond.run.forget import Target, forget
from batchpond.run.submit import Bounds, submit
from batchpond.study.file import load, schema
from batchpond_browse import asking
from batchpond_browse.cases import case
from batchpond_sim.judges.judge import parse_judge
from tests.flow.test_stages_modes import FilesStageRig
from tests.rigs.live_study import live_rig
from tests.rigs.program import Program
from tests.rigs.stage_study import StageRig, models

PAIR = ("clarity", "depth", "style")
ITEM = ("ok", "clarity", "tone", "errors")
FIELD = '[[{}answer.fields]]\nname = "{}"\nkind = "{}"\n{}\n'


def pairs_toml(more: str = "") -> str:
    """Return a pairwise study of three criteria over four texts."""
    return (
        'study = "demo"\nstructured = true\n[items]\npath = "texts.csv"\n[pairs]\nreverse = true\n'
        '[[templates]]\nid = "three"\ntext = "1: {SAMPLE_1}\\n2: {SAMPLE_2}\\nReply: {ANSWER_FORMAT}"\n'
        + FIELD.format("", "clarity", "verdict", 'description = "which is clearer"\nexplanation = "/why"')
        + FIELD.format("", "depth", "graded", 'pointer = "/more/depth"')
        + FIELD.format("", "style", "verdict", 'pointer = "/more/style"')
        + models("gpt-5.4-mini").replace("stages.", "")
        + more
    )


def items_toml() -> str:
    """Return a study that rates, labels and checks each text, then asks again where it is unclear."""
    judged = (
        '[[stages]]\nname = "judged"\ntask = "prompts"\n[stages.items]\npath = "texts.csv"\n'
        '[[stages.templates]]\nid = "t"\ntext = "{INPUT}\\nThen also rate it from 1 to 9. Reply:\\n{ANSWER_FORMAT}"\n'
        + FIELD.format("stages.", "ok", "verdict", 'tag = "OK"\ndescription = "is it English"')
        + FIELD.format("stages.", "clarity", "score", 'range = [1, 5]\ntag = "CLARITY"')
        + FIELD.format("stages.", "tone", "label", 'labels = ["warm", "cold"]')
        + FIELD.format("stages.", "errors", "list", 'description = "what is wrong"')
        + models("gpt-5.4-mini")
    )
    again = judged.replace('"judged"', '"again"').replace('"gpt-5.4-mini"', '"gpt-4o"')
    where = 'stage = "judged"\nwhere = "rubric_id = \'clarity\' AND score >= 1"'
    return 'study = "demo"\n' + judged + again.replace('path = "texts.csv"', where)


def candidates_toml() -> str:
    """Return a study that compares two candidates' answers by two criteria, of structured answers."""
    return (
        'study = "demo"\ntask = "ranking"\nstructured = true\n'
        '[items]\npath = "texts.csv"\nunit = "asked"\ncandidate = "model"\ninput = "asked"\n'
        '[[templates]]\nid = "both"\ntext = "{INPUT}\\nA: {OUTPUT_A}\\nB: {OUTPUT_B}\\nReply: {ANSWER_FORMAT}"\n'
        + FIELD.format("", "helpful", "graded", "")
        + FIELD.format("", "correct", "verdict", 'description = "whose answer is right"')
        + models("gpt-5.4-mini").replace("stages.", "")
    )


def rig_of(path: Path, toml: str, kind: type[StageRig] = StageRig) -> StageRig:
    """Return a study over four texts."""
    rig = kind(path, toml=toml)
    texts = [f"t{n},Text number {n} is here.,Question {n // 2}?,{'ab'[n % 2]}" for n in range(4)]
    (rig.study_path.parent / "texts.csv").write_text("\n".join(["id,text,asked,model", *texts]) + "\n")
    return rig


def finished(path: Path, toml: str) -> StageRig:
    """Return a study whose answers are in."""
    rig = rig_of(path, toml)
    rig.planned()
    rig.submit()
    rig.finish()
    return rig


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> StageRig:
    return finished(tmp_path_factory.mktemp("pairs"), pairs_toml())


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> StageRig:
    return finished(tmp_path_factory.mktemp("items"), items_toml())


@pytest.fixture(scope="module")
def candidates(tmp_path_factory: pytest.TempPathFactory) -> StageRig:
    return finished(tmp_path_factory.mktemp("candidates"), candidates_toml())


def test_candidates_are_compared_by_each_criterion_of_one_answer(candidates: StageRig) -> None:
    """A question, two orders, two criteria: one request an order, and a win matrix for each criterion."""
    found = candidates.ask("SELECT rubric_id, request_id, text, verdict, score, candidate_first FROM results")
    assert (len(found), len({row["request_id"] for row in found}), candidates.billed()[0]) == (8, 4, 4)
    means = {"A": "first", "B": "second", "tie": "tie", "A=B": "tie"}
    for row in found:
        said = orjson.loads(row["text"])[row["rubric_id"]]
        assert row["verdict"] == (means.get(said) or means[said[0]])
        assert row["score"] == (said.count(">") if row["rubric_id"] == "helpful" else None)
    rows = candidates.ask("SELECT rubric_id, candidate_a, candidate_b, n_both FROM metric_win_matrix_by_rubric")
    assert {tuple(row.values()) for row in rows} == {("helpful", "a", "b", 2), ("correct", "a", "b", 2)}


def test_the_fields_of_an_answer_share_its_request(tmp_path: Path) -> None:
    """One plan row a field, one request a prompt; what is counted, foreseen and limited are requests."""
    rig = rig_of(tmp_path, pairs_toml())
    report = rig.planned()
    assert (report.n_plan_rows, report.n_requests, report.n_shared, report.n_to_ask) == (36, 12, 24, 12)
    assert [(cell.rubric_id, cell.n_plan_rows, cell.n_to_ask) for cell in report.cells] == [
        ("clarity", 12, 12), ("depth", 12, 0), ("style", 12, 0),
    ]  # fmt: skip
    assert report.stages[0].n_requests == 12
    rows = rig.ask("SELECT count(DISTINCT parser_id) AS n FROM plan_current GROUP BY request_id")
    assert {row["n"] for row in rows} == {3}
    preview = submit(rig.store(), "demo", Bounds(limit=6), confirm=None, providers=rig.providers()).preview
    assert preview.n_requests == 6
    assert preview.cost_expected_usd == pytest.approx((report.cost.expected_usd or 0) / 2, rel=0.02)


def test_status_says_how_rows_shared_requests_when_they_were_planned(tmp_path: Path) -> None:
    """It says nothing false where some of them were forgotten since."""
    rig = rig_of(tmp_path, pairs_toml())
    rig.planned()
    forget(rig.store(), Target(item="t3"), providers=rig.providers(), is_local=True)
    assert len(rig.ask("SELECT slot FROM plan_current")) == 18
    assert rig.planned().n_plan_rows == 18
    done = Program(tmp_path, "http://127.0.0.1:9", lake=str(rig.store().path)).run("status")
    assert "study demo was planned as 36 rows that share 12 requests" in done.stderr


def test_every_figure_has_a_row_for_each_criterion(pairs: StageRig) -> None:
    """Consistency, ranking, costs per cell and agreement know the criteria apart, and read one answer three times."""
    for view, n in (("metric_consistency", "n_both"), ("metric_completion", "n_answered"), ("metric_cost", "n_valid")):
        rows = pairs.ask(f"SELECT rubric_id, {n} AS n FROM {view} ORDER BY rubric_id")
        assert [row["rubric_id"] for row in rows] == list(PAIR), view
        assert len({row["n"] for row in rows}) == 1, view
    found = pairs.ask("SELECT text, rubric_id, verdict, score, explanation FROM results")
    for row in found:
        said = orjson.loads(row["text"])
        told = {"clarity": said["clarity"], **said["more"]}[row["rubric_id"]]
        side = "first" if told.startswith("A>") or told == "SAMPLE_1" else "second"
        assert row["verdict"] == side
        assert row["score"] == (told.count(">") if row["rubric_id"] == "depth" else None)
        assert row["explanation"] == (said["why"] if row["rubric_id"] == "clarity" else None)
    (rubric,) = pairs.ask("SELECT description FROM rubrics WHERE rubric_id = 'clarity'")
    assert rubric["description"] == "which is clearer"


def test_an_answer_is_paid_once(pairs: StageRig) -> None:
    """Costs are those of the requests that the provider's ledger knows, whatever number of fields."""
    (cost,) = pairs.ask("SELECT n_sent, n_responses, cost_usd FROM costs")
    (bill,) = pairs.ask("SELECT count(*) AS n, sum(cost_usd) AS usd FROM responses")
    assert (cost["n_sent"], cost["n_responses"], bill["n"]) == (12, 12, 12)
    assert cost["cost_usd"] == pytest.approx(bill["usd"])
    (audit,) = pairs.ask("SELECT sum(n_sent) AS n, bool_and(is_balanced) AS ok FROM audit")
    assert (audit["n"], audit["ok"]) == (12, True)
    assert pairs.billed()[0] == 12


@pytest.mark.parametrize("study", ["pairs", "items", "candidates"])
def test_fields_that_are_written_out_and_imported_make_the_same_figures(
    study: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Verdicts, grades, scores and labels, each field by itself; one that is a text or a list comes as an answer."""
    rig: StageRig = request.getfixturevalue(study)
    (path,) = export(rig.lake, tmp_path / "fields.csv", format=ExportFormat.CSV, view="results")
    other = Lake(tmp_path / "lake")
    assert other.import_judgments(path).n_left_out == 0
    for view in (
        "metric_outcomes",
        "metric_consistency",
        "metric_ratings",
        "metric_win_matrix",
        "metric_failures",
        "item_status",
        "pair_status",
    ):
        there, here = Lake(rig.lake).view(view).collect(), other.view(view).collect()
        assert_frame_equal(here, there, check_row_order=False)


def test_a_later_stage_asks_all_fields_of_what_one_field_chose(items: StageRig) -> None:
    rows = items.ask(
        "SELECT stage, rubric_id, count(*) AS n, count(DISTINCT request_id) AS n_requests FROM results"
        " WHERE outcome = 'decided' GROUP BY ALL ORDER BY ALL"
    )
    assert [(row["stage"], row["rubric_id"], row["n"], row["n_requests"]) for row in rows] == [
        (stage, name, 4, 4) for stage in ("again", "judged") for name in sorted(ITEM)
    ]
    found = items.ask("SELECT rubric_id, n_rated FROM metric_ratings WHERE provider = 'openai' ORDER BY ALL")
    assert {row["rubric_id"] for row in found} == {"clarity", "errors"}


def test_people_say_of_each_field_what_it_can_say(items: StageRig) -> None:
    """A sheet has the words of each field, and leaves out lists; a score that a person gives is one."""
    sheet = labels.draw(items.lake, "demo", 50)
    choices = {question.choices for question in sheet.questions}
    assert choices == {("false", "true"), ("1", "2", "3", "4", "5"), ("warm", "cold")}
    path = items.path / "sheet.csv"
    labels.write(sheet, path)
    lines = path.read_text("utf-8-sig").splitlines()
    filled = [line.removesuffix(",,") + f",{line.removesuffix(',,').rpartition(' | ')[2]},\n" for line in lines[1:]]
    path.write_text("\n".join([lines[0], *filled]))
    labels.import_labels(items.store(), [path])
    rows = items.ask("SELECT DISTINCT rubric_id, label, score FROM imported_judgments ORDER BY rubric_id")
    assert [tuple(row.values()) for row in rows] == [
        ("clarity", None, 5.0), ("ok", "true", None), ("tone", "cold", None),
    ]  # fmt: skip


def test_a_failure_is_that_of_all_fields(tmp_path: Path) -> None:
    rig = rig_of(tmp_path, pairs_toml())
    rig.world.panel.judges = (parse_judge("*:refusal_rate=0.5"),)
    rig.planned()
    rig.submit()
    rig.finish()
    rows = rig.ask(
        "SELECT count(DISTINCT outcome = 'refused') AS n, count(*) AS n_rows FROM results GROUP BY request_id"
    )
    assert {(row["n"], row["n_rows"]) for row in rows} == {(1, 3)}
    refused = rig.ask("SELECT rubric_id, n_refused AS n FROM metric_completion")
    assert len({row["n"] for row in refused}) == 1
    assert 0 < refused[0]["n"] < 12


def test_files_and_live_answers_have_fields_too(tmp_path: Path) -> None:
    """Each is read of the answer in any mode; a worker that answers in no such form is unparsed in each of them."""
    files = rig_of(tmp_path / "files", pairs_toml('mode = "files"\n'), FilesStageRig)
    files.planned()
    files.submit()
    assert files.work() == 1
    files.sync()
    rows = files.ask("SELECT rubric_id, count(outcome) AS n FROM results GROUP BY ALL ORDER BY ALL")
    assert [tuple(row.values()) for row in rows] == [(name, 12) for name in PAIR]
    with live_rig(tmp_path / "live") as rig:
        files.study_path.write_text(pairs_toml('mode = "live"\n'))
        plan_study(Store.init(rig.lake), load(files.study_path))
        rig.submit("demo")
        assert rig.live().n_left == 0
        rig.sync()
        said = rig.view("select rubric_id, outcome, count(*) from results group by all order by all")
        assert said == [(name, "decided", 12) for name in PAIR]
        assert rig.simulator.world.ledger.live.n_asked == 12


def test_editors_know_the_fields() -> None:
    """The schema of study files accepts what the reader does, and refuses a kind or key that nobody knows."""
    known = jsonschema.Draft202012Validator(schema())
    for toml in (pairs_toml(), items_toml(), candidates_toml()):
        known.validate(tomllib.loads(toml))
        assert not known.is_valid(tomllib.loads(toml.replace('"verdict"', '"verdikt"')))
        assert not known.is_valid(tomllib.loads(toml.replace("description =", "descripton =")))


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        (pairs_toml().replace("reverse = true", 'select = "adaptive"'), "each field would ask for other pairs"),
        (pairs_toml('[[rubrics]]\nuse = "overall_quality"\n'), "each field is what is judged by"),
        (pairs_toml().replace("{ANSWER_FORMAT}", "{TRAIT_NAME}"), "{TRAIT_NAME} is no placeholder here"),
        (items_toml().replace("rubric_id = 'clarity' AND ", ""), "does not say which field of judged it is about"),
        (items_toml().replace('task = "prompts"', 'task = "likert"', 1), "is one judgment"),
    ],
)
def test_what_fields_cannot_do_is_said_before_anything_is_asked(tmp_path: Path, toml: str, message: str) -> None:
    path = tmp_path / "study.toml"
    path.write_text(toml)
    with pytest.raises(StudyError) as caught:
        load(path)
    assert message in f"{caught.value} {caught.value.hint}"


def test_a_study_without_fields_has_no_part_of_them(tmp_path: Path) -> None:
    """The prompt and the body know nothing of fields: the same words by another study are the same requests."""
    rig = rig_of(tmp_path, pairs_toml().replace("structured = true\n", ""))
    rig.planned()
    before = rig.ask("SELECT request_id FROM requests ORDER BY ALL")
    one = pairs_toml().replace("structured = true\n", "").replace('kind = "graded"', 'kind = "graded"\nis_whole = true')
    rig.write(one.replace('name = "style"', 'name = "manner"').replace('"/more/style"', '"/more/style"'))
    report = rig.planned()
    assert rig.ask("SELECT request_id FROM requests ORDER BY ALL") == before
    assert (report.is_new_version, report.n_new) == (True, 0)
    assert {model.mode for model in report.models} == {Mode.BATCH}


def test_a_page_shows_each_field_by_itself(pairs: StageRig) -> None:
    """In the words of its own criterion, though one answer says them all."""
    lake = asking.Lake(pairs.lake)
    shown = {name: case(lake, "demo", {"rubric": name, "lo": "t0", "hi": "t1"}) for name in PAIR}
    assert [one.criterion for one in shown.values()] == ["which is clearer", "", ""]
    for name, one in shown.items():
        assert [row["rubric_id"] for row in one.rows] == [name, name]
    assert len({one.unit_key for one in shown.values()}) == 3
