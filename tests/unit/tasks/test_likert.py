"""Reading a rating: on the scale, or not at all."""

from __future__ import annotations

import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpond.errors import StudyError
from batchpond.model import Finish, Outcome
from batchpond.tasks.base import Judgment
from batchpond.tasks.likert import LikertRule
from tests.rigs.task import answered, rule_of

RULE = LikertRule()
LINE = LikertRule(form="line")
BARE = LikertRule(form="line", prefix="", minimum=-3, maximum=3)
UNPARSED = Judgment(None, Outcome.UNPARSED)
AMBIGUOUS = Judgment(None, Outcome.AMBIGUOUS)


def rated(score: float, explanation: str | None = None) -> Judgment:
    """Return a rating."""
    return Judgment(None, Outcome.DECIDED, score=score, explanation=explanation)


@pytest.mark.parametrize(
    ("text", "judgment"),
    [
        ('{"rating": 4, "explanation": "good"}', rated(4, "good")),
        ('```\n{"rating": "5"}\n```', rated(5)),
        ('{"rating": 3.0}', rated(3)),
        ('{"rating": "4/5"}', rated(4)),
        ('{"rating": " 4 out of 5 "}', rated(4)),
        ('{"rating": "4/10"}', UNPARSED),
        ('{"rating": 1} no: {"rating": 2}', AMBIGUOUS),
        ('{"rating": "1-5"} then {"rating": 2}', rated(2)),
        ('{"rating": null, "explanation": "no"}', Judgment(None, Outcome.UNSURE, explanation="no")),
        # SpecEval turns every failure into the rating 0, which is on no scale.
        ('{"rating": 0}', UNPARSED),
        ('{"rating": 6}', UNPARSED),
        ('{"rating": 3.5}', UNPARSED),
        ('{"rating": true}', UNPARSED),
        ('{"rating": "four"}', UNPARSED),
        ('{"rating": 1e400}', UNPARSED),
        ("4", UNPARSED),
    ],
)
def test_ratings_in_json(text: str, judgment: Judgment) -> None:
    """Outside the scale is unparsed; nothing is rounded."""
    assert RULE.read(answered(text)) == judgment


@pytest.mark.parametrize(
    ("text", "rule", "judgment"),
    [
        ("Good.\n**Rating:** 4", LINE, rated(4)),
        ("rating: [3].", LINE, rated(3)),
        ("- Rating: 3/5", LINE, rated(3)),
        ("Rating: 2 out of 5", LINE, rated(2)),
        ("Rating: 4 because", LINE, UNPARSED),
        ("Rating: <4", LINE, UNPARSED),
        ("Rating: 4\nRating: 5", LINE, AMBIGUOUS),
        ("4", LINE, UNPARSED),
        ("2", BARE, rated(2)),
        ("It is\n -3 \n", BARE, rated(-3)),
        ("+2", BARE, rated(2)),
        # A bullet or a minus? With a scale that has both signs nobody can tell, so it is read as it is written.
        ("- 3", BARE, rated(-3)),
        ("4", BARE, UNPARSED),
    ],
)
def test_ratings_on_a_line(text: str, rule: LikertRule, judgment: Judgment) -> None:
    """The number stands alone after the prefix."""
    assert rule.read(answered(text)) == judgment


def test_the_last_line_of_a_cut_text_is_not_read() -> None:
    """`Rating: 1` may be the beginning of `Rating: 10`."""
    rule = LikertRule(form="line", maximum=10)
    assert rule.read(answered("Rating: 1", Finish.LENGTH)) == Judgment(None, Outcome.TRUNCATED)
    assert rule.read(answered("Rating: 1\n", Finish.LENGTH)) == rated(1)


@pytest.mark.parametrize(
    "rule",
    [
        LikertRule(minimum=5, maximum=5),
        LikertRule(minimum=0.5),
        LikertRule(form="number"),
        LikertRule(key="explanation"),
        LikertRule(prefix="Rating 1:"),
    ],
)
def test_scales_without_room_are_refused(rule: LikertRule) -> None:
    """And so is what could not be read by them."""
    with pytest.raises(StudyError, match=r"^answer"):
        rule.check("answer")


def test_whole_and_broken_bounds_are_one_rule() -> None:
    """1 and 1.0 in a study file have one name."""
    assert rule_of("likert", minimum=0, maximum=10).parser_id == LikertRule(minimum=0.0, maximum=10.0).parser_id
    assert (
        LikertRule(minimum=0.0, maximum=1.0, is_whole=False)
        .values()["ANSWER_FORMAT"]
        .endswith('"rating": a number from 0 to 1}')
    )
    assert LINE.values()["ANSWER_FORMAT"] == "Rating: <a whole number from 1 to 5>"
    assert LINE.output_schema() is None


@given(st.floats(-10, 10), st.booleans())
def test_a_rating_is_kept_or_left_out_but_never_changed(value: float, is_whole: bool) -> None:
    """What is on the scale comes back exactly."""
    rule = LikertRule(is_whole=is_whole)
    document = {"explanation": "", "rating": value}
    score = rule.read(answered(json.dumps(document))).score
    is_valid = 1 <= value <= 5 and (value.is_integer() or not is_whole)
    assert score == (value if is_valid else None)
    if is_valid:
        jsonschema.validate(document, rule.output_schema() or {})
