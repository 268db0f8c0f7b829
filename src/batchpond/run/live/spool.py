"""The spool: what live calls did, line by line, durable before the lake's Parquet files have it.

A folder `_live/ATTEMPT/` holds segments in the order of their numbers; the last is written to, the others
wait to be sealed. A segment is JSON lines, each starting with its kind:

    {"boot":"..."}                      the first: which boot of the machine the segment belongs to
    {"claimed":["ID",...]}              durable before any of these is asked
    {"asked":"ID","at":"..."}           written before the call leaves
    {"back":"ID"}                       the provider did not take the call: it may be made again
    {"free":["ID",...]}                 claimed, and not asked after all
    {"doubt":"ID","at":...,"reason":"..."}   the call may have been answered, and nothing more will come
    {"custom_id":"ID",...}              the answer: the line that `raw` will hold

A process that dies leaves asked requests without an answer: those are in doubt. A machine that loses
power may also lose "asked" lines, so that there every claimed request without an answer is in doubt.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import orjson

from batchpond import fields
from batchpond.clock import Clock, random_hex
from batchpond.errors import LakeError
from batchpond.lake import disk
from batchpond.lake.store import SPOOL, Store, disk_errors

SYNC_EVERY_S: Final = 0.2
_NUMBER_DIGITS: Final = 6


@dataclass(frozen=True, slots=True)
class Doubt:
    """A call that may have been answered though no answer is here."""

    custom_id: str
    asked_at: datetime | None
    found_at: datetime
    reason: str


@dataclass(slots=True)
class Standing:
    """What the segments of an attempt amount to: which requests are answered, and which are in doubt.

    `asked` and `claimed` have those without an end; `claimed` is of other boots only.
    """

    answered: set[str] = field(default_factory=set)
    asked: dict[str, datetime | None] = field(default_factory=dict)
    claimed: set[str] = field(default_factory=set)
    doubts: Counter[str] = field(default_factory=Counter)

    def ended(self, custom_id: str) -> None:
        """Take a request off the lists of those that are under way."""
        self.asked.pop(custom_id, None)
        self.claimed.discard(custom_id)

    @property
    def in_doubt(self) -> dict[str, datetime | None]:
        """The requests whose call may have been answered, with when they were asked."""
        return {**dict.fromkeys(self.claimed), **self.asked}


def folder_of(store: Store, attempt_id: str) -> Path:
    """Return where an attempt's segments are."""
    return store.path / SPOOL / attempt_id


def attempts_with_segments(store: Store) -> list[str]:
    """Return the attempts that have answers outside the lake's tables."""
    try:
        return sorted(entry.name for entry in os.scandir(store.path / SPOOL) if entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []


def segments(folder: Path) -> list[Path]:
    """Return an attempt's segments, the oldest first."""
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == ".jsonl")
    except FileNotFoundError:
        return []


def drop(folder: Path) -> None:
    """Remove the folder of an attempt whose segments are all sealed."""
    shutil.rmtree(folder, ignore_errors=True)


def records(segment: Path, boot_id: str) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Yield each whole line of a segment, parsed and as it stands; a torn last line is none.

    Of another boot's segment, lines that power took in part are left out too: what they said was never
    durable, and the claims before them were. Raises LakeError for such a line of this boot.
    """
    is_other_boot = False
    with segment.open("rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                return
            record = fields.json_object(line)
            if record:
                is_other_boot = is_other_boot or record.get("boot", boot_id) != boot_id
                yield record, line[:-1]
            elif not is_other_boot:
                raise LakeError(
                    f"{segment} holds a line that is not of a spool: {line[:80]!r}",
                    hint="restore the file from a backup, or move it away: its answers are not in the lake yet",
                )


def standing(paths: Sequence[Path], boot_id: str) -> Standing:
    """Return what segments, the oldest first, amount to on a machine that runs in this boot."""
    found = Standing()
    for path in paths:
        is_other_boot = False
        for record, _ in records(path, boot_id):
            if "boot" in record:
                is_other_boot = record["boot"] != boot_id
            else:
                _apply(found, record, is_other_boot=is_other_boot)
    return found


def _apply(found: Standing, record: dict[str, Any], *, is_other_boot: bool) -> None:
    match record:
        case {"claimed": list(custom_ids)}:
            if is_other_boot:  # the machine went down, perhaps with lines that said which of these left
                found.claimed.update(custom_ids)
        case {"asked": str(custom_id)}:
            found.asked[custom_id] = fields.moment(record.get("at"))
        case {"back": str(custom_id)}:
            found.asked.pop(custom_id, None)  # it may have left again since, if power was lost with the line
        case {"free": list(custom_ids)}:
            found.claimed.difference_update(custom_ids)
        case {"doubt": str(custom_id)}:
            found.ended(custom_id)
            found.doubts[custom_id] += 1
        case {"custom_id": str(custom_id)}:
            found.ended(custom_id)
            found.answered.add(custom_id)
        case _:
            raise LakeError(f"a spooled line is of no known kind: {str(record)[:80]}")


class Spool:
    """What is written to now, by many threads; a thread of its own makes it durable.

    Whatever the disk refuses is raised as a LakeError by the next call, whoever makes it. A segment's name
    is never given twice to an attempt: it goes into the lake as the file id of the segment's answers. Once it
    `is_closed` nothing more can be written.
    """

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.n_answers = 0
        self.opened_s = clock.monotonic_s()
        self._folder = folder
        self._clock = clock
        self._under_way: dict[str, datetime | None] = {}
        self._lock = threading.Lock()
        self._fsync = threading.Lock()  # taken before the other where both are
        self._n_written = self._n_durable = 0
        self._failure: OSError | None = None
        self.is_closed = False
        self._is_closing = threading.Event()
        with disk_errors(folder):
            disk.make_directory(folder)
            last = segments(folder)[-1:]
            self._number = int(last[0].stem[:_NUMBER_DIGITS]) if last else 0
            self._path, self._descriptor = self._next_segment()
        self._syncer = threading.Thread(target=self._sync_on, name="batchpond-spool", daemon=True)
        self._syncer.start()

    def claim(self, custom_ids: Sequence[str]) -> None:
        """Record that requests are about to be asked, and make that durable."""
        with self._lock:
            self._under_way |= dict.fromkeys(custom_ids)
            n_written = self._write(_line(claimed=list(custom_ids)))
        self._sync(n_written)

    def asked(self, custom_id: str, at: datetime) -> None:
        """Record that a call leaves now."""
        line = _line(asked=custom_id, at=at)
        with self._lock:
            self._under_way[custom_id] = at
            self._write(line)

    def back(self, custom_id: str) -> None:
        """Record that the provider did not take a call."""
        with self._lock:
            self._under_way[custom_id] = None
            self._write(_line(back=custom_id))

    def free(self, custom_ids: Sequence[str]) -> None:
        """Record that claimed requests will not be asked by this process."""
        with self._lock:
            for custom_id in custom_ids:
                self._under_way.pop(custom_id, None)
            self._write(_line(free=list(custom_ids)))

    def doubt(self, doubts: Sequence[Doubt]) -> None:
        """Record calls that may have been answered, and make that durable."""
        with self._lock:
            n_written = self._n_written
            for one in doubts:
                self._under_way.pop(one.custom_id, None)
                line = _line(doubt=one.custom_id, asked_at=one.asked_at, at=one.found_at, reason=one.reason)
                n_written = self._write(line)
        self._sync(n_written)

    def answer(self, custom_id: str, line: bytes) -> None:
        """Record an answer; it is durable `SYNC_EVERY_S` later."""
        with self._lock:
            self._under_way.pop(custom_id, None)
            self._write(line)
            self.n_answers += 1

    def rotate(self) -> None:
        """Go on in a new segment; those before it can be sealed.

        What is under way is carried over, so that the old segment can be dropped.
        """
        with self._fsync, self._lock:
            self._check()
            old = self._descriptor
            try:
                os.fsync(old)
                self._path, self._descriptor = self._next_segment()
            except OSError as error:
                self._failure = error
                self._check()
            os.close(old)
            self._n_durable = self._n_written
            self.n_answers = 0
            self.opened_s = self._clock.monotonic_s()

    def closed_segments(self) -> list[Path]:
        """Return the segments that nothing is written to any more, the oldest first."""
        return [path for path in segments(self._folder) if self.is_closed or path != self._path]

    def close(self) -> None:
        """Make everything durable and write no more; safe to call twice."""
        with self._lock:
            if self.is_closed:
                return
            self.is_closed = True
        self._is_closing.set()
        self._syncer.join()
        try:
            self._sync()
        finally:
            os.close(self._descriptor)

    def _next_segment(self) -> tuple[Path, int]:
        self._number += 1
        path = self._folder / f"{self._number:0{_NUMBER_DIGITS}d}-{random_hex(4)}.jsonl"
        lines = [_line(boot=self._clock.boot_id())]
        if self._under_way:
            lines.append(_line(claimed=list(self._under_way)))
            lines += [_line(asked=custom_id, at=at) for custom_id, at in self._under_way.items() if at is not None]
        disk.write_private(path, b"".join(line + b"\n" for line in lines))
        disk.sync(self._folder)
        return path, os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)

    def _write(self, line: bytes) -> int:
        self._check()
        if self.is_closed:
            raise LakeError(f"{self._path} is closed", hint="this call came too late: it counts as in doubt")
        try:
            disk.write_whole(self._descriptor, line + b"\n")
        except OSError as error:
            self._failure = error
            self._check()
        self._n_written += 1
        return self._n_written

    def _check(self) -> None:
        if self._failure is not None:
            raise LakeError(
                f"{self._path}: {self._failure.strerror or self._failure}",
                hint="mend the disk and run the command again: only what was in flight is in doubt",
            ) from self._failure

    def _sync(self, n_needed: int | None = None) -> None:
        """Make durable what is written by now, or so many lines; one fsync serves all who wait for it."""
        with self._fsync:
            with self._lock:
                self._check()
                n_written = self._n_written
            if self._n_durable >= (n_written if n_needed is None else n_needed):
                return
            try:
                os.fsync(self._descriptor)
            except OSError as error:  # its pages count as clean now: no later fsync would tell
                self._failure = error
                self._check()
            self._n_durable = n_written

    def _sync_on(self) -> None:
        while not self._is_closing.wait(SYNC_EVERY_S):
            try:
                self._sync()
            except LakeError:  # kept: the next call raises it
                return


def _line(**record: Any) -> bytes:
    return orjson.dumps(record, option=orjson.OPT_UTC_Z)
