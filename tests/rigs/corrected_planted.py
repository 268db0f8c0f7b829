"""Outputs on statements, judged and partly labelled, with a planted rate: many sets of them, as studies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from batchpond.interop import labels
from tests.rigs.metrics import Numbers, column
from tests.rigs.sql import CELL_DEFAULT, Row, result, views_over

CORRECTED = ("ppi_compliance", "rogan_gladen_compliance", "people_compliance")
RATES = (*CORRECTED, "compliance")
OF_THESE = "_these_statements"
OVERALL = "overall"
"""The judge's own rate, of metric_compliance_overall, against how often it says yes."""


@dataclass(frozen=True)
class Corrected:
    """A design: what is drawn anew for each set. A statement moves the log-odds of its outputs by a normal draw.

    Each output is judged by one statement; where `is_grid` by all of them, and has an effect of its own on all.
    """

    rate: float = 0.8  # of a statement in the middle
    sensitivity: float = 0.9
    specificity: float = 0.8
    n_labels: int = 100
    n_statements: int = 20
    statement_sd: float = 0.0
    judge_sd: float = 0.0  # of its log-odds to be right, by statement
    n_outputs: int = 400
    is_grid: bool = False
    output_sd: float = 0.0
    people_right: float = 1.0  # each of two, who differ below 1; what they say on average is the rate then
    repeats: int = 1  # of the judge, each as often right as one is
    drawn: str = "lot"  # which outputs are labelled: see `_labelled`


DESIGNS = {
    "10 labels": Corrected(n_labels=10),
    "30 labels": Corrected(n_labels=30),
    "30 labels, rate .95": Corrected(rate=0.95, sensitivity=0.95, specificity=0.7, n_labels=30),
    "100 labels, rate .9": Corrected(rate=0.9),
    "10 statements, sd 1.5": Corrected(n_statements=10, statement_sd=1.5),
    "10 statements, sd 1.5, 30 labels": Corrected(n_statements=10, statement_sd=1.5, n_labels=30),
    "20 statements, sd 1.5": Corrected(statement_sd=1.5),
    "10 statements, sd 1.5, judge sd 1": Corrected(n_statements=10, statement_sd=1.5, judge_sd=1),
    "40 statements, sd 1, rate .5": Corrected(rate=0.5, n_statements=40, statement_sd=1, n_labels=60),
    "40 outputs, sd 1, by 10 statements each": Corrected(
        n_labels=200, n_statements=10, n_outputs=40, is_grid=True, output_sd=1
    ),
    "20 outputs, sd 1, by 20 statements, sd 1, each": Corrected(
        n_labels=150, statement_sd=1, n_outputs=20, is_grid=True, output_sd=1
    ),
    "30 outputs, sd .5, by 20 statements, sd .3, each": Corrected(
        rate=0.6, n_labels=150, statement_sd=0.3, n_outputs=30, is_grid=True, output_sd=0.5
    ),
    "two people, each right of .8": Corrected(people_right=0.8),
    "40 outputs, sd 0, by 10 statements each": Corrected(n_labels=200, n_statements=10, n_outputs=40, is_grid=True),
    "20 statements, sd 1, 2 repeats": Corrected(rate=0.6, sensitivity=0.75, statement_sd=1, repeats=2),
    "20 statements, sd 1, 3 repeats": Corrected(rate=0.6, sensitivity=0.75, statement_sd=1, repeats=3),
    "20 statements, sd 0, 5 repeats": Corrected(rate=0.6, sensitivity=0.75, repeats=5),
    "40 outputs, sd 1, by 10 statements each, 5 repeats": Corrected(
        sensitivity=0.75, n_labels=200, n_statements=10, n_outputs=40, is_grid=True, output_sd=1, repeats=5
    ),
} | {
    f"{name}, labels by {drawn}": Corrected(drawn=drawn, **about)
    for name, about in {
        "20 statements": {},
        "20 statements, sd 1": {"rate": 0.7, "statement_sd": 1.0, "n_outputs": 800},
        "2000 outputs": {"rate": 0.76, "sensitivity": 0.95, "specificity": 0.9, "n_outputs": 2000},
    }.items()
    for drawn in ("strata", "doubt", "five times the doubt", "five times the doubt, without weights")
}  # fmt: skip


def _logistic(x: Numbers) -> Numbers:
    return 1 / (1 + np.exp(-x))


def _shares(mid: float, sd: float, shape: tuple[int, int], rng: np.random.Generator) -> Numbers:
    return _logistic(np.log(mid / (1 - mid)) + rng.normal(0, sd, shape))


def _rate(design: Corrected) -> float:
    spread = float(np.hypot(design.statement_sd, design.output_sd))
    return float(_shares(design.rate, spread, (1_000_000, 1), np.random.default_rng(1)).mean())


def truth(design: Corrected) -> float:
    """Return the rate over all statements that might be, by what people say."""
    return _rate(design) * design.people_right + (1 - _rate(design)) * (1 - design.people_right)


def says(design: Corrected) -> float:
    """Return how often the judge says yes over all statements that might be, where its errors are the same on each."""
    rate = _rate(design)
    return rate * design.sensitivity + (1 - rate) * (1 - design.specificity)


def judgments(design: Corrected, n_sets: int, seed: int) -> dict[str, pa.Table]:
    """Return `item_status` with a study per set, and what people said as `truths`."""
    rng = np.random.default_rng(seed)
    shape = (n_sets, design.n_statements)
    n_judged = design.n_outputs * (design.n_statements if design.is_grid else 1)
    statement, output = np.arange(n_judged) % design.n_statements, np.arange(n_judged)
    if design.is_grid:
        output = output // design.n_statements
    effect = rng.normal(0, design.output_sd, (n_sets, design.n_outputs))[:, output] if design.output_sd else 0.0
    rate, right_yes, right_no = (
        _shares(mid, sd, shape, rng)[:, statement]
        for mid, sd in (
            (design.rate, design.statement_sd),
            (design.sensitivity, design.judge_sd),
            (design.specificity, design.judge_sd),
        )
    )
    rate = _logistic(np.log(rate / (1 - rate)) + effect)
    complies = rng.random(rate.shape) < rate
    asked = (design.repeats, *rate.shape)
    said = np.where(complies, rng.random(asked) < right_yes, rng.random(asked) >= right_no).mean(axis=0)
    votes = complies[None] == (rng.random((2, *rate.shape)) < design.people_right)
    share = votes.mean(axis=0).ravel()
    is_labelled, standing = _labelled(design, complies, said, rng)
    study, place = (index.ravel() for index in np.indices(rate.shape))
    words = np.array(["false", "true"])
    majority = pa.array(words[(share > 0.5).astype(int)], mask=share == 0.5)
    units = np.array([f"u{number}" for number in range(design.n_outputs)])
    places = {
        "study": np.array([f"s{number:05}" for number in range(n_sets)])[study],
        "task": np.repeat("compliance", study.size),
        "rubric_id": np.array([f"r{number}" for number in range(design.n_statements)])[statement[place]],
        "unit_id": units[output[place]],
    }
    judge = {name: np.repeat(CELL_DEFAULT[name], study.size) for name in ("template_id", "provider", "request_model")}
    judge |= {"thinking": np.repeat("none", study.size), "candidate": np.repeat("c", study.size)}
    judge |= {"status": np.repeat("decided", study.size)}
    status = pa.table(places | judge | {"item": places["unit_id"], "true_part": said.ravel()})
    of_people = places | {"item_lo": places["unit_id"], "truth": majority, "share": share}
    kept = pa.array(is_labelled.ravel())
    if design.drawn != "lot":
        return {"item_status": status, "imported_judgments": _imported(places, complies, standing, design).filter(kept)}
    return {"item_status": status, "truths": pa.table(of_people | {"weight": np.ones(study.size)}).filter(kept)}


def _labelled(design: Corrected, complies: Numbers, said: Numbers, rng: np.random.Generator) -> tuple[Numbers, Numbers]:
    """Return which outputs are labelled, and on which a second judge, who is as good, differs from the first.

    By lot, by strata in their true shares, by doubt in two draws as `label` shares them out, or with five times the
    chance where the judges differ.
    """
    lot = rng.random(complies.shape)
    if design.drawn == "lot":
        return lot.argsort(axis=1).argsort(axis=1) < design.n_labels, np.zeros(complies.shape, bool)
    right = np.where(complies, design.sensitivity, design.specificity)
    second = np.where(rng.random(complies.shape) < right, complies, ~complies)
    differs = second != said
    if design.drawn.startswith("five"):
        chance = -np.log1p(-lot) / np.where(differs, 5, 1)
        return chance.argsort(axis=1).argsort(axis=1) < design.n_labels, differs
    wrong = ((said != complies) + (second != complies).astype(float)) / 2
    found = np.zeros(complies.shape, bool)
    for at, is_doubtful in enumerate(differs):
        places = [np.flatnonzero(is_doubtful == one)[lot[at, is_doubtful == one].argsort()] for one in (False, True)]
        taken = [0, 0]
        for n in (design.n_labels // 3, design.n_labels - design.n_labels // 3):
            strata = [
                {"standing": name, "n_units": len(of), "n_labelled": n_taken, "n_told": n_taken,
                 "n_wrong": float(wrong[at, of[:n_taken]].sum())}
                for name, of, n_taken in zip(("agreement", "disagreement"), places, taken, strict=True)
            ]  # fmt: skip
            shares = labels.shared_out(strata, n)
            if design.drawn == "strata":
                shares = [n - round(n * is_doubtful.mean()), round(n * is_doubtful.mean())]
            taken = [n_taken + more for n_taken, more in zip(taken, shares, strict=True)]
        for of, n_taken in zip(places, taken, strict=True):
            found[at, of[:n_taken]] = True
    return found, differs


def _imported(places: dict[str, Numbers], complies: Numbers, differs: Numbers, design: Corrected) -> pa.Table:
    """Return what one person says of each output as it is imported, with its stratum if labels are weighed."""
    n_units = np.where(differs, differs.sum(axis=1, keepdims=True), (~differs).sum(axis=1, keepdims=True)).ravel()
    names = np.where(differs.ravel(), "disagreement", "agreement")
    of_stratum = [f"{name} {n}" for name, n in zip(names, n_units, strict=True)]
    size, is_weighed = len(of_stratum), not design.drawn.endswith("without weights")
    people = {"provider": "human", "request_model": "anna", "outcome": "decided", "template_id": "people"}
    return pa.table(
        places
        | {name: np.repeat(word, size) for name, word in people.items()}
        | {"item_first": places["unit_id"], "verdict": np.where(complies.ravel(), "true", "false")}
        | {"purpose": of_stratum if is_weighed else pa.nulls(size, pa.string())}
    )


def play(design: Corrected, n_sets: int, seed: int) -> dict[str, float]:
    """Return for each rate and target which share of the intervals that there are hold the truth, and how many lack."""
    with views_over(judgments(design, n_sets, seed)) as connection:
        rows = result(connection, "FROM metric_compliance_corrected")
        overall = result(connection, "FROM metric_compliance_overall")
    assert len(rows) == len(overall) == n_sets
    wanted, found = truth(design), {}
    if design.drawn != "lot":
        for name in CORRECTED:
            found[f"{name} mean"], found[f"{name} width"] = float(np.nanmean(column(rows, name))), _width(rows, name)
        found["truth"] = wanted
    for name in RATES:
        for target in ("", OF_THESE):
            found[f"{name}{target}"], found[f"{name}{target} lacks"] = _covered(rows, name, target, wanted)
    if not design.judge_sd:
        found[OVERALL], found[f"{OVERALL} lacks"] = _covered(overall, "compliance", "", says(design))
    return found


def _width(rows: list[Row], name: str) -> float:
    return float(np.nanmean(column(rows, f"{name}_hi") - column(rows, f"{name}_lo")))


def _covered(rows: list[Row], name: str, target: str, wanted: float) -> tuple[float, float]:
    low, high = (column(rows, f"{name}_{end}{target}") for end in ("lo", "hi"))
    is_there = ~np.isnan(low)
    covered = (low <= wanted) & (wanted <= high)
    return float(covered[is_there].mean()) if is_there.any() else float("nan"), float(1 - is_there.mean())
