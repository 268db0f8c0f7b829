"""A judge without a level of thinking on record, as other writers may leave it, is a judge like any other."""

from __future__ import annotations

from itertools import permutations

import numpy as np

from tests.rigs.sql import Row, columns_of_all, differs, judged, judged_items, result, table, views_over

LENGTHS = [{"study": "study", "item": f"{name}{unit}", "n_chars": 50 + 7 * unit * (name == "m")}
           for unit in range(18) for name in "mn"]  # fmt: skip
PEOPLE = {"provider": "human", "request_model": "h1", "template_id": "people"}


def of_pairs() -> list[Row]:
    """Return what three judges, one of half of the prompts alone, and people say of two candidates' outputs."""
    rng = np.random.default_rng(1)
    judges: list[Row] = [{"request_model": name, "cost_usd": 0.1} for name in "abc"]
    return judged([
        {"rubric_id": f"r{unit % 3}", "unit_id": f"u{unit}", "item_first": f"{one}{unit}",
         "item_second": f"{two}{unit}",
         "candidate_first": one, "candidate_second": two, "repeat_no": repeat,
         "verdict": "first" if (one == "m") == (rng.random() < 0.7) else "second"} | who
        for unit in range(18) for one, two in permutations("mn")
        for who in (*judges[: 2 + unit % 2], PEOPLE) for repeat in range(1 if who is PEOPLE else 2)
    ])  # fmt: skip


def of_items() -> list[Row]:
    """Return what these say of single outputs, with how sure they are."""
    rng = np.random.default_rng(2)
    judges: list[Row] = [{"request_model": name, "cost_usd": 0.1, "confidence": 0.8} for name in "abc"]
    return judged_items([
        {"rubric_id": f"r{unit % 3}", "unit_id": f"u{unit}", "item": f"{name}{unit}", "candidate": name,
         "verdict": str(bool(rng.random() < 0.6)).lower()} | who
        for unit in range(18) for name in "mn" for who in (*judges[: 2 + unit % 2], PEOPLE)
    ])  # fmt: skip


def told(thinking: str | None) -> dict[str, list[Row]]:
    """Return every metric of judgments with this level of thinking, but for the columns that name it."""
    given = {"pair_judgments": of_pairs(), "item_judgments": of_items()}
    tables = {name: table([row | {"thinking": thinking} for row in rows]) for name, rows in given.items()}
    views = [view for view in columns_of_all() if view.startswith("metric_")]
    with views_over(tables | {"item_lengths": table(LENGTHS)}) as connection:
        shown = "SELECT COLUMNS(LAMBDA c: NOT contains(c, 'thinking') AND c <> 'compared_with')"
        return {view: result(connection, f"{shown} FROM {view} ORDER BY ALL") for view in views}


def test_no_metric_depends_on_there_being_a_level() -> None:
    """Each view has the same rows as with one, costs, weights and accuracies of juries among them."""
    with_level, without = told("none"), told(None)
    assert {view: len(rows) for view, rows in without.items()} == {view: len(rows) for view, rows in with_level.items()}
    wrong = {
        (view, column): (one[column], other[column])
        for view, rows in with_level.items()
        for one, other in zip(rows, without[view], strict=True)
        for column in one
        if differs(one[column], other[column])
    }
    assert wrong == {}
    assert any(row["saved_share"] for row in with_level["metric_cascade"])
    assert any(row["weighted_accuracy"] for row in with_level["metric_jury"])
    assert with_level["metric_length_candidates"]
