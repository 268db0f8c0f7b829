"""How fast to ask: bounded concurrency, requests and tokens per minute, and what the provider's answers teach.

Pure but for the time it is handed (`now_s`, monotonic). One pace per provider and model:

- at most `concurrency` calls at once; a refusal of the whole account halves what is allowed, answers grow
  it back by an eighth, or at least one call, per full round. When refusals and answers take turns, the most
  that went well is kept to for ten times as long as a refusal made everyone wait;
- token buckets for requests and for tokens per minute, from the settings;
- what headers say is left of a window (`RateHints`): when less is left than is in flight, one call at the
  rate at which the window refills;
- after a refusal nothing is sent before the provider's own `Retry-After`, or else a back-off that doubles; also where
  that is 0, or below a second and again refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from batchpond.providers.base import NO_HINTS, Deferred, RateHints

BACKOFF_FIRST_S: Final = 1.0
BACKOFF_MAX_S: Final = 60.0
WAIT_MAX_S: Final = 86_400.0
_WINDOW_MAX_S: Final = 3_600.0
_BURST_S: Final = 1.0
_MINUTE_S: Final = 60.0
_LATE_MAX_S: Final = 0.1
_GROWTH: Final = 8
_QUIET_WAITS: Final = 10.0
_STRETCH_STEP: Final = 1.08
_STRETCH_MAX: Final = 1.25
_STRETCH_DECAY: Final = 0.9995


@dataclass(frozen=True, slots=True)
class PaceSettings:
    """The most that one model is asked at; None is no limit but the provider's own."""

    concurrency: int = 16
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    gap_s: float = 0.0


@dataclass(slots=True)
class Bucket:
    """A token bucket that may be overdrawn once: one call larger than the bucket still goes, and is paid for."""

    per_s: float
    size: float
    level: float
    filled_s: float

    @classmethod
    def of(cls, per_minute: float | None, now_s: float) -> Bucket | None:
        """Return a full bucket of a second's worth, None for no limit."""
        if per_minute is None:
            return None
        per_s = per_minute / 60
        size = max(1.0, per_s * _BURST_S)
        return cls(per_s, size, size, now_s)

    def wait_s(self, amount: float, now_s: float) -> float:
        """Return how long to wait before taking an amount."""
        self.level = min(self.size, self.level + (now_s - self.filled_s) * self.per_s)
        self.filled_s = now_s
        needed = min(amount, self.size)
        return max(0.0, (needed - self.level) / self.per_s)

    def take(self, amount: float) -> None:
        """Take an amount, below nothing if need be."""
        self.level -= amount


@dataclass(slots=True)
class Window:
    """What is left of a provider's own window, as its last answer said, and how fast it fills again.

    While that is less than a call needs, calls leave at the rate at which the window fills, whatever the
    answers say meanwhile: they tell of calls that left long ago.
    """

    left: float = math.inf
    refill_per_s: float = math.inf
    opens_s: float = 0.0
    _needed: float = 1.0
    _stretch: float = 1.0

    def learn(self, limit: int | None, left: int | None, reset_s: float | None, in_flight: float, now_s: float) -> None:
        """Take in an answer's headers; what is in flight may not be counted in them yet."""
        if left is None or not limit:
            return
        was_shut = self.left < self._needed
        # A window need not be a minute's: what is lacking comes back by the reset, and never faster than told.
        self.refill_per_s = min(limit / _MINUTE_S, max(limit - left, 1) / reset_s if reset_s else math.inf)
        self.left = left - in_flight
        self._needed = min(self._needed, limit)
        if not was_shut and left < self._needed:
            self.opens_s = max(self.opens_s, now_s + (self._needed - left) / self.refill_per_s)

    def wait_s(self, amount: float, now_s: float) -> float:
        """Return how long to wait before the next call, which needs so much."""
        self._needed = amount
        return max(0.0, self.opens_s - now_s) if self.left < amount else 0.0

    def take(self, amount: float, now_s: float) -> None:
        """Count a call that leaves now."""
        if self.left < amount:
            # What leaves a little late is made up for, as the window has filled meanwhile, but not by much: the
            # server's bucket may be small.
            late_s = _LATE_MAX_S if self._stretch == 1.0 else 0.0
            opens_s = max(self.opens_s, now_s - late_s) + amount / self.refill_per_s * self._stretch
            self.opens_s = min(opens_s, now_s + _WINDOW_MAX_S)
        self.left -= amount

    def answered(self) -> None:
        """Count an answer."""
        self._stretch = max(1.0, self._stretch * _STRETCH_DECAY)

    def refused(self) -> bool:
        """Count a refusal; whether it is the window's: at the rate at which it should fill, calls came too early."""
        is_shut = self.left < self._needed
        if is_shut:
            self._stretch = min(_STRETCH_MAX, self._stretch * _STRETCH_STEP)
        return is_shut


@dataclass(slots=True)
class Pace:
    """When the next call may leave; not safe to share between threads without a lock."""

    settings: PaceSettings
    now_s: float
    n_in_flight: int = 0
    n_deferred: int = 0
    refused_since_s: float | None = None
    allowed: float = field(init=False)
    held_until_s: float = 0.0
    _n_refusals: int = 0
    _shrunk_s: float = -math.inf
    _ceiling: float = math.inf
    _quiet_s: float = -math.inf
    _last_sent_s: float = -math.inf
    _requests: Bucket | None = field(init=False)
    _tokens: Bucket | None = field(init=False)
    _request_window: Window = field(default_factory=Window)
    _token_window: Window = field(default_factory=Window)
    _tokens_in_flight: float = 0.0

    def __post_init__(self) -> None:
        self.allowed = float(self.settings.concurrency)
        self._requests = Bucket.of(self.settings.requests_per_minute, self.now_s)
        self._tokens = Bucket.of(self.settings.tokens_per_minute, self.now_s)

    def wait_s(self, n_tokens: float, now_s: float) -> float:
        """Return 0 when a call of so many tokens may leave now, else how long to wait before asking again.

        Infinity: not before a call that is in flight has ended.
        """
        if self.n_in_flight >= max(1, int(self.allowed)):
            return math.inf
        waits = [self.held_until_s - now_s, self._last_sent_s + self.settings.gap_s - now_s]
        if self._requests is not None:
            waits.append(self._requests.wait_s(1, now_s))
        if self._tokens is not None:
            waits.append(self._tokens.wait_s(n_tokens, now_s))
        waits += [self._request_window.wait_s(1, now_s), self._token_window.wait_s(n_tokens, now_s)]
        return max(0.0, *waits)

    def sent(self, n_tokens: float, now_s: float) -> None:
        """Count a call that leaves now."""
        self.n_in_flight += 1
        self._last_sent_s = now_s
        if self._requests is not None:
            self._requests.take(1)
        if self._tokens is not None:
            self._tokens.take(n_tokens)
        self._tokens_in_flight += n_tokens
        self._request_window.take(1, now_s)
        self._token_window.take(n_tokens, now_s)

    def answered(self, hints: RateHints, n_tokens: float, now_s: float) -> None:
        """Count an answer: the server is well."""
        self._ended(hints, n_tokens, now_s)
        self._request_window.answered()
        self._token_window.answered()
        if now_s >= self.held_until_s:  # else it had left before the refusal, and the wait is no shorter for that
            self.refused_since_s = None
        self._n_refusals = 0
        most = self._ceiling if now_s < self._quiet_s else self.settings.concurrency
        grown = self.allowed + max(1.0, self.allowed / _GROWTH) / self.allowed
        self.allowed = min(max(self.allowed, min(most, grown)), self.settings.concurrency)

    def lost(self, n_tokens: float, now_s: float) -> None:
        """Count a call that ended without a whole answer."""
        self._ended(NO_HINTS, n_tokens, now_s)

    def deferred(self, refusal: Deferred, n_tokens: float, now_s: float) -> None:
        """Count a refusal; one of the whole account slows every call."""
        self._ended(refusal.hints, n_tokens, now_s)
        self.n_deferred += 1
        if self.refused_since_s is None:
            self.refused_since_s = now_s
        if not refusal.is_shared:
            return
        if now_s >= self._shrunk_s:  # else of a wave that has been counted: its calls were refused for one reason
            self._shrink(now_s)
            self._n_refusals += 1
        wait_s = refusal.retry_after_s
        # "At once", said once more, did not help: nobody is asked a thousand times a minute what it refuses.
        if not wait_s or (wait_s < BACKOFF_FIRST_S and self._n_refusals > 1):
            wait_s = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** min(self._n_refusals - 1, 10))
        until_s = now_s + min(max(0.0, wait_s), WAIT_MAX_S)
        self.held_until_s = max(self.held_until_s, until_s)
        self._shrunk_s = max(self._shrunk_s, until_s)
        self._quiet_s = until_s + _QUIET_WAITS * (until_s - now_s)

    def _shrink(self, now_s: float) -> None:
        """Allow fewer calls: half of them, or as many as went well if refusals and answers take turns."""
        if self._request_window.refused() | self._token_window.refused():
            return  # it is a matter of how fast, not of how many at once
        is_first = self._n_refusals == 0
        if is_first and now_s < self._quiet_s:
            self.allowed = self._ceiling = max(1.0, self.allowed - max(1.0, self.allowed // 4))
        elif is_first and self.allowed > self._ceiling:
            self.allowed = self._ceiling  # a look above what went well did not go well
        else:
            self.allowed, self._ceiling = max(1.0, self.allowed / 2), math.inf

    def _ended(self, hints: RateHints, n_tokens: float, now_s: float) -> None:
        self.n_in_flight -= 1
        self._tokens_in_flight = max(0.0, self._tokens_in_flight - n_tokens)
        self._request_window.learn(
            hints.request_limit, hints.requests_left, hints.requests_reset_s, self.n_in_flight, now_s
        )
        self._token_window.learn(
            hints.token_limit, hints.tokens_left, hints.tokens_reset_s, self._tokens_in_flight, now_s
        )
