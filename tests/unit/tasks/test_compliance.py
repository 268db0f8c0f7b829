"""Reading a compliance judge: unknown is unknown, never "not compliant" and never 0.5."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpond.errors import StudyError
from batchpond.model import Finish, Outcome
from batchpond.tasks.base import Judgment
from batchpond.tasks.compliance import ComplianceRule
from tests.rigs.task import answered

RULE = ComplianceRule()
UNPARSED = Judgment(None, Outcome.UNPARSED)
AMBIGUOUS = Judgment(None, Outcome.AMBIGUOUS)


def said(value: Any, **others: Any) -> str:
    """Return an answer's JSON."""
    return json.dumps({"compliant": value, **others})


def yes(confidence: float | None = None, explanation: str | None = None) -> Judgment:
    """Return a judgment of compliance."""
    return Judgment("true", Outcome.DECIDED, confidence=confidence, explanation=explanation)


def no(confidence: float | None = None) -> Judgment:
    """Return a judgment against it."""
    return Judgment("false", Outcome.DECIDED, confidence=confidence)


@pytest.mark.parametrize(
    ("text", "judgment"),
    [
        (said(True, confidence=0.9, explanation="fits"), yes(0.9, "fits")),
        ("```json\n" + said(False, confidence=1) + "\n```", no(1.0)),
        ("I conclude:\n" + said(False, confidence="0.25") + "\nas said.", no(0.25)),
        (said("True", confidence="80%"), yes(0.8)),
        (said(" no. "), no()),
        # Two objects: SpecEval's greedy braces fail on the first of these.
        ('{"a":1} {"compliant":true}', yes()),
        (said(True, confidence=0.2) + said(True, confidence=0.7), yes(0.7)),
        (said(True) + said(False), AMBIGUOUS),
        (said(True) + said(None), AMBIGUOUS),
        ('{"compliant": true, "compliant": false}', AMBIGUOUS),
        (said("true or false") + said(False), no()),
        # Doubled braces, as SpecEval's judges are shown them.
        ('{{"compliant": false, "confidence": 0.5}}', no(0.5)),
        ('{"verdict": {"compliant": true}}', yes()),
        # SpecEval keeps 1.4 and "high"; here the verdict stays and the confidence is unknown.
        (said(True, confidence=1.4), yes()),
        (said(True, confidence=-0.1), yes()),
        (said(True, confidence="high"), yes()),
        (said(True, confidence=True), yes()),
        ('{"compliant": true, "confidence": NaN}', yes()),
        ('{"compliant": true, "confidence": 1e999}', yes()),
        (said(True, confidence="150%"), yes()),
        (said(True, explanation=["a"]), yes()),
        (said(True, explanation="  "), yes()),
        # SpecEval: None with confidence 0.5, later counted as "not compliant".
        (said(None, confidence=0.9, explanation="why"), Judgment(None, Outcome.UNSURE, explanation="why")),
        (said("unsure"), Judgment(None, Outcome.UNSURE)),
        (said("N/A"), Judgment(None, Outcome.NOT_APPLICABLE)),
        (said("maybe"), UNPARSED),
        (said(1), UNPARSED),
        (said(0.0), UNPARSED),
        (said([True]), UNPARSED),
        (said("true or false"), UNPARSED),
        ("Yes, it is compliant.", UNPARSED),
        ('{"complies": true}', UNPARSED),
        ('{"compliant": true', UNPARSED),
    ],
)
def test_the_table_of_answers(text: str, judgment: Judgment) -> None:
    """What SpecEval read differently is stated beside it."""
    assert RULE.read(answered(text)) == judgment


def test_a_cut_text_counts_when_its_object_is_whole() -> None:
    """Otherwise it is truncated, with and without something in it."""
    whole = said(True)
    assert RULE.read(answered(whole + " and", Finish.LENGTH)) == yes()
    assert RULE.read(answered(whole[:-1], Finish.LENGTH)) == Judgment(None, Outcome.TRUNCATED)
    assert RULE.read(answered(said("maybe"), Finish.LENGTH)) == Judgment(None, Outcome.TRUNCATED)


def test_keys_can_be_chosen() -> None:
    """Other names, the same reading; names that are one are refused."""
    rule = ComplianceRule("keeps_to_it", confidence_key="sure", explanation_key="why")
    rule.check("answer")
    text = '{"why": "w", "Keeps_To_It": false, "sure": 0.5}'
    assert rule.read(answered(text)) == Judgment("false", Outcome.DECIDED, confidence=0.5, explanation="w")
    assert "keeps_to_it" in rule.values()["ANSWER_FORMAT"]
    with pytest.raises(StudyError, match="one name"):
        ComplianceRule("a", confidence_key="A", explanation_key="b").check("answer")


def test_what_cannot_be_stored_is_made_storable() -> None:
    """Half a surrogate pair is replaced, an endless reason cut."""
    judgment = RULE.read(answered('{"compliant": true, "explanation": "\\ud800x"}'))
    assert judgment.explanation == "?x"
    long = RULE.read(answered(said(True, explanation="x" * 100_000))).explanation
    assert long is not None
    assert len(long) == 20_000


@given(
    st.one_of(st.booleans(), st.none()),
    st.floats(0, 1),
    st.text(max_size=50),
    st.text(st.characters(exclude_characters="{")),
)
def test_answers_of_the_schema_are_read_as_they_are(
    value: bool | None, confidence: float, reason: str, prose: str
) -> None:
    """Whatever a provider can hold a model to comes back unchanged, in prose or not."""
    document = {"explanation": reason, "compliant": value, "confidence": confidence}
    jsonschema.validate(document, RULE.output_schema())
    judgment = RULE.read(answered(prose + json.dumps(document)))
    assert judgment.verdict == (None if value is None else str(value).lower())
    assert judgment.confidence == (None if value is None else confidence)
    assert judgment.explanation == (reason.strip() or None)
