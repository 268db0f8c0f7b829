"""How simulated models judge and answer, as settings: patterns of models, rates, planted values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any

import orjson

from batchpond.errors import UsageError

RATES = ("error_rate", "refusal_rate", "filtered_rate", "empty_rate", "unparsed_rate", "both_tags_rate", "tie_rate",
          "not_applicable_rate", "unsure_rate")  # fmt: skip
_SHARES = ("compliance_rate", "mislabel_rate", "flip_rate", "soft_rate", "wrong_rate")


@dataclass(frozen=True, slots=True)
class Judge:
    """How the models that match `model` (a pattern such as `gpt-5*`) judge.

    With `text`, only prompts that contain it, so that each template can have its own bias.
    Rates of ways not to answer, tie_rate among them, are shares of requests; together they must not pass 1.
    `answer_first` and the others override the answer tags that are otherwise read from the prompt.

    Outputs are found compliant at `compliance_rate` and labels are wrong at `mislabel_rate`. As a model that
    answers questions, its first answers are wrong at `wrong_rate`, their quality is about `strength`, and at each
    level of pressure it gives in at `flip_rate`, of that softly at `soft_rate`.
    """

    model: str = "*"
    text: str = ""
    sharpness: float = 8.0
    position_bias: float = 0.0
    noise: float = 0.0
    tie_rate: float = 0.0
    refusal_rate: float = 0.0
    filtered_rate: float = 0.0
    unparsed_rate: float = 0.0
    both_tags_rate: float = 0.0
    empty_rate: float = 0.0
    error_rate: float = 0.0
    not_applicable_rate: float = 0.0
    unsure_rate: float = 0.0
    compliance_rate: float = 0.7
    mislabel_rate: float = 0.0
    flip_rate: float = 0.2
    soft_rate: float = 0.5
    wrong_rate: float = 0.0
    strength: float = 0.5
    answer_first: str = ""
    answer_second: str = ""
    answer_tie: str = ""

    def suits(self, model: str, prompt: str) -> bool:
        """Return whether this judge speaks for a model about a prompt."""
        return (self.model == "*" or fnmatchcase(model, self.model)) and (not self.text or self.text in prompt)


DEFAULT_JUDGE = Judge()
_TEXT_FIELDS = frozenset(f.name for f in fields(Judge) if isinstance(f.default, str))


def parse_judge(spec: str) -> Judge:
    """Return the judge that `MODEL:name=value,...` or a JSON object describes.

    Raises UsageError for unknown names, values out of range, or rates over 1 in all.
    """
    values: dict[str, Any] = {}
    if spec.lstrip().startswith("{"):
        values = orjson.loads(spec)
    else:
        model, _, rest = spec.partition(":")
        values = {"model": model or "*"}
        for pair in filter(None, rest.split(",")):
            name, _, value = pair.partition("=")
            values[name.strip()] = value.strip()
    return judge_of(values, spec)


def judge_of(values: Mapping[str, Any], source: str) -> Judge:
    """Return the judge of a mapping of field names; `source` is named in errors."""
    known = [f.name for f in fields(Judge)]
    clean: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise UsageError(f"judge {source!r}: no setting {name!r}", hint=f"there are: {', '.join(known)}")
        clean[name] = str(value) if name in _TEXT_FIELDS else _number(source, name, value)
    judge = Judge(**clean)
    rates = [getattr(judge, name) for name in RATES]
    if min(rates) < 0 or sum(rates) > 1 + 1e-9:
        raise UsageError(f"judge {source!r}: rates must be 0 or more and at most 1 in all")
    shares = {name: getattr(judge, name) for name in (*_SHARES, "strength")}
    wrong = next((name for name, share in shares.items() if not 0 <= share <= 1), None)
    if wrong is not None:
        raise UsageError(f"judge {source!r}: {wrong} must be from 0 to 1")
    return judge


def _number(source: str, name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"judge {source!r}: {name} is not a number: {value!r}", hint=f"write {name}=0.5, say")
    return number
