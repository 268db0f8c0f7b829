"""Reading an order of samples, or the best of them: every letter once, or nothing."""

from __future__ import annotations

import itertools
import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpond.errors import StudyError
from batchpond.model import Finish, Outcome
from batchpond.tasks.base import Judgment
from batchpond.tasks.listwise import NONE, BestRule, OrderRule
from tests.rigs.task import answered, rule_of

ORDER = OrderRule(size=4)
TIES = OrderRule(size=4, ties=True, none="none")
BEST = BestRule(size=4)
FREE = BestRule(size=4, ties=True, none="None of them")
UNPARSED = Judgment(None, Outcome.UNPARSED)
AMBIGUOUS = Judgment(None, Outcome.AMBIGUOUS)
TIED = Judgment(None, Outcome.TIE, label="A=B=C=D")
NOBODY = Judgment(None, Outcome.TIE, label=NONE)


def said(label: str, explanation: str | None = None) -> Judgment:
    """Return a decision."""
    return Judgment(None, Outcome.DECIDED, label=label, explanation=explanation)


@pytest.mark.parametrize(
    ("text", "rule", "judgment"),
    [
        ('{"explanation": "why", "order": "C > A > D > B"}', ORDER, said("C>A>D>B", "why")),
        ('```json\n{"order": "C>A>D>B"}\n```', ORDER, said("C>A>D>B")),
        ('{"order": ["C", "A", "D", "B"]}', ORDER, said("C>A>D>B")),
        ('{"order": "c &gt; a &gt; d &gt; b"}', ORDER, said("C>A>D>B")),
        ('{"order": "**Sample C** > [A] > SAMPLE_D > (b)."}', ORDER, said("C>A>D>B")),
        ('{"order": "C, A, D, B"}', ORDER, said("C>A>D>B")),
        ("{'order': 'C > A > D > B'}", ORDER, said("C>A>D>B")),
        ('<think>{"order": "A > B > C > D"}</think>{"order": "C > A > D > B"}', ORDER, said("C>A>D>B")),
        ('{"order": "C > A = D > B"}', TIES, said("C>A=D>B")),
        ('{"order": ["C", "D = A", "B"]}', TIES, said("C>A=D>B")),
        ('{"order": "A = B = C = D"}', TIES, TIED),
        ('{"order": "none"}', TIES, NOBODY),
        ('{"best": "C"}', BEST, said("C")),
        ('{"best": "Sample C."}', BEST, said("C")),
        ('{"best": ["C"]}', BEST, said("C")),
        ('{"best": "B = C"}', FREE, said("B=C")),
        ('{"best": "A = B = C = D"}', FREE, TIED),
        ('{"best": "none of them"}', FREE, NOBODY),
        ('{"order": null, "explanation": "no"}', ORDER, Judgment(None, Outcome.UNSURE, explanation="no")),
    ],
)
def test_what_is_read(text: str, rule: OrderRule, judgment: Judgment) -> None:
    """The form that was asked for, in whatever dress."""
    assert rule.read_with_care(answered(text)) == judgment


@pytest.mark.parametrize(
    ("text", "rule", "judgment"),
    [
        ('{"order": "C > A > D"}', ORDER, UNPARSED),  # misses one
        ('{"order": "C > A > D > B > C"}', ORDER, UNPARSED),  # repeats one
        ('{"order": "C > A > D > E"}', ORDER, UNPARSED),  # one of no sample
        ('{"order": "C > A = D > B"}', ORDER, UNPARSED),  # a tie that the study does not have
        ('{"order": "C > A = D > B = "}', TIES, UNPARSED),
        ('{"order": "C >> A > D > B"}', ORDER, UNPARSED),
        ('{"order": "C >= A > D > B"}', TIES, UNPARSED),
        ('{"order": "A > B, C > D"}', ORDER, UNPARSED),
        ('{"order": "none"}', ORDER, UNPARSED),
        ('{"order": [["C", "A"], "D", "B"]}', TIES, UNPARSED),
        ('{"order": 3}', ORDER, UNPARSED),
        ('{"order": ""}', ORDER, UNPARSED),
        ('{"best": "A > B"}', BEST, UNPARSED),
        ('{"best": "A, B"}', BEST, UNPARSED),
        ('{"best": "A = B"}', BEST, UNPARSED),
        ('{"best": "not A"}', BEST, UNPARSED),
        ('{"best": "none of them"}', BEST, UNPARSED),
        ("C > A > D > B", ORDER, UNPARSED),
        ('{"order": "A > B > C > D"} or {"order": "B > A > C > D"}', ORDER, AMBIGUOUS),
        ('I would not answer {"order": "A > B > C > D"}', ORDER, AMBIGUOUS),
        ('{"best": "A"}\nWait, no: that is wrong.', BEST, AMBIGUOUS),
    ],
)
def test_what_is_no_decision(text: str, rule: OrderRule, judgment: Judgment) -> None:
    """A letter that lacks, stands twice or is unknown; what is negated, supposed, taken back or said in two ways."""
    assert rule.read_with_care(answered(text)) == judgment


def test_of_a_text_that_was_cut_nothing_is_read() -> None:
    """What would have followed may have taken it back."""
    cut = answered('{"order": "A > B > C > D"}', Finish.LENGTH)
    assert ORDER.read_with_care(cut) == Judgment(None, Outcome.TRUNCATED)


@given(st.permutations("ABCDEF"), st.lists(st.booleans(), min_size=5, max_size=5), st.data())
def test_an_order_is_read_as_it_was_written(letters: list[str], ties: list[bool], data: st.DataObject) -> None:
    """Any order with any ties comes back, groups in letter order; without one of its letters it is none."""
    signs = ["=" if tie else ">" for tie in ties]
    text = "".join(itertools.chain(*zip(letters, [*signs, ""], strict=True)))
    rule = OrderRule(size=6, ties=True)
    wanted = ">".join("=".join(sorted(group.split("="))) for group in text.split(">"))
    assert rule.read_with_care(answered(json.dumps({"order": text}))).label == wanted
    lost = data.draw(st.sampled_from(letters))
    assert rule.label(text.replace(lost, data.draw(st.sampled_from(["", "A", "F", "G"])))) in {None, wanted}


def test_a_schema_holds_to_what_is_read() -> None:
    """Of the best it lists the letters, and none where the study has it."""
    best = BestRule(size=3, none="none").output_schema()
    assert best is not None
    for word, is_good in {"A": True, "C": True, "none": True, "D": False, "A = B": False}.items():
        answer = {"explanation": "why", "best": word}
        assert jsonschema.Draft202012Validator(best).is_valid(answer) is is_good
    order = ORDER.output_schema()
    assert order is not None
    jsonschema.validate({"explanation": "why", "order": "A > B"}, order)
    assert list(order["properties"]) == ["explanation", "order"]


def test_samples_are_shown_under_their_letters() -> None:
    """As many as there are, in order."""
    shown = OrderRule(size=2).shown(["one\ntwo", "three"])
    assert (
        shown
        == "=== SAMPLE A ===\none\ntwo\n=== end of SAMPLE A ===\n\n=== SAMPLE B ===\nthree\n=== end of SAMPLE B ==="
    )


@pytest.mark.parametrize("none", ["A", "Sample b", "*"])
def test_a_word_for_none_is_no_sample(none: str) -> None:
    """It could not be told from one."""
    with pytest.raises(StudyError, match=r"none.*does not have the form"):
        rule_of("listwise", none=none)
