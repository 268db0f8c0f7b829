"""Engines that are not there, and engines whose user has gone: one is said at once, the other ends."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from batchpond.errors import UsageError
from tests.spark import engines

STARTS = """
import pathlib, sys, time
from batchpond_spark import engine

with engine._sail(pathlib.Path(sys.argv[1])) as address:
    print(address, flush=True)
    time.sleep(600)
"""


def test_a_server_that_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    """Its client would try for ten minutes."""
    engines.name()
    from batchpond_spark import engine

    began_s = time.monotonic()
    with (
        pytest.raises(UsageError, match=r"sc://127\.0\.0\.1:1 does not answer"),
        engine.session("sc://127.0.0.1:1", tmp_path),
    ):
        pass
    assert time.monotonic() - began_s < 30.0


def test_a_sail_of_ours_ends_with_whoever_started_it_and_was_killed(tmp_path: Path) -> None:
    """It holds gigabytes, and nobody would know whose they are."""
    if engines.name() != "sail":
        pytest.skip("Spark runs in the process that asks it, or on a server of its own")
    from batchpond_spark import engine

    with subprocess.Popen([sys.executable, "-c", STARTS, str(tmp_path)], stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        port = int(started.stdout.readline().strip().rpartition(":")[2])
        assert engine._listens(port)
        started.kill()
        until_s = time.monotonic() + 30.0
        while engine._listens(port) and time.monotonic() < until_s:
            time.sleep(0.1)
        assert not engine._listens(port)
