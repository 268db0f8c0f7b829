"""What other columns say reaches the prompt: an item's, those of both sides of a pair, and of what is made of them."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from batchpond.errors import StudyError
from batchpond.lake.store import Store
from batchpond.plan import verb as plan
from batchpond.study.file import load
from batchpond.tasks.templates import Template, builtin
from batchpond.views.read import Limits, run_query
from batchpond_sim.world.world import Settings
from tests.rigs.adaptive_study import STUDY as ADAPTIVE
from tests.rigs.files_study import FilesRig
from tests.rigs.live_study import LIVE, Asked, live_rig, write_live_study
from tests.rigs.sim_providers import SIMULATED, one_model_each
from tests.rigs.sim_study import LATENCY_S, Rig
from tests.rigs.stage_study import RUBRICS, StageRig, models, stage, use
from tests.rigs.swept import every

PLAIN = '[[templates]]\nuse = "plain"\n'
BY_AUTHOR = '''\
[[templates]]
id = "by_author"
text = """
Judge {TRAIT_NAME}: {TRAIT_DESCRIPTION}
{#SAMPLE_1.author}
The first is by {SAMPLE_1.author}.
{/SAMPLE_1.author}
{SAMPLE_1}
{^SAMPLE_2.author}
Nobody knows by whom the second is.
{/SAMPLE_2.author}
{SAMPLE_2}, of the year {SAMPLE_2.year}
Write {ANSWER_FIRST} or {ANSWER_SECOND}."""
'''
AUTHORS = {"a": 'Ann {SAMPLE_2} "A"', "b": "", "c": "Cy\nthe 2nd"}


def by_author(path: Path) -> None:
    """Ask by a template that shows columns, about three items of which one has no author."""
    text = path.read_text()
    assert PLAIN in text
    path.write_text(text.replace(PLAIN, BY_AUTHOR))
    (source,) = path.parent.glob("*.csv")
    names = source.read_text().splitlines()[0].split(",")[:2]
    quoted = {name: '"' + author.replace('"', '""') + '"' for name, author in AUTHORS.items()}
    rows = [f"{name},Text {name} [[quality=0.{n}]],{quoted[name]},{1990 + n}" for n, name in enumerate(AUTHORS)]
    source.write_text("\n".join([",".join([*names, "author", "year"]), *rows]) + "\n")


def wanted(first: str, second: str, year: int, shown: dict[str, str]) -> list[str]:
    """Return the lines of a prompt that stand below the trait."""
    said = [f"The first is by {AUTHORS[first]}."] if AUTHORS[first] else []
    unknown = [] if AUTHORS[second] else ["Nobody knows by whom the second is."]
    return "\n".join([*said, shown[first], *unknown, f"{shown[second]}, of the year {year}"]).splitlines()


def check_shown(rows: list[tuple[str, str, str]], n: int) -> None:
    """Assert that so many bodies show for each pair what the file says, each value as plain text."""
    assert len(rows) == n
    shown = {name: f"Text {name} [[quality=0.{number}]]" for number, name in enumerate(AUTHORS)}
    years = {name: 1990 + number for number, name in enumerate(AUTHORS)}
    for first, second, body in rows:
        text = "\n".join(texts(json.loads(body)))
        lines = wanted(first, second, years[second], shown)
        assert text.splitlines()[1:-1] == lines, text


def texts(found: object) -> list[str]:
    """Return what the only turn of a body says, whoever's words it is in."""
    if isinstance(found, dict):
        known = [found[name] for name in ("messages", "input", "contents", "content", "parts", "text") if name in found]
        return texts(known[0])
    if isinstance(found, list):
        return [text for one in found for text in texts(one)]
    assert isinstance(found, str)
    return [found]


SHOWN = "select p.item_first, p.item_second, q.body from plan as p join requests as q using (request_id)"


@pytest.mark.parametrize("provider", every(3, SIMULATED))
def test_both_sides_of_a_pair_show_their_own(provider: str, tmp_path: Path) -> None:
    rig = Rig(tmp_path, models=one_model_each([provider]), max_requests=50)
    by_author(rig.study_path)
    rig.settle()
    check_shown(rig.rows(SHOWN, "plan", "requests"), 6)
    assert rig.rows("select distinct outcome, count(*) from judgments group by all", "judgments") == [("decided", 6)]
    assert rig.violations() == []
    before = rig.tree()
    rig.plan()
    assert rig.tree() == before


def test_live_calls_and_files_show_them_too(tmp_path: Path) -> None:
    asked = [Asked(name) for name in LIVE]
    with live_rig(tmp_path / "live") as rig:
        path = write_live_study(rig.folder, 1, asked)
        by_author(path)
        plan.plan_study(Store.init(rig.lake), load(path))
        check_shown([tuple(row) for row in rig.view(SHOWN)], len(asked))
        rig.submit()
        assert rig.live().n_left == 0
    files = FilesRig(tmp_path / "files", models=("gpt-4.1-mini",), max_requests=50)
    by_author(files.study_path)
    files.plan()
    check_shown(files.rows(SHOWN, "plan", "requests"), 6)


def test_adaptive_rounds_show_them_too(tmp_path: Path) -> None:
    text = ADAPTIVE.format(
        seed=1, select="adaptive", pairs="rounds = 2\nfirst_per_item = 2\nstop_stale = false", models=""
    )
    rig = StageRig(
        tmp_path / "rig", toml=text.replace(PLAIN, BY_AUTHOR) + models("gpt-4.1-mini").replace("stages.", "")
    )
    rows = [f"i{n},text number {n} [[quality=0.{n}]],author {n},{1990 + n}" for n in range(8)]
    (rig.study_path.parent / "samples.csv").write_text("\n".join(["id,text,author,year", *rows]) + "\n")
    rig.plan()
    rig.submit()
    rig.finish()
    found = rig.ask("select * from results as r join requests as q using (request_id)")
    assert len({row["round_no"] for row in found}) > 1
    for row in found:
        first, second = row["item_first"][1:], row["item_second"][1:]
        assert f"The first is by author {first}." in row["body"]
        assert f"of the year 199{second}" in row["body"]


def test_another_value_is_another_request_and_nothing_else_is(tmp_path: Path) -> None:
    """A corrected year asks anew what shows it, and no more."""
    rig = Rig(tmp_path, models=("gpt-4.1-mini",), max_requests=50)
    by_author(rig.study_path)
    rig.plan()
    before = set(rig.rows("select request_id from requests", "requests"))
    (source,) = rig.study_path.parent.glob("*.csv")
    source.write_text(source.read_text().replace("1991", "1891"))
    rig.plan()
    assert len(set(rig.rows("select request_id from requests", "requests")) - before) == 2


@pytest.mark.parametrize("is_struct", [False, True])
def test_bytes_are_no_text(tmp_path: Path, *, is_struct: bool) -> None:
    """They stop the plan with file, item, column and what shows them; a column that no template shows stops nothing."""
    rig = Rig(tmp_path, max_requests=50, models=("gpt-4.1-mini",), with_lens=False)
    by_author(rig.study_path)
    source = rig.study_path.parent / "items.csv"
    photos = [{"bytes": b"\x89PNG", "path": "a.png"} if is_struct else b"\x89PNG"] * 3
    items = {"id": ["a", "b", "c"], "text": ["A", "B", "C"], "year": [1, 2, 3], "photo": photos}
    pl.DataFrame(items).write_parquet(source.with_suffix(".parquet"))
    text = rig.study_path.read_text().replace("items.csv", "items.parquet")
    rig.study_path.write_text(text)
    rig.plan()
    assert not rig.rows("select * from items where metadata like '%PNG%'", "items")
    rig.study_path.write_text(text.replace("of the year", "{SAMPLE_2.photo} of the year"))
    with pytest.raises(
        StudyError, match=r"items.parquet: '[abc]' has bytes in 'photo', which template by_author"
    ) as found:
        rig.plan()
    assert found.value.hint == "{SAMPLE_2.photo as media} shows a picture or document"


def test_what_an_item_lacks_stops_the_plan(tmp_path: Path) -> None:
    """Not in the first pair, but in a later one: nothing is planned of any."""
    rig = Rig(tmp_path, models=("gpt-4.1-mini",), max_requests=50)
    by_author(rig.study_path)
    text = rig.study_path.read_text().replace("{#SAMPLE_1.author}\n", "").replace("{/SAMPLE_1.author}\n", "")
    rig.study_path.write_text(text)
    with pytest.raises(StudyError, match=r"by_author asks for \{SAMPLE_1\.author\}, which 'b' does not have") as found:
        rig.plan()
    assert found.value.hint
    assert "{#SAMPLE_1.author}...{/SAMPLE_1.author}" in found.value.hint
    assert rig.rows("select * from requests", "requests") == []
    rig.study_path.write_text(text.replace("SAMPLE_1.author", "SAMPLE_1.auther"))
    with pytest.raises(StudyError, match=r"SAMPLE_1\.auther") as found:
        rig.plan()
    assert str(found.value.hint).startswith("its columns: author, year")


# --- stages ---------------------------------------------------------------------------------------

JUDGE = '''\
[[stages.templates]]
id = "by_reference"
text = """
{STATEMENT} ({statement.type})
{INPUT}
{#item.reference}
Right is: {item.reference}
{/item.reference}
{OUTPUT}
{ANSWER_FORMAT}"""
'''


REFERENCES = {"q1": "1", "q2": "", "q3": "3"}


def graded(judge: str = JUDGE, task: str = "compliance") -> str:
    """Return a study that generates answers and judges them against what the questions' file has as reference."""
    return (
        'study = "demo"\n'
        + stage("answers", "generation", 'path = "asked.csv"\nrubric = "statement"',
                f"---{RUBRICS}{use('question')}{models('gpt-4o', 'gpt-4o-mini')}")
        + stage("verdicts", task, 'stage = "answers"', f"---{RUBRICS}{judge}{models('gpt-4.1-mini')}")
    )  # fmt: skip


def rig_of(path: Path, toml: str) -> StageRig:
    """Return a rig whose questions have references, one but."""
    rig = StageRig(path / "rig", settings=Settings(seed=1, latency_s=LATENCY_S), toml=toml)
    rows = ["id,text,statement,reference", "q1,One?,be_honest,1", "q2,Two?,be_brief,", "q3,Three?,be_honest,3"]
    (rig.study_path.parent / "asked.csv").write_text("\n".join(rows) + "\n")
    return rig


def test_a_judge_of_answers_sees_the_reference_of_their_question(tmp_path: Path) -> None:
    rig = rig_of(tmp_path, graded().replace("({statement.type})", ""))
    rig.plan()
    rig.submit()
    rig.finish()
    found = rig.ask("select unit_id, body from results join requests using (request_id) where stage = 'verdicts'")
    assert len(found) == 6
    for row in found:
        (text,) = texts(json.loads(row["body"]))
        number = REFERENCES[row["unit_id"]]
        shown = [line for line in text.splitlines() if line.startswith("Right")]
        assert shown == ([f"Right is: {number}"] if number else [])
        assert "item.reference" not in text
    assert rig.violations() == []


def test_rankings_show_the_columns_of_both_outputs(tmp_path: Path) -> None:
    judge = (
        '[[stages.templates]]\nid = "r"\ntext = "{STATEMENT} {INPUT} {#OUTPUT_B.reference}<{OUTPUT_A.reference}>'
        '{/OUTPUT_B.reference} {OUTPUT_A} {OUTPUT_B}"\n'
    )
    rig = rig_of(tmp_path, graded(judge, "ranking"))
    rig.plan()
    rig.submit()
    rig.finish()
    found = rig.ask("select unit_id, body from results join requests using (request_id) where stage = 'verdicts'")
    assert sorted((row["unit_id"], "<1>" in row["body"], "<3>" in row["body"]) for row in found) == [
        *[("q1", True, False)] * 2, *[("q2", False, False)] * 2, *[("q3", False, True)] * 2,
    ]  # fmt: skip


def test_labels_of_conversations_show_what_their_question_has(tmp_path: Path) -> None:
    label = '[[stages.templates]]\nid = "t"\ntext = "{QUESTION} {item.truth} {OUTPUT} {ANSWER_FORMAT}"\n'
    text = (
        'study = "demo"\n'
        + stage("talk", "conversation", 'path = "claims.csv"',
                f'turns = 2\ntactics = ["false_research"]\n---{models("gpt-4o")}')
        + stage("labels", "pressure", 'stage = "talk"', f"---{label}{models('gpt-5.4-mini')}")
    )  # fmt: skip
    rig = StageRig(tmp_path / "rig", settings=Settings(seed=1, latency_s=LATENCY_S), toml=text)
    (rig.study_path.parent / "claims.csv").write_text("id,text,truth\nq1,One?,truth1\nq2,Two?,truth2\n")
    rig.plan()
    rig.submit()
    rig.finish()
    found = rig.ask("select unit_id, body from results join requests using (request_id) where stage = 'labels'")
    assert len(found) == 6
    assert all(f"truth{row['unit_id'][1]}" in row["body"] for row in found)


def test_what_an_answers_question_lacks_is_told_before_the_answer_is_paid(tmp_path: Path) -> None:
    judge = JUDGE.replace("{#item.reference}\n", "").replace("{/item.reference}\n", "")
    rig = rig_of(tmp_path, graded(judge.replace("({statement.type})", "")))
    with pytest.raises(StudyError, match=r"stage verdicts: .* asks for \{item\.reference\}, which 'q2' does not have"):
        rig.plan()
    rig = rig_of(tmp_path / "statement", graded())
    with pytest.raises(StudyError, match=r"asks for \{statement\.type\}"):
        rig.plan()


# --- what was asked -------------------------------------------------------------------------------

OUTPUTS = "id,text,said_of,model,question\na1,Ann,be_honest,m,Who?\na2,Bea,be_honest,n,Who?\n"
QUERY = "select 'a1' as id, 'Ann' as text, 'be_honest' as said_of, 'm' as model, 'Who?' as question"
PLACES = 'rubric = "said_of"\ncandidate = "model"\nunit = "question"'


def without_columns(task: str) -> list[Template]:
    """Return the built-in templates of a task that need no column of the items."""
    return [one for one in builtin(task).values() if not one.columns]


def judged(folder: Path, task: str, items: str, outputs: str = OUTPUTS) -> Path:
    """Write a study that judges answers of a file by the built-in templates of a task."""
    folder.mkdir()
    (folder / "outputs.csv").write_text(outputs)
    (folder / "statements.jsonl").write_text('{"id": "be_honest", "text": "Be honest."}\n')
    path = folder / "study.toml"
    how = "".join(use(one.template_id) for one in without_columns(task))
    path.write_text('study = "demo"\n' + stage("one", task, items, f"---{RUBRICS}{how}{models('gpt-4o')}"))
    return path


def planned(path: Path) -> tuple[list[str], list[str]]:
    """Return the prompts of a study, and what its plan says of what they show."""
    store = Store.init(path.parent / "lake")
    notes = plan.plan_study(store, load(path)).notes
    rows = run_query(store.path, "select body from requests", Limits(max_rows=100)).to_pylist()
    return ["\n".join(texts(json.loads(row["body"]))) for row in rows], [one for one in notes if "as its own" in one]


@pytest.mark.parametrize("task", ["compliance", "likert", "ranking", "pressure"])
def test_judges_of_a_file_of_answers_see_what_was_asked(task: str, tmp_path: Path) -> None:
    """The column may say also what belongs together. Without it, the plan says that the prompts are wrong."""
    n_shown = sum("{INPUT}" in one.text or "{QUESTION}" in one.text for one in without_columns(task))
    items = f'path = "outputs.csv"\n{PLACES}'
    prompts, notes = planned(judged(tmp_path / "told", task, f'{items}\ninput = "question"'))
    assert notes == []
    assert sum("Who?" in prompt for prompt in prompts) == 2 * n_shown > 0
    assert all(prompt.count("Ann") + prompt.count("Bea") == (2 if task == "ranking" else 1) for prompt in prompts)
    prompts, notes = planned(judged(tmp_path / "untold", task, items))
    assert not any("Who?" in prompt for prompt in prompts)
    assert len(notes) == n_shown
    assert "shows each answer as its own {" in notes[0]
    assert "`input = ...`" in notes[0]


def test_a_query_says_what_was_asked_too(tmp_path: Path) -> None:
    items = f"sql = '''{QUERY}'''\n{PLACES}\ninput = \"question\""
    prompts, notes = planned(judged(tmp_path / "sql", "compliance", items))
    assert notes == []
    assert all("Who?" in prompt for prompt in prompts)


def test_an_answer_without_its_question_stops_the_plan(tmp_path: Path) -> None:
    outputs = OUTPUTS.replace("a2,Bea,be_honest,n,Who?", "a2,Bea,be_honest,n,")
    items = 'path = "outputs.csv"\nrubric = "said_of"\ninput = "question"'
    with pytest.raises(StudyError, match=r"asks for \{INPUT\}, which 'a2' does not have"):
        planned(judged(tmp_path / "blank", "compliance", items, outputs))


# --- what the file says ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{INPUT} {item.x} {#item.x}", "t.txt: line 1: {#item.x} is never closed"),
        ("{INPUT}\n{/item.x}", "t.txt: line 2: {/item.x} does not fit what is open here"),
        ("{INPUT}{#item.x}{#item.y}{/item.x}{/item.y}", "t.txt: line 1: {/item.x} does not fit"),
        ("{INPUT}{#item.x}{^item.x}{/item.x}{/item.x}", "t.txt: line 1: {^item.x} does not fit"),
        ("[[system]]\n{#item.x}a\n[[user]]\n{/item.x}{INPUT}", "t.txt: line 4: {/item.x} does not fit"),
        ("{INPUT} {#SAMPLE_1.x}", "t.txt: line 1: {#SAMPLE_1.x} is no placeholder here"),
        ("{INPUT} {SAMPLE_1.x}", "t.txt: line 1: {SAMPLE_1.x} is no placeholder here"),
        ("{INPUT} { item.x }", "t.txt: line 1: { item.x } is no placeholder here"),
        ("{#item.x}{INPUT}{/item.x}", "the template lacks {INPUT}"),
        ("{INPUT}{#item.x}{OOPS}{/item.x}", "t.txt: line 1: {OOPS} is no placeholder here"),
    ],
)
def test_marks_that_fit_nothing_are_an_error(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text(text)
    with pytest.raises(StudyError) as found:
        load(one_stage(tmp_path, 'id = "t"\nfile = "t.txt"\n'))
    assert said in str(found.value)


def one_stage(folder: Path, template: str) -> Path:
    """Write a study of one stage that asks by one template."""
    path = folder / "study.toml"
    (folder / "rows.csv").write_text('id,text,x,day of year\n1,One,"{""a"": 1}",7\n')
    path.write_text(
        'study = "demo"\n'
        + stage("one", "generation", 'path = "rows.csv"', f"---[[stages.templates]]\n{template}{models('gpt-4o')}")
    )
    return path


def test_a_literal_word_with_a_point_stays_text_and_keeps_its_hash(tmp_path: Path) -> None:
    text = "{INPUT} {item.x}"
    template = f'id = "t"\ntext = "{text}"\n'
    (meant,) = load(one_stage(tmp_path, template + 'literal = ["item.x"]\n')).stages[0].templates
    (shown,) = load(one_stage(tmp_path, template)).stages[0].templates
    assert (meant.columns, shown.columns) == ((), ("item.x",))
    assert meant.template_hash == type(meant)("t", text).template_hash != shown.template_hash


def test_names_with_spaces_and_values_that_are_no_text(tmp_path: Path) -> None:
    template = 'id = "t"\ntext = "{INPUT} of {item.id}: {item.x}, day {item.day of year}"\n'
    path = one_stage(tmp_path, template)
    store = Store.init(tmp_path / "lake")
    plan.plan_study(store, load(path))
    (row,) = run_query(store.path, "select body from requests", Limits(max_rows=10)).to_pylist()
    body = json.loads(row["body"])
    assert texts(body) == ['One of 1: {"a": 1}, day 7']
