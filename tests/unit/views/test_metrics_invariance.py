"""The metric views equal a plain implementation, and are moved by nothing but verdicts."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from batchpond.model import Outcome
from tests.rigs.metrics import column, measured, of_pairs
from tests.rigs.sql import CELL, Row, differs, judged, result, table, views_over

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
    """Statuses, counts, rates, BH values and raw rates equal dictionaries plus scipy on messy data."""
    rows = random_rows(seed)
    expected = plain_status(rows)
    names = (*CELL, "unit_id", "item_lo", "item_hi")
    with views_over({"pair_judgments": table(rows)}) as connection:
        got = {tuple(row[name] for name in names): row["status"] for row in result(connection, "FROM pair_status")}
        assert got == expected
        assert len(set(got.values())) == 9
        bias = {tuple(row[name] for name in CELL): row for row in result(connection, "FROM metric_position_bias")}
        rates = {tuple(row[name] for name in CELL): row for row in result(connection, "FROM metric_position_rates")}
        consistency = {tuple(row[name] for name in CELL): row for row in result(connection, "FROM metric_consistency")}
    p_by_study: dict[str, list[float]] = defaultdict(list)
    for cell, row in consistency.items():
        count = Counter(status for pair, status in expected.items() if pair[: len(CELL)] == cell)
        b, c, wins = count["primacy"], count["recency"], count["consistent_win"]
        assert row["n_pairs"] == sum(count.values()) - count["pending"]
        assert row["n_pairs"] == row["n_both"] + row["n_undecided"] + row["n_missing_reverse"]
        assert (row["n_consistent_win"], row["n_split"]) == (wins, count["undecided"] - row["n_undecided"])
        for name, rate in plain_rates(rows, cell).items():
            assert not differs(row[name], rate), name
        assert (bias[cell]["n_primacy"], bias[cell]["n_recency"]) == (b, c)
        for name, rate in plain_place_rates(rows, cell).items():
            assert not differs(rates[cell][name], rate), name
        first, second = (sum(r["verdict"] == word for r in rows if in_cell(r, cell)) for word in ("first", "second"))
        assert not differs(rates[cell]["first_rate_raw"], first / (first + second))
        p_by_study[cell[0]].append(bias[cell]["p_position"])
    for study, p_values in p_by_study.items():
        q_values = sorted(row["q_bh"] for cell, row in bias.items() if cell[0] == study)
        np.testing.assert_allclose(q_values, sorted(stats.false_discovery_control(p_values)), rtol=1e-12)


def plain_crossed(rows: Sequence[Row]) -> dict[tuple[str, ...], list[tuple[str, str]]]:
    """Return each vote of one order with each of the other, by cell and pair with both."""
    votes: dict[tuple[str, ...], dict[bool, list[str]]] = defaultdict(lambda: {True: [], False: []})
    for row in rows:
        if row["verdict"]:
            word = row["verdict"] if row["verdict"] == "tie" else (row["verdict"] == "first") == row["is_lo_first"]
            pair = (*(row[name] for name in CELL), row["unit_id"], row["item_lo"], row["item_hi"])
            votes[pair][row["is_lo_first"]].append(word)
    crossed = {
        pair: [(one, other) for one in orders[True] for other in orders[False]] for pair, orders in votes.items()
    }
    return {pair: both for pair, both in crossed.items() if both}


def plain_rates(rows: Sequence[Row], cell: tuple[str, ...]) -> dict[str, float]:
    """Return how much of each pair's votes of one order agree with those of the other, and how much flips."""
    agreed, wins, flips = [], [], []
    for crossed in plain_crossed([row for row in rows if in_cell(row, cell)]).values():
        agreed.append(np.mean([one == other for one, other in crossed]))
        wins.append(np.mean([one == other != "tie" for one, other in crossed]))
        flips.append(np.mean([one != other and "tie" not in (one, other) for one, other in crossed]))
    decided = float(np.sum(wins) / (np.sum(wins) + np.sum(flips)))
    return {
        "consistency_all": float(np.mean(agreed)),
        "conflict_rate": float(np.mean(flips)),
        "consistency_decided": decided,
    }


def plain_place_rates(rows: Sequence[Row], cell: tuple[str, ...]) -> dict[str, float]:
    """Return what the places get of each pair's votes of one order with those of the other."""
    places = {True: 1, False: -1, "tie": 0}
    leans, won, decided = [], [], 0.0
    for crossed in plain_crossed([row for row in rows if in_cell(row, cell)]).values():
        both = [(places[one], -places[other]) for one, other in crossed]
        leans.append(np.mean([np.sign(one + other) for one, other in both]))
        won.append([np.mean([one == other == place for one, other in both]) for place in (1, -1)])
        decided += float(np.mean([one * other != 0 for one, other in both]))
    first, second = np.sum(won, axis=0)
    return {
        "primacy_share": first / (first + second),
        "first_rate_balanced": 0.5 + (first - second) / decided / 2,
        "preference_fairness": -float(np.mean(leans)),
    }


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
        "primacy_share_hi", "position_logodds", "position_logodds_lo", "position_logodds_hi",
        "position_logodds_lo_these_items", "position_logodds_hi_these_items", "first_rate_balanced",
        "first_rate_balanced_min", "first_rate_balanced_max", "first_rate_balanced_lo",
        "first_rate_balanced_hi", "preference_fairness", "n_verdicts_first", "n_verdicts_second",
        "first_rate_raw", "first_rate_raw_lo", "first_rate_raw_hi", "first_rate_raw_min", "first_rate_raw_max",
        "primacy_share_min", "primacy_share_max", "preference_fairness_min", "preference_fairness_max",
        "total_pos1_wins", "n_inconsistent_pos1_bias", "n_inconsistent_pos2_bias",
    }  # fmt: skip
    assert moved(before, after) <= flips
    for old, new in zip(before["metric_position_bias"], after["metric_position_bias"], strict=True):
        assert not differs(new["position_logodds"], -old["position_logodds"])
        assert not differs(new["position_logodds_hi"], -old["position_logodds_lo"])
        assert not differs(new["position_logodds_hi_these_items"], -old["position_logodds_lo_these_items"])
    for old, new in zip(before["metric_position_rates"], after["metric_position_rates"], strict=True):
        assert not differs(new["primacy_share_hi"], 1 - old["primacy_share_lo"])
        assert not differs(new["first_rate_balanced_lo"], 1 - old["first_rate_balanced_hi"])
        assert not differs(new["first_rate_balanced_min"], 1 - old["first_rate_balanced_max"])
        assert not differs(new["preference_fairness"], -old["preference_fairness"])
        assert not differs(new["preference_fairness_min"], -old["preference_fairness_max"])
        assert not differs(new["primacy_share_min"], 1 - old["primacy_share_max"])
        assert not differs(new["first_rate_raw_min"], 1 - old["first_rate_raw_max"])


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
    for view, counts in (("metric_consistency", {"n_repeated"}), ("metric_pairwisellm", set())):
        assert moved({view: before[view]}, {view: after[view]}) == counts
    assert moved({"b": before["metric_position_bias"]}, {"b": after["metric_position_bias"]}) == set()
    assert moved({"b": before["metric_position_rates"]}, {"b": after["metric_position_rates"]}) == {
        "n_verdicts_first",
        "n_verdicts_second",
        "n_unread",
    }
    rates = moved({"o": before["metric_outcomes"]}, {"o": after["metric_outcomes"]})
    assert rates == {"n", "n_base", "rate_lo", "rate_hi"}


def test_unparsed_answers_never_change_a_rate() -> None:
    """More answers without a verdict, to orders that have one: no rate, interval, test or pair count moves.

    What they might have said widens the bounds of the rates that count every vote.
    """
    rows = [row for row in random_rows(10) if row["verdict"]]
    noise = [row | {"verdict": None, "outcome": "unparsed", "repeat_no": 9, "cost_usd": 0.0} for row in rows[::3]]
    views = ("metric_consistency", "metric_position_bias", "metric_repeat", "metric_pairwisellm")
    rates = ("consistency_decided", "consistency_all", "conflict_rate")
    wanted = {f"{rate}_{end}" for rate in rates for end in ("min", "max")}
    assert moved(measured(rows, *views), measured(rows + noise, *views)) == wanted


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
    views = measured(judged(rows), "metric_repeat")["metric_repeat"]
    spread = column(views, "position_excess_conflict").std()
    assert 0.85 < column(views, "position_excess_conflict_se_these_items").mean() / spread < 1.15


OF_PAIRS = (
    "metric_consistency", "metric_position_bias", "metric_agreement", "metric_agreement_overall", "metric_paired",
    "metric_agreement_categories", "metric_jury", "metric_repeat", "metric_power", "metric_variance", "report_judges",
    "metric_length", "metric_cascade", "metric_judge_bias",
)  # fmt: skip


@pytest.mark.parametrize("n_rows", [3, 8, 40])
def test_what_cannot_be_said_is_null_and_never_nan_or_infinite(n_rows: int) -> None:
    """Of few judgments, failures and gaps among them; a NaN is neither above nor below anything."""
    for view, rows in zip(OF_PAIRS, of_pairs(random_rows(n_rows, n_rows), *OF_PAIRS), strict=True):
        numbers = [(name, value) for row in rows for name, value in row.items() if isinstance(value, float)]
        assert [(view, name) for name, value in numbers if not math.isfinite(value)] == []


@pytest.mark.parametrize("n_pairs", range(5, 12))
def test_pairs_that_are_all_alike_show_no_spread_however_their_numbers_round(n_pairs: int) -> None:
    """Repeats of either order split alike on each: no interval, where rounding alone gave one of no width."""
    rows = [
        {"unit_id": f"u{pair}", "item_first": one, "item_second": other, "repeat_no": repeat_no, "verdict": verdict}
        for pair in range(n_pairs)
        for one, other in (("a", "b"), ("b", "a"))
        for repeat_no, verdict in enumerate(("first", "first", "second"), 1)
    ]
    with views_over({"pair_judgments": table(judged(rows))}) as connection:
        (row,) = result(connection, "FROM metric_repeat")
    ends = [row[f"position_excess_conflict_{end}{of}"] for end in ("lo", "hi") for of in ("", "_these_items")]
    assert row["n_pairs"] == n_pairs
    assert ends == [None] * 4
