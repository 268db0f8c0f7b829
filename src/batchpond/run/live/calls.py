"""The calls of one attempt: worker threads that ask, and what each answer leads to.

A request leaves when the pace allows it; its answer goes to the spool. What the provider put off is asked
again by itself, what may have been answered as the rules say, and what stays without an answer is given up
with a line that says why.
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

from batchpond.answers.live_lines import CallRecord, Failure, line_of
from batchpond.clock import Clock
from batchpond.errors import BatchpondError, LakeError, ProviderError
from batchpond.lake import failpoints
from batchpond.model import Summed
from batchpond.providers.base import Answered, Deferred, Doubtful
from batchpond.providers.shared.live import LiveClient
from batchpond.run.live.pace import Pace
from batchpond.run.live.spool import Doubt, Spool

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
            self.counts.n_answered += 1
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
