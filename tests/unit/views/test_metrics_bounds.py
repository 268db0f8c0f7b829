"""What unread and missing answers leave open: every completion of them, by brute force, is within a rate's bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from tests.rigs.metrics import of_items, of_pairs
from tests.rigs.sql import Row
from tests.rigs.swept import some

UNREAD = "unparsed"
# A rate, by view; NAME_min and NAME_max beside it.
PAIRS = {
    "metric_consistency": ("consistency_decided", "consistency_all", "conflict_rate"),
    "metric_position_rates": ("primacy_share", "first_rate_balanced", "preference_fairness", "first_rate_raw"),
}
CANDIDATES = {
    "metric_win_matrix_by_rubric": ("consistency", "win_rate_half"),
    "metric_win_matrix": ("consistency", "win_rate_half"),
    "metric_win_totals": ("win_rate_half",),
    "metric_win_matrix_corrected": ("win_rate_half",),
}
OUTPUTS = {
    "metric_compliance": ("compliance",),
    "metric_compliance_overall": ("compliance",),
    "metric_compliance_corrected": ("compliance", "rogan_gladen_compliance"),
}


def completions(rows: Sequence[Row], words: Sequence[str]) -> Iterator[list[Row]]:
    """Yield the rows with their unread answers replaced by every combination of words."""
    places = [place for place, row in enumerate(rows) if row["verdict"] == UNREAD]
    for said in product(words, repeat=len(places)):
        filled = [dict(row) for row in rows]
        for place, word in zip(places, said, strict=True):
            filled[place]["verdict"] = word
        yield filled


def studies(sets: Sequence[list[Row]], words: Sequence[str]) -> list[Row]:
    """Return each set as a study, and beside it a study for each of its completions."""
    made: list[Row] = []
    for number, rows in enumerate(sets):
        made += [{**row, "study": f"{number}"} for row in rows]
        for place, filled in enumerate(completions(rows, words)):
            made += [{**row, "study": f"{number}.{place}"} for row in filled]
    return made


def held(rows: Sequence[Row], names: Sequence[str]) -> int:
    """Assert that every completion of a set is within its bounds, and return how many rates were held against them."""
    of: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        of[row["study"], row.get("candidate"), row.get("rubric_id")] = row
    n = 0
    for (study, *rest), row in of.items():
        whole = of.get((study.split(".")[0], *rest))
        for name in names:
            if "." not in study or row[name] is None or whole is None or whole[f"{name}_min"] is None:
                continue
            low, high = whole[f"{name}_min"], whole[f"{name}_max"]
            assert low - 1e-12 <= row[name] <= high + 1e-12, (study, name, low, row[name], high)
            # nothing is open any more: the bounds are the rate
            assert [row[f"{name}_min"], row[f"{name}_max"]] == pytest.approx([row[name], row[name]], abs=1e-12)
            n += 1
    return n


def asked(rng: np.random.Generator, *, is_of_models: bool) -> list[Row]:
    """Return a few pairs in both orders, some answers unread: of items, or of the outputs of three models."""
    pairs = list(combinations(("x", "y", "z"), 2)) * (1 if is_of_models else 2)
    rows: list[Row] = []
    for place, (one, other) in enumerate(pairs):
        for first, second in ((one, other), (other, one)):
            word = str(rng.choice(["first", "second", "tie", UNREAD], p=[0.35, 0.3, 0.1, 0.25]))
            rows.append({"item_first": first, "item_second": second, "verdict": word, "unit_id": f"u{place // 3}"})
            if is_of_models:
                rows[-1] |= {"candidate_first": f"m{first}", "candidate_second": f"m{second}"}
    for row in [row for row in rows if row["verdict"] == UNREAD][4:]:
        row["verdict"] = "first"
    return rows


def test_rates_of_pairs_are_within_their_bounds_whatever_the_unread_answers_say() -> None:
    """Consistency, conflict, primacy share, first rates and preference fairness, all three words for every answer."""
    rng = np.random.default_rng(2)
    rows = studies([asked(rng, is_of_models=False) for _ in range(12)], ("first", "second", "tie"))
    for (view, names), found in zip(PAIRS.items(), of_pairs(rows, *PAIRS), strict=True):
        assert held(found, names) > 500, view


def test_wins_are_within_their_bounds_whatever_the_unread_answers_say() -> None:
    """The win matrices and their totals, of one statement and over all."""
    rng = np.random.default_rng(3)
    rows = studies([asked(rng, is_of_models=True) for _ in range(12)], ("first", "second", "tie"))
    for (view, names), found in zip(CANDIDATES.items(), of_pairs(rows, *CANDIDATES), strict=True):
        for row in found:
            row["candidate"] = row.get("candidate") or row["candidate_a"] + row["candidate_b"]
        assert held(found, names) > 50, view


def complied(rng: np.random.Generator) -> list[Row]:
    """Return outputs of one model, up to four of them without a verdict, and people's labels of some."""
    truth = rng.random(14) < 0.6
    said = np.where(rng.random(14) < 0.85, truth, ~truth)
    unread = set(rng.choice(14, 4, replace=False).tolist())
    rows: list[Row] = []
    for place in range(14):
        of = {"item": f"o{place}", "unit_id": f"u{place}", "candidate": "m", "rubric_id": f"r{place % 2}"}
        rows.append({**of, "verdict": UNREAD if place in unread else str(bool(said[place])).lower()})
        if place < 8:
            rows.append({**of, "provider": "human", "request_model": "h", "template_id": "people",
                         "verdict": str(bool(truth[place])).lower()})  # fmt: skip
    return rows


def ppi_of(rows: Sequence[Row], weight: float) -> float:
    """Return PPI++ with a given weight."""
    label = {row["item"]: row["verdict"] == "true" for row in rows if row.get("provider") == "human"}
    said = {row["item"]: row["verdict"] == "true" for row in rows if row.get("provider") != "human"}
    rest = [said[item] for item in said if item not in label]
    return weight * float(np.mean(rest)) + float(np.mean([label[item] - weight * said[item] for item in label]))


def test_compliance_is_within_its_bounds_whatever_the_unread_answers_say() -> None:
    """The judge's own and Rogan-Gladen's, and PPI++ with the weight that it has."""
    rng = np.random.default_rng(4)
    sets = [complied(rng) for _ in range(40)]
    views = of_items(studies(sets, ("true", "false")), *OUTPUTS)
    for (view, names), found in zip(OUTPUTS.items(), views, strict=True):
        judges = [row for row in found if row["provider"] not in {"human", "panel"}]
        assert held(judges, names) > 600, view
    n_moved = 0
    for row in views[-1]:
        if row["provider"] == "panel" or "." in row["study"]:
            continue
        for filled in completions(sets[int(row["study"])], ("true", "false")):
            estimate = min(1.0, max(0.0, ppi_of(filled, row["ppi_weight"])))
            assert row["ppi_compliance_min"] - 1e-12 <= estimate <= row["ppi_compliance_max"] + 1e-12
            n_moved += row["ppi_weight"] > 0
    assert n_moved > 400


def test_corrected_win_rate_is_within_its_bounds() -> None:
    """PPI++ of wins, ties and losses with the weight that it has, some pairs unread, of which some are labelled."""
    rng = np.random.default_rng(5)
    value = {"first": 1.0, "tie": 0.5, "second": 0.0}
    words = [str(rng.choice(list(value))) for _ in range(16)]
    label = [word if rng.random() < 0.8 else "first" for word in words[:8]]
    words[2] = words[5] = words[12] = UNREAD
    rows: list[Row] = []
    turned = {"first": "second", "second": "first", "tie": "tie", UNREAD: UNREAD}
    for unit, word in enumerate(words):
        of = {"unit_id": f"u{unit}", "item_first": f"x{unit}", "item_second": f"y{unit}", "candidate_first": "m",
              "candidate_second": "n"}  # fmt: skip
        back = {"item_first": f"y{unit}", "item_second": f"x{unit}", "candidate_first": "n", "candidate_second": "m"}
        rows += [of | {"verdict": word}, of | back | {"verdict": turned[word]}]
        if unit < 8:
            rows.append(of | {"provider": "human", "template_id": "people", "verdict": label[unit]})
    ((row,),) = of_pairs(rows, "metric_win_matrix_corrected")
    assert (row["n_missing"], row["n_missing_labelled"]) == (3, 2)
    weight = row["ppi_weight"]
    assert weight > 0
    for said in product((0.0, 0.5, 1.0), repeat=3):
        filled = [value.get(word, -1.0) for word in words]
        filled[2], filled[5], filled[12] = said
        labelled = [value[word] - weight * judged for word, judged in zip(label, filled[:8], strict=True)]
        estimate = weight * float(np.mean(filled[8:])) + float(np.mean(labelled))
        assert row["ppi_win_rate_min"] - 1e-12 <= min(1, max(0, estimate)) <= row["ppi_win_rate_max"] + 1e-12
        assert row["win_rate_half_min"] - 1e-12 <= np.mean(filled) <= row["win_rate_half_max"] + 1e-12


def judged_alike(rng: np.random.Generator, *, n_repeats: int) -> list[Row]:
    """Return four pairs in both orders as three judges see them, some answers unread, perhaps asked more than once."""
    rows: list[Row] = []
    for place, judge, (one, other) in product(range(4), ("j1", "j2", "j3"), (("x", "y"), ("y", "x"))):
        for repeat in range(n_repeats):
            word = str(rng.choice(["first", "second", "tie", UNREAD], p=[0.4, 0.3, 0.1, 0.2]))
            of = {"request_model": judge, "unit_id": f"u{place}", "item_first": one, "item_second": other}
            rows.append(of | {"verdict": word, "repeat_no": repeat + 1})
    for row in [row for row in rows if row["verdict"] == UNREAD][5:]:
        row["verdict"] = "second"
    return rows


@pytest.mark.parametrize("n_repeats", some(2, swept=[1, 3]))
def test_agreement_is_within_its_bounds_whatever_the_unread_answers_say(n_repeats: int) -> None:
    """Of two judges and of all, unanimity too; a majority of repeats may change, or go."""
    rng = np.random.default_rng(6)
    views = ("metric_agreement", "metric_agreement_overall")
    rows = studies([judged_alike(rng, n_repeats=n_repeats) for _ in range(8)], ("first", "second", "tie"))
    of_two, of_all = of_pairs(rows, *views)
    for row in of_two:
        row["candidate"] = f"{row['request_model_a']} {row['provider_b']} {row['request_model_b']}"
    assert held(of_two, ("agreement",)) > 500
    assert held(of_all, ("agreement", "unanimity")) > 500


def test_bounds_of_agreement_are_reached() -> None:
    """Two judges, one unread answer among three units: none equal to all equal, of labels and of all judges."""
    rows = [
        {"request_model": judge, "item": f"o{place}", "unit_id": f"u{place}", "verdict": word}
        for judge, words in {"j1": ("true", "false", "true"), "j2": ("true", "true", UNREAD)}.items()
        for place, word in enumerate(words)
    ]
    (row,), (whole,) = (
        [row for row in view if row.get("provider_b") != "panel"]
        for view in of_items(rows, "metric_agreement", "metric_agreement_overall")
    )
    for found in (row, whole):
        assert (found["n_units"], found["n_units_open"], found["agreement"]) == (2, 1, 0.5)
        assert [found["agreement_min"], found["agreement_max"]] == pytest.approx([1 / 3, 2 / 3])
    assert [whole["unanimity_min"], whole["unanimity_max"]] == pytest.approx([1 / 3, 2 / 3])
