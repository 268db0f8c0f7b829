"""What each family of Anthropic models accepts, as `known.toml` has it with its sources.

[sdk] is anthropic 2.11 `types/model.py`, `types/thinking_config_*.py`, `types/output_config_param.py`,
`resources/messages/messages.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

from batchpond.providers.shared import known

BUDGET_MIN_TOKENS: Final = 1_024  # [sdk] thinking_config_enabled_param.py
# What a thinking word means in tokens where a model takes budgets; batchpond's own scale.
BUDGETS: Final = {
    "minimal": 1_024,
    "low": 2_048,
    "medium": 8_192,
    "high": 16_384,
    "xhigh": 32_768,
    "max": 49_152,
}
EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")  # [sdk] output_config_param.py
_DATED: Final = re.compile(r"(?:-\d{8}|-latest)?")


class Off(StrEnum):
    """The `thinking.type` that turns thinking off."""

    DISABLED = "disabled"
    BETWEEN_TOOLS = "between_tools"


@dataclass(frozen=True, slots=True)
class Family:
    """One model and its dated names.

    `efforts` are the words it takes beside adaptive thinking, empty where words become budgets.
    `off` is None where it cannot be kept from thinking. `default_effort` is None where it does not
    think unless asked. `hides_thoughts` where thoughts come back empty unless asked for.
    `takes_sampling` is about API version 2023-06-01, since later ones take none from any model.
    """

    prefix: str
    efforts: tuple[str, ...]
    off: Off | None
    default_effort: str | None
    max_output_tokens: int
    source: str
    takes_budget: bool = False
    takes_sampling: bool = False
    hides_thoughts: bool = True
    is_known: bool = True

    @property
    def thinks_by_default(self) -> bool:
        """Whether it thinks when nothing is said about thinking."""
        return self.default_effort is not None

    @property
    def words(self) -> tuple[str, ...]:
        """Return the thinking words it accepts."""
        return (("none",) if self.off else ()) + (self.efforts or tuple(BUDGETS))


def _family(row: dict[str, Any]) -> Family:
    off, effort = row.get("off"), row.get("default_effort")
    return Family(**row | {"off": Off(off) if off else None, "default_effort": effort})


FAMILIES: Final = tuple(map(_family, known.families("anthropic")))
_UNKNOWN: Final = Family(
    "", EFFORTS, Off.DISABLED, "high", 1_000_000, "not in the table", True, True, True, is_known=False
)


@lru_cache(maxsize=1024)
def family_of(model: str) -> Family:
    """Return the family of a model name, dated ones included.

    A name that no row matches gets the family that is sent as written and is not `is_known`:
    `claude-opus-5-7` is not taken for a `claude-opus-5`.
    """
    name = model.lower()
    for family in FAMILIES:
        if name.startswith(family.prefix) and _DATED.fullmatch(name, len(family.prefix)):
            return family
    return _UNKNOWN


def accepted_thinking(model: str) -> tuple[str, ...]:
    """Return what a model accepts as thinking, for people: its words, and a budget where it takes one."""
    family = family_of(model)
    budget = (f"a number of tokens from {BUDGET_MIN_TOKENS}",) if family.takes_budget else ()
    return (*family.words, *budget)


def nearest(model: str) -> tuple[str, ...] | None:
    """Return the names of the table that are most like a model's, None where it is there itself."""
    return None if family_of(model).is_known else known.nearest(model, [family.prefix for family in FAMILIES])


def caveats(model: str) -> tuple[str, ...]:
    """Return what a person should know about a model before money is spent on it."""
    family = family_of(model)
    if not family.is_known:
        return (
            f"{model}: not in batchpond's table of Anthropic models; thinking is sent as newer models take it, a "
            "temperature only at /v1/messages@2023-06-01, and what the model refuses comes back as errored rows",
        )
    if not family.thinks_by_default:
        return ()
    how = 'unless thinking is "none"' if family.off else "and cannot be kept from it"
    return (
        f"{model} thinks by default {how}; thinking is billed as output and counts against max_output_tokens: "
        "leave room for thousands of tokens, or answers come back cut off and empty",
    )
