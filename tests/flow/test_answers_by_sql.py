"""Answers read by a study's own SQL: checked before money is spent, sealed off, evaluated for all texts at once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from batchpond.errors import StudyError, UsageError
from batchpond.model import Outcome
from batchpond.study import file as study
from batchpond.tasks.base import Judgment
from batchpond.tasks.prompts import PromptsRule
from batchpond.views import expressions
from batchpond.views.expressions import TEXT_MAX_CHARS, evaluate, why_not
from tests.rigs.stage_study import StageRig, models, stage
from tests.rigs.task import answered

NUMBER = r"CAST(regexp_extract(text, 'Score: (\d+)', 1) AS INTEGER)"

USABLE = [
    r"regexp_extract(text, 'Score: (\d+)', 1)",
    "text ->> '$.a[0].b'",
    "CASE WHEN text ILIKE '%yes%' THEN 'first' WHEN lower(text) = 'no' THEN 'second' END",
    "text = 'A' OR length(text) > 3",
    "split_part(trim(text), chr(10), -1)",
    '"text"[1:3]',
    "len(string_split(text, ';')) - 1",
]


@pytest.mark.parametrize("expression", USABLE)
def test_what_looks_at_one_text_can_be_used(expression: str) -> None:
    assert why_not(expression) is None


REFUSED = [
    ("1", "says the same of every answer"),
    ("regexp_extract(txt, 'a')", "names the column 'txt'; there is only `text`"),
    ("answers", "there is only `text`"),
    ('"#" || text', "there is only `text`"),
    ("text || (SELECT 1)", "has a subquery"),
    ("text IN (SELECT content FROM read_text('/etc/hostname'))", "has a subquery"),
    ("EXISTS (FROM read_csv('https://127.0.0.1:9/x')) OR text = ''", "has a subquery"),
    ("count(text)", "aggregates are not allowed"),
    ("row_number() OVER (ORDER BY text)", "has a window"),
    ("COLUMNS(*)", "has a star"),
    ("text || ?", "has a parameter"),
    ("list_transform([text], lambda x: x)", "has a lambda"),
    ("text -> 'a'", "`->>` gives a text"),
    ("text || random()", "uses the function random"),
    ("text || now()", "uses the function now"),
    ("text || version()", "uses the function version"),
    ("text || current_setting('home_directory')", "uses the function current_setting"),
    ("repeat(text, 1000000000)", "uses the function repeat"),
    ("len(range(length(text) * 1000000))", "uses the function range"),
    ("levenshtein(text, text)", "uses the function levenshtein"),
    ("json_serialize_sql(text)", "uses the function json_serialize_sql"),
    ("no_such(text)", "Scalar Function with name no_such does not exist"),
    ("read_text(text)", "table function"),
    ("text, 1", "not a text"),
    ("[text]", "gives VARCHAR[], not a text"),
    ("CAST(text AS DATE)", "gives DATE, not a text"),
    ("regexp_extract(text, '(')", "missing )"),
    ("CAST(text AS TIMESTAMPTZ) - INTERVAL 1 DAY", "depends on where it is read"),
    ("(text::timestamp with time zone)::VARCHAR", "depends on where it is read"),
    ("text AS label", "is not SQL"),
    ("text) FROM (SELECT 1", "is not one expression"),
    ("text FROM read_text('/etc/hostname'", "is not SQL"),
    ("CASE text", "is not SQL"),
]


@pytest.mark.parametrize(("expression", "message"), REFUSED)
def test_what_sees_more_than_one_text_or_gives_no_value_is_refused(expression: str, message: str) -> None:
    """No table, file, network, setting, clock, chance, and nothing that makes much out of little."""
    assert message in (why_not(expression) or "")


def test_a_score_must_be_a_number() -> None:
    assert why_not("text = 'a'", is_number=True) == "gives BOOLEAN, not a number"
    assert why_not(NUMBER, is_number=True) is None


def test_an_error_is_that_text_s_alone() -> None:
    """A cast that fails, odd characters, and a text over the bound say nothing of the others; order is kept."""
    by = {"score": NUMBER, "label": "text ->> 'a'", "explanation": "text"}
    texts = [
        '{"a": "x"}',
        "Score: 3",
        "",
        "Score: 12" + " " * TEXT_MAX_CHARS,
        "\0 Score: 7 \ud800",
        "Score: 99999999999",
    ]
    assert evaluate(by, texts) == [
        {"label": "x", "explanation": texts[0]},
        {"score": "3", "explanation": texts[1]},
        {"explanation": ""},
        None,
        {"score": "7", "explanation": "\0 Score: 7 ?"},
        {"explanation": texts[5]},
    ]
    assert evaluate(by, []) == []
    many = [f"Score: {n}" for n in range(5_000)]
    assert [row and row["score"] for row in evaluate({"score": NUMBER}, many)] == [str(n) for n in range(5_000)]


def test_an_error_that_stops_the_engine_takes_no_other_text_with_it() -> None:
    """DuckDB cannot turn every failure on one row into NULL."""
    texts = ["a%", "abc!", "abc", "%!"]
    found = evaluate({"label": "'abc' LIKE text ESCAPE '!'"}, texts)
    assert found[::2] == [{"label": "true"}] * 2
    assert all(row in (None, {"label": "false"}) for row in found[1::2])  # DuckDB 2 stops where 1.5 says false


def test_time_that_is_up_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers that nobody read are not counted as unparsed."""
    monkeypatch.setattr(expressions, "WITHIN_S", 0.0)
    with pytest.raises(UsageError, match="did not read 2 answers within 0 s"):
        evaluate({"label": "text"}, ["a", "b"])


def test_sql_that_this_engine_cannot_run_reads_nothing_silently() -> None:
    """What another DuckDB once accepted is an error, not thousands of unparsed answers."""
    with pytest.raises(UsageError, match="does not exist"):
        evaluate({"label": "no_such_function(text)"}, ["a", "b"])


def test_nothing_is_left_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No spill file, no database, wherever the program stands."""
    monkeypatch.chdir(tmp_path)
    evaluate({"label": "text"}, ["a"] * 3_000)
    assert os.listdir(tmp_path) == []


def rule(**fields: str) -> PromptsRule:
    """Return a rule of the form sql."""
    more = {"words": {"yes": "first", "no": "second"}} if "verdict" in fields else {}
    return PromptsRule(form="sql", fields=fields, **more, score_max=10.0)


@pytest.mark.parametrize(
    ("by", "values", "judgment"),
    [
        (rule(verdict="text"), {"verdict": " YES "}, Judgment("first", Outcome.DECIDED)),
        (rule(verdict="text"), {"verdict": "maybe"}, Judgment(None, Outcome.UNPARSED)),
        (rule(verdict="text"), {}, Judgment(None, Outcome.UNPARSED)),
        (rule(score="text"), {"score": "4.5"}, Judgment(None, Outcome.DECIDED, score=4.5)),
        (rule(score="text"), {"score": "11"}, Judgment(None, Outcome.UNPARSED)),
        (rule(score="text", label="text"), {"score": "1"}, Judgment(None, Outcome.UNPARSED)),
        (rule(label="text", confidence="text"), {"label": "a", "confidence": "80%"},
         Judgment(None, Outcome.DECIDED, "a", confidence=0.8)),
        (rule(label="text"), None, Judgment(None, Outcome.UNPARSED)),
    ],
)  # fmt: skip
def test_values_are_read_as_all_rules_read_them(
    by: PromptsRule, values: dict[str, str] | None, judgment: Judgment
) -> None:
    """What was asked for must be there and mean something; no judgment is half there."""
    assert by.read_values(answered("anything"), values) == judgment


ASK = '[[stages.templates]]\nid = "ask"\ntext = "{INPUT} Answer in a sentence."\n'


def sql_study(score: str = "length(text)", label: str = "regexp_extract(text, '^[A-Z]')") -> str:
    """Return a study of free prompts whose answers are read by SQL."""
    answer = f"[stages.answer]\nform = \"sql\"\n[stages.answer.fields]\nscore = '''{score}'''\nlabel = '''{label}'''\n"
    tail = f"---{answer}{ASK}{models('gpt-4.1-mini')}"
    return 'study = "demo"\n' + stage("main", "prompts", 'path = "questions.csv"', tail)


def test_a_study_is_read_by_its_sql(tmp_path: Path) -> None:
    """Dropped judgments come back the same, another expression reads what is there, and nothing is asked again."""
    rig = StageRig(tmp_path, toml=sql_study(), n_inputs=6)
    rig.plan()
    rig.submit()
    rig.finish()
    facts = "select outcome, score, label, text from results order by slot"
    found = rig.ask(facts)
    assert [row["outcome"] for row in found] == ["decided"] * 6
    assert all((row["score"], row["label"]) == (len(row["text"]), row["text"][0]) for row in found)
    n_posts = rig.wire.n_create_posts
    shutil.rmtree(rig.lake / "judgments")
    rig.sync()
    assert rig.ask(facts) == found
    rig.write(sql_study(score="CASE WHEN length(text) % 2 = 0 THEN CAST('x' || text AS INTEGER) ELSE 1 END"))
    rig.plan()
    rig.sync()
    again = rig.ask(facts)
    odd = [row for row in again if len(row["text"]) % 2]
    assert {(row["outcome"], row["score"]) for row in odd} <= {("decided", 1.0)}
    assert {(row["outcome"], row["score"]) for row in again if row not in odd} <= {("unparsed", None)}
    assert [row["text"] for row in again] == [row["text"] for row in found]
    assert rig.wire.n_create_posts == n_posts
    assert rig.violations() == []


def test_answers_that_could_not_be_read_are_read_by_a_later_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the same pass read those of another batch."""
    words = f'---[stages.answer]\nform = "regex"\npattern = "^(?P<label>[A-Z])"\n{ASK.replace("a sentence", "words")}'
    other = stage("other", "prompts", 'path = "questions.csv"', words + models("gpt-5.4-mini"))
    rig = StageRig(tmp_path, toml=sql_study() + other, n_inputs=6)
    rig.plan()
    rig.submit()
    rig.finish()
    facts = "select stage, outcome, score, label from results order by all"
    found = rig.ask(facts)
    assert [row["outcome"] for row in found] == ["decided"] * 12
    shutil.rmtree(rig.lake / "judgments")
    with monkeypatch.context() as patch:
        patch.setattr(expressions, "WITHIN_S", 0.0)
        assert rig.sync().counts.n_read_again == 1
    assert any("did not read 6 answers within 0 s" in note for note in rig.notes)
    assert rig.sync().counts.n_read_again == 1
    assert rig.ask(facts) == found


def test_plan_refuses_sql_that_could_read_nothing(tmp_path: Path) -> None:
    """The error names the file and the key before anything is written."""
    rig = StageRig(tmp_path, toml=sql_study(score="text = 'yes'"))
    with pytest.raises(StudyError, match=r"study\.toml.*answer\.fields\.score gives BOOLEAN, not a number") as caught:
        study.load(rig.study_path)
    assert "one DuckDB expression over an answer's `text`" in (caught.value.hint or "")
