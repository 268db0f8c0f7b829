"""What it cost, and when the answers came."""

from __future__ import annotations

import polars as pl

from batchpond.results.report.cells import JUDGE, ORDER, cells
from batchpond.results.report.figure import ChartKind
from batchpond.results.report.numbers import Kind
from batchpond.results.report.parts import Column, Exhibit, Section
from batchpond.results.report.sections.common import cut, drawn, exhibit, sentences, total
from batchpond.results.report.source import Source


def money(source: Source) -> Section | None:
    """Show estimates beside what was spent, and the time line."""
    parts = [part for part in (_models(source), _cells(source), _timeline(source)) if part]
    return Section("cost", "Cost and time", (), parts) if parts else None


def _models(source: Source) -> Exhibit | None:
    rows = source.of_study(
        "provider, request_model, origin, n_batches, n_sent, n_responses, n_cost_unknown, input_tokens,\n"
        "  output_tokens, cost_expected_usd, cost_max_usd, cost_usd", "costs", "provider, request_model, origin",
    )  # fmt: skip
    if not len(rows):
        return None
    n_unknown = total(rows.frame, "n_cost_unknown")
    simulated = int((rows.frame["origin"] == "simulated").sum())
    caption = sentences(
        f"n = {total(rows.frame, 'n_responses'):,} answers, retries included; a request that cells share counts once.",
        f"Prices of {n_unknown:,} answers are not known: the sums are lower bounds." if n_unknown else "",
        "Simulated answers cost nothing: the amounts are what real ones would have cost." if simulated else "",
        cut(rows),
    )
    columns = (
        Column("provider", "provider", Kind.TEXT), Column("request_model", "model", Kind.TEXT),
        Column("origin", "origin", Kind.TEXT), Column("n_batches", "batches"), Column("n_responses", "answers"),
        Column("input_tokens", "tokens in"), Column("output_tokens", "tokens out"),
        Column("cost_expected_usd", "expected", Kind.USD), Column("cost_max_usd", "at most", Kind.USD),
        Column("cost_usd", "spent", Kind.USD),
    )  # fmt: skip
    return exhibit(rows, "costs", "Estimated and actual cost", caption, columns)


def _cells(source: Source) -> Exhibit | None:
    rows = source.of_study(
        f"{ORDER}, n_answered, n_cost_unknown, cost_usd, cost_per_call_usd, cost_per_valid_verdict_usd,\n"
        "  cost_per_decided_pair_usd, input_tokens_p50, output_tokens_p50, output_tokens_p95",
        "metric_cost", ORDER, where="(cost_usd IS NOT NULL OR output_tokens_p50 IS NOT NULL)",
    )  # fmt: skip
    if not len(rows):
        return None
    found = cells(rows.frame)
    caption = sentences(
        "A verdict is a decision or a tie, a decided pair one with the same winner in both orders. The price of a "
        "verdict is not shown where the cost of any answer is unknown. Cells that share requests each show their cost.",
        found.said(),
        cut(rows),
    )
    wanted = (
        ("cost_usd", "cost", Kind.USD), ("cost_per_valid_verdict_usd", "per verdict", Kind.USD),
        ("cost_per_decided_pair_usd", "per decided pair", Kind.USD), ("input_tokens_p50", "tokens in, median",
        Kind.COUNT), ("output_tokens_p50", "tokens out, median", Kind.COUNT),
        ("output_tokens_p95", "tokens out, 95 %", Kind.COUNT),
    )  # fmt: skip
    known = [Column(*one) for one in wanted if rows.frame[one[0]].null_count() < len(rows)]
    columns = (*found.columns, Column("n_answered", "answered"), *known)
    return exhibit(rows, "cell-costs", "Cost of a verdict", caption, columns, frame=found.frame)


def _timeline(source: Source) -> Exhibit | None:
    names = "provider, request_model, ended_at"
    rows = source.of_study(f"{names}, n_answers", "report_timeline", names)
    if not len(rows) or rows.frame["ended_at"].n_unique() < 2:
        return None
    found = cells(rows.frame, ("provider", "request_model"))
    frame = found.frame.with_columns(pl.concat_str(found.varying, separator=" · ").alias("series"))
    title = "Answers over time"
    last = frame.group_by("series", maintain_order=True).last()
    caption = sentences(
        f"n = {total(last, 'n_answers'):,} answers, by the time at which their batch ended, from the moment the first "
        "batch was made ready. UTC.",
        cut(rows),
    )
    figure = drawn(
        rows, ChartKind.TIMELINE, "timeline-figure", (title, caption), frame,
        {"x": "ended_at", "value": "n_answers", "group": "series"},
        titles={"x": "UTC", "value": "answers", "group": JUDGE},
    )  # fmt: skip
    columns = (
        Column("series", "judge", Kind.TEXT),
        Column("ended_at", "time", Kind.TIME),
        Column("n_answers", "answers"),
    )
    return exhibit(rows, "timeline", title, caption, columns, frame=frame, figure=figure)
