"""Comparisons on the same pairs, and what the tests that found nothing could have found."""

from __future__ import annotations

from typing import Final

import polars as pl

from batchpond.results.report.numbers import Kind
from batchpond.results.report.parts import Column, Exhibit, Section
from batchpond.results.report.sections.common import cut, exhibit, ranged, sentences
from batchpond.results.report.source import Rows, Source

_SIDES: Final = (
    "template_a, provider_a, request_model_a, thinking_a, template_b, provider_b, request_model_b, thinking_b"
)
_FINDINGS: Final = {
    "position_bias": "positional bias: first of flips",
    "paired_template": "two templates: difference in consistency",
    "paired_judge": "two judges: difference in consistency",
    "win_matrix": "two candidates: share of wins",
    "compliance": "two candidates: difference in compliance",
}


def paired(source: Source) -> Section | None:
    """Compare templates and judges on the pairs that both decided, and show the power of all tests."""
    parts = [part for part in (_paired(source), _power(source)) if part]
    return Section("paired", "Comparisons and power", (), parts) if parts else None


def _paired(source: Source) -> Exhibit | None:
    if not source.has_pairs:
        return None
    rows = source.of_study(
        f"rubric_id, compared, {_SIDES}, n, consistency_a, consistency_b, diff, diff_lo, diff_hi, n_a_only, n_b_only,\n"
        "  p_mcnemar, q_bh, diff_mde",
        "metric_paired",
        f"q_bh NULLS LAST, compared, rubric_id, {_SIDES}",
        where="n > 0",
    )
    if not len(rows):
        return None
    frame = _named(rows)
    caption = sentences(
        f"n = {ranged(frame, 'n')} pairs with a majority in both orders from either; the others are left out. "
        "Consistent: the same majority in both orders, ties included. p: McNemar's exact test; q: corrected over the "
        "study's comparisons (Benjamini and Hochberg). Detectable: the smallest difference that so many discordant "
        "pairs reveal with a power of 80 %. Ordered by q.",
        cut(rows),
    )
    columns = (
        *((Column("rubric_id", "rubric", Kind.TEXT),) if frame["rubric_id"].n_unique() > 1 else ()),
        Column("same", "of", Kind.TEXT),
        Column("a", "a", Kind.TEXT),
        Column("b", "b", Kind.TEXT),
        Column("n", "pairs"),
        Column("consistency_a", "a", Kind.SHARE),
        Column("consistency_b", "b", Kind.SHARE),
        Column("diff", "a minus b", Kind.SHARE, "diff_lo", "diff_hi"),
        Column("p_mcnemar", "p", Kind.P),
        Column("q_bh", "q", Kind.P),
        Column("diff_mde", "detectable", Kind.SHARE),
    )
    return exhibit(rows, "paired", "Consistency on the same pairs", caption, columns, frame=frame)


def _named(rows: Rows) -> pl.DataFrame:
    """Add what is the same and what differs: of one judge two templates, of one template two judges."""
    is_template = pl.col("compared") == "template"
    return rows.frame.with_columns(
        pl.when(is_template).then("request_model_a").otherwise("template_a").alias("same"),
        pl.when(is_template).then("template_a").otherwise("request_model_a").alias("a"),
        pl.when(is_template).then("template_b").otherwise("request_model_b").alias("b"),
    )


def _power(source: Source) -> Exhibit | None:
    rows = source.rows(
        "SELECT finding, count(*) AS n_tests, count(*) FILTER (WHERE is_null_finding) AS n_null,\n"
        "  count(*) FILTER (WHERE is_null_finding AND effect_mde IS NULL) AS n_blind,\n"
        "  min(effect_none) AS effect_none, min(effect_mde) FILTER (WHERE is_null_finding) AS mde_min,\n"
        "  max(effect_mde) FILTER (WHERE is_null_finding) AS mde_max\n"
        f"FROM metric_power\nWHERE study = {source.name} AND is_null_finding IS NOT NULL AND effect_none IS NOT NULL\n"
        "GROUP BY finding\nORDER BY finding"
    )
    if not len(rows):
        return None
    frame = rows.frame.with_columns(pl.col("finding").replace(_FINDINGS))
    caption = (
        "A test that found nothing says only that the effect is not larger than what it could have found, with a power "
        "of 80 % at 5 %. Blind: so few informative pairs that no effect would have shown."
    )
    columns = (
        Column("finding", "test of", Kind.TEXT),
        Column("n_tests", "tests"),
        Column("n_null", "found nothing"),
        Column("n_blind", "blind"),
        Column("effect_none", "no effect is", Kind.NUMBER),
        Column("mde_min", "detectable, best", Kind.NUMBER),
        Column("mde_max", "detectable, worst", Kind.NUMBER),
    )
    return exhibit(rows, "power", "Power of the tests that found nothing", caption, columns, frame=frame)
