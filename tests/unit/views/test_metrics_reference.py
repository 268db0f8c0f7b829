"""The metric views give the numbers that scipy, statsmodels and pairwiseLLM give."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Set
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.metrics import measured, one_cell
from tests.rigs.sql import TESTS, Row, differs, judged, read_csv

GOLDEN = TESTS / "golden"
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
    "consistency_decided_wilson": "metric_consistency.consistency_decided*_these_items",
    "consistency_all": "metric_consistency.consistency_all",
    "consistency_all_wilson": "metric_consistency.consistency_all*_these_items",
    "conflict_rate": "metric_consistency.conflict_rate",
    "conflict_wilson": "metric_consistency.conflict_rate*_these_items",
    "p_position_exact": "metric_position_bias.p_position_these_items",
    "primacy_share": "metric_position_rates.primacy_share",
    "primacy_share_cp": "metric_position_rates.primacy_share",
    "first_rate_balanced": "metric_position_rates.first_rate_balanced",
    "position_logodds": "metric_position_bias.position_logodds",
    "position_logodds_se": "metric_position_bias.position_logodds_se_these_items",
    "preference_fairness": "metric_position_rates.preference_fairness",
    "first_rate_raw": "metric_position_rates.first_rate_raw",
    "p_first_raw_exact": "metric_position_rates.p_first_rate_raw",
    "n_rows": "metric_completion.n_answered",
    "n_unparsed": "metric_completion.n_unparsed",
    "n_error": "metric_completion.n_error",
    "n_refused": "metric_completion.n_refused",
    "n_tie": "metric_completion.n_tie",
    "repeat_groups": "metric_repeat.n_orders",
    "repeat_agreement": "metric_repeat.repeat_agreement",
    "repeat_agreement_se": "metric_repeat.repeat_agreement_se_these_items",
    "repeat_unanimity": "metric_repeat.repeat_unanimity",
    "repeat_unanimity_wilson": "metric_repeat.repeat_unanimity*_these_items",
    "cross_order_agreement_votes": "metric_repeat.cross_order_agreement",
    "n_cross_order_pairs": "metric_repeat.n_cross_order_pairs",
    "position_excess_conflict": "metric_repeat.position_excess_conflict",
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
# Beside an exact test stands the interval that inverts it (test_metrics_one_method), and no mid-p.
NOT_OFFERED = {"primacy_share_wilson", "p_position_midp", "first_rate_balanced_ci", "first_rate_raw_wilson"}
# Of the majorities of repeats, where the views count every vote: test_metrics_inference has those numbers.
OF_MAJORITIES = {
    "06_repeats": {
        "p_position_exact", "position_logodds", "position_logodds_se", "n_both", "undecided", "n_decided",
        "consistency_decided", "consistency_decided_wilson", "consistency_all", "consistency_all_wilson",
        "conflict_rate", "conflict_wilson",
        "primacy_share", "primacy_share_cp", "first_rate_balanced", "preference_fairness", "p_first_raw_exact",
    }
}  # fmt: skip


def mismatches(expected: dict[str, Any], cell: dict[str, Row], left_out: Set[str] = frozenset()) -> list[str]:
    """Compare a reference's numbers with a cell's; a pair of numbers is an interval, whose ends stand for a star."""
    found = []
    for name, wanted in expected.items():
        if name in NOT_OFFERED | left_out:
            continue
        view, column = NAMES[name].split(".")
        stem, _, target = column.partition("*")
        columns = [f"{stem}_lo{target}", f"{stem}_hi{target}"] if isinstance(wanted, list) else [column]
        for one, value in zip(columns, wanted if isinstance(wanted, list) else [wanted], strict=True):
            if differs(cell[view][one], value):
                found.append(f"{name}: {cell[view][one]!r} instead of {value!r}")
    return found


CASES = sorted(
    p.parent for p in GOLDEN.glob("*/judgments.csv") if "_bt_" not in p.parent.name
)  # rankings: test_rank_golden


@pytest.mark.parametrize("folder", CASES, ids=lambda f: f.name)
def test_reference_case(folder: Path) -> None:
    """Every number of a reference case, made by scipy and statsmodels, comes out to 1e-9."""
    rows = judged(read_csv((folder / "judgments.csv").read_text("utf-8")))
    if not rows:  # without any row there is no cell: let one request be planned and not answered
        rows = judged([{"item_first": "A", "item_second": "B", "verdict": None}])
    expected = json.loads((folder / "expected.json").read_text("utf-8"))["expected"]
    assert not mismatches(expected, one_cell(measured(rows)), OF_MAJORITIES.get(folder.name, frozenset()))


def test_repeats_that_split_count_in_part() -> None:
    """The rate of votes is the headline; those of majorities, which lose two pairs, are in the counts."""
    folder = GOLDEN / "06_repeats"
    expected = json.loads((folder / "expected.json").read_text("utf-8"))["expected"]
    found = measured(
        judged(read_csv((folder / "judgments.csv").read_text("utf-8"))), "metric_consistency", "metric_repeat"
    )
    (row,), (repeat,) = found["metric_consistency"], found["metric_repeat"]
    assert not differs(row["consistency_all"], expected["cross_order_agreement_votes"])
    assert not differs(row["consistency_all"], repeat["cross_order_agreement"])
    assert (row["n_both"], row["n_repeated"], row["n_split"]) == (30, 30, expected["undecided"])
    decided = row["n_consistent_win"] + row["n_primacy"] + row["n_recency"]
    assert (decided, row["n_undecided"]) == (expected["n_decided"], 0)
    assert not differs(row["n_consistent_win"] / decided, expected["consistency_decided"])


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
