"""When a safe call is made again, and after how long: named reasons, bounded waits, one clock.

Never used for creating a batch, which is sent once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeVar

from batchpond import ids
from batchpond.clock import Clock

if TYPE_CHECKING:
    import tenacity

RETRY_AFTER_MAX_S: Final = 900.0
_DURATION_PART: Final = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)(ns|us|\u00b5s|ms|s|m|h|d)", re.ASCII)
_DURATION: Final = re.compile(rf"(?:{_DURATION_PART.pattern})+", re.ASCII)
_UNIT_S: Final = {"ns": 1e-9, "us": 1e-6, "\u00b5s": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_BACKOFF_FIRST_S: Final = 0.5
_BACKOFF_MAX_S: Final = 60.0
_CONNECTS_MAX: Final = 4

T = TypeVar("T")


class RetryReason(StrEnum):
    """Why a call may be made again."""

    CONNECT = "could not connect"
    CONNECTION_LOST = "connection lost"
    TIMEOUT = "timed out"
    SHORT_BODY = "body ended early"
    HTTP_408 = "HTTP 408"
    HTTP_425 = "HTTP 425"
    RATE_LIMIT = "HTTP 429"
    SERVER = "HTTP 5xx"
    OVERLOADED = "HTTP 529"


def reason_for_status(status_code: int) -> RetryReason | None:
    """Return the reason to repeat a call that was answered with this status, else None."""
    match status_code:
        case 408:
            return RetryReason.HTTP_408
        case 425:
            return RetryReason.HTTP_425
        case 429:
            return RetryReason.RATE_LIMIT
        case 529:
            return RetryReason.OVERLOADED
        case _:
            return RetryReason.SERVER if 500 <= status_code <= 599 else None


def retry_after_s(headers: Mapping[str, str], now: datetime, asked: str | None = None) -> float | None:
    """Return how long the server asks to wait, 0 to 900 s, or None when it does not say.

    Reads `retry-after-ms` before `retry-after` (seconds or an HTTP date) before `asked`, which a body
    said ("34s", "2m3.5s"); header names are lower case. A negative or past value is 0, nonsense is
    None.
    """
    said_s = _in_headers(headers, now)
    if said_s is None and asked is not None:
        said_s = duration_s(asked)
    return None if said_s is None else min(RETRY_AFTER_MAX_S, max(0.0, said_s))


def duration_s(text: str) -> float | None:
    """Return a span of time in seconds, None for nonsense: "6m0s", "2m59.56s", "120ms", or a number of seconds."""
    text = text.strip()
    parts = _DURATION_PART.findall(text) if _DURATION.fullmatch(text) else []
    if not parts:
        return _number(text.removesuffix("s"))
    return sum(float(number) * _UNIT_S[unit] for number, unit in parts)


def _in_headers(headers: Mapping[str, str], now: datetime) -> float | None:
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None:
        return seconds
    if value is None:
        return None
    try:
        moment = parsedate_to_datetime(value)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
        return (moment - now).total_seconds()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _number(value: str | None) -> float | None:
    try:
        number = float(value) if value is not None else math.nan
    except ValueError:
        return None
    return None if math.isnan(number) else number


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and for how long in all, a safe call is repeated.

    A server that asks to wait longer than `wait_max_s` ends the call: nobody sleeps on that with the lake's lock held.
    """

    attempts: int = 6
    total_s: float = 1_200.0
    wait_max_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Again:
    """One try that may be repeated: why, and how long the server asked to wait."""

    reason: RetryReason
    detail: str
    after_s: float | None = None
    status_code: int | None = None


def run(
    call: Callable[[], T | Again],
    policy: RetryPolicy,
    clock: Clock,
    name: str,
    on_wait: Callable[[Again, float], None] | None = None,
) -> T | Again:
    """Call until it returns something other than `Again`; return the last `Again` at the end.

    Waits are the server's own or exponential with full jitter from 0.5 to 60 s, and are never
    begun when they would pass `policy.total_s`, or are the server's and longer than `policy.wait_max_s`. `name` seeds
    the jitter. An address that no connection comes about to is tried four times, over some seconds: the rest of the
    pass need not wait for it.
    """
    import tenacity  # noqa: PLC0415  # slow to import, and who reads an error repeats nothing

    deadline_s = clock.monotonic_s() + policy.total_s

    def wait(state: tenacity.RetryCallState) -> float:
        last = _last(state)
        backoff_s = min(_BACKOFF_MAX_S, _BACKOFF_FIRST_S * 2.0 ** min(state.attempt_number, 16))
        # Hashing the clock's reading spreads real processes and repeats simulated ones exactly.
        share = ids.unit_interval(state.attempt_number, name, repr(clock.monotonic_s()))
        jittered_s = backoff_s * (0.5 + 0.5 * share)
        return jittered_s if last.after_s is None else last.after_s + min(1.0, last.after_s) * share

    def stop(state: tenacity.RetryCallState) -> bool:
        is_long = (_last(state).after_s or 0.0) > policy.wait_max_s
        is_past = clock.monotonic_s() + state.upcoming_sleep > deadline_s
        attempts = _CONNECTS_MAX if _last(state).reason is RetryReason.CONNECT else policy.attempts
        return state.attempt_number >= min(attempts, policy.attempts) or is_long or is_past

    def before_sleep(state: tenacity.RetryCallState) -> None:
        if on_wait is not None:
            on_wait(_last(state), state.upcoming_sleep)

    retrying = tenacity.Retrying(
        sleep=clock.sleep,
        wait=wait,
        stop=stop,
        retry=tenacity.retry_if_result(lambda result: isinstance(result, Again)),
        before_sleep=before_sleep,
        retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
    )
    result: T | Again = retrying(call)
    return result


def _last(state: tenacity.RetryCallState) -> Again:
    outcome = state.outcome
    if outcome is None or not isinstance(last := outcome.result(), Again):
        raise TypeError("a wait was asked for a call that did not fail")
    return last
