"""Compliance, the judges' spread and their calibration give the reference numbers, with intervals that cover."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from tests.rigs.metrics import mean_and_se, of_items, of_pairs, reference, wrong
from tests.rigs.sql import Row, differs, result, table, views_over

# --- compliance -------------------------------------------------------------------------------------


def complied(rows: Sequence[Row]) -> list[Row]:
    """Return a compliance file's rows as judgments, its human labels as those of a judge of provider human."""
    words = {"1": "true", "0": "false", None: "unparsed"}
    made, labelled = [], {}
    for row in rows:
        place = {"rubric_id": row["statement_id"], "unit_id": row["input_id"], "candidate": row["model"]}
        place |= {"item": f"{row['statement_id']}-{row['input_id']}-{row['model']}"}
        made.append(place | {"request_model": row["judge"], "verdict": words[row["compliant"]]}
                    | {"confidence": row["confidence"]})  # fmt: skip
        if row["human_label"]:
            labelled[place["item"]] = place | {"provider": "human", "request_model": "h1"} | {
                "template_id": "people", "verdict": words[row["human_label"]]}  # fmt: skip
    return made + list(labelled.values())


def test_compliance_reference() -> None:
    """Rates, Wilson, clustered and naive errors, SpecEval's rate, majority, McNemar and paired differences come out."""
    rows, expected = reference("13_compliance", "compliance.csv")
    whole, by_statement, paired = of_items(
        complied(rows), "metric_compliance_overall", "metric_compliance", "metric_compliance_paired"
    )
    judges = {f"{row['candidate']}|{row['request_model']}": row for row in whole}
    for name, numbers in expected["per_model_judge"].items():
        assert not wrong(judges[name], {
            "n_valid": numbers["n"], "n_compliant": numbers["k"], "n_null": numbers["n_null"],
            "compliance": numbers["rate"], "compliance_naive": numbers["wilson"],
            "compliance_se_naive": numbers["se_naive"], "compliance_se_cr0": numbers["se_cluster_cr0"],
            "compliance_min": numbers["speceval_rate_null_as_fail"],
        })  # fmt: skip
    statements = {f"{row['candidate']}|{row['rubric_id']}": row for row in by_statement if row["request_model"] == "j1"}
    for name, numbers in expected["per_statement"].items():
        assert not wrong(statements[name], {
            "n_valid": numbers["n"], "n_compliant": numbers["k"], "compliance": numbers["wilson"],
        })  # fmt: skip
    overall = expected["overall"]
    for candidate, rate in overall["majority_rate"].items():
        panel = judges[f"{candidate}|majority"]
        assert not wrong(panel, {"compliance": rate, "n_valid": overall["majority_n"][candidate]})
    (panel,) = (row for row in paired if row["provider"] == "panel")
    assert not wrong(panel, {
        "n_a_only": overall["mcnemar_b"], "n_b_only": overall["mcnemar_c"],
        "p_diff_these_statements": overall["mcnemar_exact_p"],
        "diff": overall["paired_diff"], "diff_se_naive": overall["paired_diff_se"], "n": overall["paired_n"],
        "diff_se_cr0": overall["paired_diff_se_cluster"],
    })  # fmt: skip


def test_comparisons_of_candidates_are_corrected_for_how_many_there_are() -> None:
    """q is Benjamini and Hochberg's over a study's models and their panel; people's are a family of their own."""
    random = np.random.default_rng(7)
    rates = {"a": 0.9, "b": 0.5, "c": 0.45}
    rows = [
        {
            "study": study, "provider": provider, "request_model": judge, "template_id": template,
            "rubric_id": f"r{n}", "unit_id": f"u{n}-{m}", "item": f"{study}-{n}-{m}-{candidate}",
            "candidate": candidate, "verdict": str(bool(random.random() < rates[candidate])).lower(),
        }
        for study, judges in (("one", 2), ("two", 3))
        for provider, judge, template in [("human", "h1", "people"), *(("p", f"j{k}", "t") for k in range(judges))]
        for n in range(7) for m in range(4) for candidate in rates
    ]  # fmt: skip
    paired, found = of_items(rows, "metric_compliance_paired", "metric_power")
    families: dict[tuple[str, bool], list[Row]] = defaultdict(list)
    for row in paired:
        families[row["study"], row["provider"] == "human"].append(row)
    assert {key: len(family) for key, family in families.items()} == {
        ("one", True): 3, ("one", False): 9, ("two", True): 3, ("two", False): 12,
    }  # fmt: skip
    for family in families.values():
        q_values = stats.false_discovery_control([row["p_diff"] for row in family])
        np.testing.assert_allclose([row["q_bh"] for row in family], q_values, rtol=1e-9)
    assert any(row["p_diff"] < 0.05 <= row["q_bh"] for row in paired)
    told = {(row["study"], row["request_model"], row["compared_with"]): row for row in found}
    for row in paired:
        power = told[row["study"], row["request_model"], f"{row['candidate_a']} | {row['candidate_b']}"]
        assert (power["q_bh"], power["is_null_finding"]) == (row["q_bh"], row["q_bh"] >= 0.05)


def test_judge_spread_and_bias() -> None:
    """Mean over judges, its t interval, each judge's delta and the spread of deltas equal numpy and scipy."""
    rows, expected = reference("13_compliance", "compliance.csv")
    whole, bias = of_items(complied(rows), "metric_compliance_overall", "metric_judge_bias")
    rates = {name: numbers["rate"] for name, numbers in expected["per_model_judge"].items()}
    deltas = defaultdict(list)
    for candidate in ("candA", "candB"):
        values = [rates[f"{candidate}|{judge}"] for judge in ("j1", "j2", "j3")]
        mean, se = mean_and_se(values)
        half = float(stats.t.ppf(0.975, 2)) * se
        for row in (row for row in whole if row["candidate"] == candidate and row["provider"] != "human"):
            assert not wrong(row, {"n_judges": 3, "judges_mean": [mean - half, mean + half], "judges_mean_se": se})
            assert not differs(row["judge_delta"], row["compliance"] - mean)
            deltas[row["request_model"]].append(row["compliance"] - mean)
    assert [row["request_model"] for row in bias] == ["j1", "j2", "j3"]
    for row in bias:
        found = deltas[row["request_model"]]
        mean, se = mean_and_se(found)
        assert not wrong(row, {"n_candidates": 2, "delta": mean, "delta_se": se, "delta_max": max(found)})
        assert not differs(row["delta_sd"], float(np.std(found, ddof=1)))


def test_the_clustered_interval_covers() -> None:
    """Where statements differ, Wilson on the effective size covers the truth; plain Wilson does not."""
    rng = np.random.default_rng(23)
    n_studies, n_statements, n_inputs = 150, 12, 20
    logits = rng.normal(1.0, 1.2, (n_studies, n_statements))
    k = rng.binomial(n_inputs, 1 / (1 + np.exp(-logits)))
    truth = float(np.mean(1 / (1 + np.exp(-rng.normal(1.0, 1.2, 200_000)))))
    given = [
        {"study": f"s{study:03}", "rubric_id": f"r{statement:02}", "candidate": "c", "template_id": "t",
         "provider": "p", "request_model": "m", "thinking": "none", "task": "compliance", "unit_id": "",
         "item": f"o{statement}-{unit}", "status": "decided", "true_part": float(unit < k[study, statement])}
        for study in range(n_studies) for statement in range(n_statements) for unit in range(n_inputs)
    ]  # fmt: skip
    with views_over({"item_status": table(given)}) as connection:
        rows = result(connection, "FROM metric_compliance_overall")
    assert len(rows) == n_studies
    covered = np.mean([row["compliance_lo"] <= truth <= row["compliance_hi"] for row in rows])
    naive = np.mean([row["compliance_naive_lo"] <= truth <= row["compliance_naive_hi"] for row in rows])
    assert 0.91 <= covered <= 0.99
    assert naive < 0.85


# --- calibration ------------------------------------------------------------------------------------


def test_calibration_reference() -> None:
    """Brier and its parts, ECE, MCE, calibration in the large, AUROC and every bin come out."""
    rows, expected = reference("14_confidence_calibration", "calibration.csv")
    place = [{"item": row["row_id"], "unit_id": row["row_id"]} for row in rows]
    model = [at | {"verdict": "true", "confidence": row["confidence"]} for at, row in zip(place, rows, strict=True)]
    people = [at | {"provider": "human", "request_model": "h1", "verdict": "true" if row["correct"] == "1" else "false"}
              for at, row in zip(place, rows, strict=True)]  # fmt: skip
    (got,), bins = of_items(model + people, "metric_calibration", "metric_calibration_bins")
    names = {
        "n": "n", "n_null": "n_no_confidence", "brier": "brier", "auroc": "auroc", "ece10": "ece10", "mce10": "mce10",
        "calibration_in_the_large": "overconfidence", "murphy_reliability": "brier_reliability",
        "murphy_resolution": "brier_resolution", "murphy_uncertainty": "brier_uncertainty",
    }  # fmt: skip
    assert not wrong(got, {names[name]: value for name, value in expected.items() if name != "bins"})
    confidence, right = np.array([(float(r["confidence"]), int(r["correct"])) for r in rows if r["confidence"]]).T
    assert not wrong(got, {"brier_se": mean_and_se((confidence - right) ** 2)[1]})
    assert {str(row["bin"]) for row in bins} == expected["bins"].keys()
    for row in bins:
        numbers = expected["bins"][str(row["bin"])]
        assert not wrong(row, {"n": numbers["n"], "confidence_mean": numbers["conf"]})
        ends = [row[f"accuracy_{end}_these_items"] for end in ("lo", "hi")]
        assert ends == pytest.approx(numbers["wilson"], rel=1e-9)
        assert not differs(row["accuracy"], numbers["acc"])


def test_pairs_are_calibrated_too() -> None:
    """A person's choice between two items is the truth for both orders; where people disagree each has a part of it."""
    model = [("A", "B", "first", 0.9), ("B", "A", "first", 0.6), ("A", "C", "tie", 0.7), ("A", "D", "second", 0.8)]
    people = [
        ("B", "A", "second", "h1"),
        ("A", "C", "tie", "h1"),
        ("A", "D", "first", "h1"),
        ("A", "D", "second", "h2"),
    ]
    rows = [{"item_first": a, "item_second": b, "verdict": v, "confidence": c} for a, b, v, c in model]
    rows += [{"item_first": a, "item_second": b, "verdict": v, "provider": "human", "request_model": h,
              "template_id": "people"} for a, b, v, h in people]  # fmt: skip
    ((got,),) = of_pairs(rows, "metric_calibration")
    assert (got["n"], got["n_correct"], got["n_split"], got["n_no_truth"]) == (4, 2, 1, 0)
    assert got["accuracy"] == 2.5 / 4
    # half a right verdict at .8 and half a wrong one, which are not compared with each other
    assert got["auroc"] == pytest.approx((1 + 0.5 + 1 + 0.5) / (2.5 * 1.5 - 0.25))


@pytest.mark.parametrize("n_rubrics", [1, 3])
def test_several_outputs_for_a_prompt_are_no_draws_of_their_own(n_rubrics: int) -> None:
    """Five answers to each of 12 questions are 12 draws: of rates and ratings, per statement and over these."""
    rng = np.random.default_rng(8)
    rows: list[Row] = []
    for rubric, unit in np.ndindex(n_rubrics, 12):
        ease = rng.random() < 0.6
        for output in range(5):
            value = bool(ease) if rng.random() < 0.8 else not ease
            place = f"r{rubric}u{unit}"
            rows.append({"rubric_id": f"r{rubric}", "unit_id": place, "item": f"{place}#{output}", "candidate": "x",
                         "verdict": str(value).lower()})  # fmt: skip
    by_rubric, (overall,) = of_items(rows, "metric_compliance", "metric_compliance_overall")
    scored = [{**row, "task": "likert", "verdict": None, "score": 1.0 + 4 * (row["verdict"] == "true")} for row in rows]
    (ratings,) = of_items(scored, "metric_ratings")

    def ends(kept: list[Row]) -> tuple[float, float, float]:
        values = np.array([float(row["verdict"] == "true") for row in kept])
        units = [row["unit_id"] for row in kept]
        p, g = values.mean(), len(set(units))
        sums = [sum(v - p for v, unit in zip(values, units, strict=True) if unit == one) for one in sorted(set(units))]
        return p, float(np.sqrt(np.square(sums).sum() * g / (g - 1)) / len(values)), g

    def check(row: Row, kept: list[Row], suffix: str) -> None:
        p, se, g = ends(kept)
        assert se > 1.3 * np.sqrt(p * (1 - p) / len(kept))
        t, size = stats.t.ppf(0.975, g - 1), p * (1 - p) / se**2
        for end in (row[f"compliance_lo{suffix}"], row[f"compliance_hi{suffix}"]):
            assert (end - p) ** 2 == pytest.approx(t**2 * end * (1 - end) / size, rel=1e-9)

    for row, rating in zip(by_rubric, ratings, strict=True):
        kept = [one for one in rows if one["rubric_id"] == row["rubric_id"]]
        check(row, kept, "")
        p, se, g = ends(kept)
        half = 4 * se * stats.t.ppf(0.975, g - 1)
        assert not wrong(rating, {"score": 1 + 4 * p, "score_se": 4 * se, "score_hi": 1 + 4 * p + half})
        assert not wrong(rating, {"score_sd": 4 * np.sqrt(p * (1 - p) * len(kept) / (len(kept) - 1))})
    check(overall, rows, "_these_statements")
