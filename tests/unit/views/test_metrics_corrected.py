"""Rates corrected by people's labels equal the reference numbers and plain numpy, and cover the truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from tests.rigs import corrected_planted
from tests.rigs.metrics import of_items, of_pairs, reference, wrong
from tests.rigs.sql import CELL_DEFAULT, Row, result, table, views_over
from tests.unit.views.test_metrics_compliance import complied

Numbers = npt.NDArray[np.float64]
OF_THESE = "_these_statements"


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
        "ppi_weight": wanted["lam"], "ppi_compliance": wanted["theta"],
        "ppi_compliance_se_these_statements": wanted["se"],
        "n_unlabelled": gladen["n_test"], "n_label_true": gladen["m1"], "n_label_false": gladen["m0"],
        "sensitivity": gladen["sens"], "specificity": gladen["spec"], "rogan_gladen_compliance": gladen["theta"],
        "rogan_gladen_compliance_se_these_statements": gladen["se"],
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
        assert not wrong(row, {"ppi_weight": weight, "ppi_compliance": estimate, f"ppi_compliance_se{OF_THESE}": se})
        assert row["ppi_compliance_lo"] is row["compliance_lo"] is None  # one statement says nothing of others

    def covered(name: str) -> float:
        return float(np.mean([row[f"{name}_lo{OF_THESE}"] <= 0.7 <= row[f"{name}_hi{OF_THESE}"] for row in rows]))

    def width(name: str) -> float:
        return float(np.mean([row[f"{name}_hi{OF_THESE}"] - row[f"{name}_lo{OF_THESE}"] for row in rows]))

    assert 0.91 <= covered("ppi_compliance") <= 0.99
    assert 0.91 <= covered("rogan_gladen_compliance") <= 0.99
    assert covered("compliance") < 0.8
    assert width("ppi_compliance") < width("people_compliance")


def test_where_two_people_differ_their_label_is_a_half() -> None:
    """Easy outputs alone are no random part: PPI++ is numpy's of the mean votes, near how often people say yes."""
    rng = np.random.default_rng(8)
    n, n_labelled = 2000, 800
    easy = 1 / (1 + np.exp(-1 - rng.normal(0, 1, n)))  # how many people say that an output complies
    votes = rng.random((2, n)) < easy
    said = np.where(rng.random(n) < 0.7, easy > 0.5, rng.random(n) < 0.5)
    rows: list[Row] = []
    for unit in range(n):
        about = {"unit_id": f"u{unit}", "item": f"o{unit}", "candidate": "c"}
        rows.append(about | {"verdict": str(bool(said[unit])).lower()})
        people = about | {"provider": "human", "template_id": "people"}
        rows += [people | {"request_model": f"h{person}", "verdict": str(bool(votes[person, unit])).lower()}
                 for person in ((0, 1) if unit < n_labelled else ())]  # fmt: skip
    ((row,),) = of_items(rows, "metric_compliance_corrected")
    y, f = votes[:, :n_labelled].mean(axis=0), said.astype(float)
    weight, estimate, se = ppi(y, f[:n_labelled], f[n_labelled:])
    assert not wrong(row, {
        "n_labelled": n_labelled, "n_label_drawn": int(np.sum(y == 0.5)), "people_compliance": float(y.mean()),
        "ppi_weight": weight, "ppi_compliance": estimate, f"ppi_compliance_se{OF_THESE}": se,
        "sensitivity": float(np.sum(y * f[:n_labelled]) / np.sum(y)),
    })  # fmt: skip
    assert abs(row["ppi_compliance"] - easy.mean()) < 3 * se
    assert abs(row["rogan_gladen_compliance"] - easy.mean()) < 3 * row[f"rogan_gladen_compliance_se{OF_THESE}"]


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
    names = ("ppi_weight", "ppi_win_rate", f"ppi_win_rate_se{OF_THESE}")
    assert not wrong(row, {"n_labelled": n_labelled, **dict(zip(names, wanted, strict=True))})
    assert row[f"ppi_win_rate_lo{OF_THESE}"] < row["ppi_win_rate"] < row[f"ppi_win_rate_hi{OF_THESE}"]
    assert row["ppi_win_rate_lo"] is None
    assert row["ppi_lacks"] == "statements"


def clustered(moves: Numbers, statement: Numbers, labelled: npt.NDArray[np.bool_], drawn: float) -> float:
    """Return the CR1 error of a sum of moves, over the labelled statements, and never less than of outputs drawn."""
    sums = [moves[statement == one].sum() for one in np.unique(statement)]
    n = len(np.unique(statement[labelled]))
    return float(np.sqrt(max(drawn, np.sum(np.square(sums)) * n / (n - 1))))


def wilson_t(p: float, n_max: float, se: float, df: int) -> tuple[float, float]:
    """Return the score interval of a rate of `p` whose variance is that of an effective number of draws."""
    n, t = min(n_max, p * (1 - p) / se**2), float(stats.t.ppf(0.975, df))
    middle, reach = p + t * t / (2 * n), t * float(np.sqrt(p * (1 - p) / n + t * t / (4 * n * n)))
    return (middle - reach) / (1 + t * t / n), (middle + reach) / (1 + t * t / n)


def test_clustered_errors_are_those_of_every_output_moved_by_itself() -> None:
    """PPI++ and Rogan-Gladen over statements that differ: the linearisations, written per output, give the errors."""
    rng = np.random.default_rng(11)
    statement = rng.integers(0, 9, 300)
    y = rng.random(300) < np.linspace(0.4, 0.95, 9)[statement]
    f = np.where(y, rng.random(300) < 0.85, rng.random(300) < 0.25)
    labelled = (rng.random(300) < 0.3) & (statement < 7)  # two statements have no label
    rows: list[Row] = []
    for unit in range(300):
        place = {"rubric_id": f"r{statement[unit]}", "unit_id": f"u{unit}", "item": f"o{unit}", "candidate": "c"}
        rows.append(place | {"verdict": str(bool(f[unit])).lower()})
        if labelled[unit]:
            rows.append(place | {"provider": "human", "template_id": "people", "verdict": str(bool(y[unit])).lower()})
    ((row,),) = of_items(rows, "metric_compliance_corrected")
    n, more = int(labelled.sum()), int((~labelled).sum())
    y, f = y.astype(float), f.astype(float)
    weight, estimate, se = ppi(y[labelled], f[labelled], f[~labelled])
    rectified = y - weight * f
    moves = np.where(labelled, (rectified - rectified[labelled].mean()) / n, weight * (f - f[~labelled].mean()) / more)
    general = clustered(moves, statement, labelled, se**2)
    assert general > 1.2 * se
    assert not wrong(row, {
        "n_rubrics": 9, "n_rubrics_labelled": 7, "ppi_lacks": None, f"ppi_compliance_se{OF_THESE}": se,
        "ppi_compliance": estimate, "ppi_compliance_se": general,
    })  # fmt: skip
    assert not wrong(row, {"ppi_compliance": list(wilson_t(estimate, 300, general, 6))})
    q1, q0, p = f[labelled & (y == 1)].mean(), 1 - f[labelled & (y == 0)].mean(), f[~labelled].mean()
    rate = (p + q0 - 1) / (q0 + q1 - 1)
    of_true, of_false = (labelled & (y == one) for one in (1, 0))
    moves = np.where(~labelled, (f - p) / more, 0)
    moves += np.where(of_false, (1 - rate) * (1 - f - q0) / of_false.sum(), 0)
    moves -= np.where(of_true, rate * (f - q1) / of_true.sum(), 0)
    general = clustered(moves / (q0 + q1 - 1), statement, labelled, row[f"rogan_gladen_compliance_se{OF_THESE}"] ** 2)
    reach = float(stats.t.ppf(0.975, 6)) * general
    assert not wrong(row, {"rogan_gladen_compliance_se": general, "rogan_gladen_lacks": None})
    assert not wrong(row, {"rogan_gladen_compliance": [max(0, rate - reach), min(1, rate + reach)]})
    moves = np.where(labelled, (y - y[labelled].mean()) / n, 0)
    of_people = clustered(moves, statement, labelled, y[labelled].var() / n)
    assert not wrong(row, {"people_compliance_se": of_people})
    assert not wrong(row, {"people_compliance": list(wilson_t(y[labelled].mean(), n, of_people, 6))})


def two_ways(moves: Numbers, statement: Numbers, prompt: Numbers, of: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """Return the variance of a sum of moves by statement and prompt, less that of the moves; and by prompt alone."""
    squares = {}
    for name, cluster in {"statement": statement, "prompt": prompt}.items():
        n = len(np.unique(cluster[of]))
        squares[name] = float(np.square(np.bincount(cluster, moves)).sum()) * n / (n - 1)
    own = float(np.square(moves).sum()) * len(moves) / (len(moves) - 1)
    return squares["statement"] + max(0.0, squares["prompt"] - own), squares["prompt"]


def test_outputs_that_statements_share_are_drawn_once() -> None:
    """A grid of outputs by statements: errors by both, numpy's own; for other outputs on the same, by outputs."""
    rng = np.random.default_rng(2)
    statement, output = (index.ravel() for index in np.indices((8, 12)))
    effect = rng.normal(0, 1.5, 12)[output]
    y = rng.random(96) < 1 / (1 + np.exp(-effect - 0.5))
    f = np.where(y, rng.random(96) < 0.9, rng.random(96) < 0.2)
    labelled = rng.random(96) < 0.5
    rows: list[Row] = []
    for place in range(96):
        about = {"rubric_id": f"r{statement[place]}", "unit_id": f"u{output[place]}", "item": f"o{output[place]}"}
        about |= {"candidate": "c"}
        rows.append(about | {"verdict": str(bool(f[place])).lower()})
        if labelled[place]:
            rows.append(about | {"provider": "human", "template_id": "people", "verdict": str(bool(y[place])).lower()})
    ((row,),) = of_items(rows, "metric_compliance_corrected")
    y, f = y.astype(float), f.astype(float)
    n, more = int(labelled.sum()), int((~labelled).sum())
    weight, estimate, se = ppi(y[labelled], f[labelled], f[~labelled])
    rectified = y - weight * f
    moves = np.where(labelled, (rectified - rectified[labelled].mean()) / n, weight * (f - f[~labelled].mean()) / more)
    general, of_these = (max(one, se**2) ** 0.5 for one in two_ways(moves, statement, output, labelled))
    assert general > 1.1 * clustered(moves, statement, labelled, se**2)
    assert not wrong(row, {"ppi_compliance_se": general, f"ppi_compliance_se{OF_THESE}": of_these, "ppi_lacks": None})
    assert not wrong(row, {"ppi_compliance": list(wilson_t(estimate, 96, general, 7))})
    reach = float(stats.t.ppf(0.975, 11)) * of_these
    assert row[f"ppi_compliance_lo{OF_THESE}"] == pytest.approx(max(0, estimate - reach), rel=1e-9)
    moves = np.where(labelled, (y - y[labelled].mean()) / n, 0)
    general, of_these = (one**0.5 for one in two_ways(moves, statement, output, labelled))
    assert not wrong(row, {"people_compliance_se": general})
    low, high = wilson_t(y[labelled].mean(), n, of_these, 11)
    assert not wrong(row, {f"people_compliance_{end}{OF_THESE}": at for end, at in (("lo", low), ("hi", high))})
    general, _ = two_ways((f - f.mean()) / 96, statement, output, labelled)
    assert not wrong(row, {"compliance_se": general**0.5})
    of_true, of_false = (labelled & (y == one) for one in (1, 0))
    q1, q0, p = f[of_true].mean(), 1 - f[of_false].mean(), f[~labelled].mean()
    rate = (p + q0 - 1) / (q0 + q1 - 1)
    moves = np.where(~labelled, (f - p) / more, 0) + np.where(of_false, (1 - rate) * (1 - f - q0) / of_false.sum(), 0)
    moves -= np.where(of_true, rate * (f - q1) / of_true.sum(), 0)
    drawn = p * (1 - p) / more + (1 - rate) ** 2 * q0 * (1 - q0) / of_false.sum()
    drawn += rate**2 * q1 * (1 - q1) / of_true.sum()
    found = two_ways(moves, statement, output, labelled)
    general, of_these = (max(one, drawn) ** 0.5 / (q0 + q1 - 1) for one in found)
    name = "rogan_gladen_compliance_se"
    assert not wrong(row, {name: general, f"{name}{OF_THESE}": of_these})


def test_corrected_win_rate_is_clustered_by_statement() -> None:
    """The error for statements in general, from every pair moved by itself, ties and labels of a half among them."""
    rng = np.random.default_rng(4)
    statement = rng.integers(0, 6, 90)
    label = np.where(rng.random(90) < np.linspace(0.1, 0.9, 6)[statement], 1.0, rng.choice([0.0, 0.5], 90))
    said = np.where(rng.random(90) < 0.7, label, rng.choice([0.0, 0.5, 1.0], 90))
    labelled = np.arange(90) < 40
    given = [float(one) if is_labelled else None for one, is_labelled in zip(label, labelled, strict=True)]
    rows = [row | {"rubric_id": f"r{statement[int(row['unit_id'][1:])]}"} for row in won(said.tolist(), given)]
    ((row,),) = of_pairs(rows, "metric_win_matrix_corrected")
    weight, estimate, se = ppi(label[labelled], said[labelled], said[~labelled])
    rectified = label - weight * said
    moves = np.where(
        labelled, (rectified - rectified[labelled].mean()) / 40, weight * (said - said[~labelled].mean()) / 50
    )
    general = clustered(moves, statement, labelled, se**2)
    assert general > 1.2 * se
    assert not wrong(row, {"ppi_win_rate": estimate, "ppi_win_rate_se": general, "ppi_lacks": None})
    assert not wrong(row, {"ppi_win_rate": list(wilson_t(estimate, 90, general, 5))})
    of_people = clustered(np.where(labelled, (label - label[labelled].mean()) / 40, 0), statement, labelled,
                          label[labelled].var(ddof=1) / 40)  # fmt: skip
    assert not wrong(row, {"people_win_rate_se": of_people})


def test_prompts_that_statements_share_are_drawn_once_between_two_candidates() -> None:
    """A grid of prompts by statements, ties and labels of a half among them: PPI++ and labels, numpy's own."""
    rng = np.random.default_rng(9)
    statement, prompt = (index.ravel() for index in np.indices((6, 10)))
    label = np.where(rng.random(60) < np.linspace(0.05, 0.95, 10)[prompt], 1.0, rng.choice([0.0, 0.5], 60))
    said = np.where(rng.random(60) < 0.7, label, rng.choice([0.0, 0.5, 1.0], 60))
    labelled = rng.random(60) < 0.6
    rows: list[Row] = []
    for one in range(6):
        of_one = statement == one
        pairs = zip(label[of_one], labelled[of_one], strict=True)
        given = [float(value) if is_labelled else None for value, is_labelled in pairs]
        rows += [row | {"rubric_id": f"r{one}"} for row in won(said[of_one].tolist(), given)]
    ((row,),) = of_pairs(rows, "metric_win_matrix_corrected")
    n, more = int(labelled.sum()), int((~labelled).sum())
    weight, estimate, se = ppi(label[labelled], said[labelled], said[~labelled])
    rectified = label - weight * said
    moves = np.where(
        labelled, (rectified - rectified[labelled].mean()) / n, weight * (said - said[~labelled].mean()) / more
    )
    general, of_these = (max(one, se**2) ** 0.5 for one in two_ways(moves, statement, prompt, labelled))
    assert general > 1.1 * clustered(moves, statement, labelled, se**2)
    assert not wrong(row, {"ppi_win_rate": estimate, "ppi_win_rate_se": general, "ppi_lacks": None})
    assert not wrong(
        row, {f"ppi_win_rate_se{OF_THESE}": of_these, "ppi_win_rate": list(wilson_t(estimate, 60, general, 5))}
    )
    drawn = label[labelled].var(ddof=1) / n
    moves = np.where(labelled, (label - label[labelled].mean()) / n, 0)
    general, of_these = (max(one, drawn) ** 0.5 for one in two_ways(moves, statement, prompt, labelled))
    assert not wrong(row, {"people_win_rate_se": general, f"people_win_rate_se{OF_THESE}": of_these})


def test_what_is_lacking_is_said_and_the_labels_that_would_do() -> None:
    """Few labels, labels of one kind, labels of one statement, a judge that always says yes: each by its word."""
    rows: list[Row] = []
    for candidate, n, n_true, n_rubrics, says_yes in (
        ("few", 4, 2, 4, False), ("one kind", 30, 28, 10, False), ("one statement", 30, 15, 1, False),
        ("blind judge", 30, 15, 10, True), ("enough", 30, 15, 10, False),
    ):  # fmt: skip
        for unit in range(60):
            place = {"rubric_id": f"r{unit % n_rubrics}", "unit_id": f"{candidate}{unit}", "item": f"{candidate}{unit}",
                     "candidate": candidate}  # fmt: skip
            truth = unit < n_true or unit >= n
            rows.append(place | {"verdict": str(says_yes or truth != (unit % 7 == 0)).lower()})
            if unit < n:
                rows.append(place | {"provider": "human", "template_id": "people", "verdict": str(truth).lower()})
    (found,) = of_items(rows, "metric_compliance_corrected")
    lacks = {row["candidate"]: (row["ppi_lacks"], row["rogan_gladen_lacks"]) for row in found}
    assert lacks == {
        "few": ("labels", "labels"), "one kind": (None, "labels"), "one statement": ("statements", "statements"),
        "blind judge": (None, "judge"), "enough": (None, None),
    }  # fmt: skip
    for row in found:
        assert (row["ppi_compliance_lo"] is None) == (row["ppi_lacks"] is not None)
        assert (row["rogan_gladen_compliance_lo"] is None) == (row["rogan_gladen_lacks"] is not None)
    needed = {row["candidate"]: row["rogan_gladen_n_labels"] for row in found}
    for n, share in ((needed["one kind"], 3 / 32), (needed["enough"], 16 / 32)):
        assert stats.binom.sf(4, n, share) >= 0.95
        assert stats.binom.sf(4, n * 7 // 10, share) < 0.95


def test_corrected_rates_hold_for_statements_in_general() -> None:
    """Ten statements that differ: the intervals cover, where those for these statements alone hold .6 to .8."""
    found = corrected_planted.play(corrected_planted.DESIGNS["10 statements, sd 1.5"], 200, 3)
    assert min(found[name] for name in corrected_planted.CORRECTED) > 0.93 - 3 * 0.0154
    assert found[f"ppi_compliance{OF_THESE}"] < 0.75
    assert found[f"rogan_gladen_compliance{OF_THESE}"] < 0.9


def test_corrected_rates_hold_where_statements_share_outputs() -> None:
    """Forty outputs that ten statements share: outputs are drawn too. With statements alone .917 for PPI++."""
    found = corrected_planted.play(corrected_planted.DESIGNS["40 outputs, sd 1, by 10 statements each"], 300, 0)
    assert min(found[name] for name in corrected_planted.CORRECTED) > 0.93 - 3 * 0.0126
    assert found["ppi_compliance"] > 0.925


def test_a_rate_over_all_statements_holds_where_they_share_outputs() -> None:
    """Outputs that differ by a sd of .5, each judged by twenty statements: with statements alone, .911."""
    design = corrected_planted.DESIGNS["30 outputs, sd .5, by 20 statements, sd .3, each"]
    assert corrected_planted.play(design, 400, 0)[corrected_planted.OVERALL] > 0.935


def weighted_ppi(y: Numbers, f: Numbers, rest: Numbers, weight: Numbers) -> tuple[float, float, float]:
    """Return weight, estimate and standard error of PPI++ by labels that stand for different numbers of units."""
    n, more, a = len(y), len(rest), weight / weight.mean()
    dy, df = y - np.mean(a * y), f - np.mean(a * f)
    share = n * n / np.sum(a * a) / more
    believed = min(1.0, max(0.0, float(np.sum(a * a * dy * df) / np.sum(a * a * df * df) / (1 + share))))
    beside = (np.sum(rest) + np.sum((1 - a) * f)) / more
    residual = a * (dy - believed * df)
    return (
        believed,
        float(np.mean(a * y) + believed * (beside - np.mean(a * f))),
        float(np.sqrt(np.sum(residual**2) / n**2 + believed**2 * np.var(rest) / more)),
    )


def test_labels_count_by_how_many_units_they_stand_for() -> None:
    """Strata are in `purpose` of what was imported: PPI++, Rogan-Gladen and people's rate are numpy's, weighted."""
    design = corrected_planted.Corrected(rate=0.7, n_labels=80, n_outputs=300, drawn="five times the doubt")
    tables = corrected_planted.judgments(design, 1, 4)
    with views_over(tables) as connection:
        (row,) = result(connection, "FROM metric_compliance_corrected")
    people = {one["unit_id"]: one for one in tables["imported_judgments"].to_pylist()}
    judge = {one["item"]: one for one in tables["item_status"].to_pylist()}
    counts = Counter(one["purpose"] for one in people.values())
    f, y, w, statement = (
        np.array(column, float)
        for column in zip(
            *(
                (
                    judge[unit]["true_part"], one["verdict"] == "true",
                    int(one["purpose"].split()[1]) / counts[one["purpose"]], judge[unit]["rubric_id"][1:],
                )
                for unit, one in people.items()
            ), strict=True,
        )
    )  # fmt: skip
    rest = np.array([one["true_part"] for unit, one in judge.items() if unit not in people], float)
    assert w.max() > 2 * w.min()
    believed, estimate, se = weighted_ppi(y, f, rest, w)
    a, n, more = w / w.mean(), len(y), len(rest)
    effective = n**2 / np.sum(a * a)
    share = float(np.mean(a * y))
    true, false = a * y, a * (1 - y)
    q1, q0 = np.sum(true * f) / true.sum(), np.sum(false * (1 - f)) / false.sum()
    p = (rest.sum() + np.sum((1 - a) * f)) / more
    assert not wrong(row, {
        "n_labelled": n, "n_label_true": int(y.sum()), "effective_labels": effective, "people_compliance": share,
        "ppi_weight": believed, "ppi_compliance": estimate, f"ppi_compliance_se{OF_THESE}": se,
        f"people_compliance_lo{OF_THESE}": wilson(share, effective)[0],
        "sensitivity": q1, "specificity": q0, "rogan_gladen_compliance": (p + q0 - 1) / (q0 + q1 - 1),
    })  # fmt: skip
    moves = a * (y - share) / n
    own = float(np.sum(moves**2))
    assert not wrong(row, {"people_compliance_se": clustered(moves, statement.astype(int), np.full(n, True), own)})


def wilson(p: float, n: float) -> tuple[float, float]:
    z = float(stats.norm.ppf(0.975))
    middle, reach = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return (middle - reach) / (1 + z * z / n), (middle + reach) / (1 + z * z / n)


def test_weighted_labels_of_pairs() -> None:
    """Ties and labels of a half among them; a label that lacks a stratum has all count the same."""
    rng = np.random.default_rng(6)
    label, said = rng.choice([0.0, 0.5, 1.0], 120), rng.choice([0.0, 0.5, 1.0], 120)
    said = np.where(rng.random(120) < 0.6, label, said)
    labelled, is_hard = np.arange(120) < 50, np.arange(120) % 50 < 30
    given = [float(one) if is_in else None for one, is_in in zip(label, labelled, strict=True)]
    rows = won(said.tolist(), given)
    hard = {f"u{unit}" for unit in range(120) if is_hard[unit]}
    drawn = [
        row | ({"purpose": "disagreement 36" if row["unit_id"] in hard else "flip 84"} if "provider" in row else {})
        for row in rows
    ]
    weight = np.where(is_hard, 36 / 30, 84 / 20)[labelled]
    believed, estimate, se = weighted_ppi(label[labelled], said[labelled], said[~labelled], weight)
    ((row,),) = of_pairs(drawn, "metric_win_matrix_corrected")
    assert not wrong(row, {"ppi_weight": believed, "ppi_win_rate": estimate, f"ppi_win_rate_se{OF_THESE}": se})
    assert not wrong(row, {"people_win_rate": float(np.average(label[labelled], weights=weight))})
    ((row,),) = of_pairs([*drawn, *rows[2:3]], "metric_win_matrix_corrected")
    believed, estimate, se = ppi(label[labelled], said[labelled], said[~labelled])
    assert not wrong(row, {"ppi_weight": believed, "ppi_win_rate": estimate, f"ppi_win_rate_se{OF_THESE}": se})


def test_labels_that_lean_to_what_judges_differ_on_are_no_bias() -> None:
    """Five times as likely where two judges differ: weighed, all three rates hold; without weights, Rogan-Gladen fails.

    By doubt, PPI++ has a narrower interval than by strata.
    """
    name = "20 statements, labels by {}".format
    n_sets, found = 60, {}
    for drawn in ("strata", "doubt", "five times the doubt", "five times the doubt, without weights"):
        found[drawn] = corrected_planted.play(corrected_planted.DESIGNS[name(drawn)], n_sets, 2)
    for drawn, of in found.items():
        off = max(abs(of[f"{rate} mean"] - of["truth"]) for rate in corrected_planted.CORRECTED)
        assert (off > 0.05) == drawn.endswith("without weights")
        if off < 0.05:
            assert min(of[rate] for rate in corrected_planted.CORRECTED) > 0.93 - 3 * (0.05 * 0.95 / n_sets) ** 0.5
            assert off < 0.025
    assert found["doubt"]["ppi_compliance width"] < 0.95 * found["strata"]["ppi_compliance width"]


def test_a_verdict_counts_in_calibration_by_the_weight_of_its_label() -> None:
    """A label that stands for three is as good as three of the same item: rates, ranks and clustered errors."""
    rng = np.random.default_rng(11)
    rows = [
        CELL_DEFAULT | {
            "task": "compliance", "unit_id": f"u{unit}", "item_first": f"o{unit}", "value": "true", "truth": "true",
            "correct_part": float(rng.choice([0.0, 0.5, 1.0], p=[0.2, 0.1, 0.7])),
            "confidence": float(rng.choice([0.55, 0.62, 0.7, 0.81, 0.88, 0.97])), "weight": float(unit % 3 + 1),
        }
        for unit in range(60)
    ]  # fmt: skip
    copies = [row | {"weight": 1.0} for row in rows for _ in range(int(row["weight"]))]
    names = ("accuracy", "accuracy_se", "confidence_mean", "overconfidence", "brier", "brier_se", "brier_reliability",
             "brier_resolution", "ece10", "mce10", "n_inputs")  # fmt: skip
    for view, wanted in {"metric_calibration": names, "metric_calibration_bins": ("accuracy", "accuracy_se")}.items():
        found = []
        for given in (rows, copies):
            with views_over({"judged_truths": table(given)}) as connection:
                found.append(result(connection, f"FROM {view} ORDER BY ALL"))
        for weighed, copied in zip(*found, strict=True):
            assert not wrong(weighed, {name: copied[name] for name in wanted})
    w, hit, sure = (np.array([row[name] for row in rows]) for name in ("weight", "correct_part", "confidence"))
    pairs = np.outer(w, w) * np.outer(hit, 1 - hit) * (1 - np.eye(60))
    above = (sure[:, None] > sure) + 0.5 * (sure[:, None] == sure)
    with views_over({"judged_truths": table(rows)}) as connection:
        (row,) = result(connection, "FROM metric_calibration")
    assert not wrong(row, {"auroc": float((pairs * above).sum() / pairs.sum())})
    low, high = wilson(row["accuracy"], w.sum() ** 2 / np.sum(w * w))
    assert not wrong(row, {"accuracy_lo_these_items": low, "accuracy_hi_these_items": high})
