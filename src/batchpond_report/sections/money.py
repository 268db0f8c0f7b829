"""What it cost, and when the answers came."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from batchpond.text import plural
from batchpond_report.declared import Declared, Made, chapter
from batchpond_report.numbers import total
from batchpond_report.parts import Exhibit
from batchpond_report.source import Source


def _answers(frame: pl.DataFrame) -> dict[str, str]:
    names = [name for name in ("provider", "request_model") if name in frame.columns]
    return {"answers": plural(total(frame.group_by(names, maintain_order=True).last(), "n_answers"), "answer")}


def _over_time(timeline: Declared) -> Made:
    """Return the exhibit of the answers over time, where there is more than one time."""

    def made(source: Source) -> Exhibit | None:
        found = replace(timeline, says=_answers)(source)
        return found if found is not None and found.frame["ended_at"].n_unique() > 1 else None

    return made


section = chapter("money", timeline=_over_time)
