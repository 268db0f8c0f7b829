"""What ends the threads that make live calls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from batchpond.clock import SystemClock
from batchpond.providers import registry
from batchpond.run.live.calls import CallRules, Calls, Item, Pace, PaceSettings
from batchpond.run.live.spool import Spool


def test_a_defect_is_no_fault_of_the_provider(tmp_path: Path) -> None:
    """What no rule foresees in a thread ends the calls as itself, for whoever waits to raise."""

    def items() -> Iterator[Item]:
        raise KeyError("custom_id")
        yield

    clock = SystemClock()
    pace = Pace(PaceSettings(concurrency=2), clock.monotonic_s())
    wire = registry.connect_live("ollama", clock, environ={})
    spool = Spool(tmp_path / "spool", clock)
    calls = Calls(wire, ("/v1/chat/completions", "m"), items(), spool, pace, CallRules(), clock)
    calls.start()
    assert calls.join(10.0)
    spool.close()
    wire.close()
    assert isinstance(calls.defect, KeyError)
    assert calls.error is None
