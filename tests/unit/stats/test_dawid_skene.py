"""Dawid and Skene's model equals what they published, what an independent package finds, and what was planted."""

from __future__ import annotations

import warnings
from itertools import product
from math import log

import numpy as np
import pytest
from scipy.stats import qmc

from batchpond.stats import dawid_skene
from batchpond.stats.arrays import Floats, Ints
from batchpond.stats.dawid_skene import Estimate, fit

# Dawid and Skene 1979, table 1: 45 patients, what the first anaesthetist said three times and four others once.
ANAESTHETISTS = """
    111 1 1 1 1|333 4 3 3 4|112 2 1 2 2|222 3 1 2 1|222 3 2 2 2|222 3 3 2 2|122 2 1 1 1|333 3 4 3 3|222 2 2 2 3|
    232 2 2 2 3|444 4 4 4 4|222 3 3 4 3|111 1 1 1 1|222 3 2 1 2|121 1 1 1 1|111 2 1 1 1|111 1 1 1 1|111 1 1 1 1|
    222 2 2 2 1|222 1 3 2 2|222 2 2 2 2|222 2 2 2 1|222 3 2 2 2|221 2 2 2 2|111 1 1 1 1|111 1 1 1 1|232 2 2 2 2|
    111 1 1 1 1|111 1 1 1 1|112 1 1 2 1|111 1 1 1 1|333 3 2 3 3|111 1 1 1 1|222 2 2 2 2|222 3 2 3 2|433 4 3 4 3|
    221 2 2 3 2|232 3 2 3 3|333 3 4 3 2|111 1 1 1 1|111 1 1 1 1|121 2 1 1 1|232 2 2 2 2|121 1 1 1 1|222 2 2 2 2"""
Votes = tuple[Ints, Ints, Ints, Ints]


def votes_of(rows: list[tuple[int, int, int]]) -> Votes:
    """Return votes of (unit, judge, said) as one jury's."""
    unit, judge, said = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    return unit, judge, said, np.zeros_like(unit)


def published() -> Votes:
    """Return the votes of their table."""
    rows = [patient.split() for patient in ANAESTHETISTS.split("|")]
    return votes_of([(unit, judge, int(one) - 1)
                     for unit, row in enumerate(rows) for judge, said in enumerate(row) for one in said])  # fmt: skip


def planted(seed: int, n_units: int, confusion: Floats, share_asked: float = 1.0) -> tuple[Votes, Ints]:
    """Return votes of judges who confuse words as told, and what the units are."""
    rng = np.random.default_rng(seed)
    n_judges, n_words, _ = confusion.shape
    truth = rng.integers(0, n_words, n_units)
    rows = [
        (unit, judge, int(rng.choice(n_words, p=confusion[judge, truth[unit]])))
        for unit, judge in product(range(n_units), range(n_judges))
        if judge == unit % n_judges or rng.random() < share_asked
    ]
    return votes_of(rows), truth


def likelihood(found: Estimate, votes: Votes) -> float:
    """Return the log-likelihood of votes (their 2.7), by the shares that the posterior comes to."""
    n = np.log(np.tile(np.fmax(found.posterior.mean(axis=0), 1e-300), (len(found.posterior), 1)))
    for unit, judge, said, _ in zip(*votes, strict=True):
        n[unit] += np.log(np.fmax(found.confusion[judge, :, said], 1e-300))
    return float(sum(log(row) for row in np.exp(n).sum(axis=1)))


CONFUSION = np.array([
    [[0.9, 0.05, 0.05], [0.1, 0.8, 0.1], [0.05, 0.15, 0.8]],
    [[0.7, 0.2, 0.1], [0.05, 0.9, 0.05], [0.1, 0.1, 0.8]],
    [[0.8, 0.1, 0.1], [0.3, 0.6, 0.1], [0.2, 0.1, 0.7]],
    [[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7]],
])  # fmt: skip


def test_the_anaesthetists_are_as_published() -> None:
    """Of patients, .40 .42 .11 .07 are of each class; the first anaesthetist's errors, and the doubtful patients."""
    found = fit(*published())
    assert found.is_converged.all()
    assert found.posterior.mean(axis=0).round(2).tolist() == [0.4, 0.42, 0.11, 0.07]
    assert found.confusion[0].round(2).tolist() == [
        [0.89, 0.11, 0, 0], [0.07, 0.88, 0.05, 0], [0, 0.34, 0.66, 0], [0, 0, 0.56, 0.44]
    ]  # fmt: skip
    doubtful = {patient + 1: row.round(2).tolist() for patient, row in enumerate(found.posterior) if row.max() < 0.99}
    assert doubtful == {7: [0.98, 0.02, 0, 0], 35: [0, 0.95, 0.05, 0], 38: [0, 0.02, 0.98, 0]}
    assert np.isclose(found.confusion.sum(axis=2), 1).all()


@pytest.mark.parametrize("seed", range(4))
def test_an_independent_package_finds_the_same(seed: int) -> None:
    """crowd-kit, where it is installed, on the published votes and on planted ones of which some are lacking."""
    pd = pytest.importorskip("pandas", reason="NOT CHECKED: crowd-kit is not installed")
    with warnings.catch_warnings(action="ignore"):
        crowdkit = pytest.importorskip("crowdkit.aggregation", reason="NOT CHECKED: crowd-kit is not installed")
        votes = planted(seed, 80, CONFUSION, 0.7)[0] if seed else published()
        frame = pd.DataFrame(dict(zip(("task", "worker", "label"), votes[:3], strict=True)))
        found = fit(*votes)
        other = crowdkit.DawidSkene(n_iter=2 * found.iterations, tol=-np.inf).fit(frame).probas_
    assert found.is_converged.all()
    assert found.posterior == pytest.approx(other.sort_index()[range(other.shape[1])].to_numpy(), abs=1e-4)


def test_what_was_planted_is_found() -> None:
    """Confusion to .03 by 6,000 units of which each judge saw most, and more units right than a majority has."""
    votes, truth = planted(1, 6_000, CONFUSION, 0.8)
    found = fit(*votes)
    assert found.is_converged.all()
    assert np.abs(found.confusion - CONFUSION).max() < 0.03
    counts = np.zeros((6_000, 3))
    np.add.at(counts, (votes[0], votes[2]), 1)
    right = float(np.mean(found.posterior.argmax(axis=1) == truth))
    assert right > float(np.mean(counts.argmax(axis=1) == truth)) + 0.01
    sure = found.posterior.max(axis=1)
    assert abs(float(sure.mean()) - right) < 0.02


def test_no_step_from_it_is_likelier() -> None:
    """It is the top of a hill: no other confusion close by makes the votes likelier."""
    votes, _ = planted(3, 60, CONFUSION, 0.9)
    found = fit(*votes)
    top = likelihood(found, votes)
    for draw in qmc.Sobol(found.confusion.size, seed=1).random(32):
        moved = np.fmax(found.confusion * (1 + 0.1 * (draw.reshape(found.confusion.shape) - 0.5)), 1e-12)
        moved /= moved.sum(axis=2, keepdims=True)
        other = Estimate(found.posterior, moved, 0, found.is_converged)
        assert likelihood(other, votes) < top + 1e-6


def test_juries_at_once_are_juries_one_by_one() -> None:
    """Each has its own shares of words and its own judges; what another one says moves nothing."""
    one, other = planted(5, 50, CONFUSION)[0], planted(6, 70, CONFUSION[::-1], 0.8)[0]
    both = [np.concatenate([a, b + shift]) for a, b, shift in zip(one, other, (50, 4, 0, 1), strict=True)]
    together, *alone = fit(*both), fit(*one), fit(*other)
    assert together.is_converged.tolist() == [True, True]
    assert together.posterior == pytest.approx(np.concatenate([each.posterior for each in alone]), abs=1e-4)
    assert together.confusion == pytest.approx(np.concatenate([each.confusion for each in alone]), abs=1e-4)


def test_judges_without_a_common_unit_and_units_of_one_judge_are_estimated_as_said() -> None:
    """Nothing contradicts such a judge, so that it is taken at its word; a word that no unit is of has no row."""
    found = fit(*votes_of([(0, 0, 0), (1, 0, 0), (2, 1, 1), (3, 1, 1), (3, 1, 1)]))
    assert found.posterior.round(6).tolist() == [[1, 0], [1, 0], [0, 1], [0, 1]]
    assert np.isnan(found.confusion[0, 1]).all()
    assert found.confusion[1, 1].tolist() == [0, 1]


def test_the_search_ends_and_says_where_it_has_not_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dawid_skene, "ITERATIONS_MAX", 3)
    found = fit(*published())
    assert (found.iterations, found.is_converged.tolist()) == (3, [False])
    assert np.isclose(found.posterior.sum(axis=1), 1).all()
