"""Intervals and tests of pairs: for these items and for items in general, against brute force and planted truths."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest
from scipy import optimize, stats
from statsmodels.stats.contingency_tables import StratifiedTable

from tests.rigs.metrics import column, of_pairs
from tests.rigs.pairs_planted import DESIGNS, Pairs, judgments, play, rates
from tests.rigs.sql import CELL_DEFAULT, Row, result, table, views_over

ITEMS = [f"i{number}" for number in range(9)]
Terms = dict[tuple[str, str], tuple[float, float]]


def asked(seed: int, repeats: int) -> list[Row]:
    """Return messy judgments of one judge: ties, failures, and orders that were asked less often."""
    rng = np.random.default_rng(seed)
    words = ("first", "second", "tie", "unparsed")
    return [
        {"item_first": one, "item_second": other, "repeat_no": repeat,
         "verdict": words[rng.choice(4, p=(0.5, 0.35, 0.1, 0.05))]}
        for pair in combinations(ITEMS, 2)
        for one, other in (pair, pair[::-1])
        for repeat in range(repeats)
        if rng.random() < 0.9
    ]  # fmt: skip


def tables(rows: list[Row]) -> dict[tuple[str, str], np.ndarray]:
    """Return per pair the decided votes by order shown (row) and winner (column)."""
    found: dict[tuple[str, str], np.ndarray] = {}
    for row in rows:
        if row["verdict"] in {"first", "second"}:
            lo, hi = sorted((row["item_first"], row["item_second"]))
            is_lo_first = row["item_first"] == lo
            winner = int((row["verdict"] == "first") != is_lo_first)
            found.setdefault((lo, hi), np.zeros((2, 2)))[int(not is_lo_first), winner] += 1
    return found


def terms(rows: list[Row]) -> Terms:
    """Return Mantel and Haenszel's two terms of each pair."""
    return {pair: (n[0, 0] * n[1, 1] / n.sum(), n[0, 1] * n[1, 0] / n.sum()) for pair, n in tables(rows).items()}


def logodds(found: Terms, w: float) -> float:
    """Return half the log of the odds ratio, half a term added to either side."""
    first, second = np.sum(list(found.values()), axis=0)
    return float(0.5 * np.log((first + w / 2) / (second + w / 2)))


@pytest.mark.parametrize(("seed", "repeats"), [(1, 1), (2, 2), (3, 3), (4, 5)])
def test_all_votes_count_as_mantel_and_haenszel_say(seed: int, repeats: int) -> None:
    """The odds ratio is statsmodels', and both errors are those of leaving out items, or of pairs, in a loop."""
    rows = asked(seed, repeats)
    ((row,),) = of_pairs(rows, "metric_position_bias")
    found = terms(rows)
    r, s = np.array(list(found.values())).T
    assert r.sum() / s.sum() == pytest.approx(StratifiedTable(list(tables(rows).values())).oddsratio_pooled, rel=1e-9)
    w = (r @ r + s @ s) / (r.sum() + s.sum())
    whole = logodds(found, w)
    assert row["position_logodds"] == pytest.approx(whole, rel=1e-9)
    pairs = 0.25 * (
        (r @ r + w * w / 2) / (r.sum() + w / 2) ** 2 + (s @ s + w * w / 2) / (s.sum() + w / 2) ** 2
        - 2 * (r @ s) / ((r.sum() + w / 2) * (s.sum() + w / 2))
    )  # fmt: skip
    assert row["position_logodds_se_these_items"] == pytest.approx(np.sqrt(pairs), rel=1e-9)
    others = [logodds({pair: term for pair, term in found.items() if item not in pair}, w) for item in ITEMS]
    jack = (len(ITEMS) - 1) / len(ITEMS) * np.sum((np.array(others) - whole) ** 2)
    error = np.sqrt(max(jack - pairs, pairs))
    assert row["position_logodds_se"] == pytest.approx(error, rel=1e-9)
    df = len(ITEMS) - 1
    assert row["p_position"] == pytest.approx(2 * stats.t.sf(abs(whole) / error, df), rel=1e-9)
    assert row["position_logodds_hi"] == pytest.approx(whole + stats.t.ppf(0.975, df) * error, rel=1e-9)
    least = detectable(whole, error, df)
    assert row["position_logodds_mde"] == (None if least is None else pytest.approx(least, rel=5e-3))


def detectable(logodds: float, error: float, df: int) -> float | None:
    """Return the effect that has power 0.8 where the error grows by the effect's cosh to the 0.7, if one has."""

    def crossed(start: float, reach: float) -> float | None:
        grid = np.linspace(0, 4, 2_001)
        missing = grid - start - reach * np.cosh(grid) ** 0.7
        at = int(np.argmax(missing >= 0))
        if missing[at] < 0:
            return None
        ends = grid[at - 1], grid[at]
        return float(optimize.brentq(lambda x: x - start - reach * np.cosh(x) ** 0.7, *ends))

    error_0 = error / np.cosh(logodds) ** 0.7
    found = crossed(0, stats.t.ppf(0.975, df) * error_0)
    effect = None if found is None else crossed(found, stats.t.ppf(0.8, df) * error_0)
    return None if effect is None else effect * (1 + 1 / df)


@pytest.mark.parametrize(
    ("logodds", "error", "df"),
    [(0, 0.072, 39), (0.3, 0.144, 19), (-0.3, 0.319, 9), (0, 0.36, 9), (0, 0.512, 6), (1.06, 0.514, 9)],
)
def test_a_detectable_effect_is_where_its_own_error_lets_it_be_found(logodds: float, error: float, df: int) -> None:
    """By a root finder; none where the error grows faster than the effect, so that no effect would be found."""
    t, t_power = stats.t.ppf((0.975, 0.8), df)
    with views_over({}) as connection:
        (row,) = result(connection, f"SELECT logodds_matched_mde({logodds}, {error}, {t}, {t_power}, {df}) AS effect")
    wanted = detectable(logodds, error, df)
    assert row["effect"] == (None if wanted is None else pytest.approx(wanted, rel=1e-6))
    assert (wanted is None) == (error > 0.5)


def test_an_effect_that_is_called_detectable_is_found_in_four_of_five_sets() -> None:
    """Of 14 items .66 was said, by the error of no effect, which an effect makes larger: three of five sets find it."""
    with views_over({"pair_judgments": judgments(Pairs(n_items=14), 60, 1)}) as connection:
        said = np.nanmedian(column(result(connection, "FROM metric_position_bias"), "position_logodds_mde"))
    with views_over({"pair_judgments": judgments(Pairs(eta=float(said), n_items=14), 120, 2)}) as connection:
        found = column(result(connection, "FROM metric_position_bias"), "p_position") < 0.05
    assert found.mean() == pytest.approx(0.8, abs=0.1)


@pytest.mark.parametrize("repeats", [2, 4])
def test_the_ends_of_a_sign_flip_interval_are_where_its_test_is_at_5_per_cent(repeats: int) -> None:
    """With repeats: at either end, the votes for the first weighed by e to the minus that end, the test has p .05."""
    rows = asked(5, repeats)
    ((row,),) = of_pairs(rows, "metric_position_bias")
    r, s = np.array(list(terms(rows).values())).T

    def p(effect: float) -> float:
        excess = r * np.exp(-effect) - s * np.exp(effect)
        return float(2 * stats.norm.sf(abs(excess.sum()) / np.sqrt(excess @ excess)))

    assert row["p_position_these_items"] == pytest.approx(p(0), rel=1e-9)
    for end in ("lo", "hi"):
        assert p(row[f"position_logodds_{end}_these_items"]) == pytest.approx(0.05, rel=1e-9)


@pytest.mark.parametrize("side", ["first", "second"])
def test_with_repeats_flips_that_all_go_one_way_leave_one_end_open_and_the_other_finite(side: str) -> None:
    """The end is that of n flips in n, not at infinity; 0 is outside it where p is below .05."""
    rows = [
        {"template_id": f"t{n:02}", "item_first": one, "item_second": other, "repeat_no": repeat, "verdict": side}
        for n in range(1, 13) for pair in range(n) for repeat in (1, 2)
        for one, other in ((f"a{pair}", f"b{pair}"), (f"b{pair}", f"a{pair}"))
    ]  # fmt: skip
    (found,) = of_pairs(rows, "metric_position_bias")
    for n, row in enumerate(found, 1):
        ends = [row[f"position_logodds_{end}_these_items"] for end in ("lo", "hi")]
        near, far = ends if side == "first" else ends[::-1]
        assert far is None
        assert (row["n_flipped"], near is not None) == (n, n >= 6)
        if near is not None:
            share = stats.binomtest(n, n).proportion_ci(method="exact").low
            assert abs(near) == pytest.approx(0.5 * np.log(share / (1 - share)), rel=1e-9)
            assert (near > 0) == (side == "first")
            assert row["p_position_these_items"] < 0.05


def test_with_one_vote_per_order_p_and_interval_never_contradict_each_other() -> None:
    """For all counts of flips up to 40 either way, the exact p is below .05 exactly where 0 is outside; McNemar's."""
    counts = [(b, c) for b in range(41) for c in range(41) if b + c]
    clusters = [
        CELL_DEFAULT | {"template_id": f"{b} {c}", "cluster_unit": str(place), "cluster_item": "", "n_sides": 1,
        "n_pairs": b + c, "n_consistent_win": 0, "n_consistent_tie": 0, "n_primacy": b, "n_recency": c,
        "n_soft_primacy": 0, "n_soft_recency": 0, "n_undecided": 0, "n_missing_reverse": 0, "n_pairs_pending": 0,
        "n_crossed": b + c, "n_terms": b + c, "votes_max": 2.0, "first_won": b / 2, "second_won": c / 2,
        "first_squares": b / 4, "second_squares": c / 4, "products": 0.0}
        for b, c in counts
        for place in range(1)
    ]  # fmt: skip
    with views_over({"pair_clusters": table(clusters)}) as connection:
        rows = {row["template_id"]: row for row in result(connection, "FROM metric_position_bias")}
    for b, c in counts:
        row = rows[f"{b} {c}"]
        lo, hi = row["position_logodds_lo_these_items"], row["position_logodds_hi_these_items"]
        assert row["p_position_these_items"] == pytest.approx(stats.binomtest(b, b + c).pvalue, rel=1e-9)
        assert (row["p_position_these_items"] < 0.05) == ((lo is not None and lo > 0) or (hi is not None and hi < 0))
        assert row["position_logodds"] == pytest.approx(0.5 * np.log((b + 0.5) / (c + 0.5)), abs=1e-12)
        error = 0.5 * np.sqrt(1 / (b + 0.5) + 1 / (c + 0.5))
        assert row["position_logodds_se_these_items"] == pytest.approx(error, rel=1e-12)


@pytest.mark.parametrize("seed", [1, 2])
def test_rates_of_pairs_leave_out_one_item_after_the_other(seed: int) -> None:
    """The errors of consistency and conflict equal those of a loop over items."""
    rows = asked(seed, 1)
    ((row,), pairs) = of_pairs(rows, "metric_consistency", "pair_status")
    judged = [pair for pair in pairs if pair["status"] not in {"undecided", "missing_reverse", "pending"}]
    decided = [pair for pair in judged if pair["status"] in {"consistent_win", "primacy", "recency"}]
    for name, among, words in (
        ("consistency_decided", decided, {"consistent_win"}),
        ("consistency_all", judged, {"consistent_win", "consistent_tie"}),
        ("conflict_rate", judged, {"primacy", "recency"}),
    ):

        def rate(kept: list[Row], words: set[str] = words) -> float:
            return float(np.mean([pair["status"] in words for pair in kept]))

        whole = rate(among)
        others = [rate([pair for pair in among if item not in (pair["item_lo"], pair["item_hi"])]) for item in ITEMS]
        jack = (len(ITEMS) - 1) / len(ITEMS) * np.sum((np.array(others) - whole) ** 2)
        by_pair = whole * (1 - whole) / len(among)
        assert row[name] == pytest.approx(whole, rel=1e-12)
        assert row[f"{name}_se"] == pytest.approx(np.sqrt(max(jack - by_pair, by_pair)), rel=1e-9)


def test_prompts_are_the_clusters_where_pairs_are_outputs_of_models() -> None:
    """Three candidates on a prompt are one draw of a prompt, not three items that nobody else is compared with."""
    rng = np.random.default_rng(3)
    rows = [
        {"unit_id": f"u{unit}", "item_first": f"u{unit}{one}", "item_second": f"u{unit}{other}",
         "candidate_first": one, "candidate_second": other, "verdict": ("first", "second")[rng.integers(2)]}
        for unit in range(12)
        for pair in combinations("abc", 2)
        for one, other in (pair, pair[::-1])
    ]  # fmt: skip
    ((row,),) = of_pairs(rows, "metric_position_bias")
    found = terms(rows)
    r, s = np.array(list(found.values())).T
    w = (r @ r + s @ s) / (r.sum() + s.sum())
    prompts = {pair[0][:-1] for pair in found}
    left = [logodds({pair: term for pair, term in found.items() if pair[0][:-1] != unit}, w) for unit in prompts]
    jack = 11 / 12 * np.sum((np.array(left) - logodds(found, w)) ** 2)
    assert (row["n_clusters"], row["position_item_sd"]) == (12, None)
    assert row["position_logodds_se"] == pytest.approx(
        np.sqrt(max(jack, row["position_logodds_se_these_items"] ** 2)), rel=1e-9
    )


@pytest.mark.parametrize("name", ["no effect", "items differ, sd 1", "eta .3, 2 repeats"])
def test_intervals_hold_for_items_in_general(name: str) -> None:
    """A short form of `python -m tests.sweeps.coverage`: 200 sets of a design, through the views."""
    design, n_sets = DESIGNS[name], 200
    found = play(design, n_sets, seed=1)
    error = (0.05 * 0.95 / n_sets) ** 0.5
    for column_name, share in found.shares.items():
        if column_name in {"position_logodds", "consistency_decided", "conflict_rate"}:
            assert 0.93 - 2 * error <= share, column_name
    if not design.eta:
        assert found.shares["p_position"] <= 0.07 + 2 * error
    assert abs(found.means["mean position_logodds"] - design.eta) < 0.05


def test_items_that_differ_in_the_position_effect_are_seen() -> None:
    """Where they do not, the test rejects one set in twenty at most; where they do, most, and the sd is about right."""
    seen = play(DESIGNS["items differ, sd 1"], 150, seed=3)
    assert seen.shares["p_position_items"] > 0.5
    assert 0.6 < seen.means["mean position_item_sd"] < 1.1
    assert play(DESIGNS["no effect"], 150, seed=3).shares["p_position_items"] <= 0.1


@pytest.mark.parametrize("n_recency", [0, 4, 5])
def test_of_a_judge_that_names_one_place_nothing_is_known_of_how_items_differ(n_recency: int) -> None:
    """Twelve equal items, the first all but always named: p was 1e-21, as no flip against it balances the sums."""
    pairs = list(combinations([f"i{n:02}" for n in range(12)], 2))
    rows = [
        {"item_first": one, "item_second": other, "verdict": "second" if number % 14 == 3 and number < 14 * n_recency
         else "first"}
        for number, pair in enumerate(pairs) for one, other in (pair, pair[::-1])
    ]  # fmt: skip
    ((row,),) = of_pairs(rows, "metric_position_bias")
    assert row["n_recency"] == n_recency
    assert row["p_position"] < 0.01
    assert (row["p_position_items"] is None, row["position_item_sd"] is None) == (n_recency < 5, n_recency < 5)


def test_labels_of_people_move_nothing_between_models() -> None:
    """A tie that a person gave was a third category of AC1 of two models who never tie."""
    pairs = list(combinations("abcdefg", 2))
    models = [
        {"item_first": one, "item_second": other, "request_model": model,
         "verdict": "first" if number % 3 or model == "m1" else "second"}
        for number, (one, other) in enumerate(pairs) for model in ("m1", "m2")
    ]  # fmt: skip
    people = [{"item_first": one, "item_second": other, "provider": "human", "request_model": "p", "verdict": "tie"}
              for one, other in pairs[:4]]  # fmt: skip
    found = []
    for rows in (models, models + people):
        shown = [row for row in of_pairs(rows, "metric_agreement")[0] if row["request_model_b"] == "m2"]
        found.append([row["ac1"] for row in shown if row["request_model_a"] == "m1"])
    assert found[0] == found[1]
    assert found[0][0] is not None


def test_twice_the_votes_find_more_and_estimate_the_same() -> None:
    """Repeats neither inflate the effect nor cost power."""
    once, twice = (play(Pairs(eta=0.3, repeats=repeats), 150, seed=4) for repeats in (1, 2))
    assert once.means["mean position_logodds"] == pytest.approx(twice.means["mean position_logodds"], abs=0.05)
    assert twice.shares["p_position_these_items"] > once.shares["p_position_these_items"] > 0.4


def test_asking_more_often_moves_neither_consistency_nor_conflict_from_the_planted_value() -> None:
    """With 1, 2, 3 and 5 repeats alike; a rate of majorities rises with them, as the hard pairs leave or settle."""
    means, majorities = {}, {}
    for repeats in (1, 2, 3, 5):
        design = Pairs(eta=0.5, quality_sd=0.7, repeats=repeats)
        with views_over({"pair_judgments": judgments(design, 60, seed=repeats)}) as connection:
            rows = result(connection, "FROM metric_consistency")
            crossed = column(result(connection, "FROM metric_repeat"), "cross_order_agreement")
        assert column(rows, "consistency_all") == pytest.approx(crossed, rel=1e-9)
        means[repeats] = {
            name: column(rows, name).mean() for name in ("consistency_decided", "consistency_all", "conflict_rate")
        }
        wins, flips = column(rows, "n_consistent_win"), column(rows, "n_primacy") + column(rows, "n_recency")
        majorities[repeats] = (wins / (wins + flips)).mean()
        assert column(rows, "n_both").mean() == 190
    planted = rates(Pairs(eta=0.5, quality_sd=0.7))["consistency_decided"]
    for found in means.values():
        assert found["consistency_decided"] == pytest.approx(planted, abs=0.012)
        assert found["consistency_all"] == pytest.approx(planted, abs=0.012)
        assert found["conflict_rate"] == pytest.approx(1 - planted, abs=0.012)
    assert majorities[1] == means[1]["consistency_decided"]
    assert majorities[2] > planted + 0.05


@pytest.mark.parametrize("repeats", [1, 2, 3, 5])
def test_asking_more_often_moves_no_rate_of_places_and_their_intervals_cover(repeats: int) -> None:
    """Pairs that are draws: with 1, 2, 3 and 5 repeats alike, means are the truth and .93 of intervals hold it."""
    design = Pairs(eta=0.3, quality_sd=0, taste_sd=1, pair_sd=0.5, repeats=repeats)
    rng = np.random.default_rng(1)
    gap, effect = rng.normal(0, 1, 1_000_000), rng.normal(0.3, 0.5, 1_000_000)
    lo_won, hi_won = 1 / (1 + np.exp(-gap - effect)), 1 / (1 + np.exp(gap - effect))
    first, second = np.mean(lo_won * hi_won), np.mean((1 - lo_won) * (1 - hi_won))
    truths = {"primacy_share": first / (first + second), "first_rate_balanced": 0.5 + (first - second) / 2}
    truths["first_rate_raw"] = truths["first_rate_balanced"]
    with views_over({"pair_judgments": judgments(design, 250, seed=repeats)}) as connection:
        rows = result(connection, "FROM metric_position_rates")
    for name, truth in truths.items():
        lo, hi = column(rows, f"{name}_lo"), column(rows, f"{name}_hi")
        assert column(rows, name).mean() == pytest.approx(truth, abs=0.01)
        assert np.mean((lo <= truth) & (truth <= hi)) >= 0.93 - 3 * (0.05 * 0.95 / 250) ** 0.5, name
    assert column(rows, "preference_fairness").mean() == pytest.approx(second - first, abs=0.01)


@pytest.mark.parametrize("seed", [1, 2])
def test_intervals_of_places_invert_the_sign_flip_test_of_pairs(seed: int) -> None:
    """With three repeats and ties, an end is where scipy finds that the pairs' test turns, and p is that test's."""
    ((row,), pairs) = of_pairs(asked(seed, 3), "metric_position_rates", "pair_status")
    both = [pair for pair in pairs if pair["lo_part"] is not None]
    r, s = (np.array([pair[name] for pair in both]) for name in ("primacy_part", "recency_part"))
    decided = r + s + np.array([pair["lo_part"] + pair["hi_part"] for pair in both])
    first = np.array([pair["n_lo_won_lo_first"] + pair["n_hi_won_hi_first"] for pair in pairs])
    second = np.array([pair["n_hi_won_lo_first"] + pair["n_lo_won_hi_first"] for pair in pairs])

    def z(excess: np.ndarray) -> float:
        return float(excess.sum() / np.sqrt(excess @ excess))

    tests = {
        "primacy_share": lambda share: z((1 - share) * r - share * s),
        "first_rate_balanced": lambda rate: z(r - s - (2 * rate - 1) * decided),
        "first_rate_raw": lambda rate: z(first - rate * (first + second)),
    }
    for name, test in tests.items():
        for end, sign in (("lo", 1), ("hi", -1)):
            ends = sorted((row[name], 0.0 if end == "lo" else 1.0))
            wanted = optimize.brentq(lambda x, test=test, sign=sign: test(x) - sign * stats.norm.ppf(0.975), *ends)
            assert row[f"{name}_{end}"] == pytest.approx(wanted, rel=1e-6), (name, end)
    assert row["p_first_rate_raw"] == pytest.approx(2 * stats.norm.sf(abs(z(first - second))), rel=1e-9)


@pytest.mark.parametrize("seed", [1, 2])
def test_rates_of_votes_leave_out_one_item_after_the_other(seed: int) -> None:
    """With three repeats and ties, the errors of consistency and conflict equal those of a loop over items."""
    rows = asked(seed, 3)
    ((row,), pairs) = of_pairs(rows, "metric_consistency", "pair_status")
    shares = {}
    for pair in pairs:
        one = np.array([pair[f"n_{word}_lo_first"] for word in ("lo_won", "hi_won", "tied")], dtype=float)
        other = np.array([pair[f"n_{word}_hi_first"] for word in ("lo_won", "hi_won", "tied")], dtype=float)
        if one.sum() and other.sum():
            crossed = np.outer(one / one.sum(), other / other.sum())
            shares[pair["item_lo"], pair["item_hi"]] = (
                crossed[0, 0] + crossed[1, 1], crossed[2, 2], crossed[0, 1] + crossed[1, 0]
            )  # fmt: skip

    def rate(name: str, kept: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
        wins, ties, flips = np.array(kept).T
        if name == "consistency_decided":
            share, whole = wins / (wins + flips).sum(), wins.sum() / (wins + flips).sum()
            return whole, float(np.sum((share - whole * (wins + flips) / (wins + flips).sum()) ** 2))
        share = wins + ties if name == "consistency_all" else flips
        return share.mean(), float(np.sum((share - share.mean()) ** 2)) / len(share) ** 2

    for name in ("consistency_decided", "consistency_all", "conflict_rate"):
        whole, by_pair = rate(name, list(shares.values()))
        others = [rate(name, [kept for pair, kept in shares.items() if item not in pair])[0] for item in ITEMS]
        jack = (len(ITEMS) - 1) / len(ITEMS) * np.sum((np.array(others) - whole) ** 2)
        assert row[name] == pytest.approx(whole, rel=1e-9)
        assert row[f"{name}_se"] == pytest.approx(np.sqrt(max(jack - by_pair, by_pair)), rel=1e-9)


def test_planted_judgments_have_every_pair_in_both_orders() -> None:
    """The generator itself: as many rows as are asked, and each order as often."""
    with views_over({"pair_judgments": judgments(Pairs(n_items=6, repeats=2), 3, 1)}) as connection:
        rows = result(connection, "FROM pair_status")
    assert len(rows) == 3 * 15
    assert set(column(rows, "n_answered_lo_first")) == set(column(rows, "n_answered_hi_first")) == {2.0}
