"""How far judges agree: with each other, with the majority, and with people."""

from __future__ import annotations

import polars as pl

from batchpond.results.report.declared import Chapter, Declared, Drawn
from batchpond.results.report.parts import ChartKind, When, count, number, share, text

_PAIR = "provider_a request_model_a thinking_a provider_b request_model_b thinking_b"


def _named(frame: pl.DataFrame) -> pl.DataFrame:
    both = frame.with_columns(_name(frame, "a"), _name(frame, "b"))
    return both.with_columns(pl.format("{} and {}", "judge_a", "judge_b").alias("pair"))


def _name(frame: pl.DataFrame, side: str) -> pl.Expr:
    """Return a judge's name: the provider only for references, and the level of thinking only where one varies."""
    model, thinking = f"request_model_{side}", f"thinking_{side}"
    levels = frame.select(model, thinking).unique()
    is_reference = pl.col(f"provider_{side}").is_in(["panel", "human"])
    name = pl.when(is_reference).then(pl.format("{}/{}", f"provider_{side}", model)).otherwise(pl.col(model))
    if levels[model].n_unique() < len(levels):
        name = pl.when(is_reference).then(name).otherwise(pl.format("{} ({})", model, thinking))
    return name.alias(f"judge_{side}")


_OVERALL = Declared(
    key="agreement-overall",
    title="Agreement of all judges",
    caption=(
        "n = {n_units} units with at least two votes; a unit is an item, or a pair of items in one order. Alpha is "
        "Krippendorff's, with votes taken as names, ranks and numbers; Fleiss' kappa is over the units with a vote of "
        "every judge."
    ),
    view="metric_agreement_overall",
    cells=("task", "template_id", "judges"),
    where="n_judges > 1",
    columns=(
        count("n_judges", "judges"),
        count("n_units", "units"),
        share("agreement", "same vote", has_ends=True),
        number("alpha_nominal", "alpha", has_ends=True),
        number("alpha_ordinal", "alpha, ranks", when=When.KNOWN),
        number("alpha_interval", "alpha, numbers", when=When.KNOWN),
        number("fleiss_kappa", "Fleiss' kappa"),
        number("ac1", "AC1", has_ends=True),
    ),
    also="n_units_complete",
)
_EACH_TWO = Declared(
    key="agreement",
    title="Agreement of two judges beyond chance",
    caption=(
        "n = {n_units} units that both judged. Cohen's kappa with 95 % intervals clustered by pair of items; there is "
        "none where every vote is the same."
    ),
    view="metric_agreement",
    cells=("task", "template_id"),
    apart=("pair",),
    where="n_units > 0",
    order=", ".join(("task", "template_id", *_PAIR.split())),
    adds=_named,
    columns=(
        text("judge_a", "judge", is_made=True),
        text("judge_b", "with", is_made=True),
        count("n_units", "units"),
        share("agreement", "same vote", has_ends=True),
        number("kappa", "kappa", has_ends=True, role="value", axis="Cohen's kappa"),
        number("alpha_nominal", "alpha"),
        number("ac1", "AC1"),
    ),
    also=f"{_PAIR} n_equal",
    figure=Drawn(
        kind=ChartKind.INTERVALS, panel="template_id", rows=lambda frame: frame.filter(pl.col("kappa").is_not_null())
    ),
)
section = Chapter(
    key="agreement",
    title="Agreement",
    words=(
        "Agreement beyond chance is 0 where judges agree as often as their habits alone make them, and 1 where they "
        "always agree. panel/others is the majority of the other models, human/majority what people hold.",
    ),
    parts=(_OVERALL, _EACH_TWO),
)
