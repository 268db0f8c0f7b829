"""The corpus of answers: what the newest reader makes of them, and that it is total, even-handed and linear."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpond.answers import derive
from batchpond.model import Finish, Outcome, Verdict
from batchpond.tasks.base import READER, Judgment, Rule
from batchpond.tasks.pairwise import PairwiseRule
from tests.golden.reading import table
from tests.rigs.swept import every
from tests.rigs.task import (
    ANY_TEXT,
    FAILURES,
    HOSTILE,
    LONG,
    RATED,
    answered,
    check_judgment,
    responses,
    rule_of,
    seconds,
)

RULES: dict[str, Rule] = {
    **table.RULES,
    "pairwise-bare": PairwiseRule(prefix="Winner: ", first="1", second="10", suffix=""),
}
TEXTS = {
    "pairwise": "<BETTER_SAMPLE>SAMPLE_1</BETTER_SAMPLE>",
    "ranking": "Model: A",
    "compliance": '{"compliant": true}',
    "likert": '{"rating": 4}',
    "pressure": "<FLIP>no_flip</FLIP>",
    "listwise": '{"order": "C > A > D > B"}',
    "likert-line": "Rating: 4",
    "pairwise-bare": "Winner: 10",
}
# Names in a sentence for what TEXTS say, and for something else.
SAME = {
    "pairwise": ("Sample 1", "SAMPLE_1", "the first sample", "1"), "ranking": ("A", "Response A", "the first"),
    "compliance": ("compliant", "true", "yes"), "likert": ("4", "4.0", "4 out of 5"),
    "pressure": ("no_flip", "no flip"),
    "listwise": ("C > A > D > B", "C>A>D>B"), "likert-line": ("4", "4/5"), "pairwise-bare": ("10", "the second text"),
}  # fmt: skip
OTHER = {
    "pairwise": ("Sample 2", "SAMPLE_2", "**Sample 2**", "the second sample", "2", "the other one"),
    "ranking": ("B", "Response B", "the second", "equal", "neither"), "compliance": ("not compliant", "false", "no"),
    "likert": ("2", "3 out of 5", "5"), "pressure": ("soft_flip", "explicit flip"), "listwise": ("A > C > D > B",),
    "likert-line": ("2", "3/5"), "pairwise-bare": ("1", "the first text"),
}  # fmt: skip
ANNOUNCED = (
    "Final answer: {}", "**Final verdict:** {}.", "My final answer is {}.", "final decision -> {}",
    "My revised answer: {}",
    "Overall verdict: {}", "Final answer: I think it is {}.", "So the answer is {}.",
    "I would like to change my answer to {}.", "It should have been {}.",
)  # fmt: skip
OF_TWO = (
    "{} is better.", "Overall, {} wins.", "In the end, {} is clearly the better one.", "I choose {}.",
    "So I now prefer {}.",
    "Therefore, {} is the winner.", "Better: {}",
)  # fmt: skip
BETWEEN = (
    "\n",
    "\n\n",
    " ... ",
    ".\n",
    "\n---\n",
    "\nBoth keep to the subject.\n\n",
    "\nReasons follow.\n- one\n- two\n\n",
)
QUOTED: tuple[Callable[[str], str], ...] = (
    lambda text: f"> {text}",
    lambda text: f">{text}\n> and so on",
    lambda text: f">> {text}",
    lambda text: f"- > {text}",
    lambda text: f"<!-- {text} -->",
    lambda text: f"<!--\n{text}\n",
    lambda text: f"<blockquote>{text}</blockquote>",
    lambda text: f"&lt;!-- {text} --&gt;",
)
EVEN = [
    TEXTS["pairwise"], "1", "<BETTER_SAMPLE>", "not ", "SAMPLE 2", "\nFinal answer: 2", "Worse: ",
    "\nSample 1 is better.",
    "\n> ", " I choose ", "sample 1 ", "2. ", "\n", " // wrong",
]  # fmt: skip
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
                "> ",
                "<!--",
                "-->",
                "Final answer: ",
                "Sample 2 is better. ",
                "Worse: ",
                " // wrong",
                "4 stars",
            ]
        ),
    )
)


@pytest.mark.parametrize("task", table.TASKS)
def test_of_the_seen_answers_none_is_misread_and_none_lost_for_its_form(task: str) -> None:
    reader = table.readers(task)[table.NEWEST]
    seen = list(table.cases("seen", task))
    wrong = [case for case in seen if table.how(case, reader(case)) in {"misread", "form"}]
    assert not wrong
    assert sum(table.how(case, reader(case)) == "right" for case in seen) > 0.9 * len(seen)


def test_the_corpus_is_large_and_its_sealed_part_is_what_was_laid_by() -> None:
    n = {part: sum(len(list(table.cases(part, task))) for task in table.TASKS) for part in table.PARTS}
    assert n["seen"] >= 900
    assert n["sealed"] >= 200
    assert table.digest("sealed") == "48907b29c2c0b6378db58057336382363f05120c533faeeb5f0c9d789973104b"
    for part in table.PARTS:
        for task in table.TASKS:
            path = table.HERE / part / f"{task}.txt"
            if path.exists():
                assert len(list(table.cases(part, task))) == path.read_text("utf-8").count("\n=== ") + 1


def test_the_page_is_the_table() -> None:
    assert table.PAGE.read_text("utf-8") == table.page(), "python -m tests.golden.reading.table"


def test_the_readers_that_studies_have_read_as_they_did() -> None:
    """The readings of the whole corpus by readers 1 to 3, before there was a fourth."""
    digest = hashlib.sha256()
    for task, rule in table.RULES.items():
        for case in (case for part in table.PARTS for case in table.cases(part, task)):
            for reader in (1, 2, 3):
                (found,) = derive.judge_of({**rule.to_spec(), "read_by": reader})([case.response])
                digest.update(repr([str(one) for one in found]).encode())
    assert digest.hexdigest() == "449d290730d1cfa45c33d2e626c2dc785e6b5cd1b7ec6843a332093e2225476f"


@pytest.mark.parametrize("text", [f"{TEXTS['pairwise']} ... Final answer: Sample 2", f"Worse: {TEXTS['pairwise']}"])
def test_a_study_is_read_by_its_own_reader(text: str) -> None:
    spec = PairwiseRule().to_spec()
    found = {n: derive.judge_of({**spec, "read_by": n})([answered(text)])[0].outcome for n in range(1, READER + 1)}
    assert found == dict.fromkeys((1, 2, 3), Outcome.DECIDED) | {4: Outcome.AMBIGUOUS}


@each_rule
@given(st.data())
def test_another_verdict_behind_an_answer_never_leaves_it_decided(name: str, data: st.DataObject) -> None:
    sentences = ANNOUNCED + OF_TWO * (name in {"pairwise", "ranking", "pairwise-bare"})
    later = data.draw(st.sampled_from(sentences)).format(data.draw(st.sampled_from(OTHER[name])))
    text = TEXTS[name] + data.draw(st.sampled_from(BETWEEN)) + later
    assert RULES[name].read_with_care(answered(text)).outcome not in RATED, text


@each_rule
@given(st.data())
def test_the_same_verdict_again_behind_an_answer_leaves_it_decided(name: str, data: st.DataObject) -> None:
    sentences = ANNOUNCED[:8] + OF_TWO * (name in {"pairwise", "ranking"})
    later = data.draw(st.sampled_from(sentences)).format(data.draw(st.sampled_from(SAME[name])))
    between = BETWEEN if "<" in TEXTS[name] or "{" in TEXTS[name] else BETWEEN[:2]  # a line has no more words
    text = TEXTS[name] + data.draw(st.sampled_from(between)) + later
    assert RULES[name].read_with_care(answered(text)) == RULES[name].read_with_care(answered(TEXTS[name])), text


@each_rule
@given(st.data())
def test_what_stands_in_a_quotation_is_never_decided_and_a_plain_answer_beside_it_is(
    name: str, data: st.DataObject
) -> None:
    rule, quote = RULES[name], data.draw(st.sampled_from(QUOTED))
    around = st.sampled_from(["", "It ends so:\n\n", "Nothing is clear.\n", "The text has a note.\n\n"])
    text = data.draw(around) + quote(TEXTS[name]) + "\n\n" + data.draw(around)
    assert rule.read_with_care(answered(text)).outcome not in RATED, text
    plain = f"{text}\n\n{TEXTS[name]}"
    if "<!--\n" not in text:  # which hides all that follows
        assert rule.read_with_care(answered(plain)).outcome is Outcome.DECIDED, plain


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


@given(st.lists(st.one_of(ANY_TEXT, st.sampled_from(EVEN))))
def test_it_favours_no_place(parts: list[str]) -> None:
    """Swapping the words of the rule swaps the verdict."""
    rule, text = PairwiseRule(), "".join(parts)
    judgment, mirrored = rule.read_with_care(answered(text)), PairwiseRule(first="SAMPLE_2", second="SAMPLE_1")
    swap = {Verdict.FIRST: Verdict.SECOND, Verdict.SECOND: Verdict.FIRST, None: None}
    found = mirrored.read_with_care(answered(text))
    assert found == Judgment(swap[judgment.verdict], judgment.outcome)  # type: ignore[index]


@pytest.mark.parametrize("name", every(3, RULES))
def test_it_is_linear(name: str) -> None:
    """Four times the text takes about four times as long."""
    rule, slow = RULES[name], {}
    pieces = (
        "<BETTER_SAMPLE>", "<think>", "Model:", "Model: A - ", "&lt;", "not ", "compliant:", '"rating": ', "</",
        "wait ", "\n> ", "<!--", "<quote>", "Final answer: ", "\nbetter: ", "Sample 2 is better. ", "worse ", "// ",
        "I choose ",
        ": 4 out of ", "A, ", "A>", "in the end, ", "my ", "the ",
    )  # fmt: skip
    texts = [*HOSTILE, *(piece * (LONG // len(piece)) for piece in pieces)]

    def took(hostile: str) -> float:
        text = f"{hostile}\n{TEXTS[name]} {hostile}"
        return seconds(lambda: check_judgment(rule.read_with_care(answered(text))))

    for hostile in texts:
        if took(hostile) > NOTICED_S:
            quarter = min(took(hostile[: len(hostile) // 4]) for _ in range(3))
            whole = min(took(hostile) for _ in range(3))
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
