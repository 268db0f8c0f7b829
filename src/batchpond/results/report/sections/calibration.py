"""How sure judges say they are: are they right as often as that?"""

from __future__ import annotations

from dataclasses import replace

from batchpond.results.report.declared import Declared
from batchpond.results.report.numbers import left_out
from batchpond.results.report.parts import Exhibit
from batchpond.results.report.source import Source
from batchpond.results.report.written import Made, chapter, exhibits

_NO_BIN = (("n_no_confidence", "verdicts without a confidence"), ("n_no_truth", "verdicts without a human label"))


def _binned(bins: Declared) -> Made:
    """Return the exhibit of the bins, whose caption says what the scores' rows count as left out of them."""
    scores = exhibits("calibration")["calibration-scores"]

    def made(source: Source) -> Exhibit | None:
        rows = source.rows(scores.sql(source)).frame
        return replace(bins, says=lambda _: {"no_bin": left_out(rows, _NO_BIN)})(source)

    return made


section = chapter("calibration", calibration=_binned)
