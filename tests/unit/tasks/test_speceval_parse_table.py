"""SpecEval's parse rules beside ours, over one table: what both read alike, and what is read otherwise, and why.

The original rules are written out in `tests/rigs/seeds.py`: the regular expression of rankings, and for compliance a
fenced block, else everything from the first brace to the last.
"""

from __future__ import annotations

from typing import Any

import pytest

from batchpond.model import Outcome, Response, ResponseStatus
from batchpond.tasks import compliance, likert, ranking
from batchpond.tasks.base import Judgment
from tests.rigs.seeds import FAILED, compliance_of, rank_of, rating_of


def answered(text: str | None) -> Response:
    """Return a response with this text."""
    return Response(None, ResponseStatus.SUCCEEDED, text=text)


RANKINGS = [
    # The same in both.
    ("Model: A", 1, "first", Outcome.DECIDED),
    ("MODEL: b", -1, "second", Outcome.DECIDED),
    ("Because it is kind.\nModel: B\n", -1, "second", Outcome.DECIDED),
    ("Model: equal", 0, "tie", Outcome.TIE),
    # A tie to SpecEval; each has its own name here.
    ("Model: N/A", 0, None, Outcome.NOT_APPLICABLE),
    ("Model: unsure", 0, None, Outcome.UNSURE),
    ("A", 0, None, Outcome.UNPARSED),
    ("I think Model: A", 0, None, Outcome.UNPARSED),
    ("ERROR: 500: overloaded", 0, None, Outcome.UNPARSED),
    ("", 0, None, Outcome.EMPTY),
    # A tie to SpecEval; markup around a clear answer is no obstacle here.
    ("**Model: A**", 0, "first", Outcome.DECIDED),
    ("Model: {A}", 0, "first", Outcome.DECIDED),
    # A win to SpecEval; no single choice was made.
    ("Model: a better", 1, None, Outcome.UNPARSED),
    ("Model: A\nModel: B", 1, None, Outcome.AMBIGUOUS),
]


@pytest.mark.parametrize(("text", "rank", "verdict", "outcome"), RANKINGS)
def test_rankings(text: str, rank: int, verdict: str | None, outcome: Outcome) -> None:
    """The original, the compatible reader, and ours."""
    assert rank_of(text) == ranking.parse_speceval(text) == rank
    assert ranking.RankingRule().read(answered(text)) == Judgment(verdict, outcome)


YES, NO, UNKNOWN = ("true", Outcome.DECIDED), ("false", Outcome.DECIDED), (None, Outcome.UNPARSED)
COMPLIANCE = [
    # The same in both.
    ('{"compliant": true, "confidence": 0.9}', (True, 0.9), YES, 0.9),
    ('Here:\n```json\n{"compliant": false, "confidence": 0.2}\n```\nDone.', (False, 0.2), NO, 0.2),
    ('It breaks it: {"compliant": "False", "confidence": 1} as shown', (False, 1), NO, 1.0),
    # A value that is neither: both know nothing, but an unknown confidence is no number here.
    ('{"compliant": "maybe", "confidence": 0.7}', (None, 0.7), UNKNOWN, None),
    ('{"compliant": 1, "confidence": 0.7}', (None, 0.7), UNKNOWN, None),
    ("It complies.", FAILED, UNKNOWN, None),
    ('{"compliant": true, "confidence": 0.9', FAILED, UNKNOWN, None),
    # Out of range, kept by SpecEval: the verdict stays, the confidence is unknown.
    ('{"compliant": true, "confidence": 1.4}', (True, 1.4), YES, None),
    ('{"compliant": true, "confidence": "high"}', (True, "high"), YES, None),
    # SpecEval gives up; the answer is there.
    ('{"a": 1} {"compliant": true}', FAILED, YES, None),
    ('{{"compliant": true, "confidence": 0.8}}', FAILED, YES, 0.8),
    # SpecEval: unknown with the confidence that stands there; a judge that says it does not know is unsure.
    ('{"compliant": null, "confidence": 0.3}', (None, 0.3), (None, Outcome.UNSURE), None),
]


@pytest.mark.parametrize(("text", "original", "ours", "confidence"), COMPLIANCE)
def test_compliance(
    text: str, original: tuple[Any, Any], ours: tuple[str | None, Outcome], confidence: float | None
) -> None:
    """Unknown is NULL: neither a confidence of 0.5 nor, later, "not compliant"."""
    assert compliance_of(text) == original
    found = compliance.ComplianceRule().read(answered(text))
    assert ((found.verdict, found.outcome), found.confidence) == (ours, confidence)


def test_no_answer_stops_nothing() -> None:
    """SpecEval's run ended there, with everything before it unsaved."""
    with pytest.raises(TypeError):
        compliance_of(None)
    assert compliance.ComplianceRule().read(answered(None)) == Judgment(None, Outcome.EMPTY)


@pytest.mark.parametrize(
    ("text", "original", "score"),
    [
        ('{"rating": 4, "explanation": "fine"}', 4, 4.0),
        ('{"rating": 0}', 0, None),
        ('{"rating": 9}', 9, None),
        ("four", 0, None),
        ('{"rating": 2', 0, None),
    ],
)
def test_ratings(text: str, original: Any, score: float | None) -> None:
    """A failure is no 0, which would pull every mean down, and nothing off the scale is a rating."""
    assert rating_of(text) == original
    found = likert.LikertRule().read(answered(text))
    assert (found.score, found.outcome) == (score, Outcome.DECIDED if score else Outcome.UNPARSED)
