"""Reading a ranking judge: one line decides, and what SpecEval counted as ties keeps its own name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpond.errors import StudyError
from batchpond.model import Finish, Outcome, Verdict
from batchpond.tasks import registry
from batchpond.tasks.base import Judgment
from batchpond.tasks.ranking import RankingRule, parse_speceval
from tests.rigs.task import ANY_TEXT, answered

RULE = RankingRule()
A = Judgment(Verdict.FIRST, Outcome.DECIDED)
B = Judgment(Verdict.SECOND, Outcome.DECIDED)
TIE = Judgment(Verdict.TIE, Outcome.TIE)
NOT_APPLICABLE = Judgment(None, Outcome.NOT_APPLICABLE)
UNSURE = Judgment(None, Outcome.UNSURE)
UNPARSED = Judgment(None, Outcome.UNPARSED)
AMBIGUOUS = Judgment(None, Outcome.AMBIGUOUS)
EMPTY = Judgment(None, Outcome.EMPTY)


@pytest.mark.parametrize(
    ("text", "speceval", "ours"),
    [
        # What both read alike.
        ("Model: A", 1, A),
        ("Model: B", -1, B),
        ("model: b\n", -1, B),
        ("Both try.\nModel: B\nBecause it says so.", -1, B),
        ("Model: equal", 0, TIE),
        # SpecEval's 0 is a tie; here each reason has its name.
        ("Model: N/A", 0, NOT_APPLICABLE),
        ("Model: unsure", 0, UNSURE),
        ("", 0, EMPTY),
        (None, 0, EMPTY),
        ("ERROR: 500: overloaded", 0, UNPARSED),
        ("A", 0, UNPARSED),
        ("I think Model: A", 0, UNPARSED),
        # SpecEval reads a tie out of markup; here markup is no obstacle.
        ("**Model: A**", 0, A),
        ("Model: {A}", 0, A),
        ("Model: {{B}}.", 0, B),
        ("**Model:** `B`", 0, B),
        ("- Model: 'equal'", 0, TIE),
        ("> Model: \u201cN/A\u201d", 0, NOT_APPLICABLE),
        # SpecEval reads a choice that was not made.
        ("Model: a better", 1, UNPARSED),
        ("Model: A and B are equal", 1, UNPARSED),
        ("Model: A or B", 1, UNPARSED),
        ("Model: A\nModel: B", 1, AMBIGUOUS),
        ("Model: A, B, equal, N/A, or unsure", 1, UNPARSED),
        # White space over several lines is one answer only to SpecEval.
        ("Model:\n\nA", 1, UNPARSED),
        ("Model: A\nModel: A.", 1, A),
        ("Model: An essay", 0, UNPARSED),
        ("Model A", 0, UNPARSED),
    ],
)
def test_the_table_of_speceval(text: str | None, speceval: int, ours: Judgment) -> None:
    """The compatible reader equals the original on these texts; ours says what it does differently."""
    assert parse_speceval(text) == speceval
    assert RULE.read(answered(text)) == ours


def test_the_last_line_of_a_cut_text_is_not_read() -> None:
    """It may have gone on; the lines before it did not."""
    assert RULE.read(answered("Model: A", Finish.LENGTH)) == Judgment(None, Outcome.TRUNCATED)
    assert RULE.read(answered("Model: A\n", Finish.LENGTH)) == A
    assert RULE.read(answered("Model: A\nsince", Finish.LENGTH)) == A


WORDS = ["A", "B", "equal", "N/A", "unsure"]
prose = st.text(st.characters(exclude_characters=":")).map(lambda text: text + "\n")


@given(prose, st.sampled_from(WORDS), prose, st.sampled_from(["{}", "**{}**", "> {}", "`{}`.", '"{}"', "  {}\t"]))
def test_one_line_decides_in_any_prose(before: str, word: str, after: str, frame: str) -> None:
    """Prose on other lines never changes an answer."""
    text = before + frame.format(f"Model: {word}") + "\n" + after
    expected = {"A": A, "B": B, "equal": TIE, "N/A": NOT_APPLICABLE, "unsure": UNSURE}
    assert RULE.read(answered(text)) == expected[word]


@given(ANY_TEXT, st.permutations(WORDS), ANY_TEXT)
def test_two_answers_are_never_decided(between: str, words: list[str], after: str) -> None:
    """Whatever stands between them."""
    text = f"Model: {words[0]}\n{between}\nModel: {words[1]}\n{after}"
    assert RULE.read(answered(text)) == AMBIGUOUS


def test_words_can_be_chosen() -> None:
    """A study's own words are read like the built-in ones."""
    rule = RankingRule("<better>", "answer one", "answer two", "same", "off topic", "?")
    rule.check("answer")
    assert rule.values()["ANSWER_FIRST"] == "<better> answer one"
    assert rule.read(answered("<BETTER> Answer Two")) == B
    assert rule.read(answered("*<better> ?*")) == UNSURE
    assert rule.read(answered("Model: A")) == UNPARSED


@pytest.mark.parametrize(
    "rule",
    [
        RankingRule(prefix=" ** "),
        RankingRule(first="{}"),
        RankingRule(first="a", second="A"),
        RankingRule(first="A", second="[A]"),
        RankingRule(tie=" "),
    ],
)
def test_words_that_cannot_be_told_apart_are_refused(rule: RankingRule) -> None:
    """Case and markup are not read, so they make no difference."""
    with pytest.raises(StudyError, match=r"^study\.toml: answer"):
        rule.check("study.toml: answer")


def test_a_tie_may_say_why_where_there_are_words_for_it() -> None:
    """It is a tie whose label says which; without the word the line is no answer, and the rule is as it was."""
    rule = RankingRule(both_good="both good", both_bad="both bad")
    rule.check("answer")
    for read in (rule.read, rule.read_with_care):
        assert read(answered("Model: both bad")) == TIE._replace(label="both_bad")
        assert read(answered("Model: equal")) == TIE
    assert RULE.read(answered("Model: both bad")) == UNPARSED
    assert rule.values()["ANSWER_BOTH_GOOD"] == "Model: both good"
    assert "ANSWER_BOTH_GOOD" not in RULE.placeholders.optional
    assert registry.rule_of(rule.to_spec()) == rule
    assert registry.rule_of(RULE.to_spec()) == RULE
    assert RULE.to_spec().keys().isdisjoint({"both_good", "both_bad"})
