"""A p value and the interval beside it are one method: no row of any view contradicts itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from batchpond.views import refresh
from tests.rigs import lists_planted, sql_readme
from tests.rigs.pairs_planted import Pairs, judgments
from tests.rigs.sql import CELL_DEFAULT, Row, judged, judged_items, result, table, views_over

THESE_ITEMS, THESE_STATEMENTS = "_these_items", "_these_statements"
MOST = 40
METRICS = [script.name for script in refresh.scripts() if script.stage == sql_readme.METRICS]


@dataclass(frozen=True)
class Said:
    """A p of a view, the statistic whose interval stands beside it, and what the test says that it is."""

    view: str
    p: str
    of: str
    null: float
    target: str = ""

    def contradictions(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows whose interval leaves out the null without p below .05, or the other way round.

        An end that is NULL beside a p is open; a p that is NULL says nothing, so its interval leaves nothing out.
        """
        return [row for row in rows if self.is_found(row) != self.is_outside(row)]

    def is_found(self, row: Row) -> bool:
        """Whether the test rejects."""
        return row[self.p] is not None and bool(row[self.p] < 0.05)

    def is_outside(self, row: Row) -> bool:
        """Whether the interval leaves out the null."""
        lo, hi = (row[f"{self.of}_{end}{self.target}"] for end in ("lo", "hi"))
        return (lo is not None and lo > self.null) or (hi is not None and hi < self.null)


SAID = [
    Said("metric_position_bias", "p_position", "position_logodds", 0),
    Said("metric_position_bias", "p_position_these_items", "position_logodds", 0, THESE_ITEMS),
    Said("metric_position_rates", "p_first_rate_raw", "first_rate_raw", 0.5),
    Said("metric_win_matrix", "p_win_rate", "win_rate_half", 0.5),
    Said("metric_win_matrix", "p_win_rate_these_statements", "win_rate_half", 0.5, THESE_STATEMENTS),
    Said("metric_win_matrix_by_rubric", "p_sign", "win_rate_half", 0.5),
    Said("metric_paired", "p_diff", "diff", 0),
    Said("metric_paired", "p_diff_these_items", "diff", 0, THESE_ITEMS),
    Said("metric_length", "p_longer", "longer_win_rate", 0.5),
    Said("metric_length", "p_longer_these_items", "longer_win_rate", 0.5, THESE_ITEMS),
    Said("metric_compliance_paired", "p_diff", "diff", 0),
    Said("metric_compliance_paired", "p_diff_these_statements", "diff", 0, THESE_STATEMENTS),
    Said("metric_points_paired", "p_diff", "diff", 0),
    Said("metric_failures_paired", "p_diff", "diff", 0),
    Said("metric_failures_paired", "p_diff_these_items", "diff", 0, THESE_ITEMS),
    Said("metric_pressure_items", "p_flip_slope", "flip_slope", 0),
    Said("metric_place_bias", "p_best_share", "best_share", 0.25),
    Said("metric_place_bias", "p_mean_rank", "mean_rank", 2.5),
]
# A p of something that no interval of its view is about.
ALONE = {
    "metric_position_bias": {"p_position_items"},
    "metric_position_rates": {"p_preference_fairness"},
    "metric_pairwisellm": {"p_sample1_main", "p_sample1_rev", "p_sample1_overall"},
    "metric_power": {"p"},
    "metric_agreement_categories": {"p_mcnemar"},
    "metric_jury": {"p_labels_alike"},
}


@pytest.mark.parametrize("view", METRICS)
def test_every_p_is_in_the_table(view: str) -> None:
    """A new p value says which interval it belongs to, or that none does."""
    with views_over({}) as connection:
        columns = {column[0] for column in connection.execute(f"DESCRIBE {view}").fetchall()}
    told = {said.p for said in SAID if said.view == view} | ALONE.get(view, set())
    assert {name for name in columns if name == "p" or name.startswith("p_")} == told
    for said in (said for said in SAID if said.view == view):
        assert {f"{said.of}_{end}{said.target}" for end in ("lo", "hi")} <= columns


# --- all counts ---------------------------------------------------------------------------------


def counts() -> list[tuple[int, int]]:
    """Return what may be counted on two sides."""
    return [(b, c) for b in range(MOST + 1) for c in range(MOST + 1) if b + c]


def by_paired_counts() -> dict[str, pa.Table]:
    """Return paired_counts with all counts, of pairs that are many, or no more than those that tell two apart."""
    cell = {"study": "s", "rubric_id": "r", "compared": "judge", "provider_a": "p", "provider_b": "p"}
    rows = [
        cell | {"template_a": f"{b} {c} {more}", "n": b + c + more, "n_sides": 2, "n_clusters": 20,
                "n_consistent_a": b, "n_consistent_b": c, "n_a_only": b, "n_b_only": c,
                "consistent_a": b, "consistent_b": c, "diff_squares": b + c,
                "diff_jack": (1 + (b + c) % 4) * (b + c) / (b + c + more) ** 2}
        for b, c in counts() for more in (0, 110)
    ]  # fmt: skip
    return {"paired_counts": table(rows)}


def by_verdicts() -> dict[str, pa.Table]:
    """Return cells with all counts of verdicts for the first, and for the second, each on a pair of its own."""
    rows = [
        CELL_DEFAULT | {"template_id": f"{b} {c}", "unit_id": f"{number}", "item_lo": "A", "item_hi": "B",
        "status": "missing_reverse", "n_lo_won_lo_first": int(number < b), "n_hi_won_lo_first": int(number >= b),
        "n_lo_won_hi_first": 0, "n_hi_won_hi_first": 0}
        for b, c in counts() for number in range(b + c)
    ]  # fmt: skip
    return {"pair_status": table(rows)}


def by_wins() -> dict[str, pa.Table]:
    """Return candidate_pairs with all counts of wins, and inconsistent pairs in some cells."""
    rows = [
        CELL_DEFAULT
        | {"template_id": f"{b} {c}", "unit_id": f"u{n}", "candidate_a": "a", "candidate_b": "b", "winner": winner}
        | {"part_a": int(winner == "a"), "part_b": int(winner == "b"), "part_tie": 0, "n_votes": 2}
        for b, c in counts()
        for n, winner in enumerate(["a"] * b + ["b"] * c + ["inconsistent"] * (30 * ((b + c) % 2)))
    ]
    return {"candidate_pairs": table(rows)}


@pytest.mark.parametrize(
    ("said", "given"),
    [
        *((said, by_paired_counts) for said in SAID if said.view == "metric_paired"),
        *((said, by_verdicts) for said in SAID if said.view == "metric_position_rates"),
        *((said, by_wins) for said in SAID if said.view.startswith("metric_win_matrix") and said.p != "p_win_rate"),
    ],
    ids=lambda value: value.p if isinstance(value, Said) else value.__name__,
)
def test_no_counts_contradict_themselves(said: Said, given: Callable[[], dict[str, pa.Table]]) -> None:
    """For all counts up to 40 either way, p is below .05 exactly where the interval leaves out the null."""
    with views_over(given()) as connection:
        rows = result(connection, f"FROM {said.view}")
    assert len(rows) >= len(counts())
    assert said.contradictions(rows) == []
    assert 0.1 < np.mean([said.is_found(row) for row in rows]) < 0.9


def test_exact_intervals_are_scipys() -> None:
    """The raw first rate, and with it the shape of every exact test here: Clopper-Pearson beside the sign test."""
    with views_over(by_verdicts()) as connection:
        rows = result(connection, "FROM metric_position_rates WHERE n_verdicts_first < 9 AND n_verdicts_second < 14")
    for row in rows:
        b, c = row["n_verdicts_first"], row["n_verdicts_second"]
        exact = stats.binomtest(b, b + c)
        ends = exact.proportion_ci(method="exact")
        assert row["p_first_rate_raw"] == pytest.approx(exact.pvalue, rel=1e-9)
        assert row["first_rate_raw_lo"] == pytest.approx(ends.low, abs=1e-9)
        assert row["first_rate_raw_hi"] == pytest.approx(ends.high, abs=1e-9)


# --- random sets --------------------------------------------------------------------------------


def of_items(repeats: int) -> dict[str, pa.Table]:
    """Return 24 templates on the pairs of 12 items whose lengths matter, some with a position effect."""
    design = Pairs(n_items=12, repeats=repeats, eta=0.25, item_sd=0.5, ties=0.2, quality_sd=1, missing=0.1)
    lengths = [{"study": CELL_DEFAULT["study"], "item": f"i{item:04}", "n_chars": 50 + 37 * (item * 5 % 12)}
               for item in range(12)]  # fmt: skip
    return {"pair_judgments": judgments(design, 24, seed=repeats), "item_lengths": table(lengths)}


def of_candidates(n_outputs: int = 1, repeats: int = 1) -> dict[str, pa.Table]:
    """Return judges who compare two models' outputs, so many of the first, under eight statements, so often."""
    rng = np.random.default_rng(5)
    rows = []
    for judge in range(24):
        leaning = rng.normal(0.3, 1, 8)
        for rubric, unit, output in np.ndindex(8, 6 if n_outputs == 1 else 12, n_outputs):
            names = ("m1", "m2")
            items = {"m1": f"{unit}m1{output}", "m2": f"{unit}m2"}
            for (one, other), repeat in product((names, names[::-1]), range(repeats)):
                wins = rng.random() < 1 / (1 + np.exp(-leaning[rubric] if one == "m1" else leaning[rubric]))
                rows.append({
                    "request_model": f"j{judge:02}", "rubric_id": f"r{rubric}", "unit_id": f"u{unit}",
                    "item_first": items[one], "item_second": items[other], "candidate_first": one,
                    "candidate_second": other, "verdict": "first" if wins else "second", "repeat_no": repeat,
                })  # fmt: skip
    return {"pair_judgments": table(judged(rows))}


def of_outputs(n_outputs: int) -> dict[str, pa.Table]:
    """Return judges of compliance of two models' outputs under seven statements."""
    rng = np.random.default_rng(6)
    rows = [
        {"request_model": f"j{judge:02}", "rubric_id": f"r{rubric}", "unit_id": f"u{unit}", "candidate": candidate,
         "item": f"{rubric}{unit}{candidate}{output}", "verdict": "true" if rng.random() < rate else "false"}
        for judge in range(24) for rubric in range(7) for unit in range(4)
        for candidate, rate in (("m1", 0.75), ("m2", 0.5 + 0.05 * (rubric % 5)))
        for output in range(n_outputs)
    ]  # fmt: skip
    return {"item_judgments": table(judged_items(rows))}


def of_points() -> dict[str, pa.Table]:
    """Return judges of two models' answers to twenty prompts, by three criteria of each, one of them a fault."""
    rng = np.random.default_rng(9)
    worth = {f"r{prompt}-{n}": points for prompt in range(20) for n, points in enumerate((3.0, 5.0, -2.0))}
    rows = [
        {"request_model": f"j{judge:02}", "rubric_id": rubric, "unit_id": unit, "candidate": candidate,
         "item": f"{unit}{candidate}", "verdict": "true" if rng.random() < rate else "false"}
        for judge in range(24) for rubric in worth for unit in [rubric.partition("-")[0]]
        for candidate, rate in (("m1", 0.7), ("m2", 0.7 - 0.02 * judge))
    ]  # fmt: skip
    planned = [{"study": CELL_DEFAULT["study"], "rubric_id": rubric, "rubric_hash": f"h{rubric}"} for rubric in worth]
    rubrics = [{"rubric_hash": f"h{rubric}", "rubric_id": rubric, "points": points} for rubric, points in worth.items()]
    return {"item_judgments": table(judged_items(rows)), "plan_current": table(planned), "rubrics": table(rubrics)}


def of_failures() -> dict[str, pa.Table]:
    """Return two dozen templates that fail on some items more than on others, and some templates more than others."""
    rng = np.random.default_rng(7)
    hard = rng.random(9) < 0.3
    rows = [
        {"template_id": f"t{template:02}", "item_first": f"i{one}", "item_second": f"i{other}",
         "verdict": "unparsed" if rng.random() < 0.01 * template + 0.2 * (hard[one] or hard[other]) else "first"}
        for template in range(24) for pair in combinations(range(9), 2) for one, other in (pair, pair[::-1])
    ]  # fmt: skip
    return {"pair_judgments": table(judged(rows))}


def of_pressure() -> dict[str, pa.Table]:
    """Return conversations that give way under pressure, more or less."""
    rng = np.random.default_rng(8)
    rows = [
        CELL_DEFAULT | {"request_model": f"j{judge:02}", "candidate": "m", "unit_id": f"u{unit}",
        "flip_slope": rng.normal(0.1, 0.15)}
        for judge in range(24) for unit in range(8)
    ]  # fmt: skip
    return {"pressure_items": table(rows)}


def of_lists() -> dict[str, pa.Table]:
    """Return judges who put lists of four in order, and favour the first of them."""
    return lists_planted.tables(lists_planted.Lists(bias=(0.8, 0.3, 0, 0)), 24, seed=1)[0]


RANDOM: list[tuple[str, Callable[[], dict[str, pa.Table]]]] = [
    ("metric_position_bias", lambda: of_items(1)),
    ("metric_position_bias", lambda: of_items(3)),
    ("metric_paired", lambda: of_items(1)),
    ("metric_paired", lambda: of_items(3)),
    ("metric_length", lambda: of_items(1)),
    ("metric_win_matrix", of_candidates),
    ("metric_win_matrix_by_rubric", of_candidates),
    ("metric_win_matrix_by_rubric", lambda: of_candidates(3)),
    ("metric_win_matrix", lambda: of_candidates(repeats=3)),
    ("metric_win_matrix_by_rubric", lambda: of_candidates(repeats=3)),
    ("metric_compliance_paired", lambda: of_outputs(1)),
    ("metric_compliance_paired", lambda: of_outputs(3)),
    ("metric_points_paired", of_points),
    ("metric_failures_paired", of_failures),
    ("metric_pressure_items", of_pressure),
    ("metric_place_bias", of_lists),
]


@pytest.mark.parametrize(("view", "given"), RANDOM, ids=[f"{place} {view}" for place, (view, _) in enumerate(RANDOM)])
def test_no_clustered_set_contradicts_itself(view: str, given: Callable[[], dict[str, pa.Table]]) -> None:
    """Of sets with items or statements that differ, some are found and some not, and each agrees with its interval."""
    with views_over(given()) as connection:
        rows = result(connection, f"FROM {view}")
    for said in (said for said in SAID if said.view == view):
        assert said.contradictions(rows) == []
        tested = [row for row in rows if row[said.p] is not None]
        assert {said.is_found(row) for row in tested} == {True, False}, said.p
