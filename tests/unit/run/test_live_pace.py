"""The pace of live calls against simulated servers: never too many at once, nearly as fast as the limits allow.

A server here is a rule in seconds and counts, with the headers that real ones send; time is a number. A
simulated run asks `Pace` whenever something happens, as the threads of `calls` do.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
from dataclasses import dataclass, field
from typing import Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchpond.providers.base import NO_HINTS, Deferred, RateHints
from batchpond.run.live.calls import BACKOFF_FIRST_S, BACKOFF_MAX_S, WAIT_MAX_S, Bucket, Pace, PaceSettings, Window

SLOWEST = 1.3
_EPSILON = 1e-6


# -- servers ---------------------------------------------------------------------------------------


class Server(Protocol):
    """What takes a call, or refuses it."""

    def admit(self, n_tokens: float, now_s: float) -> Deferred | RateHints: ...


@dataclass
class Endless:
    """No limit at all."""

    def admit(self, n_tokens: float, now_s: float) -> Deferred | RateHints:  # noqa: ARG002
        return NO_HINTS


@dataclass
class Refilling:
    """A token bucket for requests and one for tokens, both refilled all the time, as OpenAI's and Anthropic's."""

    rpm: float
    tpm: float = math.inf
    burst: float | None = None
    has_headers: bool = True
    has_retry_after: bool = True
    _levels: list[float] = field(default_factory=list)
    _at_s: float = 0.0

    def admit(self, n_tokens: float, now_s: float) -> Deferred | RateHints:
        sizes = [self.burst or self.rpm, self.tpm]
        rates = [self.rpm / 60, self.tpm / 60]
        self._levels = self._levels or list(sizes)
        for n, rate in enumerate(rates):
            grown = 0.0 if math.isinf(rate) else rate * (now_s - self._at_s)
            self._levels[n] = min(sizes[n], self._levels[n] + grown)
        self._at_s = now_s
        wanted = [1.0, n_tokens]
        waits = [
            (want - level) / rate for want, level, rate in zip(wanted, self._levels, rates, strict=True) if want > level
        ]
        if waits:
            wait_s = max(waits) if self.has_retry_after else None
            return Deferred("429", 429, wait_s, hints=self._hints(sizes, rates))
        self._levels = [level - want for want, level in zip(wanted, self._levels, strict=True)]
        return self._hints(sizes, rates)

    def _hints(self, sizes: list[float], rates: list[float]) -> RateHints:
        if not self.has_headers:
            return NO_HINTS
        requests = (int(self.rpm), int(self._levels[0]), (sizes[0] - self._levels[0]) / rates[0])
        if math.isinf(self.tpm):
            return RateHints(*requests)
        return RateHints(*requests, int(self.tpm), int(self._levels[1]), (sizes[1] - self._levels[1]) / rates[1])


@dataclass
class Windowed:
    """So many a window, all back at its end: fixed windows, as gateways have them."""

    per_window: int
    window_s: float = 60.0
    has_headers: bool = True
    _number: int = -1
    _left: int = 0

    def admit(self, n_tokens: float, now_s: float) -> Deferred | RateHints:  # noqa: ARG002
        number = int(now_s / self.window_s)
        if number > self._number:
            self._number, self._left = number, self.per_window
        reset_s = (number + 1) * self.window_s - now_s
        if self._left <= 0:
            return Deferred("429", 429, reset_s, hints=self._hints(reset_s))
        self._left -= 1
        return self._hints(reset_s)

    def _hints(self, reset_s: float) -> RateHints:
        per_minute = int(self.per_window * 60 / self.window_s)
        return RateHints(per_minute, self._left, reset_s) if self.has_headers else NO_HINTS


@dataclass
class Rounding:
    """Tells waits in whole seconds, and takes calls a little sooner or later than they were sent."""

    inner: Server
    _n: int = 0

    def admit(self, n_tokens: float, now_s: float) -> Deferred | RateHints:
        self._n += 1
        answer = self.inner.admit(n_tokens, now_s + 0.002 * math.sin(self._n))
        if isinstance(answer, RateHints):
            return answer
        return dataclasses.replace(answer, retry_after_s=math.ceil(answer.retry_after_s or 1.0))


@dataclass
class Crowded:
    """So many at once and no more; tells only to wait a whole second, as servers do."""

    n_places: int
    latency_s: float
    _ends_s: list[float] = field(default_factory=list)

    def admit(self, n_tokens: float, now_s: float) -> Deferred | RateHints:  # noqa: ARG002
        self._ends_s = [end for end in self._ends_s if end > now_s + _EPSILON]
        if len(self._ends_s) >= self.n_places:
            return Deferred("429", 429, 1.0)
        self._ends_s.append(now_s + self.latency_s)
        return NO_HINTS


@dataclass
class Stormy:
    """Overloaded between two moments: refuses all, with or without a Retry-After."""

    inner: Server
    begins_s: float
    ends_s: float
    retry_after_s: float | None = None

    def admit(self, n_tokens: float, now_s: float) -> Deferred | RateHints:
        if self.begins_s <= now_s < self.ends_s:
            return Deferred("529", 529, self.retry_after_s)
        return self.inner.admit(n_tokens, now_s)


# -- a run -----------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What a simulated run came to."""

    took_s: float
    n_answered: int
    n_refused: int
    most_in_flight: int
    sent_s: list[float]
    ended_order: list[int]


def simulate(pace: Pace, server: Server, n_calls: int, latency_s: float, n_tokens: float = 800.0) -> Outcome:
    """Ask so many calls in order, refused ones first again, and return what came of it."""
    waiting = list(range(n_calls - 1, -1, -1))
    flying: list[tuple[float, int, int, Deferred | RateHints]] = []
    numbers, now_s, most, n_refused = itertools.count(), 0.0, 0, 0
    sent: list[float] = []
    order: list[int] = []
    for _ in range(400 * n_calls + 10_000):
        wait_s = pace.wait_s(n_tokens, now_s) if waiting else math.inf
        if wait_s <= 0:
            call = waiting.pop()
            pace.sent(n_tokens, now_s)
            sent.append(now_s)
            answer = server.admit(n_tokens, now_s)
            took_s = latency_s if isinstance(answer, RateHints) else min(latency_s, 0.02)
            heapq.heappush(flying, (now_s + took_s, next(numbers), call, answer))
            most = max(most, len(flying))
            continue
        ends_s = flying[0][0] if flying else math.inf
        assert min(now_s + wait_s, ends_s) < math.inf, "nothing is under way and nothing may leave"
        if now_s + wait_s < ends_s:
            now_s += wait_s + 1e-9
            continue
        now_s, _, call, answer = heapq.heappop(flying)
        if isinstance(answer, Deferred):
            n_refused += 1
            pace.deferred(answer, n_tokens, now_s)
            waiting.append(call)
        else:
            pace.answered(answer, n_tokens, now_s)
            order.append(call)
        if not flying and not waiting:
            return Outcome(now_s, len(order), n_refused, most, sent, order)
    raise AssertionError("the calls never came to an end")


# -- how many at once ------------------------------------------------------------------------------


@given(
    concurrency=st.integers(1, 64), n_calls=st.integers(1, 200), latency_s=st.floats(0.001, 5.0),
    rpm=st.one_of(st.none(), st.floats(30, 60_000)), storm=st.tuples(st.floats(0, 5), st.floats(0, 20)),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_never_more_are_in_flight_than_allowed(
    concurrency: int, n_calls: int, latency_s: float, rpm: float | None, storm: tuple[float, float]
) -> None:
    pace = Pace(PaceSettings(concurrency, rpm), 0.0)
    server = Stormy(Refilling(6_000), storm[0], sum(storm))
    found = simulate(pace, server, n_calls, latency_s)
    assert found.most_in_flight <= concurrency
    assert found.n_answered == n_calls
    assert pace.n_in_flight == 0


def test_without_limits_all_places_are_taken_all_the_time() -> None:
    found = simulate(Pace(PaceSettings(8), 0.0), Endless(), 800, 1.0)
    assert found.took_s == pytest.approx(100.0)


# -- throughput under limits -------------------------------------------------------------------------


@given(
    rpm=st.integers(60, 30_000), concurrency=st.integers(2, 64), latency_s=st.floats(0.02, 3.0),
    burst_share=st.sampled_from([0.02, 0.2, 1.0]), has_retry_after=st.booleans(),
)  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_under_a_refilling_limit_told_in_headers_calls_go_as_fast_as_it_allows(
    rpm: int, concurrency: int, latency_s: float, burst_share: float, has_retry_after: bool
) -> None:
    """Within 1.3 times of the least time that the limit, or else the concurrency, allows; few are refused."""
    n_calls = 400
    burst = max(1.0, burst_share * rpm)
    server = Refilling(rpm, burst=burst, has_retry_after=has_retry_after)
    found = simulate(Pace(PaceSettings(concurrency), 0.0), server, n_calls, latency_s)
    floor_s = max((n_calls - burst) / (rpm / 60), n_calls / concurrency * latency_s) + latency_s
    assert found.took_s <= SLOWEST * floor_s + 2.0
    assert found.n_refused <= 0.2 * n_calls + concurrency


@given(tpm=st.integers(20_000, 2_000_000), concurrency=st.integers(2, 32), latency_s=st.floats(0.05, 3.0))
@settings(max_examples=60, deadline=None)
def test_under_a_token_limit_told_in_headers_calls_go_as_fast_as_it_allows(
    tpm: int, concurrency: int, latency_s: float
) -> None:
    n_calls, n_tokens = 300, 900.0
    server = Refilling(100_000, tpm)
    found = simulate(Pace(PaceSettings(concurrency), 0.0), server, n_calls, latency_s, n_tokens)
    floor_s = max((n_calls * n_tokens - tpm) / (tpm / 60), n_calls / concurrency * latency_s) + latency_s
    assert found.took_s <= SLOWEST * floor_s + 2.0
    assert found.n_refused <= 0.2 * n_calls + concurrency


@given(
    per_window=st.integers(20, 500), window_s=st.sampled_from([1.0, 10.0, 60.0]), concurrency=st.integers(2, 32),
    latency_s=st.floats(0.02, 1.0), has_headers=st.booleans(),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_under_fixed_windows_calls_go_as_fast_as_they_allow(
    per_window: int, window_s: float, concurrency: int, latency_s: float, has_headers: bool
) -> None:
    n_calls = 5 * per_window
    server = Windowed(per_window, window_s, has_headers)
    found = simulate(Pace(PaceSettings(concurrency), 0.0), server, n_calls, latency_s)
    n_windows = math.ceil(n_calls / per_window) - 1
    floor_s = max(n_windows * window_s, n_calls / concurrency * latency_s) + latency_s
    assert found.took_s <= SLOWEST * floor_s + window_s + 2.0


@given(
    rpm=st.integers(120, 12_000), concurrency=st.integers(2, 32), latency_s=st.floats(0.02, 2.0),
    has_retry_after=st.booleans(),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_under_a_limit_that_is_told_by_refusals_alone_calls_go_as_fast_as_it_allows(
    rpm: int, concurrency: int, latency_s: float, has_retry_after: bool
) -> None:
    """A bucket of ten seconds' worth, no header but at best Retry-After."""
    n_calls, burst = 600, rpm / 6
    server = Refilling(rpm, burst=burst, has_headers=False, has_retry_after=has_retry_after)
    found = simulate(Pace(PaceSettings(concurrency), 0.0), server, n_calls, latency_s)
    floor_s = max((n_calls - burst) / (rpm / 60), n_calls / concurrency * latency_s) + latency_s
    assert found.took_s <= SLOWEST * floor_s + 5.0


@given(n_places=st.integers(1, 40), concurrency=st.integers(1, 64), latency_s=st.floats(0.5, 5.0))
@settings(max_examples=60, deadline=None)
def test_under_a_limit_on_calls_at_once_nearly_all_its_places_are_taken(
    n_places: int, concurrency: int, latency_s: float
) -> None:
    n_calls = 60 * n_places
    found = simulate(Pace(PaceSettings(concurrency), 0.0), Crowded(n_places, latency_s), n_calls, latency_s)
    floor_s = n_calls / min(n_places, concurrency) * latency_s
    assert found.took_s <= SLOWEST * floor_s + 20.0


@given(rpm=st.integers(300, 3_000), concurrency=st.integers(2, 32), latency_s=st.floats(0.05, 1.0))
@settings(max_examples=60, deadline=None)
def test_under_a_limit_without_a_burst_that_makes_one_wait_whole_seconds(
    rpm: int, concurrency: int, latency_s: float
) -> None:
    """No two calls closer than the rate, Retry-After rounded up to a second: early calls are dear, and get rare."""
    n_calls = 800
    server = Rounding(Refilling(rpm, burst=1.0))
    found = simulate(Pace(PaceSettings(concurrency), 0.0), server, n_calls, latency_s)
    floor_s = max(n_calls / (rpm / 60), n_calls / concurrency * latency_s)
    assert found.took_s <= SLOWEST * floor_s + 5.0


@given(rpm=st.floats(30, 6_000), tpm=st.one_of(st.none(), st.floats(20_000, 1e6)), latency_s=st.floats(0.0, 2.0))
@settings(max_examples=60, deadline=None)
def test_ones_own_limits_are_kept_and_used_up(rpm: float, tpm: float | None, latency_s: float) -> None:
    """Never more calls or tokens in any stretch than a second's worth above the rate; nearly all of the rate."""
    n_calls, n_tokens = 200, 700.0
    found = simulate(Pace(PaceSettings(256, rpm, tpm), 0.0), Endless(), n_calls, latency_s, n_tokens)
    rates = [rpm / 60, *([] if tpm is None else [tpm / 60 / n_tokens])]
    rate = min(rates)
    for first, last in itertools.combinations(range(0, n_calls, 7), 2):
        stretch_s = found.sent_s[last] - found.sent_s[first]
        assert last - first <= max(2.0, rate) + rate * stretch_s + 1 + _EPSILON
    floor_s = max((n_calls - 1 - max(1.0, rate)) / rate, n_calls / 256 * latency_s) + latency_s
    assert found.took_s <= SLOWEST * floor_s + 1.0


def test_a_call_larger_than_the_bucket_still_goes_and_is_paid_for() -> None:
    bucket = Bucket.of(600.0, 0.0)
    assert bucket is not None
    assert bucket.wait_s(500.0, 0.0) == 0.0
    bucket.take(500.0)
    assert bucket.wait_s(1.0, 0.0) == pytest.approx(49.1, abs=0.1)


@given(gap_s=st.floats(0.05, 10), concurrency=st.integers(1, 8), latency_s=st.floats(0.01, 5))
@settings(max_examples=40, deadline=None)
def test_a_gap_between_two_calls_is_kept(gap_s: float, concurrency: int, latency_s: float) -> None:
    found = simulate(Pace(PaceSettings(concurrency, gap_s=gap_s), 0.0), Endless(), 30, latency_s)
    assert all(b - a >= gap_s - _EPSILON for a, b in itertools.pairwise(found.sent_s))
    floor_s = max(29 * gap_s, 30 / concurrency * latency_s) + latency_s
    assert found.took_s <= 1.1 * floor_s + _EPSILON


# -- storms ------------------------------------------------------------------------------------------


@given(concurrency=st.integers(1, 64), retry_after_s=st.floats(0.5, 120), begins_s=st.floats(0.0, 3.0))
@settings(max_examples=60, deadline=None)
def test_a_storm_that_says_how_long_costs_one_wait_for_all(
    concurrency: int, retry_after_s: float, begins_s: float
) -> None:
    """At most one wave of calls is refused, and the run takes no longer than the storm and half speed after it."""
    latency_s, n_calls = 0.5, 20 * concurrency
    server = Stormy(Endless(), begins_s, begins_s + retry_after_s, retry_after_s)
    found = simulate(Pace(PaceSettings(concurrency), 0.0), server, n_calls, latency_s)
    assert found.n_refused <= 2 * concurrency
    calm_s = n_calls / concurrency * latency_s
    assert found.took_s <= begins_s + retry_after_s + SLOWEST * calm_s + latency_s


@given(concurrency=st.integers(1, 64), lasts_s=st.floats(0.5, 200))
@settings(max_examples=60, deadline=None)
def test_a_storm_without_a_word_is_met_by_doubling_waits(concurrency: int, lasts_s: float) -> None:
    """Few calls reach a server that refuses all, and it is found well again in at most twice the time."""
    server = Stormy(Endless(), 0.0, lasts_s)
    found = simulate(Pace(PaceSettings(concurrency), 0.0), server, 5 * concurrency, 0.5)
    n_waits = math.log2(lasts_s / BACKOFF_FIRST_S + 2) + lasts_s / BACKOFF_MAX_S + 2
    assert found.n_refused <= concurrency + n_waits * max(1.0, concurrency / 2)
    begun_again_s = next(s for s in found.sent_s if s >= lasts_s)
    assert begun_again_s <= 2 * lasts_s + BACKOFF_MAX_S
    assert begun_again_s <= max(2 * lasts_s + 2 * BACKOFF_FIRST_S, lasts_s + BACKOFF_MAX_S)


@pytest.mark.parametrize("retry_after_s", [0.0, 0.02])
def test_a_storm_that_says_at_once_is_met_by_doubling_waits_too(retry_after_s: float) -> None:
    """Ten minutes of refusals that ask for no wait, or for hardly any, reach the server a few times each minute."""
    server = Stormy(Endless(), 0.0, 600.0, retry_after_s)
    found = simulate(Pace(PaceSettings(8), 0.0), server, 40, 0.05)
    assert found.n_refused <= 8 + 10 + 600 / BACKOFF_MAX_S * 8


def test_a_refusal_of_one_call_alone_slows_no_other() -> None:
    pace = Pace(PaceSettings(4), 0.0)
    pace.sent(1, 0.0)
    pace.deferred(Deferred("409", 409, None, is_shared=False), 1, 0.1)
    assert pace.wait_s(1, 0.1) == 0.0
    assert pace.allowed == 4


def test_a_wait_has_a_bound_whatever_the_server_says() -> None:
    pace = Pace(PaceSettings(4), 0.0)
    pace.sent(1, 0.0)
    pace.deferred(Deferred("429", 429, 1e9), 1, 0.0)
    assert pace.wait_s(1, 0.0) == WAIT_MAX_S


@given(st.lists(st.tuples(st.floats(0, 100), st.booleans()), max_size=40))
def test_a_window_never_waits_longer_than_its_limit_takes_to_refill(steps: list[tuple[float, bool]]) -> None:
    """Whatever headers say, a window that refills is not shut for good."""
    window, now_s = Window(), 0.0
    for gap_s, is_learning in steps:
        now_s += gap_s
        if is_learning:
            window.learn(600, 0, None, 5.0, now_s)
        if window.wait_s(1.0, now_s) == 0:
            window.take(1.0, now_s)
    assert window.wait_s(1.0, now_s) <= 60.0


# -- fairness ----------------------------------------------------------------------------------------


@given(rpm=st.integers(300, 6_000), concurrency=st.integers(1, 32), lasts_s=st.floats(0, 30))
@settings(max_examples=40, deadline=None)
def test_no_call_is_passed_by_for_ever(rpm: int, concurrency: int, lasts_s: float) -> None:
    """A refused call goes again before the fresh: none ends later than a few rounds after its turn."""
    server = Stormy(Refilling(rpm, burst=10), 1.0, 1.0 + lasts_s)
    found = simulate(Pace(PaceSettings(concurrency), 0.0), server, 300, 0.2)
    assert max(abs(place - call) for place, call in enumerate(found.ended_order)) <= 3 * concurrency
