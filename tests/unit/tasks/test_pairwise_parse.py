"""Reading a pairwise judge's answer: exactly one tag decides, and every other case keeps its own name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpond.errors import LakeError, StudyError
from batchpond.model import Finish, Outcome, Response, ResponseStatus, Verdict
from batchpond.tasks import registry
from batchpond.tasks.base import Judgment
from batchpond.tasks.pairwise import PairwiseRule

RULE = PairwiseRule()
SWAPPED = PairwiseRule(first=RULE.second, second=RULE.first)
TIED = PairwiseRule(tie="TIE")
ONE, TWO = RULE.answers
ANY_TEXT = st.text(st.characters())  # lone surrogates included

pieces = st.lists(
    st.one_of(ANY_TEXT, st.sampled_from([ONE, TWO, ONE.lower(), "<BETTER_SAMPLE> SAMPLE_2\n</BETTER_SAMPLE>"]))
)
texts = pieces.map("".join)


def answered(text: str | None, finish: Finish | None = Finish.STOP, refusal: str | None = None) -> Response:
    """Return a successful response."""
    return Response("c", ResponseStatus.SUCCEEDED, finish=finish, text=text, refusal=refusal)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (ONE, Verdict.FIRST),
        (f"Both are good.\n{TWO}\n", Verdict.SECOND),
        (ONE + ONE, Verdict.FIRST),
        ("<BETTER_SAMPLE> SAMPLE_1\n</BETTER_SAMPLE>", Verdict.FIRST),
        ("<better_sample>sample_2</better_sample>", Verdict.SECOND),
    ],
)
def test_one_answer_decides(text: str, verdict: Verdict) -> None:
    """White space around the word and case do not matter."""
    assert RULE.read(answered(text)) == Judgment(verdict, Outcome.DECIDED)


@pytest.mark.parametrize(
    ("response", "outcome"),
    [
        (answered(ONE + TWO), Outcome.AMBIGUOUS),
        (answered(ONE + TWO, Finish.LENGTH), Outcome.AMBIGUOUS),
        (answered("SAMPLE_1"), Outcome.UNPARSED),
        (answered("<BETTER_SAMPLE>SAMPLE_12</BETTER_SAMPLE>"), Outcome.UNPARSED),
        (answered("<BETTER_SAMPLE>SAMPLE 1</BETTER_SAMPLE>"), Outcome.UNPARSED),
        (answered("<BETTER_SAMPLE>SAMP", Finish.LENGTH), Outcome.TRUNCATED),
        (answered("", Finish.LENGTH), Outcome.TRUNCATED),
        (answered(""), Outcome.EMPTY),
        (answered(" \n"), Outcome.EMPTY),
        (answered(None), Outcome.EMPTY),
        (answered(None, refusal="I cannot judge this"), Outcome.REFUSED),
        (answered(ONE, Finish.REFUSAL), Outcome.REFUSED),
        (answered(ONE, Finish.BLOCKED), Outcome.BLOCKED),
        (Response("c", ResponseStatus.ERRORED, text=ONE), Outcome.ERROR),
        (Response("c", ResponseStatus.UNREADABLE), Outcome.ERROR),
        (Response("c", ResponseStatus.EXPIRED), Outcome.EXPIRED),
        (Response("c", ResponseStatus.CANCELLED), Outcome.CANCELLED),
    ],
)
def test_every_other_case_keeps_its_name(response: Response, outcome: Outcome) -> None:
    """Without exactly one answer there is no verdict, and the reason is told."""
    assert RULE.read(response) == Judgment(None, outcome)


def test_an_answer_before_the_cut_counts() -> None:
    """A text cut for length after its one complete answer is decided."""
    assert RULE.read(answered(f"{TWO} because", Finish.LENGTH)).verdict is Verdict.SECOND


def test_thoughts_are_not_read() -> None:
    """Only the visible text decides."""
    response = Response("c", ResponseStatus.SUCCEEDED, finish=Finish.STOP, text=ONE, thoughts=TWO)
    assert RULE.read(response).verdict is Verdict.FIRST


@given(texts, st.sampled_from(Finish), st.one_of(st.none(), ANY_TEXT))
def test_swapping_the_words_swaps_the_verdict(text: str, finish: Finish, refusal: str | None) -> None:
    """The rule favours neither place, and verdict and outcome always fit."""
    judgment, mirrored = (rule.read(answered(text, finish, refusal)) for rule in (RULE, SWAPPED))
    swap = {Verdict.FIRST: Verdict.SECOND, Verdict.SECOND: Verdict.FIRST, None: None}
    assert mirrored == Judgment(swap[judgment.verdict], judgment.outcome)
    assert (judgment.verdict is not None) == (judgment.outcome is Outcome.DECIDED)


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT, st.permutations([ONE, TWO]))
def test_both_answers_are_never_decided(before: str, between: str, after: str, answers: list[str]) -> None:
    """A judge that writes both answers is ambiguous wherever they stand."""
    text = before + answers[0] + between + answers[1] + after
    assert RULE.read(answered(text)).outcome is Outcome.AMBIGUOUS


@pytest.mark.parametrize(
    "rule",
    [
        PairwiseRule(first="A", second="a"),
        PairwiseRule(first="A", second=" A "),
        PairwiseRule(first=" ", second="B"),
        PairwiseRule(prefix=""),
        PairwiseRule(first="A", second="B", tie="b"),
        PairwiseRule(first="A", second="B", tie=" "),
        PairwiseRule(prefix="It is ", first="A", second="B", tie="A tie", suffix=""),
        PairwiseRule(prefix="Winner:", first="A", second="A <winner: B", suffix=""),
    ],
)
def test_answers_that_cannot_be_told_apart_are_refused(rule: PairwiseRule) -> None:
    """A rule under which one answer could be read as the other is a StudyError."""
    with pytest.raises(StudyError):
        rule.check("study.toml: answer")


def test_without_a_suffix_words_end_where_they_end() -> None:
    """ "1" is not found in "10"."""
    rule = PairwiseRule(prefix="Winner: ", first="1", second="10", suffix="")
    rule.check("answer")
    assert rule.read(answered("winner:10.")).verdict is Verdict.SECOND
    assert rule.read(answered("Winner: 1")).verdict is Verdict.FIRST


def test_a_stored_rule_reads_like_the_written_one() -> None:
    """What `studies.parsers` keeps is enough to judge again, and its id follows the words."""
    judge = registry.rule_of(RULE.to_spec()).read
    assert judge(answered(TWO)) == RULE.read(answered(TWO))
    assert RULE.parser_id == PairwiseRule.from_spec(RULE.to_spec()).parser_id != SWAPPED.parser_id
    for spec in ({"task": "ranking"}, {"task": "pairwise"}, {**RULE.to_spec(), "first": 1}):
        with pytest.raises(LakeError):
            registry.rule_of(spec)


@pytest.mark.parametrize("read", ["read", "read_with_care"])
def test_a_judge_may_say_that_neither_is_better_where_there_is_a_word_for_it(read: str) -> None:
    """Then a tie is what it says; without the word the same answer is unparsed, and two answers stay ambiguous."""
    text = "Equal.\n<BETTER_SAMPLE>TIE</BETTER_SAMPLE>"
    assert getattr(TIED, read)(answered(text)) == Judgment(Verdict.TIE, Outcome.TIE)
    assert getattr(RULE, read)(answered(text)).outcome is Outcome.UNPARSED
    assert getattr(TIED, read)(answered(ONE)) == getattr(RULE, read)(answered(ONE))
    assert getattr(TIED, read)(answered(text + TWO)).outcome is Outcome.AMBIGUOUS
    assert getattr(TIED, read)(answered("They are equal.")).outcome is Outcome.UNPARSED
    assert TIED.read_with_care(answered("<better_sample>**tie**.</better_sample>")).verdict is Verdict.TIE


def test_a_word_for_ties_is_a_rule_of_its_own_and_none_leaves_the_rule_as_it_was() -> None:
    """What the lake keeps of a study without one has no key for it, and is read back."""
    assert RULE.parser_id == PairwiseRule(tie=None).parser_id != TIED.parser_id
    assert "tie" not in RULE.to_spec()
    assert "answer_tie" not in RULE.to_spec()
    assert (TIED.to_spec()["tie"], TIED.to_spec()["answer_tie"]) == ("TIE", "<BETTER_SAMPLE>TIE</BETTER_SAMPLE>")
    for rule in (RULE, TIED):
        assert registry.rule_of(rule.to_spec()) == rule


@pytest.mark.parametrize("read", ["read", "read_with_care"])
def test_a_tie_may_say_why_where_there_are_words_for_it(read: str) -> None:
    """It is a tie whose label says which; two kinds in one text differ, and one kind alone is enough of a rule."""
    rule = PairwiseRule(tie="TIE", both_good="BOTH_GOOD", both_bad="BOTH_BAD")
    bad, good = (f"<BETTER_SAMPLE>BOTH_{word}</BETTER_SAMPLE>" for word in ("BAD", "GOOD"))
    assert getattr(rule, read)(answered(f"Poor.\n{bad}")) == Judgment(Verdict.TIE, Outcome.TIE, label="both_bad")
    assert getattr(rule, read)(answered(f"Poor.\n{bad}\n{good}")).outcome is Outcome.AMBIGUOUS
    assert getattr(rule, read)(answered("<BETTER_SAMPLE>TIE</BETTER_SAMPLE>")).label is None
    alone = PairwiseRule(both_bad="BOTH_BAD")
    assert getattr(alone, read)(answered(bad)).label == "both_bad"
    assert registry.rule_of(alone.to_spec()) == alone
    assert alone.parser_id != PairwiseRule(tie="BOTH_BAD").parser_id != PairwiseRule(both_good="BOTH_BAD").parser_id
    assert not {"both_good", "answer_both_good"} & alone.to_spec().keys()
