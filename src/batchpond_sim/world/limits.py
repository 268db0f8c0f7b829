"""Rate limits of live calls: token buckets over the world's clock, one set for each key and model.

    gpt-5*:rpm=600,tpm=200000        600 requests and 200,000 tokens a minute for each such model
    *:rps=5,burst=1                  five a second, evenly: no two at once
    *:concurrent=8                   at most eight in flight

A bucket holds a window's worth (a minute's, for `rps` a second's) or `burst` requests, and fills up
steadily. Only calls that are let in are charged; tokens are guessed from the body's size at the
door and put right when the answer is known. Buckets are full after a restart.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from fnmatch import fnmatchcase

from batchpond_sim import SimulatorError

BYTES_PER_TOKEN = 4
_ACCOUNTS_MAX = 10_000
_EPSILON = 1e-9


class Scarce(StrEnum):
    """What there was not enough of."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    CONCURRENT = "concurrent"


@dataclass(frozen=True, slots=True)
class Limit:
    """What each model that matches `model` (a pattern) allows each key; 0 is no limit.

    `rpm` and `rps` are requests a minute and a second, `tpm` tokens a minute, `concurrent` requests
    in flight; `burst` is how many requests a full bucket holds.
    """

    model: str = "*"
    rpm: float = 0
    rps: float = 0
    tpm: float = 0
    concurrent: float = 0
    burst: float = 0


@dataclass(frozen=True, slots=True)
class Window:
    """One limit as a header tells it: how much in `period_s`, how much is left, when all of it is back."""

    limit: float
    remaining: float
    reset_s: float
    period_s: float

    @property
    def per_minute(self) -> int:
        """The limit as so many a minute."""
        return int(self.limit * 60 / self.period_s)


@dataclass(frozen=True, slots=True)
class Quota:
    """How a key stands with a model; `scarce` says why a call was refused, None that it was let in.

    `retry_s` is when the call would be let in if nobody else came.
    """

    model: str
    requests: Window | None
    tokens: Window | None
    scarce: Scarce | None = None
    retry_s: float = 0.0
    concurrent: int = 0


def parse_limit(spec: str) -> Limit:
    """Return the limit that `MODEL:name=value,...` describes.

    Raises SimulatorError for unknown names and for anything but positive numbers.
    """
    model, colon, rest = spec.rpartition(":")
    known = [f.name for f in fields(Limit) if f.name != "model"]
    values: dict[str, float] = {}
    for pair in filter(None, rest.split(",")):
        name, _, text = (part.strip() for part in pair.partition("="))
        if name not in known:
            raise SimulatorError(f"limit {spec!r}: no setting {name!r}", hint=f"there are: {', '.join(known)}")
        values[name] = _positive(spec, name, text)
    if not values or (colon and not model):
        raise SimulatorError(
            f"limit {spec!r} cannot be read", hint="write MODEL:rpm=60,tpm=100000; a MODEL of * is any"
        )
    return Limit(model or "*", **values)


def _positive(spec: str, name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise SimulatorError(f"limit {spec!r}: {name} is not a positive number: {text!r}", hint=f"write {name}=60, say")
    return number


class _Bucket:
    """Fills at a steady rate up to its size; it may owe, when more was used than was guessed."""

    def __init__(self, amount: float, period_s: float, size: float, now_s: float) -> None:
        self._amount = amount
        self._period_s = period_s
        self._size = size
        self._level = size
        self._at_s = now_s

    def fill(self, now_s: float) -> None:
        grown = max(0.0, now_s - self._at_s) * self._amount / self._period_s
        self._level = min(self._size, self._level + grown)
        self._at_s = now_s

    def wait_s(self, wanted: float) -> float:
        """Return the seconds until `wanted` is there; all of a bucket is enough for what never fits."""
        lacking = min(wanted, self._size) - self._level
        return lacking * self._period_s / self._amount if lacking > _EPSILON else 0.0

    def take(self, n: float) -> None:
        self._level = min(self._size, self._level - n)

    def window(self) -> Window:
        reset_s = (self._size - self._level) * self._period_s / self._amount
        return Window(self._amount, max(0.0, self._level), reset_s, self._period_s)


@dataclass(slots=True)
class _Account:
    """One key's buckets for one model, and when its calls in flight end."""

    limit: Limit
    requests: list[_Bucket]
    tokens: _Bucket | None
    ends_s: list[float] = field(default_factory=list)
    n_open: int = 0


class Limiter:
    """All accounts of a world; its callers hold the world's lock."""

    def __init__(self, limits: Sequence[Limit] = ()) -> None:
        self.limits = tuple(limits)
        self._accounts: dict[tuple[str, str, str], _Account | None] = {}

    def admit(self, provider: str, key: str, model: str, tokens: int, now_s: float) -> Quota | None:
        """Let a call of about `tokens` in or refuse it; None where no limit is set.

        A call that was let in must be `settled`.
        """
        account = self._account(provider, key, model, now_s)
        if account is None:
            return None
        limit = account.limit
        while account.ends_s and account.ends_s[0] <= now_s:
            heapq.heappop(account.ends_s)
        waits = [(bucket.wait_s(1), Scarce.REQUESTS) for bucket in account.requests]
        if account.tokens is not None:
            waits.append((account.tokens.wait_s(tokens), Scarce.TOKENS))
        if limit.concurrent and account.n_open + len(account.ends_s) >= limit.concurrent:
            waits.append(((account.ends_s[0] - now_s) if account.ends_s else 1.0, Scarce.CONCURRENT))
        retry_s, scarce = max(waits, default=(0.0, None))
        if retry_s > 0:
            return self._quota(account, model, scarce, retry_s)
        for bucket in account.requests:
            bucket.take(1)
        if account.tokens is not None:
            account.tokens.take(tokens)
        account.n_open += 1
        return self._quota(account, model)

    def settle(self, provider: str, key: str, model: str, more_tokens: int, end_s: float) -> None:
        """Charge what an admitted call used beyond the guess; it is in flight until `end_s`."""
        account = self._accounts.get((provider, key, model))
        if account is None:
            return
        account.n_open = max(0, account.n_open - 1)
        if account.limit.concurrent:
            heapq.heappush(account.ends_s, end_s)
        if account.tokens is not None:
            account.tokens.take(more_tokens)

    def _account(self, provider: str, key: str, model: str, now_s: float) -> _Account | None:
        place = (provider, key, model)
        if place not in self._accounts:
            if len(self._accounts) >= _ACCOUNTS_MAX:
                self._accounts.clear()  # whoever asks for that many models finds full buckets
            limit = next((limit for limit in self.limits if fnmatchcase(model, limit.model)), None)
            self._accounts[place] = None if limit is None else _opened(limit, now_s)
        account = self._accounts[place]
        if account is not None:
            for bucket in (*account.requests, *((account.tokens,) if account.tokens else ())):
                bucket.fill(now_s)
        return account

    def _quota(self, account: _Account, model: str, scarce: Scarce | None = None, retry_s: float = 0.0) -> Quota:
        tightest = min((bucket.window() for bucket in account.requests), key=lambda w: w.remaining, default=None)
        tokens = None if account.tokens is None else account.tokens.window()
        return Quota(model, tightest, tokens, scarce, retry_s, int(account.limit.concurrent))


def _opened(limit: Limit, now_s: float) -> _Account:
    requests = [
        _Bucket(amount, period_s, limit.burst or max(1.0, amount), now_s)
        for amount, period_s in ((limit.rpm, 60.0), (limit.rps, 1.0))
        if amount
    ]
    tokens = _Bucket(limit.tpm, 60.0, limit.tpm, now_s) if limit.tpm else None
    return _Account(limit, requests, tokens)


def duration(seconds: float) -> str:
    """Return a duration as OpenAI and Groq write it: `120ms`, `1s`, `6m0s`, `1h0m2.5s`."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(round(seconds, 3), 60)
    hours, minutes = divmod(int(minutes), 60)
    text = f"{rest:.3f}".rstrip("0").rstrip(".") + "s"
    return f"{hours}h{minutes}m{text}" if hours else f"{minutes}m{text}" if minutes else text


def openai_headers(quota: Quota) -> tuple[tuple[str, str], ...]:
    """Return `x-ratelimit-*` headers of the kind that OpenAI, Groq and most compatible servers send.

    Limits are told by the minute, also those that are kept by the second.
    """
    found: list[tuple[str, str]] = []
    for name, window in (("requests", quota.requests), ("tokens", quota.tokens)):
        if window is not None:
            found += [
                (f"x-ratelimit-limit-{name}", str(window.per_minute)),
                (f"x-ratelimit-remaining-{name}", str(int(window.remaining))),
                (f"x-ratelimit-reset-{name}", duration(window.reset_s)),
            ]
    if quota.scarce is not None:
        found += [
            ("retry-after-ms", str(math.ceil(quota.retry_s * 1000))),
            ("retry-after", str(max(1, math.ceil(quota.retry_s)))),
        ]
    return tuple(found)


def per_second_headers(quota: Quota) -> tuple[tuple[str, str], ...]:
    """Return `x-ratelimit-*` and `x-tokenlimit-*` headers that speak of one second, as Together's do."""
    found: list[tuple[str, str]] = []
    for name, window in (("x-ratelimit", quota.requests), ("x-tokenlimit", quota.tokens)):
        if window is not None:
            found += [
                (f"{name}-limit", f"{window.limit / window.period_s:g}"),
                (f"{name}-remaining", f"{min(window.remaining, window.limit / window.period_s):g}"),
            ]
    if quota.requests is not None:
        found.append(("x-ratelimit-reset", str(math.ceil(quota.retry_s))))
    return tuple(found)


def openai_message(quota: Quota, organization: str) -> str:
    """Return the words in which OpenAI and Groq refuse a call."""
    scarce = quota.scarce
    window = quota.tokens if scarce is Scarce.TOKENS else quota.requests
    if scarce is Scarce.CONCURRENT or window is None:
        return f"Rate limit reached for {quota.model} in organization {organization}: too many concurrent requests."
    unit = "min" if window.period_s > 1 else "sec"
    short = ("T" if scarce is Scarce.TOKENS else "R") + ("PM" if unit == "min" else "PS")
    limit, used = int(window.limit), math.ceil(window.limit - window.remaining - _EPSILON)
    return (
        f"Rate limit reached for {quota.model} in organization {organization} on {scarce} per {unit} ({short}): "
        f"Limit {limit}, Used {used}, Requested 1. Please try again in {duration(quota.retry_s)}."
    )
