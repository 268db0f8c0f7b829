"""What is better than what: rankings with intervals and tied groups, and who beats whom."""

from __future__ import annotations

import shlex
from typing import Final

import polars as pl

from batchpond.errors import UsageError
from batchpond.model import CELL_COLUMNS
from batchpond.results.rank import verb as rank
from batchpond.results.report.cells import cells
from batchpond.results.report.figure import ChartKind
from batchpond.results.report.numbers import Kind
from batchpond.results.report.parts import Column, Exhibit, Section
from batchpond.results.report.sections import corrected
from batchpond.results.report.sections.common import drawn, exhibit, left_out, ranged, sentences, total
from batchpond.results.report.source import ROWS_MAX, Rows, Source, harmless
from batchpond.stats.ranking import Options

RUBRICS_MAX: Final = 6
FIGURE_ITEMS_MAX: Final = 60
MATRIX_ITEMS_MAX: Final = 25
MATRIX_CELLS_MAX: Final = 1_600
FULL_ITEMS_MAX: Final = 200


def ranking(source: Source) -> Section | None:
    """Rank items, or the models that wrote them: per rubric where there are few, over all otherwise."""
    if not source.has_pairs:
        return None
    by = _by(source)
    try:
        found = rank.rank(source.lake_path, rank.Request(study=source.study, by=by, options=_options(source)))
    except UsageError as error:  # nothing to rank, or more items than a ranking can hold
        return Section("ranking", "Ranking", (f"No ranking is shown: {error.message}.",), ())
    command = f"batchpond rank {shlex.quote(source.study)} --by {by[0] if by else 'study'}"
    parts = (
        _items(_rows(pl.DataFrame(found.items), f"{command} --format csv"), by),
        _summary(_rows(pl.DataFrame(found.rankings), f"{command} --summary --format csv")),
    )
    return Section("ranking", "Ranking", (_WORDS, *(f"{note[0].upper()}{note[1:]}." for note in found.notes)), parts)


_WORDS = (
    "Bradley-Terry log-strengths by Firth-penalised likelihood over the judgments of all templates and judges, 0 being "
    "the mean, ties half a win for each; intervals allow for judgments of one pair that resemble each other."
)


def _by(source: Source) -> tuple[str, ...]:
    (counted,) = source.values(
        f"SELECT count(DISTINCT rubric_id) AS n FROM pair_judgments WHERE study = {source.name}", limit=1
    )
    return ("rubric_id",) if 1 < counted["n"] <= RUBRICS_MAX else ()


def _options(source: Source) -> Options:
    facts = source.values(f"SELECT n_items FROM report_facts WHERE study = {source.name}", limit=1)
    is_small = bool(facts) and facts[0]["n_items"] <= FULL_ITEMS_MAX
    return rank.options(ties="half", position=False, extras=(), seed=0, is_full=is_small)


def _rows(frame: pl.DataFrame, command: str) -> Rows:
    unused = [name for name in CELL_COLUMNS if name in frame.columns and frame[name].null_count() == len(frame)]
    shown = harmless(frame.drop(unused).head(ROWS_MAX))
    return Rows("", shown, is_cut=len(frame) > ROWS_MAX, command=command)


def _items(rows: Rows, by: tuple[str, ...]) -> Exhibit:
    frame = rows.frame.with_columns(
        pl.col("flags").list.join(", ").str.replace_all("_", " ").alias("remarks"),
        pl.format("{} to {}", "rank_lo", "rank_hi").alias("ranks"),
        pl.col("tied_group").cast(pl.String).alias("tied"),
    )
    kind = str(frame["item_kind"][0]) if len(frame) else "item"
    title = f"Ranking of {kind}s"
    caption = sentences(
        f"n = {total(frame, 'n_comparisons') // 2:,} verdicts on {len(frame):,} {kind}s"
        + (f" in {frame[by[0]].n_unique():,} rubrics." if by else "."),
        left_out(frame, (("n_without_verdict", "answers without a verdict"), ("n_pending", "judgments still pending")),
                 seen=2),
        "Bars are 95 % intervals, open where no judgment bounds them. Ranks: the places that fit the data. "
        f"{kind.capitalize()}s of one tied group do not differ from its best.",
    )  # fmt: skip
    figure_frame = frame.filter(pl.col("theta").is_not_null())
    if by:
        figure_frame = figure_frame.group_by(by[0], maintain_order=True).head(FIGURE_ITEMS_MAX // 2)
    encoding = {"label": "item", "value": "theta", "low": "theta_lo", "high": "theta_hi", "group": "tied"}
    figure = drawn(
        rows, ChartKind.RANKING, "ranking-figure", (title, caption), figure_frame.head(FIGURE_ITEMS_MAX),
        encoding | ({"panel": by[0]} if by else {}),
        titles={"value": "log-strength", "label": "", "group": "tied group"},
    )  # fmt: skip
    columns = (
        *((Column(by[0], "rubric", Kind.TEXT),) if by else ()),
        Column("item", kind, Kind.TEXT),
        Column("rank", "rank"),
        Column("ranks", "ranks", Kind.RANGE),
        Column("tied_group", "tied group"),
        Column("theta", "log-strength", Kind.NUMBER, "theta_lo", "theta_hi"),
        Column("n_comparisons", "verdicts"),
        Column("win_rate", "won", Kind.SHARE),
        Column("remarks", "remarks", Kind.TEXT),
    )
    return exhibit(rows, "ranking", title, caption, columns, frame=frame, figure=figure if len(figure_frame) else None)


def _summary(rows: Rows) -> Exhibit:
    found = cells(rows.frame, CELL_COLUMNS) if set(CELL_COLUMNS) & set(rows.frame.columns) else None
    caption = (
        "Parts are groups of items that judgments connect. Position: what being shown first adds to the log-odds, with "
        "the p of its likelihood ratio test. Reliability is the separation reliability of the log-strengths. Circles: "
        "triples in which each beats the next, with the number expected by chance."
    )
    columns = (
        *((found.columns) if found else ()),
        Column("component_id", "part"),
        Column("n_items", "items"),
        Column("n_comparisons", "verdicts"),
        Column("n_ties", "ties"),
        Column("reliability", "reliability", Kind.NUMBER),
        *_held_out(rows.frame),
        Column("eta", "position", Kind.NUMBER),
        Column("eta_lr_p", "p (position)", Kind.P),
        Column("n_cyclic", "circles"),
        Column("n_cyclic_expected", "by chance", Kind.NUMBER),
    )
    return exhibit(rows, "rankings", "Quality of the ranking", caption, columns, frame=found.frame if found else None)


def _held_out(frame: pl.DataFrame) -> tuple[Column, ...]:
    if "held_out_accuracy" not in frame.columns or frame["held_out_accuracy"].null_count() == len(frame):
        return ()
    return (Column("held_out_accuracy", "held out, foretold", Kind.SHARE), Column("n_held_out", "held out"))


def matrix(source: Source) -> Section | None:
    """Show how often each beats each: candidates per judge, or items where they are few."""
    if not source.has_pairs:
        return None
    part = _candidates(source)
    parts = (part, corrected.win_rates(source)) if part else (_few_items(source),)
    shown = [part for part in parts if part]
    return Section("matrix", "Win matrix", (), shown) if shown else None


def _candidates(source: Source) -> Exhibit | None:
    if not source.has_candidates:
        return None
    cell = "template_id, provider, request_model, thinking"
    both = (
        f"SELECT {cell}, candidate_a, candidate_b, n_both, n_wins_a, n_wins_b,\n"
        "  n_both - n_wins_a - n_wins_b AS n_half, win_rate_half, win_rate_half_lo, win_rate_half_hi, q_bh, n_missing\n"
        f"FROM metric_win_matrix\nWHERE study = {source.name}\n"
        f"UNION ALL\nSELECT {cell}, candidate_b, candidate_a, n_both, n_wins_b, n_wins_a, "
        "n_both - n_wins_a - n_wins_b,\n"
        "  1 - win_rate_half, 1 - win_rate_half_hi, 1 - win_rate_half_lo, q_bh, n_missing\n"
        f"FROM metric_win_matrix\nWHERE study = {source.name}\nORDER BY {cell}, candidate_a, candidate_b"
    )
    rows = source.rows(both, MATRIX_CELLS_MAX)
    if not len(rows):
        return None
    found = cells(rows.frame, ("template_id", "provider", "request_model", "thinking"))
    return _matrix(
        rows, found.frame.with_columns(pl.concat_str(found.varying, separator=" · ").alias("panel")),
        ("candidate_a", "candidate_b", "panel"), found.columns,
        sentences("Models by the judges named above each matrix.", found.said()),
    )  # fmt: skip


def _few_items(source: Source) -> Exhibit | None:
    facts = source.values(f"SELECT n_items, n_units FROM report_facts WHERE study = {source.name}", limit=1)
    if not facts or facts[0]["n_items"] > MATRIX_ITEMS_MAX:
        return None
    select = "rubric_id, item_a, item_b, n_both, n_wins_a, n_wins_b, n_half, win_rate_half"
    rows = source.of_study(
        select, "report_item_matrix", "rubric_id, item_a, item_b", where="n_both > 0", limit=MATRIX_CELLS_MAX
    )
    if not len(rows):
        return None
    is_many = rows.frame["rubric_id"].n_unique() > 1
    columns = (Column("rubric_id", "rubric", Kind.TEXT),) if is_many else ()
    return _matrix(rows, rows.frame.with_columns(pl.col("rubric_id").alias("panel")), ("item_a", "item_b", "panel"),
                   columns, "All templates and judges together.")  # fmt: skip


def _matrix(
    rows: Rows, frame: pl.DataFrame, names: tuple[str, str, str], columns: tuple[Column, ...], words: str
) -> Exhibit:
    row, column, panel = names
    what = row.removesuffix("_a")
    strength = frame.group_by(row).agg(pl.col("win_rate_half").mean().alias("strength")).sort(
        "strength", row, descending=[True, False], nulls_last=True
    )  # fmt: skip
    order = {name: place for place, name in enumerate(strength[row].to_list())}
    sort = [pl.col(name).replace_strict(order, default=len(order)) for name in (row, column)]
    title = "Share of wins of the row over the column"
    n_both = total(frame, "n_both") // 2
    caption = sentences(
        f"n = {n_both:,} comparisons with a majority in both orders, {ranged(frame, 'n_both')} per cell. {words} A win "
        "must hold in both orders; a tie or an inconsistent pair counts half for each.",
        left_out(frame, (("n_missing", "pairs with an order missing"),), seen=2)
        if "n_missing" in frame.columns else "",
    )  # fmt: skip
    encoding = {"row": row, "column": column, "value": "win_rate_half", "n": "n_both"}
    if frame[panel].n_unique() > 1:
        encoding["panel"] = panel
    figure = drawn(
        rows, ChartKind.WIN_MATRIX, "matrix-figure", (title, caption), frame.sort(panel, *sort, maintain_order=True),
        encoding, titles={"row": what, "column": what, "value": "share of wins"}, is_share=True,
    )  # fmt: skip
    has_interval = "win_rate_half_lo" in frame.columns
    ends = ("win_rate_half_lo", "win_rate_half_hi") if has_interval else ()
    shown = (
        *columns,
        Column(row, "row", Kind.TEXT),
        Column(column, "column", Kind.TEXT),
        Column("n_both", "compared"),
        Column("n_wins_a", "row wins"),
        Column("n_wins_b", "column wins"),
        Column("n_half", "half each"),
        Column("win_rate_half", "share", Kind.SHARE, *ends),
        *((Column("q_bh", "q", Kind.P),) if has_interval else ()),
    )
    return exhibit(rows, "matrix", title, caption, shown, frame=frame, figure=figure)
