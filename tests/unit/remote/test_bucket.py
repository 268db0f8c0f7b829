"""The operations on an object store, over a folder and an S3 on loopback; other stores are a command of their own."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from batchpond.clock import random_hex
from batchpond.errors import LakeError, UsageError
from batchpond_remote import bucket as bucket_module
from batchpond_remote.bucket import Bucket
from tests.rigs import s3
from tests.rigs.clock import ManualClock
from tests.rigs.sim_study import START

OTHER = os.environ.get("BATCHPOND_TEST_BUCKET", "")
"""The address of a bucket in another store, to be held against the same properties; its variables are set."""


def bucket_at(url: str) -> Bucket:
    return Bucket(url, ManualClock(START))


@pytest.fixture(params=["file", "s3", *([OTHER] if OTHER else [])])
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> Bucket:
    if request.param == "file":
        return bucket_at(f"file://{tmp_path}/objects")
    if request.param == OTHER:
        return bucket_at(f"{OTHER}/{tmp_path.name}-{random_hex(4)}")
    request.getfixturevalue("shop")
    return bucket_at("s3://bucket-one/some/lake")


def test_what_is_put_is_listed_read_and_dropped(bucket: Bucket, tmp_path: Path) -> None:
    assert bucket.objects() == {}
    assert bucket.put_new("a/x=1/b-1.parquet", b"one")[0]
    tag = bucket.put("a/c", b"two")
    listed = bucket.objects()
    assert listed.keys() == {"a/x=1/b-1.parquet", "a/c"}
    assert listed["a/c"] == (tag, 3)
    assert tag != bucket.put("a/c", b"three")
    assert bucket.get("a/c") == b"three"
    assert bucket.objects()["a/c"].tag != tag
    into = tmp_path / "into"
    assert bucket.fetch("a/c", into)
    assert into.read_bytes() == b"three"
    bucket.drop("a/c")
    bucket.drop("a/c")
    assert bucket.get("a/c") is None
    assert not bucket.fetch("a/c", into)
    assert bucket.objects().keys() == {"a/x=1/b-1.parquet"}


def test_a_name_is_given_once_however_many_want_it(bucket: Bucket) -> None:
    won: list[int] = []

    def want(number: int) -> None:
        if bucket.put_new("sent", b"%d" % number)[0]:
            won.append(number)

    threads = [threading.Thread(target=want, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bucket.get("sent") == b"%d" % won[0]
    assert len(won) == 1


@pytest.mark.parametrize("fault", ["lost_ack", "conflict", "slow_down"])
def test_an_unclear_put_is_told_by_the_bytes_that_stand_there(shop: s3.Shop, fault: str) -> None:
    """Ours after a lost answer, a refusal of a name that nobody has, or a store that is busy."""
    bucket = bucket_at("s3://bucket-one/lake")
    shop.faults += [("PUT", "sent", fault)] * 2
    assert bucket.put_new("sent", b"mine")[0]
    shop.faults.append(("PUT", "sent", "lost_ack"))
    assert not bucket.put_new("sent", b"another's")[0]
    assert shop.objects["bucket-one/lake/sent"][0] == b"mine"


def test_a_large_file_is_put_in_parts_whatever_its_size(bucket: Bucket, tmp_path: Path) -> None:
    """As one object that is listed by the tag that was returned, in the place of another."""
    file = tmp_path / "large"
    file.write_bytes(os.urandom(3 << 20) * 9)
    bucket.put("large", b"before")
    tag = bucket.put("large", file)
    assert bucket.objects()["large"] == (tag, 27 << 20)
    assert bucket.fetch("large", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == file.read_bytes()


def test_no_call_carries_more_than_a_part(shop: s3.Shop, tmp_path: Path) -> None:
    """So that what is in memory does not grow with the file; one that fails leaves nothing behind."""
    bucket = bucket_at("s3://bucket-one/lake")
    (tmp_path / "large").write_bytes(b"x" * (27 << 20))
    bucket.put("large", tmp_path / "large")
    assert shop.calls == {"BEGIN": 1, "PART": 4, "END": 1}
    assert max(n_bytes for *_, n_bytes in shop.log) == 8 << 20
    shop.faults.append(("PART", "again", "denied"))
    with pytest.raises(LakeError, match="may not write again"):
        bucket.put("again", tmp_path / "large")
    assert shop.parts == {}
    assert bucket.get("again") is None


def test_a_listing_costs_a_call_for_a_page(shop: s3.Shop) -> None:
    bucket = bucket_at("s3://bucket-one/lake")
    for number in range(7):
        bucket.put(f"t/{number}", b"")
    shop.page = 3
    assert len(bucket.objects()) == 7
    assert shop.calls["LIST"] == 3


def test_a_profile_of_aws_is_no_reason_to_ask_a_machine_for_its_role(
    shop: s3.Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said what to export; where that is done it is not looked at."""
    monkeypatch.setenv("AWS_PROFILE", "lab")
    bucket_at("s3://bucket-one/lake").put("x", b"")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(UsageError, match="AWS_PROFILE names a profile") as caught:
        bucket_at("s3://bucket-one/lake")
    assert "aws configure export-credentials" in str(caught.value.hint)


def test_a_store_that_takes_the_call_and_says_nothing_is_told_of_after_the_deadline_of_a_small_one(
    shop: s3.Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listings, looks, small objects and deletions do not wait as long as a large object may take to travel.

    What a put that was not answered has come to is told by what stands there, as ever.
    """
    assert bucket_module.SMALL_DEADLINE <= bucket_module.CALL_DEADLINE / 10
    monkeypatch.setattr(bucket_module, "SMALL_DEADLINE", timedelta(seconds=0.5))
    bucket = bucket_at("s3://bucket-one/lake")
    small: dict[str, Callable[[], object]] = {
        "LIST": bucket.objects,
        "GET": lambda: bucket.get("x"),
        "POST": lambda: bucket.drop("x"),
    }
    for method, call in small.items():
        shop.faults.append((method, "", "slow"))
        began_s = time.monotonic()
        with pytest.raises(LakeError, match="s3://bucket-one/lake: could not"):
            call()
        assert time.monotonic() - began_s < s3.SLOW_S, method
    shop.faults.append(("PUT", "", "slow"))
    began_s = time.monotonic()
    assert bucket.put_new("sent", b"mine")[0]
    assert time.monotonic() - began_s < s3.SLOW_S


def test_what_is_not_allowed_or_not_there_says_so(shop: s3.Shop) -> None:
    bucket = bucket_at("s3://bucket-one/lake")
    shop.faults.append(("PUT", "x", "denied"))
    with pytest.raises(LakeError, match="s3://bucket-one/lake: may not write x"):
        bucket.put("x", b"")
    for url in ("https://host/lake", "ftp://host/lake", "s3://"):
        with pytest.raises(UsageError):
            bucket_at(url)
