"""What is said of items in general: errors equal a loop that leaves out one item, or prompt, after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, product

import numpy as np
import pytest
from scipy import optimize, stats
from statsmodels.stats.proportion import proportion_confint

from tests.rigs import candidates_planted, general_planted
from tests.rigs.general_planted import DESIGNS, General, play
from tests.rigs.metrics import Numbers, column, of_items, of_pairs
from tests.rigs.sql import Row, judged, result, table, views_over

ITEMS = [f"i{number}" for number in range(8)]
LENGTHS = dict(zip(ITEMS, (120, 80, 300, 300, 55, 210, 90, 400), strict=True))
WORDS = ("first", "second", "tie", "unparsed")
Statistic = Callable[[Sequence[Row]], float]


def asked(seed: int, repeats: int = 1) -> list[Row]:
    """Return messy judgments of two templates: ties, failures, and orders that were not asked."""
    rng = np.random.default_rng(seed)
    return [
        {"template_id": template, "item_first": one, "item_second": other, "repeat_no": repeat,
         "verdict": WORDS[rng.choice(4, p=(0.45, 0.4, 0.08, 0.07))]}
        for template in ("t1", "t2")
        for pair in combinations(ITEMS, 2)
        for one, other in (pair, pair[::-1])
        for repeat in range(repeats)
        if rng.random() < 0.95
    ]  # fmt: skip


def of_prompts(seed: int) -> list[Row]:
    """Return judgments of three models' outputs to ten prompts, by two templates."""
    rng = np.random.default_rng(seed)
    return [
        {"template_id": template, "unit_id": f"u{unit}", "item_first": f"{unit}{one}", "item_second": f"{unit}{other}",
         "candidate_first": one, "candidate_second": other, "verdict": WORDS[rng.choice(4, p=(0.5, 0.4, 0.05, 0.05))]}
        for template in ("t1", "t2") for unit in range(10) for pair in combinations("abc", 2)
        for one, other in (pair, pair[::-1])
    ]  # fmt: skip


def drawn(row: Row) -> set[str]:
    """Return what a pair is drawn with: its prompt, or its two items."""
    return {row["unit_id"]} if row.get("unit_id") else {row["item_lo"], row["item_hi"]}


def error(pairs: Sequence[Row], statistic: Statistic, by_pair: float) -> float:
    """Return the error for items in general: the jackknife's, less what it counts twice, and no less than pairs'."""
    clusters = sorted(set[str]().union(*map(drawn, pairs)))
    whole = statistic(pairs)
    moved = [statistic([pair for pair in pairs if cluster not in drawn(pair)]) - whole for cluster in clusters]
    jack = (len(clusters) - 1) / len(clusters) * float(np.nansum(np.square(moved)))
    n_twice = len(drawn(pairs[0])) - 1
    return float(np.sqrt(max(jack - n_twice * by_pair, by_pair)))


def mean_of(name: str) -> Statistic:
    """Return the mean of a field of pairs."""
    return lambda pairs: float(np.mean([pair[name] for pair in pairs])) if pairs else np.nan


@pytest.mark.parametrize("rows", [asked(1), of_prompts(2)], ids=["items", "prompts"])
def test_two_templates_on_the_same_pairs(rows: list[Row]) -> None:
    """The difference, its error, both ends and p are those of the loop, by t over items, or prompts."""
    (found,), statuses = of_pairs(rows, "metric_paired", "pair_status")
    by_pair: dict[tuple[str, str], dict[str, Row]] = {}
    for row in statuses:
        if row["status"] not in {"undecided", "missing_reverse", "pending"}:
            by_pair.setdefault((row["item_lo"], row["item_hi"]), {})[row["template_id"]] = row
    pairs = [
        rows["t1"] | {"d": sum(sign * rows[name]["status"].startswith("consistent") for name, sign in SIGNS)}
        for rows in by_pair.values()
        if len(rows) == 2
    ]
    d = np.array([pair["d"] for pair in pairs])
    pairs_alone = (d @ d + 1 - d.sum() ** 2 / (len(d) + 2)) / (len(d) + 2) ** 2
    expected, df = error(pairs, mean_of("d"), pairs_alone), found["n_clusters"] - 1
    assert found["n"] == len(pairs)
    assert found["diff"] == pytest.approx(d.mean(), rel=1e-9)
    assert found["diff_se"] == pytest.approx(expected, rel=1e-9)
    assert found["p_diff"] == pytest.approx(2 * stats.t.sf(abs(d.mean()) / expected, df), rel=1e-9)
    assert found["diff_lo"] == pytest.approx(d.mean() - stats.t.ppf(0.975, df) * expected, rel=1e-9)
    reach, apart = stats.t.ppf((0.975, 0.8), df).sum() * expected, d @ d + 1
    error_of = (apart + 0.75 * (found["diff_mde"] * (len(d) + 2) - abs(d.sum()))) / apart  # that part is in new pairs
    assert found["diff_mde"] == pytest.approx(reach * np.sqrt(error_of), rel=2e-3)


SIGNS = (("t1", 1), ("t2", -1))


def wins_by_pair(rows: Sequence[Row]) -> list[Row]:
    """Return of each pair how far votes of one order and of the other, each with each, name either: a loop."""
    votes: dict[tuple[str, str], dict[str, list[str]]] = {}
    for row in judged(rows):
        if row["verdict"]:
            place = (row["item_lo"], row["item_hi"])
            words = votes.setdefault(place, {}).setdefault(row["item_first"], [])
            words.append({"first": row["item_first"], "second": row["item_second"]}.get(row["verdict"], "tie"))
    pairs = []
    for (low, high), orders in votes.items():
        both = list(product(*orders.values())) if len(orders) == 2 else []
        lo, hi = (sum(one == other == item for one, other in both) / (len(both) or 1) for item in (low, high))
        if lo + hi:
            log_ratio = np.log(LENGTHS[low] / LENGTHS[high])
            pairs.append({"item_lo": low, "item_hi": high, "won": lo + hi, "ratio": (lo - hi) * log_ratio,
                          "longer": lo if log_ratio > 0 else hi, "differ": (lo + hi) * bool(log_ratio)})  # fmt: skip
    return pairs


def part_of(name: str, of: str) -> Statistic:
    """Return a sum over pairs, of the sum of what it is a part of."""
    return lambda pairs: float(sum(pair[name] for pair in pairs) / sum(pair[of] for pair in pairs))


@pytest.mark.parametrize("repeats", [1, 2, 3, 5])
def test_wins_of_the_longer_text(repeats: int) -> None:
    """Share and mean log ratio: the loop's errors; the share's ends are Wilson's of the effective size."""
    rows = [row for row in asked(3, repeats) if row["template_id"] == "t1"]
    lengths = [{"study": "study", "item": item, "n_chars": n} for item, n in LENGTHS.items()]
    with views_over({"pair_judgments": table(judged(rows)), "item_lengths": table(lengths)}) as connection:
        (found,) = result(connection, "FROM metric_length")
    won = wins_by_pair(rows)
    differ = [row for row in won if row["differ"]]
    longer, n = (np.array([row[name] for row in differ]) for name in ("longer", "differ"))
    p, df = float(longer.sum() / n.sum()), found["n_clusters"] - 1
    by_pair = float(np.sum((longer - p * n) ** 2) / n.sum() ** 2)
    expected = error(differ, part_of("longer", "differ"), by_pair)
    assert (found["n_clusters"], found["longer_win_rate"]) == (8, pytest.approx(p))
    assert (found["n_longer_won"], found["n_shorter_won"]) == (np.sum(2 * longer > n), np.sum(2 * longer < n))
    assert found["longer_win_rate_se"] == pytest.approx(expected, rel=1e-9)
    size = p * (1 - p) / expected**2
    assert found["p_longer"] == pytest.approx(2 * stats.t.sf(abs(2 * p - 1) * np.sqrt(size), df), rel=1e-9)
    x = np.array([found["longer_win_rate_lo"], found["longer_win_rate_hi"]])
    np.testing.assert_allclose((x - p) ** 2, stats.t.ppf(0.975, df) ** 2 * x * (1 - x) / size, rtol=1e-9)
    if repeats == 1:
        exact = stats.binomtest(found["n_longer_won"], len(differ))
        assert found["p_longer_these_items"] == pytest.approx(exact.pvalue, rel=1e-9)
        high = exact.proportion_ci(method="exact").high
    else:
        z, lead = stats.norm.ppf(0.975), 2 * longer - n
        assert found["p_longer_these_items"] == pytest.approx(2 * stats.norm.sf(abs(lead.sum()) / np.sqrt(lead @ lead)))
        assert found["longer_mde_these_items"] == pytest.approx(
            0.5 + (z + stats.norm.ppf(0.8)) * np.sqrt(lead @ lead) / n.sum() / 2
        )
        high = optimize.brentq(lambda x: np.sum(longer - x * n) + z * np.sqrt(np.sum((longer - x * n) ** 2)), p, 2)
    assert found["longer_win_rate_hi_these_items"] == pytest.approx(min(1.0, high), rel=1e-9)
    ratio, weight = (np.array([row[name] for row in won]) for name in ("ratio", "won"))
    mean = ratio.sum() / weight.sum()
    assert found["log_length_ratio"] == pytest.approx(mean, rel=1e-9)
    by_pair = np.sum((ratio - mean * weight) ** 2) * len(won) / (len(won) - 1) / weight.sum() ** 2
    assert found["log_length_ratio_se"] == pytest.approx(error(won, part_of("ratio", "won"), by_pair), rel=1e-9)
    assert found["log_length_ratio_se_these_items"] == pytest.approx(np.sqrt(by_pair), rel=1e-9)


def agreeing(counts: Sequence[float]) -> float:
    """Return the share of agreeing pairs of votes of one order."""
    m = sum(counts)
    return sum(k * (k - 1) for k in counts) / (m * (m - 1))


def test_repeats_of_items_in_general() -> None:
    """Agreement within and across orders, unanimity and the excess conflict have the loop's errors."""
    rows = [row for row in asked(4, repeats=3) if row["template_id"] == "t1"]
    (found,), pairs = of_pairs(rows, "metric_repeat", "pair_status")
    for row in pairs:
        first = [row[f"n_{word}_lo_first"] for word in ("lo_won", "hi_won", "tied")]
        second = [row[f"n_{word}_hi_first"] for word in ("lo_won", "hi_won", "tied")]
        row["within"] = [agreeing(counts) for counts in (first, second) if sum(counts) > 1]
        crossed = float(np.dot(first, second)) / (sum(first) * sum(second)) if sum(first) * sum(second) else None
        row["across"] = [] if crossed is None else [crossed]

    def mean(name: str, pairs: Sequence[Row]) -> float:
        return float(np.mean([value for pair in pairs for value in pair[name]]))

    within, across = (np.array([value for pair in pairs for value in pair[name]]) for name in ("within", "across"))
    by_pair = {
        "repeat_agreement": within.var(ddof=1) / len(within),
        "cross_order_agreement": across.var(ddof=1) / len(across),
        "repeat_unanimity": np.mean(within == 1) * np.mean(within < 1) / len(within),
        "position_excess_conflict": found["position_excess_conflict_se_these_items"] ** 2,
    }
    statistics: dict[str, Statistic] = {
        "repeat_agreement": lambda kept: mean("within", kept),
        "cross_order_agreement": lambda kept: mean("across", kept),
        "repeat_unanimity": lambda kept: float(np.mean([v == 1 for pair in kept for v in pair["within"]])),
        "position_excess_conflict": lambda kept: mean("within", kept) - mean("across", kept),
    }
    for name, statistic in statistics.items():
        assert found[name] == pytest.approx(statistic(pairs), rel=1e-9)
        assert found[f"{name}_se"] == pytest.approx(error(pairs, statistic, by_pair[name]), rel=1e-9), name
    half = stats.t.ppf(0.975, 7) * found["position_excess_conflict_se"]
    assert found["position_excess_conflict_hi"] == pytest.approx(found["position_excess_conflict"] + half, rel=1e-9)
    p, se = found["repeat_agreement"], found["repeat_agreement_se"]
    x = np.array([found["repeat_agreement_lo"], found["repeat_agreement_hi"]])
    np.testing.assert_allclose((x - p) ** 2, (stats.t.ppf(0.975, 7) * se) ** 2 * x * (1 - x) / (p * (1 - p)), rtol=1e-9)


def test_failures_of_two_templates() -> None:
    """What is not read: the difference moves as an item is left out of both templates."""
    rows = judged(asked(5))
    (found,) = [row for row in of_pairs(rows, "metric_failures_paired")[0] if row["failure"] == "unparsed"]

    def rate(kept: Sequence[Row], template: str) -> float:
        return float(np.mean([row["outcome"] == "unparsed" for row in kept if row["template_id"] == template]))

    def diff(kept: Sequence[Row]) -> float:
        return rate(kept, "t1") - rate(kept, "t2")

    parts: dict[tuple[str, str], float] = {}
    for row in rows:
        pair = (row["item_lo"], row["item_hi"])
        part = 1 / found["n_a"] if row["template_id"] == "t1" else -1 / found["n_b"]
        parts[pair] = parts.get(pair, 0) + part * (row["outcome"] == "unparsed")
    x = np.array(list(parts.values()))
    by_pair = x @ x - x.sum() ** 2 / len(x) + 0.5 / found["n_a"] ** 2 + 0.5 / found["n_b"] ** 2
    expected = error(rows, diff, float(by_pair))
    assert found["diff"] == pytest.approx(diff(rows), rel=1e-9)
    assert found["diff_se"] == pytest.approx(expected, rel=1e-9)
    assert found["p_diff"] == pytest.approx(2 * stats.t.sf(abs(diff(rows)) / expected, 7), rel=1e-9)
    assert found["diff_hi"] == pytest.approx(diff(rows) + stats.t.ppf(0.975, 7) * expected, rel=1e-9)


@pytest.mark.parametrize("is_shared", [False, True], ids=["own prompts", "shared prompts"])
@pytest.mark.parametrize("what", ["consistency", "win_rate_longer"])
def test_statements_in_general(what: str, *, is_shared: bool) -> None:
    """Consistency of a matrix and win rates by length: CR1 by statement, Wilson's ends of the effective size.

    Where statements share prompts, both are drawn: errors by statement and by prompt, less those by either. For these
    statements prompts are draws: Wilson's where each has one pair, CR1 by prompt where statements share them.
    """
    rng = np.random.default_rng(6)
    rows: list[Row] = []
    lengths: dict[str, int] = {}
    points: list[tuple[int, str, float]] = []
    for rubric, unit in np.ndindex(7, 6):
        prompt = f"u{unit}" if is_shared else f"u{rubric}{unit}"  # a unit's id may be its own under one statement alone
        names = (f"{prompt}a", f"{prompt}b")
        words = [("first", "second", "tie")[rng.choice(3, p=(0.6, 0.3, 0.1))] for _ in "12"]
        for (one, other), word in zip((names, names[::-1]), words, strict=True):
            rows.append({"rubric_id": f"r{rubric}", "unit_id": f"u{unit}", "item_first": one, "item_second": other,
                         "candidate_first": one[-1], "candidate_second": other[-1], "verdict": word})  # fmt: skip
        is_longer = unit > 0 if is_shared else bool(rng.random() < 0.5)
        lengths |= {name: 100 + 50 * (is_longer == (name[-1] == "a")) for name in names}
        a_wins = {"first": 1.0, "second": -1.0, "tie": 0.0}
        forth, back = a_wins[words[0]], -a_wins[words[1]]
        if what == "consistency":
            points.append((rubric, prompt, float(forth == back)))
        elif is_longer:
            points.append((rubric, prompt, 0.5 + forth / 2 if forth == back else 0.5))
    view = "metric_win_matrix" if what == "consistency" else "metric_length_candidates"
    chars = [{"study": "study", "item": name, "n_chars": n_chars} for name, n_chars in lengths.items()]
    with views_over({"pair_judgments": table(judged(rows)), "item_lengths": table(chars)}) as connection:
        (found,) = result(connection, f"FROM {view}")
    statements, prompts, drawn = zip(*points, strict=True)
    values = np.array(drawn)
    p = values.mean()
    assert found[what] == pytest.approx(p, rel=1e-9)
    expected, g = error_by(statements, values), len(set(statements))
    if is_shared:
        by_prompt, by_pair = (error_by(each, values) for each in (prompts, range(len(values))))
        expected, g = float(np.sqrt(expected**2 + max(0, by_prompt**2 - by_pair**2))), min(g, len(set(prompts)))
    assert found[f"{what}_se"] == pytest.approx(expected, rel=1e-9)
    check_ends(found, what, "", expected, values, g)
    if is_shared or 0.5 in values:
        check_ends(found, what, "_these_statements", error_by(prompts, values), values, len(set(prompts)))
    else:
        own: Numbers = np.array([found[f"{what}_{end}_these_statements"] for end in ("lo", "hi")])
        np.testing.assert_allclose(own, proportion_confint(values.sum(), len(values), method="wilson"), rtol=1e-9)


def test_compliance_of_outputs_that_statements_share() -> None:
    """Statements and prompts are both drawn: the difference of two candidates' rates has errors by either."""
    rng = np.random.default_rng(7)
    places = [(f"r{rubric}", f"u{unit}") for rubric, unit in np.ndindex(9, 7)]
    ease = {place: rng.normal(0, 1) for place in {name for place in places for name in place}}
    said = {
        candidate: np.array(
            [rng.random() < 1 / (1 + np.exp(-ease[r] - sign * ease[u])) for r, u in places], dtype=float
        )
        for candidate, sign in (("a", 2), ("b", -2))
    }
    rows = [
        {"rubric_id": r, "unit_id": u, "item": f"{u}{candidate}", "candidate": candidate,
         "verdict": str(bool(value)).lower()}
        for candidate, values in said.items() for (r, u), value in zip(places, values, strict=True)
    ]  # fmt: skip
    ((paired,),) = of_items(rows, "metric_compliance_paired")
    statements, prompts = zip(*places, strict=True)

    def expected(values: Numbers) -> float:
        by_statement, by_prompt, by_cell = (error_by(each, values) for each in (statements, prompts, range(63)))
        return float(np.sqrt(by_statement**2 + max(0, by_prompt**2 - by_cell**2)))

    diff = said["a"] - said["b"]
    assert expected(diff) > 1.1 * error_by(statements, diff), "prompts differ"
    assert paired["diff_se"] == pytest.approx(expected(diff), rel=1e-9)
    assert paired["p_diff"] == pytest.approx(2 * stats.t.sf(abs(diff.mean()) / expected(diff), 6), rel=1e-9)


def error_by(clusters: Sequence[object], values: Numbers) -> float:
    """Return the error of a mean clustered by what is given (CR1)."""
    names = sorted(set(clusters), key=str)
    sums = [sum(v - values.mean() for c, v in zip(clusters, values, strict=True) if c == name) for name in names]
    return float(np.sqrt(np.square(sums).sum() * len(names) / (len(names) - 1)) / len(values))


def check_ends(found: Row, what: str, target: str, se: float, values: Numbers, g: int) -> None:
    """Hold a rate's ends against Wilson's equation, with t over g - 1 and no less error than of pairs as draws."""
    p = found[what]
    x = np.array([found[f"{what}_{end}{target}"] for end in ("lo", "hi")])
    size = p * (1 - p) / max(se**2, values.var() / len(values))
    np.testing.assert_allclose((x - p) ** 2, stats.t.ppf(0.975, g - 1) ** 2 * x * (1 - x) / size, rtol=1e-9)


def test_intervals_hold_for_items_in_general() -> None:
    """A short form of `python -m tests.sweeps.coverage --of general`: 200 sets, through the views."""
    n_sets = 200
    found = play(DESIGNS["no difference, 10 items"], n_sets, seed=2)
    error = (0.05 * 0.95 / n_sets) ** 0.5
    for name in ("paired", "failures_paired", "length"):
        assert found[name] >= 0.93 - 2 * error, name
        assert found[f"{name} p"] <= 0.07 + 2 * error, name
    assert found["length_these_items"] < 0.9  # pairs that share an item are not draws of their own


@pytest.mark.parametrize(
    "name",
    [
        "6 statements share 12 prompts, 2 outputs", "20 statements drawn, 40 shared prompts",
        "12 statements drawn, own prompts, 2 votes", "one statement, 40 prompts, 3 votes",
    ],
)  # fmt: skip
def test_intervals_hold_for_other_prompts(name: str) -> None:
    """A short form of `python -m tests.sweeps.coverage --of candidates`: pairs of a prompt are no draws."""
    n_sets = 150
    found = candidates_planted.play(candidates_planted.DESIGNS[name], n_sets, seed=2)
    for rate in candidates_planted.RATES.keys() & found.keys():
        assert found[rate] >= 0.93 - 2 * (0.05 * 0.95 / n_sets) ** 0.5, rate


def test_win_rates_of_a_judge_that_flips_have_intervals_that_are_not_wider_than_they_say() -> None:
    """Half of the pairs flip, each is half a win, and a mean of halves is surer than as many wins or none."""
    design = candidates_planted.Candidates(3, 20, prompt_sd=0.5, spread=0.1, longer=0.2, is_of_general=True, repeats=1)
    found = candidates_planted.play(design, 400, seed=2)
    for rate in ("win_rate_half", "win_rate_longer", "win_rate_shorter"):
        assert 0.93 <= found[rate] <= 0.99, (rate, found[rate])


@pytest.mark.parametrize("repeats", [1, 2, 3, 5])
def test_asking_more_often_moves_no_share_of_the_longer_text(repeats: int) -> None:
    """Over 150 sets the mean share is the planted one, which majorities of repeats would move away from 1/2."""
    design = General(length=1.0, repeats=repeats)
    with views_over(general_planted.tables(design, 150, seed=3)) as connection:
        rows = result(connection, "FROM metric_length WHERE template_id = 'a'")
    truth = general_planted.truths(design)["metric_length"]
    assert np.mean(column(rows, "longer_win_rate")) == pytest.approx(truth, abs=0.008)
