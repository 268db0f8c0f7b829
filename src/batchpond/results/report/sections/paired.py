"""Comparisons on the same pairs, and what the tests that found nothing could have found."""

from __future__ import annotations

from typing import Final

import polars as pl

from batchpond.results.report.declared import Chapter, Declared
from batchpond.results.report.parts import Exhibit, When, count, number, p_value, share, text
from batchpond.results.report.source import Source

_SIDES: Final = "template_a provider_a request_model_a thinking_a template_b provider_b request_model_b thinking_b"
_FINDINGS: Final = {
    "paired_template": "two templates: difference in consistency",
    "paired_judge": "two judges: difference in consistency",
    "compliance": "two candidates: difference in compliance",
}
_IS_NULL = "FILTER (WHERE is_null_finding)"


def _named(frame: pl.DataFrame) -> pl.DataFrame:
    """Add what is the same and what differs: of one judge two templates, of one template two judges."""
    is_template = pl.col("compared") == "template"
    return frame.with_columns(
        pl.when(is_template).then("request_model_a").otherwise("template_a").alias("same"),
        pl.when(is_template).then("template_a").otherwise("request_model_a").alias("a"),
        pl.when(is_template).then("template_b").otherwise("request_model_b").alias("b"),
    )


_PAIRED = Declared(
    key="paired",
    title="Consistency on the same pairs",
    caption=(
        "n = {n} pairs with a majority in both orders from either; the others are left out. Consistent: the same "
        "majority in both orders, ties included. p: McNemar's exact test; q: corrected over the study's comparisons "
        "(Benjamini and Hochberg). Detectable: the smallest difference that so many discordant pairs reveal with a "
        "power of 80 %. Ordered by q."
    ),
    view="metric_paired",
    where="n > 0",
    order=", ".join(("q_bh NULLS LAST", "compared", "rubric_id", *_SIDES.split())),
    adds=_named,
    columns=(
        text("rubric_id", "rubric", when=When.VARYING),
        text("same", "of", is_made=True),
        text("a", "a", is_made=True),
        text("b", "b", is_made=True),
        count("n", "pairs"),
        share("consistency_a", "a"),
        share("consistency_b", "b"),
        share("diff", "a minus b", has_ends=True),
        p_value("p_mcnemar", "p"),
        p_value("q_bh", "q"),
        share("diff_mde", "detectable"),
    ),
    also=f"compared {_SIDES} n_a_only n_b_only",
)
_POWER = Declared(
    key="power",
    title="Power of the tests that found nothing",
    caption=(
        "A test that found nothing says only that the effect is not larger than what it could have found, with a power "
        "of 80 % at 5 %. Blind: so few informative pairs that no effect would have shown."
    ),
    view="metric_power",
    order="finding",
    is_grouped=True,
    adds=lambda frame: frame.with_columns(pl.col("finding").replace(_FINDINGS)),
    columns=(
        text("finding", "test of"),
        count("n_tests", "tests", sql="count(*)"),
        count("n_null", "found nothing", sql=f"count(*) {_IS_NULL}"),
        count("n_blind", "blind", sql="count(*) FILTER (WHERE is_null_finding AND effect_mde IS NULL)"),
        number("mde_min", "detectable, best", sql=f"min(effect_mde) {_IS_NULL}"),
        number("mde_max", "detectable, worst", sql=f"max(effect_mde) {_IS_NULL}"),
    ),
)


def _pairs(source: Source) -> Exhibit | None:
    return _PAIRED(source) if source.has_pairs else None


section = Chapter(key="paired", title="Comparisons and power", parts=(_pairs, _POWER))
