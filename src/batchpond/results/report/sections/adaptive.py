"""Rounds that chose their pairs by earlier answers: what was asked, and why."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from batchpond.results.report.numbers import total
from batchpond.results.report.written import chapter


def _rounds(frame: pl.DataFrame) -> dict[str, str]:
    n_held_out = total(frame.filter(pl.col("purpose") == "holdout"), "n_planned")
    return {"rounds": f"{frame['round_no'].n_unique():,}", "held_out": f"{n_held_out:,}"}


section = chapter("adaptive", rounds=lambda rounds: replace(rounds, says=_rounds))
