"""What each family of Anthropic models accepts, as data.

Sources: [sdk] anthropic 2.11 `types/model.py`, `types/thinking_config_*.py`,
`types/output_config_param.py`, `resources/messages/messages.py`; [pai] pydantic-ai 2.68
`profiles/anthropic.py`, which states live checks of 2026; [litellm] litellm 1.109.1 price table's
`max_output_tokens`, `supports_sampling_params`, `thinking_always_on`, `supports_*_reasoning_effort`;
[docs] platform.claude.com pages "thinking", "effort" and "what's new" of each model, 2026-11.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

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


def _always(prefix: str, default_effort: str = "high") -> Family:
    return Family(prefix, EFFORTS, None, default_effort, 128_000, "[pai] [litellm] [docs]: thinking is always on")


def _on(prefix: str, off: Off, default_effort: str = "high") -> Family:
    source = "[pai] [litellm] [docs]: thinks by default"
    return Family(prefix, EFFORTS, off, default_effort, 128_000, source)


def _adaptive(prefix: str) -> Family:
    source = "[pai] [litellm] [docs]: adaptive thinking when asked"
    return Family(prefix, EFFORTS, Off.DISABLED, None, 128_000, source)


def _either(prefix: str) -> Family:
    source = "[pai] [litellm] [docs]: adaptive, or a budget (deprecated); no xhigh"
    efforts = tuple(word for word in EFFORTS if word != "xhigh")
    return Family(prefix, efforts, Off.DISABLED, None, 128_000, source, True, True, hides_thoughts=False)


def _budget(prefix: str) -> Family:
    source = "[pai] [litellm] [docs]: a budget; no adaptive thinking"
    return Family(prefix, (), Off.DISABLED, None, 64_000, source, True, True, False)


FAMILIES: Final = (
    _always("claude-fable-5"),
    _always("claude-fable-5-1"),
    _always("claude-fable-5-2"),
    _always("claude-mythos-5"),
    _always("claude-mythos-5-1"),
    _always("claude-mythos-5-2"),
    _always("claude-opus-5-5", "medium"),
    _on("claude-opus-5", Off.DISABLED),
    _on("claude-sonnet-5-5", Off.BETWEEN_TOOLS),
    _on("claude-sonnet-5", Off.DISABLED),
    _on("claude-haiku-5-5", Off.DISABLED, "medium"),
    _adaptive("claude-opus-4-8"),
    _adaptive("claude-opus-4-7"),
    _either("claude-opus-4-6"),
    _either("claude-sonnet-4-6"),
    _budget("claude-opus-4-5"),
    _budget("claude-sonnet-4-5"),
    _budget("claude-haiku-4-5"),
)
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
