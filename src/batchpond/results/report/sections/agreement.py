"""How far judges agree: with each other, with the majority, and with people."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from batchpond.results.report.written import chapter


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


section = chapter("agreement", agreement=lambda each_two: replace(each_two, adds=_named))
