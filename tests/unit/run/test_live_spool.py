"""The spool of live calls: whatever is cut off where, no request is both answered and asked again, and none is lost."""

from __future__ import annotations

import errno
import itertools
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchpond.clock import SystemClock
from batchpond.errors import ExitCode, LakeError
from batchpond.run.live import spool
from batchpond.run.live.spool import Doubt, Spool, Standing, segments, standing
from tests.rigs.clock import ManualClock
from tests.rigs.small_disk import PAGE_BYTES, mounted

NOW = datetime(2026, 11, 21, tzinfo=UTC)
NAMES = [f"r{n}" for n in range(8)]
DURABLE_WITHIN_S = 2.0


class OtherBoot(ManualClock):
    """The clock of another boot."""

    def boot_id(self) -> str:
        """Return another boot's id."""
        return "another-boot"


def clock() -> ManualClock:
    return ManualClock(NOW)


def answer(name: str) -> bytes:
    return orjson.dumps({"custom_id": name, "asked_at": NOW, "status_code": 200, "body": "{}"})


# -- histories -------------------------------------------------------------------------------------


@dataclass
class History:
    """What really happened, step by step, beside what the spool was told of it."""

    folder: Path
    spool: Spool = field(init=False)
    waiting: list[str] = field(default_factory=lambda: list(NAMES))
    claimed: set[str] = field(default_factory=set)
    flying: set[str] = field(default_factory=set)
    answered: set[str] = field(default_factory=set)
    doubted: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.spool = Spool(self.folder, clock())

    def step(self, action: str, pick: int) -> None:
        """Do one thing, if it can be done now."""
        match action:
            case "claim" if self.waiting:
                names = self.waiting[: 1 + pick % 3]
                del self.waiting[: len(names)]
                self.spool.claim(names)
                self.claimed |= set(names)
            case "ask" if self.claimed:
                name = sorted(self.claimed)[pick % len(self.claimed)]
                self.claimed.remove(name)
                self.spool.asked(name, NOW)
                self.flying.add(name)
            case "answer" | "back" | "doubt" if self.flying:
                name = sorted(self.flying)[pick % len(self.flying)]
                self.flying.remove(name)
                self._ended(action, name)
            case "free" if self.claimed:
                name = sorted(self.claimed)[pick % len(self.claimed)]
                self.claimed.remove(name)
                self.spool.free([name])
                self.waiting.append(name)
            case "rotate":
                self.spool.rotate()

    def _ended(self, action: str, name: str) -> None:
        if action == "answer":
            self.spool.answer(name, answer(name))
            self.answered.add(name)
        elif action == "back":
            self.spool.back(name)
            self.claimed.add(name)
        else:
            self.spool.doubt([Doubt(name, NOW, NOW, "cut")])
            self.doubted.add(name)


ACTIONS = st.sampled_from(["claim", "ask", "ask", "answer", "answer", "back", "doubt", "free", "rotate"])
STEPS = st.lists(st.tuples(ACTIONS, st.integers(0, 7)), max_size=60)


@given(STEPS)
@settings(max_examples=60, deadline=None)
def test_what_stands_is_what_happened(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]) -> None:
    """In the same boot exactly the asked without an end are in doubt; after another boot, all that were claimed too."""
    history = History(tmp_path_factory.mktemp("spool"))
    for action, pick in steps:
        history.step(action, pick)
    history.spool.close()
    here = standing(segments(history.folder), clock().boot_id())
    assert set(here.in_doubt) == history.flying
    assert here.answered == history.answered
    assert set(here.doubts) == history.doubted
    elsewhere = standing(segments(history.folder), OtherBoot(NOW).boot_id())
    assert set(elsewhere.in_doubt) == history.flying | history.claimed
    assert elsewhere.answered == history.answered


@given(STEPS, st.floats(0, 1))
@settings(max_examples=80, deadline=None)
def test_whatever_tail_is_lost_nothing_answered_is_asked_again_and_nothing_asked_is_forgotten(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], share: float
) -> None:
    """The last segment is cut at any byte.

    A request whose answer is still there is never in doubt. After a power cut, what is lost of the tail
    began after the last durable claim, so that every request that may have left is answered or in doubt.
    """
    history = History(tmp_path_factory.mktemp("spool"))
    n_durable, left = 0, set[str]()
    for action, pick in steps:
        history.step(action, pick)
        left |= history.flying
        if action in ("claim", "doubt", "rotate"):
            n_durable = segments(history.folder)[-1].stat().st_size
    history.spool.close()
    last = segments(history.folder)[-1]
    n_cut = n_durable + int(share * (last.stat().st_size - n_durable))
    os.truncate(last, n_cut)
    for boot_id in (clock().boot_id(), OtherBoot(NOW).boot_id()):
        found = standing(segments(history.folder), boot_id)
        assert not set(found.in_doubt) & found.answered
        assert found.answered <= history.answered
    accounted = set(found.in_doubt) | found.answered | set(found.doubts)
    freed = set(history.waiting)
    assert left - freed <= accounted


def test_a_claim_of_this_boot_that_never_left_is_asked_without_a_doubt(tmp_path: Path) -> None:
    written = Spool(tmp_path, clock())
    written.claim(["a", "b", "c"])
    written.asked("b", NOW)
    written.close()
    found = standing(segments(tmp_path), clock().boot_id())
    assert found.in_doubt == {"b": NOW}
    assert set(standing(segments(tmp_path), "another-boot").in_doubt) == {"a", "b", "c"}


def test_asked_again_after_the_provider_did_not_take_it_is_in_doubt(tmp_path: Path) -> None:
    written = Spool(tmp_path, clock())
    written.claim(["a"])
    for _ in range(2):
        written.asked("a", NOW)
        written.back("a")
    assert not standing(segments(tmp_path), clock().boot_id()).in_doubt
    written.asked("a", NOW)
    assert set(standing(segments(tmp_path), clock().boot_id()).in_doubt) == {"a"}
    written.close()


# -- segments --------------------------------------------------------------------------------------


def test_rotating_carries_over_what_is_under_way(tmp_path: Path) -> None:
    """The new segment alone says what the old one and it say together."""
    written = Spool(tmp_path, clock())
    written.claim(["a", "b", "c", "d"])
    written.asked("a", NOW)
    written.asked("b", NOW)
    written.answer("b", answer("b"))
    written.rotate()
    old, new = segments(tmp_path)
    assert written.closed_segments() == [old]
    old.unlink()
    assert set(standing([new], clock().boot_id()).in_doubt) == {"a"}
    assert set(standing([new], "another-boot").in_doubt) == {"a", "c", "d"}
    written.answer("a", answer("a"))
    written.close()
    assert standing([new], clock().boot_id()) == Standing(answered={"a"})
    assert written.closed_segments() == [new]


def test_no_segment_name_is_ever_given_twice(tmp_path: Path) -> None:
    """The name is the file id of the answers in the lake: a second run must not take the place of a first."""
    names = set()
    for _ in range(5):
        written = Spool(tmp_path / "attempt", clock())
        written.rotate()
        written.close()
        names |= {path.name for path in segments(tmp_path / "attempt")}
        spool.drop(tmp_path / "attempt")
    assert len(names) == 10


def test_segments_stay_in_the_order_in_which_they_were_written(tmp_path: Path) -> None:
    folders = []
    for n in range(12):
        written = Spool(tmp_path, clock())
        written.claim([f"{n}"])
        written.close()
        folders.append(segments(tmp_path)[-1])
    assert segments(tmp_path) == folders
    claims = [
        record["claimed"]
        for path in segments(tmp_path)
        for record, _ in spool.records(path, "x")
        if "claimed" in record
    ]
    assert claims == [[f"{n}"] for n in range(12)]


@pytest.mark.parametrize("damage", [b"\x00\x00\x00\n", b"{torn}\n", b"[]\n", b"\xff\xfe\n"])
def test_a_damaged_line_stops_in_this_boot_and_is_what_power_took_in_another(tmp_path: Path, damage: bytes) -> None:
    written = Spool(tmp_path, clock())
    written.claim(["a", "b"])
    written.asked("a", NOW)
    written.close()
    (path,) = segments(tmp_path)
    path.write_bytes(path.read_bytes() + damage + answer("b") + b"\n")
    with pytest.raises(LakeError, match=path.name) as caught:
        standing([path], clock().boot_id())
    assert caught.value.hint
    assert set(standing([path], "another-boot").in_doubt) == {"a"}


def test_a_line_of_no_known_kind_is_never_passed_over(tmp_path: Path) -> None:
    written = Spool(tmp_path, clock())
    written.close()
    (path,) = segments(tmp_path)
    path.write_bytes(path.read_bytes() + b'{"newer":1}\n')
    with pytest.raises(LakeError, match="no known kind"):
        standing([path], clock().boot_id())


# -- durability ------------------------------------------------------------------------------------


@dataclass
class Watched:
    """Remembers when which bytes became durable."""

    sizes: dict[str, list[tuple[float, int]]] = field(default_factory=dict)

    @property
    def fsync(self) -> object:
        """Return an fsync that takes notes."""
        original = os.fsync

        def noting(descriptor: int) -> None:
            name = os.readlink(f"/proc/self/fd/{descriptor}")
            size = os.fstat(descriptor).st_size
            original(descriptor)
            self.sizes.setdefault(name, []).append((time.monotonic(), size))

        return noting


def test_an_answer_is_durable_within_two_seconds_of_its_arrival(tmp_path: Path) -> None:
    """Also while others write all the time."""
    watched = Watched()
    written_s: dict[str, float] = {}
    with patch.object(os, "fsync", watched.fsync):
        written = Spool(tmp_path, SystemClock())
        written.claim([f"{n}" for n in range(200)])
        for n in range(200):
            written.asked(f"{n}", NOW)
            written.answer(f"{n}", answer(f"{n}"))
            written_s[f"{n}"] = time.monotonic()
            time.sleep(0.002)
        end = time.monotonic() + DURABLE_WITHIN_S
        (path,) = segments(tmp_path)
        while watched.sizes[str(path)][-1][1] < path.stat().st_size and time.monotonic() < end:
            time.sleep(0.01)
        n_before_close = len(watched.sizes[str(path)])
        written.close()
    offset = 0
    for record, line in spool.records(path, SystemClock().boot_id()):
        offset += len(line) + 1
        if "custom_id" in record:
            durable_s = next(at for at, size in watched.sizes[str(path)][:n_before_close] if size >= offset)
            assert durable_s - written_s[record["custom_id"]] < DURABLE_WITHIN_S


def test_a_claim_and_a_doubt_are_durable_before_they_return(tmp_path: Path) -> None:
    watched = Watched()
    with patch.object(os, "fsync", watched.fsync), patch.object(spool, "SYNC_EVERY_S", 3_600.0):
        written = Spool(tmp_path, clock())
        (path,) = segments(tmp_path)
        written.claim(["a"])
        assert watched.sizes[str(path)][-1][1] == path.stat().st_size
        written.doubt([Doubt("a", NOW, NOW, "cut")])
        assert watched.sizes[str(path)][-1][1] == path.stat().st_size
        written.close()


def test_one_fsync_serves_all_who_wait(tmp_path: Path) -> None:
    watched = Watched()
    with patch.object(os, "fsync", watched.fsync):
        written = Spool(tmp_path, SystemClock())
        slow = patch.object(os, "fsync", _slow(os.fsync))
        with slow:
            threads = [threading.Thread(target=written.claim, args=([f"{n}"],)) for n in range(32)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        (path,) = segments(tmp_path)
        assert len(watched.sizes[str(path)]) < 16
        written.close()


def _slow(original: object) -> object:
    def fsync(descriptor: int) -> None:
        time.sleep(0.02)
        original(descriptor)  # type: ignore[operator]

    return fsync


# -- disks that fail ---------------------------------------------------------------------------------


ACTS = {
    "claim": lambda s: s.claim(["z"]),
    "asked": lambda s: s.asked("z", NOW),
    "back": lambda s: s.back("z"),
    "free": lambda s: s.free(["z"]),
    "doubt": lambda s: s.doubt([Doubt("z", NOW, NOW, "cut")]),
    "answer": lambda s: s.answer("z", answer("z")),
    "rotate": lambda s: s.rotate(),
}


@pytest.mark.parametrize("name", ACTS)
def test_a_write_that_fails_is_raised_by_whoever_writes_next(tmp_path: Path, name: str) -> None:
    """An I/O error in the background fsync is kept: no later call goes on as if nothing had been."""
    failing = OSError(errno.EIO, os.strerror(errno.EIO))
    written = Spool(tmp_path, SystemClock())
    written.claim(["a"])
    written.asked("a", NOW)
    written.answer("a", answer("a"))
    with patch.object(os, "fsync", side_effect=failing), pytest.raises(LakeError):
        _go_on_asking(written)
    with pytest.raises(LakeError, match="Input/output error") as caught:
        ACTS[name](written)
    assert (caught.value.exit_code, bool(caught.value.hint)) == (ExitCode.LAKE, True)
    with pytest.raises(LakeError):
        written.close()
    assert standing(segments(tmp_path), SystemClock().boot_id()).answered == {"a"}


def _go_on_asking(written: Spool) -> None:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        written.asked("b", NOW)
        time.sleep(0.02)


@pytest.mark.parametrize("name", ["claim", "doubt", "rotate"])
def test_an_fsync_that_fails_is_raised_by_the_call_that_needs_it(tmp_path: Path, name: str) -> None:
    written = Spool(tmp_path, clock())
    failing = OSError(errno.EIO, os.strerror(errno.EIO))
    with patch.object(os, "fsync", side_effect=failing), pytest.raises(LakeError, match="Input/output error"):
        ACTS[name](written)
    with pytest.raises(LakeError):
        written.close()


def test_a_folder_that_cannot_be_made_is_a_lake_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LakeError):
        Spool(tmp_path / "file" / "attempt", clock())


def test_a_closed_spool_takes_nothing_more(tmp_path: Path) -> None:
    """What a call that outlives its run brings is not written: it would be lost with the sealed segment."""
    written = Spool(tmp_path, clock())
    written.close()
    written.close()
    with pytest.raises(LakeError, match="closed"):
        written.answer("a", answer("a"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of some pages."""
    with mounted(tmp_path / "disk", 16 * PAGE_BYTES) as disk:
        yield disk


def test_on_a_full_disk_what_was_written_before_is_whole(small_disk: Path) -> None:
    written = Spool(small_disk / "attempt", clock())
    done: list[str] = []
    with pytest.raises(LakeError, match="No space left") as caught:
        _answer_until_full(written, done)
    assert caught.value.exit_code is ExitCode.LAKE
    with pytest.raises(LakeError):
        written.close()
    found = standing(segments(small_disk / "attempt"), clock().boot_id())
    assert found.answered >= set(done)
    assert len(found.in_doubt) <= 1


def _answer_until_full(written: Spool, done: list[str]) -> None:
    for n in itertools.count():
        written.claim([f"{n}"])
        written.asked(f"{n}", NOW)
        written.answer(f"{n}", answer(f"{n}") + b" " * 700)
        done.append(f"{n}")
