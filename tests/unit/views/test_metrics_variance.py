"""Shares of variance: brute force over every two votes, planted components, and mixed models."""

from __future__ import annotations

import csv
import json
from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from statsmodels.regression.mixed_linear_model import MixedLM

from tests.rigs.metrics import of_pairs, wrong
from tests.rigs.sql import Row

GOLDEN = Path(__file__).parents[2] / "golden" / "21_variance"
VALUES = {"lo": 0.5, "hi": -0.5, "tie": 0.0}
KEYS = ("pair", "judge", "template", "is_lo_first", "repeat")


def planted(rng: np.random.Generator, n: tuple[int, int, int, int], sds: dict[str, float]) -> list[Row]:
    """Return votes of a linear model: the chance that the lower wins is 1/2 and what each facet adds for a pair."""
    n_pairs, n_judges, n_templates, n_repeats = n
    item, judge, template, order = (
        rng.choice([-1, 1], size) * sds.get(name, 0.0)
        for name, size in (
            ("item", (n_pairs,)), ("judge", (n_pairs, n_judges)), ("template", (n_pairs, n_templates)),
            ("order", (n_pairs, n_judges, n_templates)),
        )
    )  # fmt: skip
    found = []
    for pair, j, t, side, repeat in np.ndindex(n_pairs, n_judges, n_templates, 2, n_repeats):
        chance = 0.5 + item[pair] + judge[pair, j] + template[pair, t] + (1 - 2 * side) * order[pair, j, t]
        said = "lo" if rng.random() < chance else "hi"
        found.append(dict(zip(KEYS, (pair, j, t, side == 0, repeat), strict=True)) | {"said": said})
    return found


def as_judgments(votes: list[Row]) -> list[Row]:
    """Return votes as rows of `pair_judgments`."""
    rows = []
    for vote in votes:
        names = [f"a{vote['pair']:04}", f"b{vote['pair']:04}"]
        first, second = names if vote["is_lo_first"] else names[::-1]
        verdict = (
            "tie" if vote["said"] == "tie" else "first" if (vote["said"] == "lo") == vote["is_lo_first"] else "second"
        )
        rows.append({"request_model": f"j{vote['judge']}", "template_id": f"t{vote['template']}", "item_first": first,
                     "item_second": second, "repeat_no": vote["repeat"] + 1, "verdict": verdict})  # fmt: skip
    return rows


def products(votes: list[Row]) -> dict[tuple[bool, bool, bool], float]:
    """Return mean products of two votes on a pair, by whether judge, template and order are the same."""
    found: dict[tuple[bool, bool, bool], list[float]] = {}
    for one, other in permutations(votes, 2):
        if one["pair"] == other["pair"]:
            key = tuple(one[name] == other[name] for name in ("judge", "template", "is_lo_first"))
            found.setdefault(key, []).append(VALUES[one["said"]] * VALUES[other["said"]])  # type: ignore[arg-type]
    return {key: float(np.mean(values)) for key, values in found.items()}


@pytest.mark.parametrize("seed", [1, 2])
def test_components_are_those_of_every_two_votes(seed: int) -> None:
    """Votes with holes and ties, judges, templates and repeats: each product is that of brute force."""
    rng = np.random.default_rng(seed)
    votes = [vote for vote in planted(rng, (5, 3, 2, 2), {"item": 0.3}) if rng.random() < 0.8]
    for vote in votes:
        vote["said"] = "tie" if rng.random() < 0.2 else vote["said"]
    ((row,),) = of_pairs(as_judgments(votes), "metric_variance")
    mean = products(votes)
    cell, judge, template, none = (
        (mean[same, alike, True] + mean[same, alike, False]) / 2
        for same, alike in ((True, True), (True, False), (False, True), (False, False))
    )
    square = float(np.mean([VALUES[vote["said"]] ** 2 for vote in votes]))
    assert not wrong(row, {
        "n_votes": len(votes), "item_variance": none, "judge_variance": judge - none,
        "template_variance": template - none, "judge_template_variance": cell - judge - template + none,
        "order_variance": (mean[True, True, True] - mean[True, True, False]) / 2,
        "repeat_variance": square - mean[True, True, True], "order_repeat_variance": square - cell,
    })  # fmt: skip
    names = ("item", "judge", "template", "judge_template", "order", "repeat")
    assert sum(row[f"{name}_share"] for name in names) == pytest.approx(1)


def test_planted_components_are_found() -> None:
    """1,200 pairs: each facet's variance comes out as it was put in, and they add up to a vote's."""
    sds = {"item": 0.25, "judge": 0.1, "template": 0.05, "order": 0.08}
    ((row,),) = of_pairs(as_judgments(planted(np.random.default_rng(7), (1200, 3, 2, 2), sds)), "metric_variance")
    for name, sd in sds.items():
        # Three standard errors: a pair's mean product varies by .08 for the items, by .03 to .05 for the others.
        assert row[f"{name}_variance"] == pytest.approx(sd**2, abs=0.008 if name == "item" else 0.004)
    assert row["judge_template_variance"] == pytest.approx(0, abs=0.004)
    assert row["repeat_variance"] == pytest.approx(0.25 - sum(sd**2 for sd in sds.values()), abs=0.008)


def test_mixed_models_see_about_the_same() -> None:
    """Of one template, by restricted likelihood of lme4 (recorded) and statsmodels: pair, judge and rest, roughly."""
    with (GOLDEN / "votes.csv").open() as file:
        votes: list[Row] = [
            {"pair": int(row["pair"]), "judge": int(row["judge"]), "template": 0,
             "is_lo_first": row["is_lo_first"] == "1", "repeat": int(row["repeat"]), "said": row["said"]}
            for row in csv.DictReader(file)
        ]  # fmt: skip
    ((row,),) = of_pairs(as_judgments(votes), "metric_variance")
    found = {name: row[f"{name}_variance"] for name in ("item", "judge", "order_repeat")}
    frame = pd.DataFrame({"y": [VALUES[vote["said"]] for vote in votes], "pair": [vote["pair"] for vote in votes],
                          "judge": [vote["judge"] for vote in votes]})  # fmt: skip
    fitted = MixedLM.from_formula(
        "y ~ 1", frame, groups="pair", vc_formula={"judge": "0 + C(judge)"}, re_formula="1"
    ).fit()
    of_statsmodels = {"item": fitted.cov_re.iloc[0, 0], "judge": fitted.vcomp[0], "order_repeat": fitted.scale}
    of_lme4 = json.loads((GOLDEN / "expected.json").read_text())["expected"]
    for oracle in (of_statsmodels, of_lme4):
        assert found == pytest.approx({name: float(value) for name, value in oracle.items()}, abs=0.002)
        assert sorted(found, key=lambda name: found[name]) == sorted(oracle, key=lambda name: oracle[name])
