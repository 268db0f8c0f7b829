"""Free prompts: read by the study's own pattern or pointers, checked before money is spent."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpond.errors import StudyError
from batchpond.model import Outcome
from batchpond.tasks.base import Judgment
from batchpond.tasks.prompts import TEXT_MAX_CHARS, Pattern, PromptsRule
from tests.rigs.task import answered, rule_of, seconds

UNPARSED = Judgment(None, Outcome.UNPARSED)
AMBIGUOUS = Judgment(None, Outcome.AMBIGUOUS)


def rule(**settings: Any) -> PromptsRule:
    """Return a rule as a study describes it."""
    found = rule_of("prompts", **settings)
    assert isinstance(found, PromptsRule)
    return found


WINNER = rule(
    pattern=r"(?im)^winner: (?P<verdict>\w+)(?: \((?P<confidence>[\d.]+%?)\))?$",
    words={"left": "first", "right": "second", "neither": "tie", "skip": "not_applicable"},
)
SCORE = rule(pattern=r"score=(?P<score>[-\d.]+)", score_min=0, score_max=10)
LABEL = rule(form="json", fields={"label": "/out/0/kind", "explanation": "/why"}, labels=["Spam", "ham"])
BOTH = rule(form="json", fields={"verdict": "/ok", "score": "/n"})


@pytest.mark.parametrize(
    ("by", "text", "judgment"),
    [
        (WINNER, "Winner: LEFT", Judgment("first", Outcome.DECIDED)),
        (WINNER, "so\nwinner: right (80%)\n", Judgment("second", Outcome.DECIDED, confidence=0.8)),
        (WINNER, "winner: right (7)", Judgment("second", Outcome.DECIDED)),
        (WINNER, "winner: neither", Judgment("tie", Outcome.TIE)),
        (WINNER, "winner: skip", Judgment(None, Outcome.NOT_APPLICABLE)),
        (WINNER, "winner: left\nwinner: right", AMBIGUOUS),
        (WINNER, "winner: left\nwinner: left (1)", Judgment("first", Outcome.DECIDED, confidence=1.0)),
        (WINNER, "winner: middle", UNPARSED),
        (WINNER, "winner: middle\nwinner: left", Judgment("first", Outcome.DECIDED)),
        (WINNER, "first", UNPARSED),
        (SCORE, "score=7.5", Judgment(None, Outcome.DECIDED, score=7.5)),
        (SCORE, "score=11", UNPARSED),
        (SCORE, "score=-", UNPARSED),
        (SCORE, "\x01score=3\x02", Judgment(None, Outcome.DECIDED, score=3.0)),
        (
            LABEL,
            'so: {"out": [{"Kind": " SPAM "}], "why": "ads"}',
            Judgment(None, Outcome.DECIDED, label="Spam", explanation="ads"),
        ),
        (LABEL, '{"out": [{"kind": "eggs"}]}', UNPARSED),
        (LABEL, '{"out": {"0": {"kind": "ham"}}}', Judgment(None, Outcome.DECIDED, label="ham")),
        (LABEL, '{"out": []}', UNPARSED),
        (BOTH, '{"ok": true, "n": 2}', Judgment("true", Outcome.DECIDED, score=2.0)),
        (BOTH, '{"ok": "false", "n": "2"}', Judgment("false", Outcome.DECIDED, score=2.0)),
        # Half an answer is none.
        (BOTH, '{"ok": true}', UNPARSED),
        (BOTH, '{"ok": null, "n": 2}', UNPARSED),
        (BOTH, '{"ok": true, "n": 2} {"ok": true, "n": 3}', AMBIGUOUS),
        (BOTH, '{"ok": true, "ok": false, "n": 1}', AMBIGUOUS),
    ],
)
def test_the_table_of_answers(by: PromptsRule, text: str, judgment: Judgment) -> None:
    """Named groups and pointers give verdict, label and score."""
    assert by.read(answered(text)) == judgment


def test_sql_alone_says_why_there_is_no_answer() -> None:
    """Its answers are read from the values that the lens evaluates."""
    by = rule(form="sql", fields={"score": "length(text) - length(replace(text, ';', ''))"})
    assert dict(by.expressions) == dict(by.fields)
    assert by.read(answered("a;b")) == UNPARSED
    assert by.read(answered("")) == Judgment(None, Outcome.EMPTY)
    assert by.read_values(answered("a;b"), {"score": "1"}) == Judgment(None, Outcome.DECIDED, score=1.0)
    assert by.read_values(answered(" "), {"score": "0"}) == Judgment(None, Outcome.EMPTY)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "needs `pattern`"),
        ({"form": "json"}, "needs `fields`"),
        ({"form": "json", "pattern": "(?P<score>a)"}, "needs `fields`"),
        ({"form": "xml", "pattern": "(?P<score>a)"}, "not one of regex, json, sql"),
        ({"pattern": "a", "fields": {"score": "/a"}}, "nothing else"),
        ({"pattern": r"ab(?P<score>\d+"}, "at character 3"),
        ({"pattern": "(?P<score>a)*+"}, "linear time"),
        ({"pattern": r"(\d+)"}, "no named group"),
        ({"pattern": r"(?P<confidence>\d+)"}, "neither verdict, label nor score"),
        ({"pattern": r"(?P<winner>A|B)"}, "'winner'"),
        ({"pattern": r"(?P<score>\d+)(?=x)"}, "linear time"),
        ({"pattern": r"(?P<score>a)\1"}, "linear time"),
        ({"pattern": r"(?P<score>a)(?P=score)"}, "linear time"),
        ({"pattern": "(?P<score>a)" + "(b)" * 9}, "more than 9 groups"),
        ({"pattern": "(?P<score>" + "a" * 3_000 + ")"}, "longer than 2,000"),
        ({"form": "json", "fields": {"scores": "/a"}}, "'scores'"),
        ({"form": "json", "fields": {"score": "a"}}, "no JSON pointer"),
        ({"form": "json", "fields": {"score": "/a~2"}}, "no JSON pointer"),
        ({"form": "sql", "fields": {"score": "1; drop table raw"}}, "one SQL expression"),
        ({"form": "sql", "fields": {"score": "1 -- "}}, "one SQL expression"),
        ({"form": "sql", "fields": {"score": "1) from (select 1"}}, "one SQL expression"),
        ({"form": "sql", "fields": {"score": "(1"}}, "not a complete"),
        ({"form": "sql", "fields": {"score": "'a"}}, "not a complete"),
        ({"form": "sql", "fields": {"score": " "}}, "not a complete"),
        ({"pattern": "(?P<verdict>a)", "words": {"a": "wins"}}, "'wins'"),
        ({"pattern": "(?P<verdict>a)", "words": {"a": "tie", "A": "first"}}, "twice"),
        ({"pattern": "(?P<score>a)", "score_min": 1, "score_max": 1}, "below score_max"),
        ({"pattern": "(?P<label>a)", "labels": [" a"]}, "padded"),
    ],
)
def test_what_could_never_be_read_is_refused_at_plan_time(settings: dict[str, Any], message: str) -> None:
    """Each fault is a StudyError that names the setting."""
    with pytest.raises(StudyError) as caught:
        rule(**settings)
    assert message in f"{caught.value} {caught.value.hint}"
    assert str(caught.value).startswith("study.toml: answer")


def test_quoted_semicolons_are_text() -> None:
    """Only what could end the expression is refused."""
    expression = """case when text like '%;--(%' then 'it''s' else "text" end"""
    assert rule(form="sql", fields={"label": expression}).fields == {"label": expression}


def test_a_catastrophic_pattern_is_quick() -> None:
    """What would take a backtracking engine longer than the universe has existed takes no time."""
    by = rule(pattern=r"(?P<label>(a+)+)$")
    assert seconds(lambda: by.read(answered("a" * (TEXT_MAX_CHARS - 1) + "b"))) < 1


def test_a_text_over_the_bound_is_not_half_read() -> None:
    """It is unparsed, even where its beginning matches."""
    assert SCORE.read(answered("score=3 " + " " * TEXT_MAX_CHARS)) == UNPARSED


@given(st.text(), st.text(st.characters(categories=["Ll"]), max_size=3))
def test_all_matches_are_those_of_python(text: str, word: str) -> None:
    """Within what both engines mean alike, marks in the text included."""
    pattern = r"(?P<label>[a-z]+)=(?P<score>[0-9]*)"
    text = f"{word}=1 {text} {word}=23"
    expected = [{k: v for k, v in m.groupdict().items() if v} for m in re.finditer(pattern, text)]
    assert Pattern(pattern).matches(text) == expected
