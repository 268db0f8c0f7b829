"""What each family of Gemini models accepts, as `known.toml` has it with its sources; the first matching prefix wins.

The names are those of google-genai 3.4 `types.py` (ThinkingConfig, ThinkingLevel). [compat] is Google's page on OpenAI
compatibility, which gives the words a number of tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from batchpond.providers.shared import known

WORDS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_LEVELS: Final = ("minimal", "low", "medium", "high", "xhigh")
_WORD_TOKENS: Final = {"low": 1_024, "medium": 8_192, "high": 24_576}  # [compat]


@dataclass(frozen=True, slots=True)
class Budget:
    """The tokens that `thinkingBudget` may ask for; `words` are what this program's words come to."""

    least: int
    most: int
    can_be_off: bool
    words: Mapping[str, int] = field(default_factory=dict)

    def accepts(self, tokens: int) -> bool:
        """Return whether a model takes this number of tokens."""
        return self.least <= tokens <= self.most or (tokens == 0 and self.can_be_off)


@dataclass(frozen=True, slots=True)
class Family:
    """Models that take the same parameters: a `thinkingLevel`, a `thinkingBudget`, or neither.

    Where `ignores_sampling`, temperature, topP and topK have no effect and penalties are refused. `takes_schema`
    is about `responseJsonSchema`, which came with 2.5.
    `remark` is what to know about the models; `source` says where the row is known from.
    """

    prefix: str
    source: str
    levels: tuple[str, ...] = ()
    budget: Budget | None = None
    ignores_sampling: bool = False
    is_known: bool = True
    remark: str | None = None
    takes_schema: bool = True

    @property
    def thinks(self) -> bool:
        """Whether these models can think."""
        return bool(self.levels) or self.budget is not None

    @property
    def words(self) -> tuple[str, ...]:
        """Return the thinking words that these models accept; models that cannot think accept `none`."""
        if not self.thinks:
            return ("none",)
        budgeted = self.budget.words if self.budget else {}
        return tuple(word for word in WORDS if word in self.levels or word in budgeted)


def _budget(least: int, most: int, *, can_be_off: bool) -> Budget:
    words = {"none": 0} if can_be_off else {}
    words |= _WORD_TOKENS
    if most > _WORD_TOKENS["high"]:
        words["max"] = most
    return Budget(least, most, can_be_off, MappingProxyType(words))


def _family(row: dict[str, Any]) -> Family:
    return Family(**row | ({"budget": _budget(**row["budget"])} if "budget" in row else {}))


FAMILIES: Final = tuple(map(_family, known.families("gemini")))
_UNKNOWN: Final = Family(
    "", "not in the table", _LEVELS, Budget(0, 2**31 - 1, True, MappingProxyType({"none": 0})), is_known=False
)


@lru_cache(maxsize=1024)
def family_of(model: str) -> Family:
    """Return the family of a model name, with or without `models/`, previews and dated ones included.

    A name that no row matches gets the family that accepts everything and is not `is_known`. A
    prefix ends where the name ends or at a `-`; `gemini-3` is not the family of `gemini-3.9`.
    """
    name = model.lower().removeprefix("models/")
    for family in FAMILIES:
        rest = name.removeprefix(family.prefix)
        if rest != name and (not rest or rest[0] == "-"):
            return family
    return _UNKNOWN


def accepted_thinking(model: str, endpoint: str = "") -> tuple[str, ...]:  # noqa: ARG001  # Gemini has one endpoint
    """Return the thinking words that a model accepts; where it has a budget, numbers of tokens besides."""
    return family_of(model).words


def nearest(model: str) -> tuple[str, ...] | None:
    """Return the names of the table that are most like a model's, None where it is there itself."""
    return None if family_of(model).is_known else known.nearest(model, [family.prefix for family in FAMILIES])


def caveats(model: str) -> tuple[str, ...]:
    """Return what a person should know about a model before money is spent on it."""
    family = family_of(model)
    if not family.is_known:
        return (
            f"{model}: not in batchpond's table of Gemini models; thinking and temperature are sent as written, "
            "and what the model refuses comes back as errored rows",
        )
    return (family.remark,) if family.remark else ()
