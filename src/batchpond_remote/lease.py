"""Who writes to a lake at an address: a lease that is renewed, so that of many machines one does the work.

`_leases/N` is the Nth and says until when it holds; it is made by put if absent, and the highest counts. It only saves
work: what must happen once is decided by the election of a fact's name, which holds when a lease does not. Clocks of
machines may differ by less than a lease is long. Who changes a machine's mirror is settled by locks on files of it.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import orjson

from batchpond.clock import Clock, random_hex
from batchpond.errors import BatchpondError, BusyError, LakeError, OvertakenError
from batchpond.lake import disk
from batchpond_remote.bucket import Bucket

LEASE_S: Final = 120.0
LEASE_VARIABLE: Final = "BATCHPOND_TEST_LEASE_S"
"""Names a shorter lease, for a store on this machine: tests wait for one to end."""
FOLDER: Final = "_leases"
_NUMBERED: Final = re.compile(rf"{FOLDER}/[0-9]{{8}}")


class Lease:
    """The right to write to a lake at an address, while it is held."""

    def __init__(self, bucket: Bucket, clock: Clock, own: Path) -> None:
        """Know where it is, and in which file of this machine stands which one it took last."""
        self._bucket, self._clock, self._own = bucket, clock, own
        setting = os.environ.get(LEASE_VARIABLE)
        self.lease_s = float(setting) if setting and bucket.is_loopback else LEASE_S
        self._name = ""
        self._said: dict[str, Any] = {}
        self._good_until_s = 0.0
        self._is_lost = False

    @contextmanager
    def held(self, purpose: str) -> Iterator[None]:
        """Hold it; raises BusyError that says who does. Nobody else on this machine is about to.

        One that this machine took and did not let go is of a process that died.
        """
        self._take(purpose)
        over = Event()
        renewing = Thread(target=self._renew_until, args=(over,), name="batchpond-lease", daemon=True)
        renewing.start()
        try:
            yield
        finally:
            over.set()
            renewing.join()
            name, self._name = self._name, ""
            if not self._is_lost:
                with suppress(LakeError):  # then it ends by itself
                    self._bucket.put(name, self._text(self._clock.now()))

    def check(self) -> None:
        """Raise OvertakenError where it was held and is no more: this process slept, and another may write by now."""
        if self._name and (self._is_lost or self._clock.monotonic_s() > self._good_until_s):
            self._is_lost = True
            raise OvertakenError(
                f"{self._bucket.url}: this process was stopped for longer than its lease lasts, and another may write",
                hint="what was published before is intact; run the command again",
            )

    def _take(self, purpose: str) -> None:
        names = self._numbered()
        standing = self._read(names[-1]) if names else {}
        if standing and self._clock.now() < standing["until"] and standing.get("nonce") != self._last():
            raise _busy(standing)
        self._said = {"purpose": purpose, "pid": os.getpid(), "host": socket.gethostname(), "nonce": random_hex(8)}
        self._said["since"] = self._clock.now().isoformat(timespec="seconds")
        number = int(names[-1].removeprefix(f"{FOLDER}/")) + 1 if names else 1
        name, begun_s = f"{FOLDER}/{number:08d}", self._clock.monotonic_s()
        self._own.write_text(self._said["nonce"], "ascii")
        if not self._bucket.put_new(name, self._text(self._until()))[0]:
            raise _busy(self._read(name))
        self._name, self._is_lost, self._good_until_s = name, False, begun_s + self.lease_s
        for old in names:
            self._bucket.drop(old)

    def _renew_until(self, over: Event) -> None:
        while not over.wait(self.lease_s / 4):
            begun_s = self._clock.monotonic_s()
            try:
                if self._is_lost or self._numbered()[-1:] != [self._name]:
                    self._is_lost = True
                    return
                self._bucket.put(self._name, self._text(self._until()))
            except BatchpondError:
                continue  # tried again before the lease ends; after that, whatever is to be written says so
            self._good_until_s = begun_s + self.lease_s

    def _numbered(self) -> list[str]:
        return sorted(name for name in self._bucket.objects(FOLDER) if _NUMBERED.fullmatch(name))

    def _read(self, name: str) -> dict[str, Any]:
        """Return what a lease says; nothing of one that is gone, or was not written by batchpond: it holds nobody."""
        with suppress(ValueError, KeyError, TypeError):
            found: dict[str, Any] = orjson.loads(self._bucket.get(name) or b"{}")
            return found | {"until": datetime.fromisoformat(found["until"]).astimezone(UTC)}
        return {}

    def _last(self) -> str | None:
        with suppress(FileNotFoundError):
            return self._own.read_text("ascii")
        return None

    def _until(self) -> datetime:
        return self._clock.now() + timedelta(seconds=self.lease_s)

    def _text(self, until: datetime) -> bytes:
        return orjson.dumps(self._said | {"until": until.isoformat(timespec="seconds")})


def _busy(found: dict[str, Any]) -> BusyError:
    who = f"{found.get('purpose')} (process {found.get('pid')} on {found.get('host')}, since {found.get('since')})"
    return BusyError(
        f"another machine is writing to this lake: {who}",
        hint=f"run the command again when it is done, or where it died after {found.get('until')}; nothing was changed",
    )


@contextmanager
def locked(path: Path, clock: Clock, wait_s: float) -> Iterator[bool]:
    """Hold a lock on a file of this machine, waiting so long for it; whether it is held."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, disk.FILE_MODE)
    try:
        until_s = clock.monotonic_s() + wait_s
        while not (is_mine := _is_locked(descriptor)) and clock.monotonic_s() < until_s:
            clock.sleep(0.1)
        yield is_mine
    finally:
        os.close(descriptor)


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
