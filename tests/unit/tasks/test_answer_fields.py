"""Many fields in one answer: each is read at its own place, has its own outcome, and loses nothing but itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpond.errors import StudyError
from batchpond.model import Finish, Outcome, Response
from batchpond.tasks import registry
from batchpond.tasks.answer_fields import FieldsRule
from batchpond.tasks.base import Judgment
from batchpond_sim.judges.speech import schema_problem
from tests.rigs.task import ANY_TEXT, FAILURES, answered, check_judgment, responses, rule_of

DECIDED = Outcome.DECIDED
UNPARSED, AMBIGUOUS = Judgment(None, Outcome.UNPARSED), Judgment(None, Outcome.AMBIGUOUS)


def fields(task: str, *settings: dict[str, Any]) -> FieldsRule:
    """Return the rule of many fields."""
    found = rule_of(task, fields=list(settings))
    assert isinstance(found, FieldsRule)
    return found


ITEM = fields(
    "prompts",
    {"name": "ok", "kind": "verdict", "tag": "OK"},
    {"name": "clarity", "kind": "score", "range": [1, 5], "explanation": "/why"},
    {"name": "grade", "kind": "score", "pointer": "/more/grade", "range": [0.0, 1.0], "is_whole": False},
    {"name": "tone", "kind": "label", "labels": ["Warm", "cold"], "pointer": "/more/tone"},
    {"name": "note", "kind": "text", "tag": "NOTE"},
    {"name": "errors", "kind": "list"},
    {"name": "length", "kind": "score", "regex": r"(?m)^Length: (?P<value>\d+)"},
)
PAIR = fields(
    "pairwise",
    {"name": "clarity", "kind": "verdict"},
    {"name": "depth", "kind": "graded", "tag": "DEPTH"},
    {"name": "style", "kind": "verdict", "words": {"left": "first", "right": "second 3", "n/a": "not_applicable"}},
)
BOTH = [*ITEM.parts.values(), *PAIR.parts.values()]
GOOD = (
    '{"clarity": 4, "why": "short words", "more": {"tone": "warm", "grade": 0.25}, "errors": ["one", "two"]}\n'
    "<OK>true</OK>\n<note> it\nholds </note>\nLength: 12\n"
)


def read(rule: FieldsRule, text: str, finish: Finish = Finish.STOP) -> dict[str, Judgment]:
    """Return what both readers say of each field, which is the same here."""
    response = answered(text, finish)
    found = {name: part.read(response) for name, part in rule.parts.items()}
    assert found == {name: part.read_with_care(response) for name, part in rule.parts.items()}
    return found


ALL = {
    "ok": Judgment("true", DECIDED),
    "clarity": Judgment(None, DECIDED, score=4.0, explanation="short words"),
    "grade": Judgment(None, DECIDED, score=0.25),
    "tone": Judgment(None, DECIDED, "Warm"),
    "note": Judgment(None, DECIDED, explanation="it\nholds"),
    "errors": Judgment(None, DECIDED, score=2.0, explanation='["one", "two"]'),
    "length": Judgment(None, DECIDED, score=12.0),
}


def test_each_field_is_read_at_its_own_place() -> None:
    assert read(ITEM, GOOD) == ALL


@pytest.mark.parametrize(
    ("old", "new", "name", "judgment"),
    [
        ('"clarity": 4', '"clarity": 6', "clarity", UNPARSED),
        ('"clarity": 4', '"clarity": "4/5"', "clarity", ALL["clarity"]),
        ('"clarity": 4', '"clarity": 4, "clarity": 5', "clarity", AMBIGUOUS),
        ('"clarity": 4', '"clarity": null', "clarity", UNPARSED),
        ('"tone": "warm"', '"tone": "hot"', "tone", UNPARSED),
        ('"grade": 0.25', '"grade": []', "grade", UNPARSED),
        ('["one", "two"]', "[]", "errors", Judgment(None, DECIDED, score=0.0, explanation="[]")),
        ('["one", "two"]', '[1, ["two"]]', "errors", UNPARSED),
        ("<OK>true</OK>", "<OK>perhaps</OK>", "ok", UNPARSED),
        ("<OK>true</OK>", "<OK>true</OK><ok> FALSE </ok>", "ok", AMBIGUOUS),
        ("<OK>true</OK>", "", "ok", UNPARSED),
        ("<note> it\nholds </note>", "<NOTE>a</NOTE> <NOTE>b</NOTE>", "note", AMBIGUOUS),
        ("Length: 12", "Length: 12\nLength: 13", "length", AMBIGUOUS),
    ],
)
def test_a_field_that_cannot_be_read_loses_only_itself(old: str, new: str, name: str, judgment: Judgment) -> None:
    assert old in GOOD
    assert read(ITEM, GOOD.replace(old, new)) == {**ALL, name: judgment}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"clarity": "SAMPLE_1", "style": "left"}<DEPTH>A>>B</DEPTH>', ["first None", "first 2.0", "first None"]),
        (
            '{"clarity": "sample_2", "style": "Right"}<DEPTH>B &gt; A</DEPTH>',
            ["second None", "second 1.0", "second 3.0"],
        ),
        ('{"clarity": "tie", "style": "left"} <depth> **[[A=B]]** </depth>', ["tie None", "tie 0.0", "first None"]),
    ],
)
def test_a_verdict_keeps_its_strength_as_a_score(text: str, said: list[str]) -> None:
    found = read(PAIR, text)
    assert [f"{one.verdict} {one.score}" for one in found.values()] == said
    assert all((one.outcome is Outcome.TIE) == (one.verdict == "tie") for one in found.values())


def test_a_word_may_mean_that_both_are_bad() -> None:
    """A tie whose label says so, with its strength; of one item no word can."""
    words = {"left": "first", "right": "second", "neither": "both_bad 2"}
    rule = fields("pairwise", {"name": "clarity", "kind": "verdict", "words": words})
    assert read(rule, '{"clarity": "neither"}')["clarity"] == Judgment("tie", Outcome.TIE, "both_bad", 2.0)
    assert "-kinds-" in rule.parts["clarity"].parser_id
    assert "-kinds-" not in PAIR.parts["clarity"].parser_id
    with pytest.raises(StudyError, match="both_bad"):
        fields("prompts", {"name": "ok", "kind": "verdict", "words": {"neither": "both_bad"}}).check("answer")


def test_a_pair_has_no_truth_and_a_word_may_say_that_there_is_no_answer() -> None:
    found = read(PAIR, '{"clarity": true, "style": "N/A"}')
    assert (found["clarity"], found["style"]) == (UNPARSED, Judgment(None, Outcome.NOT_APPLICABLE))


def test_of_a_text_that_was_cut_what_is_complete_is_read() -> None:
    cut = Judgment(None, Outcome.TRUNCATED)
    found = read(ITEM, GOOD.partition("</note>")[0], Finish.LENGTH)
    assert found == {**ALL, "note": cut, "length": cut}
    assert read(ITEM, "Length: 1", Finish.LENGTH)["length"] == cut


def test_a_failure_is_the_outcome_of_all_fields() -> None:
    for failed, outcome in FAILURES:
        assert {part.read(failed(GOOD)) for part in ITEM.parts.values()} == {Judgment(None, outcome)}


def test_the_second_reader_reads_no_thoughts() -> None:
    text = f"<think><OK>false</OK></think>{GOOD}"
    assert ITEM.parts["ok"].read_with_care(answered(text)) == ALL["ok"]
    assert ITEM.parts["ok"].read(answered(text)) == AMBIGUOUS


@given(st.data())
def test_readers_are_total(data: st.DataObject) -> None:
    """Any response gives each field a judgment whose parts fit each other and can be stored."""
    pieces = st.one_of(
        ANY_TEXT, st.sampled_from([*GOOD.split(), GOOD, "[", '"\\ud800"', "NaN", "<DEPTH>", "1e999", "{"])
    )
    response: Response = data.draw(st.one_of(responses, st.lists(pieces).map(lambda found: answered(" ".join(found)))))
    for part in BOTH:
        check_judgment(part.read(response))
        check_judgment(part.read_with_care(response))


SAID = st.one_of(st.none(), st.booleans(), st.floats(), st.text(), st.lists(st.text()), st.just({"a": 1}))


@given(st.fixed_dictionaries({"clarity": SAID, "errors": SAID}))
def test_what_stands_at_one_place_is_nothing_to_another(odd: dict[str, Any]) -> None:
    """Whatever a judge writes for two fields as valid JSON, the third is read."""
    text = json.dumps({**odd, "more": {"tone": "cold", "grade": 1}}, allow_nan=True)
    found = read(ITEM, text)
    assert found["tone"] == Judgment(None, DECIDED, "cold")
    assert found["grade"] == Judgment(None, DECIDED, score=1.0)


def test_a_stored_rule_reads_like_the_written_one() -> None:
    for rule in (ITEM, PAIR):
        assert registry.rule_of(json.loads(json.dumps(rule.to_spec()))) == rule
        for part in rule.parts.values():
            again = registry.rule_of(json.loads(json.dumps(part.to_spec())))
            assert (again, again.parser_id) == (part, part.parser_id)
            assert again.read(answered(GOOD)) == part.read(answered(GOOD))
    assert len({part.parser_id for part in BOTH}) == len(BOTH)


def test_the_form_names_every_field_and_its_reason_before_it() -> None:
    said = ITEM.values()["ANSWER_FORMAT"].splitlines()
    assert said[0].startswith(
        '{"why": your reason in one to three sentences: a text, "clarity": a whole number from 1 to 5'
    )
    assert '"more": {"grade": a number from 0 to 1, "tone": one of "Warm", "cold"}' in said[0]
    assert said[1:] == ['<OK>one of "true", "false"</OK>', "<NOTE>a text</NOTE>"]
    assert ITEM.output_schema() is None  # tags stand outside the JSON


def test_the_schema_follows_from_the_fields() -> None:
    """In their order and nested as they are, in the subset that providers take."""
    rule = fields(
        "prompts",
        {"name": "clarity", "kind": "score", "range": [1, 5], "explanation": "/why"},
        {"name": "ok", "kind": "verdict", "pointer": "/more/ok"},
        {"name": "errors", "kind": "list", "pointer": "/more/errors"},
    )
    schema = rule.output_schema()
    assert schema is not None
    assert schema_problem(schema) is None
    assert schema["required"] == ["why", "clarity", "more"]
    inside = schema["properties"]["more"]["properties"]
    assert (schema["properties"]["clarity"]["type"], inside["errors"]["type"]) == ("integer", "array")
    assert inside["ok"]["enum"] == ["true", "false"]


CLARITY = {"name": "clarity", "kind": "score", "range": [1, 5]}


@pytest.mark.parametrize(
    ("task", "settings", "message"),
    [
        ("likert", [CLARITY], 'tasks pairwise, ranking and prompts have them: in prompts `kind = "score"`'),
        ("prompts", [], "fields is empty"),
        ("prompts", [CLARITY, {**CLARITY, "name": "b", "pointer": "/Clarity"}], "at the place of clarity"),
        ("prompts", [CLARITY, {**CLARITY, "pointer": "/b"}], "one name twice"),
        ("prompts", [CLARITY, {"name": "b", "kind": "text", "pointer": "/clarity/b"}], "at the place of clarity/b"),
        ("prompts", [CLARITY, {"name": "b", "kind": "score", "explanation": "/clarity"}], "at the place of clarity"),
        ("prompts", [{"name": "a b", "kind": "text"}], "does not have the form"),
        ("prompts", [{"name": "a", "kind": "stars"}], "not one of verdict, graded, score, label, text, list"),
        ("prompts", [{"name": "a", "kind": "graded"}], "two are compared"),
        ("pairwise", [CLARITY], "not one of verdict, graded"),
        ("prompts", [{**CLARITY, "labels": ["a"]}], "labels has no meaning for the kind score"),
        ("prompts", [{**CLARITY, "range": [5, 1]}], "has no room"),
        ("prompts", [{**CLARITY, "range": [1]}], "has 1 entries"),
        ("prompts", [{**CLARITY, "tag": "A", "regex": "(?P<value>a)"}], "more than one place"),
        ("prompts", [{**CLARITY, "tag": "A", "explanation": "/why"}], "stands outside JSON"),
        ("prompts", [{**CLARITY, "tag": "<A>"}], "not the name of a tag"),
        ("prompts", [{**CLARITY, "regex": "(?P<score>a)"}], "has no group 'value'"),
        ("prompts", [{**CLARITY, "regex": "(?P<value>a"}], "not a regular expression"),
        ("prompts", [{**CLARITY, "pointer": "clarity"}], "no JSON pointer"),
        ("prompts", [{**CLARITY, "pointer": "/a/0"}], "leads into a list"),
        ("pairwise", [{"name": "a", "kind": "verdict", "words": {"x": "true"}}], "a word means first"),
        ("pairwise", [{"name": "a", "kind": "verdict", "words": {"x": "first much"}}], "a word means first"),
        ("pairwise", [{"name": "a", "kind": "verdict", "words": {"x y": "first", "XY": "tie"}}], "one word twice"),
        ("prompts", [{"name": "a", "kind": "label", "labels": ["x", "X"]}], "blank, or twice"),
        ("prompts", [{**CLARITY, "rang": [1, 5]}], "did you mean `range`"),
    ],
)
def test_what_could_not_be_read_is_refused(task: str, settings: list[dict[str, Any]], message: str) -> None:
    """Before anything is asked, with what to do."""
    with pytest.raises(StudyError) as caught:
        rule_of(task, fields=settings)
    assert message in f"{caught.value} {caught.value.hint}"
    assert str(caught.value).startswith("study.toml: answer")
