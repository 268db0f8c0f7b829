"""Cascades: the corrected share and its error equal numpy's own, and intervals hold the truth as often as said."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from tests.rigs.cascade_planted import DESIGNS, RATES, play, tables
from tests.rigs.metrics import of_items, of_pairs
from tests.rigs.sql import Row, result, views_over

Unit = dict[str, str]


def corrected(units: list[Unit], word: str) -> float:
    """Return how often the third judge would say a word: what stands for it on each unit, and what audits move."""
    agreed = [unit for unit in units if unit["a"] == unit["b"]]
    differed = [unit for unit in units if unit["a"] != unit["b"]]
    audits = [(unit["c"] == word) - (unit["a"] == word) for unit in agreed if "c" in unit]
    found = sum(unit["a"] == word for unit in agreed) + len(agreed) * float(np.mean(audits))
    if differed:
        found += len(differed) * float(np.mean([unit["c"] == word for unit in differed if "c" in unit]))
    return found / len(units)


def error(units: list[Unit], word: str, n_sides: int, without: list[list[Unit]]) -> float:
    """Return its standard error by leaving out one cluster after the other, at least that of units as draws."""
    whole = corrected(units, word)
    jack = (len(without) - 1) / len(without) * sum((corrected(left, word) - whole) ** 2 for left in without)
    agreed = [unit for unit in units if unit["a"] == unit["b"]]
    audits = [(unit["c"] == word) != (unit["a"] == word) for unit in agreed if "c" in unit]
    q = (sum(audits) + 0.5) / (len(audits) + 1)
    heard = [unit["c"] == word for unit in units if unit["a"] != unit["b"]]
    standing = (sum(unit["a"] == word for unit in agreed) + sum(heard)) / len(units)
    per_unit = standing * (1 - standing) / len(units) + (len(agreed) / len(units)) ** 2 * q * (1 - q) / len(audits)
    return math.sqrt(max(jack - (n_sides - 1) * per_unit, per_unit))


def drawn(rng: np.random.Generator, words: tuple[str, str]) -> Unit:
    """Return what two judges say of a unit, and a third where they differ or it is audited."""
    unit = {judge: words[int(rng.random() < 0.3)] for judge in "ab"}
    if unit["a"] != unit["b"] or rng.random() < 0.4:
        unit["c"] = words[int(rng.random() < 0.4)]
    return unit


@pytest.mark.parametrize("seed", range(3))
def test_the_corrected_share_of_items_and_its_error_are_numpys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    units = [drawn(rng, ("true", "false")) for _ in range(60)]
    rows: list[Row] = [
        {"provider": "p", "request_model": judge, "item": f"i{number}", "verdict": word}
        for number, unit in enumerate(units) for judge, word in unit.items()
    ]  # fmt: skip
    for found in of_items(rows, "metric_cascade_words")[0]:
        assert found["further_share"] == pytest.approx(corrected(units, found["word"]), abs=1e-12)
        without = [units[:at] + units[at + 1 :] for at in range(len(units))]
        assert found["further_share_se"] == pytest.approx(error(units, found["word"], 1, without), rel=1e-9)


def test_the_corrected_share_of_pairs_leaves_out_each_item_with_all_its_pairs() -> None:
    rng = np.random.default_rng(4)
    names = [f"t{number:02}" for number in range(14)]
    pairs = {(one, two): drawn(rng, ("lo", "hi")) for one, two in product(names, names) if one < two}
    rows: list[Row] = [
        {"provider": "p", "request_model": judge, "item_first": first, "item_second": second,
         "verdict": "first" if (word == "lo") == (first == one) else "second"}
        for (one, two), unit in pairs.items() for judge, word in unit.items()
        for first, second in ((one, two), (two, one))
    ]  # fmt: skip
    for found in of_pairs(rows, "metric_cascade_words")[0]:
        without = [[unit for pair, unit in pairs.items() if name not in pair] for name in names]
        units = list(pairs.values())
        assert found["further_share"] == pytest.approx(corrected(units, found["word"]), abs=1e-12)
        assert found["further_share_se"] == pytest.approx(error(units, found["word"], 2, without), rel=1e-9)


def test_shares_of_all_words_add_up() -> None:
    with views_over(tables(DESIGNS["cascade of 40 prompts"], 5, 1)) as connection:
        shares = "sum(share) AS said, sum(further_share) AS f, sum(n_said) = max(n_decided) AS is_all"
        rows = result(connection, f"SELECT {shares} FROM metric_cascade_words GROUP BY study")
    assert len(rows) == 5
    for row in rows:
        assert (row["said"], row["f"]) == pytest.approx((1, 1))
        assert row["is_all"]


@pytest.mark.parametrize("name", ["cascade of 40 prompts", "cascade of which one judge leans"])
def test_intervals_of_a_cascade_hold_the_truth(name: str) -> None:
    """For items in general, by 100 studies; `tests.sweeps.coverage --of cascade` plays all designs."""
    found = play(DESIGNS[name], 100, 5)
    for rate in RATES:
        assert found[rate] >= 0.88, rate
        assert abs(found[f"{rate} off by"]) < 0.02
    if name == "cascade of which one judge leans":  # what the third judge says of what it was asked about misleads
        assert found["heard_share off by"] < -0.08
