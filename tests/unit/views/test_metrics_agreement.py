"""The agreement views equal the Python functions, other packages and the jackknife, on golden and on random data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import combinations

import krippendorff
import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from scipy import stats
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats.inter_rater import cohens_kappa, fleiss_kappa

from tests.oracles import agreement
from tests.oracles.agreement import MISSING, Level, Ratings
from tests.rigs import lists_planted
from tests.rigs.agreement_planted import DESIGNS, IN_GENERAL, play
from tests.rigs.metrics import of_items, of_pairs, reference, wrong
from tests.rigs.sql import Row, result, views_over
from tests.rigs.swept import some

Codes = npt.NDArray[np.int64]
WORDS = ("second", "tie", "first")  # in the order of the scale
SCORES = (1.0, 2.0, 4.0, 9.0)


def drawn(seed: int, shape: tuple[int, int], n_categories: int, missing: float = 0.25) -> Codes:
    """Return codes of noisy judges of one truth, some missing."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, n_categories, shape[0])
    codes = np.where(rng.random(shape) < 0.6, truth[:, None], rng.integers(0, n_categories, shape))
    codes[rng.random(shape) < missing] = MISSING
    return codes


def pair_rows(codes: Codes, orders: int = 1) -> list[Row]:
    """Return judgments of pairs: a unit per pair, or two units, its orders, one after the other."""
    return [
        {"item_first": f"{'ab'[unit % orders]}{unit // orders}",
         "item_second": f"{'ba'[unit % orders]}{unit // orders}",
         "request_model": f"j{judge}", "verdict": WORDS[code], "rubric_id": f"r{unit // orders % 3}"}
        for (unit, judge), code in np.ndenumerate(codes) if code != MISSING
    ]  # fmt: skip


def score_rows(codes: Codes) -> list[Row]:
    """Return ratings of items."""
    return [
        {"task": "likert", "item": f"i{unit}", "unit_id": f"u{unit}", "candidate": "c", "request_model": f"j{judge}",
         "score": SCORES[code]}
        for (unit, judge), code in np.ndenumerate(codes) if code != MISSING
    ]  # fmt: skip


def test_reference_case() -> None:
    """Cohen with errors and intervals, Fleiss, alpha, AC1, raw agreement and unanimity of the case come out to 1e-9."""
    rows, expected = reference("07_three_judges", "ratings.csv")
    given = [
        {"item_first": f"{row['unit_id']}a", "item_second": f"{row['unit_id']}b", "request_model": row["judge"],
         "verdict": row["verdict"]} for row in rows
    ]  # fmt: skip
    pairs, (whole,) = of_pairs(given, "metric_agreement", "metric_agreement_overall")
    found = {f"{row['request_model_a']}_{row['request_model_b']}": row for row in pairs}
    for name in ("j1_j2", "j1_j3", "j2_j3"):
        wanted = expected[f"cohen_{name}"]
        assert not wrong(found[name], {
            "n_units": wanted["n"], "agreement": wanted["agreement"], "agreement_lo": wanted["agreement_wilson"][0],
            "agreement_hi": wanted["agreement_wilson"][1], "kappa": wanted["kappa"], "kappa_se": wanted["kappa_se"],
            "kappa_lo": wanted["kappa_ci"][0], "kappa_hi": wanted["kappa_ci"][1],
        })  # fmt: skip
    assert not wrong(whole, {
        "alpha_nominal": expected["krippendorff_alpha_nominal"],
        "fleiss_kappa": expected["fleiss_kappa_complete_units"],
        "n_units_complete": expected["n_units_complete"], "ac1": expected["gwet_ac1"], "n_judges": 3,
        "agreement": expected["percent_agreement_mean_unit"], "unanimity": expected["unanimous_rate"],
        # p00 has a single vote: a majority, but of no agreement
        "n_units_majority": sum(word is not None for word in expected["majority"].values()) - 1,
    })  # fmt: skip


def figures(data: Ratings) -> dict[str, float | None]:
    """Return every coefficient that is the same for two judges and for many."""
    return {
        "agreement": agreement.percent_agreement(data),
        "ac1": agreement.gwet_ac1(data),
        **{f"alpha_{level}": agreement.krippendorff(data, level) for level in Level},
    }


@pytest.mark.parametrize("seed", range(1))
def test_sql_equals_python_and_the_packages(seed: int) -> None:
    """Pairs of orders, and ratings, with gaps: SQL = oracles/agreement = krippendorff, statsmodels, scikit-learn."""
    codes, scores = drawn(seed, (60, 4), 3), drawn(seed + 9, (50, 4), 4)
    for codes, values, (pairs, (whole,)) in (  # noqa: B020
        (codes, (-1.0, 0.0, 1.0), of_pairs(pair_rows(codes, 2), "metric_agreement", "metric_agreement_overall")),
        (scores, SCORES, of_items(score_rows(scores), "metric_agreement", "metric_agreement_overall")),
    ):
        data = Ratings(codes, np.array(values))
        complete = data.table[(codes != MISSING).all(axis=1)]
        assert not wrong(whole, figures(data) | {"fleiss_kappa": float(fleiss_kappa(complete))})
        held = np.where(codes == MISSING, np.nan, data.values[codes])
        for level in Level:
            alpha = krippendorff.alpha(held.T, level_of_measurement=level.value, value_domain=list(values))
            assert whole[f"alpha_{level}"] == pytest.approx(alpha, abs=1e-12)
        judges = [row for row in pairs if row["provider_b"] == "provider"]
        assert len(judges) == 6
        for row in judges:
            two = data.of_judges(int(row["request_model_a"][1]), int(row["request_model_b"][1]))
            own = agreement.cohen_kappa(two)
            assert not wrong(row, figures(two) | {"kappa": own.kappa, "n_units": own.n})
            assert row["kappa"] == pytest.approx(cohen_kappa_score(*two.codes.T), abs=1e-12)
            if values is SCORES:  # one unit per item: the plain error
                table = pd.crosstab(*two.codes.T).reindex(index=range(4), columns=range(4), fill_value=0).to_numpy()
                assert row["kappa_se"] == pytest.approx(cohens_kappa(table).std_kappa, rel=1e-9)


def jackknife(codes: Codes, size: int, estimate: Callable[[Codes], float | None]) -> float:
    """Return the standard error by leaving out one cluster of `size` units after the other."""
    n = len(codes) // size
    left = [estimate(np.delete(codes, slice(size * place, size * place + size), axis=0)) for place in range(n)]
    return float(np.sqrt((n - 1) * np.var(np.array(left, dtype=np.float64))))


@pytest.mark.parametrize("orders", some(2, swept=[1]))
def test_standard_errors_are_those_of_the_jackknife(orders: int) -> None:
    """The delta errors of kappa, alpha and AC1 are those of leaving out pairs, whose two orders are alike."""
    codes = np.repeat(drawn(4, (300 // orders, 3), 3, missing=0), orders, axis=0)
    codes[::2][np.random.default_rng(1).random((150, 3)) < 0.3] = MISSING
    pairs, (whole,) = of_pairs(pair_rows(codes, orders), "metric_agreement", "metric_agreement_overall")
    values = np.arange(-1.0, 2.0)
    for name in ("ac1", "alpha_nominal", "alpha_ordinal", "alpha_interval", "agreement"):
        wanted = jackknife(codes, orders, lambda left, name=name: figures(Ratings(left, values))[name])  # type: ignore[misc]
        se = whole.get(f"{name}_se") or (whole["agreement_hi"] - whole["agreement_lo"]) / 3.94
        assert se == pytest.approx(wanted, rel=0.03), name
    (row,) = (row for row in pairs if (row["request_model_a"], row["request_model_b"]) == ("j0", "j1"))

    def kappa(left: Codes) -> float | None:
        return agreement.cohen_kappa(Ratings(left, values).of_judges(0, 1)).kappa

    assert row["kappa_se"] == pytest.approx(jackknife(codes, orders, kappa), rel=0.03)


def by_item(items: Sequence[set[str]], estimate: Callable[[npt.NDArray[np.bool_]], float]) -> float:
    """Return the variance by leaving out, with its units, one item after the other."""
    names = sorted(set[str]().union(*items))
    whole = estimate(np.ones(len(items), bool))
    moved = [estimate(np.array([name not in of for of in items])) - whole for name in names]
    return (len(names) - 1) / len(names) * float(np.sum(np.square(moved)))


def test_agreement_of_items_in_general_is_a_jackknife_by_item() -> None:
    """Leaving out an item with its pairs, nothing taken off: ends of agreement to 1e-9, the rest to 8 %."""
    rng = np.random.default_rng(8)
    names = [f"i{item}" for item in range(16)]
    pairs = [(one, other) for one in names for other in names if one < other]
    taste = rng.normal(0, 1.5, (16, 2))
    gap = np.array([taste[int(one[1:])] - taste[int(other[1:])] for one, other in pairs])
    codes = (rng.random(gap.shape) > 1 / (1 + np.exp(-gap))).astype(np.int64)
    rows = [
        {"item_first": one, "item_second": other, "request_model": f"j{judge}", "verdict": WORDS[2 - code * 2]}
        for (one, other), said in zip(pairs, codes, strict=True) for judge, code in enumerate(said.tolist())
    ]  # fmt: skip
    (row,), (whole,) = of_pairs(rows, "metric_agreement", "metric_agreement_overall")
    items = [set(pair) for pair in pairs]

    def agreed(kept: npt.NDArray[np.bool_]) -> float:
        return float(np.mean(codes[kept, 0] == codes[kept, 1]))

    def beyond_chance(kept: npt.NDArray[np.bool_]) -> float:
        return float(cohen_kappa_score(*codes[kept].T))

    n, rate = len(pairs), agreed(np.ones(len(pairs), bool))
    for found, drawn_once in ((row, rate * (1 - rate) / n), (whole, rate * (1 - rate) / (n - 1))):
        variance = max(by_item(items, agreed), drawn_once)
        size = rate * (1 - rate) / variance
        t = stats.t.ppf(0.975, 15)
        middle, reach = rate + t * t / 2 / size, t * np.sqrt(variance + t * t / 4 / size**2)
        wanted = [(middle - reach) / (1 + t * t / size), (middle + reach) / (1 + t * t / size)]
        assert [found["agreement_lo_in_general"], found["agreement_hi_in_general"]] == pytest.approx(wanted, abs=1e-9)
    wanted_se = np.sqrt(by_item(items, beyond_chance))
    assert row["kappa_se_in_general"] == pytest.approx(wanted_se, rel=0.08)
    assert row["kappa_hi_in_general"] == pytest.approx(min(1, row["kappa"] + t * row["kappa_se_in_general"]), abs=1e-9)
    assert row["n_clusters"] == whole["n_clusters"] == 16
    data = Ratings(codes, np.arange(2.0))
    for name in ("alpha_nominal", "ac1"):
        jack = by_item(items, lambda kept, name=name: figures(Ratings(codes[kept], data.values))[name])  # type: ignore[misc]
        wanted_se = np.sqrt(jack)
        found_se = (whole[name] - whole[f"{name}_lo_in_general"]) / t
        assert found_se == pytest.approx(wanted_se, rel=0.08), name


@pytest.mark.parametrize("name", ["tastes of items, sd 1", "outputs to 20 prompts"])
def test_agreement_covers_what_it_is_for_items_in_general(name: str) -> None:
    """Each interval in general holds the truth about 19 times in 20; what is said of these items does not."""
    found = play(DESIGNS[name], 60, 5)
    assert min(share for key, share in found.items() if key.endswith(IN_GENERAL)) > 0.87
    if name.startswith("tastes"):
        assert max(share for key, share in found.items() if not key.endswith(IN_GENERAL)) < 0.87


def test_agreement_of_judges_of_lists_covers_what_it_is_for_items_in_general() -> None:
    """Items and lists are draws, their pairs are none; with lists alone as draws kappa would be covered .74 to .84."""
    found = lists_planted.play(lists_planted.DESIGNS["orders of 4, three judges of taste"], 60, 5)
    assert min(found.values()) > 0.87


def test_judges_of_lists_agree_on_the_pairs_that_their_lists_imply() -> None:
    """Kappa and alpha are those of loops over the pairs of each list and direction; of these items nothing is said."""
    given, _ = lists_planted.tables(lists_planted.Lists(n_judges=2, n_lists=12, taste_sd=1), 1, 3)
    ranks: dict[tuple[str, str], dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for row in given["results"].to_pylist():
        ranks[row["list_id"], row["direction"]][row["request_model"]][row["item_first"]] = row["list_rank"]
    codes = []
    for judges in ranks.values():
        for one, other in combinations(judges["j0"], 2):
            codes.append([int(judges[name][one] > judges[name][other]) for name in ("j0", "j1")])
    data = Ratings(np.array(codes), np.array([1.0, -1.0]))
    with views_over(given) as connection:
        (two,), (whole,) = (result(connection, f"FROM metric_agreement{end}") for end in ("", "_overall"))
    assert (two["n_units"], whole["judges"], whole["n_units"]) == (12 * 2 * 6, "lists", 12 * 2 * 6)
    assert not wrong(two, {"kappa": agreement.cohen_kappa(data).kappa, "kappa_lo": None, "agreement_lo": None})
    alpha = agreement.krippendorff(data, Level.NOMINAL)
    assert not wrong(whole, {"alpha_nominal": alpha, "alpha_nominal_se": None, "agreement_lo": None})
    assert two["n_clusters"] == whole["n_clusters"] == 24
    assert two["kappa_lo_in_general"] < two["kappa"] < two["kappa_hi_in_general"]
    bests, _ = lists_planted.tables(lists_planted.Lists(n_judges=2, n_lists=12, is_best=True), 1, 3)
    with views_over(bests) as connection:  # a pair is seen by both more often where both name the same best
        assert [result(connection, f"FROM metric_agreement{end}") for end in ("", "_overall")] == [[], []]


@pytest.mark.parametrize("orders", [1, 2])
def test_few_items_say_nothing_of_items_in_general(orders: int) -> None:
    """Below five items there is no such interval."""
    rows = pair_rows(drawn(3, (2 * orders, 3), 3, missing=0), orders)
    pairs, whole = of_pairs(rows, "metric_agreement", "metric_agreement_overall")
    for row in (*pairs, *whole):
        assert not any(value is not None for name, value in row.items() if name.endswith(IN_GENERAL))


def brute_others(votes: Sequence[int], own: int) -> list[int]:
    """Return the most frequent votes of the other judges, at least two: of several each is held in part."""
    rest = [vote for judge, vote in enumerate(votes) if judge != own and vote != MISSING]
    most = max(map(rest.count, rest), default=0)
    return sorted({vote for vote in rest if rest.count(vote) == most}) if len(rest) > 1 else []


def counts(kept: Sequence[tuple[int, list[int]]], category: int) -> dict[str, float]:
    """Return sensitivity, specificity and bias with plain loops, a unit whose truth is split counting in part."""
    said = np.array([vote == category for vote, _ in kept])
    held = np.array([told.count(category) / len(told) for _, told in kept])
    return {
        "n_units": len(kept), "n_reference": sum(told == [category] for _, told in kept),
        "n_divided": sum(len(told) > 1 for _, told in kept), "sensitivity": float(said @ held / held.sum()),
        "specificity": float(~said @ (1 - held) / (1 - held).sum()), "bias": float(said.mean() - held.mean()),
    }  # fmt: skip


def test_judges_against_people_and_against_the_other_judges() -> None:
    """References are people's majority in the order shown, and that of the judges without the judge's own vote."""
    codes = drawn(11, (80, 4), 3, missing=0.1)
    truth = drawn(12, (80, 1), 3, missing=0.2)[:, 0]
    flip = {0: 2, 1: 1, 2: 0}
    people = [
        {"provider": "human", "template_id": "people", "item_first": f"b{unit}", "item_second": f"a{unit}",
         "request_model": "h1", "rubric_id": f"r{unit % 3}", "verdict": WORDS[flip[code]]}
        for unit, code in enumerate(truth.tolist()) if code != MISSING
    ]  # fmt: skip
    pairs, categories = of_pairs(
        pair_rows(codes) + people, "metric_agreement", "metric_agreement_categories"
    )  # people saw the other order
    votes = codes.tolist()
    for judge in range(4):
        told = {
            "human": [[code] if code != MISSING else [] for code in truth.tolist()],
            "panel": [brute_others(row, judge) for row in votes],
        }
        for provider, truths in told.items():
            kept = [(row[judge], t) for row, t in zip(votes, truths, strict=True) if t and row[judge] != MISSING]
            assert any(len(t) > 1 for _, t in kept) == (provider == "panel")
            own, wanted, parts = zip(*((vote, one, 1 / len(t)) for vote, t in kept for one in t), strict=True)
            (row,) = (r for r in pairs if (r["request_model_a"], r["provider_b"]) == (f"j{judge}", provider))
            kappa = float(cohen_kappa_score(own, wanted, sample_weight=parts))
            assert not wrong(row, {"n_units": len(kept), "kappa": kappa, "n_divided": sum(len(t) > 1 for _, t in kept)})
            name = {"human": "people", "panel": "others"}[provider]
            by_word = {
                r["category"]: r for r in categories if (r["request_model"], r["reference"]) == (f"j{judge}", name)
            }
            for code, word in enumerate(WORDS):
                assert not wrong(by_word[word], counts(kept, code))


@pytest.mark.parametrize(
    ("words", "alpha"), [(("first", "first"), None), (("first", "tie"), 0.0)], ids=["no variation", "one apart"]
)
def test_votes_that_say_nothing_give_no_number(words: tuple[str, str], alpha: float | None) -> None:
    """One category only: raw agreement has an interval by Wilson, and every chance-corrected figure is NULL."""
    rows = [
        {"item_first": "a", "item_second": "b", "request_model": f"j{n}", "verdict": w} for n, w in enumerate(words)
    ]
    (pair,), (whole,) = of_pairs(rows, "metric_agreement", "metric_agreement_overall")
    assert pair["agreement"] == whole["agreement"] == float(words[0] == words[1])
    assert pair["alpha_nominal"] == whole["alpha_nominal"] == alpha
    if alpha is None:
        assert [pair[name] for name in ("kappa", "kappa_se", "ac1", "alpha_ordinal", "alpha_interval")] == [None] * 5
        assert pair["agreement_lo"] == pytest.approx(0.2065493143772375)
    assert [whole[f"{name}_se"] for name in ("ac1", "alpha_nominal", "alpha_ordinal", "alpha_interval")] == [None] * 4


def noisy(rng: np.random.Generator, n: int) -> Codes:
    """Return three judges who follow an uneven truth two times in three, a tenth missing."""
    truth = rng.choice(3, n, p=[0.5, 0.15, 0.35])
    codes = np.where(rng.random((n, 3)) < 0.65, truth[:, None], rng.choice(3, (n, 3), p=[0.4, 0.2, 0.4]))
    codes[rng.random((n, 3)) < 0.1] = MISSING
    return codes


def test_intervals_cover() -> None:
    """On 400 planted sets of 60 pairs the intervals hold the agreement of very many pairs .93 to .98 of the time."""
    rng = np.random.default_rng(3)
    everything = Ratings(noisy(rng, 200_000), np.arange(-1.0, 2.0))
    truth = figures(everything) | {"kappa": agreement.cohen_kappa(everything.of_judges(0, 1)).kappa}
    given = [
        row | {"study": f"s{study}", "rubric_id": "r"} for study in range(400) for row in pair_rows(noisy(rng, 60))
    ]
    pairs, whole = of_pairs(given, "metric_agreement", "metric_agreement_overall")
    two = [row for row in pairs if (row["request_model_a"], row["request_model_b"]) == ("j0", "j1")]
    for name, value in truth.items():
        rows = two if name == "kappa" else whole
        assert value is not None
        assert len(rows) == 400
        covered = float(np.mean([row[f"{name}_lo"] <= value <= row[f"{name}_hi"] for row in rows]))
        assert 0.93 <= covered <= 0.98, (name, covered)


def repeated(rng: np.random.Generator, shape: tuple[int, int], repeats: int, noise: float = 0.4) -> Codes:
    """Return what noisy judges say of a truth, again and again: shape (units, judges, repeats)."""
    truth = rng.integers(0, 4, (shape[0], 1, 1))
    return np.where(rng.random((*shape, repeats)) > noise, truth, rng.integers(0, 4, (*shape, repeats)))


def repeated_rows(codes: Codes, study: str = "study") -> list[Row]:
    """Return ratings of items, each as often as its judge was asked."""
    return [
        {"study": study, "task": "likert", "item": f"i{unit}", "unit_id": f"u{unit}", "candidate": "c",
         "request_model": f"j{judge}", "score": SCORES[code], "repeat_no": repeat}
        for (unit, judge, repeat), code in np.ndenumerate(codes) if code != MISSING
    ]  # fmt: skip


def expected_figures(codes: Codes) -> dict[str, float]:
    """Return the coefficients of one word of each judge drawn at random, by coincidences of every two judges."""
    shares = np.stack([(codes == code).sum(axis=2) for code in range(4)], axis=2).astype(float)
    asked = shares.sum(axis=2)
    shares /= np.where(asked, asked, 1)[..., None]
    m = (asked > 0).sum(axis=1)
    weight = np.where(m > 1, 1 / np.maximum(m - 1, 1), 0)
    totals, own = shares.sum(axis=1), np.einsum("ujc,ujk->uck", shares, shares)
    met = np.einsum("uc,uk->uck", totals, totals) - own
    coincidences = np.einsum("uck,u->ck", met, weight)
    n_c = coincidences.sum(axis=1)
    ranks = np.cumsum(n_c) - n_c / 2
    found = {}
    for level, x in ((Level.NOMINAL, None), (Level.ORDINAL, ranks), (Level.INTERVAL, np.array(SCORES))):
        apart = 1 - np.eye(4) if x is None else np.subtract.outer(x, x) ** 2
        observed, by_chance = np.sum(coincidences * apart), n_c @ apart @ n_c
        found[f"alpha_{level}"] = float(1 - (n_c.sum() - 1) * observed / by_chance)
    agreed = np.einsum("ucc->u", met)[m > 1] / (m * (m - 1))[m > 1]
    share = np.mean(totals[m > 0] / m[m > 0, None], axis=0)
    chance = float(share @ (1 - share)) / 3
    all_said = np.where((asked > 0)[..., None], shares, 1.0).prod(axis=1).sum(axis=1)
    found |= {"unanimity": float(all_said[m > 1].mean())}
    found |= {"agreement": float(agreed.mean()), "ac1": float((agreed.mean() - chance) / (1 - chance))}
    both = shares[(asked[:, :2] > 0).all(axis=1)][:, :2]
    po, pe = (
        float(np.einsum("uc,uc->u", both[:, 0], both[:, 1]).mean()),
        float(both[:, 0].mean(axis=0) @ both[:, 1].mean(axis=0)),
    )
    return found | {"kappa": (po - pe) / (1 - pe)}


def test_repeats_that_differ_count_in_part() -> None:
    """Every coefficient is that of one word of each judge drawn at random, its error that of leaving out items."""
    codes = repeated(np.random.default_rng(7), (150, 3), 3)
    codes[::2][np.random.default_rng(1).random((75, 3, 3)) < 0.3] = MISSING
    pairs, (whole,) = of_items(repeated_rows(codes), "metric_agreement", "metric_agreement_overall")
    (two,) = (row for row in pairs if (row["request_model_a"], row["request_model_b"]) == ("j0", "j1"))
    wanted = expected_figures(codes)
    assert not wrong({**whole, "kappa": two["kappa"]}, wanted)
    left = [expected_figures(np.delete(codes, unit, axis=0)) for unit in range(len(codes))]
    for name in wanted:
        se = two["kappa_se"] if name == "kappa" else whole.get(f"{name}_se")
        if se is not None:
            jack = np.sqrt((len(codes) - 1) * np.var([figures[name] for figures in left]))
            assert se == pytest.approx(jack, rel=0.03), name


def test_asking_judges_more_often_moves_no_coefficient_from_the_planted_value() -> None:
    """With 1, 2, 3 and 5 repeats alike: of majorities alpha and kappa rise with them, as the hard units leave."""
    rng = np.random.default_rng(5)
    planted = expected_figures(repeated(rng, (100_000, 3), 1))
    for repeats in (1, 2, 3, 5):
        rows = [row for study in range(12) for row in repeated_rows(repeated(rng, (150, 3), repeats), f"s{study}")]
        pairs, whole = of_items(rows, "metric_agreement", "metric_agreement_overall")
        two = [row for row in pairs if (row["request_model_a"], row["request_model_b"]) == ("j0", "j1")]
        assert {row["n_units"] for row in two} == {row["n_units"] for row in whole} == {150}
        for name, truth in planted.items():
            mean = np.mean([row[name] for row in (two if name == "kappa" else whole)])
            assert mean == pytest.approx(truth, abs=0.03), (repeats, name)


def test_agreement_with_people_is_a_judges_accuracy() -> None:
    """Of a judge that states no confidence: the mean over items of how much of its verdicts people hold."""
    rng = np.random.default_rng(4)
    rows: list[Row] = []
    right: list[float] = []
    for item in range(40):
        words, place = rng.choice(["true", "false"], 2), {"item": f"i{item}"}
        said = rng.choice(["true", "false"], rng.integers(1, 4))
        rows += [place | {"repeat_no": repeat, "verdict": str(word)} for repeat, word in enumerate(said)]
        people = words[: 1 + item % 2]
        rows += [place | {"provider": "human", "request_model": f"h{rater}", "verdict": str(word)}
                 for rater, word in enumerate(people)]  # fmt: skip
        right.append(float(np.mean([np.mean(people == word) for word in said])))
    (found,) = of_items(rows, "metric_agreement")
    (row,) = (row for row in found if row["provider_a"] != "human" and row["request_model_b"] == "majority")
    assert row["n_units"] == 40
    assert row["agreement"] == pytest.approx(np.mean(right), rel=1e-9)
