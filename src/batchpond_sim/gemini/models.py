"""What simulated Gemini models take: thinking by budget or by level, sampling, tokens in one answer.

Sources: the thinking guide and the model pages of ai.google.dev, `ThinkingLevel` of the official SDK.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

LEVELS = ("MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH")
LEVEL_TOKENS = {"MINIMAL": 16, "LOW": 96, "MEDIUM": 320, "HIGH": 900, "XHIGH": 1800}
DYNAMIC_TOKENS = 400


@dataclass(frozen=True, slots=True)
class Family:
    """The models whose names start alike.

    `budget` is the range of `thinkingBudget` in tokens; `levels` are the words of `thinkingLevel`, both
    empty for models that do not think. `default` is a level or, for budgets, a number of tokens (-1:
    the model decides). `is_strict` models ignore sampling and refuse penalties and prefilled answers.
    An answer over `answer_max_tokens` of an `is_continued` model can be asked on for, so that a
    request's own limit may be higher.
    """

    pattern: str
    budget: tuple[int, int] | None = None
    can_be_off: bool = False
    levels: tuple[str, ...] = ()
    default: str | int = 0
    is_strict: bool = False
    answer_max_tokens: int = 65_536
    is_continued: bool = False

    @property
    def thinks(self) -> bool:
        """Whether these models can think at all."""
        return self.budget is not None or bool(self.levels)


_ALL = LEVELS[:4]
FAMILIES = (
    Family(
        r"gemini-4",
        levels=("LOW", "MEDIUM", "HIGH"),
        default="MEDIUM",
        is_strict=True,
        answer_max_tokens=32_768,
        is_continued=True,
    ),
    Family(r"gemini-3\.[78]-flash", levels=_ALL[1:], default="MEDIUM", is_strict=True),
    Family(r"gemini-3\.5-flash-lite|gemini-3\.6-flash", levels=_ALL, default="MINIMAL", is_strict=True),
    Family(r"gemini-3\.1-pro", levels=("LOW", "MEDIUM", "HIGH"), default="HIGH"),
    Family(r"gemini-3(\.\d)?-pro", levels=("LOW", "HIGH"), default="HIGH"),
    Family(r"gemini-3(\.\d)?-flash-lite", levels=_ALL, default="MINIMAL"),
    Family(r"gemini-3(\.\d)?-flash", levels=_ALL, default="HIGH"),
    Family(r"gemini-2\.5-pro", budget=(128, 32_768), default=-1),
    Family(r"gemini-2\.5-flash-lite", budget=(512, 24_576), can_be_off=True, default=0),
    Family(r"gemini-2\.5-flash", budget=(0, 24_576), can_be_off=True, default=-1),
    Family(r"gemini-2\.0-flash", answer_max_tokens=8_192),
)
"""Every family, the first that fits is meant."""

MODELS = (
    "gemini-4-argon", "gemini-3.8-flash", "gemini-3.6-flash", "gemini-3.5-flash", "gemini-3.5-flash-lite",
    "gemini-3.1-pro-preview", "gemini-3.1-flash-lite", "gemini-3-flash-preview", "gemini-2.5-pro",
    "gemini-2.5-flash", "gemini-2.5-flash-lite",
)  # fmt: skip
"""What the model listing shows."""


def family_of(model: str) -> Family | None:
    """Return the family of a model's name without `models/`, None when there is no such model."""
    return next((family for family in FAMILIES if re.match(family.pattern, model)), None)
