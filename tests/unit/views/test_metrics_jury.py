"""Juries: the errors of their accuracy equal numpy's own, and their intervals hold the truth as often as said."""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from scipy import stats

from tests.rigs.jury_planted import DESIGNS, play
from tests.rigs.metrics import of_items, of_pairs, wrong
from tests.rigs.sql import Row, judged_items, result, table, views_over

SKILLS = {"a": 0.8, "b": 0.6, "c": 0.55}
N_PARTS = 19
Unit = tuple[str, ...]


def verdict(words: dict[str, str], right: Counter[str], asked: Counter[str]) -> str | None:
    """Return the weighted word of one unit by what judges did elsewhere; None for fewer than two, and where even."""
    known = {judge: right[judge] for judge in words if asked[judge]}
    weight: dict[str, float] = defaultdict(float)
    for judge, word in words.items():
        weight[word] += math.log((right[judge] + 1) / (asked[judge] - right[judge] + 1)) if asked[judge] else 0.0
    if len(words) < 2:
        return None
    if not known:
        counts = Counter(words.values()).most_common(2)
        return counts[0][0] if len(counts) == 1 or counts[0][1] > counts[1][1] else None
    first, *rest = sorted(weight.values(), reverse=True)
    heaviest = max(weight, key=lambda word: weight[word])
    return heaviest if first > max(rest[0] if rest else 0.0, 0.0) + 1e-9 else None


def accuracy(units: dict[Unit, dict[str, str]], truth: dict[Unit, str]) -> float:
    """Return the share of verdicts that are right, each unit's own label left out of the weights."""
    asked, right = Counter[str](), Counter[str]()
    for unit, words in units.items():
        asked.update(list(words))
        right.update(judge for judge, word in words.items() if word == truth[unit])
    hits = []
    for unit, words in units.items():
        own = Counter(judge for judge, word in words.items() if word == truth[unit])
        said = verdict(words, right - own, asked - Counter(list(words)))
        hits += [] if said is None else [said == truth[unit]]
    return float(np.mean(hits))


def left_out(units: dict[Unit, dict[str, str]], truth: dict[Unit, str], clusters: dict[Unit, list[Unit]]) -> float:
    """Return the standard error by halves of the clusters, with the weights made anew from each."""
    names = sorted(
        {cluster for unit in units for cluster in clusters[unit]},
        key=lambda cluster: (hashlib.md5("/".join(cluster).encode(), usedforsecurity=False).hexdigest(), cluster),
    )
    part = {cluster: at % N_PARTS for at, cluster in enumerate(names)}
    squares = {number**2 % N_PARTS for number in range(1, N_PARTS)}
    found, kept_share = [], []
    for shift in range(N_PARTS):
        kept = {cluster for cluster in names if (part[cluster] + shift) % N_PARTS not in squares}
        found.append(accuracy({unit: words for unit, words in units.items() if kept.issuperset(clusters[unit])}, truth))
        kept_share.append(len(kept) / len(names))
    shares = np.array(kept_share)
    v_half = np.mean(shares / (1 - shares) * (np.array(found) - np.mean(found)) ** 2)
    whole = accuracy(units, truth)
    n = sum(len(words) > 1 for words in units.values())
    # every unit here has a verdict; a pair is a part of two items, and left out with either
    n_sides = sum(len(clusters[unit]) for unit in units) / len(units)
    per_unit = whole * (1 - whole) / n
    return math.sqrt(max(v_half - (n_sides - 1) * per_unit * np.mean(1 / shares), per_unit))


@pytest.mark.parametrize("seed", range(3))
def test_the_error_of_a_weighted_jury_over_items_is_numpys(seed: int) -> None:
    """Items in parts by md5, halves of these, weights made anew from each."""
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    units: dict[Unit, dict[str, str]] = {}
    truth: dict[Unit, str] = {}
    for number in range(47):
        item = f"i{number}"
        truth[(item,)] = ("true", "false")[rng.integers(2)]
        other = {"true": "false", "false": "true"}[truth[(item,)]]
        units[(item,)] = {name: truth[(item,)] if rng.random() < p else other for name, p in SKILLS.items()}
        said = [("p", name, word) for name, word in units[(item,)].items()] + [("human", "h", truth[(item,)])]
        rows += [{"provider": who, "request_model": name, "item": item, "verdict": word} for who, name, word in said]
    ((found,),) = (of_items(rows, "metric_jury"),)
    assert found[0]["weighted_accuracy"] == pytest.approx(accuracy(units, truth), abs=1e-12)
    clusters = {unit: [("", unit[0])] for unit in units}
    assert found[0]["weighted_accuracy_se"] == pytest.approx(left_out(units, truth, clusters), rel=1e-9)


def test_the_error_of_a_weighted_jury_over_pairs_is_numpys() -> None:
    """A pair goes where either of its items goes."""
    rng = np.random.default_rng(7)
    rows: list[Row] = []
    units: dict[Unit, dict[str, str]] = {}
    truth: dict[Unit, str] = {}
    names = [f"t{number:02}" for number in range(24)]
    for one, two in ((a, b) for at, a in enumerate(names) for b in names[at + 1 :] if rng.random() < 0.4):
        truth[one, two] = ("lo", "hi")[rng.integers(2)]
        other = {"lo": "hi", "hi": "lo"}[truth[one, two]]
        units[one, two] = {name: truth[one, two] if rng.random() < p else other for name, p in SKILLS.items()}
        said = [("p", name, word) for name, word in units[one, two].items()] + [("human", "h", truth[one, two])]
        rows += [
            {"provider": who, "request_model": name, "item_first": first, "item_second": second,
             "verdict": "first" if (word == "lo") == (first == one) else "second"}
            for who, name, word in said for first, second in ((one, two), (two, one))
        ]  # fmt: skip
    ((found,),) = (of_pairs(rows, "metric_jury"),)
    assert found[0]["weighted_accuracy"] == pytest.approx(accuracy(units, truth), abs=1e-12)
    clusters = {unit: [("", item) for item in unit] for unit in units}
    assert found[0]["weighted_accuracy_se"] == pytest.approx(left_out(units, truth, clusters), rel=1e-9)


def test_labels_that_were_drawn_by_lot_are_hardly_ever_called_anything_else() -> None:
    """Of ten units of which seven are unanimous a lot takes the other three once in 120 times, which no p is below."""
    rows: list[Row] = [
        {"provider": who, "request_model": name, "item": f"i{number}", "verdict": word, "rubric_id": rubric}
        for rubric, n_units, n_split in (("few", 10, 3), ("many", 60, 15)) for number in range(n_units)
        for who, name, word in [("p", "a", "true"), ("p", "b", "false" if number < n_split else "true"),
                                *([("human", "h", "true")] if number < min(n_split, 12) else [])]
    ]  # fmt: skip
    found = {row["rubric_id"]: row["p_labels_alike"] for row in of_items(rows, "metric_jury")[0]}
    for rubric, n, n_labelled, n_unanimous in (("few", 10, 3, 7), ("many", 60, 12, 45)):
        drawn = stats.hypergeom(n, n_unanimous, n_labelled)
        assert found[rubric] == pytest.approx(2 * stats.norm.sf((drawn.mean() - 0.5) / drawn.std()), rel=1e-6), rubric
    assert found["few"] > 2 * stats.hypergeom(10, 7, 3).pmf(0) > found["many"]


@pytest.mark.parametrize("name", ["jury of three", "jury with one worse than chance", "jury of three, 3 repeats"])
def test_intervals_of_a_jury_hold_the_truth(name: str) -> None:
    """For items in general, by 100 studies; `tests.sweeps.coverage --of jury` plays all designs."""
    found = play(DESIGNS[name], 100, 3)
    for rate in ("unanimous_share", "majority_accuracy", "weighted_accuracy"):
        assert found[rate] >= 0.88, rate
        assert abs(found[f"{rate} off by"]) < 0.02


def test_a_jury_is_measured_by_what_each_label_stands_for() -> None:
    """Labels that lean to what judges differ on: accuracies and the error of the majority's are numpy's, weighted."""
    rng = np.random.default_rng(12)
    truth = rng.random(90) < 0.6
    said = np.where(rng.random((3, 90)) < np.array([[0.9], [0.75], [0.7]]), truth, ~truth)
    differs = ~(said == said[0]).all(axis=0)
    labelled = np.where(differs, np.arange(90) % 4 < 3, np.arange(90) % 5 == 0)
    rows = [
        {"item": f"o{unit}", "request_model": f"j{judge}", "verdict": str(bool(said[judge, unit])).lower()}
        for unit in range(90)
        for judge in range(3)
    ]
    people = [
        {"study": "study", "task": "compliance", "rubric_id": "rubric", "unit_id": "", "provider": "human",
         "request_model": "anna", "outcome": "decided", "item_first": f"o{unit}",
         "verdict": str(bool(truth[unit])).lower(),
         "purpose": f"disagreement {differs.sum()}" if differs[unit] else f"agreement {(~differs).sum()}"}
        for unit in np.flatnonzero(labelled)
    ]  # fmt: skip
    given = {"item_judgments": table(judged_items(rows)), "imported_judgments": table(people)}
    with views_over(given) as connection:
        (row,) = result(connection, "FROM metric_jury")
    w = np.where(differs, differs.sum() / (differs & labelled).sum(), (~differs).sum() / (~differs & labelled).sum())
    w, hit = w[labelled], ((said.sum(axis=0) > 1) == truth)[labelled]
    p, n, g = float(np.average(hit, weights=w)), w.sum() ** 2 / np.sum(w * w), len(w)
    jack = (g - 1) / g * np.sum(((np.sum(w * hit) - w * hit) / (w.sum() - w) - p) ** 2)
    best = max(float(np.average(one[labelled] == truth[labelled], weights=w)) for one in said)
    assert not wrong(row, {
        "n_labelled": g, "majority_accuracy": p, "majority_accuracy_se": float(max(jack, p * (1 - p) / n)) ** 0.5,
        "best_judge_accuracy": best, "majority_accuracy_min": p, "majority_accuracy_max": p,
        "unanimous_share": float(1 - differs.mean()),
    })  # fmt: skip
    assert abs(p - hit.mean()) > 0.03
