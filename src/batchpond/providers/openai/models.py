"""What each family of OpenAI models accepts, as `known.toml` has it; the first matching prefix wins."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from batchpond.providers.shared import known

WORDS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


class Sampling(StrEnum):
    """When a model takes `temperature`."""

    ALWAYS = "always"
    WHEN_NOT_REASONING = "only with thinking none"
    WHEN_OFF_BY_DEFAULT = "with thinking none or left out"
    NEVER = "never"


# Models before structured outputs, those that only research, and the one that follows the chat product:
# OpenAI's guide "structured outputs" (gpt-4o-mini, gpt-4o-2024-08-06 and later).
_WITHOUT_SCHEMA: Final = re.compile(
    r"gpt-3\.5|gpt-4(?![o.])|gpt-4o-2024-05-13|chatgpt-4o|o\d(?:-mini|-pro)?-deep-research"
)


@dataclass(frozen=True, slots=True)
class Family:
    """Models that take the same parameters; `thinking` are the accepted words.

    `has_effort` is false where no reasoning parameter may be sent; `chat_only_up_to_xhigh` where
    the word `max` exists on /v1/responses alone; `source` says where the row is known from.
    """

    prefix: str
    thinking: tuple[str, ...]
    sampling: Sampling
    source: str
    has_effort: bool = True
    is_responses_only: bool = False
    is_known: bool = True


FAMILIES: Final = tuple(Family(**row | {"sampling": Sampling(row["sampling"])}) for row in known.families("openai"))
_UNKNOWN: Final = Family("", WORDS, Sampling.ALWAYS, "not in the table", is_known=False)


@lru_cache(maxsize=1024)
def family_of(model: str) -> Family:
    """Return the family of a model name, dated and fine-tuned (`ft:`) ones included.

    A name that no row matches gets the family that accepts everything and is not `is_known`. A
    prefix ends where the name ends or at a `-` or `:`; `gpt-5` is not the family of `gpt-5.9`.
    """
    name = model.lower().removeprefix("ft:")
    for family in FAMILIES:
        rest = name.removeprefix(family.prefix)
        if rest != name and _ends_there(family.prefix, rest):
            return family
    return _UNKNOWN


def _ends_there(prefix: str, rest: str) -> bool:
    is_open = prefix in ("gpt-4", "chatgpt-4o")  # gpt-4o, gpt-4.1 and gpt-4 share one row
    return is_open or not rest or rest[0] in "-:"


def takes_schema(model: str) -> bool:
    """Return whether a model's answers can be held to a JSON schema; one that is not known is taken to."""
    return _WITHOUT_SCHEMA.match(model.lower().removeprefix("ft:")) is None


def accepted_thinking(model: str, endpoint: str) -> tuple[str, ...]:
    """Return the thinking words that a model accepts at an endpoint.

    The word `max` is for /v1/responses: chat completions refuse it for every model ([pai]).
    """
    words = family_of(model).thinking
    is_chat = endpoint.endswith("/chat/completions") and family_of(model).is_known
    return tuple(word for word in words if not (is_chat and word == "max"))


def nearest(model: str) -> tuple[str, ...] | None:
    """Return the names of the table that are most like a model's, None where it is there itself."""
    return None if family_of(model).is_known else known.nearest(model, [family.prefix for family in FAMILIES])


def caveats(model: str) -> tuple[str, ...]:
    """Return what a person should know about a model before money is spent on it."""
    if family_of(model).is_known:
        return ()
    return (
        f"{model}: not in batchpond's table of OpenAI models; thinking and temperature are sent as written, "
        "and what the model refuses comes back as errored rows",
    )
