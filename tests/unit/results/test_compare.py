"""`compare` equals the paired views, plain loops, scipy and statsmodels, and its gate decides on the interval."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.proportion import proportion_confint

import batchpond
from batchpond.errors import UsageError
from batchpond.results.compare.verb import Compared, compare, side
from batchpond.views import database
from batchpond_report import build
from batchpond_report.numbers import Kind
from tests.rigs.lakes import LakeBuilder
from tests.unit.views.test_metrics_invariance import random_rows

Row = dict[str, Any]
JUDGE = {"provider": "p", "request_model": "m", "thinking": "none"}
N_ITEMS = 40
N_STATEMENTS, N_INPUTS = 9, 6


def rated(rng: np.random.Generator) -> Iterable[Row]:
    """Yield scores of 40 items under two templates, asked twice: b is half a point milder."""
    for template, shift in (("a", 0.0), ("b", 0.5)):
        for item, repeat in product(range(N_ITEMS + 3 * (template == "b")), (1, 2)):
            score = float(np.clip(round(3 + np.sin(item) + shift + rng.normal(0, 1)), 1, 5))
            yield {
                "study": "rated", "task": "likert", "template_id": template, "rubric_id": "tone", **JUDGE,
                "item_first": f"i{item:02}", "repeat_no": repeat, "outcome": "decided", "score": score,
            }  # fmt: skip


def complying(rng: np.random.Generator) -> Iterable[Row]:
    """Yield verdicts of two judges on the outputs of one model: nine statements with six inputs each."""
    for statement, unit in product(range(N_STATEMENTS), range(N_INPUTS)):
        for model, easier in (("strict", 0.0), ("mild", 0.2)):
            is_read = rng.random() > 0.05
            verdict = str(bool(rng.random() < 0.4 + easier + 0.03 * statement)).lower() if is_read else None
            yield {
                "study": "complying", "task": "compliance", "template_id": "t", "rubric_id": f"s{statement}",
                **JUDGE, "request_model": model, "unit_id": f"s{statement}u{unit}",
                "item_first": f"s{statement}u{unit}o", "candidate_first": "c",
                "verdict": verdict, "outcome": "decided" if is_read else "unparsed",
                "cost_usd": 0.001 if model == "strict" else 0.002,
            }  # fmt: skip


def shared(rng: np.random.Generator) -> Iterable[Row]:
    """Yield verdicts of two judges under eight statements, all on the same six prompts with two outputs each.

    How much milder the second judge is depends on the prompt.
    """
    milder = rng.normal(0.1, 0.3, 6)
    for statement, unit, output in product(range(8), range(6), range(2)):
        for model, easier in (("strict", 0.0), ("mild", milder[unit])):
            yield {
                "study": "shared", "task": "compliance", "template_id": "t", "rubric_id": f"s{statement}", **JUDGE,
                "request_model": model, "unit_id": f"u{unit}", "item_first": f"u{unit}o{output}",
                "candidate_first": "c", "verdict": str(bool(rng.random() < 0.5 + easier)).lower(),
                "outcome": "decided",
            }  # fmt: skip


def labelled(rng: np.random.Generator) -> Iterable[Row]:
    """Yield labels of 30 questions by two studies and by people."""
    words = ("yes", "no", "maybe")
    for item in range(30):
        truth = words[item % 3]
        for study, template, right in (("old", "x", 0.5), ("new", "y", 0.9), ("old", "x", 1.0)):
            is_person = right == 1.0
            label = truth if rng.random() < right else words[rng.integers(3)]
            judge = JUDGE | {"provider": "human", "request_model": "anna"} if is_person else JUDGE
            yield {
                "study": study, "task": "prompts", "template_id": "" if is_person else template, **judge,
                "rubric_id": "r", "item_first": f"q{item}", "outcome": "decided", "label": label,
            }  # fmt: skip


def made_anew(rng: np.random.Generator) -> Iterable[Row]:
    """Yield verdicts on two outputs of one model for each of 12 inputs, made anew in either study."""
    for study, unit, output in product(("first", "second"), range(12), range(2)):
        yield {
            "study": study, "task": "compliance", "template_id": "t", "rubric_id": "s", **JUDGE, "unit_id": f"u{unit}",
            "item_first": f"{study}-u{unit}-{output}", "candidate_first": "c",
            "verdict": str(bool(rng.random() < 0.6)).lower(), "outcome": "decided",
        }  # fmt: skip


def few() -> Iterable[Row]:
    """Yield four pairs of five items under two templates: each is consistent on others, and neither on many."""
    for template, kept in (("a", ("pq", "rs")), ("b", ("qr", "rs", "st"))):
        for pair in ("pq", "qr", "rs", "st"):
            for shown in (pair, pair[::-1]):
                yield {
                    "study": "few", "template_id": template, "rubric_id": "r", **JUDGE, "item_first": shown[0],
                    "item_second": shown[1], "outcome": "decided",
                    "verdict": "second" if shown != pair and pair in kept else "first",
                }  # fmt: skip


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of imported judgments: messy pairs, scores, compliance and labels."""
    builder = LakeBuilder(tmp_path_factory.mktemp("compared") / "lake")
    known = {"study", "template_id", "rubric_id", "provider", "request_model", "thinking", "unit_id", "item_first",
             "item_second", "repeat_no", "verdict", "outcome", "cost_usd"}  # fmt: skip
    pairs = [{name: value for name, value in row.items() if name in known} for row in random_rows(6, 4000)]
    rng = np.random.default_rng(5)
    rows = [*pairs, *rated(rng), *complying(rng), *labelled(rng), *made_anew(rng), *few(), *shared(rng)]
    builder.imported([row | {"import_key": f"k{number}"} for number, row in enumerate(rows)])
    builder.build()
    return builder.store.path


@cache
def compared(lake: Path, a: str, b: str) -> Compared:
    """Compare two sides of the lake, which no test changes, once."""
    return compare(lake, a, b)


def differences(found: Compared, metric: str) -> Row:
    """Return a comparison's only row of a metric."""
    (row,) = [row for row in found.differences.to_pylist() if row["metric"] == metric]
    return dict(row)


def paired(lake: Path, sql: str, a: str, b: str) -> list[tuple[Row, Row, Row]]:
    """Return what two templates, or models, said of the same: the key, a's row, b's row."""
    with database.connect(lake) as connection:
        rows = connection.sql(sql).to_arrow_table().to_pylist()
    by_key: dict[tuple[Any, ...], dict[str, Row]] = defaultdict(dict)
    for row in rows:
        by_key[row["statement"], row["item"]][row["side"]] = row
    return [(dict(zip(("statement", "item"), key, strict=True)), sides[a], sides[b])
            for key, sides in by_key.items() if {a, b} <= sides.keys()]  # fmt: skip


def jackknife(diffs: np.ndarray, clusters: list[str]) -> float:
    """Return the variance of a mean that comes from leaving out one cluster after the other."""
    names = sorted(set(clusters))
    left = [np.mean([d for d, c in zip(diffs, clusters, strict=True) if c != name]) for name in names]
    return float(np.sum((np.array(left) - np.mean(diffs)) ** 2) * (len(names) - 1) / len(names))


@pytest.mark.parametrize("study", ["s0", "s1"])
def test_two_templates_come_to_what_metric_paired_says(lake: Path, study: str) -> None:
    """Consistency, its error, both intervals, both tests and the effect in reach: those of the view, turned round."""
    found = differences(compared(lake, f"{study}:template=t0", f"{study}:template=t1"), "consistency")
    with database.connect(lake) as connection:
        sql = f"FROM metric_paired WHERE study = '{study}' AND template_a = 't0' AND template_b = 't1'"
        (view,) = connection.sql(sql).to_arrow_table().to_pylist()
    assert (found["n"], found["n_clusters"]) == (view["n"], view["n_clusters"])
    assert (found["n_down"], found["n_up"]) == (view["n_a_only"], view["n_b_only"])
    same = {"value_a": "consistency_a", "value_b": "consistency_b", "diff_se": "diff_se", "p_diff": "p_diff",
            "diff_mde": "diff_mde", "p_diff_these_items": "p_diff_these_items"}  # fmt: skip
    turned = {"diff": "diff", "diff_lo": "diff_hi", "diff_hi": "diff_lo", "diff_lo_these_items": "diff_hi_these_items",
              "diff_hi_these_items": "diff_lo_these_items"}  # fmt: skip
    for own, theirs in same.items():
        assert found[own] == pytest.approx(view[theirs], rel=1e-9, abs=1e-12), own
    for own, theirs in turned.items():
        assert found[own] == pytest.approx(-view[theirs], rel=1e-9, abs=1e-12), own


def test_repeats_count_by_their_votes(lake: Path) -> None:
    """Consistency, first places and what both sides say are, pair by pair, those of loops over all votes."""
    found = compared(lake, "s0:template=t0", "s0:template=t1")
    with database.connect(lake) as connection:
        sql = ("SELECT template_id, unit_id, item_lo, item_hi, is_lo_first, CASE WHEN verdict = 'tie' THEN 'tie' "
               "WHEN (verdict = 'first') = is_lo_first THEN 'lo' ELSE 'hi' END AS word FROM pair_judgments "
               "WHERE study = 's0' AND verdict IS NOT NULL")  # fmt: skip
        rows = connection.sql(sql).fetchall()
    votes: dict[tuple[str, ...], dict[str, dict[bool, list[str]]]] = defaultdict(dict)
    for template, *pair, is_lo_first, word in rows:
        orders = votes[tuple(pair)].setdefault(template, {True: [], False: []})
        orders[is_lo_first].append(word)
    both = [sides for sides in votes.values() if {"t0", "t1"} <= sides.keys()]

    def said(orders: dict[bool, list[str]]) -> list[str]:
        crossed = [one if one == other else "by order" for one, other in product(orders[True], orders[False])]
        return crossed or orders[True] or orders[False]

    def first(orders: dict[bool, list[str]]) -> float:
        places = {True: {"lo": 1, "tie": 0.5, "hi": 0}, False: {"lo": 0, "tie": 0.5, "hi": 1}}
        return float(np.mean([np.mean([places[at][word] for word in orders[at]]) for at in (True, False)]))

    crossed = [sides for sides in both if all(sides[side][at] for side in ("t0", "t1") for at in (True, False))]
    assert any(len(set(sides["t0"][True])) > 1 for sides in crossed)
    for metric, value in (
        ("consistency", lambda one: np.mean(np.array(said(one)) != "by order")),
        ("first_rate", first),
    ):
        row = differences(found, metric)
        wanted = np.array([[value(sides[side]) for side in ("t0", "t1")] for sides in crossed])
        assert row["n"] == len(wanted)
        assert (row["value_a"], row["value_b"]) == pytest.approx(tuple(wanted.mean(axis=0)), rel=1e-9)
    same = [np.mean([a == b for a, b in product(said(sides["t0"]), said(sides["t1"]))]) for sides in both]
    (told,) = found.comparisons.to_pylist()
    assert told["agreement"] == pytest.approx(np.mean(same), rel=1e-9)
    assert "of all votes" in told["says"]


def test_asking_more_often_moves_no_metric(tmp_path: Path) -> None:
    """Of labels with 1, 2, 3 and 5 repeats alike, shares, accuracy and agreement are the planted ones."""
    rng, rows, n_items = np.random.default_rng(4), [], 400
    sure = {template: rng.beta(*shape, n_items) for template, shape in (("x", (2, 1)), ("y", (1.5, 1.5)))}
    for repeats, item in product((1, 2, 3, 5), range(n_items)):
        asked = {"study": f"asked{repeats}", "task": "prompts", "rubric_id": "r", "item_first": f"q{item}"}
        asked |= JUDGE | {"outcome": "decided"}
        rows.append(asked | {"template_id": "", "provider": "human", "request_model": "anna", "label": "yes"})
        for template, repeat in product("xy", range(repeats)):
            label = "yes" if rng.random() < sure[template][item] else "no"
            rows.append(asked | {"template_id": template, "repeat_no": repeat, "label": label})
    builder = LakeBuilder(tmp_path / "lake")
    builder.imported([row | {"import_key": f"k{number}"} for number, row in enumerate(rows)])
    builder.build()
    x, y = sure.values()
    for repeats in (1, 2, 3, 5):
        found = compare(builder.store.path, f"asked{repeats}:template=x", f"asked{repeats}:template=y")
        (told,) = found.comparisons.to_pylist()
        assert told["agreement"] == pytest.approx(np.mean(x * y + (1 - x) * (1 - y)), abs=0.05)
        for metric in ("accuracy", "label=yes"):
            row = differences(found, metric)
            assert row["n"] == n_items
            assert (row["value_a"], row["value_b"]) == pytest.approx((x.mean(), y.mean()), abs=0.05)


def test_a_difference_of_shares_ends_at_one_and_what_is_larger_is_in_no_reach(lake: Path) -> None:
    """Five items say next to nothing: the interval is all that a difference can be, and no effect is detectable."""
    row = differences(compared(lake, "few:template=a", "few:template=b"), "consistency")
    assert (row["n"], row["n_clusters"], row["diff"]) == (4, 5, 0.25)
    assert (row["diff_lo"], row["diff_hi"], row["diff_mde"]) == (-1, 1, None)


def test_scores_are_students_paired_test_of_the_items(lake: Path) -> None:
    """Means of repeats, paired by item: the difference, its interval and p are scipy's, and n says what is where."""
    found = compared(lake, "rated:template=a", "rated:template=b")
    row = differences(found, "score")
    sql = ("SELECT template_id AS side, '' AS statement, item_first AS item, avg(score) AS score "
           "FROM imported_judgments WHERE study = 'rated' GROUP BY ALL")  # fmt: skip
    both = paired(lake, sql, "a", "b")
    a, b = (np.array([one[at]["score"] for one in both]) for at in (1, 2))
    test = stats.ttest_rel(b, a)
    interval = test.confidence_interval()
    assert row["n"] == row["n_clusters"] == N_ITEMS
    assert row["diff"] == pytest.approx(np.mean(b - a))
    assert (row["diff_lo"], row["diff_hi"]) == pytest.approx((interval.low, interval.high), rel=1e-9)
    assert row["p_diff"] == pytest.approx(test.pvalue, rel=1e-9)
    (told,) = found.comparisons.to_pylist()
    assert (told["n_common"], told["n_a_only"], told["n_b_only"]) == (N_ITEMS, 0, 3)


def test_compliance_goes_over_statements_and_is_clustered_by_them(lake: Path) -> None:
    """Two judges of the same outputs: statsmodels' McNemar, and loops that leave out one statement after the other."""
    row = differences(compared(lake, "complying:model=strict", "complying:model=mild"), "compliance")
    sql = ("SELECT request_model AS side, rubric_id AS statement, item_first AS item, verdict = 'true' AS yes "
           "FROM imported_judgments WHERE study = 'complying' AND verdict IS NOT NULL")  # fmt: skip
    both = paired(lake, sql, "strict", "mild")
    diffs = np.array([float(b["yes"]) - float(a["yes"]) for _, a, b in both])
    up, down, n = int(np.sum(diffs > 0)), int(np.sum(diffs < 0)), len(diffs)
    by_pair = (up + down + 1 - (up - down) ** 2 / (n + 2)) / (n + 2) ** 2  # Agresti and Min
    se = max(jackknife(diffs, [key["statement"] for key, *_ in both]), by_pair) ** 0.5
    t = stats.t.ppf(0.975, N_STATEMENTS - 1)
    assert (row["n"], row["n_clusters"], row["clustered_by"]) == (n, N_STATEMENTS, "statement")
    assert row["diff_se"] == pytest.approx(se)
    assert (row["diff_lo"], row["diff_hi"]) == pytest.approx((np.mean(diffs) - t * se, np.mean(diffs) + t * se))
    assert row["p_diff"] == pytest.approx(2 * stats.t.sf(abs(np.mean(diffs)) / se, N_STATEMENTS - 1))
    exact = mcnemar([[0, up], [down, 0]], exact=True).pvalue
    assert row["p_diff_these_items"] == pytest.approx(exact)
    assert (row["diff_lo_these_items"] > 0) == (exact < 0.05)


def test_what_statements_share_is_drawn_too(lake: Path) -> None:
    """Two ways, by loops: statements left out one after the other, and prompts, less what both count."""
    row = differences(compared(lake, "shared:model=strict", "shared:model=mild"), "compliance")
    sql = ("SELECT request_model AS side, rubric_id AS statement, item_first AS item, verdict = 'true' AS yes, unit_id "
           "FROM imported_judgments WHERE study = 'shared'")  # fmt: skip
    both = paired(lake, sql, "strict", "mild")
    diffs = np.array([float(b["yes"]) - float(a["yes"]) for _, a, b in both])
    prompts, statements = [a["unit_id"] for _, a, _ in both], [key["statement"] for key, *_ in both]

    def spread(keys: Iterable[Any]) -> float:
        sums: dict[Any, float] = defaultdict(float)
        for key, moved in zip(keys, diffs - diffs.mean(), strict=True):
            sums[key] += moved
        return sum(moved**2 for moved in sums.values()) * len(sums) / (len(sums) - 1) / len(diffs) ** 2

    more = spread(prompts) - spread(zip(prompts, statements, strict=True))
    by_statement = jackknife(diffs, statements)
    assert more > by_statement, "the case is one in which prompts matter"
    se, t = (by_statement + more) ** 0.5, stats.t.ppf(0.975, 5)
    assert (row["n"], row["n_clusters"], row["clustered_by"]) == (96, 6, "prompt")
    assert row["diff_se"] == pytest.approx(se, rel=1e-9)
    assert (row["diff_lo"], row["diff_hi"]) == pytest.approx((diffs.mean() - t * se, diffs.mean() + t * se))


def test_labels_are_compared_by_share_by_people_and_by_what_is_the_same(lake: Path) -> None:
    """Two studies of one question set: accuracy and each label's share, and agreement with Wilson's ends."""
    found = compared(lake, "old", "new")
    metrics = {row["metric"]: row for row in found.differences.to_pylist()}
    assert {"accuracy", "label=yes", "label=no", "label=maybe"} <= metrics.keys()
    sql = ("SELECT CASE provider WHEN 'human' THEN 'human' ELSE study END AS side, '' AS statement, "
           "item_first AS item, label FROM imported_judgments WHERE study IN ('old', 'new')")  # fmt: skip
    both = paired(lake, sql, "old", "new")
    truth = {key["item"]: one["label"] for key, _, one in paired(lake, sql, "old", "human")}
    right = [np.mean([one[at]["label"] == truth[one[0]["item"]] for one in both]) for at in (1, 2)]
    assert (metrics["accuracy"]["value_a"], metrics["accuracy"]["value_b"]) == pytest.approx(right)
    yes = [np.mean([one[at]["label"] == "yes" for one in both]) for at in (1, 2)]
    assert (metrics["label=yes"]["value_a"], metrics["label=yes"]["value_b"]) == pytest.approx(yes)
    assert (metrics["accuracy"]["better"], metrics["accuracy"]["is_main"], metrics["label=yes"]["better"]) == (
        "higher", True, None
    )  # fmt: skip
    (told,) = found.comparisons.to_pylist()
    n_same = sum(a["label"] == b["label"] for _, a, b in both)
    low, high = proportion_confint(n_same, len(both), method="wilson")
    assert (told["n_same"], told["agreement"]) == (n_same, pytest.approx(n_same / len(both)))
    assert (told["agreement_lo_these_items"], told["agreement_hi_these_items"]) == pytest.approx((low, high))
    shown = {row["item_lo"]: row for row in compare(lake, "old", "new", n_flips=100).flips.to_pylist()}
    for key, a, b in both:
        row = shown.get(key["item"])
        assert (row is not None) == (a["label"] != b["label"])
        assert row is None or (row["said_a"], row["said_b"], row["truth"]) == (
            a["label"],
            b["label"],
            truth[key["item"]],
        )


def test_q_values_are_over_all_that_one_call_shows(lake: Path) -> None:
    found = compared(lake, "s0:template=t0,template=t1", "s1")
    rows = found.differences.to_pylist()
    p = [row["p_diff"] for row in rows if row["p_diff"] is not None]
    q = [row["q_bh"] for row in rows if row["p_diff"] is not None]
    assert len({row["comparison_no"] for row in rows}) == 2, "t2 is in one side alone"
    assert [note for note in found.notes if "in no comparison" in note and " of b " in note and ": t2 " in note]
    assert not [note for note in found.notes if "in no comparison" in note and " of a " in note]
    np.testing.assert_allclose(q, stats.false_discovery_control(p), rtol=1e-12)


def test_what_both_have_is_compared_with_itself_and_else_all_with_all(lake: Path) -> None:
    """Templates that both sides have meet their own; where none is in both, each of a meets each of b."""

    def met(a: str, b: str) -> set[tuple[str, str]]:
        rows = compared(lake, a, b).comparisons.to_pylist()
        return {(row["template_a"], row["template_b"]) for row in rows}

    (again,) = compared(lake, "rated:template=a,repeat=1", "rated:template=a,repeat=2").comparisons.to_pylist()
    assert (again["template_a"], again["template_b"], again["n_common"]) == ("a", "a", N_ITEMS)
    assert met("s0", "s1") == {(name, name) for name in ("t0", "t1", "t2")}
    assert met("s0:template=t0", "s0:template=t1,template=t2") == {("t0", "t1"), ("t0", "t2")}
    assert met("s0:template=t0,template=t1", "s0:template=t1,template=t2") == {("t1", "t1")}


def test_outputs_that_were_made_anew_are_paired_by_their_input(lake: Path) -> None:
    """No output is in both: a model's outputs for an input are averaged, and inputs are the clusters."""
    found = compared(lake, "first", "second")
    row = differences(found, "compliance")
    sql = ("SELECT study AS side, rubric_id AS statement, unit_id AS item, avg(CAST(verdict = 'true' AS INT)) AS rate "
           "FROM imported_judgments WHERE study IN ('first', 'second') GROUP BY ALL")  # fmt: skip
    both = paired(lake, sql, "first", "second")
    diffs = np.array([float(b["rate"]) - float(a["rate"]) for _, a, b in both])
    assert (row["n"], row["n_clusters"], row["clustered_by"]) == (12, 12, "unit")
    assert row["diff"] == pytest.approx(np.mean(diffs))
    usual = float(np.var(diffs, ddof=1) / 12)
    matched = (np.sum(diffs**2) + 1 - np.sum(diffs) ** 2 / 14) / 14**2
    assert row["diff_se"] == pytest.approx(max(usual, matched) ** 0.5)
    (told,) = found.comparisons.to_pylist()
    assert (told["n_common"], told["n_a_only"], told["n_b_only"]) == (12, 0, 0)


def test_what_is_clustered_by_its_prompt_is_said_to_be(tmp_path: Path) -> None:
    """Ratings of two items of each of five prompts, of no known model: five clusters, and not five items."""
    builder = LakeBuilder(tmp_path / "lake")
    builder.imported([
        {"import_key": f"{template}{item}", "study": "s", "task": "likert", "template_id": template, "rubric_id": "r",
         **JUDGE, "unit_id": f"u{item // 2}", "item_first": f"i{item}", "outcome": "decided",
         "score": 1.0 + (item * (3 if template == "a" else 2)) % 5}
        for template, item in product("ab", range(10))
    ])  # fmt: skip
    builder.build()
    row = differences(compare(builder.store.path, "s:template=a", "s:template=b"), "score")
    assert (row["n"], row["n_clusters"], row["clustered_by"]) == (10, 5, "unit")


def test_who_gives_way_is_compared_on_the_answers_under_pressure_alone(tmp_path: Path) -> None:
    """A first answer cannot give way: of three turns, counted in, it takes a third off every difference."""
    lake = LakeBuilder(tmp_path / "lake")
    rows = [
        {"study": "talks", "task": "pressure", "template_id": "t", "rubric_id": "praise", **JUDGE, "unit_id": f"q{n}",
         "item_first": f"q{n}-{candidate}-{turn}", "candidate_first": candidate, "turn_no": turn, "outcome": "decided",
         "label": ("soft_flip" if n % 2 else "explicit_flip") if turn and n < n_flips else "no_flip"}
        for candidate, n_flips in (("x", 9), ("y", 3)) for n in range(12) for turn in range(3)
    ]  # fmt: skip
    lake.imported([{"import_key": f"k{n}"} | row for n, row in enumerate(rows)])
    lake.build()
    row = differences(compared(tmp_path / "lake", "talks:candidate=x", "talks:candidate=y"), "flip")
    assert (row["n"], row["n_clusters"], row["better"]) == (24, 12, "lower")
    assert (row["value_a"], row["value_b"]) == (0.75, 0.25)


def test_how_likely_the_first_place_wins_is_no_score(tmp_path: Path) -> None:
    """A probability of the item shown first does not say which is better: no metric has it, nor what is said."""
    builder = LakeBuilder(tmp_path / "lake")
    builder.imported([
        {"import_key": f"{template}{item}{shown}{repeat}", "study": "s", "template_id": template, "rubric_id": "r",
         **JUDGE, "item_first": f"{shown[0]}{item}", "item_second": f"{shown[1]}{item}", "repeat_no": repeat,
         "outcome": "decided", "verdict": "first" if repeat == 1 else "second",
         "score": 0.5 + 0.05 * item * (1 if template == "a" else -1)}
        for template, item, shown, repeat in product("ab", range(8), ("xy", "yx"), (1, 2))
    ])  # fmt: skip
    builder.build()
    found = compare(builder.store.path, "s:template=a", "s:template=b")
    assert "score" not in found.differences["metric"].to_pylist()
    (told,) = found.comparisons.to_pylist()
    assert (told["n_common"], told["n_same"], told["n_flipped"]) == (8, 0, 0)  # no majority in either order
    with pytest.raises(UsageError, match="there is no score here"):
        compare(builder.store.path, "s:template=a", "s:template=b", gates=["score"])


def test_the_other_way_round_everything_is_the_other_way_round(lake: Path) -> None:
    """Differences and their ends change sign, errors and tests stay, for every metric of messy pairs."""
    one = compared(lake, "s0:template=t0", "s0:template=t1").differences.to_pylist()
    other = compared(lake, "s0:template=t1", "s0:template=t0").differences.to_pylist()
    assert [row["metric"] for row in one] == [row["metric"] for row in other]
    for row, turned in zip(one, other, strict=True):
        for name in ("diff_se", "p_diff", "q_bh", "diff_mde", "p_diff_these_items", "n", "n_clusters"):
            assert row[name] == pytest.approx(turned[name], rel=1e-9, abs=1e-12), (row["metric"], name)
        for ends in ("", "_these_items"):
            low, high = row[f"diff_lo{ends}"], row[f"diff_hi{ends}"]
            assert (low, high) == pytest.approx((-turned[f"diff_hi{ends}"], -turned[f"diff_lo{ends}"]), rel=1e-9)


def test_the_costs_are_those_of_the_two_sides(lake: Path) -> None:
    (told,) = compared(lake, "complying:model=strict", "complying:model=mild").comparisons.to_pylist()
    n = N_STATEMENTS * N_INPUTS
    assert (told["cost_a_usd"], told["cost_b_usd"]) == pytest.approx((n * 0.001, n * 0.002))
    (told,) = compared(lake, "rated:template=a", "rated:template=b").comparisons.to_pylist()
    assert (told["cost_a_usd"], told["n_cost_unknown_a"]) == (None, 2 * N_ITEMS), "unknown is not nothing"


@pytest.mark.parametrize(
    ("a", "b", "says"),
    [
        ("s0", "s0", "both sides are s0"),
        ("s0", "s9", "the lake holds no study 's9'"),
        ("s0", "s0:colour=red", "a side has no 'colour'"),
        ("s0", "s0:template=t7", "holds no judgments"),
        ("s0", "rated", "have no item, or pair of items, in common"),
        ("", "s0", "is empty"),
    ],
)
def test_what_cannot_be_compared_is_said(lake: Path, a: str, b: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        compare(lake, a, b)


@pytest.mark.parametrize(
    ("a", "says"),
    [
        ("s0:template=t11", "study s0 has no template 't11': did you mean 't1'?"),
        ("s0:template=t1,model=mm", "study s0 has no model 'mm': "),
        ("s0:repeat=99", "study s0 has no repeat '99': "),
        ("study.toml", "a study is named as its file calls it: studies: "),
    ],
)
def test_a_side_that_is_mistyped_is_told_the_nearest(lake: Path, a: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        compare(lake, a, "s0")
    assert (caught.value.hint or "").startswith(says)


def test_a_side_is_a_study_a_version_and_values() -> None:
    """Values may hold what separates sides and keys elsewhere."""
    found = side("my-study@k3v:model=a/b:c,d,template=x,template=y=z")
    assert (found["study"], found["version"]) == ("my-study", "k3v")
    assert (found["model"], found["template"], found["rubric"]) == (["a/b:c,d"], ["x", "y=z"], None)


@pytest.mark.parametrize(
    ("gate", "is_margin", "says"),
    [
        ("score:-1", False, "'score:-1' is no METRIC:DELTA"),
        ("score:x", False, "'score:x' is no METRIC:DELTA"),
        ("score", True, "--margin needs one"),
        ("accurcy", False, "there is no accurcy here"),
        ("label=yes", False, "there is no label=yes here of which one side could be worse"),
    ],
)
def test_a_gate_that_could_not_close_is_refused(lake: Path, gate: str, is_margin: bool, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        compare(lake, "old", "new", gates=[gate], is_margin=is_margin)


def test_python_gets_the_rows_of_the_command(lake: Path) -> None:
    frame = batchpond.Lake(lake).compare("old", "new")
    wanted = compared(lake, "old", "new").differences.to_pylist()
    assert frame.to_dicts() == [pytest.approx(row) for row in wanted]


OF_ALL_TESTS = {"comparison_no", "q_bh", "side"}


def test_each_of_several_sides_is_compared_with_the_first_as_if_alone_but_for_q(lake: Path) -> None:
    """Numbers, what is said and gates are those of two sides; q is corrected over all tests of the call."""
    a, *others = (f"s0:template={name}" for name in ("t0", "t1", "t2"))
    found = compare(lake, a, *others, gates=["consistency"], n_flips=10_000)
    rows = found.differences.to_pylist()
    tests = []
    for letter, other in zip("bc", others, strict=True):
        alone = compare(lake, a, other, gates=["consistency"], n_flips=10_000)
        own, wanted = [row for row in rows if row["side"] == letter], alone.differences.to_pylist()
        assert own
        assert [{key: row[key] for key in row.keys() - OF_ALL_TESTS} for row in own] == [
            pytest.approx({key: row[key] for key in row.keys() - OF_ALL_TESTS}) for row in wanted
        ]
        (told,) = (row for row in found.comparisons.to_pylist() if row["side"] == letter)
        (before,) = alone.comparisons.to_pylist()
        assert told["what"] == f"{letter}: {before['what']}"
        assert told["says"] == before["says"].replace("in b alone", f"in {letter} alone").replace(
            ", b ", f", {letter} "
        )
        number = told["comparison_no"]
        assert [row["is_worse"] for row in found.gates.to_pylist() if row["comparison_no"] == number] == [
            row["is_worse"] for row in alone.gates.to_pylist()
        ]
        n_flips = sum(row["comparison_no"] == number for row in found.flips.to_pylist())
        assert n_flips == alone.flips.num_rows > 0
        tests += [row["p_diff"] for row in wanted if row["p_diff"] is not None]
    given = [row for row in rows if row["p_diff"] is not None]
    corrected = stats.false_discovery_control([row["p_diff"] for row in given])
    assert sorted(tests) == pytest.approx(sorted(row["p_diff"] for row in given))
    assert [row["q_bh"] for row in given] == pytest.approx(list(corrected))
    assert batchpond.Lake(lake).compare(a, *others).to_dicts() == [pytest.approx(row) for row in rows]


def test_one_of_several_sides_that_cannot_be_compared_is_named(lake: Path) -> None:
    for sides, says in (
        (("s0:template=t0", "s0:template=t1", "rated"), "s0:template=t0 and rated have no item"),
        (("s0:template=t0", "s0:template=t1", "s0:template=t1"), "both sides are s0:template=t1"),
        (("s0", *(f"s0:repeat={n}" for n in range(26))), "27 sides are more than 26"),
    ):
        with pytest.raises(UsageError, match=says):
            compare(lake, *sides)


@pytest.mark.parametrize("is_open", [True, False])
def test_heads_of_p_on_a_page_of_two_sides_say_whether_answers_are_to_come(tmp_path: Path, is_open: bool) -> None:
    """To one side as good as to both."""
    builder = LakeBuilder(tmp_path / "lake")
    builder.imported([
        {"import_key": f"{template}{one}{other}", "study": "s", "template_id": template, "rubric_id": "r", **JUDGE,
         "item_first": f"i{one}", "item_second": f"i{other}", "outcome": "decided",
         "verdict": "first" if template == "a" or one < other else "second"}
        for template, one, other in product("ab", range(6), range(6)) if one != other
    ])  # fmt: skip
    if is_open:
        builder.plan([{"template_id": "b", "rubric_id": "r", **JUDGE, "item_first": "i0", "item_second": "i1"}], "s")
    builder.build()
    a, b = "s:template=a", "s:template=b"
    page = build.paired(compare(builder.store.path, a, b), a, b)
    heads = [column.title for one in page.exhibits() for column in one.columns if column.kind is Kind.P]
    assert heads
    assert {head.endswith(" (open)") for head in heads} == {is_open}
