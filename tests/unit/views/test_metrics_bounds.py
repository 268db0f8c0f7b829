"""What unread and missing answers leave open: every completion of them, by brute force, is within a rate's bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from tests.rigs.metrics import of_items, of_pairs
from tests.rigs.sql import CELL_DEFAULT, Row, result, table, views_over
from tests.rigs.swept import some

UNREAD = "unparsed"
LABELS = ("no_flip", "soft_flip", "explicit_flip", "initially_wrong")
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


def completions(rows: Sequence[Row], words: Sequence[str], unread: str | None = UNREAD) -> Iterator[list[Row]]:
    """Yield the rows with their unread answers replaced by every combination of words."""
    places = [place for place, row in enumerate(rows) if row["verdict"] == unread]
    for said in product(words, repeat=len(places)):
        filled = [dict(row) for row in rows]
        for place, word in zip(places, said, strict=True):
            filled[place]["verdict"] = word
        yield filled


def studies(sets: Sequence[list[Row]], words: Sequence[str], unread: str | None = UNREAD) -> list[Row]:
    """Return each set as a study, and beside it a study for each of its completions."""
    made: list[Row] = []
    for number, rows in enumerate(sets):
        made += [{**row, "study": f"{number}"} for row in rows]
        for place, filled in enumerate(completions(rows, words, unread)):
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


def pressed(rng: np.random.Generator, *, has_first: bool) -> list[Row]:
    """Return a judge's labels of two levels of six conversations, perhaps of first answers, a few of them unread."""
    levels = (0, 1, 2) if has_first else (1, 2)
    chances = {0: (0.7, 0.05, 0.05, 0.2), 1: (0.6, 0.25, 0.15, 0), 2: (0.5, 0.3, 0.2, 0)}
    rows: list[Row] = [
        {"task": "pressure", "rubric_id": f"t{place % 2}", "unit_id": f"u{place // 2}", "candidate": "c",
         "turn_no": level, "item": f"{place}-{level}", "verdict": str(rng.choice(LABELS, p=chances[level]))}
        for place in range(6) for level in levels
    ]  # fmt: skip
    for at in rng.choice(len(rows), 3, replace=False):
        rows[at]["verdict"] = UNREAD
    return rows


def may_follow(row: Row) -> bool:
    """Whether a level could be labelled so: a first answer alone is right or wrong from the start."""
    return row["turn_no"] == 0 or row["verdict"] != "initially_wrong"


@pytest.mark.parametrize("has_first", [True, False])
def test_flips_under_pressure_are_within_their_bounds_whatever_the_unread_answers_say(*, has_first: bool) -> None:
    """Of a whole and by category, levels and first answers unread, which may be wrong from the start."""
    rng = np.random.default_rng(8)
    sets = [pressed(rng, has_first=has_first) for _ in range(12)]
    made = [
        row | ({} if row["verdict"] == UNREAD else {"label": row["verdict"], "verdict": None})
        for row in studies(sets, LABELS)
    ]
    strange = {row["study"] for row in studies(sets, LABELS) if not may_follow(row)}
    views = ("metric_pressure_overall", "metric_pressure_by_category")
    rows = [row for row in made if row["study"] not in strange]
    for view, found in zip(views, of_items(rows, *views), strict=True):
        for row in found:
            row["rubric_id"] = row.get("category")
        assert held(found, ("ever_flip_rate",)) > 300, view


def test_bounds_of_flips_are_reached() -> None:
    """One of three conversations flips, of one a level is unread, of one all that is asked after a right answer."""
    labels = {"a": ("no_flip", "soft_flip"), "b": ("no_flip", "no_flip", UNREAD), "c": ("no_flip", UNREAD)}
    rows = [
        {"task": "pressure", "rubric_id": "t", "unit_id": unit, "candidate": "c", "turn_no": turn,
         "item": f"{unit}-{turn}"} | ({"verdict": word} if word == UNREAD else {"label": word})
        for unit, words in labels.items() for turn, word in enumerate(words)
    ]  # fmt: skip
    for (row,) in of_items(rows, "metric_pressure_overall", "metric_pressure_by_category"):
        rates = [row[f"ever_flip_rate{end}"] for end in ("", "_min", "_max")]
        assert (row["n_scored"], rates) == (2, pytest.approx([1 / 2, 1 / 3, 1]))


def test_what_a_cascade_agrees_on_is_within_its_bounds_whatever_is_still_to_come() -> None:
    """Two first judges of all, a third of some, two answers pending."""
    rng = np.random.default_rng(9)
    sets = []
    for _ in range(8):
        rows: list[Row] = [
            {"item": f"o{place}", "request_model": judge, "verdict": str(rng.choice(["true", "false"]))}
            for place in range(6) for judge in ("j1", "j2", "j3") if judge != "j3" or place < 2
        ]  # fmt: skip
        for at in rng.choice(np.arange(6, len(rows)), 2, replace=False):
            rows[at]["verdict"] = None
        sets.append(rows)
    (found,) = of_items(studies(sets, ("true", "false"), None), "metric_cascade")
    assert held(found, ("agreed_share",)) == 8 * 4
    assert any(row["n_pending"] == 2 for row in found)
    (row,) = [row for row in found if row["study"] == "0"]
    ends = (row["n_agreed"] / 6, (row["n_agreed"] + row["n_pending"]) / 6)
    assert (row["agreed_share_min"], row["agreed_share_max"]) == ends


def test_shares_of_bests_are_within_their_bounds_whatever_unread_lists_say() -> None:
    """Six lists of three of which two name nothing: any of the three may have been the best of these."""
    said = ["A", "B", "A", "C", None, None]
    fillings = [said, *([*said[:4], *rest] for rest in product("ABC", repeat=2))]
    rows = [
        {"study": "0" if number == 0 else f"0.{number}", "task": "listwise", "cell_id": "c", "unit_id": "",
         "list_id": f"l{at}", "request_id": f"l{at}", "list_place": 1 + "ABC".index(place),
         "list_rank": 1 if place == word else None, "outcome": "decided" if word else UNREAD,
         "parser_id": "listwise-best-1-x"}
        for number, words in enumerate(fillings) for at, word in enumerate(words) for place in "ABC"
    ]  # fmt: skip
    with views_over({"results": table([CELL_DEFAULT | row for row in rows])}) as connection:
        found = result(connection, "SELECT *, list_place AS candidate FROM metric_place_bias")
    assert held(found, ("best_share",)) == 27
    (first,) = [row for row in found if (row["study"], row["list_place"]) == ("0", 1)]
    assert [first["best_share"], first["best_share_min"], first["best_share_max"]] == pytest.approx(
        [1 / 2, 1 / 3, 2 / 3]
    )
