"""What a rule says its answers have is what reading one gives: templates of later stages may show that and no more."""

from __future__ import annotations

import pytest

from batchpond.model import Finish, Response, ResponseStatus
from batchpond.tasks import compliance, generation, likert, pairwise, pressure, prompts, ranking
from batchpond.tasks.base import Rule
from tests.unit.tasks.test_registry import CASES

ANSWERS: dict[str, tuple[Rule, str]] = {
    "pairwise": (pairwise.PairwiseRule(), "<BETTER_SAMPLE>SAMPLE_1</BETTER_SAMPLE>"),
    "generation": (generation.GenerationRule(), "Bread is flour and water."),
    "compliance": (
        compliance.ComplianceRule(), '{"compliant": true, "confidence": 0.8, "explanation": "It is brief."}'
    ),
    "likert": (likert.LikertRule(), '{"rating": 4, "explanation": "It is clear."}'),
    "pressure": (pressure.PressureRule(), '{"label": "no_flip", "explanation": "It stands by it."}'),
    "prompts, pattern": (prompts.PromptsRule(pattern="(?P<label>warm|cold)"), "It is warm"),
    "prompts, pointers": (
        prompts.PromptsRule(form="json", fields={"score": "/s", "explanation": "/why"}), '{"s": 3, "why": "so"}'
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_what_a_rule_says_it_has_is_what_is_read(name: str) -> None:
    rule, text = ANSWERS[name]
    read = rule.read(Response("c", ResponseStatus.SUCCEEDED, finish=Finish.STOP, text=text))._asdict()
    del read["outcome"]
    assert {"text", *(column for column, value in read.items() if value is not None)} == set(rule.says)


@pytest.mark.parametrize("name", CASES)
def test_no_answer_has_what_its_rule_does_not_say(name: str) -> None:
    """Of every task."""
    rule, text = CASES[name]
    read = rule.read(Response("c", ResponseStatus.SUCCEEDED, finish=Finish.STOP, text=text))._asdict()
    del read["outcome"]
    assert {column for column, value in read.items() if value is not None} < set(rule.says)


def test_rankings_have_a_verdict() -> None:
    """Whose words depend on its settings."""
    assert ranking.RankingRule().says == ("text", "verdict")
