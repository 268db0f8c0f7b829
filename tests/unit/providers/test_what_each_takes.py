"""The guide's table of what each provider takes is what the descriptors say, so that none is left out or promised."""

from __future__ import annotations

from importlib import resources

import pytest

from batchpond.model import Mode, PricedModel
from batchpond.providers import registry
from batchpond.providers.base import Descriptor
from batchpond.providers.shared.dialect import PDF
from batchpond.study.prices import Prices, known

GUIDE = resources.files("batchpond.guides") / "providers.md"
ALL = {one.name: one for one in registry.all_descriptors()}


def row(found: Descriptor) -> str:
    """Return the row of a provider."""
    types = registry.module(found.name).sight.types
    shown = "pictures, PDF" if PDF in types else "pictures" if types else "no"
    marked = f"what is marked, {' or '.join(found.cache_marks)}" if found.cache_marks else "not known"
    cached = f"from {found.cache_min_tokens:,} tokens on" if found.cache_min_tokens else marked
    cells = (f"`{found.name}`", ", ".join(found.modes), shown, "yes" if found.takes_schema else "no", cached)
    return f"| {' | '.join(cells)} |"


@pytest.mark.parametrize("name", ALL)
def test_the_guide_says_what_a_provider_takes(name: str) -> None:
    assert row(ALL[name]) in GUIDE.read_text("utf-8").splitlines()


def test_the_table_has_no_other_rows() -> None:
    table = GUIDE.read_text("utf-8").partition("## What each takes\n")[2].partition("\n## ")[0]
    assert [line for line in table.splitlines() if line.startswith("| `")] == [row(one) for one in ALL.values()]


def discounts(provider: str) -> set[float]:
    """Return which shares of the list price a batch costs, input and output, of the models that prices are known of."""
    prices, found = Prices(), set()
    for model in known(provider):
        batch, live = (prices.unit(PricedModel(provider, model, mode)) for mode in (Mode.BATCH, Mode.LIVE))
        if batch is not None and live is not None:
            one, other = batch.tiers[0], live.tiers[0]
            found |= {round(one.input_usd / other.input_usd, 3), round(one.output_usd / other.output_usd, 3)}
    return found


@pytest.mark.parametrize("name", [name for name, one in ALL.items() if Mode.BATCH in one.modes])
def test_the_guide_says_what_a_batch_costs_as_it_is_counted(name: str) -> None:
    table = GUIDE.read_text("utf-8").partition("## What a batch costs\n")[2].partition("\n## ")[0]
    (rule,) = (line.split(" | ")[1] for line in table.splitlines() if line.startswith(f"| `{name}` | "))
    said = {"half": 0.5, "a fifth off": 0.8, "all of any other": 1.0}
    assert discounts(name) == {share for words, share in said.items() if words in rule}
