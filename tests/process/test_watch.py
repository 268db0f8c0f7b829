"""What `sync --watch` shows somebody who looks on: a living line that says how far it is and when it looks again."""

from __future__ import annotations

import os
import re
import select
import signal
import time
from pathlib import Path

from batchpond.cli.sync import _standing
from tests.rigs import forked
from tests.rigs.fake_openai import FakeOpenAI
from tests.rigs.lakes import LakeBuilder
from tests.rigs.program import Program

FIRST_LINE_S = 3.0
BOUND_S = 30.0


def test_a_watch_counts_down_and_says_how_far_it_is_within_a_moment(account: FakeOpenAI, program: Program) -> None:
    """Defect of people: nothing moved for a minute, and no money was in it; all of that fits eighty columns."""
    program.prepare(max_requests=6)
    account.is_held = True
    program.submit()
    account.finish(account.batches[0])
    ours, theirs = os.openpty()
    since_s = time.monotonic()
    environment = program.environment | {"COLUMNS": "80"}
    watch = forked.start("sync", "--watch", "--interval", "30", env=environment, cwd=program.folder, stderr=theirs)
    os.close(theirs)
    shown, first_s = b"", None
    try:
        while len(found := dict.fromkeys(re.findall(rb"next look in (\w+)", shown))) < 3:
            assert time.monotonic() - since_s < BOUND_S, shown.decode()
            if select.select([ours], [], [], 1.0)[0]:
                shown += os.read(ours, 65_536)
                first_s = first_s or time.monotonic() - since_s
    finally:
        watch.send_signal(signal.SIGINT)
        watch.wait()
        os.close(ours)
    assert first_s is not None
    assert first_s < FIRST_LINE_S
    left_s = [int(left[:-1]) for left in found]
    assert left_s == sorted(left_s, reverse=True)
    line = shown.decode().split("\r\x1b[2K")[1]
    assert "; 1 batch pending, 0 of 6 requests done, $0.00 (simulated)," in line


def test_what_a_watch_says_was_spent_is_what_answers_cost(tmp_path: Path) -> None:
    """Of batches that are bought, and no more than they have cost by now."""
    builder = LakeBuilder(tmp_path / "lake")
    builder.plan([{"slot": slot, "request_id": request} for slot, request in enumerate(("a", "b", "c"), 1)])
    for attempt, requests in (("attempt001", ["a", "b"]), ("attempt002", ["c"])):
        builder.sent(attempt, f"shard{attempt}", requests, origin="batch")
    builder.lines(
        "attempt001", [{"request_id": one, "outcome": "decided", "origin": "batch", "cost_usd": 0.75} for one in "ab"]
    )
    builder.build()
    assert ", $1.50 so far" in _standing(builder.store)
