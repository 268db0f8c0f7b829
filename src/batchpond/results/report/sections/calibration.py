"""How sure judges say they are: are they right as often as that?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from batchpond.results.report.cells import JUDGED_BY
from batchpond.results.report.declared import Chapter, Declared, Drawn
from batchpond.results.report.numbers import left_out
from batchpond.results.report.parts import ChartKind, Exhibit, count, number, share
from batchpond.results.report.source import Source

_BINS = Declared(
    key="calibration",
    title="Accuracy at each level of stated confidence",
    caption=(
        "n = {n:total} verdicts with a confidence and a human label, in tenths of confidence. {no_bin} Wilson 95 % "
        "intervals; on the diagonal a judge is as often right as it says."
    ),
    view="metric_calibration_bins",
    cells=JUDGED_BY,
    order=", ".join((*JUDGED_BY, "bin")),
    columns=(
        count("bin", "tenth"),
        count("n", "verdicts", role="n"),
        share("confidence_mean", "confidence", role="x", axis="stated confidence"),
        share("accuracy", "right", has_ends=True, role="value", axis="accuracy"),
    ),
    also="n_correct",
    figure=Drawn(kind=ChartKind.CALIBRATION, rest="panel"),
)
_SCORES = Declared(
    key="calibration-scores",
    title="Calibration scores",
    caption="ECE is the expected calibration error over tenths, biased upwards where n is small.",
    view="metric_calibration",
    cells=JUDGED_BY,
    where="n > 0",
    columns=(
        count("n", "verdicts"),
        share("accuracy", "right", has_ends=True),
        share("confidence_mean", "confidence"),
        share("overconfidence", "overconfidence"),
        number("brier", "Brier score"),
        number("ece10", "ECE"),
        number("auroc", "AUROC"),
    ),
    also="n_no_confidence n_no_truth",
)
_NO_BIN = (("n_no_confidence", "verdicts without a confidence"), ("n_no_truth", "verdicts without a human label"))


def _bins(source: Source) -> Exhibit | None:
    scores = source.rows(_SCORES.sql(source)).frame

    def said(_: pl.DataFrame) -> Mapping[str, str]:
        return {"no_bin": left_out(scores, _NO_BIN)}

    return replace(_BINS, says=said)(source)


section = Chapter(
    key="calibration", title="Calibration", needs=lambda source: source.has_people, parts=(_bins, _SCORES)
)
