"""The way of a request through the simulators is short: how many modules it enters, and how often."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import batchpond_sim
from tests.rigs.simulator import api

HOUSE = str(Path(batchpond_sim.__file__).parent)
MODULES_MAX = 7
ENTRIES_MAX = 19


def test_a_refused_get_enters_few_modules(tmp_path: Path) -> None:
    """Transport, control, API, world with its faults, the provider's words, the reply: few detours."""
    entered: list[str] = []

    def profile(frame: FrameType, event: str, _argument: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(HOUSE) and (not entered or entered[-1] != name):
            entered.append(name)

    with api(tmp_path, "batches.list@*:status=503") as sim:
        sys.setprofile(profile)
        try:
            answer = sim.call("GET", "/batches")
        finally:
            sys.setprofile(None)
    assert answer.status_code == 503
    names = [Path(name).relative_to(HOUSE).with_suffix("").as_posix() for name in entered]
    assert len(set(names)) <= MODULES_MAX, sorted(set(names))
    assert len(names) <= ENTRIES_MAX, names
