"""Rates corrected by people's labels equal the reference numbers and plain numpy, and cover the truth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from tests.rigs.metrics import of_items, of_pairs, reference, wrong
from tests.rigs.sql import Row
from tests.unit.views.test_metrics_compliance import complied

Numbers = npt.NDArray[np.float64]


def ppi(y: Numbers, f: Numbers, rest: Numbers) -> tuple[float, float, float]:
    """Return weight, estimate and standard error of PPI++: labels y, predictions f for them and `rest` beside them."""
    n, more = len(y), len(rest)
    whole = np.r_[f, rest]
    cov = float(np.mean(y * f) - np.mean(y) * np.mean(f))
    weight = 0.0 if np.ptp(whole) == 0 else min(1.0, max(0.0, cov / ((1 + n / more) * float(np.var(whole, ddof=1)))))
    estimate = weight * float(np.mean(rest)) + float(np.mean(y - weight * f))
    return weight, estimate, float(np.sqrt(np.var(y - weight * f) / n + weight**2 * np.var(rest) / more))


def test_reference_case() -> None:
    """PPI++ and Rogan-Gladen of the compliance case come out to 1e-9."""
    rows, expected = reference("13_compliance", "compliance.csv")
    (found,) = of_items(complied(rows), "metric_compliance_corrected")
    (row,) = (row for row in found if (row["candidate"], row["request_model"]) == ("candA", "j1"))
    wanted, gladen = expected["ppi_pp"], expected["rogan_gladen"]
    assert not wrong(row, {
        "ppi_weight": wanted["lam"], "ppi_compliance": wanted["theta"], "ppi_compliance_se": wanted["se"],
        "n_unlabelled": gladen["n_test"], "n_label_true": gladen["m1"], "n_label_false": gladen["m0"],
        "sensitivity": gladen["sens"], "specificity": gladen["spec"], "rogan_gladen_compliance": gladen["theta"],
        "rogan_gladen_compliance_se": gladen["se"],
    })  # fmt: skip
    assert len(found) == 8  # two candidates by three judges and their majority; people are no judge to correct


def planted(rng: np.random.Generator, study: str, n: int, n_labelled: int) -> tuple[list[Row], Numbers, Numbers]:
    """Return judgments of n outputs of which 70 % comply, by a judge with errors, some labelled by people."""
    truth = rng.random(n) < 0.7
    said = np.where(truth, rng.random(n) < 0.85, rng.random(n) < 0.1)
    words = {True: "true", False: "false"}
    rows: list[Row] = []
    for unit, (one, other) in enumerate(zip(said.tolist(), truth.tolist(), strict=True)):
        place = {"study": study, "unit_id": f"u{unit}", "item": f"o{unit}", "candidate": "c"}
        rows.append(place | {"verdict": words[one]})
        if unit < n_labelled:
            rows.append(place | {"provider": "human", "template_id": "people", "verdict": words[other]})
    return rows, truth.astype(np.float64), said.astype(np.float64)


def test_corrected_rates_cover_and_the_judges_own_does_not() -> None:
    """Over planted studies both intervals hold the true rate 91 to 99 times in 100; the judge's own Wilson does not."""
    rng = np.random.default_rng(5)
    n_studies, n, n_labelled = 200, 240, 90
    drawn = [planted(rng, f"s{study:03}", n, n_labelled) for study in range(n_studies)]
    (rows,) = of_items([row for rows, _, _ in drawn for row in rows], "metric_compliance_corrected")
    assert len(rows) == n_studies
    for row, (_, truth, said) in zip(rows, drawn, strict=True):
        weight, estimate, se = ppi(truth[:n_labelled], said[:n_labelled], said[n_labelled:])
        assert not wrong(row, {"ppi_weight": weight, "ppi_compliance": estimate, "ppi_compliance_se": se})

    def covered(name: str) -> float:
        return float(np.mean([row[f"{name}_lo"] <= 0.7 <= row[f"{name}_hi"] for row in rows]))

    def width(name: str) -> float:
        return float(np.mean([row[f"{name}_hi"] - row[f"{name}_lo"] for row in rows]))

    assert 0.91 <= covered("ppi_compliance") <= 0.99
    assert 0.91 <= covered("rogan_gladen_compliance") <= 0.99
    assert covered("compliance") < 0.8
    assert width("ppi_compliance") < width("people_compliance")


def won(winners: Sequence[float], labels: Sequence[float | None]) -> list[Row]:
    """Return both orders of pairs of outputs of m and n that a judge decided so, and people's labels."""
    words = {1.0: "first", 0.0: "second", 0.5: "tie", None: "unsure"}
    turned = {1.0: "second", 0.0: "first", 0.5: "tie"}
    rows: list[Row] = []
    for unit, (winner, label) in enumerate(zip(winners, labels, strict=True)):
        names = {"unit_id": f"u{unit}", "item_first": f"x{unit}", "item_second": f"y{unit}", "candidate_first": "m",
                 "candidate_second": "n"}  # fmt: skip
        other = names | {"item_first": names["item_second"], "item_second": names["item_first"],
                         "candidate_first": "n", "candidate_second": "m"}  # fmt: skip
        rows += [names | {"verdict": words[winner]}, other | {"verdict": turned[winner]}]
        rows.append(names | {"provider": "human", "template_id": "people", "verdict": words[label]})
    return rows


@pytest.mark.parametrize("n_labelled", [12, 40])
def test_corrected_win_rate_is_numpys(n_labelled: int) -> None:
    """Wins, ties and labels of a half: PPI++ with squares of its own; all labelled is the mean of the labels."""
    rng = np.random.default_rng(3)
    said = rng.choice([0.0, 0.5, 1.0], 40)
    label = np.where(rng.random(40) < 0.7, said, rng.choice([0.0, 0.5, 1.0], 40))
    given = [float(value) if unit < n_labelled else None for unit, value in enumerate(label)]
    (found,) = of_pairs(won(said.tolist(), given), "metric_win_matrix_corrected")
    (row,) = found
    if n_labelled == 40:
        wanted = (0.0, float(label.mean()), float(label.std() / np.sqrt(40)))
    else:
        wanted = ppi(label[:n_labelled], said[:n_labelled], said[n_labelled:])
    names = ("ppi_weight", "ppi_win_rate", "ppi_win_rate_se")
    assert not wrong(row, {"n_labelled": n_labelled, **dict(zip(names, wanted, strict=True))})
    assert row["ppi_win_rate_lo"] < row["ppi_win_rate"] < row["ppi_win_rate_hi"]
