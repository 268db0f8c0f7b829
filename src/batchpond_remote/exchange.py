"""The folder of mode `files` at an address, and its copy on this machine, which is where all reading is.

What this machine adds is put there first: requests when they are uploaded, so that each machine sees that they were,
then the record that makes them a batch, by put if absent, then the manifest that workers look for. Whoever looks at a
batch puts the manifest that a process owed when it died. The copy may be deleted; but for the records, what no
process looked at for a day is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final

from batchpond.clock import SystemClock, random_hex
from batchpond.errors import AccessError, ExitCode, LakeError, ProviderError
from batchpond.ids import TOKEN_PREFIX
from batchpond.lake import disk
from batchpond.lake.store import STALE_SCRATCH_S
from batchpond_remote.bucket import Bucket
from batchpond_remote.lease import locked
from batchpond_remote.mirror import kept_at

Listed = Mapping[str, tuple[int, int]]
OUTBOX, INBOX = "outbox", "inbox"
_RECORD, _CANCELLED, _DONE = ".batch", ".cancelled", ".done"
_TIDYING: Final = ".tidying"
_TIDY_WAIT_S: Final = 60.0
_AT_ONCE: Final = 8


class Exchange:
    """A folder at an address, and `copy` of it; raises ProviderError or AccessError where it cannot be used."""

    def __init__(self, url: str) -> None:
        self._clock = SystemClock()
        self._bucket = Bucket(url, self._clock)
        self.copy = kept_at(f"{url}-files")
        for side in (OUTBOX, INBOX):
            disk.make_directory(self.copy / side)
        self._tidy()

    def __str__(self) -> str:
        return self._bucket.url

    def bring(self, token: str) -> None:
        """Have here what is there of a batch now: its record, its ends, and the rows that were written.

        Without one, the records of all batches.
        """
        with _errors():
            if not token:
                start = f".{TOKEN_PREFIX}"
                found = self._bucket.listed(OUTBOX, start)
                self._match(OUTBOX, start, {name: one for name, one in found.items() if name.endswith(_RECORD)})
                return
            there = self._bucket.listed(OUTBOX, token)
            record = f".{token}{_RECORD}"
            hidden = self._bucket.listed(OUTBOX, f".{token}")
            self._match(OUTBOX, record, hidden)
            self._match(OUTBOX, f"{token}{_CANCELLED}", there)
            self._match(INBOX, token, _written(self._bucket.listed(INBOX, token)))
            if record in hidden and f"{token}.jsonl" in there and f"{token}.manifest.json" not in there:
                manifest = (self.copy / OUTBOX / record).read_bytes()
                self._bucket.put_new(f"{OUTBOX}/{token}.manifest.json", manifest)

    def send(self, token: str, requests: Path, manifest: bytes) -> bytes:
        """Make requests a batch there, unless somebody did; return the record that says so, whoever's it is."""
        if f"{token}.jsonl" not in self.listed(OUTBOX, token):  # somebody took it away
            self.put(f"{token}.jsonl", requests)
        with _errors():
            name = f"{OUTBOX}/.{token}{_RECORD}"
            is_ours, _ = self._bucket.put_new(name, manifest)
            return manifest if is_ours else self._bucket.get(name) or manifest

    def put(self, name: str, content: bytes | Path) -> None:
        """Put something into the outbox there: requests that no manifest names yet, or the end of a batch."""
        with _errors():
            self._bucket.put(f"{OUTBOX}/{name}", content)

    def listed(self, side: str, start: str) -> Listed:
        """Return what stands on one side there under names that begin so: how large, and since when."""
        with _errors():
            return self._bucket.listed(side, start)

    def _match(self, side: str, start: str, there: Listed) -> None:
        """Bring what is new of files whose names begin so, dated as it is there, and drop what is gone."""
        folder = self.copy / side
        wanted = {name: one for name, one in there.items() if name.startswith(start) and "/" not in name}
        here = self._looked_at(folder, start)
        for name in here.keys() - wanted.keys():
            if not name.endswith((".requests", ".manifest", ".part")):  # what this machine is about to send
                disk.drop(folder / name)
        new = [name for name, stands in wanted.items() if here.get(name) != stands]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda name: self._bring(side, name, wanted[name][1]), new))

    def _looked_at(self, folder: Path, start: str) -> dict[str, tuple[int, int] | None]:
        """Return how files stand whose names begin so, each dated as looked at now: for a day nobody drops it."""
        with self._alone(_TIDY_WAIT_S) as is_mine:
            if not is_mine:
                raise ProviderError(f"another process tidies {self.copy}", hint="run the command again when it is done")
            here = {name: disk.stands(f"{folder}/{name}") for name in os.listdir(folder) if name.startswith(start)}
            for name, stands in here.items():
                if stands is not None:
                    with suppress(FileNotFoundError):  # another process sent it, or found it gone there
                        os.utime(folder / name, ns=(self._now_ns(), stands[1]))
            return here

    def _tidy(self) -> None:
        """Drop what no process of this machine looked at for a day; what is looked at again comes again."""
        stale_ns = self._now_ns() - STALE_SCRATCH_S * 10**9
        with self._alone(0.0) as is_mine:
            there = [path for side in (OUTBOX, INBOX) for path in (self.copy / side).iterdir()] if is_mine else []
            for path in there:
                with suppress(FileNotFoundError):  # another process dropped it
                    if path.suffix != _RECORD and path.stat().st_atime_ns < stale_ns:
                        path.unlink()

    def _alone(self, wait_s: float) -> AbstractContextManager[bool]:
        return locked(self.copy / _TIDYING, self._clock, wait_s)

    def _now_ns(self) -> int:
        return int(self._clock.now().timestamp()) * 10**9

    def _bring(self, side: str, name: str, changed_ns: int) -> None:
        staged = self.copy / side / f".{random_hex(12)}.part"
        try:
            if self._bucket.fetch(f"{side}/{name}", staged):
                os.utime(staged, ns=(self._now_ns(), changed_ns))
                os.replace(staged, self.copy / side / name)
        finally:
            staged.unlink(missing_ok=True)


def _written(listed: Listed) -> dict[str, tuple[int, int]]:
    """Return what has rows, or ends a batch: an empty file of rows only says that a worker may add no more."""
    return {name: stands for name, stands in listed.items() if stands[0] or name.endswith(_DONE)}


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except LakeError as error:
        kind = ProviderError if error.exit_code is ExitCode.FAILED else AccessError
        raise kind(error.message, hint=error.hint) from error
