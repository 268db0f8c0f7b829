"""Judgments of pairs: are they the same when the two swap places, and which place is favoured?"""

from __future__ import annotations

import polars as pl

from batchpond.results.report.cells import JUDGE, ORDER, cells
from batchpond.results.report.figure import ChartKind
from batchpond.results.report.numbers import Kind
from batchpond.results.report.parts import Column, Section
from batchpond.results.report.sections.common import cut, drawn, exhibit, left_out, ranged, sentences
from batchpond.results.report.source import Source

_LEFT_OUT = (
    ("n_undecided", "pairs without a majority in an order"),
    ("n_missing_reverse", "pairs judged in one order only"),
    ("n_pairs_pending", "pairs still pending"),
)


def consistency(source: Source) -> Section | None:
    """Show how often each cell names the same winner in both orders."""
    select = (
        f"{ORDER}, n_pairs, n_both, n_decided, n_consistent_win, n_consistent_tie, n_undecided, n_missing_reverse,\n"
        "  n_pairs_pending, consistency_decided, consistency_decided_lo, consistency_decided_hi,\n"
        "  consistency_all, consistency_all_lo, consistency_all_hi, conflict_rate"
    )
    if not source.has_pairs:
        return None
    rows = source.of_study(select, "metric_consistency", ORDER, where="n_both > 0")
    if not len(rows):
        return None
    found = cells(rows.frame)
    frame, encoding = found.labelled(group=JUDGE, panel="rubric_id")
    title = "Share of pairs with the same winner in both orders"
    caption = sentences(
        f"n = {ranged(rows.frame, 'n_decided')} pairs with a winner in both orders per cell.",
        left_out(rows.frame, _LEFT_OUT),
        "Pairs with a tie in an order are out of the first rate and in the second. Wilson 95 % intervals.",
        found.said(),
        cut(rows),
    )
    encoding |= {
        "value": "consistency_decided", "low": "consistency_decided_lo", "high": "consistency_decided_hi",
    }  # fmt: skip
    figure = drawn(
        rows, ChartKind.INTERVALS, "consistency-figure", (title, caption), frame, encoding,
        titles={"value": "pairs with the same winner in both orders", "group": JUDGE, "label": ""}, is_share=True,
    )  # fmt: skip
    columns = (
        *found.columns,
        Column("n_pairs", "pairs"),
        Column("n_decided", "decided twice"),
        Column("consistency_decided", "same winner", Kind.SHARE, "consistency_decided_lo", "consistency_decided_hi"),
        Column("n_both", "majority twice"),
        Column("consistency_all", "same verdict, ties too", Kind.SHARE, "consistency_all_lo", "consistency_all_hi"),
        Column("conflict_rate", "winner flips", Kind.SHARE),
    )
    part = exhibit(rows, "consistency", title, caption, columns, frame=found.frame, figure=figure)
    words = "A judge is consistent when it names the same winner whichever of the two is shown first."
    return Section("consistency", "Consistency", (words,), (part,))


def position(source: Source) -> Section | None:
    """Show which position each cell favours, both tests of it, and what they could have found."""
    select = (
        f"{ORDER}, n_decided, n_discordant, n_primacy, n_recency, n_left_out, n_pairs_pending,\n"
        "  position_logodds, position_logodds_lo, position_logodds_hi, p_position_exact, q_bh, primacy_share,\n"
        "  primacy_share_lo, primacy_share_hi, primacy_share_mde, preference_fairness, p_preference_fairness"
    )
    if not source.has_pairs:
        return None
    rows = source.of_study(select, "metric_position_bias", ORDER, where="n_both > 0")
    if not len(rows):
        return None
    found = cells(rows.frame.with_columns(pl.lit(0.0).alias("even")))
    frame, encoding = found.labelled(group=JUDGE, panel="rubric_id")
    title = "Effect of being shown first"
    caption = sentences(
        f"n = {ranged(rows.frame, 'n_discordant')} pairs per cell whose winner flips with the order.",
        left_out(rows.frame, (("n_left_out", "pairs without a majority in both orders"),
                              ("n_pairs_pending", "pairs still pending"))),
        "Log-odds above 0 favour the one shown first; no flipped pair gives no estimate. 95 % normal intervals.",
        found.said(),
        cut(rows),
    )  # fmt: skip
    encoding |= {"value": "position_logodds", "low": "position_logodds_lo", "high": "position_logodds_hi",
                 "reference": "even"}  # fmt: skip
    titles = {"value": "log-odds of the first position (above 0: first favoured)", "group": JUDGE, "label": ""}
    figure = drawn(rows, ChartKind.INTERVALS, "position-figure", (title, caption), frame, encoding, titles=titles)
    parts = [exhibit(rows, "position", title, caption, (*found.columns, *_POSITION), frame=found.frame, figure=figure)]
    tests = sentences(
        "p: exact sign test (exact McNemar) of flips towards the first against flips towards the second; q: the same, "
        "corrected over the study's cells (Benjamini and Hochberg). Detectable: the smallest share of flips in one "
        "direction that this many flips reveal with a power of 80 %; a p that found nothing says no more than that. "
        "Preference fairness (Shi et al. 2024) counts soft conflicts, a win in one order and a tie in the other, too; "
        "above 0 the second is favoured.",
        found.said(),
    )
    parts.append(exhibit(rows, "position-tests", "Tests of positional bias and their power", tests,
                         (*found.columns, *_TESTS), frame=found.frame))  # fmt: skip
    return Section("position", "Positional bias", (_bias_words(rows.frame),), tuple(parts))


_POSITION = (
    Column("n_decided", "decided twice"),
    Column("n_primacy", "first twice"),
    Column("n_recency", "second twice"),
    Column("position_logodds", "log-odds", Kind.NUMBER, "position_logodds_lo", "position_logodds_hi"),
    Column("primacy_share", "first of flips", Kind.SHARE, "primacy_share_lo", "primacy_share_hi"),
)
_TESTS = (
    Column("n_discordant", "flips"),
    Column("p_position_exact", "p", Kind.P),
    Column("q_bh", "q", Kind.P),
    Column("primacy_share_mde", "detectable share", Kind.SHARE),
    Column("preference_fairness", "preference fairness", Kind.NUMBER),
    Column("p_preference_fairness", "p (fairness)", Kind.P),
)


def _bias_words(frame: pl.DataFrame) -> str:
    first = frame.filter((pl.col("q_bh") < 0.05) & (pl.col("position_logodds") > 0))
    second = frame.filter((pl.col("q_bh") < 0.05) & (pl.col("position_logodds") < 0))
    n_null = len(frame) - len(first) - len(second)
    return (
        f"Of {len(frame):,} cells, {len(first):,} favour the one shown first and {len(second):,} the one shown second "
        f"at a false discovery rate of 5 %; for {n_null:,} there is no evidence either way."
    )


def repeats(source: Source) -> Section | None:
    """Show how much of the inconsistency is noise, where requests were repeated."""
    select = (
        f"{ORDER}, n_orders, repeat_agreement, repeat_agreement_lo, repeat_agreement_hi,\n"
        "  n_cross_order_pairs, cross_order_agreement, cross_order_agreement_lo, cross_order_agreement_hi,\n"
        "  position_excess_conflict, position_excess_conflict_lo, position_excess_conflict_hi"
    )
    if not source.has_pairs:
        return None
    rows = source.of_study(select, "metric_repeat", ORDER, where="n_orders > 0")
    if not len(rows):
        return None
    found = cells(rows.frame)
    caption = sentences(
        f"n = {ranged(rows.frame, 'n_orders')} orders asked at least twice per cell. Agreement of two valid votes on "
        "the same order, on opposite orders, and the difference: what swapping adds to mere noise. 95 % intervals.",
        found.said(),
        cut(rows),
    )
    columns = (
        *found.columns,
        Column("n_orders", "orders"),
        Column("repeat_agreement", "same order", Kind.SHARE, "repeat_agreement_lo", "repeat_agreement_hi"),
        Column("cross_order_agreement", "opposite orders", Kind.SHARE, "cross_order_agreement_lo",
               "cross_order_agreement_hi"),
        Column("position_excess_conflict", "excess conflict", Kind.SHARE, "position_excess_conflict_lo",
               "position_excess_conflict_hi"),
    )  # fmt: skip
    part = exhibit(rows, "repeats", "Agreement of repeated requests", caption, columns, frame=found.frame)
    return Section("repeats", "Repeated requests", (), (part,))
