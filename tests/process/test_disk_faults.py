"""A disk that fails or is full at any moment of a submit or a sync: a clear error, nothing bought twice, nothing lost.

Two ways to make it fail: a small tmpfs that really is full (needs root), and each of the calls by which
batchpond writes answering EIO or ENOSPC, one after the other until a run meets none. Here every
STRIDE-th of them; `python -m tests.sweeps.disk_faults` takes each.
"""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest

from batchpond.errors import ExitCode, LakeError
from batchpond.lake.attempts import Phase
from batchpond.lake.events import read
from batchpond.lake.records import Sent
from batchpond.lake.store import TMP, Store
from batchpond_sim.world.world import Settings
from tests.rigs.processes import rig_at
from tests.rigs.sim_study import LATENCY_S, STUDY, Rig
from tests.rigs.small_disk import PAGE_BYTES, fill, mounted
from tests.rigs.swept import every

N_SHARDS = 2
N_REQUESTS = 12
DISK_BYTES = 8 << 20
STRIDE = 13
PAGES_STRIDE = 13
# What takes room on a disk, and so fails when there is none.
TAKES_ROOM = {"open", "write", "pwrite", "mkdir", "link", "parquet write", "parquet close"}

# The error, and how many calls fail with it: one, or all from then on.
FAULTS: dict[str, tuple[int, int | None]] = {"EIO once": (errno.EIO, 1), "full": (errno.ENOSPC, None)}


@dataclass
class Disk:
    """Counts the effects on files below a folder, and makes those from the n-th on fail."""

    root: Path
    error: int
    n_failures: int | None
    fails_at: int
    n_effects: int = 0
    failed: list[str] = field(default_factory=list)

    def effect(self, name: str, path: str | os.PathLike[str]) -> None:
        """Note an effect, or fail in its place."""
        if not Path(os.fspath(path)).is_relative_to(self.root):
            return
        if self.error == errno.ENOSPC and name not in TAKES_ROOM:
            return
        self.n_effects += 1
        if self.n_effects > self.fails_at and (self.n_failures is None or len(self.failed) < self.n_failures):
            self.failed.append(f"{name} {Path(path).relative_to(self.root)}")
            raise OSError(self.error, os.strerror(self.error), os.fspath(path))

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Put this disk under everything that the package writes."""
        with ExitStack() as stack:
            for name in ("write", "pwrite", "fsync", "ftruncate"):
                stack.enter_context(patch.object(os, name, self._on_descriptor(name, getattr(os, name))))
            for name in ("mkdir", "unlink"):
                stack.enter_context(patch.object(os, name, self._on_path(name, getattr(os, name))))
            for name in ("link", "replace"):
                stack.enter_context(patch.object(os, name, self._on_target(name, getattr(os, name))))
            stack.enter_context(patch.object(os, "open", self._opening(os.open)))
            for name in ("write_table", "close"):
                original = getattr(pq.ParquetWriter, name)
                label = "parquet write" if name == "write_table" else "parquet close"
                stack.enter_context(patch.object(pq.ParquetWriter, name, self._on_writer(label, original)))
            yield

    def _on_descriptor(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def faulty(descriptor: int, *rest: Any) -> Any:
            self.effect(name, os.readlink(f"/proc/self/fd/{descriptor}").removesuffix(" (deleted)"))
            return original(descriptor, *rest)

        return faulty

    def _on_path(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def faulty(path: Any, *rest: Any, **named: Any) -> Any:
            self.effect(name, path)
            return original(path, *rest, **named)

        return faulty

    def _on_target(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def faulty(source: Any, target: Any, **named: Any) -> Any:
            self.effect(name, target)
            return original(source, target, **named)

        return faulty

    def _opening(self, original: Callable[..., int]) -> Callable[..., int]:
        def faulty(path: Any, flags: int, *rest: Any, **named: Any) -> int:
            if flags & os.O_CREAT:
                self.effect("open", path)
            return original(path, flags, *rest, **named)

        return faulty

    def _on_writer(self, label: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def faulty(writer: Any, *rest: Any, **named: Any) -> Any:
            if writer.is_open:
                self.effect(label, writer.where.name)
            return original(writer, *rest, **named)

        return faulty


class DiskRig(Rig):
    """A rig whose lake is on a disk that may fail."""

    disk: Disk | None = None

    @contextmanager
    def _points(self) -> Iterator[None]:
        with super()._points(), self.disk.in_use() if self.disk else ExitStack():
            yield


def new_rig(path: Path, lake: Path | None = None) -> DiskRig:
    settings = Settings(seed=1, latency_s=LATENCY_S)
    rig = DiskRig(path, settings, max_requests=6, models=("gpt-4.1-mini",), with_lens=False)
    if lake is not None:
        rig.lake = lake
    return rig


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_starts(tmp_path_factory.mktemp("starts"))


def make_starts(folder: Path) -> dict[str, Path]:
    """Make where each verb starts: a planned lake; and one with a batch that ended and a create in doubt."""
    rig = new_rig(folder / "sync")
    rig.plan()
    shutil.copytree(folder / "sync", folder / "submit")
    rig.world.add_fault("batches.create@2:reset_after")
    rig.world.add_fault("batches.create@2:stale_list=60")
    rig.submit()
    rig.world.close()
    return {"submit": folder / "submit", "sync": folder / "sync"}


def begin(verb: str, starts: dict[str, Path], path: Path, lake: Path | None = None) -> DiskRig:
    shutil.copytree(starts[verb], path)
    if lake is not None:
        shutil.move(path / "lake", lake)
    rig = new_rig(path, lake)
    rig.clock.advance(1_000 if verb == "sync" else 0)
    return rig


def run(rig: DiskRig, verb: str, disk: Disk | None = None) -> LakeError | None:
    """Run a verb on a disk that may fail; returns the error it ended with, which must be a clear one."""
    rig.disk = disk
    found = None
    try:
        rig.submit() if verb == "submit" else rig.sync()
    except LakeError as error:
        found = error
    finally:
        rig.disk = None
    assert found is None or (found.exit_code, bool(found.hint)) == (ExitCode.LAKE, True)
    return found


def check_record_before_post(rig: DiskRig) -> None:
    n_sent = sum(isinstance(event, Sent) for event in read(Store.open(rig.lake, rig.clock)))
    assert rig.wire.n_create_posts <= n_sent


def check_room_given_back(rig: DiskRig, error: int) -> None:
    """What was half written would take room from what is missing; derived rows alone may be left for the sweep."""
    left = list((rig.lake / TMP).iterdir())
    assert error != errno.ENOSPC or sum(path.stat().st_size for path in left) <= 2 * PAGE_BYTES, left


def check_recovery(rig: DiskRig) -> None:
    """The disk is mended: the command again, then syncs, end as if nothing had been.

    A batch that was in doubt when the command came again was not approved with the rest: absent, it waits for that.
    """
    rig.submit()
    for _ in range(4):
        rig.clock.advance(1_000)
        report = rig.sync()
        if report.n_unsent:
            rig.submit()
        elif not report.n_pending:
            break
    assert len(rig.world.ledger.batches) == N_SHARDS
    assert rig.billed()[0] == len(rig.answers()) == N_REQUESTS
    assert rig.violations() == []


class States:
    """What failed runs left behind: the same state need not be recovered from twice."""

    def __init__(self) -> None:
        self._seen: set[tuple[object, ...]] = set()

    def is_new(self, rig: DiskRig) -> bool:
        files = tuple(name for name in rig.tree() if not name.startswith("_tmp/"))
        state = (files, len(rig.world.ledger.batches), rig.wire.n_create_posts)
        is_new = state not in self._seen
        self._seen.add(state)
        return is_new


@pytest.mark.parametrize("verb", ["submit", "sync"])
@pytest.mark.parametrize("fault", every(2, FAULTS))
def test_every_write_may_fail(verb: str, fault: str, starts: dict[str, Path], tmp_path: Path) -> None:
    n_runs = sweep(verb, fault, starts, tmp_path, STRIDE)
    assert n_runs * STRIDE >= 50, "the sweep has met too few writes to mean anything"


def sweep(verb: str, fault: str, starts: dict[str, Path], folder: Path, stride: int) -> int:
    """Let every `stride`-th write fail in a run of its own, until a run meets no failure; returns the runs."""
    states = States()
    for n in itertools.count():
        rig = begin(verb, starts, folder / str(n))
        disk = Disk(rig.lake, *FAULTS[fault], fails_at=n * stride)
        error = run(rig, verb, disk)
        if not disk.failed:
            assert error is None
            return n
        assert error is not None, f"{disk.failed} went unnoticed"
        assert os.strerror(disk.error) in error.message
        check_record_before_post(rig)
        check_room_given_back(rig, disk.error)
        if states.is_new(rig):
            check_recovery(rig)
        rig.world.close()
        shutil.rmtree(folder / str(n))
    raise AssertionError("unreachable")


# -- a disk that is full for real -----------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a few megabytes."""
    with mounted(tmp_path / "disk", DISK_BYTES) as disk:
        yield disk


@pytest.mark.parametrize("verb", ["submit", "sync"])
def test_a_disk_that_is_full(verb: str, starts: dict[str, Path], tmp_path: Path, small_disk: Path) -> None:
    for n in itertools.count():
        rig = begin(verb, starts, tmp_path / str(n), small_disk / str(n))
        filler = fill(small_disk, n * PAGES_STRIDE)
        error = run(rig, verb)
        filler.unlink()
        if error is None:
            assert n >= 3, "the disk was hardly full"
            return
        assert "No space left on device" in error.message
        check_record_before_post(rig)
        check_room_given_back(rig, errno.ENOSPC)
        check_recovery(rig)
        rig.world.close()
        shutil.rmtree(rig.lake)


def test_a_log_that_cannot_be_written_stops_nothing(starts: dict[str, Path], tmp_path: Path) -> None:
    """`batchpond submit 2>>log` on a full disk goes on, and what it has to say is in its exit code and the lake."""
    with rig_at(tmp_path, starts["submit"] / "lake") as rig, open("/dev/full", "wb") as full:
        rig.simulator.world.add_fault("batches.create@*:reset_before")
        process = rig.start_program("submit", STUDY, "--yes", stderr=full.fileno())
        assert process.wait(60) == ExitCode.ATTENTION
        assert {attempt.phase for attempt in rig.lake_state().attempts.values()} == {Phase.UNKNOWN}
