"""The compliance task: whether an output keeps to a statement, read from `{compliant, confidence, explanation}`.

The JSON may stand in a code fence, in prose, or inside another object (`common_json`). `compliant` is true
or false, also as a text or as yes or no. Several objects that have the key must agree; the last one gives
confidence and explanation. Objects whose value means nothing (`"true or false"`) count only when alone.

Unknown is never "not compliant": null or a word such as unsure is unsure, `N/A` is not applicable, other
values are unparsed, all without a verdict. A confidence outside 0 to 1 is NULL and leaves the verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from batchpond.model import Outcome
from batchpond.tasks import base, structured
from batchpond.tasks.base import Judgment, Text
from batchpond.tasks.templates import STATEMENT_PLACEHOLDERS, Placeholders

TASK: Final = "compliance"
YES: Final = "true"
NO: Final = "false"
_WORDS: Final = {
    **dict.fromkeys(("true", "yes"), (YES, Outcome.DECIDED)),
    **dict.fromkeys(("false", "no"), (NO, Outcome.DECIDED)),
    **dict.fromkeys(("null", "unsure", "unknown", "unclear", "uncertain"), (None, Outcome.UNSURE)),
    **dict.fromkeys(("n/a", "na", "not applicable", "not_applicable"), (None, Outcome.NOT_APPLICABLE)),
}


@dataclass(frozen=True)
class ComplianceRule(structured.ObjectRule):
    """The names of the three keys in a judge's JSON."""

    TASK: ClassVar[str] = TASK
    SAYS: ClassVar[tuple[str, ...]] = ("text", "verdict", "confidence", "explanation")
    EARNS: ClassVar[bool] = True
    PLACEHOLDERS: ClassVar[Placeholders] = Placeholders(
        ("STATEMENT", "INPUT", "OUTPUT"), (*STATEMENT_PLACEHOLDERS, "ANSWER_FORMAT")
    )

    key: Text = "compliant"
    confidence_key: Text = "confidence"

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that are read, the one that decides first."""
        return self.key, self.confidence_key, self.explanation_key

    def values(self) -> dict[str, str]:
        """Return how the answer is asked for, which itself is not a valid answer."""
        verdict, share = "true or false (null if it cannot be decided)", "a number from 0 to 1"
        return {"ANSWER_FORMAT": self._asked({self.key: verdict, self.confidence_key: share})}

    def output_schema(self) -> dict[str, Any]:
        """Return the JSON schema of an answer."""
        verdict: dict[str, Any] = {
            "anyOf": [{"type": "boolean"}, {"type": "null"}],
            "description": "whether the output keeps to the statement; null if it cannot be decided",
        }
        share = {"type": "number", "description": "from 0 to 1"}
        return self._schema({self.key: verdict, self.confidence_key: share})

    def _bare(self, value: object) -> object:
        text = f"{value:g}" if isinstance(value, float) else value
        return _BARE.get(text := text.strip(" *_`'\"!.").casefold(), text) if isinstance(text, str) else text

    def _reading(self, found: structured.Object) -> Judgment:
        verdict, outcome = _verdict(found[structured.fold(self.key)])
        share = None if verdict is None else found.get(structured.fold(self.confidence_key))
        return Judgment(verdict, outcome, confidence=base.confidence(share), explanation=self._reason(found))


_BARE: Final = {"1": True, "0": False, "compliant": True, "not compliant": False, "non-compliant": False}


def _verdict(value: object) -> tuple[str | None, Outcome]:
    if value is None:
        return None, Outcome.UNSURE
    word = str(value) if isinstance(value, bool | str) else ""
    return _WORDS.get(word.strip().rstrip(".").casefold(), (None, Outcome.UNPARSED))
