"""Rate limits as answers' headers tell them, made uniform: who sends which names is data of each provider.

Sources: [oai] OpenAI's rate-limit guide (durations such as `6m0s`, `120ms`), Azure's integers and `-1`; [groq]
console.groq.com/docs/rate-limits (requests are per day, tokens per minute); [ant] Anthropic's rate-limit page
(resets in RFC 3339); [tog] Together's rate-limit page (both per second); [or] OpenRouter's error metadata
(resets in unix milliseconds); [mis] Mistral, third-party captures that do not agree: uncertain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Final

from batchpond import fields
from batchpond.providers.base import RateHints
from batchpond.providers.http.retry import duration_s

_RESET_MAX_S: Final = 604_800.0
_UNIX_FROM: Final = 1e9  # a number of seconds that large is a date
_COUNT_MAX: Final = 2**53


class Per(Enum):
    """What a limit is per, where the headers themselves do not tell."""

    SECOND = 1.0
    MINUTE = 60.0
    UNKNOWN = 0.0


@dataclass(frozen=True, slots=True)
class Names:
    """The headers of one limit, in lower case."""

    limit: str
    left: str
    reset: str
    per: Per = Per.MINUTE


@dataclass(frozen=True, slots=True)
class RateNames:
    """Where a provider tells its limits; of several rows the first that an answer has is read."""

    requests: tuple[Names, ...]
    tokens: tuple[Names, ...]


def rate_limit(what: str, per: Per = Per.MINUTE) -> Names:
    """Return the headers of one limit as OpenAI names them, and most others."""
    return Names(f"x-ratelimit-limit-{what}", f"x-ratelimit-remaining-{what}", f"x-ratelimit-reset-{what}", per)


PLAIN: Final = ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset")
REQUESTS_AND_TOKENS: Final = RateNames((rate_limit("requests"),), (rate_limit("tokens"),))
ANY: Final = RateNames((rate_limit("requests"), Names(*PLAIN, Per.UNKNOWN)), (rate_limit("tokens"),))
NONE: Final = RateNames((), ())


def read_hints(headers: Mapping[str, str], names: RateNames, now: datetime) -> RateHints:
    """Return what an answer's headers (lower case) say; total: nonsense and `-1` say nothing.

    A reset is the time until the whole limit is there again. One that is a date counts from the answer's own
    `date` where it has one, else from `now`; that of a limit per second follows from the limit, since whole
    seconds say too little. A limit of an unknown window without a reset is left out.
    """
    requests, tokens = (_window(headers, rows, now) for rows in (names.requests, names.tokens))
    return RateHints(*requests, *tokens)


def _window(
    headers: Mapping[str, str], rows: tuple[Names, ...], now: datetime
) -> tuple[int | None, int | None, float | None]:
    names = next((row for row in rows if row.limit in headers or row.left in headers), None)
    if names is None:
        return None, None, None
    limit, left = _count(headers.get(names.limit)) or None, _count(headers.get(names.left))
    if names.per is Per.SECOND:
        refill_s = max(limit - left, 1) / limit if limit is not None and left is not None else None
        return limit, left, refill_s
    reset_s = _reset_s(headers.get(names.reset, ""), headers, now)
    return (None if names.per is Per.UNKNOWN and reset_s is None else limit), left, reset_s


def _count(value: str | None) -> int | None:
    try:
        number = float(value) if value is not None and value.isascii() else math.nan
    except ValueError:
        return None
    return int(number) if 0 <= number <= _COUNT_MAX else None  # false for NaN too


def _reset_s(value: str, headers: Mapping[str, str], now: datetime) -> float | None:
    seconds = duration_s(value) if value.isascii() else None
    if seconds is None or seconds >= _UNIX_FROM:
        moment = fields.moment(value if seconds is None else seconds)
        if moment is None:
            return None
        seconds = max(0.0, (moment - _said_at(headers, now)).total_seconds())
    return min(_RESET_MAX_S, seconds) if seconds >= 0 else None


def _said_at(headers: Mapping[str, str], now: datetime) -> datetime:
    try:
        moment = parsedate_to_datetime(headers.get("date", ""))
    except (ValueError, TypeError, OverflowError, IndexError):
        return now
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
