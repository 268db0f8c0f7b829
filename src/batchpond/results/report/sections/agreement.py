"""How far judges agree: with each other, with the majority, and with people."""

from __future__ import annotations

from typing import Final

import polars as pl

from batchpond.results.report.cells import cells
from batchpond.results.report.figure import ChartKind
from batchpond.results.report.numbers import Kind
from batchpond.results.report.parts import Column, Exhibit, Section
from batchpond.results.report.sections.common import cut, drawn, exhibit, ranged, sentences
from batchpond.results.report.source import Source

_PAIR: Final = "provider_a, request_model_a, thinking_a, provider_b, request_model_b, thinking_b"
_WORDS: Final = (
    "Agreement beyond chance is 0 where judges agree as often as their habits alone make them, and 1 where they always "
    "agree. panel/others is the majority of the other models, human/majority what people hold."
)


def agreement(source: Source) -> Section | None:
    """Show agreement of all judges together and of each two of them."""
    parts = [part for part in (_overall(source), _each_two(source)) if part]
    return Section("agreement", "Agreement", (_WORDS,), parts) if parts else None


def _overall(source: Source) -> Exhibit | None:
    rows = source.of_study(
        "task, template_id, judges, n_judges, n_units, n_units_complete, agreement, agreement_lo, agreement_hi,\n"
        "  fleiss_kappa, ac1, ac1_lo, ac1_hi, alpha_nominal, alpha_nominal_lo, alpha_nominal_hi,\n"
        "  alpha_ordinal, alpha_interval",
        "metric_agreement_overall",
        "task, template_id, judges",
        where="n_judges > 1",
    )
    if not len(rows):
        return None
    found = cells(rows.frame, ("task", "template_id", "judges"))
    caption = sentences(
        f"n = {ranged(rows.frame, 'n_units')} units with at least two votes; a unit is an item, or a pair of items "
        "in one order. Alpha is Krippendorff's, with votes taken as names, ranks and numbers; Fleiss' kappa is over "
        "the units with a vote of every judge.",
        found.said(),
        cut(rows),
    )
    columns = (
        *found.columns,
        Column("n_judges", "judges"),
        Column("n_units", "units"),
        Column("agreement", "same vote", Kind.SHARE, "agreement_lo", "agreement_hi"),
        Column("alpha_nominal", "alpha", Kind.NUMBER, "alpha_nominal_lo", "alpha_nominal_hi"),
        *_known(rows.frame, ("alpha_ordinal", "alpha, ranks"), ("alpha_interval", "alpha, numbers")),
        Column("fleiss_kappa", "Fleiss' kappa", Kind.NUMBER),
        Column("ac1", "AC1", Kind.NUMBER, "ac1_lo", "ac1_hi"),
    )
    return exhibit(rows, "agreement-overall", "Agreement of all judges", caption, columns, frame=found.frame)


def _known(frame: pl.DataFrame, *names: tuple[str, str]) -> list[Column]:
    return [Column(name, title, Kind.NUMBER) for name, title in names if frame[name].null_count() < len(frame)]


def _each_two(source: Source) -> Exhibit | None:
    rows = source.of_study(
        f"task, template_id, {_PAIR}, n_units, n_equal, agreement, agreement_lo, agreement_hi,\n"
        "  kappa, kappa_lo, kappa_hi, alpha_nominal, ac1",
        "metric_agreement",
        f"task, template_id, {_PAIR}",
        where="n_units > 0",
    )
    if not len(rows):
        return None
    frame = rows.frame.with_columns(_name(rows.frame, "a"), _name(rows.frame, "b"))
    frame = frame.with_columns(pl.format("{} and {}", "judge_a", "judge_b").alias("pair"))
    found = cells(frame, ("task", "template_id", "pair"))
    labelled, encoding = found.labelled(panel="template_id")
    title = "Agreement of two judges beyond chance"
    caption = sentences(
        f"n = {ranged(frame, 'n_units')} units that both judged. Cohen's kappa with 95 % intervals clustered by pair "
        "of items; there is none where every vote is the same.",
        found.said(),
        cut(rows),
    )
    encoding |= {"value": "kappa", "low": "kappa_lo", "high": "kappa_hi"}
    figure = drawn(
        rows, ChartKind.INTERVALS, "agreement-figure", (title, caption),
        labelled.filter(pl.col("kappa").is_not_null()), encoding, titles={"value": "Cohen's kappa", "label": ""},
    )  # fmt: skip
    others = [column for column in found.columns if column.name != "pair"]
    columns = (
        *others,
        Column("judge_a", "judge", Kind.TEXT),
        Column("judge_b", "with", Kind.TEXT),
        Column("n_units", "units"),
        Column("agreement", "same vote", Kind.SHARE, "agreement_lo", "agreement_hi"),
        Column("kappa", "kappa", Kind.NUMBER, "kappa_lo", "kappa_hi"),
        Column("alpha_nominal", "alpha", Kind.NUMBER),
        Column("ac1", "AC1", Kind.NUMBER),
    )
    is_drawn = frame["kappa"].null_count() < len(frame)
    return exhibit(rows, "agreement", title, caption, columns, frame=found.frame, figure=figure if is_drawn else None)


def _name(frame: pl.DataFrame, side: str) -> pl.Expr:
    """Return a judge's name: the provider only for references, and the level of thinking only where one varies."""
    model, thinking = f"request_model_{side}", f"thinking_{side}"
    levels = frame.select(model, thinking).unique()
    is_reference = pl.col(f"provider_{side}").is_in(["panel", "human"])
    name = pl.when(is_reference).then(pl.format("{}/{}", f"provider_{side}", model)).otherwise(pl.col(model))
    if levels[model].n_unique() < len(levels):
        name = pl.when(is_reference).then(name).otherwise(pl.format("{} ({})", model, thinking))
    return name.alias(f"judge_{side}")
