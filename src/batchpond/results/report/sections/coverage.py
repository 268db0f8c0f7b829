"""What was asked, and what came back."""

from __future__ import annotations

import polars as pl

from batchpond.results.report.cells import LABEL, ORDER, cells
from batchpond.results.report.figure import ChartKind, Figure
from batchpond.results.report.numbers import Kind
from batchpond.results.report.parts import Column, Section
from batchpond.results.report.sections.common import counted, cut, drawn, exhibit, left_out, sentences, total
from batchpond.results.report.source import Rows, Source

_SELECT = (
    "template_id, rubric_id, provider, request_model, thinking, n_expected, n_answered, n_valid, n_no_verdict,\n"
    "  n_failed, n_missing, n_pending, n_extra, valid_rate, valid_rate_lo, valid_rate_hi, origin"
)
_COLUMNS = (
    Column("n_expected", "expected"),
    Column("n_answered", "answered"),
    Column("n_valid", "valid"),
    Column("n_no_verdict", "no verdict"),
    Column("n_failed", "failed"),
    Column("n_missing", "missing"),
    Column("n_pending", "pending"),
    Column("n_extra", "extra"),
    Column("valid_rate", "valid of answered", Kind.SHARE, "valid_rate_lo", "valid_rate_hi"),
)
_PARTS = (("n_valid", "valid"), ("n_no_verdict", "no verdict"), ("n_failed", "failed"), ("n_pending", "pending"))
TITLE = "Expected and obtained judgments per cell"


def coverage(source: Source) -> Section | None:
    """Say per cell what was expected, answered, valid, missing and extra."""
    rows = source.of_study(_SELECT, "report_coverage", ORDER)
    if not len(rows):
        return None
    found = cells(rows.frame)
    n_expected, n_answered, n_valid = (total(rows.frame, name) for name in ("n_expected", "n_answered", "n_valid"))
    caption = sentences(
        f"n = {n_expected:,} judgments expected in {counted(len(rows), 'cell')}, {n_answered:,} answered, "
        f"{n_valid:,} valid (decided, or a tie).",
        left_out(rows.frame, (("n_no_verdict", "answers without a verdict"), ("n_failed", "failed for good"),
                              ("n_pending", "still pending"))),
        "Failed: error, expired, cancelled, or missing from a settled batch. Extra: further answers to the same "
        "request, never counted. Wilson intervals.",
        found.said(),
        cut(rows),
    )  # fmt: skip
    part = exhibit(
        rows, "coverage", TITLE, caption, (*found.columns, *_COLUMNS), frame=found.frame,
        figure=_figure(rows, found.labelled()[0], caption),
    )  # fmt: skip
    return Section("coverage", "Coverage", (), (part,))


def _figure(rows: Rows, frame: pl.DataFrame, caption: str) -> Figure | None:
    present = [(name, word) for name, word in _PARTS if total(frame, name)]
    if len(present) < 2:
        return None
    per_part = max(1, 200 // len(present))
    bars = frame.head(per_part).select(
        LABEL,
        pl.concat_list([pl.struct(pl.lit(word).alias("part"), pl.col(name).alias("n")) for name, word in present])
        .alias("parts"),
    ).explode("parts").unnest("parts")  # fmt: skip
    encoding = {"label": LABEL, "value": "n", "group": "part"}
    return drawn(
        rows, ChartKind.BARS, "coverage-figure", (TITLE, caption), bars, encoding, titles={"value": "judgments"}
    )
