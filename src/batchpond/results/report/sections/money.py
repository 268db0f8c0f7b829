"""What it cost, and when the answers came."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import polars as pl

from batchpond.results.report.declared import Declared, Made, chapter
from batchpond.results.report.numbers import sentences, total
from batchpond.results.report.parts import Exhibit
from batchpond.results.report.source import Source

_SIMULATED: Final = "Simulated answers cost nothing: the amounts are what real ones would have cost."
_UNEXPECTED: Final = {
    True: "What was expected is not known where no price was known for some of it when it was sent.",
    False: "Of what batches of other studies asked, what was expected stands with those.",
}


def _prices(frame: pl.DataFrame) -> dict[str, str]:
    n_unknown = total(frame, "n_cost_unknown")
    unknown = f"Prices of {n_unknown:,} answers are not known: the sums are lower bounds."
    unexpected = frame.filter(pl.col("cost_expected_usd").is_null())["n_batches"] > 0
    why = [text for is_sent, text in _UNEXPECTED.items() if (unexpected == is_sent).any()]
    simulated = _SIMULATED * (frame["origin"] == "simulated").any()
    return {"known": sentences(unknown * bool(n_unknown), *why, simulated)}


def _simulated(frame: pl.DataFrame) -> dict[str, str]:
    return {"simulated": _SIMULATED * frame["cost_simulated_usd"].is_not_null().any()}


def _answers(frame: pl.DataFrame) -> dict[str, str]:
    names = [name for name in ("provider", "request_model") if name in frame.columns]
    return {"answers": f"{total(frame.group_by(names, maintain_order=True).last(), 'n_answers'):,}"}


def _over_time(timeline: Declared) -> Made:
    """Return the exhibit of the answers over time, where there is more than one time."""

    def made(source: Source) -> Exhibit | None:
        found = replace(timeline, says=_answers)(source)
        return found if found is not None and found.frame["ended_at"].n_unique() > 1 else None

    return made


section = chapter(
    "money",
    costs=lambda costs: replace(costs, says=_prices),
    timeline=_over_time,
    **{"cell-costs": lambda costs: replace(costs, says=_simulated)},
)
