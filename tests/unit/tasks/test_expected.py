"""The expected score: exactly what the probabilities say, at the one token that decides, or none."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from batchpond.answers.derive import judge_of
from batchpond.errors import StudyError
from batchpond.model import Finish, Outcome, Response, Token
from batchpond.tasks import expected
from batchpond.tasks.base import Judgment, Rule
from batchpond.tasks.likert import LikertRule
from batchpond.tasks.pairwise import PairwiseRule
from tests.rigs.task import ANY_TEXT, FAILURES, answered, check_judgment, rule_of, seconds

FIVE = LikertRule(logprobs=True)
LINE = LikertRule(logprobs=True, form="line")
TEN = LikertRule(logprobs=True, form="line", minimum=1, maximum=10)
PAIR = PairwiseRule(logprobs=True)
LETTERS = PairwiseRule(prefix="Winner:", first="A", second="B", tie="C", suffix="", logprobs=True)


def tokens(*pieces: str | dict[str, float]) -> tuple[Token, ...]:
    """Return tokens; a table of probabilities is a token that may have been another, its first is what was said."""
    tables = [{piece: 1.0} if isinstance(piece, str) else piece for piece in pieces]
    return tuple(
        Token(next(iter(table)).encode(), tuple((text.encode(), math.log(share)) for text, share in table.items()))
        for table in tables
    )


def judged(rule: Rule, *pieces: str | dict[str, float], text: str | None = None) -> Judgment:
    """Return what is read of an answer by its tokens, by reader 2."""
    found = tokens(*pieces)
    text = b"".join(token.text for token in found).decode() if text is None else text
    return expected.read(rule, rule.read_with_care, answered(text)._replace(logprobs=found))


@given(
    st.lists(st.floats(0.01, 1), min_size=5, max_size=5),
    st.integers(1, 5),
    st.floats(0, 0.1),
    st.sampled_from([("{", '"rating": ', "}"), ("Because of 4 of 5 things.\n", "Rating: ", ""),
                     ('{"explanation": "5 is too much, 1 too little \u00fc", ', '"rating":', " }\n")]),
)  # fmt: skip
def test_it_is_the_sum_of_probability_times_score(
    weights: list[float], said: int, rest: float, around: tuple[str, str, str]
) -> None:
    """Whatever the distribution, renormalised over what is allowed; other numbers in the text do not matter."""
    shares = [weight * (1 - rest) / math.fsum(weights) for weight in weights]
    table = {str(said): shares[said - 1]} | {str(n): share for n, share in enumerate(shares, 1)}
    more = {"None": rest} if rest else {}
    found = judged(LINE if around[2] == "" else FIVE, around[0], around[1], table | more, around[2])
    assume(1 - rest >= expected.MASS_MIN + 1e-9)
    assert found.outcome is Outcome.DECIDED
    assert found.score == pytest.approx(math.fsum(n * w for n, w in enumerate(weights, 1)) / math.fsum(weights))
    assert found.confidence == pytest.approx(weights[said - 1] / math.fsum(weights))


def test_one_answer_in_several_forms_counts_once_by_all_of_them() -> None:
    """A token with white space or quotes is the same answer; one that is read as another number or none is not."""
    table = {"4": 0.5, " 4": 0.2, '"5"': 0.25, "4.5": 0.02, "-4": 0.01, "9": 0.01, "four": 0.01}
    assert judged(FIVE, '{"rating":', table, "}").score == pytest.approx((4 * 0.7 + 5 * 0.25) / 0.95)


@pytest.mark.parametrize(
    ("rule", "pieces", "why"),
    [
        (FIVE, ['{"rating": ', {"4": 0.6, "4.5": 0.4}, "}"], "0 of 3 tokens"),
        (FIVE, ['{"rating": ', {"4": 0.5, "5": 0.1, "?": 0.4}, "}"], "1 of 3 tokens"),
        (FIVE, ['{"rating": 4}'], "0 of 1 tokens"),
        (LINE, ["Rating: ", {"4": 0.6, "5": 0.4}, "\nRating: ", {"4": 0.9, "5": 0.1}], "0 of 4 tokens"),
        (TEN, ["Rating: ", "1", "0"], "0 of 3 tokens"),
        (TEN, ["Rating: ", {"1": 0.7, "2": 0.3}], "0 of 2 tokens"),
        (LINE, ["Rating: ", {"4": 0.9, "5": 0.9}], "1 of 2 tokens"),
        (PAIR, ["<BETTER_SAMPLE>", "SAMPLE_1</BETTER_SAMPLE>"], "0 of 2 tokens"),
    ],
)
def test_what_no_single_token_decides_is_unparsed_and_says_why(
    rule: Rule, pieces: list[str | dict[str, float]], why: str
) -> None:
    """Too little probability on what is allowed, or more than there is, a number inside a longer token, or said twice,
    or in two tokens; and a 1 that may have been the beginning of a 10."""
    found = judged(rule, *pieces)
    assert (found.outcome, found.score, found.confidence) == (Outcome.UNPARSED, None, None)
    assert (found.explanation or "").startswith(why)
    assert ("have 0.000 of" in (found.explanation or "")) == why.startswith("0 ")


def test_a_ten_is_told_from_a_one_where_it_is_a_token_of_its_own() -> None:
    found = judged(TEN, "Rating: ", {"1": 0.7, "10": 0.25, "2": 0.05})
    assert found.score == pytest.approx(0.7 + 2.5 + 0.1)
    assert judged(TEN, "Rating: ", {"10": 0.9, "9": 0.1}).score == pytest.approx(9.9)


@pytest.mark.parametrize("stop", ["", "<|eot_id|>", "\n"])
@pytest.mark.parametrize("thoughts", ["", "<think>It is 4, no, 3.</think>\n\n"])
def test_thoughts_before_the_text_and_a_token_for_its_end_are_no_part_of_it(thoughts: str, stop: str) -> None:
    """As servers send them whose answers begin with thoughts, of which the text is free."""
    pieces = [thoughts.replace("4", ""), "4" if thoughts else "", "Rating:", {" 4": 0.75, " 3": 0.25}, stop]
    assert judged(LINE, *pieces, text="Rating: 4").score == pytest.approx(3.75)


def test_tokens_of_another_text_decide_nothing() -> None:
    found = judged(LINE, "Rating: ", {"4": 0.9, "5": 0.1}, text="Rating: 5")
    without = expected.read(LINE, LINE.read_with_care, answered("Rating: 4"))
    assert [one.outcome for one in (found, without)] == [Outcome.UNPARSED, Outcome.UNPARSED]
    assert (without.explanation or "").startswith("0 of 0 tokens with log probabilities decide the answer")


def test_letters_cut_by_tokens_are_put_together() -> None:
    """A character in two tokens is whole in the text: tokens are bytes."""
    first, second = b"\xc3", b"\xbc Rating: no\nRating: "
    whole = (Token(first, ((first, 0.0),)), Token(second, ((second, 0.0),)), *tokens({"2": 0.96, "3": 0.04}))
    response = answered("\u00fc Rating: no\nRating: 2")._replace(logprobs=whole)
    assert expected.read(LINE, LINE.read_with_care, response).score == pytest.approx(2.04)


@pytest.mark.parametrize(
    ("rule", "pieces", "verdict", "score", "confidence"),
    [
        (PAIR, ["Well.\n<BETTER", "_SAMPLE>SAMPLE_", {"1": 0.8, "2": 0.2}, "</BETTER_SAMPLE>"], "first", 0.8, 0.8),
        (PAIR, ["<BETTER_SAMPLE>", {"SAMPLE_2": 0.75, "SAMPLE_1": 0.25}, "</BETTER_SAMPLE>"], "second", 0.25, 0.75),
        (LETTERS, ["A or B?\nWinner: ", {"C": 0.5, "A": 0.3, "B": 0.2}], "tie", 0.3 + 0.25, 0.5),
    ],
)
def test_a_verdict_has_its_probability_and_the_share_of_wins_of_the_first(
    rule: Rule, pieces: list[str | dict[str, float]], verdict: str, score: float, confidence: float
) -> None:
    found = judged(rule, *pieces)
    assert (found.verdict, found.score, found.confidence) == (
        verdict, pytest.approx(score), pytest.approx(confidence)
    )  # fmt: skip


def test_a_failure_keeps_its_name() -> None:
    for failed, outcome in FAILURES:
        response = failed("Rating: 4")._replace(logprobs=tokens("Rating: ", {"4": 0.9, "5": 0.1}))
        assert expected.read(LINE, LINE.read_with_care, response) == Judgment(None, outcome)


def places() -> st.SearchStrategy[tuple[Token, ...]]:
    """Return tokens of anything."""
    known = ["Rating", ":", " ", "4", "5", "10", "\n", '{"rating":', "}", "A", "SAMPLE_", "1"]
    texts = st.one_of(st.sampled_from(known), ANY_TEXT).map(lambda one: one.encode("utf-8", "replace"))
    text = texts | st.binary(max_size=4)
    choices = st.lists(st.tuples(text, st.floats(-1e4, 0)), max_size=4).map(tuple)
    return st.lists(st.builds(Token, text, choices), max_size=12).map(tuple)


@given(st.sampled_from([FIVE, LINE, TEN, PAIR, LETTERS]), places(), st.none() | ANY_TEXT, st.sampled_from(Finish))
@example(LINE, tokens("Rating: ", {"4": 1.0}), "Rating: 4", Finish.STOP)
def test_it_is_total_and_never_outside_the_scale(
    rule: Rule, found: tuple[Token, ...], text: str | None, finish: Finish
) -> None:
    """Any tokens give a judgment that can be stored, its score between the least and the largest allowed."""
    whole = b"".join(token.text for token in found).decode("utf-8", "replace")
    for shown in (text, whole):
        response = answered(shown, finish)._replace(logprobs=found)
        for read in (rule.read, rule.read_with_care):
            judgment = expected.read(rule, read, response)
            check_judgment(judgment)
            worth = rule.allowed.values()
            assert judgment.score is None or min(worth) - 1e-9 <= judgment.score <= max(worth) + 1e-9


def test_a_text_full_of_the_answers_number_takes_no_longer_than_its_length() -> None:
    """Beyond a bound of places nothing is looked at, so that no answer keeps a pass busy."""
    many = tokens(*["4 "] * 20_000, "\nRating: ", {"4": 0.9, "5": 0.1})
    response = answered("4 " * 20_000 + "\nRating: 4")._replace(logprobs=many)
    assert seconds(partial(expected.read, LINE, LINE.read_with_care, response)) < 2


def test_the_same_text_with_other_probabilities_is_read_anew() -> None:
    """A judge's answers are read once each, and what they came with is part of them."""
    judge = judge_of({**LINE.to_spec(), "read_by": 2})
    both: Iterable[Response] = [
        answered("Rating: 4")._replace(logprobs=tokens("Rating: ", {"4": share, "5": 1 - share}))
        for share in (0.5, 0.9)
    ]
    assert [one.score for one in judge([*both])] == pytest.approx([4.5, 4.1])


@pytest.mark.parametrize(
    ("task", "settings", "problem"),
    [
        ("likert", {"is_whole": False}, "scale of whole numbers"),
        ("likert", {"minimum": -1}, "scale of whole numbers from 0"),
        ("likert", {"maximum": 101}, "to at most 100"),
        ("pairwise", {"tie": "TIE"}, "differ in their last letter"),
        ("pairwise", {"first": "better", "second": "worse"}, "differ in their last letter"),
        ("pairwise", {"first": "SAMPLE_1", "second": "SAMPLE1"}, "differ in their last letter"),
        ("prompts", {"fields": [{"name": "a", "kind": "score", "logprobs": True}]}, "scale of whole numbers"),
        ("prompts", {"fields": [{"name": "a", "kind": "label", "logprobs": True}]}, "no meaning for the kind label"),
        ("compliance", {}, "not a known key"),
    ],
)
def test_answers_that_several_tokens_may_decide_are_refused(
    task: str, settings: dict[str, object], problem: str
) -> None:
    more = {} if "fields" in settings else {"logprobs": True}
    with pytest.raises(StudyError, match=problem):
        rule_of(task, **settings, **more)


def test_a_rule_without_it_is_kept_as_before() -> None:
    """Its name and its record in the lake are those that it had before there were any."""
    for rule in (LikertRule(), PairwiseRule()):
        assert "logprobs" not in rule.to_spec()
        assert type(rule).from_spec(rule.to_spec()) == rule
    for with_it in (FIVE, PAIR):
        assert type(with_it).from_spec(with_it.to_spec()) == with_it
        assert with_it.parser_id != type(with_it)().parser_id
