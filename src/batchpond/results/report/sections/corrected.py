"""Rates of a judge, corrected by what people said of a part of the same outputs."""

from __future__ import annotations

from typing import Final

from batchpond.results.report.cells import JUDGE, cells
from batchpond.results.report.figure import ChartKind
from batchpond.results.report.numbers import Kind
from batchpond.results.report.parts import Column, Exhibit
from batchpond.results.report.sections.common import cut, drawn, exhibit, ranged, sentences
from batchpond.results.report.source import Source

_DIMENSIONS: Final = ("template_id", "provider", "request_model", "thinking")
_JUDGE: Final = ", ".join(_DIMENSIONS)
_PPI: Final = (
    "PPI++ corrects by the labelled part and is to be preferred where that part was drawn at random. 95 % intervals, "
    "none with fewer than five labels."
)


def compliance(source: Source) -> Exhibit | None:
    """Show how often candidates comply once a judge's errors are corrected; None without people's labels."""
    rows = source.of_study(
        f"{_JUDGE}, candidate, n_judged, n_labelled, n_label_true, compliance, compliance_lo, compliance_hi,\n"
        "  people_compliance, people_compliance_lo, people_compliance_hi, sensitivity, specificity, ppi_weight,\n"
        "  ppi_compliance, ppi_compliance_lo, ppi_compliance_hi,\n"
        "  rogan_gladen_compliance, rogan_gladen_compliance_lo, rogan_gladen_compliance_hi",
        "metric_compliance_corrected", f"candidate, {_JUDGE}", where="n_labelled > 0",
    )  # fmt: skip
    if not len(rows):
        return None
    found = cells(rows.frame, ("candidate", *_DIMENSIONS))
    frame, encoding = found.labelled(group=JUDGE, panel="template_id")
    title = "Compliance corrected by people's labels"
    caption = sentences(
        f"n = {ranged(rows.frame, 'n_judged')} outputs per candidate and judge, {ranged(rows.frame, 'n_labelled')} of "
        "them labelled by people.",
        _PPI,
        "Rogan-Gladen corrects the judge's rate by its sensitivity and specificity, for labels collected elsewhere; "
        "these are in the data.",
        found.said(),
        cut(rows),
    )
    encoding |= {"value": "ppi_compliance", "low": "ppi_compliance_lo", "high": "ppi_compliance_hi"}
    figure = drawn(
        rows, ChartKind.INTERVALS, "compliance-corrected-figure", (title, caption), frame, encoding,
        titles={"value": "compliance by PPI++", "group": JUDGE, "label": ""}, is_share=True,
    )  # fmt: skip
    columns = (
        *found.columns,
        Column("n_judged", "judged"),
        Column("n_labelled", "labelled"),
        Column("compliance", "by the judge", Kind.SHARE),
        Column("people_compliance", "by people", Kind.SHARE),
        Column("ppi_compliance", "PPI++", Kind.SHARE, "ppi_compliance_lo", "ppi_compliance_hi"),
        Column("rogan_gladen_compliance", "Rogan-Gladen", Kind.SHARE, "rogan_gladen_compliance_lo",
               "rogan_gladen_compliance_hi"),
    )  # fmt: skip
    return exhibit(rows, "compliance-corrected", title, caption, columns, frame=found.frame, figure=figure)


def win_rates(source: Source) -> Exhibit | None:
    """Show how often people prefer one candidate, by a judge's corrected verdicts; None without labels."""
    rows = source.of_study(
        f"{_JUDGE}, candidate_a, candidate_b, n_both, n_labelled, win_rate_half, people_win_rate,\n"
        "  ppi_weight, ppi_win_rate, ppi_win_rate_lo, ppi_win_rate_hi",
        "metric_win_matrix_corrected", f"{_JUDGE}, candidate_a, candidate_b", where="n_labelled > 0",
    )  # fmt: skip
    if not len(rows):
        return None
    found = cells(rows.frame, _DIMENSIONS)
    judges = found.columns if len(found.frame.select(found.varying).unique()) > 1 else ()
    caption = sentences(
        f"n = {ranged(rows.frame, 'n_both')} comparisons per pair of candidates and judge, "
        f"{ranged(rows.frame, 'n_labelled')} of them labelled by people.",
        _PPI,
        found.said(),
        cut(rows),
    )
    columns = (
        *judges,
        Column("candidate_a", "a", Kind.TEXT),
        Column("candidate_b", "b", Kind.TEXT),
        Column("n_both", "compared"),
        Column("n_labelled", "labelled"),
        Column("win_rate_half", "a wins, by the judge", Kind.SHARE),
        Column("people_win_rate", "by people", Kind.SHARE),
        Column("ppi_win_rate", "PPI++", Kind.SHARE, "ppi_win_rate_lo", "ppi_win_rate_hi"),
    )
    title = "Win rates corrected by people's labels"
    return exhibit(rows, "matrix-corrected", title, caption, columns, frame=found.frame)
