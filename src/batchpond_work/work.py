"""The loop of a worker: it claims parts, feeds the engine's threads, writes what they bring, and lets go.

One thread touches the folder; the others ask and hand rows over. So a part's answers are written by one, a lease is
renewed between two looks, and what a kill loses is what was being asked and what was not written yet.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Final

from batchpond_work import WorkError
from batchpond_work.claims import Held, is_error
from batchpond_work.folder import opened, url_of
from batchpond_work.place import Place
from batchpond_work.programs import engine_of
from batchpond_work.server import Engine
from batchpond_work.settings import Settings, Tally
from batchpond_work.supply import Supply

FLUSH_S: Final = 10.0
PROGRESS_S: Final = 60.0
TURN_S: Final = 0.1
TAKEN_MAX: Final = 1_000
GRACE_S: Final = 20.0  # of what ends a job, which is killed some time later
IMPATIENT_GRACE_S: Final = 3.0

Say = Callable[[str], None]


@dataclass(slots=True)
class Stop:
    """Whether the worker is to end, and how long calls that are under way may still take."""

    event: Event = field(default_factory=Event)
    grace_s: float = GRACE_S


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[Stop]:
    """Yield what SIGTERM and Ctrl-C set; Ctrl-C, of a person who waits, leaves calls less time."""
    stop = Stop()

    def hear(number: int, _frame: object) -> None:
        stop.grace_s = 0.0 if stop.event.is_set() else IMPATIENT_GRACE_S if number == signal.SIGINT else GRACE_S
        stop.event.set()

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True, slots=True)
class _Job:
    held: Held
    lines: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class _Came:
    """What a thread hands over: a row, or the end of a job: how many it asked, why some are left, what ends it all."""

    held: Held
    custom_id: str = ""
    row: bytes | None = None
    n_asked: int = 0
    why: str | None = None
    error: Exception | None = None


class Worker:
    """One worker at one place; raises WorkError for an engine that cannot be."""

    def __init__(self, folder: Place, settings: Settings, say: Say, stop: Stop) -> None:
        self._settings, self._say, self._stop = settings, say, stop
        self._supply, self._look_s = Supply(folder, settings, say), min(folder.look_s, settings.lease)
        self._engine: Engine = engine_of(settings)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._came: queue.SimpleQueue[_Came] = queue.SimpleQueue()
        self._held: list[Held] = []
        self._looked_s = self._kept_s = -float("inf")
        self._said_s = time.monotonic()
        self._is_fed = True
        self._error: Exception | None = None
        self._n_left: dict[str, int] = {}
        self.tally = Tally()

    def run(self) -> Tally:
        """Work until nothing is left; raises WorkError for what ended it, once all that came is written."""
        for _ in range(self._engine.n_threads):
            Thread(target=self._ask, daemon=True).start()
        try:
            while not (self._stop.event.is_set() or self._is_over()):
                self._feed()
                self._turn()
            is_stopped = self._stop.event.is_set()
            self._wind_up()
            self.tally.is_interrupted = is_stopped and self._error is None
        except OSError:
            self._bring_home()
            raise
        finally:
            self._engine.end()
        self.tally.n_left = sum(self._n_left.values())
        self.tally.n_skipped, self.tally.n_not_whole = self._supply.n_skipped, len(self._supply.not_whole)
        if self._error is not None:
            self._say(self.tally.text)
            raise self._error
        return self.tally

    def _is_over(self) -> bool:
        """Whether nothing is held, and the last look found nothing that this worker could do, now or soon."""
        if self._held or self._is_fed or self._settings.watch:
            return False
        return self._settings.no_wait or not self._supply.is_held_by_others

    def _feed(self) -> None:
        """Hand out the requests of another part before the engine's threads have none left."""
        now_s = time.monotonic()
        if self._jobs.qsize() >= self._engine.n_threads or (not self._is_fed and now_s - self._looked_s < self._look_s):
            return
        self._looked_s = now_s
        held = self._supply.next(self._engine, self._stop.event)
        if held is None:
            if self._is_fed and self._supply.is_held_by_others and not self._held:
                self._say("what is left is held by other workers")
            self._is_fed = False
            return
        self._is_fed = True
        self._held.append(held)
        self._n_left.pop(held.part.name, None)
        before = held.claim.after
        self.tally.n_taken_over += before is not None
        if held.n_wanted:
            self._say(f"{held.part.name}: {len(held.wanted):,} requests" + (f", left by {before}" if before else ""))
        lines = {custom_id: line for custom_id, line in held.part.lines().items() if custom_id in held.wanted}
        n_lines = self._engine.n_lines or max(1, len(lines))
        for custom_ids in (list(lines)[at : at + n_lines] for at in range(0, len(lines), n_lines)):
            held.n_jobs += 1
            self._jobs.put(_Job(held, {custom_id: lines[custom_id] for custom_id in custom_ids}))

    def _ask(self) -> None:
        """Answer jobs until there are no more; a thread of its own."""
        while (job := self._jobs.get()) is not None:
            held, n_asked, why, error = job.held, 0, None, None
            if not (held.is_lost or held.is_closed or self._stop.event.is_set()):
                n_asked = len(job.lines)
                try:
                    why = self._engine.answer(job.lines, partial(self._hand_over, held), self._stop.event)
                except Exception as raised:  # noqa: BLE001 - whatever it is, the other thread has it and ends
                    error = raised
                    self._stop.event.set()
            self._came.put(_Came(held, n_asked=n_asked, why=why, error=error))

    def _hand_over(self, held: Held, custom_id: str, row: bytes) -> None:
        self._came.put(_Came(held, custom_id, row))

    def _turn(self) -> None:
        """Take in what has come, write what is due, and keep what is held."""
        self._take_in()
        now_s = time.monotonic()
        if now_s - self._said_s >= PROGRESS_S:
            self._said_s = now_s
            self._say(f"{self.tally.n_answered:,} answered, {self._jobs.qsize():,} wait here for their turn")
        if now_s - self._kept_s >= min(self._look_s, self._settings.lease / 4):
            self._kept_s = now_s
            for held in self._held:
                held.renew()
        for held in list(self._held):
            if not held.n_jobs:
                self._let_go(held)
            elif len(held.rows) >= self._settings.flush or (held.rows and now_s - held.written_s >= FLUSH_S):
                held.write()

    def _take_in(self) -> None:
        try:
            self._took(self._came.get(timeout=TURN_S))
            for _ in range(TAKEN_MAX):  # and then leases have their turn
                self._took(self._came.get_nowait())
        except queue.Empty:
            return

    def _took(self, came: _Came) -> None:
        if came.row is not None:
            came.held.take(came.custom_id, came.row)
            self.tally.n_answered += 1
            self.tally.n_errors += is_error(came.row)
            return
        came.held.n_jobs -= 1
        came.held.why = came.why or came.held.why
        self.tally.n_asked += came.n_asked
        if came.error is not None:
            self._error = self._error or came.error

    def _let_go(self, held: Held) -> None:
        """Write what a part has, and give it back."""
        self._held.remove(held)
        is_whole = held.leave()
        is_left = not (is_whole or held.is_lost or held.is_closed)
        self._supply.take_back(held.part.name, is_put_off=is_left)
        self._is_fed = self._is_fed or is_whole  # it may be the last of its batch: the next look closes that
        self.tally.n_parts += is_whole and held.n_wanted > 0
        self.tally.n_late += held.n_late
        if is_left:
            self._n_left[held.part.name] = len(held.wanted)
            word = f"{len(held.wanted):,} without an answer: {held.why or 'stopped'}"
        else:
            word = "answered" if is_whole else "another worker has it" if held.is_lost else "no more answers are wanted"
        if held.n_wanted:
            self._say(f"{held.part.name}: {word}")

    def _wind_up(self) -> None:
        """Let calls that are under way end for a while, then write all that came and let every part go."""
        self._stop.event.set()
        began_s = time.monotonic()
        for _ in range(self._engine.n_threads):
            self._jobs.put(None)
        while self._held and time.monotonic() - began_s < self._stop.grace_s:
            self._turn()
        for held in list(self._held):
            self._let_go(held)

    def _bring_home(self) -> None:
        """Write of each part what came of it, as far as the folder still takes anything."""
        for held in self._held:
            with contextlib.suppress(OSError):
                held.write()


def work(path: Path, settings: Settings, say: Say, stop: Stop) -> Tally:
    """Answer what lies in a folder or at an address, and return what was done; raises WorkError for what ended it."""
    url = url_of(path)
    try:
        with opened(path, url) as place:
            return Worker(place, settings, say, stop).run()
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        hint = "make, mount, unlock or reach it, and run the worker again"
        raise WorkError(f"{url or path} cannot be used: {where}{error.strerror or error}", hint=hint) from error
