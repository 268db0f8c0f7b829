"""Two weeks of `python -m tests.sweeps.soak`: a lake that is used every day grows no faster than what it holds."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tests.rigs import soak
from tests.rigs.swept import sweep

N_DAYS = 14


@sweep
def test_two_weeks_of_use_break_no_promise_and_outgrow_no_bound(tmp_path: Path) -> None:
    """Three providers, faults, four passes a day: every answer once, files and work as many as there are batches."""
    year = soak.play(tmp_path, N_DAYS, seed=2)
    assert year.problems == []
    assert (year.weeks[-1].n_batches, year.n_passes, len(year.weeks)) == (3 * N_DAYS, 4 * N_DAYS, 3)
    assert year.n_faults > 0


def test_what_outgrows_its_bound_is_said() -> None:
    """The judge of the weeks could fail: files that pile up, a pass that asks without need, one that grows slow."""
    fine = soak.Week(7, {"events": 60, "raw": 21}, 200, 200, 21, 0, 0.01)
    odd = dataclasses.replace(fine, n_days=14, n_files={"events": 200, "raw": 99}, idle_calls=3, idle_cpu_s=2.0)
    assert not soak.outgrown(soak.Year(14, [fine, fine]))
    said = "\n".join(soak.outgrown(soak.Year(14, [fine, odd])))
    for what in ("200 files of events", "99 files of answers", "3 calls of a pass", "took 0.01 CPU s"):
        assert f"{what}" in said
