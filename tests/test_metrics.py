"""The metric views give the reference numbers, find planted bias, and are moved by nothing but verdicts."""

from __future__ import annotations

import csv
import json
import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from scipy import stats

from batchpond.model import Outcome
from sql_support import CELL, CELL_DEFAULT, TESTS, Row, differs, judged, read_csv, result, table, views_over

GOLDEN = TESTS / "golden"
CELL_VIEWS = (
    "metric_consistency", "metric_position_bias", "metric_completion", "metric_repeat_agreement", "metric_cost",
    "metric_pairwisellm",
)  # fmt: skip
OUTCOMES = "metric_outcomes"
# What the reference numbers call it, and the view and column that hold it.
NAMES = {
    "n_pairs": "metric_consistency.n_pairs",
    "n_both": "metric_consistency.n_both",
    "missing_reverse": "metric_consistency.n_missing_reverse",
    "undecided": "metric_consistency.n_undecided",
    "consistent_win": "metric_consistency.n_consistent_win",
    "consistent_tie": "metric_consistency.n_consistent_tie",
    "primacy": "metric_consistency.n_primacy",
    "recency": "metric_consistency.n_recency",
    "soft_primacy": "metric_consistency.n_soft_primacy",
    "soft_recency": "metric_consistency.n_soft_recency",
    "n_decided": "metric_consistency.n_decided",
    "consistency_decided": "metric_consistency.consistency_decided",
    "consistency_decided_wilson": "metric_consistency.consistency_decided",
    "consistency_all": "metric_consistency.consistency_all",
    "consistency_all_wilson": "metric_consistency.consistency_all",
    "conflict_rate": "metric_consistency.conflict_rate",
    "conflict_wilson": "metric_consistency.conflict_rate",
    "p_position_exact": "metric_position_bias.p_position_exact",
    "p_position_midp": "metric_position_bias.p_position_midp",
    "primacy_share": "metric_position_bias.primacy_share",
    "primacy_share_cp": "metric_position_bias.primacy_share",
    "first_rate_balanced": "metric_position_bias.first_rate_balanced",
    "first_rate_balanced_ci": "metric_position_bias.first_rate_balanced",
    "position_logodds": "metric_position_bias.position_logodds",
    "position_logodds_se": "metric_position_bias.position_logodds_se",
    "preference_fairness": "metric_position_bias.preference_fairness",
    "first_rate_raw": "metric_position_bias.first_rate_raw",
    "first_rate_raw_wilson": "metric_position_bias.first_rate_raw",
    "p_first_raw_exact": "metric_position_bias.p_first_rate_raw",
    "n_rows": "metric_completion.n_answered",
    "n_unparsed": "metric_completion.n_unparsed",
    "n_error": "metric_completion.n_error",
    "n_refused": "metric_completion.n_refused",
    "n_tie": "metric_completion.n_tie",
    "repeat_groups": "metric_repeat_agreement.n_orders",
    "repeat_agreement": "metric_repeat_agreement.repeat_agreement",
    "repeat_agreement_se": "metric_repeat_agreement.repeat_agreement_se",
    "repeat_unanimity": "metric_repeat_agreement.repeat_unanimity",
    "repeat_unanimity_wilson": "metric_repeat_agreement.repeat_unanimity",
    "cross_order_agreement_votes": "metric_repeat_agreement.cross_order_agreement",
    "n_cross_order_pairs": "metric_repeat_agreement.n_cross_order_pairs",
    "position_excess_conflict": "metric_repeat_agreement.position_excess_conflict",
    "n": "metric_completion.n_answered",
    "cost_total": "metric_cost.cost_usd",
    "input_tokens": "metric_cost.input_tokens",
    "output_tokens": "metric_cost.output_tokens",
    "cost_per_call": "metric_cost.cost_per_call_usd",
    "cost_per_valid_verdict": "metric_cost.cost_per_valid_verdict_usd",
    "cost_per_decided_pair": "metric_cost.cost_per_decided_pair_usd",
    "n_decided_consistent_pairs": "metric_cost.n_consistent_win",
    "parse_failure_rate": "unparsed.rate",
    "parse_failure_wilson": "unparsed.rate",
    "error_rate": "error.rate",
    "error_wilson": "error.rate",
    "refusal_rate": "refused.rate",
    "output_tokens_p50": "metric_cost.output_tokens_p50",
    "output_tokens_p95": "metric_cost.output_tokens_p95",
}
NOT_OFFERED = {"primacy_share_wilson"}  # the views give Clopper-Pearson for that small count


def measured(rows: Sequence[Row], *views: str) -> dict[str, list[Row]]:
    """Return metric views (all if none is named) over rows of pair_judgments, in order of cell."""
    cell = ", ".join(CELL)
    with views_over({"pair_judgments": table(rows, CELL)}) as connection:
        return {
            name: result(connection, f"SELECT * FROM {name} ORDER BY {cell}" + (", outcome" * (name == OUTCOMES)))
            for name in views or (*CELL_VIEWS, OUTCOMES)
        }


def one_cell(views: dict[str, list[Row]]) -> dict[str, Row]:
    """Return the single row of every view, and of every outcome under its own name."""
    by_outcome = {row["outcome"]: row for row in views[OUTCOMES]}
    return {name: rows[0] for name, rows in views.items() if name != OUTCOMES} | by_outcome


def mismatches(expected: dict[str, Any], cell: dict[str, Row]) -> list[str]:
    """Compare a reference's numbers with a cell's; a pair of numbers is an interval."""
    found = []
    for name, wanted in expected.items():
        if name in NOT_OFFERED:
            continue
        view, column = NAMES[name].split(".")
        columns = [f"{column}_lo", f"{column}_hi"] if isinstance(wanted, list) else [column]
        for one, value in zip(columns, wanted if isinstance(wanted, list) else [wanted], strict=True):
            if differs(cell[view][one], value):
                found.append(f"{name}: {cell[view][one]!r} instead of {value!r}")
    return found


@pytest.mark.parametrize("folder", sorted(GOLDEN.iterdir()), ids=lambda folder: folder.name)
def test_reference_case(folder: Path) -> None:
    """Every number of a reference case, made by scipy and statsmodels, comes out to 1e-9."""
    rows = judged(read_csv((folder / "judgments.csv").read_text("utf-8")))
    if not rows:  # without any row there is no cell: let one request be planned and not answered
        rows = judged([{"item_first": "A", "item_second": "B", "verdict": None}])
    expected = json.loads((folder / "expected.json").read_text("utf-8"))["expected"]
    assert not mismatches(expected, one_cell(measured(rows)))


def shared_folder() -> Path:
    """Return the folder of reference data that is not part of this repository; skips without it."""
    folder = Path(os.environ.get("BATCHPOND_SHARED", TESTS.parents[1] / "shared")) / "reference/golden/pairwisellm"
    if not folder.is_dir():
        pytest.skip(f"NOT COMPARED with pairwiseLLM: no {folder}; set BATCHPOND_SHARED to the folder that holds it")
    return folder


def pairwisellm_rows(path: Path, direction: str) -> list[Row]:
    """Read a data frame of ID1, ID2, better_id; a winner that is neither stays what it is."""
    rows = []
    for number, row in enumerate(csv.DictReader(path.read_text("utf-8").splitlines())):
        winner = {row["ID1"]: "first", row["ID2"]: "second", "": "unparsed"}.get(row["better_id"], row["better_id"])
        rows += judged([{"item_first": row["ID1"], "item_second": row["ID2"], "verdict": winner, "repeat_no": number}])
        rows[-1]["direction"] = direction
        if winner not in {"first", "second", "unparsed"}:
            rows[-1]["verdict"] = winner
    return rows


@pytest.mark.parametrize("case", ["A", "B", "C", "D"])
def test_pairwisellm_figures(case: str) -> None:
    """The classical figures equal pairwiseLLM's own, majority ties, NA and invalid winners included."""
    folder = shared_folder()
    rows = pairwisellm_rows(folder / f"{case}_main.csv", "forward")
    rows += pairwisellm_rows(folder / f"{case}_reverse.csv", "reverse")
    (got,) = measured(rows, "metric_pairwisellm")["metric_pairwisellm"]
    (summary,) = csv.DictReader((folder / f"{case}_expected_summary.csv").read_text("utf-8").splitlines())
    (bias,) = csv.DictReader((folder / f"{case}_expected_bias.csv").read_text("utf-8").splitlines())
    expected = {name: float(value) for name, value in (summary | bias).items() if not name.startswith("boot_")}
    assert len(expected) == 11
    assert not {name: got[name] for name, value in expected.items() if differs(float(got[name]), value)}


def test_pairwisellm_without_overlap() -> None:
    """No pair in both directions: nothing to compare, and no rate is made up (their case E)."""
    folder = shared_folder()
    (summary,) = csv.DictReader((folder / "E_zero_overlap_expected_summary.csv").read_text("utf-8").splitlines())
    rows = judged([{"item_first": a, "item_second": b, "verdict": "first"} for a, b in ("AB", "CD", "FE")])
    (got,) = measured(rows, "metric_pairwisellm")["metric_pairwisellm"]
    assert summary["n_pairs"] == str(got["n_pairs"]) == "0"
    assert summary["n_consistent"] == str(got["n_consistent"]) == "0"
    assert summary["prop_consistent"] in {"", "NA"}
    assert [got[name] for name in ("prop_consistent", "p_sample1_main", "p_sample1_rev", "p_sample1_overall")] == [
        None
    ] * 4


def test_pairwisellm_shows_the_order_seen_more_often() -> None:
    """Position is that of the more frequent order of a direction, the lower id first in a draw."""
    orders = [("B", "A", "second"), ("B", "A", "second"), ("A", "B", "first")]
    rows = judged(
        [{"item_first": a, "item_second": b, "verdict": v, "repeat_no": n} for n, (a, b, v) in enumerate(orders)]
    )
    rows += judged([{"item_first": "A", "item_second": "B", "verdict": "first", "repeat_no": 9}])
    for row, direction in zip(rows, ("forward", "forward", "forward", "reverse"), strict=True):
        row["direction"] = direction
    (got,) = measured(rows, "metric_pairwisellm")["metric_pairwisellm"]
    assert (got["n_consistent"], got["total_pos1_wins"], got["total_comparisons"]) == (1, 1, 2)
    (drawn,) = measured(rows[1:], "metric_pairwisellm")["metric_pairwisellm"]
    assert drawn["total_pos1_wins"] == 2


# --- a judge with known properties ---------------------------------------------------------------------------------

Numbers = npt.NDArray[np.float64]


def judge(n_cells: int, n_pairs: int, bias: float, seed: int) -> pa.Table:
    """Return judgments of every pair in both orders: P(first wins) = logistic(quality gap + bias)."""
    rng = np.random.default_rng(seed)
    gap = rng.normal(0, 1.5, (n_cells, n_pairs))
    lo_wins_first = rng.random(gap.shape) < 1 / (1 + np.exp(-(gap + bias)))
    lo_wins_second = rng.random(gap.shape) < 1 / (1 + np.exp(-(gap - bias)))
    cell = np.repeat(np.arange(n_cells), n_pairs)
    pair = np.tile(np.arange(n_pairs), n_cells)
    columns: dict[str, Any] = {name: np.full(2 * cell.size, value) for name, value in CELL_DEFAULT.items()}
    columns["template_id"] = np.char.mod("t%05d", np.tile(cell, 2))
    lo, hi = np.char.mod("a%04d", np.tile(pair, 2)), np.char.mod("b%04d", np.tile(pair, 2))
    is_lo_first = np.repeat([True, False], cell.size)
    lo_won = np.concatenate([lo_wins_first.ravel(), lo_wins_second.ravel()])
    columns |= {"item_lo": lo, "item_hi": hi, "is_lo_first": is_lo_first, "unit_id": np.full(lo.size, "")}
    columns |= {"item_first": np.where(is_lo_first, lo, hi), "item_second": np.where(is_lo_first, hi, lo)}
    columns |= {"verdict": np.where(lo_won == is_lo_first, "first", "second"), "outcome": np.full(lo.size, "decided")}
    return pa.table(columns)


def column(rows: Sequence[Row], name: str) -> Numbers:
    """Return a column as numbers, NULL as NaN."""
    return np.array([np.nan if row[name] is None else row[name] for row in rows], dtype=np.float64)


@pytest.mark.parametrize("bias", [0.0, 0.3, 0.8, -0.5])
def test_planted_bias_is_recovered(bias: float) -> None:
    """Over 400 seeded studies the log-odds average the planted bias and intervals cover the truth 93 to 98 %."""
    rng = np.random.default_rng(7)
    gaps = rng.normal(0, 1.5, 200_000)
    first, second = 1 / (1 + np.exp(-(gaps + bias))), 1 / (1 + np.exp(-(gaps - bias)))
    consistent, primacy = first * second + (1 - first) * (1 - second), first * (1 - second)
    truth = {
        "position_logodds": bias,
        "first_rate_balanced": (first.mean() + (1 - second).mean()) / 2,
        "primacy_share": primacy.mean() / (1 - consistent.mean()),
    }
    with views_over({"pair_judgments": judge(400, 190, bias, seed=11)}) as connection:
        bias_rows = result(connection, "FROM metric_position_bias")
        consistency_rows = result(connection, "FROM metric_consistency")
    assert len(bias_rows) == 400
    estimate = column(bias_rows, "position_logodds")
    assert abs(estimate.mean() - bias) < 4 * estimate.std() / np.sqrt(400)
    covered = {
        name: np.mean((column(bias_rows, f"{name}_lo") <= value) & (value <= column(bias_rows, f"{name}_hi")))
        for name, value in truth.items()
    }
    lo, hi = (column(consistency_rows, f"consistency_decided_{end}") for end in ("lo", "hi"))
    covered["consistency_decided"] = np.mean((lo <= consistent.mean()) & (consistent.mean() <= hi))
    assert all(0.93 <= share <= 0.99 for share in covered.values()), covered
    found = np.mean(column(bias_rows, "p_position_exact") <= 0.05)
    if bias == 0:
        assert found <= 0.05
        assert np.mean(column(bias_rows, "q_bh") <= 0.05) <= 0.01
    else:
        assert found > 0.5


def test_p_position_keeps_its_level() -> None:
    """With 2,000 studies of an unbiased judge at most 5 % have p <= .05, and mid-p stays near 5 %."""
    with views_over({"pair_judgments": judge(2000, 40, 0.0, seed=13)}) as connection:
        query = (
            "SELECT avg((p_position_exact <= 0.05)::INT), avg((p_position_midp <= 0.05)::INT) FROM metric_position_bias"
        )
        ((exact, midp),) = connection.execute(query).fetchall()
    assert exact <= 0.05
    assert midp <= 0.06


def test_minimum_detectable_share_is_about_right() -> None:
    """Where a judge's true share of first among flips is the MDE, four studies in five find it."""
    rng = np.random.default_rng(17)
    n = 47
    critical = max(k for k in range(n // 2) if stats.binomtest(k, n).pvalue <= 0.05)
    share = stats.beta.ppf(0.8, n - critical, critical + 1)
    rows = []
    for cell, flips in enumerate(rng.binomial(n, share, 300)):
        for pair in range(n):
            word = "first" if pair < flips else "second"
            items = (f"a{pair:02}", f"b{pair:02}")
            template = {"template_id": f"t{cell:03}", "verdict": word}
            rows += [
                dict(zip(("item_first", "item_second"), order, strict=True), **template)
                for order in (items, items[::-1])
            ]
    views = measured(judged(rows), "metric_position_bias")["metric_position_bias"]
    assert not any(differs(row["primacy_share_mde"], float(share)) for row in views)
    assert 0.74 <= np.mean([row["p_position_exact"] <= 0.05 for row in views]) <= 0.86


# --- an independent implementation, and what must not matter --------------------------------------------------------

WORDS = ("first", "second", "tie", "unparsed", "refused", "error", "ambiguous", None)


def random_rows(seed: int, n_rows: int = 1500) -> list[Row]:
    """Return messy judgments: several cells and units, repeats, failures, gaps, pending requests."""
    rng = np.random.default_rng(seed)
    items = [*(f"S{number:02}" for number in range(9)), "Ä", "z", "a b"]
    seen, rows = set(), []
    for _ in range(n_rows):
        first, second = rng.choice(len(items), 2, replace=False)
        row = {
            "template_id": f"t{rng.integers(3)}", "study": f"s{rng.integers(2)}",
            "unit_id": ("", "u1")[rng.integers(2)],
            "item_first": items[first], "item_second": items[second], "repeat_no": int(rng.integers(1, 4)),
        }  # fmt: skip
        if tuple(row.values()) in seen:
            continue
        seen.add(tuple(row.values()))
        row["verdict"] = WORDS[rng.choice(len(WORDS), p=[0.38, 0.3, 0.1, 0.05, 0.03, 0.05, 0.02, 0.07])]
        row["cost_usd"] = None if row["verdict"] in {None, "error"} else float(rng.uniform(0.001, 0.01))
        rows.append(row)
    return judged(rows)


STATUS = {
    ("tie", "tie"): "consistent_tie",
    ("first", "second"): "consistent_win",
    ("second", "first"): "consistent_win",
    ("first", "first"): "primacy",
    ("second", "second"): "recency",
    ("first", "tie"): "soft_primacy",
    ("tie", "first"): "soft_primacy",
    ("second", "tie"): "soft_recency",
    ("tie", "second"): "soft_recency",
}


def plain_status(rows: Sequence[Row]) -> dict[tuple[str, ...], str]:
    """Work out each pair's status with dictionaries, from the definitions alone."""
    pairs: dict[tuple[str, ...], dict[bool, list[Row]]] = defaultdict(lambda: {True: [], False: []})
    for row in rows:
        pairs[*(row[name] for name in (*CELL, "unit_id", "item_lo", "item_hi"))][row["is_lo_first"]].append(row)
    return {pair: status_of(orders) for pair, orders in pairs.items()}


def status_of(orders: dict[bool, list[Row]]) -> str:
    """Return one pair's status from its rows per order (True: the lower item shown first)."""
    answered = {order: [row for row in rows if row.get("outcome")] for order, rows in orders.items()}
    if any(orders[order] and not answered[order] for order in orders):
        return "pending"
    if not all(answered.values()):
        return "missing_reverse"
    return STATUS.get(tuple(majority(answered[order]) for order in (True, False)), "undecided")


def majority(rows: Sequence[Row]) -> str | None:
    """Return the only most frequent verdict."""
    ranked = Counter(row["verdict"] for row in rows if row["verdict"]).most_common(2)
    return ranked[0][0] if ranked and (len(ranked) == 1 or ranked[0][1] > ranked[1][1]) else None


@pytest.mark.parametrize("seed", range(2))
def test_sql_equals_a_plain_implementation(seed: int) -> None:
    """Statuses, counts, rates, tests, BH values and raw rates equal dictionaries plus scipy on messy data."""
    rows = random_rows(seed)
    expected = plain_status(rows)
    names = (*CELL, "unit_id", "item_lo", "item_hi")
    with views_over({"pair_judgments": table(rows)}) as connection:
        got = {tuple(row[name] for name in names): row["status"] for row in result(connection, "FROM pair_status")}
        assert got == expected
        assert len(set(got.values())) == 9
        bias = {tuple(row[name] for name in CELL): row for row in result(connection, "FROM metric_position_bias")}
        consistency = {tuple(row[name] for name in CELL): row for row in result(connection, "FROM metric_consistency")}
    p_by_study: dict[str, list[float]] = defaultdict(list)
    for cell, row in consistency.items():
        count = Counter(status for pair, status in expected.items() if pair[: len(CELL)] == cell)
        b, c, wins = count["primacy"], count["recency"], count["consistent_win"]
        assert row["n_pairs"] == sum(count.values()) - count["pending"]
        assert row["n_pairs"] == row["n_both"] + row["n_undecided"] + row["n_missing_reverse"]
        assert not differs(row["consistency_decided"], wins / (wins + b + c))
        assert not differs(bias[cell]["p_position_exact"], float(stats.binomtest(b, b + c).pvalue))
        first, second = (sum(r["verdict"] == word for r in rows if in_cell(r, cell)) for word in ("first", "second"))
        assert not differs(bias[cell]["first_rate_raw"], first / (first + second))
        assert not differs(bias[cell]["p_first_rate_raw"], float(stats.binomtest(first, first + second).pvalue))
        p_by_study[cell[0]].append(bias[cell]["p_position_exact"])
    for study, p_values in p_by_study.items():
        q_values = sorted(row["q_bh"] for cell, row in bias.items() if cell[0] == study)
        np.testing.assert_allclose(q_values, sorted(stats.false_discovery_control(p_values)), rtol=1e-12)


def in_cell(row: Row, cell: tuple[str, ...]) -> bool:
    """Whether a row belongs to a cell."""
    return tuple(row[name] for name in CELL) == cell


def moved(before: dict[str, list[Row]], after: dict[str, list[Row]]) -> set[str]:
    """Return the columns, over all views and cells, that differ."""
    return {
        name
        for view, rows in before.items()
        for old, new in zip(rows, after[view], strict=True)
        for name in old
        if differs(new[name], old[name])
    }


def test_shuffled_rows_change_nothing() -> None:
    """The order of rows is without meaning."""
    rows = random_rows(5)
    shuffled = [rows[index] for index in np.random.default_rng(1).permutation(len(rows))]
    assert moved(measured(rows), measured(shuffled)) == set()


def test_swapping_positions_flips_the_bias_and_nothing_else() -> None:
    """First for second in every verdict: the bias changes sign, consistency, cost and failures stay."""
    rows = random_rows(6)
    swap = {"first": "second", "second": "first"}
    swapped = [row | {"verdict": swap.get(row["verdict"], row["verdict"])} for row in rows]
    before, after = measured(rows), measured(swapped)
    flips = {
        "n_primacy", "n_recency", "n_soft_primacy", "n_soft_recency", "primacy_share", "primacy_share_lo",
        "primacy_share_hi", "position_logodds", "position_logodds_lo", "position_logodds_hi", "first_rate_balanced",
        "first_rate_balanced_lo", "first_rate_balanced_hi", "preference_fairness", "n_verdicts_first",
        "n_verdicts_second", "first_rate_raw", "first_rate_raw_lo", "first_rate_raw_hi",
        "total_pos1_wins", "n_inconsistent_pos1_bias", "n_inconsistent_pos2_bias",
    }  # fmt: skip
    assert moved(before, after) <= flips
    for old, new in zip(before["metric_position_bias"], after["metric_position_bias"], strict=True):
        assert not differs(new["position_logodds"], -old["position_logodds"])
        assert not differs(new["position_logodds_hi"], -old["position_logodds_lo"])
        assert not differs(new["primacy_share_hi"], 1 - old["primacy_share_lo"])
        assert not differs(new["first_rate_balanced_lo"], 1 - old["first_rate_balanced_hi"])
        assert not differs(new["preference_fairness"], -old["preference_fairness"])


def test_renaming_items_changes_nothing_about_position() -> None:
    """Which of two ids is the lower one is without meaning: reversing all ids moves no consistency or bias."""
    rows = random_rows(8)
    ids = sorted({row["item_lo"] for row in rows} | {row["item_hi"] for row in rows}, key=str.encode)
    renamed = dict(zip(ids, (f"n{number:03}" for number in range(len(ids), 0, -1)), strict=True))
    given = ("study", "template_id", "unit_id", "repeat_no", "cost_usd")
    others = judged(
        [
            {name: row.get(name) for name in given}
            | {"item_first": renamed[row["item_first"]], "item_second": renamed[row["item_second"]]}
            | {"verdict": row["verdict"] or row.get("outcome")}
            for row in rows
        ]
    )
    before, after = measured(rows), measured(others)
    del before["metric_pairwisellm"]  # its two directions are the two orders here, so they change places
    assert moved(before, after) == set()


def test_duplicated_rows_leave_point_estimates() -> None:
    """Every judgment given twice: pair counts, rates and the position test stay as they were."""
    rows = random_rows(9)
    before, after = measured(rows), measured(rows + rows)
    for view in ("metric_consistency", "metric_pairwisellm"):
        assert moved({view: before[view]}, {view: after[view]}) == set()
    bias = moved({"b": before["metric_position_bias"]}, {"b": after["metric_position_bias"]})
    assert bias == {
        "n_verdicts_first",
        "n_verdicts_second",
        "first_rate_raw_lo",
        "first_rate_raw_hi",
        "p_first_rate_raw",
    }
    rates = moved({"o": before["metric_outcomes"]}, {"o": after["metric_outcomes"]})
    assert rates == {"n", "n_base", "rate_lo", "rate_hi"}


def test_unparsed_answers_never_change_a_rate() -> None:
    """More answers without a verdict, to orders that have one: no rate, interval, test or pair count moves."""
    rows = [row for row in random_rows(10) if row["verdict"]]
    noise = [row | {"verdict": None, "outcome": "unparsed", "repeat_no": 9, "cost_usd": 0.0} for row in rows[::3]]
    views = ("metric_consistency", "metric_position_bias", "metric_repeat_agreement", "metric_pairwisellm")
    assert moved(measured(rows, *views), measured(rows + noise, *views)) == set()


def test_pending_requests_never_change_a_rate() -> None:
    """Planned repeats that are not answered yet count as pending and move nothing else."""
    rows = [row for row in random_rows(12) if row["verdict"]]
    waiting = [row | {"verdict": None, "outcome": None, "repeat_no": 9, "cost_usd": None} for row in rows[::4]]
    before, after = measured(rows), measured(rows + waiting)
    assert moved(before, after) == {"n_planned", "n_pending", "completion_rate"}


def test_a_reverse_still_out_is_pending_not_undecided() -> None:
    """A pair whose reverse is planned waits; one whose reverse was never planned is missing it."""
    rows = judged(
        [
            {"item_first": "A", "item_second": "B", "verdict": "first"},
            {"item_first": "B", "item_second": "A", "verdict": None},
            {"item_first": "A", "item_second": "C", "verdict": "first"},
            {"item_first": "C", "item_second": "D", "verdict": None},
        ]
    )
    (got,) = measured(rows, "metric_consistency")["metric_consistency"]
    assert (got["n_pairs_pending"], got["n_missing_reverse"], got["n_undecided"], got["n_pairs"]) == (2, 1, 0, 1)


def test_every_outcome_is_counted() -> None:
    """The outcome counts add up to what was answered, and each outcome has its column."""
    rows = judged([{"item_first": "A", "item_second": f"B{n}", "verdict": word} for n, word in enumerate(Outcome)])
    for row in rows:
        row["verdict"] = {"decided": "first", "tie": "tie"}.get(row["outcome"])
    (got,) = measured(rows, "metric_completion")["metric_completion"]
    assert {word: got[f"n_{word}"] for word in Outcome} == dict.fromkeys(Outcome, 1)
    assert got["n_answered"] == len(Outcome)
    assert {row["outcome"] for row in measured(rows, "metric_outcomes")["metric_outcomes"]} == set(Outcome)


def test_an_unknown_cost_is_not_zero() -> None:
    """One returned answer without a cost: no price per verdict or pair is stated, and the gap is counted."""
    pair = [("A", "B", "first"), ("B", "A", "second")]
    rows = judged([{"item_first": a, "item_second": b, "verdict": v, "cost_usd": 0.5} for a, b, v in pair])
    (known,) = measured(rows, "metric_cost")["metric_cost"]
    assert (known["cost_per_decided_pair_usd"], known["cost_per_valid_verdict_usd"]) == (1.0, 0.5)
    (gap,) = measured([rows[0], rows[1] | {"cost_usd": None}], "metric_cost")["metric_cost"]
    assert (gap["n_cost_unknown"], gap["cost_usd"], gap["cost_per_call_usd"]) == (1, 0.5, 0.5)
    assert gap["cost_per_decided_pair_usd"] is None
    assert gap["cost_per_valid_verdict_usd"] is None


def test_the_excess_conflict_has_a_sound_standard_error() -> None:
    """Clustered by pair, the standard error matches the spread over 150 simulated studies."""
    rng = np.random.default_rng(19)
    rows = []
    for cell in range(150):
        for pair, chance in enumerate(rng.uniform(0.1, 0.9, 40)):
            for order in (True, False):
                lo_won = rng.random(3) < (chance if order else chance * 0.8)
                items = (f"a{pair:02}", f"b{pair:02}") if order else (f"b{pair:02}", f"a{pair:02}")
                rows += [
                    {"template_id": f"t{cell:03}", "item_first": items[0], "item_second": items[1], "repeat_no": number,
                     "verdict": "first" if won == order else "second"}
                    for number, won in enumerate(lo_won)
                ]  # fmt: skip
    views = measured(judged(rows), "metric_repeat_agreement")["metric_repeat_agreement"]
    spread = column(views, "position_excess_conflict").std()
    assert 0.85 < column(views, "position_excess_conflict_se").mean() / spread < 1.15
