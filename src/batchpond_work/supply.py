"""Where a worker's next part comes from: batches in order, their parts in order, whichever nobody holds."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Mapping
from threading import Event
from typing import Any, Final

from batchpond_work.claims import Claims
from batchpond_work.folder import Batch, Folder, Inbox, NotWholeError, Part
from batchpond_work.held import Held
from batchpond_work.server import Engine
from batchpond_work.settings import Settings

PUT_OFF_S: Final = 300.0


class Supply:
    """The parts of a folder, claimed one by one.

    `is_held_by_others` says of the last look whether it met parts that others hold, `n_skipped` how many requests had
    an answer when their batch was first looked at, `not_whole` which batches cannot be worked on.
    """

    def __init__(self, folder: Folder, settings: Settings, say: Callable[[str], None]) -> None:
        self._folder, self._settings, self._say = folder, settings, say
        self.worker = f"{settings.host_name}-{os.getpid()}-{secrets.token_hex(2)}"
        self._claims = Claims(folder, self.worker, settings.lease)
        self._model = settings.model
        self._open: dict[str, tuple[Batch, Inbox]] = {}
        self._over: set[str] = set()
        self._put_off_s: dict[str, float] = {}
        self._is_begun = False
        self.is_held_by_others = False
        self.n_skipped = 0
        self.not_whole: set[str] = set()

    def put_off(self, part: str) -> None:
        """Leave a part alone that could not be answered: for good, or a while where the worker goes on for ever."""
        self._put_off_s[part] = time.monotonic()

    def next(self, engine: Engine, stop: Event) -> Held | None:
        """Return a part that this worker holds from now on; None where none is free."""
        self.is_held_by_others = False
        for name in self._folder.names():
            found = None if name in self._over else self._opened(name, engine)
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
            if self._is_of_another(manifest):
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
        inbox = Inbox(self._folder.inbox, name)
        held = inbox.held()
        self.n_skipped += sum(len(held.intersection(part.custom_ids)) for part in batch.parts)
        self._open[name] = batch, inbox
        return self._open[name]

    def _is_of_another(self, manifest: Mapping[str, Any]) -> bool:
        return bool(self._model) and manifest.get("model") != self._model

    def _of(self, batch: Batch, inbox: Inbox, engine: Engine, stop: Event) -> Held | None:
        """Return a part of a batch that this worker holds from now on."""
        known, is_over = inbox.held(), True
        for part in batch.parts:
            if known.issuperset(part.custom_ids):
                continue
            is_over = False
            if self._is_put_off(part):
                continue
            if not self._is_begun:
                engine.begin(batch.model, stop)
                self._is_begun = True
                self._model = batch.model if engine.is_of_one_model else self._model
            claim = None if stop.is_set() else self._claims.take(part.name)
            if claim is None:
                self.is_held_by_others = True
                continue
            wanted = set(part.custom_ids) - inbox.held()  # again: whoever held it until now may have added some
            if wanted:
                return Held(self._folder, self._claims, claim, part, inbox, wanted)
            self._claims.drop(claim)
        if is_over:
            self._over.add(batch.name)
            del self._open[batch.name]
        return None

    def _is_put_off(self, part: Part) -> bool:
        since_s = self._put_off_s.get(part.name)
        if since_s is None:
            return False
        return not self._settings.watch or time.monotonic() - since_s < PUT_OFF_S
