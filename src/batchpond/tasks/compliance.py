"""The compliance task: whether an output keeps to a statement, read from `{compliant, confidence, explanation}`.

The JSON may stand in a code fence, in prose, or inside another object (`common_json`). `compliant` is true
or false, also as a text or as yes or no. Several objects that have the key must agree; the last one gives
confidence and explanation. Objects whose value means nothing (`"true or false"`) count only when alone.

Unknown is never "not compliant": null or a word such as unsure is unsure, `N/A` is not applicable, other
values are unparsed, all without a verdict. A confidence outside 0 to 1 is NULL and leaves the verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

from batchpond.model import Outcome, Response
from batchpond.tasks import base, careful, structured
from batchpond.tasks.base import Judgment, Rule, Text
from batchpond.tasks.templates import STATEMENT_PLACEHOLDERS, Placeholders

TASK: Final = "compliance"
YES: Final = "true"
NO: Final = "false"
_WORDS: Final = {
    "true": (YES, Outcome.DECIDED),
    "yes": (YES, Outcome.DECIDED),
    "false": (NO, Outcome.DECIDED),
    "no": (NO, Outcome.DECIDED),
    **dict.fromkeys(("null", "unsure", "unknown", "unclear", "uncertain"), (None, Outcome.UNSURE)),
    **dict.fromkeys(("n/a", "na", "not applicable", "not_applicable"), (None, Outcome.NOT_APPLICABLE)),
}


@dataclass(frozen=True)
class ComplianceRule(Rule):
    """The names of the three keys in a judge's JSON."""

    TASK: ClassVar[str] = TASK
    PLACEHOLDERS: ClassVar[Placeholders] = Placeholders(
        ("STATEMENT", "INPUT", "OUTPUT"), (*STATEMENT_PLACEHOLDERS, "ANSWER_FORMAT")
    )
    PARSER_VERSION: ClassVar[int] = 1

    key: Text = "compliant"
    confidence_key: Text = "confidence"
    explanation_key: Text = "explanation"

    def values(self) -> dict[str, str]:
        """Return how the answer is asked for, which itself is not a valid answer."""
        return {
            "ANSWER_FORMAT": f'{{"{self.explanation_key}": your reason in one to three sentences, '
            f'"{self.key}": true or false (null if it cannot be decided), '
            f'"{self.confidence_key}": a number from 0 to 1}}'
        }

    def check(self, where: str) -> None:
        """Raise StudyError when two keys could not be told apart."""
        structured.check_keys(where, self.key, self.confidence_key, self.explanation_key)

    def output_schema(self) -> dict[str, Any]:
        """Return the JSON schema of an answer; the reason comes first, so that it is not made up afterwards."""
        return structured.object_schema(
            {
                self.explanation_key: {"type": "string", "description": "the reason, in one to three sentences"},
                self.key: {
                    "anyOf": [{"type": "boolean"}, {"type": "null"}],
                    "description": "whether the output keeps to the statement; null if it cannot be decided",
                },
                self.confidence_key: {"type": "number", "description": "from 0 to 1"},
            }
        )

    def read(self, response: Response) -> Judgment:
        """Return what a response says; total: any response gives a judgment."""
        return base.read(
            response, lambda text: structured.read_objects(text, self.key, lambda found: _reading(found, self))
        )

    def read_with_care(self, response: Response) -> Judgment:
        """Return what a response says, in JSON or what is meant to be, if it is meant."""
        keys = self.key, self.confidence_key, self.explanation_key
        reader = partial(_reading, rule=self)
        return careful.read(response, lambda text: structured.read_with_care(text, keys, _bare, reader))


_BARE: Final = {"1": True, "0": False, "compliant": True, "not compliant": False, "non-compliant": False}


def _bare(value: object) -> object:
    """Return a value without markup, and as true or false where it stands for that."""
    text = f"{value:g}" if isinstance(value, float) else value
    return _BARE.get(text := text.strip(" *_`'\"!.").casefold(), text) if isinstance(text, str) else text


def _reading(found: structured.Object, rule: ComplianceRule) -> Judgment:
    verdict, outcome = _verdict(found[structured.fold(rule.key)])
    is_decided = outcome is Outcome.DECIDED
    return Judgment(
        verdict,
        outcome,
        confidence=base.confidence(found.get(structured.fold(rule.confidence_key))) if is_decided else None,
        explanation=base.explanation(found.get(structured.fold(rule.explanation_key))),
    )


def _verdict(value: object) -> tuple[str | None, Outcome]:
    match value:
        case True:
            return YES, Outcome.DECIDED
        case False:
            return NO, Outcome.DECIDED
        case None:
            return None, Outcome.UNSURE
        case str():
            return _WORDS.get(value.strip().rstrip(".").casefold(), (None, Outcome.UNPARSED))
        case _:
            return None, Outcome.UNPARSED
