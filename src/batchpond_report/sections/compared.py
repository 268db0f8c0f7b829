"""Two sides over the same items, as `compare` pairs them: a section of a study's report, or a page of its own."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final

import polars as pl

from batchpond.results.compare.verb import Compared, named
from batchpond_report.declared import chapter, exhibits
from batchpond_report.numbers import Kind, interval, shown
from batchpond_report.parts import Finding, Section
from batchpond_report.source import Rows, harmless

FINDINGS_MAX: Final = 5
_WRITTEN: Final = chapter("compared")
_COST: Final = "USD per 1,000 calls"
_AMOUNTS: Final = ("score", "points", _COST)
_OF_COSTS: Final = ("value_a", "value_b", "diff", "diff_lo", "diff_hi", "diff_mde")


def section(found: Compared, *sides: str) -> Section:
    """Return what was compared, the differences with their figure, and what was said differently."""
    told = pl.DataFrame(found.comparisons).with_columns(pl.col("what").fill_null(""))
    names = told.select("comparison_no", "what")
    differences = _readable(pl.DataFrame(found.differences)).join(names, on="comparison_no", maintain_order="left")
    is_share = ~pl.col("metric").is_in(_AMOUNTS)
    frames = {
        "comparisons": told,
        "differences": differences.filter(is_share),
        "amounts": differences.filter(~is_share),
        "flips": pl.DataFrame(found.flips).join(names, on="comparison_no", maintain_order="left"),
    }
    command = f"batchpond compare {shlex.join(sides)}"
    made = [exhibit.of(Rows.of(frames[key], f"{command} --json")) for key, exhibit in exhibits("compared").items()]
    said = ", ".join(f"{name} is {side}" for name, side in named(*sides).items())
    each = ("Each is compared with a: b stands for the side that is named.",) if len(sides) > 2 else ()
    words = (f"{said}.", *each, *_WRITTEN.words, *(f"{note}." for note in found.notes))
    return Section(_WRITTEN.key, _WRITTEN.title, words, [part for part in made if part], list(_findings(differences)))


def _readable(frame: pl.DataFrame) -> pl.DataFrame:
    """Return differences with those of costs for 1,000 calls, as a call's is too small to read."""
    is_cost = pl.col("metric") == "cost_per_call_usd"
    scaled = (pl.when(is_cost).then(pl.col(name) * 1000).otherwise(pl.col(name)).alias(name) for name in _OF_COSTS)
    named = pl.when(is_cost).then(pl.lit(_COST)).otherwise(pl.col("metric")).alias("metric")
    return harmless(frame.with_columns(*scaled, named))


def _findings(differences: pl.DataFrame) -> Iterator[Finding]:
    """Yield the differences that hold after correction, the main metric first; a sentence where none does."""
    found = differences.filter(pl.col("q_bh") < 0.05).sort(~pl.col("is_main"), "q_bh").head(FINDINGS_MAX)
    for row in found.iter_rows(named=True):
        kind = Kind.NUMBER if row["metric"] in _AMOUNTS else Kind.SHARE
        a, b, by = (shown(row[name], kind) for name in ("value_a", "value_b", "diff"))
        ends, q = interval(row["diff_lo"], row["diff_hi"], kind), shown(row["q_bh"], Kind.P)
        where = f" ({row['what']})" if differences["what"].n_unique() > 1 else ""
        key = "amounts" if kind is Kind.NUMBER else "differences"
        yield Finding(f"{row['metric']}{where} is {a} in a and {b} in {row['side']}: {by} {ends}, q = {q}.", key)
    tested = differences["p_diff"].drop_nulls().len()
    if tested and not len(found):
        yield Finding(f"None of {tested:,} differences from a holds after correction.", "differences")
