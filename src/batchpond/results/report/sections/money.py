"""What it cost, and when the answers came."""

from __future__ import annotations

import polars as pl

from batchpond.model import CELL_COLUMNS
from batchpond.results.report.declared import Chapter, Declared, Drawn
from batchpond.results.report.numbers import Kind, sentences, total
from batchpond.results.report.parts import ChartKind, Column, Exhibit, When, count, text, usd
from batchpond.results.report.source import Source


def _prices(frame: pl.DataFrame) -> dict[str, str]:
    n_unknown = total(frame, "n_cost_unknown")
    is_simulated = (frame["origin"] == "simulated").any()
    unknown = f"Prices of {n_unknown:,} answers are not known: the sums are lower bounds."
    simulated = "Simulated answers cost nothing: the amounts are what real ones would have cost."
    return {"known": sentences(unknown * bool(n_unknown), simulated * is_simulated)}


def _answers(frame: pl.DataFrame) -> dict[str, str]:
    names = [name for name in ("provider", "request_model") if name in frame.columns]
    return {"answers": f"{total(frame.group_by(names, maintain_order=True).last(), 'n_answers'):,}"}


_MODELS = Declared(
    key="costs",
    title="Estimated and actual cost",
    caption="n = {n_responses:total} answers, retries included; a request that cells share counts once. {known}",
    view="costs",
    order="provider, request_model, origin",
    columns=(
        text("provider", "provider"),
        text("request_model", "model"),
        text("origin", "origin"),
        count("n_batches", "batches"),
        count("n_responses", "answers"),
        count("input_tokens", "tokens in"),
        count("output_tokens", "tokens out"),
        usd("cost_expected_usd", "expected"),
        usd("cost_max_usd", "at most"),
        usd("cost_usd", "spent"),
    ),
    also="n_sent n_cost_unknown",
    says=_prices,
)
_CELLS = Declared(
    key="cell-costs",
    title="Cost of a verdict",
    caption=(
        "A verdict is a decision or a tie, a decided pair one with the same winner in both orders. The price of a "
        "verdict is not shown where the cost of any answer is unknown. Cells that share requests each show their cost."
    ),
    view="metric_cost",
    cells=CELL_COLUMNS,
    where="(cost_usd IS NOT NULL OR output_tokens_p50 IS NOT NULL)",
    columns=(
        count("n_answered", "answered"),
        usd("cost_usd", "cost", when=When.KNOWN),
        usd("cost_per_valid_verdict_usd", "per verdict", when=When.KNOWN),
        usd("cost_per_decided_pair_usd", "per decided pair", when=When.KNOWN),
        count("input_tokens_p50", "tokens in, median", when=When.KNOWN),
        count("output_tokens_p50", "tokens out, median", when=When.KNOWN),
        count("output_tokens_p95", "tokens out, 95 %", when=When.KNOWN),
    ),
    also="n_cost_unknown cost_per_call_usd",
)
_TIMES = Declared(
    key="timeline",
    title="Answers over time",
    caption=(
        "n = {answers} answers, by the time at which their batch ended, from the moment the first batch was made "
        "ready. UTC."
    ),
    view="report_timeline",
    cells=("provider", "request_model"),
    order="provider, request_model, ended_at",
    columns=(
        Column("ended_at", "time", Kind.TIME, role="x", axis="UTC"),
        count("n_answers", "answers", role="value"),
    ),
    says=_answers,
    figure=Drawn(kind=ChartKind.TIMELINE, rest="group"),
)


def _timeline(source: Source) -> Exhibit | None:
    made = _TIMES(source)
    return made if made is not None and made.frame["ended_at"].n_unique() > 1 else None


section = Chapter(key="cost", title="Cost and time", parts=(_MODELS, _CELLS, _timeline))
