"""What a report says first of candidates, whose answers are judged: who is ahead, how surely, of which answers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

from batchpond.lake.schemas import ITEMS
from tests.rigs.findings import BASE, Row, Told, against, compared, complying, findings
from tests.rigs.lakes import LakeBuilder


def test_two_candidates_differ_by_what_is_left_after_correction(tmp_path: Path) -> None:
    """The p of one of many comparisons is below 0.05, and its q is not."""
    rows = complying({f"c{n}": 6 for n in range(6)} | {"d": 2})
    for row in rows:  # others differ in as many statements one way as the other
        at = int(str(row["rubric_id"])[1:])
        if row["candidate_first"] != "d":
            row["verdict"] = "true" if (at + int(str(row["candidate_first"])[1:])) % 12 < 6 else "false"
    told = findings(tmp_path, rows)["compliance-pairs"]
    assert all(("differ in" in text) == (float(text.split("q = ")[1].split(" ")[0].rstrip(".,")) < 0.05)
               for text in told), told  # fmt: skip
    assert any(float(text.split("p = ")[1].split(",")[0]) < 0.05 and "not told apart" in text for text in told), told


def test_nobody_is_the_most_who_is_level_with_another(tmp_path: Path) -> None:
    """Those that share the first place, or the last, are named."""
    told = findings(tmp_path, complying({"a": 9, "b": 9, "c": 4, "d": 4}))["compliance"][0]
    assert told.startswith("a (equally with b) complies most often of 4 candidates")
    assert "d (equally with c) the least" in told


def test_of_many_that_are_level_the_number_is_told(tmp_path: Path) -> None:
    told = findings(tmp_path, complying({name: 9 for name in "abcdef"} | {"g": 4}))["compliance"][0]
    assert told.startswith("a (equally with 5 others) complies most often of 7 candidates")


def test_the_highest_ratings_and_most_flips_are_shared(tmp_path: Path) -> None:
    """Ratings and pressure, too."""
    rows: list[Row] = [
        {"unit_id": f"u{n}", "item_first": f"u{n}-{candidate}", "candidate_first": candidate} | what
        for n in range(6) for candidate in ("a", "b")
        for what in ({"task": "likert", "rubric_id": "r", "score": 3},
                     {"task": "pressure", "rubric_id": "r", "turn_no": 1, "label": "explicit_flip"})
    ]  # fmt: skip
    told = findings(tmp_path, rows)
    assert told["ratings"][0].startswith("a (equally with b) is rated highest")
    assert told["pressure"][0].endswith(", the most of all candidates (equally with b).")


def test_a_rate_of_a_majority_says_of_how_many(tmp_path: Path) -> None:
    """Where two judges differ there is none: by the rest alone a candidate complied in 100 % of what both agree on."""
    rows = [*complying({"a": 12, "b": 6}), *complying({"a": 8, "b": 6}, request_model="m2")]
    told = {text.partition(" in the eyes of ")[2] for text in findings(tmp_path, rows)["compliance"]}
    panel = next(text for text in told if text.startswith("majority"))
    assert "] of 8 verdicts (of 12; the others have no majority) on 8 statements; b the least, 50.0" in panel
    assert all("no verdict" not in text and "majority" not in text for text in told - {panel})


def test_a_mean_of_half_of_the_answers_says_of_how_many(tmp_path: Path) -> None:
    """Which ratings cannot be read is no matter of chance: the sentence and the table have how many are lacking."""
    rows: list[Row] = [
        {"unit_id": f"u{n}", "item_first": f"u{n}-{candidate}", "candidate_first": candidate, "task": "likert",
         "rubric_id": "r"} | ({"score": rating} if n < n_read else {"outcome": "unparsed"})
        for candidate, rating, n_read in (("a", 5, 4), ("b", 3, 8)) for n in range(8)
    ]  # fmt: skip
    said = findings(tmp_path, rows)
    (told,) = said["ratings"]
    assert re.sub(r" \[.*\]", "", told) == (
        "a is rated highest of 2 candidates in r by m1: 5.00 over 4 items (of 8; the others have no rating); "
        "b follows with 3.00. No test compares them."
    )
    assert "| candidate | rated | no rating | mean |" in said.text("ratings")


def judged_alike(n_rubrics: int, n_units: int = 30) -> list[Row]:
    """Return verdicts of compliance on the same inputs, of which a complies more often."""
    return [
        {"task": "compliance", "rubric_id": f"r{rubric}", "unit_id": f"u{rubric}-{unit}", "candidate_first": name,
         "item_first": f"{rubric}-{unit}-{name}", "verdict": "true" if unit % least else "false"}
        for rubric in range(n_rubrics) for unit in range(n_units) for name, least in (("a", 7), ("b", 2))
    ]  # fmt: skip


@pytest.mark.parametrize("rows_of", [compared, judged_alike])
@pytest.mark.parametrize(("n_rubrics", "is_general"), [(1, False), (4, False), (5, True)])
def test_with_few_criteria_what_is_said_is_of_other_prompts_under_them(
    tmp_path: Path, rows_of: Callable[[int], list[Row]], n_rubrics: int, *, is_general: bool
) -> None:
    """Interval and p stand there all the same, and say of what; of criteria in general a few say nothing."""
    key = "matrix" if rows_of is compared else "compliance-pairs"
    told = findings(tmp_path, rows_of(n_rubrics))
    (said,) = told[key]
    assert "q = " in said
    assert ("under the same statements" in said) != is_general
    assert re.search(r"% \[\d+\.\d, \d+\.\d\]", said), said
    title = "Share of wins of the row" if rows_of is compared else "Candidates on the same inputs"
    table = told.text(key).split(title)[1]
    caption, *lines = table.split("```")[0].splitlines()
    assert ("to speak of statements in" in caption) != is_general
    (row,) = (line for line in lines if line.startswith("| a | b | ") and "inputs" not in line)
    assert re.search(r"\[\d+\.\d, \d+\.\d\]", row.replace("\\", "")), row


def test_compliance_with_one_statement_has_an_interval_for_other_inputs(tmp_path: Path) -> None:
    """In the sentence and in the table, which says so: what Wilson makes of 25 of 30."""
    told = findings(tmp_path, judged_alike(1))
    (said,) = told["compliance"]
    assert "83.3\u202f% [66.4, 92.7] of 30 verdicts on 1 statement" in said
    table = told.text("compliance").split("Compliance over all statements")[1].split("```")[0].replace("\\", "")
    assert "under the same one" in table
    assert "83.3\u202f% | [66.4, 92.7]" in table


def test_one_of_many_comparisons_by_one_criterion_is_no_preference_by_its_p_alone(tmp_path: Path) -> None:
    """Ten of twelve prompts are p = .039; of eight candidates as many are expected to do that once in four studies."""
    told = findings(tmp_path, against("base", {"a": 10} | {f"c{n}": 6 for n in range(7)}))
    assert told["matrix"][0].startswith("a is not told apart from base")
    assert "p = 0.039, q = 0.309 (corrected over 8 comparisons" in told["matrix"][0]
    matrix = told.exhibit("matrix")
    rows = matrix.frame.filter(pl.col("p_these") < 0.05)
    assert rows.height == 2
    assert rows["q_these"].to_list() == pytest.approx([8 * rows["p_these"][0]] * 2)


def test_the_surest_comparison_is_told_though_some_answers_are_lacking(tmp_path: Path) -> None:
    """Two of twelve pairs without a verdict leave a candidate as much compared as the others."""
    rows = against("base", {"a": 12, "b": 9, "c": 6})
    lacking = [row for row in rows if row["unit_id"] in {"u10", "u11"} and row["candidate_second"] == "a"]
    for row in lacking:
        row.update(verdict=None, outcome="unparsed")
    told = findings(tmp_path, rows)["matrix"]
    assert told[0].startswith("a is preferred to base"), told
    assert "of 10 comparisons" in told[0]


def test_a_ranking_through_a_baseline_says_so(tmp_path: Path) -> None:
    """Whoever reads it is told that no two of the others have met; where they have, nothing is said."""
    told = findings(tmp_path, against("base", {"a": 9, "b": 6, "c": 3}))
    caption = told.exhibit("ranking").caption
    assert "72 verdicts on 4 candidates (each with base on one side, through which alone" in caption
    assert "on one side" not in findings(tmp_path / "two", compared(2)).text("ranking")


def test_a_headline_on_compliance_has_the_test_and_what_people_say(tmp_path: Path) -> None:
    """The most compliant in a judge's eyes is not told apart from the least, and the labels say the opposite."""
    judged = [row | {"verdict": "true" if n % 3 or n == 3 else "false"} for n, row in enumerate(judged_alike(6, 8))]
    people = [row | {"provider": "human", "request_model": "anna", "template_id": "unspecified",
                     "verdict": "true" if row["candidate_first"] == "a" else "false"}
              for row in judged if row["unit_id"].endswith(("-1", "-2", "-3"))]  # fmt: skip
    told = findings(tmp_path, judged + people)
    (headline,) = told["compliance"]
    assert re.search(r"the two are not told apart \(q = [\d.]+\)\.$", headline), headline
    of_a, of_b = sorted(told["compliance-corrected"])
    assert of_a.startswith("Corrected by people's labels, a complies in 100.0")
    assert of_b.startswith("Corrected by people's labels, b complies in 0.0")
    assert all("by labels of 18 of 48 outputs; right as far as these were drawn" in text for text in (of_a, of_b))


def test_labels_of_pairs_in_one_order_are_no_judge_of_the_win_matrix(tmp_path: Path) -> None:
    """People are shown a pair once: they lack no order, and what is left out of the matrix is the judges'."""
    pairs: list[Row] = [
        {"task": "ranking", "rubric_id": "r", "unit_id": f"u{n}", "item_first": f"u{n}{one}",
         "item_second": f"u{n}{two}", "candidate_first": one, "candidate_second": two,
         "verdict": "first" if one == "x" else "second"}
        for n in range(6) for one, two in (("x", "y"), ("y", "x"))
    ]  # fmt: skip
    labels = [pair | {"provider": "human", "request_model": "anna", "template_id": ""} for pair in pairs[::2]]
    told = findings(tmp_path, pairs[:-1] + labels)
    matrix = told.exhibit("matrix")
    assert set(matrix.frame["request_model"]) == {"m1"}
    assert "Left out: 1 pair with an order missing." in matrix.caption


def test_who_came_back_is_not_said_to_have_given_way_for_good(tmp_path: Path) -> None:
    """A rate at a turn is of that turn, and who never gave way is of the conversations that are whole."""
    labels = (
        "no_flip soft_flip no_flip",
        "no_flip soft_flip no_flip",
        "no_flip no_flip explicit_flip",
        "no_flip soft_flip",
    )
    rows: list[Row] = [
        {"task": "pressure", "rubric_id": "praise", "unit_id": f"q{n}", "item_first": f"q{n}-{turn}", "turn_no": turn,
         "candidate_first": "x", "label": label}
        for n, told in enumerate(labels) for turn, label in enumerate(told.split())
    ]  # fmt: skip
    told = findings(tmp_path, rows)
    (text,) = told["pressure"]
    assert text.startswith("At turn 2, x does not stand by its first answer in 33.3")
    assert "of 3 conversations" in text
    exhibit = told.exhibit("pressure")
    last = exhibit.frame.row(-1, named=True)
    assert (last["turn_no"], last["n_judged"], last["n_complete"], last["survival"]) == (2, 3, 3, 0.0)


def test_who_gives_way_most_is_said_over_all_tactics_and_by_questions(tmp_path: Path) -> None:
    """Of one tactic out of several the highest rate of all is a matter of luck, and one question gives many talks."""
    gives_way = {("x", "praise"): 6, ("x", "proof"): 2, ("y", "praise"): 1, ("y", "proof"): 3}  # of 8 questions
    rows: list[Row] = [
        {"task": "pressure", "rubric_id": tactic, "unit_id": f"q{n}", "item_first": f"{candidate}{tactic}{n}-{turn}",
         "turn_no": turn, "candidate_first": candidate,
         "label": "explicit_flip" if turn and n < n_flips else "no_flip"}
        for (candidate, tactic), n_flips in gives_way.items() for n in range(8) for turn in (0, 1)
    ]  # fmt: skip
    told = findings(tmp_path, rows)
    assert "pressure" not in told
    (text,) = told["pressure-candidates"]
    said = text.replace("\u202f", " ")
    assert said.startswith("Over 2 tactics, x gives way in 50.0 % [")
    assert (
        "] of 16 conversations on 8 questions, in the eyes of m1, the most of 2 candidates; y the least, in 25.0 %"
        in said
    )
    exhibit = told.exhibit("pressure-candidates")
    x = exhibit.frame.row(0, named=True)
    sums = np.array([2, 2, 1, 1, 1, 1, 0, 0])  # flips by question
    se = math.sqrt(8 / 7 * float(np.sum((sums - 1) ** 2))) / 16
    size = min(16, 0.25 / se**2)
    t = float(stats.t.ppf(0.975, 7))
    for end in (x["ever_flip_rate_lo"], x["ever_flip_rate_hi"]):
        assert (end - 0.5) ** 2 == pytest.approx(t**2 * end * (1 - end) / size, rel=1e-6)


def test_a_rating_of_many_statements_is_said_over_all_of_them(tmp_path: Path) -> None:
    """One of many statements, the one with most items, is no headline; statements are few, and differ."""
    rng = np.random.default_rng(3)
    ease = rng.normal(0, 1, 9)
    rows: list[Row] = [
        {"task": "likert", "rubric_id": f"s{n}", "unit_id": f"s{n}u{unit}", "item_first": f"s{n}u{unit}{candidate}",
         "candidate_first": candidate, "score": float(np.clip(round(3 + up + ease[n] + rng.normal(0, 0.5)), 1, 5))}
        for candidate, up in (("x", 0.4), ("y", 0)) for n in range(9) for unit in range(1 + n % 4)
    ]  # fmt: skip
    told = findings(tmp_path, rows)
    assert "ratings" not in told
    (text,) = told["ratings-overall"]
    assert re.match(r"x is rated highest of 2 candidates over 9 statements by m1: \d\.\d\d \[", text), text
    exhibit = told.exhibit("ratings-overall")
    for row in exhibit.frame.iter_rows(named=True):
        own = [one for one in rows if one["candidate_first"] == row["candidate"]]
        scores = np.array([one["score"] for one in own])
        left = scores - scores.mean()
        sums = [left[[one["rubric_id"] == f"s{n}" for one in own]].sum() for n in range(9)]
        se = math.sqrt(9 / 8 * float(np.square(sums).sum())) / len(own)
        assert se > scores.std(ddof=1) / math.sqrt(len(own))
        ends = scores.mean() + np.array([-1, 1]) * stats.t.ppf(0.975, 8) * se
        assert [row["score"], row["score_lo"], row["score_hi"]] == pytest.approx([scores.mean(), *ends], rel=1e-6)


def test_where_people_say_otherwise_the_corrected_rates_are_said_beside_the_judges(tmp_path: Path) -> None:
    """A judge that finds b compliant and people who do not: the sentence on the judge is not the last word."""
    judged = complying({"a": 6, "b": 9})
    people = complying({"a": 11, "b": 1}, provider="human", request_model="anna", template_id="")
    told = findings(tmp_path, judged + people)
    shown, of_b, of_a = (text.replace("\u202f", " ") for text in (told["compliance"][0], *told["compliance-corrected"]))
    assert shown.startswith("b complies most often of 2 candidates, in the eyes of m1: 75.0 %")
    # the larger correction first
    assert of_a.startswith("Corrected by people's labels, a complies in 91.7 % [")
    assert "where m1 says 50.0 % (PPI++, by labels of 12 of 12 outputs" in of_a
    assert of_b.startswith("Corrected by people's labels, b complies in 8.3 % [")
    assert "where m1 says 75.0 %" in of_b


def test_comparisons_of_outputs_of_equal_length_are_said_to_be_left_out(tmp_path: Path) -> None:
    """They stand in neither stratum of the table on lengths, which said that nothing was left out."""
    rows = compared(6, 5)
    lake = LakeBuilder(tmp_path / "lake")
    lake.imported([{"import_key": f"k{n}"} | BASE | row for n, row in enumerate(rows)])
    names = sorted({str(row[side]) for row in rows for side in ("item_first", "item_second")})
    lake.rows(ITEMS, [
        {"item_id": name, "item_hash": f"h{n}", "text": "text" * (1 + n % 4 // 3)} for n, name in enumerate(names)
    ])  # fmt: skip
    lake.build()
    exhibit = Told(lake.path).exhibit("length-candidates")
    n_same = int(exhibit.frame["n_same_length"].sum())
    assert n_same > 0
    assert f"Left out: {n_same} comparisons of outputs of equal length." in exhibit.caption


def test_what_few_verdicts_say_is_told_with_their_number(tmp_path: Path) -> None:
    """The last candidate was asked about two statements, the first about twelve: each rate stands with its own n."""
    few = [row for row in complying({"b": 6}) if str(row["rubric_id"]) in {"s00", "s11"}]
    told = findings(tmp_path, complying({"a": 9}) + few)["compliance"][0]
    assert re.fullmatch(r"a complies .* of 12 verdicts on 12 statements; b the least, .* of 2 on 2\.", told)


def test_a_model_of_two_providers_is_told_with_its_provider(tmp_path: Path) -> None:
    """Both have the name m1, and say the opposite: no sentence is of m1 alone."""
    rows = complying({"a": 9, "b": 2}) + complying({"a": 2, "b": 9}, provider="q")
    told = [text for text in findings(tmp_path, rows)["compliance-pairs"] if "in the eyes of m1" in text]
    assert {match[1] for text in told for match in re.finditer(r"of m1 \(provider (\w)\)", text)} <= {"p", "q"}
    assert told
    assert all("m1 (provider " in text for text in told)


def test_a_winner_in_one_order_alone_may_be_a_favoured_place(tmp_path: Path) -> None:
    """The one that is always shown first is first of two; nor has a matrix without a comparison a q."""
    rows = [row for row in compared(1) if row["candidate_first"] == "a"]
    told = findings(tmp_path, rows)
    (text,) = told["ranking"]
    assert text.startswith("a is first of 2 candidates")
    assert text.endswith("both orders: a favoured place would be part of this.")
    matrix = told.exhibit("matrix")
    assert matrix.data["q_these"].null_count() == len(matrix.data)
    (both,) = findings(tmp_path / "both", compared(1))["ranking"]
    assert "favoured place" not in both
