"""Reference cases, made by R, irrCAC, evalica and by brute force, come out within their tolerance."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from batchpond.errors import UsageError
from batchpond.stats import bradley_terry, elo, ranking
from batchpond.stats import votes as win_tables
from batchpond.stats.bradley_terry import Model, Penalty, Ties, fit, likelihood_ratio, log_likelihood
from batchpond.stats.votes import triads
from tests.oracles import agreement, power
from tests.rigs.rank import GOLDEN, Numbers, expected, golden_votes, judged, rows, shared

ML = Model(penalty=Penalty.NONE)
R_TOLERANCE = 1e-6


def close(got: object, wanted: object, tolerance: float = R_TOLERANCE) -> bool:
    """Whether numbers agree, relative to their size, and to 1e-12 absolutely."""
    return bool(np.allclose(np.asarray(got, float), np.asarray(wanted, float), rtol=tolerance, atol=1e-9))


def errors(covariance: Numbers, n_items: int) -> Numbers:
    """Return the standard errors of theta."""
    return np.asarray(np.sqrt(np.diag(covariance)[:n_items]))


def test_components_are_fitted_and_centred_on_their_own() -> None:
    """Two groups that never met have thetas as if the other were not there, and no rank across."""
    names, votes = golden_votes("08_bt_disconnected")
    wanted = expected("08_bt_disconnected")
    label = win_tables.components(votes)
    for number, component in enumerate(wanted["components"]):
        items = np.flatnonzero(label == number)
        assert [names[item] for item in items] == component["items"]
        fitted = fit(votes.among(items), ML)
        assert close(fitted.theta, component["theta"])
        assert close(fitted.se, component["se"])
        assert close(log_likelihood(fitted), component["logLik"])
    found = ranking.rank(votes, ranking.Options(extras=frozenset({ranking.Extra.ML})))
    assert len(found.components) == wanted["n_components"]
    assert found.is_comparable is wanted["comparable"]
    assert close(found.extras["theta_ml"], np.concatenate([part["theta"] for part in wanted["components"]]))
    assert all(ranking.Flag.NOT_COMPARABLE in flags for flags in found.flags)


def test_unbeaten_and_winless_items_stay_finite_and_are_named() -> None:
    """Firth's estimate is that of brglm2; the plain one does not exist, and that is said."""
    names, votes = golden_votes("09_bt_unbeaten_winless")
    wanted = expected("09_bt_unbeaten_winless")
    fitted = fit(votes)
    assert close(fitted.theta, wanted["theta"])
    assert close(fitted.se, wanted["se"])
    assert close(log_likelihood(fitted), wanted["logLik"])
    assert not fit(votes, ML).is_converged
    found = ranking.rank(votes, ranking.Options(extras=frozenset({ranking.Extra.ML})))
    assert found.components[0].mle_exists is wanted["mle_exists"]
    flagged = {flag: [names[item] for item, flags in enumerate(found.flags) if flag in flags] for flag in ranking.Flag}
    assert flagged[ranking.Flag.UNBEATEN] == [wanted["unbeaten"]]
    assert flagged[ranking.Flag.WINLESS] == [wanted["winless"]]
    assert np.isnan(found.extras["theta_ml"]).all()
    assert math.isnan(found.theta_hi[names.index("S7")])
    assert math.isnan(found.theta_lo[names.index("S0")])


def test_ties_are_half_wins_or_davidsons() -> None:
    """Both models of ties are R's, standard errors and nu included."""
    _, votes = golden_votes("10_bt_ties")
    wanted = expected("10_bt_ties")
    half = fit(votes, ML)
    assert close(half.theta, wanted["half"]["theta"])
    assert close(half.se, wanted["half"]["se"])
    davidson = fit(votes, Model(Ties.DAVIDSON, penalty=Penalty.NONE))
    assert close(davidson.theta, wanted["davidson"]["theta"])
    assert close(davidson.se, wanted["davidson"]["se"])
    assert close(davidson.log_nu, wanted["davidson"]["log_nu"])
    assert close(math.sqrt(davidson.covariance[-1, -1]), wanted["davidson"]["log_nu_se"])


@pytest.mark.parametrize("part", ["no_position", "with_position"])
def test_position_effect_and_cluster_errors(part: str) -> None:
    """theta, eta, model errors, CR0 and CR3 by pair are R's and clubSandwich's."""
    _, votes = golden_votes("11_bt_position_effect")
    wanted = expected("11_bt_position_effect")[part]
    fitted = fit(votes, Model(has_eta=part == "with_position", penalty=Penalty.NONE))
    n = votes.n_items
    assert close(fitted.theta, wanted["theta"])
    assert close(fitted.se, wanted["se"])
    assert close(log_likelihood(fitted), wanted["logLik"])
    assert close(errors(bradley_terry.by_pair(fitted, is_adjusted=False).covariance, n), wanted["se_cluster_CR0"])
    assert close(errors(bradley_terry.by_pair(fitted).covariance, n), wanted["se_cluster_CR3"])
    if fitted.eta is not None:
        assert close(fitted.eta, wanted["eta"])
        assert close(math.sqrt(fitted.covariance[n, n]), wanted["eta_se"])


def test_position_likelihood_ratio() -> None:
    """The likelihood ratio statistic is that of the two R fits, and the summary shows it."""
    _, votes = golden_votes("11_bt_position_effect")
    wanted = expected("11_bt_position_effect")["lr_chisq"]
    assert close(likelihood_ratio(votes), wanted)
    component = ranking.rank(votes, ranking.Options(is_full=True)).components[0]
    assert close(component.eta_lr, wanted)
    assert component.is_eta_lr_penalised is False


def test_three_judges() -> None:
    """Every agreement of the case, missing ratings among them, to 1e-9."""
    table = rows(GOLDEN / "07_three_judges" / "ratings.csv")
    wanted = expected("07_three_judges")
    data = agreement.ratings(
        [row["unit_id"] for row in table], [row["judge"] for row in table], [row["verdict"] or None for row in table]
    )
    assert close(agreement.krippendorff(data), wanted["krippendorff_alpha_nominal"], 1e-9)
    assert close(agreement.fleiss_kappa(data), wanted["fleiss_kappa_complete_units"], 1e-9)
    assert close(agreement.gwet_ac1(data), wanted["gwet_ac1"], 1e-9)
    assert close(agreement.percent_agreement(data), wanted["percent_agreement_mean_unit"], 1e-9)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        pair, found = wanted[f"cohen_j{one + 1}_j{other + 1}"], agreement.cohen_kappa(data.of_judges(one, other))
        assert found.n == pair["n"]
        assert close(
            [found.agreement, found.kappa, found.se], [pair["agreement"], pair["kappa"], pair["kappa_se"]], 1e-9
        )
    words = sorted({row["verdict"] for row in table})
    majority = [None if code == agreement.MISSING else words[code] for code in agreement.majority(data)]
    units = list(dict.fromkeys(row["unit_id"] for row in table))
    assert dict(zip(units, majority, strict=True)) == wanted["majority"]


def test_triads() -> None:
    """Circles and zeta of a complete tournament are those of brute force; without skill a quarter is expected."""
    table = rows(GOLDEN / "16_triads" / "wins.csv")
    judgments = [{"item_first": row["winner"], "item_second": row["loser"], "verdict": "first"} for row in table]
    names, votes = judged(judgments)
    found, wanted = triads(votes, np.zeros(len(names))), expected("16_triads")
    assert (found.n_triads, found.n_cyclic) == (wanted["triads"], wanted["cyclic"])
    assert close(found.zeta, wanted["zeta"], 1e-9)
    assert close(found.n_cyclic_expected, wanted["expected_random"], 1e-9)


def replay(path: Path) -> tuple[list[str], elo.Replay]:
    """Return items and votes of a file of winners and losers, in its order."""
    table = rows(path)
    names = sorted({row[side] for row in table for side in ("winner", "loser")})
    winner, loser = (np.array([names.index(row[side]) for row in table]) for side in ("winner", "loser"))
    return names, elo.Replay(len(names), winner, loser, np.ones(len(table)))


def test_sequential_elo() -> None:
    """Elo in the order of the file, to 1e-9."""
    names, votes = replay(GOLDEN / "17_elo" / "winner_loser.csv")
    wanted = expected("17_elo")["sequential_k32_init1500"]
    assert close(elo.elo(votes), [wanted[name] for name in names], 1e-9)


def test_elochoice_to_the_last_integer() -> None:
    """EloChoice's ratings, rounding included."""
    folder = shared("pairwisellm")
    _, votes = replay(folder / "expected_build_elo_data.csv")
    wanted = [int(row["elo"]) for row in rows(folder / "expected_elochoice_runs1_k100.csv")]
    assert elo.elochoice(votes).tolist() == wanted


def test_elochoice_over_shuffles_is_near_its_mean() -> None:
    """The mean over 200 orders is within five standard errors of R's mean over 2,000."""
    folder = shared("pairwisellm")
    _, votes = replay(folder / "expected_build_elo_data.csv")
    rng = np.random.default_rng(3)
    mean = np.mean([elo.elochoice(votes.shuffled(rng)) for _ in range(200)], axis=0)
    wanted = rows(folder / "reference_elochoice_2000runs.csv")
    error = np.array([float(row["sd_over_runs"]) for row in wanted]) * math.sqrt(1 / 200 + 1 / 2000)
    assert (np.abs(mean - [float(row["elo_mean_2000runs"]) for row in wanted]) < 5 * error).all()


def test_writing_samples_as_in_r() -> None:
    """pairwiseLLM's example: plain, penalised and with a position term, as R fits it."""
    folder = shared("pairwisellm")
    table = rows(folder / "example_writing_pairs.csv")
    names, votes = judged(
        [
            {"item_first": row["ID1"], "item_second": row["ID2"],
             "verdict": "first" if row["better_id"] == row["ID1"] else "second"}
            for row in table
        ]
    )  # fmt: skip
    wanted = rows(shared("bt") / "example_writing_pairs_expected_R.csv")
    assert [row["item"] for row in wanted] == names
    column = {name: [float(row[name]) for row in wanted] for name in wanted[0] if name != "item"}
    plain, firth = fit(votes, ML), fit(votes)
    assert close(plain.theta, column["theta_mle"])
    assert close(plain.se, column["se_mle"])
    # The samples were each judged once per pair, so that the sandwich by row is the one by pair.
    assert close(errors(bradley_terry.by_pair(plain, is_adjusted=False).covariance, 20), column["se_sandwich"])
    assert close(firth.theta, column["theta_firth"])
    assert close(firth.se, column["se_firth"])
    assert close(fit(votes, Model(has_eta=True, penalty=Penalty.NONE)).theta, column["theta_with_eta"])
    other = {row["ID"]: float(row["theta"]) for row in rows(folder / "expected_bt_BradleyTerry2.csv")}
    relative = plain.theta - plain.theta[0]
    assert close(relative, [other[name] for name in names], 1e-5)


def test_sample_sizes() -> None:
    """Every number of the sample size case."""
    wanted = expected("20_power")
    numbers: dict[str, Callable[..., float]] = {
        "n_prop": power.n_for_proportion,
        "n_discordant_80pct": power.n_discordant_for_position,
        "n_pairs_position": power.n_pairs_for_position,
        "exact_power": lambda m, s: power.power_of_sign_test(int(m), s),
        "mcnemar_n": power.n_for_mcnemar,
    }
    for name, compute in numbers.items():
        for key, value in wanted[name].items():
            arguments = [float(part.partition("=")[2]) for part in key.split(",")]
            assert close(compute(*arguments), value, 1e-9), key
    for key, value in wanted["bt"].items():
        sd = float(key.partition("=")[2])
        assert close(power.information_per_comparison(sd), value["v"], 1e-9)
        assert close(power.consistency_expected(sd), value["consistency_expected"], 1e-9)
        for reliability, k in value["k_for_R"].items():
            assert close(power.comparisons_per_item(float(reliability), sd), k, 1e-9)


def test_a_pair_with_itself_is_refused() -> None:
    """Counting refuses an item compared with itself."""
    with pytest.raises(UsageError, match="itself"):
        win_tables.of_rows(2, [0], [0], ["first"])
