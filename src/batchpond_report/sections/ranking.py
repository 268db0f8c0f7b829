"""What is better than what: rankings with intervals and tied groups."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import polars as pl

from batchpond.errors import UsageError
from batchpond.model import CELL_COLUMNS
from batchpond.results.rank import verb as rank
from batchpond.text import plural
from batchpond_report.declared import Declared, Drawn, chapter, exhibits
from batchpond_report.numbers import left_out, total
from batchpond_report.parts import ChartKind, Finding, Section
from batchpond_report.source import Rows, Source, harmless

RUBRICS_MAX: Final = 6
FIGURE_ITEMS_MAX: Final = 60
FULL_ITEMS_MAX: Final = 200
_WRITTEN: Final = chapter("ranking")
_MOVED: Final = " Pairs were not judged equally often in both orders: a favoured place would be part of this."


def section(source: Source) -> Section | None:
    """Rank items, or the models that wrote them: per rubric where there are few, over all otherwise."""
    if not source.has_pairs:
        return None
    sql = f"SELECT count(DISTINCT rubric_id) AS n FROM pair_judgments WHERE study = {source.name}"
    (rubrics,) = source.values(sql, limit=1)
    by = ("rubric_id",) if 1 < rubrics["n"] <= RUBRICS_MAX else ()
    options = rank.options(ties="half", position=None, extras=(), seed=0, is_full=source.is_small(FULL_ITEMS_MAX))
    try:
        request = rank.Request(study=source.study, by=by, options=options)
        ranked, rankings, said = rank.ranked(source.reading("pair_judgments"), request)
    except UsageError as error:  # nothing to rank, or more items than a ranking can hold
        return Section(_WRITTEN.key, _WRITTEN.title, (f"No ranking is shown: {error.message}.",), ())
    command = f"batchpond rank {shlex.quote(source.study)} --by {by[0] if by else 'study'}"
    items, quality = _frame(ranked), _frame(rankings)  # whole: the table is cut, what is said of it is not
    tables = ((_items(items, by), items, ""), (exhibits("ranking")["rankings"], quality, " --summary"))
    made = (table.of(Rows.of(frame, f"{command}{how} --format csv")) for table, frame, how in tables)
    notes = (f"{note[0].upper()}{note[1:]}." for note in said)
    parts = [part for part in made if part is not None]
    return Section(_WRITTEN.key, _WRITTEN.title, (*_WRITTEN.words, *notes), parts, list(_winners(items, quality, by)))


def _winners(frame: pl.DataFrame, quality: pl.DataFrame, by: tuple[str, ...]) -> Iterator[Finding]:
    """Yield who won, and how surely: the first of each ranking with the places that fit the data."""
    key = by[0] if by else "study"
    unbalanced = quality.filter(~pl.col("has_position") & (pl.col("n_pairs_unbalanced") > 0))[key]
    ranked = frame.drop_nulls("rank").sort("rank", maintain_order=True)
    for rows in ranked.partition_by(*(by or ["item_kind"]), maintain_order=True):
        best = rows.row(0, named=True)
        lo, hi = best["rank_lo_joint"], best["rank_hi_joint"]  # of all at once, as it was the data that chose the item
        where = f" in {best[by[0]]}" if by else ""
        places = f"places {lo} to {hi} fit" if hi > lo else f"place {lo} alone fits"
        tied = f"it is not told apart from {plural(hi - lo, 'other')}" if hi > lo else "all others are told apart"
        moved = _MOVED if best[key] in unbalanced else ""
        if len(rows) > 1:
            yield Finding(
                f"{best['item']} is first of {len(rows):,} {best['item_kind']}s{where}: {places} the data, "
                f"and {tied} when all are compared at once.{moved}", "ranking", best,
            )  # fmt: skip


def _frame(ranked: rank.Rows) -> pl.DataFrame:
    frame = pl.DataFrame(ranked[0], pl.Schema(ranked[1]))
    unused = [name for name in CELL_COLUMNS if name in frame.columns and frame[name].null_count() == len(frame)]
    return harmless(frame.drop(unused))


def _items(frame: pl.DataFrame, by: tuple[str, ...]) -> Declared:
    kind = str(frame["item_kind"][0]) if len(frame) else "item"
    rubrics = f" in {plural(frame[by[0]].n_unique(), 'rubric')}" if by else ""
    written = exhibits("ranking")["ranking"]
    n_verdicts = total(frame, "n_comparisons") // 2
    hub = frame.filter(pl.col("n_comparisons") == n_verdicts)["item"].to_list() if not by and len(frame) > 2 else []
    through = f" (each with {hub[0]} on one side, through which alone the others are compared)" if hub else ""
    return replace(
        written,
        title=written.title.format(kind=kind),
        columns=[replace(column, title=column.title.format(kind=kind)) for column in written.columns],
        adds=_worded,
        says=lambda _: {
            "verdicts": plural(n_verdicts, "verdict"),
            "items": f"{plural(frame['item'].n_unique(), kind)}{rubrics}{through}",
            "kinds": f"{kind.capitalize()}s",
            "left_out": left_out(frame, written.left_out, seen=written.seen),
        },
        figure=Drawn(kind=ChartKind.RANKING, rows=lambda rows: _first(rows, by)),
    )  # fmt: skip


def _worded(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(
        pl.col("flags").list.join(", ").str.replace_all("_", " ").alias("remarks"),
        pl.format("{} to {}", "rank_lo", "rank_hi").alias("ranks"),
        pl.format("{} to {}", "rank_lo_joint", "rank_hi_joint").alias("ranks_joint"),
    )


def _first(frame: pl.DataFrame, by: tuple[str, ...]) -> pl.DataFrame:
    known = frame.filter(pl.col("theta").is_not_null())
    best = known.group_by(by[0], maintain_order=True).head(FIGURE_ITEMS_MAX // 2) if by else known
    return best.head(FIGURE_ITEMS_MAX)
