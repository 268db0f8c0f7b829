"""Bradley-Terry in SQL gives the plain estimates of R, choix and `rank --with ml`, and none where there is none."""

from __future__ import annotations

import choix
import numpy as np
import pytest

from batchpond.stats import votes
from batchpond.stats.bradley_terry import Model, Penalty, fit
from batchpond.stats.votes import HI_WON, LO_WON
from tests.rigs.metrics import of_pairs
from tests.rigs.rank import GOLDEN, drawn, expected, rows, shared
from tests.rigs.sql import Row

TOLERANCE = 1e-8  # of the view's header


def thetas(judgments: list[Row]) -> dict[str, float | None]:
    """Return each item's theta by the view, in order of item."""
    (found,) = of_pairs(judgments, "metric_bradley_terry")
    assert all(row["is_converged"] for row in found if row["mle_exists"])
    return {row["item"]: row["theta"] for row in found}


def close(got: dict[str, float | None], items: list[str], wanted: object, tolerance: float = TOLERANCE) -> bool:
    """Whether these items have these thetas."""
    return bool(np.allclose([got[item] for item in items], np.asarray(wanted, float), atol=tolerance))  # type: ignore[arg-type]


def test_reference_cases() -> None:
    """Components by themselves, halved ties and an ignored position effect are R's glm; the unbeaten have nothing."""
    got = thetas(list(rows(GOLDEN / "08_bt_disconnected/judgments.csv")))
    assert all(close(got, part["items"], part["theta"]) for part in expected("08_bt_disconnected")["components"])
    half = expected("10_bt_ties")["half"]
    assert close(thetas(list(rows(GOLDEN / "10_bt_ties/judgments.csv"))), half["items"], half["theta"])
    plain = expected("11_bt_position_effect")["no_position"]
    assert close(thetas(list(rows(GOLDEN / "11_bt_position_effect/judgments.csv"))), plain["items"], plain["theta"])
    assert set(thetas(list(rows(GOLDEN / "09_bt_unbeaten_winless/judgments.csv"))).values()) == {None}


def test_writing_samples_are_those_of_r() -> None:
    """190 comparisons of 20 writing samples have R's maximum likelihood estimates."""
    wanted = rows(shared("bt") / "example_writing_pairs_expected_R.csv")
    given = rows(shared("pairwisellm") / "example_writing_pairs.csv")
    judgments: list[Row] = [
        {"item_first": row["ID1"], "item_second": row["ID2"],
         "verdict": "first" if row["better_id"] == row["ID1"] else "second"}
        for row in given
    ]  # fmt: skip
    got = thetas(judgments)
    assert close(got, [row["item"] for row in wanted], [row["theta_mle"] for row in wanted], 1e-6)


@pytest.mark.parametrize("seed", range(2))
def test_choix_and_the_ranking_agree(seed: int) -> None:
    """On random connected data, ties included, the view is Newton's plain fit; without ties it is choix' too."""
    table = drawn(seed, 9, 400, ties=0.2 * seed)
    words = ("lo", "hi", "tie")
    judgments: list[Row] = []
    for place, (lo, hi) in enumerate(zip(table.lo.tolist(), table.hi.tolist(), strict=True)):
        for order, result in np.ndindex(2, 3):
            first, second = ((lo, hi), (hi, lo))[order]
            verdict = "tie" if words[result] == "tie" else "first" if (result == 0) == (order == 0) else "second"
            judgments += [
                {"item_first": f"i{first}", "item_second": f"i{second}", "verdict": verdict,
                 "repeat_no": n + 10 * result}
                for n in range(round(float(table.counts[order, result, place])))
            ]  # fmt: skip
    assert len(judgments) == 400
    got, names = thetas(judgments), [f"i{item}" for item in range(9)]
    assert close(got, names, fit(table, Model(penalty=Penalty.NONE)).theta)
    if not table.results[votes.TIED].any():
        wins = np.zeros((9, 9))
        wins[table.lo, table.hi], wins[table.hi, table.lo] = table.results[LO_WON], table.results[HI_WON]
        assert close(got, names, choix.ilsr_pairwise_dense(wins, tol=1e-12), 1e-7)


def test_a_long_chain_is_given_up_and_says_so() -> None:
    """Sixty items each met by its neighbours alone: no theta after 500 rounds, not one that is not there yet."""
    judgments: list[Row] = [
        {"item_first": f"i{place + turn:02}", "item_second": f"i{place + 1 - turn:02}", "verdict": "first",
         "repeat_no": n}
        for place in range(59) for turn, times in ((0, 3), (1, 1)) for n in range(times)
    ]  # fmt: skip
    (found,) = of_pairs(judgments, "metric_bradley_terry")
    assert {(row["mle_exists"], row["is_converged"], row["theta"], row["n_rounds"]) for row in found} == {
        (True, False, None, 500)
    }
