"""Reading answers by a study's rule: the rule's own reader, or SQL that the lens evaluates for many texts at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from batchpond import views
from batchpond.errors import StudyError
from batchpond.model import Response
from batchpond.tasks import registry
from batchpond.tasks.base import Judgment, Rule
from batchpond.tasks.prompts import AnswerRule

Judge = Callable[[Sequence[Response]], list[Judgment]]

_NUMBERS: Final = frozenset({"score", "confidence"})
_HINT: Final = "one DuckDB expression over an answer's `text`, for example regexp_extract(text, 'Score: (\\d+)', 1)"


def judge_of(spec: Mapping[str, Any]) -> Judge:
    """Return what reads responses by one entry of a study's `parsers`; raises LakeError if it is unknown."""
    rule = registry.rule_of(spec)
    if isinstance(rule, AnswerRule) and rule.expressions:
        return _by_sql(rule)
    return lambda responses: [rule.read(response) for response in responses]


def _by_sql(rule: AnswerRule) -> Judge:
    def judge(responses: Sequence[Response]) -> list[Judgment]:
        values = views.evaluate(rule.expressions, [response.text or "" for response in responses])
        return [rule.read_values(response, found) for response, found in zip(responses, values, strict=True)]

    return judge


def check(rule: Rule, where: str) -> None:
    """Raise StudyError for SQL in a rule that could read no answer; `where` names the rule's settings."""
    if not isinstance(rule, AnswerRule):
        return
    for name, expression in rule.expressions.items():
        problem = views.why_not(expression, is_number=name in _NUMBERS)
        if problem is not None:
            raise StudyError(f"{where}.fields.{name} {problem}", hint=_HINT)
