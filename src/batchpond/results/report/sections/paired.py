"""Comparisons on the same pairs, and what the tests that found nothing could have found."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import polars as pl

from batchpond.results.report.written import chapter

_FINDINGS: Final = {
    "paired_template": "two templates: difference in consistency",
    "paired_judge": "two judges: difference in consistency",
    "compliance": "two candidates: difference in compliance",
}


def _named(frame: pl.DataFrame) -> pl.DataFrame:
    """Add what is the same and what differs: of one judge two templates, of one template two judges."""
    is_template = pl.col("compared") == "template"
    return frame.with_columns(
        pl.when(is_template).then("request_model_a").otherwise("template_a").alias("same"),
        pl.when(is_template).then("template_a").otherwise("request_model_a").alias("a"),
        pl.when(is_template).then("template_b").otherwise("request_model_b").alias("b"),
    )


section = chapter(
    "paired",
    paired=lambda paired: replace(paired, adds=_named),
    power=lambda power: replace(power, adds=lambda frame: frame.with_columns(pl.col("finding").replace(_FINDINGS))),
)
