"""What simulated Anthropic models accept, as data.

From the API's documented per-model rules of 2026-11: which kinds of thinking a family takes, whether
it thinks unasked, its effort words, its cap on output, and whether it still samples.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

EFFORTS = ("low", "medium", "high", "xhigh", "max")
_EFFORTS_4_6 = ("low", "medium", "high", "max")
_DATED = re.compile(r"-\d{8}$")


@dataclass(frozen=True, slots=True)
class Family:
    """One model line.

    `thinking` are the types it takes, `default` what it does unasked. `off_efforts` are the efforts
    beside which thinking can be off. `snapshot` is the date that answers add to the name. `is_open`
    shows thoughts unless told otherwise; `samples` is about API version 2023-06-01.
    """

    name: str
    thinking: tuple[str, ...]
    default: str
    efforts: tuple[str, ...]
    max_output_tokens: int = 128_000
    off_efforts: tuple[str, ...] = EFFORTS
    is_open: bool = False
    samples: bool = False
    takes_prefill: bool = False
    snapshot: str = ""


def _old(name: str, snapshot: str) -> Family:
    return Family(name, ("enabled", "disabled"), "disabled", (), 64_000, EFFORTS, True, True, True, snapshot)


def _both(name: str) -> Family:
    kinds = ("enabled", "adaptive", "disabled")
    return Family(name, kinds, "disabled", _EFFORTS_4_6, is_open=True, samples=True)


def _asked(name: str) -> Family:
    return Family(name, ("adaptive", "disabled"), "disabled", EFFORTS)


def _unasked(name: str, off: tuple[str, ...] = ("disabled",), off_efforts: tuple[str, ...] = EFFORTS) -> Family:
    return Family(name, ("adaptive", *off), "adaptive", EFFORTS, off_efforts=off_efforts)


FAMILIES = (
    _unasked("claude-fable-5", ()),
    _unasked("claude-fable-5-1", ()),
    _unasked("claude-fable-5-2", ()),
    _unasked("claude-mythos-5", ()),
    _unasked("claude-mythos-5-1", ()),
    _unasked("claude-mythos-5-2", ()),
    _unasked("claude-opus-5-5", ()),
    _unasked("claude-sonnet-5-5", ("between_tools",)),
    _unasked("claude-haiku-5-5"),
    _unasked("claude-opus-5", off_efforts=EFFORTS[:3]),
    _unasked("claude-sonnet-5"),
    _asked("claude-opus-4-8"),
    _asked("claude-opus-4-7"),
    _both("claude-opus-4-6"),
    _both("claude-sonnet-4-6"),
    _old("claude-opus-4-5", "20251101"),
    _old("claude-sonnet-4-5", "20250929"),
    _old("claude-haiku-4-5", "20251001"),
)
_BY_NAME = {family.name: family for family in FAMILIES}


@lru_cache(maxsize=256)
def family_of(model: str) -> Family | None:
    """Return the family of a model's name or dated name, None for a model that does not exist."""
    return _BY_NAME.get(_DATED.sub("", model).removesuffix("-latest"))
