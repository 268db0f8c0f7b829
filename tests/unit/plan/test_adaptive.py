"""Adaptive pairs: what each round asks, and that it is worth it; all in memory."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchpond.errors import StudyError
from batchpond.plan.rounds import adaptive
from batchpond.plan.rounds.adaptive import Asked, Purpose, Stop
from batchpond.stats import adaptive as estimates
from batchpond.stats import votes
from batchpond.stats.adaptive import Belief, Candidates
from batchpond.study.file import load
from batchpond.study.spec import AdaptiveSpec, PairsSpec, Study, from_config, to_config
from tests.rigs.adaptive_study import Row, judge_of, names_of, play, rho_map, table_of
from tests.rigs.stage_study import write_files

SPEC = PairsSpec(reverse=0.1, adaptive=AdaptiveSpec(rounds=4))
TYPICAL_SD = 3.0


def played(n_items: int, seed: int, spec: PairsSpec = SPEC, sd: float = TYPICAL_SD) -> list[list[Row]]:
    """Return the rounds of a planted judge's items."""
    rng = np.random.default_rng(seed)
    return play(n_items, spec, seed, judge_of(rng.normal(0, sd, n_items), rng))


def degrees(n_items: int, rows: list[Row], *purposes: Purpose) -> list[int]:
    """Return in how many of the pairs of some purposes each item is."""
    counts = Counter(item for row in rows if row[2] in purposes for item in row[:2])
    return [counts[item] for item in range(n_items)]


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 40), st.integers(0, 1_000), st.integers(1, 5))
def test_rounds_are_deterministic_balanced_connected_and_capped(n_items: int, seed: int, per_item: int) -> None:
    """Whatever the judge says: the same answers give the same rounds, and no ordered pair is ever asked twice."""
    spec = PairsSpec(reverse=0.2, adaptive=AdaptiveSpec(rounds=3, per_item=per_item, stop_stale=False))
    rounds = played(n_items, seed, spec)
    assert rounds == played(n_items, seed, spec)
    start, *later = rounds
    n_start = min(4, n_items - 1)
    assert max(degrees(n_items, start, Purpose.START)) <= n_start + 1
    assert sum(degrees(n_items, start, Purpose.START)) >= n_items * (n_start - 1) - 1
    assert votes.components(table_of(n_items, start)).tolist() == [0] * n_items
    for rows in later:
        assert max(degrees(n_items, rows, Purpose.GAIN)) <= math.ceil(1.5 * per_item)
        assert {row[2] for row in rows} <= {Purpose.GAIN, Purpose.HOLDOUT, Purpose.REVERSE}
    ordered = [row[:2] for rows in rounds for row in rows]
    assert len(set(ordered)) == len(ordered)


def test_later_rounds_hold_out_a_tenth_and_reverse_a_tenth() -> None:
    """Held-out pairs are asked for nothing else, and reversals are of pairs judged before."""
    rounds = played(50, seed=3)
    counts = [Counter(row[2] for row in rows) for rows in rounds]
    assert counts == [{"start": 100}, *[{"gain": 75, "holdout": 8, "reverse": 8}] * 3]
    rows = [row for one in rounds for row in one]
    assert adaptive.n_of_rounds(50, SPEC) == [len(one) for one in rounds]
    held_out = {frozenset(row[:2]) for row in rows if row[2] == Purpose.HOLDOUT}
    assert len(held_out) == 24
    assert not held_out & {frozenset(row[:2]) for row in rows if row[2] != Purpose.HOLDOUT}
    before = {row[:2] for row in rows}
    assert all((second, first) in before for first, second, purpose, *_ in rows if purpose == Purpose.REVERSE)


def test_an_item_stands_first_about_half_of_the_time() -> None:
    """New pairs go by who stood first less often, so a position bias falls on all alike."""
    rows = [row for one in played(30, seed=1) for row in one if row[2] in {"start", "gain"}]
    net = Counter(row[0] for row in rows)
    net.subtract(row[1] for row in rows)
    assert max(map(abs, net.values())) <= 3


def test_what_is_held_out_is_the_same_for_every_judge_and_never_decides() -> None:
    """Two judges are asked the same pairs first and about the same held-out ones; held-out answers change nothing."""
    one, other = played(40, seed=5), play(40, SPEC, 5, judge_of(np.arange(40.0), np.random.default_rng(0)))
    assert [row[:2] for row in one[0]] == [row[:2] for row in other[0]]
    pairs = [[row[:2] for rows in rounds for row in rows if row[2] == "holdout"] for rounds in (one, other)]
    assert pairs[0] == pairs[1]
    rows = [row for rounds in one[:2] for row in rounds]
    turned = [(*row[:4], "tie" if row[2] == "holdout" else row[4]) for row in rows]
    keys = adaptive.keys_of(names_of(40))
    chosen = [adaptive.next_round(keys, Asked.of(said), SPEC, adaptive.seed_of(5, "main")) for said in (rows, turned)]
    assert chosen[0] == chosen[1]


def test_what_failed_may_be_chosen_again_in_the_other_order() -> None:
    """A pair without a verdict counts as not judged: nobody asks the same question twice, or holds its gain half."""
    rng = np.random.default_rng(2)
    say = judge_of(rng.normal(0, 1, 12), rng)
    rounds = play(12, SPEC, 2, lambda a, b: None if (a + b) % 3 == 0 else say(a, b))
    rows = [row for one in rounds for row in one]
    failed = {row[:2] for row in rows[: len(rounds[0])] if row[4] is None}
    again = [row for row in rows if (row[1], row[0]) in failed]
    assert again
    assert {row[2] for row in again} == {"gain"}


def test_a_study_that_is_given_more_rounds_later_begins_with_the_same_ones() -> None:
    """So none of its answers is bought again."""
    short, long = (PairsSpec(reverse=0.1, adaptive=AdaptiveSpec(rounds=n, stop_stale=False)) for n in (3, 5))
    assert played(30, 2, long)[:3] == played(30, 2, short)


def stop_of(rounds: list[list[Row]], n_items: int, spec: PairsSpec, seed: int) -> object:
    """Return why a cell is asked no further."""
    asked = Asked.of([row for one in rounds for row in one])
    return adaptive.next_round(adaptive.keys_of(names_of(n_items)), asked, spec, adaptive.seed_of(seed, "main"))


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (SPEC, Stop.ROUNDS),
        (PairsSpec(count=130, reverse=0.1, adaptive=AdaptiveSpec(rounds=9)), Stop.COUNT),
        (PairsSpec(reverse=0.1, adaptive=AdaptiveSpec(rounds=9, stop_gap_z=0.1, stop_rank_width=13)), Stop.PRECISE),
        (PairsSpec(reverse=0.0, adaptive=AdaptiveSpec(rounds=50, per_item=50, stop_stale=False)), Stop.PAIRS),
    ],
    ids=lambda value: value.name if isinstance(value, Stop) else "",
)
def test_a_cell_stops_where_it_should(spec: PairsSpec, reason: Stop) -> None:
    """By rounds, by count, by precision, or as no pair is left: and never beyond the count."""
    rounds = played(30, 1, spec)
    assert stop_of(rounds, 30, spec, 1) is reason
    assert spec.count is None or sum(map(len, rounds)) == spec.count


def test_a_judge_who_says_nothing_is_not_asked_on() -> None:
    """A round without any usable answer is the last one."""
    rounds = play(20, SPEC, 1, lambda *_: None)
    assert len(rounds) == 1
    assert stop_of(rounds, 20, SPEC, 1) is Stop.SILENT


def test_a_coin_stops_when_held_out_judgments_are_foretold_no_better() -> None:
    """Among equal items further rounds teach nothing, and most studies of them end before the last round."""
    spec = PairsSpec(reverse=0.0, adaptive=AdaptiveSpec(rounds=8, per_item=4, holdout=0.2))
    n_rounds = [len(play(24, spec, seed, judge_of(np.zeros(24), np.random.default_rng(seed)))) for seed in range(8)]
    assert sum(n < 8 for n in n_rounds) >= 5


def test_the_top_mode_asks_about_the_top() -> None:
    """Items around the edge of the best five get more of the later pairs than those at the bottom."""
    theta = np.linspace(6, -6, 40)
    spec = PairsSpec(reverse=0.0, adaptive=AdaptiveSpec(rounds=3, top_k=5))
    later = [row for one in play(40, spec, 1, judge_of(theta, np.random.default_rng(1)))[1:] for row in one]
    counts = degrees(40, later, Purpose.GAIN)
    assert sum(counts[:10]) > 2 * sum(counts[-10:])


def test_the_greedy_choice_is_the_one_of_looking_at_every_pair_each_time() -> None:
    """The lazy way finds what brute force finds: the largest gain by the covariance after all earlier picks."""
    rng = np.random.default_rng(4)
    n, n_wanted, cap = 12, 14, 3
    root = rng.normal(size=(n, n))
    theta, covariance = rng.normal(0, 2, n), root @ root.T / n + np.eye(n)
    lo, hi = np.triu_indices(n, 1)
    factor = np.where(rng.random(len(lo)) < 0.3, 0.5, 1.0)
    picked = estimates.pick(Belief(theta, covariance), Candidates(lo, hi, factor, rng.random(len(lo))), n_wanted, cap)
    p = 1 / (1 + np.exp(theta[hi] - theta[lo]))
    weight, degree, left = p * (1 - p), np.zeros(n, int), covariance.copy()
    for place, gain in zip(picked.place, picked.gain, strict=True):
        spread = left[lo, lo] + left[hi, hi] - 2 * left[lo, hi]
        gains = factor * np.log1p(weight * spread)
        gains[(degree[lo] >= cap) | (degree[hi] >= cap)] = -1
        gains[picked.place[: int(degree.sum()) // 2]] = -1
        assert (gains.argmax(), gains.max()) == (place, pytest.approx(gain))
        step = left[:, lo[place]] - left[:, hi[place]]
        left -= np.outer(step, step) * weight[place] / (1 + weight[place] * spread[place])
        degree[[lo[place], hi[place]]] += 1


def test_the_map_fit_is_the_top_of_its_posterior_and_finds_the_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a general optimiser, and against planted spreads; an item without votes is at the mean."""
    optimize = pytest.importorskip("scipy.optimize")
    rng = np.random.default_rng(0)
    table = table_of(9, [row for one in play(8, SPEC, 0, judge_of(rng.normal(0, 1, 8), rng)) for row in one])
    found = estimates.fit(table)

    def minus(beta: np.ndarray) -> float:
        gap = beta[table.lo] - beta[table.hi]
        u = np.stack([gap + beta[-1], gap - beta[-1]])
        votes = table.counts[:, 0] * np.logaddexp(0, -u) + table.counts[:, 1] * np.logaddexp(0, u)
        return float(votes.sum() + 0.5 * np.sum(beta[:-1] ** 2) / found.sd**2 + 0.5 * beta[-1] ** 2)

    best = optimize.minimize(minus, np.zeros(10), tol=1e-12).x
    assert np.allclose([*found.theta, found.eta], best, atol=1e-4)
    assert found.theta[8] == pytest.approx(0, abs=1e-9)
    monkeypatch.setattr(estimates, "DENSE_MAX", 0)
    many = estimates.fit(table)
    assert np.allclose([*many.theta, many.eta, many.sd], [*found.theta, found.eta, found.sd], atol=1e-7)
    spreads = []
    for sd in (0.5, 4.0):
        rng = np.random.default_rng(1)
        rows = [row for one in play(40, SPEC, 1, judge_of(rng.normal(0, sd, 40), rng)) for row in one]
        spreads.append(estimates.fit(table_of(40, rows)).sd)
    assert spreads[0] <= 1
    assert spreads[1] >= 2


def test_more_items_than_all_pairs_allow_are_chosen_among_neighbours() -> None:
    """Beyond the limit, each item has its nearest and some at random: few pairs, no item without."""
    theta = np.random.default_rng(0).normal(size=estimates.ALL_PAIRS_MAX + 1)
    lo, hi = estimates.within_reach(theta, 1)
    assert len(lo) < 30 * len(theta)
    assert set(np.r_[lo, hi].tolist()) == set(range(len(theta)))
    place = theta.argsort().argsort()
    assert np.median(np.abs(place[lo] - place[hi])) <= estimates.NEAREST / 2
    assert bool(np.all(lo < hi))


def test_fewer_judgments_are_needed_than_of_random_pairs() -> None:
    """282 judgments of 50 items rank better than 330 of random pairs; tests/bench has the figure."""
    gained, random = [], []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        theta = rng.normal(0, TYPICAL_SD, 50)
        say = judge_of(theta, rng)
        rounds = play(50, PairsSpec(reverse=0.1, adaptive=AdaptiveSpec(rounds=3, stop_stale=False)), seed, say)
        rows = [row for one in rounds for row in one]
        assert len(rows) == 282
        gained.append(rho_map(table_of(50, rows), theta))
        lo, hi = np.triu_indices(50, 1)
        at = rng.permutation(len(lo))[:330]
        turn = rng.random(330) < 0.5
        first, second = np.where(turn, lo[at], hi[at]).tolist(), np.where(turn, hi[at], lo[at]).tolist()
        asked: list[Row] = [(a, b, "random", 1, say(a, b)) for a, b in zip(first, second, strict=True)]
        random.append(rho_map(table_of(50, asked), theta))
    assert np.mean(gained) > np.mean(random)


def test_held_out_judgments_are_honest_where_reliability_is_not() -> None:
    """Among equal items the others foretell held-out ones like a coin."""
    found = []
    for seed in range(6):
        spec = PairsSpec(reverse=0.1, adaptive=AdaptiveSpec(rounds=5, holdout=0.3, stop_stale=False))
        rows = [row for one in played(30, seed, spec, sd=0.0) for row in one]
        asked = Asked.of(rows)
        fit = estimates.fit(asked.votes(30, held_out=False))
        prediction = estimates.predict(fit, asked.votes(30, held_out=True))
        assert prediction is not None
        found.append((prediction.n_votes, prediction.accuracy))
    n = sum(n for n, _ in found)
    assert abs(sum(n * share for n, share in found) / n - 0.57) < 0.12  # a bias of .3 alone foretells .57


BASE = """study = "s"
{}[items]
path = "questions.csv"
[pairs]
{}
[[rubrics]]
use = "overall_quality"
[[templates]]
use = "plain"
[[models]]
provider = "openai"
model = "gpt-4.1-mini"
"""
WRONG = {
    "an unknown way": ('select = "adaptative"', "pairs.select is 'adaptative', not one of random, adaptive"),
    "rounds of random pairs": ("rounds = 3", 'pairs.rounds has a meaning only with `select = "adaptive"`'),
    "a share": ('select = "adaptive"\nshare = 0.5', "pairs.share has no meaning with"),
    "an order": ('select = "adaptive"\norder = "fixed"', "pairs.order has no meaning with"),
    "repeats": ('select = "adaptive"\nrepeats = 2', "pairs.repeats has no meaning with"),
    "everything reversed": ('select = "adaptive"\nreverse = true', "pairs.reverse must be a share"),
    "more than half held out": ('select = "adaptive"\nholdout = 0.6', "pairs.holdout is 0.6"),
    "no round": ('select = "adaptive"\nrounds = 0', "pairs.rounds is 0"),
    "repeats of a stage": ('select = "adaptive"', "repeats has no meaning with", "repeats = 2\n"),
}


def loaded(folder: Path, pairs: str, head: str = "") -> Study:
    """Write and load a study file with these pairs."""
    write_files(folder)
    (folder / "study.toml").write_text(BASE.format(head, pairs))
    found = load(folder / "study.toml")
    return found


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_go_together_is_one_error_that_names_the_key(tmp_path: Path, name: str) -> None:
    """File, line, key, and what is wrong."""
    text, problem, *head = WRONG[name]
    with pytest.raises(StudyError) as caught:
        loaded(tmp_path, text, *head)
    assert problem in caught.value.message
    assert caught.value.message.startswith(str(tmp_path / "study.toml"))


def test_adaptive_pairs_make_a_study_one_stage_that_the_lake_can_go_on_with(tmp_path: Path) -> None:
    """All keys are kept."""
    keys = "rounds = 3\nfirst_per_item = 3\nper_item = 2\nholdout = 0.2\ntop_k = 5\nstop_gap_z = 1\nstop_rank_width = 4"
    study = loaded(tmp_path, f'select = "adaptive"\ncount = 90\nreverse = 0.2\nstop_stale = false\n{keys}')
    (stage,) = study.stages
    rules = AdaptiveSpec(3, 3, 2, 0.2, 5, 1.0, 4.0, stop_stale=False)
    assert stage.pairs == PairsSpec(count=90, reverse=0.2, adaptive=rules)
    assert from_config(to_config(study)).stages[0].pairs == stage.pairs
