"""The corpus of answers: what reader 2 makes of them, and that it is total, even-handed and linear."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpond.model import Finish, Outcome, Verdict
from batchpond.tasks.base import Judgment, Rule
from batchpond.tasks.pairwise import PairwiseRule
from tests.golden.reading import table
from tests.rigs.swept import every
from tests.rigs.task import ANY_TEXT, FAILURES, HOSTILE, LONG, answered, check_judgment, responses, rule_of, seconds

RULES: dict[str, Rule] = {
    **{task: rule_of(task) for task in table.TASKS},
    "likert-line": rule_of("likert", form="line"),
    "pairwise-bare": PairwiseRule(prefix="Winner: ", first="1", second="10", suffix=""),
}
TEXTS = {
    "pairwise": "<BETTER_SAMPLE>SAMPLE_1</BETTER_SAMPLE>",
    "ranking": "Model: A",
    "compliance": '{"compliant": true}',
    "likert": '{"rating": 4}',
    "pressure": "<FLIP>no_flip</FLIP>",
    "likert-line": "Rating: 4",
    "pairwise-bare": "Winner: 10",
}
GROWTH_MAX = 9
NOTICED_S = 0.1
each_rule = pytest.mark.parametrize("name", RULES)
pieces = st.lists(
    st.one_of(
        ANY_TEXT,
        st.sampled_from(
            [
                *TEXTS.values(),
                "not ",
                "if ",
                "Wait, ",
                "\n",
                "<think>",
                "</think>",
                "~~",
                "&lt;",
                "\\",
                "{",
                "}",
                "**",
                ": ",
            ]
        ),
    )
)


@pytest.mark.parametrize("task", table.TASKS)
def test_of_the_seen_answers_none_is_misread_and_none_lost_for_its_form(task: str) -> None:
    reader = table.readers(task)["batchpond, reader 2"]
    seen = list(table.cases("seen", task))
    wrong = [case for case in seen if table.how(case, reader(case)) in {"misread", "form"}]
    assert not wrong
    assert sum(table.how(case, reader(case)) == "right" for case in seen) > 0.9 * len(seen)


def test_the_corpus_is_large_and_its_sealed_part_is_what_was_laid_by() -> None:
    n = {part: sum(len(list(table.cases(part, task))) for task in table.TASKS) for part in table.PARTS}
    assert n["seen"] >= 600
    assert n["sealed"] >= 200
    assert table.digest("sealed") == "48907b29c2c0b6378db58057336382363f05120c533faeeb5f0c9d789973104b"
    for part in table.PARTS:
        for task in table.TASKS:
            text = (table.HERE / part / f"{task}.txt").read_text("utf-8")
            assert len(list(table.cases(part, task))) == text.count("\n=== ") + 1


def test_the_page_is_the_table() -> None:
    assert table.PAGE.read_text("utf-8") == table.page(), "python -m tests.golden.reading.table"


@each_rule
def test_a_text_that_was_cut_decides_nothing(name: str) -> None:
    rule, text = RULES[name], TEXTS[name]
    assert rule.read_with_care(answered(text)).outcome is Outcome.DECIDED
    assert rule.read_with_care(answered(text + "\nand", Finish.LENGTH)) == Judgment(None, Outcome.TRUNCATED)
    for failed, outcome in FAILURES:
        assert rule.read_with_care(failed(text)) == Judgment(None, outcome)


@each_rule
@given(st.data())
def test_it_is_total(name: str, data: st.DataObject) -> None:
    """Any response gives a judgment whose parts fit each other and can be stored."""
    check_judgment(RULES[name].read_with_care(data.draw(responses)))
    check_judgment(RULES[name].read_with_care(answered("".join(data.draw(pieces)))))


@given(st.lists(st.one_of(ANY_TEXT, st.sampled_from([TEXTS["pairwise"], "1", "<BETTER_SAMPLE>", "not ", "SAMPLE 2"]))))
def test_it_favours_no_place(parts: list[str]) -> None:
    """Swapping the words of the rule swaps the verdict."""
    rule, text = PairwiseRule(), "".join(parts)
    judgment, mirrored = rule.read_with_care(answered(text)), PairwiseRule(first="SAMPLE_2", second="SAMPLE_1")
    swap = {Verdict.FIRST: Verdict.SECOND, Verdict.SECOND: Verdict.FIRST, None: None}
    found = mirrored.read_with_care(answered(text))
    assert found == Judgment(swap[judgment.verdict], judgment.outcome)  # type: ignore[index]


@pytest.mark.parametrize("name", every(2, RULES))
def test_it_is_linear(name: str) -> None:
    """Four times the text takes about four times as long."""
    rule, slow = RULES[name], {}
    pieces = (
        "<BETTER_SAMPLE>", "<think>", "Model:", "Model: A - ", "&lt;", "not ", "compliant:", '"rating": ', "</",
        "wait ",
    )  # fmt: skip
    texts = [*HOSTILE, *(piece * (LONG // len(piece)) for piece in pieces)]

    def took(hostile: str) -> float:
        text = f"{hostile}\n{TEXTS[name]} {hostile}"
        return seconds(lambda: check_judgment(rule.read_with_care(answered(text))))

    for hostile in texts:
        if took(hostile) > NOTICED_S:
            quarter = min(took(hostile[: len(hostile) // 4]) for _ in range(5))
            whole = min(took(hostile) for _ in range(5))
            if whole > GROWTH_MAX * quarter:
                slow[hostile[:20]] = whole / quarter
    assert not slow


@pytest.mark.parametrize(
    ("rule", "text", "verdict"),
    [
        (PairwiseRule(first="A+", second="A-"), "<BETTER_SAMPLE>A-</BETTER_SAMPLE>", "second"),
        (PairwiseRule(prefix="[[", first="A", second="B", suffix="]]"), "Not bad at all. [[ **b** ]]", "second"),
        (PairwiseRule(prefix="[[", first="A", second="B", suffix="]]"), "I would not say [[B]]", None),
        (PairwiseRule(prefix="<w>", first="left", second="right", suffix="</w>"), "<w>Left.</w>", "first"),
        (PairwiseRule(prefix="<w>", first="first", second="fourth", suffix="</w>"), "<w>irst</w>", None),
    ],
)
def test_a_studys_own_words_are_read(rule: PairwiseRule, text: str, verdict: str | None) -> None:
    assert rule.read_with_care(answered(text)).verdict == verdict


def test_a_ranking_prefix_of_signs_is_not_found_in_prose() -> None:
    rule = rule_of("ranking", prefix="<better>", first="answer one", second="answer two")
    assert rule.read_with_care(answered("It is the better answer two")).verdict is None
    assert rule.read_with_care(answered("<better> **answer two**")).verdict == "second"
