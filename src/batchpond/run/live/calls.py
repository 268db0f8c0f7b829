"""The calls of one attempt: worker threads that ask, and what each answer leads to.

A request leaves when the pace allows it; its answer goes to the spool. What the provider put off is asked
again by itself, what may have been answered as the rules say, and what stays without an answer is given up
with a line that says why.

How fast: bounded concurrency, requests and tokens per minute, and what the provider's answers teach; pure but for the
time it is handed (`now_s`, monotonic). One pace per provider and model:

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

import heapq
import itertools
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from batchpond.answers.derive import CallRecord, Failure, line_of
from batchpond.clock import Clock
from batchpond.errors import BatchpondError, LakeError, ProviderError
from batchpond.lake import failpoints
from batchpond.model import Summed
from batchpond.providers.base import NO_HINTS, Answered, Deferred, Doubtful, RateHints
from batchpond.providers.shared.live import LiveClient
from batchpond.run.live.spool import Doubt, Spool

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


AGAIN_AFTER_DOUBT_S: Final = 1.0
CLAIM_MAX: Final = 256
REFUSALS_OF_ONE_MAX: Final = 6
STALL_S: Final = 1_800.0
_WAIT_S: Final = 0.5
_DISK_HINT: Final = "check the disk, then run the command again: what was answered is kept"


class OnDoubt(StrEnum):
    """What to do with a request whose call may have been answered: ask it again, or leave it to a person."""

    AGAIN = "again"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class CallRules:
    """How long a call may take, and what becomes of one in doubt; `max_doubts` bounds how often it is asked again."""

    deadline_s: float = 600.0
    on_doubt: OnDoubt = OnDoubt.AGAIN
    max_doubts: int = 3


@dataclass(slots=True)
class Item:
    """A request on its way: its body as it is kept, and what makes it what is sent, for the time of a call."""

    custom_id: str
    body: bytes
    n_tokens: float
    expanded: Callable[[bytes], bytes]
    n_tries: int = 0
    n_doubts: int = 0
    n_refusals: int = 0


@dataclass(slots=True)
class CallCounts(Summed):
    """What became of an attempt's calls in this run."""

    n_answered: int = 0
    n_failed: int = 0
    n_deferred: int = 0
    n_doubts: int = 0
    n_held: int = 0


@dataclass(slots=True)
class _Queue:
    """What waits: claimed requests in order, and those that are asked again, by when."""

    fresh: deque[Item] = field(default_factory=deque)
    again: list[tuple[float, int, Item]] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def put_again(self, item: Item, at_s: float) -> None:
        heapq.heappush(self.again, (at_s, next(self.numbers), item))

    def head(self, now_s: float) -> Item | None:
        """Return what is next, those that were asked before first."""
        if self.again and self.again[0][0] <= now_s:
            return self.again[0][2]
        return self.fresh[0] if self.fresh else None

    def pop(self, item: Item) -> None:
        if self.fresh and self.fresh[0] is item:
            self.fresh.popleft()
        else:
            heapq.heappop(self.again)


class Calls:
    """Asks the requests of one attempt with as many threads as its pace has places."""

    def __init__(
        self, client: LiveClient, way: tuple[str, str], items: Iterator[Item], spool: Spool, pace: Pace,
        rules: CallRules, clock: Clock,
    ) -> None:  # fmt: skip
        self.counts = CallCounts()
        self.error: BatchpondError | None = None
        self.defect: Exception | None = None
        self._client = client
        self._endpoint, self._model = way
        self._items = items
        self._spool = spool
        self._pace = pace
        self._rules = rules
        self._clock = clock
        self._queue = _Queue()
        lock = threading.Lock()
        self._turn = threading.Condition(lock)
        self._place = threading.Condition(lock)
        self._room = threading.Condition(lock)
        self._is_fed = self._is_stopped = self._has_watcher = False
        self._n_claim = min(CLAIM_MAX, max(1, pace.settings.concurrency))
        names = ["feeder", *(f"caller-{n}" for n in range(pace.settings.concurrency))]
        jobs = [self._feed, *[self._call_on] * pace.settings.concurrency]
        self._threads = [
            threading.Thread(target=self._guarded, args=(job,), name=f"batchpond-{name}", daemon=True)
            for name, job in zip(names, jobs, strict=True)
        ]

    def start(self) -> None:
        """Begin to ask."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ask nothing more; calls that are under way go on to their end."""
        with self._turn:
            self._is_stopped = True
            self._turn.notify_all()
            self._place.notify_all()
            self._room.notify_all()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end, at most so long; whether it came."""
        until_s = self._clock.monotonic_s() + timeout_s
        for thread in self._threads:
            if thread.ident is not None:  # an interrupt may come before all of them are started
                thread.join(max(0.0, until_s - self._clock.monotonic_s()))
        return not any(thread.is_alive() for thread in self._threads)

    @property
    def unasked(self) -> list[str]:
        """The claimed requests that will not leave any more; to be read after the end."""
        return [item.custom_id for item in (*self._queue.fresh, *(item for _, _, item in self._queue.again))]

    def _guarded(self, job: Callable[[], None]) -> None:
        try:
            job()
        except BatchpondError as error:
            self._fail(error)
        except OSError as error:  # the network's own became answers below
            self._fail(LakeError(f"{error}", hint=_DISK_HINT))
        except Exception as error:  # noqa: BLE001 - raised by whoever waits for the calls: this thread would die unseen
            with self._turn:
                self.defect = self.defect or error
            self.stop()

    def _fail(self, error: BatchpondError) -> None:
        with self._turn:
            self.error = self.error or error
        self.stop()

    def _feed(self) -> None:
        while chunk := list(itertools.islice(self._items, self._n_claim)):
            with self._turn:
                while len(self._queue.fresh) > self._n_claim and not self._is_stopped:
                    self._room.wait(_WAIT_S)
                if self._is_stopped:
                    return
            self._spool.claim([item.custom_id for item in chunk])
            wanted = [item for item in chunk if not self._is_given_up(item)]
            with self._turn:
                self._queue.fresh.extend(wanted)
                self._turn.notify_all()
        with self._turn:
            self._is_fed = True
            self._turn.notify_all()

    def _is_given_up(self, item: Item) -> bool:
        """Whether earlier runs left a request in doubt more often than it may be asked again; it is not asked then."""
        if item.n_doubts <= self._rules.max_doubts or self._rules.on_doubt is OnDoubt.HOLD:
            return False
        self._record(item, self._clock.now(), Failure("in_doubt", f"{item.n_doubts} calls may have been answered"))
        with self._turn:
            self.counts.n_failed += 1
        return True

    def _call_on(self) -> None:
        while (item := self._next()) is not None:
            asked_at = self._clock.now()
            item.n_tries += 1
            self._spool.asked(item.custom_id, asked_at)
            failpoints.reach("L2")
            try:
                body = item.expanded(item.body)
                answer = self._client.ask(self._endpoint, self._model, body, self._rules.deadline_s)
            except BatchpondError:
                self._spool.back(item.custom_id)
                with self._turn:
                    self._pace.lost(item.n_tokens, self._clock.monotonic_s())
                raise
            failpoints.reach("L3")
            match answer:
                case Answered():
                    self._answered(item, asked_at, answer)
                case Deferred():
                    self._deferred(item, asked_at, answer)
                case Doubtful():
                    self._doubtful(item, asked_at, answer)

    def _next(self) -> Item | None:
        """Wait for a request that may leave now, and count it as under way; None when there is no more to do.

        One thread at a time watches the pace; the others wait for its place, or at every permit all would wake.
        """
        with self._turn:
            while self._has_watcher and not self._is_over:
                self._place.wait(_WAIT_S)
            self._has_watcher = True
            try:
                return self._watch()
            finally:
                self._has_watcher = False
                self._place.notify()

    def _watch(self) -> Item | None:
        while not self._is_over:
            now_s = self._clock.monotonic_s()
            item = self._queue.head(now_s)
            if item is None:
                wait_s = (self._queue.again[0][0] if self._queue.again else math.inf) - now_s
            else:
                wait_s = self._pace.wait_s(item.n_tokens, now_s)
                if wait_s <= 0:
                    self._queue.pop(item)
                    if len(self._queue.fresh) == self._n_claim:
                        self._room.notify()
                    self._pace.sent(item.n_tokens, now_s)
                    return item
            self._turn.wait(min(_WAIT_S, wait_s))
            self._check_stall()
        self._place.notify_all()
        return None

    @property
    def _is_over(self) -> bool:
        is_empty = self._is_fed and not self._queue.fresh and not self._queue.again
        return self._is_stopped or (is_empty and not self._pace.n_in_flight)

    def _check_stall(self) -> None:
        """Raise ProviderError where nothing was answered for too long, or will not be: it is kept to and told now."""
        since_s, now_s = self._pace.refused_since_s, self._clock.monotonic_s()
        wait_s = max(0.0, self._pace.held_until_s - now_s)
        if not self._pace.n_in_flight and since_s is not None and now_s + wait_s - since_s > STALL_S:
            until = self._clock.now() + timedelta(seconds=wait_s)
            raise ProviderError(
                f"{self._client.host} has put off every call to {self._model}, until {until:%Y-%m-%d %H:%M} UTC or so",
                hint="run `batchpond live` again then: nothing that was answered is asked again",
            )

    def _answered(self, item: Item, asked_at: datetime, answer: Answered) -> None:
        self._record(item, asked_at, answer)
        with self._turn:
            self._pace.answered(answer.hints, item.n_tokens, self._clock.monotonic_s())
            self.counts.n_answered += answer.status_code < 400
            self.counts.n_failed += answer.status_code >= 400
            self._turn.notify()

    def _deferred(self, item: Item, asked_at: datetime, refusal: Deferred) -> None:
        self._spool.back(item.custom_id)
        item.n_refusals += not refusal.is_shared
        is_late = not refusal.is_shared and (refusal.retry_after_s or 0.0) > STALL_S
        is_given_up = is_late or item.n_refusals >= REFUSALS_OF_ONE_MAX
        if is_given_up:
            self._record(item, asked_at, Failure("deferred", refusal.reason))
        now_s = self._clock.monotonic_s()
        with self._turn:
            self._pace.deferred(refusal, item.n_tokens, now_s)
            self.counts.n_deferred += 1
            self.counts.n_failed += is_given_up
            if not is_given_up:
                wait_s = 0.0 if refusal.is_shared else (refusal.retry_after_s or 2.0**item.n_refusals)
                self._queue.put_again(item, now_s + wait_s)
            self._turn.notify()

    def _doubtful(self, item: Item, asked_at: datetime, doubt: Doubtful) -> None:
        item.n_doubts += 1
        self._spool.doubt([Doubt(item.custom_id, asked_at, self._clock.now(), doubt.reason)])
        is_held = self._rules.on_doubt is OnDoubt.HOLD
        is_given_up = not is_held and item.n_doubts > self._rules.max_doubts
        if is_given_up:
            self._record(item, asked_at, Failure("in_doubt", doubt.reason))
        with self._turn:
            self._pace.lost(item.n_tokens, self._clock.monotonic_s())
            self.counts.n_doubts += 1
            self.counts.n_held += is_held
            self.counts.n_failed += is_given_up
            if not is_held and not is_given_up:
                self._queue.put_again(item, self._clock.monotonic_s() + AGAIN_AFTER_DOUBT_S * 2 ** (item.n_doubts - 1))
            self._turn.notify()

    def _record(self, item: Item, asked_at: datetime, outcome: Answered | Failure) -> None:
        call = CallRecord(item.custom_id, asked_at, self._clock.now(), item.n_tries)
        self._spool.answer(item.custom_id, line_of(call, outcome))
