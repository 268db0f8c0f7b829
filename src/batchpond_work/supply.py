"""Where a worker's next part comes from: batches in order, their parts in order, whichever nobody holds."""

from __future__ import annotations

import os
import secrets
import time
from collections import Counter
from collections.abc import Callable
from threading import Event
from typing import Final

from batchpond_work.claims import Claims, Held, Inbox
from batchpond_work.place import Batch, NotWholeError, Part, Place
from batchpond_work.server import Engine
from batchpond_work.settings import Settings

PUT_OFF_S: Final = 300.0


class Supply:
    """The parts that lie at a place, claimed one by one.

    `is_held_by_others` says of the last look whether it met parts that others hold, `n_skipped` how many requests had
    an answer when their batch was first looked at, `not_whole` which batches cannot be worked on.
    """

    def __init__(self, folder: Place, settings: Settings, say: Callable[[str], None]) -> None:
        self._folder, self._settings, self._say = folder, settings, say
        worker = f"{settings.host_name}-{os.getpid()}-{secrets.token_hex(4)}"
        self._claims = Claims(folder, worker, settings.lease)
        self._model = settings.model
        self._open: dict[str, tuple[Batch, Inbox]] = {}
        self._over: set[str] = set()
        self._mine: set[str] = set()
        self._joined: set[str] = set()
        self._put_off_s: dict[str, float] = {}
        self._is_begun = False
        self.is_held_by_others = False
        self.n_skipped = 0
        self.not_whole: set[str] = set()

    def take_back(self, part: str, *, is_put_off: bool) -> None:
        """Know that a part is not held any more; one that was put off is left alone, under `--watch` for a while."""
        self._mine.discard(part)
        if is_put_off:
            self._put_off_s[part] = time.monotonic()

    def next(self, engine: Engine, stop: Event) -> Held | None:
        """Return a part that this worker holds from now on; None where none is free."""
        self.is_held_by_others = False
        for name in self._folder.names():
            is_open = name not in self._over and not self._folder.is_closed(name)
            found = self._opened(name, engine) if is_open else None
            held = None if found is None else self._of(*found, engine, stop)
            if held is not None or stop.is_set():
                return held
        return None

    def _opened(self, name: str, engine: Engine) -> tuple[Batch, Inbox] | None:
        """Return a batch that the engine can answer; others are told once."""
        if name in self._open:
            return self._open[name]
        try:
            manifest = self._folder.manifest(name)
            if self._model and manifest.get("model") != self._model:
                return None
            inbox = Inbox(self._folder, name)
            if self._claims.was_answered(name, inbox.sizes()):
                self.n_skipped += int(manifest.get("n_requests") or 0)
                self._over.add(name)
                return None
            batch = self._folder.batch(manifest)
        except NotWholeError as error:
            if name not in self.not_whole:
                self._say(f"left alone: {error}")
            self.not_whole.add(name)
            return None
        self.not_whole.discard(name)
        if not engine.takes(batch.first_line):
            self._say(f"left alone: {name} is in a form that this engine does not read; a command of your own may")
            self._over.add(name)
            return None
        held = inbox.held()
        self.n_skipped += sum(len(held.intersection(part.custom_ids)) for part in batch.parts)
        self._open[name] = batch, inbox
        return self._open[name]

    def _close(self, name: str, inbox: Inbox) -> None:
        """Be done with a batch that is answered."""
        self._over.add(name)
        del self._open[name]
        self._claims.close(name, inbox.sizes())

    def _of(self, batch: Batch, inbox: Inbox, engine: Engine, stop: Event) -> Held | None:
        """Return a part of a batch that this worker holds from now on."""
        known, is_over = inbox.held(), True
        is_joining = self._folder.is_joining and batch.parts
        n_files = Counter(name[: len(batch.parts[0].name)] for name in inbox.sizes()) if is_joining else {}
        for part in batch.parts:
            if known.issuperset(part.custom_ids) and (n_files.get(part.name, 0) < 2 or part.name in self._joined):
                continue
            is_over = False
            if part.name in self._mine or self._is_put_off(part):
                continue
            if not self._is_begun and not known.issuperset(part.custom_ids):
                engine.begin(batch.model, stop)
                self._is_begun = True
                self._model = batch.model if engine.is_of_one_model else self._model
            claim = None if stop.is_set() else self._claims.take(part.name)
            if claim is None:
                self.is_held_by_others = True
                continue
            wanted = set(part.custom_ids) - inbox.held()
            self._mine.add(part.name)
            self._joined.add(part.name)
            return Held(self._folder, self._claims, claim, part, inbox, wanted, len(wanted))
        if is_over:
            self._close(batch.name, inbox)
        return None

    def _is_put_off(self, part: Part) -> bool:
        since_s = self._put_off_s.get(part.name)
        if since_s is None:
            return False
        return not self._settings.watch or time.monotonic() - since_s < PUT_OFF_S
