"""Claims and result files at an address: what a store gives to one alone is enough to know who adds to a part."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from batchpond_work import address
from batchpond_work.address import Address
from batchpond_work.claims import Claims
from batchpond_work.place import Claim
from tests.rigs import s3

AT = "bucket-one/judging"
PART = "batch-p0003"
LEASE_S = 60.0


class At:
    """An address with requests, and workers there."""

    def __init__(self, shop: s3.Shop, scratch: Path) -> None:
        self.shop, self.scratch = shop, scratch
        self.put("outbox/batch.manifest.json", b"{}")

    def put(self, name: str, data: bytes) -> None:
        self.shop.objects[f"{AT}/{name}"] = data, s3.now()

    def of(self, worker: str) -> Claims:
        return Claims(Address(f"s3://{AT}", self.scratch), worker, LEASE_S)

    def names(self, side: str) -> dict[str, bytes]:
        start = f"{AT}/{side}/"
        return {key.removeprefix(start): one[0] for key, one in self.shop.objects.items() if key.startswith(start)}

    def lapse(self, *workers: Claims) -> None:
        """Let no claim have been renewed for longer than its lease, and workers see it."""
        for key, (data, changed) in self.shop.objects.items():
            if key.endswith(".claim"):
                self.shop.objects[key] = data, changed - timedelta(seconds=LEASE_S + 2)
        for claims in workers:
            claims.folder._listed_s = -1.0  # type: ignore[attr-defined]  # as a moment later


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[At]:
    with s3.served() as shop:
        for name, value in shop.environ.items():
            monkeypatch.setenv(name, value)
        yield At(shop, tmp_path)


def taken(claims: Claims) -> Claim:
    claim = claims.take(PART)
    assert claim is not None
    return claim


def test_of_workers_that_want_a_part_one_has_it_and_one_takes_it_over(at: At) -> None:
    """The first claim, and each one after a lapse, is one worker's, and counts one on."""
    for generation in range(1, 6):
        with ThreadPoolExecutor(4) as pool:
            wanting = [at.of(f"w{number}-{generation}") for number in range(4)]
            won = [claim for claim in pool.map(lambda claims: claims.take(PART), wanting) if claim]
        assert [claim.generation for claim in won] == [generation]
        at.lapse()


def test_who_sleeps_within_a_write_adds_nothing(at: At) -> None:
    """It was the holder when it began to; the name that its next file would have is taken by then, for ever."""
    sleeper, other = at.of("sleeper"), at.of("other")
    first = taken(sleeper)
    assert sleeper.write(first, 1, b"one\n")
    at.lapse(other)
    second = taken(other)
    assert second == Claim(PART, 2, "sleeper")
    assert at.names("inbox") == {f"{PART}-g1-0001.jsonl": b"one\n", f"{PART}-g1-0002.jsonl": b""}
    assert not sleeper.write(first, 2, b"two\n")
    assert other.write(second, 1, b"two\n")
    other.drop(second)
    assert not sleeper.write(first, 2, b"two\n")
    assert (sleeper.holds(first), sleeper.renew(first)) == (False, False)
    assert at.names("claims") == {}


def test_what_a_sleeper_added_at_the_last_moment_is_seen(at: At) -> None:
    """Also a file that appears between the listing and the fence: the next name is fenced then."""
    sleeper, other = at.of("sleeper"), at.of("other")
    first = taken(sleeper)
    at.lapse(other)
    at.shop.faults.append(("PUT", f"{PART}-g1-0001", "conflict"))
    put = other.folder._put  # type: ignore[attr-defined]

    def late(name: str, data: bytes, over: object = None) -> object:
        if name.endswith("-g1-0001.jsonl"):
            assert sleeper.write(first, 1, b"one\n")
        return put(name, data, over)

    other.folder._put = late  # type: ignore[attr-defined]
    taken(other)
    assert at.names("inbox") == {f"{PART}-g1-0001.jsonl": b"one\n", f"{PART}-g1-0002.jsonl": b""}


def test_a_holder_that_nobody_replaced_goes_on_after_its_lease(at: At) -> None:
    claims, other = at.of("w"), at.of("other")
    claim = taken(claims)
    at.lapse(claims, other)
    assert claims.renew(claim)
    assert other.take(PART) is None
    assert claims.write(claim, 1, b"one\n")


def test_a_part_that_was_let_go_is_free_at_once_and_its_files_stay(at: At) -> None:
    claims, other = at.of("w"), at.of("other")
    claim = taken(claims)
    assert claims.write(claim, 1, b"one\n")
    claims.free(claim)
    assert taken(other) == Claim(PART, 2, "w")
    assert at.names("inbox")[f"{PART}-g1-0001.jsonl"] == b"one\n"


def test_a_claim_that_was_removed_is_not_renewed(at: At) -> None:
    """So nothing is left behind of a batch that is over."""
    claims = at.of("w")
    claim = taken(claims)
    claims.folder.listed("claims")
    at.shop.objects.pop(f"{AT}/claims/{PART}.g1.claim")
    assert not claims.renew(claim)
    assert at.names("claims") == {}


def test_claims_count_on_from_the_files_of_a_part(at: At) -> None:
    """Where claims were taken away and somebody wants more answers after all, no earlier holder's names are his."""
    at.put(f"inbox/{PART}-g3-0001.jsonl", b"one\n")
    assert taken(at.of("w")).generation == 4
    assert at.names("inbox").keys() == {
        *(f"{PART}-g{generation}-0001.jsonl" for generation in (1, 2, 3)),
        f"{PART}-g3-0002.jsonl",
    }


@pytest.mark.parametrize("fault", ["lost_ack", "conflict", "slow_down"])
@pytest.mark.parametrize("piece", ["g1.claim", "g2.claim", "-g1-0002", "-g2-0001"])
def test_a_put_whose_answer_is_lost_is_told_by_what_stands_there(at: At, fault: str, piece: str) -> None:
    at.shop.faults += [("PUT", piece, fault)] * 2
    first, second = at.of("first"), at.of("second")
    claim = taken(first)
    assert first.renew(claim)
    assert first.write(claim, 1, b"one\n")
    at.lapse(second)
    later = taken(second)
    assert second.renew(later)
    assert not first.write(claim, 2, b"two\n")
    assert second.write(later, 1, b"two\n")
    assert sorted(at.names("inbox").values()) == [b"", b"one\n", b"two\n"]


def test_a_store_that_takes_a_small_call_and_says_nothing_is_told_of_soon(
    at: At, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after the minutes that a large file of requests may take to travel."""
    monkeypatch.setattr(address, "SMALL_CALL", timedelta(seconds=0.5))
    at.shop.faults.append(("LIST", "", "slow"))
    began_s = time.monotonic()
    with pytest.raises(OSError, match="could not list outbox"):
        at.of("w")
    assert time.monotonic() - began_s < s3.SLOW_S


def test_a_lease_is_by_the_clock_of_the_store(at: At, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine thinks that the time is."""
    taken(at.of("w"))
    monkeypatch.setattr("time.time", lambda: 0.0)
    assert at.of("other").take(PART) is None


def test_only_files_whose_names_begin_so_are_listed_on_however_many_pages(at: At) -> None:
    at.shop.page = 2
    for name in ("batch-a", "batch-p0002.jsonl", *(f"{PART}-g1-{number:04d}.jsonl" for number in range(5)), "batcher"):
        at.put(f"inbox/{name}", b"x")
    place = at.of("w").folder
    assert list(place.listed("inbox", f"{PART}-g")) == [f"{PART}-g1-{number:04d}.jsonl" for number in range(5)]
    assert len(place.listed("inbox")) == 8


class Holders(RuleBasedStateMachine):
    """Workers that take a part, write answers to what they found unanswered, and sleep, in any order."""

    names = st.sampled_from(["a", "b", "c"])

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.serving = s3.served()
        shop = self.serving.__enter__()
        for name, value in shop.environ.items():
            self.patch.setenv(name, value)
        self.at = At(shop, Path("/nowhere"))
        self.workers = {name: self.at.of(name) for name in ("a", "b", "c")}
        self.work: dict[str, tuple[Claim, list[int], int]] = {}

    def teardown(self) -> None:
        self.serving.__exit__(None, None, None)
        self.patch.undo()

    def answered(self) -> list[int]:
        return sorted(int(row) for data in self.at.names("inbox").values() for row in data.split())

    @rule(name=names)
    def take(self, name: str) -> None:
        claim = self.workers[name].take(PART)
        if claim is not None:
            self.work[name] = claim, [n for n in range(6) if n not in self.answered()], 0

    @rule(name=names)
    def write(self, name: str) -> None:
        """Write the next answer, as one does that asked long ago."""
        if name in self.work:
            claim, wanted, n_files = self.work[name]
            is_there = bool(wanted) and self.workers[name].write(claim, n_files + 1, f"{wanted[0]}\n".encode())
            if is_there:
                self.work[name] = claim, wanted[1:], n_files + 1
            else:
                del self.work[name]

    @rule(name=names, how=st.sampled_from(["renew", "free", "drop"]))
    def use(self, name: str, how: str) -> None:
        if name in self.work and (how != "drop" or self.answered() == list(range(6))):
            getattr(self.workers[name], how)(self.work[name][0])

    @rule()
    def sleep(self) -> None:
        self.at.lapse(*self.workers.values())

    @invariant()
    def no_request_has_two_answers(self) -> None:
        assert len(set(self.answered())) == len(self.answered())


class TestHolders(Holders.TestCase):  # type: ignore[name-defined,misc]
    """Whatever they do, nothing is answered twice."""

    settings = settings(max_examples=15, stateful_step_count=25, deadline=None)
