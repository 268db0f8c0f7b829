"""Claims: of all who want a part one has it, a lease that lapses frees it, and who was asleep finds that out."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from batchpond_work.claims import Claims
from batchpond_work.folder import Folder
from batchpond_work.place import Claim

PART = "batch-p0003"
LEASE_S = 60.0
N_WORKERS = 8


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return laid(tmp_path)


def laid(path: Path) -> Folder:
    """Return an empty folder of mode `files`."""
    (path / "outbox").mkdir()
    return Folder(path)


def of(folder: Folder, worker: str) -> Claims:
    return Claims(folder, worker, LEASE_S)


def lapse(folder: Folder) -> None:
    """Let no claim have been renewed for longer than its lease."""
    for path in folder.claims.glob("*.claim"):
        when_s = path.stat().st_mtime - LEASE_S - 1
        os.utime(path, (when_s, when_s))


def race(folder: Folder, n_rounds: int) -> Iterator[list[Claim]]:
    """Let workers want the same part at the same time, round by round; yields who got it."""
    barrier = Barrier(N_WORKERS)

    def want(number: int, generation: int) -> Claim | None:
        claims = of(folder, f"w{number}-{generation}")
        barrier.wait()
        return claims.take(PART)

    with ThreadPoolExecutor(N_WORKERS) as pool:
        for generation in range(n_rounds):
            found = pool.map(want, range(N_WORKERS), [generation] * N_WORKERS)
            yield [claim for claim in found if claim is not None]
            lapse(folder)


def test_of_threads_that_want_a_part_one_has_it_and_one_takes_it_over(folder: Folder) -> None:
    """The first claim, and each one after a lapse, is one worker's, and counts one on."""
    for generation, won in enumerate(race(folder, 25), 1):
        assert [claim.generation for claim in won] == [generation]


def _want(path: str, number: int, gate: multiprocessing.synchronize.Barrier, won: multiprocessing.Queue[int]) -> None:
    claims = of(Folder(Path(path)), f"process-{number}")
    for generation in range(1, 11):
        gate.wait(30)
        if (claim := claims.take(PART)) is not None:
            assert claim.generation == generation
            won.put(generation)
        if gate.wait(30) == 0:  # one of them makes time pass
            lapse(claims.folder)
        gate.wait(30)


def test_of_processes_that_want_a_part_one_has_it_and_one_takes_it_over(folder: Folder) -> None:
    """The same with nothing in common but the folder."""
    context = multiprocessing.get_context("fork")
    gate, won = context.Barrier(4), context.Queue()
    processes = [context.Process(target=_want, args=(str(folder.path), n, gate, won)) for n in range(4)]
    for process in processes:
        process.start()
    assert sorted(won.get(timeout=30) for _ in range(10)) == list(range(1, 11))
    for process in processes:
        process.join(30)
        assert process.exitcode == 0
    assert won.empty()


def test_a_worker_that_slept_finds_that_another_holds_its_part(folder: Folder) -> None:
    """Renewing does not bring a part back that was taken over, nor does letting it go take it from the other."""
    sleeper, other = of(folder, "sleeper"), of(folder, "other")
    first = sleeper.take(PART)
    assert first is not None
    assert other.take(PART) is None
    lapse(folder)
    second = other.take(PART)
    assert second is not None
    assert second.after == "sleeper"
    assert (sleeper.holds(first), sleeper.renew(first), other.holds(second)) == (False, False, True)
    sleeper.free(first)
    assert other.holds(second)
    assert of(folder, "third").take(PART) is None


def test_a_sleeper_that_nobody_replaced_goes_on(folder: Folder) -> None:
    """A lapsed lease is an offer to others, not an end."""
    claims = of(folder, "w")
    claim = claims.take(PART)
    assert claim is not None
    lapse(folder)
    assert claims.renew(claim)
    assert of(folder, "other").take(PART) is None


def test_the_lease_is_the_holders_own(folder: Folder) -> None:
    """Whoever has a shorter one waits as long as the claim says."""
    assert of(folder, "patient").take(PART) is not None
    path = next(folder.claims.glob("*.claim"))
    when_s = path.stat().st_mtime - LEASE_S / 2
    os.utime(path, (when_s, when_s))
    assert Claims(folder, "hasty", 1.0).take(PART) is None


def test_a_claim_that_says_nothing_lapses_too(folder: Folder) -> None:
    """A file of no sense in the place of a claim holds a part no longer than a lease."""
    (folder.claims / f"{PART}.g1.claim").write_bytes(b"\x00")
    assert of(folder, "w").take(PART) is None
    lapse(folder)
    assert of(folder, "w").take(PART) is not None


@pytest.mark.parametrize("how", ["drop", "drop_all"])
def test_a_sleeper_finds_its_claim_the_latest_at_no_moment_of_an_end(folder: Folder, how: str) -> None:
    """A part's claims go oldest first: before each removal, whoever slept through a later claim holds nothing."""
    sleeper, other = of(folder, "sleeper"), of(folder, "other")
    first = sleeper.take(PART)
    lapse(folder)
    second = other.take(PART)
    assert first is not None
    assert second is not None
    held: list[bool] = []

    def hear(event: str, arguments: tuple[object, ...]) -> None:
        if event == "os.remove" and str(arguments[0]).startswith(str(folder.claims)):
            held.append(sleeper.holds(first))

    sys.addaudithook(hear)
    if how == "drop":
        other.drop(second)
    else:
        other.drop_all(PART.partition("-")[0])
    assert held == [False, False]
    assert list(folder.claims.glob("*.claim")) == []


class Workers(RuleBasedStateMachine):
    """Workers that take, renew, let go, end and sleep, in any order, at one part."""

    def __init__(self) -> None:
        super().__init__()
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = laid(Path(self.scratch.name))
        self.workers = {name: of(self.folder, name) for name in ("a", "b", "c")}
        self.believed: dict[str, Claim] = {}

    def teardown(self) -> None:
        self.scratch.cleanup()

    names = st.sampled_from(["a", "b", "c"])

    @rule(name=names)
    def take(self, name: str) -> None:
        claim = self.workers[name].take(PART)
        if claim is not None:
            self.believed[name] = claim
            assert self.workers[name].holds(claim)

    @rule(name=names, how=st.sampled_from(["renew", "free", "drop"]))
    def use(self, name: str, how: str) -> None:
        """Renew or let go; only a worker that knows that it holds a part ends it."""
        claim = self.believed.get(name)
        if claim is None or (how == "drop" and not self.workers[name].holds(claim)):
            return
        getattr(self.workers[name], how)(claim)
        if how != "renew":
            del self.believed[name]

    @rule()
    def sleep(self) -> None:
        lapse(self.folder)

    @invariant()
    def at_most_one_holds_it(self) -> None:
        held = [name for name, claim in self.believed.items() if self.workers[name].holds(claim)]
        assert len(held) <= 1


class TestWorkers(Workers.TestCase):  # type: ignore[name-defined,misc]
    """Whatever they do, at most one of those who think so holds the part."""

    settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
