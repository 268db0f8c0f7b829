"""The sentences at the top of a report say no more than what was found, and of what."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

from batchpond.lake.store import LENS
from batchpond_report import build, markdown
from batchpond_report.parts import Cases
from batchpond_report.source import ROWS_MAX
from tests.rigs.findings import Row, Told, against, compared, complying, findings
from tests.rigs.lakes import LakeBuilder


def test_the_most_consistent_judge_shares_its_place(tmp_path: Path) -> None:
    """Two judges that never flip, and one that always does."""
    rows = [
        {"task": "pairwise", "rubric_id": "r", "request_model": judge, "item_first": one, "item_second": two,
         "verdict": "first" if judge == "m3" or one < two else "second"}
        for judge in ("m1", "m2", "m3") for one in "abcdef" for two in "abcdef" if one != two
    ]  # fmt: skip
    (text,) = [text for text in findings(tmp_path, rows)["consistency"] if "most consistent" in text]
    assert "m1 (equally with m2) is the most consistent" in text


def test_who_judged_next_to_nothing_is_not_ranked(tmp_path: Path) -> None:
    """One pair on which a third judge is consistent, and says what people say, makes it the most of nothing."""
    rows = [
        {"task": "pairwise", "rubric_id": "r", "request_model": judge, "item_first": one, "item_second": two,
         "verdict": "first" if (one < two) == (judge == "m1" or one + two not in {"ab", "cd", "ef"}) else "second"}
        for judge in ("m1", "m2", "m3") for one in "abcdef" for two in "abcdef" if one != two
        if judge != "m3" or {one, two} == {"a", "f"}
    ]  # fmt: skip
    people = [row | {"provider": "human", "request_model": "h", "template_id": ""}
              for row in rows if row["request_model"] == "m2" and row["item_first"] < row["item_second"]]  # fmt: skip
    told = findings(tmp_path, rows + people)
    (text,) = [text for text in told["consistency"] if "most consistent" in text]
    assert text.startswith("Of 2 judges (1 more judged too few items to be ranked), m1 is the most consistent: ")
    assert [text.split(" says what")[0] for text in told["agreement"]] == ["m2", "m1"]
    assert ", the most of 2 judges and templates with five items or more" in told["agreement"][0]
    alone = findings(tmp_path / "alone", [row for row in rows if row["request_model"] != "m2"])["consistency"]
    assert [text.split(" names")[0] for text in alone] == ["m1"]


@pytest.mark.parametrize("other", [{"thinking": "high"}, {"provider": "q"}])
def test_a_model_is_not_compared_with_itself(tmp_path: Path, other: Row) -> None:
    """Two levels of thinking, or two providers, of one model have two names in each table, also where they are all."""
    rows: list[Row] = [
        {"task": "pairwise", "rubric_id": "r", "item_first": one, "item_second": two,
         "verdict": "first" if judge or one < two else "second"} | judge
        for judge in ({}, other) for one in "abcdef" for two in "abcdef" if one != two
    ]  # fmt: skip
    told = findings(tmp_path, rows)
    for key, names in (("agreement", ("judge_a", "judge_b")), ("paired", ("a", "b"))):
        assert len({name for row in told.exhibit(key).frame.select(names).rows() for name in row}) == 2


def test_a_finding_names_its_template_and_thinking_where_there_are_several(tmp_path: Path) -> None:
    rows = complying({"a": 9, "b": 4}) + complying({"a": 9, "b": 4}, template_id="t2")
    rows += complying({"a": 9, "b": 4}, thinking="high")
    told = findings(tmp_path, rows)
    assert "majority (template t1): a" in told["compliance-pairs"][0]
    assert "m1 (template t1, thinking high): a" in told["compliance-pairs"][1]
    assert "majority (template t1): 75" in told["compliance"][0]


def test_what_was_simulated_is_not_among_what_was_spent(tmp_path: Path) -> None:
    """Of a study with both, each has a sentence and a column of its own."""
    lake = LakeBuilder(tmp_path / "lake")
    lake.plan([{"slot": n, "request_id": f"r{n}"} for n in range(2)], study="s")
    for n, origin in enumerate(("batch", "simulated")):
        lake.sent(f"A{n}", f"S{n}", [f"r{n}"], study="s", origin=origin)
        lake.lines(f"A{n}", [{"request_id": f"r{n}", "outcome": "decided", "verdict": "first", "text": "x",
                              "cost_usd": 2.0 + n, "origin": origin}])  # fmt: skip
        lake.ended(f"A{n}")
    lake.build()
    told = Told(tmp_path / "lake")
    assert [text.split(";")[0] for text in told["costs"]] == [
        "1 answer cost $2.00",
        "1 simulated answer would have cost $3.00",
    ]
    costs = told.exhibit("costs")
    assert costs.frame.select("spent_usd", "simulated_usd").rows() == [(2.0, None), (None, 3.0)]
    of_cells = told.exhibit("cell-costs")
    assert of_cells.frame.select("cost_spent_usd", "cost_simulated_usd").rows() == [(2.0, 3.0)]
    assert "Simulated" in of_cells.caption


def test_a_name_that_came_to_mean_another_model_is_said(tmp_path: Path) -> None:
    """An alias that moved while the study was asked: which models answered, how often; one that stands is nothing."""
    lake = LakeBuilder(tmp_path / "lake")
    served = [("r1", "m", "march"), ("r2", "m", "june"), ("r3", "m", "june"), ("r4", "n", "n-1"), ("r5", "n", None)]
    lake.plan([{"slot": n, "request_id": name, "request_model": model} for n, (name, model, _) in enumerate(served)],
              study="s")  # fmt: skip
    for name, model, answered in served:
        lake.sent(f"A{name}", f"S{name}", [name], study="s", request_model=model)
        lake.lines(f"A{name}", [{"request_id": name, "outcome": "decided", "verdict": "first", "text": "x",
                                 "response_model": answered}])  # fmt: skip
        lake.ended(f"A{name}")
    lake.build()
    told = Told(tmp_path / "lake")["judges"]
    assert [text.partition(". Its")[0] for text in told] == [
        "m stood for more than one model while it was asked: june (2), march (1) answers"
    ]


def test_a_place_that_is_favoured_is_named_with_its_share_and_what_it_would_be(tmp_path: Path) -> None:
    """Twenty lists of two, in 19 of which the first is named the best."""
    lake = LakeBuilder(tmp_path / "lake")
    names = [f"r{n}" for n in range(20)]
    lake.plan([
        {"slot": 2 * n + place, "request_id": name, "task": "listwise", "pair_id": f"l{n}", "turn_no": place,
         "item_first": f"i{n}-{place}", "item_second": None, "parser_id": "listwise-1-x-r2"}
        for n, name in enumerate(names) for place in (1, 2)
    ], study="s")  # fmt: skip
    lake.sent("A", "S", names, study="s", origin="batch")
    lake.lines("A", [{"request_id": name, "outcome": "decided", "label": "B>A" if name == "r0" else "A>B", "text": "x",
                      "parser_id": "listwise-1-x-r2"} for name in names])  # fmt: skip
    lake.ended("A")
    lake.build()
    found = Told(tmp_path / "lake")
    # its p, and the other place's, are among all that are corrected over the report: orders have a mean rank too
    assert found.exhibit("tests").frame["finding"].value_counts().sort("finding").rows()[-2:] == [
        ("place, mean rank", 2),
        ("place, named the best", 2),
    ]
    told = found["places"]
    assert [text.partition(":")[0].split(" ", 1)[1] for text in told] == [
        "favours place 1 of 2",
        "neglects place 2 of 2",
    ]
    assert "named the best in 95.0\u202f% [" in told[0]
    assert re.search(r"of 20 lists \(q = [^;]+; 50\.0\u202f% would be no bias\)\.$", told[0]), told


def test_agreement_with_people_that_chance_makes_too_is_called_so(tmp_path: Path) -> None:
    """A judge that says what it says whatever people hold, and one that says the same."""
    said = voted("tt ft tf ff " * 6)
    people = [row | {"provider": "human", "request_model": "anna", "template_id": "unspecified"}
              for row in said if row["request_model"] == "m1"]  # fmt: skip
    told = findings(tmp_path, said + people)["agreement"]
    (deaf,) = [text for text in told if text.startswith("m0")]
    assert deaf.startswith("m0 says what people say of 50.0"), deaf
    assert deaf.endswith(", which is not told apart from chance.")
    assert sum("from chance" in text for text in told) == 1


def test_a_label_beside_a_judge_is_not_said_to_lack_its_text(tmp_path: Path) -> None:
    said = voted("t t t t")
    people = [row | {"provider": "human", "request_model": "anna", "verdict": "false"} for row in said]
    section = findings(tmp_path, said + people).section("disagreements")
    assert section is not None
    (cases,) = [part for part in section.parts if isinstance(part, Cases) and part.key == "opposed"]
    texts = {side.title.split(" ")[0]: side.text for case in cases.cases for side in case.sides}
    assert texts == {"anna": "(a person's label, without a word beside it)",
                     "m0": "(the answer's text is not in the lake)"}  # fmt: skip


def test_a_cascade_has_a_sentence_of_its_own(tmp_path: Path) -> None:
    rows = [row for row in voted("ttt ttf ttt tft tt tt") if row["candidate_first"] == "a"]
    (told,) = findings(tmp_path, [row | {"rubric_id": "s"} for row in rows])["cascade"]
    assert told.startswith(
        "The first judges agree on 5 of 6 units (task compliance). Where they did not, a further one was asked about "
        "1, and 6 of all have a verdict. It was also asked about 3 on which they agree, and says the same of 2."
    )


def test_a_jury_is_told_apart_from_those_of_it_that_spoke(tmp_path: Path) -> None:
    """Of two pairs on which two judges were asked, both speak on one alone: of that they are unanimous."""
    rows = [*twice("ab", "m1", "none"), *twice("ab", "m2", "none"), *twice("cd", "m1", "none", "first first"),
            *twice("cd", "m2", "none")]  # fmt: skip
    told = findings(tmp_path, rows)
    jury = told.exhibit("jury")
    shown = [column.title for column in jury.columns]
    assert shown[shown.index("units") : shown.index("unanimous") + 1] == ["units", "two spoke", "unanimous"]
    assert jury.frame.select("n_units", "n_heard", "unanimous_share").rows() == [(2, 1, 1.0)]
    assert jury.caption.startswith("n = 1 unit on which two judges or more spoke, of 2 that so many were asked about")


def test_what_failed_is_not_said_to_be_answered(tmp_path: Path) -> None:
    outcomes = ("decided", "refused", "error", "missing", "expired", "cancelled")
    told = findings(tmp_path, [{"task": "compliance", "rubric_id": "s", "item_first": f"i{n}", "outcome": o,
                         "verdict": "true" if o == "decided" else None} for n, o in enumerate(outcomes)])  # fmt: skip
    assert "; 2 were answered, 1 of them with a verdict; 4 failed for good." in told.about.summary[0]
    coverage = told.exhibit("coverage")
    assert [column.title for column in coverage.columns if column.name == "n_answered"] == ["settled"]


def test_without_a_claim_a_report_says_that_it_explores(tmp_path: Path) -> None:
    """With how many of its p values are below 0.05, and how many are left after correction."""
    (told,) = findings(tmp_path, against("base", {"a": 12, "b": 6}))["tests"]
    assert re.match(r"No claim is on record from before the data came, .* Of \d+ p values in this report the", told)


def test_one_is_one_item_and_not_one_items(tmp_path: Path) -> None:
    """No sentence of a report on one of everything has a plural after a 1."""
    one = {"rubric_id": "r", "item_first": "a", "candidate_first": "x"}
    rows: list[Row] = [
        one | {"task": "pairwise", "item_second": "b", "candidate_second": "y", "verdict": "first"},
        one | {"task": "pairwise", "item_first": "b", "candidate_first": "y", "item_second": "a",
               "candidate_second": "x", "verdict": "second"},
        one | {"task": "likert", "score": 3},
        one | {"task": "compliance", "rubric_id": "s", "unit_id": "u", "verdict": "true"},
        one | {"task": "compliance", "rubric_id": "s2", "unit_id": "u", "outcome": "refused"},
        one | {"task": "pressure", "turn_no": 1, "label": "explicit_flip", "unit_id": "u"},
    ]  # fmt: skip
    findings(tmp_path, rows)
    text = markdown.render(build.build(tmp_path / "lake", "s"))
    told = [line for line in text.splitlines() if line.startswith(("n =", "**", "- ", "1 "))]
    wrong = re.compile(r"(?<![\w.,])1 (?:rated |judged |answered )?(?!is |has |was )[a-z]+s\b")
    assert [line for line in told if wrong.search(line)] == []
    assert "n = 1 pair with a winner" in text
    assert "1 answer without a verdict" in text


@pytest.mark.parametrize(("is_sent", "why"), [(True, "no price was known"), (False, "batches of other studies")])
def test_what_was_expected_is_said_to_be_unknown_and_why(tmp_path: Path, *, is_sent: bool, why: str) -> None:
    """Where one of two batches was sent without a known price, or another study's batch answered: no dash, no part."""
    lake = LakeBuilder(tmp_path / "lake")
    lake.plan([{"slot": n, "request_id": f"r{n}"} for n in range(2)], study="s")
    for n, expected in enumerate((5.0, None)):
        study = "s" if is_sent else "another"
        lake.sent(f"A{n}", f"S{n}", [f"r{n}"], study=study, origin="batch", cost_expected_usd=expected)
        lake.lines(f"A{n}", [{"request_id": f"r{n}", "outcome": "decided", "verdict": "first", "text": "x",
                              "cost_usd": 2.0, "origin": "batch"}])  # fmt: skip
        lake.ended(f"A{n}")
    lake.build()
    told = Told(tmp_path / "lake")
    (text,) = told["costs"]
    assert text.startswith("2 answers cost $4.00; what was expected is not known: ")
    assert why in text
    costs = told.exhibit("costs")
    assert why in costs.caption


def test_what_was_expected_of_more_than_has_come_is_said_to_be(tmp_path: Path) -> None:
    """What is still out was expected to cost something too: a part of the answers is not set beside all of the cost."""
    lake = LakeBuilder(tmp_path / "lake")
    lake.plan([{"slot": n, "request_id": f"r{n}"} for n in range(5)], study="s")
    for name, requests in (("A0", ["r0", "r1"]), ("A1", ["r2", "r3", "r4"])):
        lake.sent(name, f"S{name}", requests, study="s", origin="batch", cost_expected_usd=2.5 * len(requests))
    lake.lines("A0", [{"request_id": f"r{n}", "outcome": "decided", "verdict": "first", "text": "x", "cost_usd": 2.0,
                       "origin": "batch"} for n in range(2)])  # fmt: skip
    lake.ended("A0")
    lake.build()
    told = Told(tmp_path / "lake")
    (text,) = told["costs"]
    assert text == "2 answers cost $4.00; $12.50 was expected of the 5 that were sent."
    costs = told.exhibit("costs")
    assert "What was expected is of all that was sent, 3 requests without an answer among it." in costs.caption


def twice(pair: str, model: str, thinking: str, words: str = "first second") -> list[Row]:
    """Return a judge's verdicts on a pair in both orders; by `words` it is consistent."""
    return [
        {"task": "pairwise", "rubric_id": "r", "request_model": model, "thinking": thinking, "item_first": shown[0],
         "item_second": shown[1], "verdict": word}
        for shown, word in zip((pair, pair[::-1]), words.split(), strict=True)
    ]  # fmt: skip


def test_a_judge_over_all_statements_has_a_row_where_its_finding_leads_to(tmp_path: Path) -> None:
    """Each output belongs to one statement: a judge's shares stand in a table, not in those by statement alone."""
    rows = compared(6, 5) + [row | {"request_model": "m2", "verdict": "first"} for row in compared(6, 5)]
    people = [row | {"provider": "human", "request_model": "anna", "template_id": ""} for row in compared(1, 5)]
    told = findings(tmp_path, rows + people)
    assert any("same winner in both orders" in text for text in told["judges-consistency"])
    for key in ("judges-consistency", "judges-position"):
        assert {"m1", "m2"} <= set(told.exhibit(key).frame["request_model"])
    assert set(told.exhibit("judges-consistency").frame.filter(pl.col("provider") == "p")["n_cells"]) == {6}
    assert any(text.startswith("Of 12 cells of template, rubric and judge") for text in told["position-tests"])


def test_tests_that_could_not_find_anything_are_not_said_to_have_looked(tmp_path: Path) -> None:
    """One of three comparisons has an effect in reach, and that alone is told; judges differ by thinking."""
    names = "abcdefghij"
    pairs = {"".join(pair): "first first" if n % 9 == 0 else "first second"
             for n, pair in enumerate(itertools.combinations(names, 2))}  # fmt: skip
    rows = [
        row for pair, words in pairs.items() for level in ("low", "none") for row in twice(pair, "m1", level, words)
    ]
    rows += [row for pair in ("ab", "bc", "cd", "de") for row in twice(pair, "m2", "none")]
    told = findings(tmp_path, rows)
    looked, blind = told["power"]
    assert looked.startswith(
        "Of 3 comparisons of two judges' consistency, 0 found a difference after correction and 3 did not. 1 of these"
    )
    assert blind.startswith("Comparisons of two judges' consistency with too little in common")
    assert ": 2. " in blind
    with duckdb.connect(tmp_path / "lake" / LENS, read_only=True) as lens:
        ((n, mde),) = lens.execute("SELECT n_clusters, effect_mde FROM metric_power WHERE effect_mde > 0").fetchall()
    n_needed = math.ceil(n * (mde / 0.05) ** 2)  # an effect in reach shrinks with the root of the number
    assert f"To find 5 percentage points in each would take about {n_needed:,} items; the worst has {n}." in looked
    paired = told.exhibit("paired")
    assert set(paired.data.select("a", "b").rows()) == {
        ("m1 (low)", "m1 (none)"), ("m1 (low)", "m2"), ("m1 (none)", "m2")
    }  # fmt: skip
    assert "by 3 judges" in told.about.summary[0]


def test_what_is_drawn_is_called_what_it_is(tmp_path: Path) -> None:
    """Where models' outputs are compared, more prompts find a smaller effect: not more items, of which each has two."""
    rows = [
        row | {"unit_id": f"u{n}", "candidate_first": row["item_first"][0], "candidate_second": row["item_second"][0]}
        for n in range(40) for model in ("m1", "m2")
        for row in twice("ab", model, "none", "first first" if (n + (model == "m2")) % 7 == 0 else "first second")
    ]  # fmt: skip
    for row in rows:
        row |= {name: f"{row[name]}{row['unit_id']}" for name in ("item_first", "item_second")}
    (looked,) = findings(tmp_path, rows)["power"]
    assert re.search(r"would take about [\d,]+ prompts; the worst has 40\.", looked)


def test_a_share_of_few_pairs_says_of_how_many(tmp_path: Path) -> None:
    """Pairs without a winner in an order are in no share of the same winner, and the sentence does not hide them."""
    rows = [*twice("ab", "m1", "none"), *twice("cd", "m1", "none", "first tie"), *twice("ef", "m1", "none", "tie tie")]
    (text,) = findings(tmp_path, rows)["consistency"]
    assert "same winner" in text
    assert text.endswith("of 1 pair (of 3; the others lack a winner in an order).")


def test_people_who_label_are_no_judges_in_any_sentence(tmp_path: Path) -> None:
    """Their labels are told apart from what judges said, in the first sentence and where raters agree."""
    pairs = [{"item_first": f"i{n}", "item_second": "z", "verdict": "first" if n % 3 else "second"} for n in range(8)]
    raters = [{"provider": "human", "request_model": name, "template_id": "unspecified"} for name in ("anna", "bob")]
    told = findings(tmp_path, [pair | who for pair in pairs for who in (*raters, {})])
    assert [text.split(" (")[0] for text in told["agreement-overall"]] == ["2 people"]
    assert "24 judgments by 1 judge and 2 raters were imported" in told.about.summary[0]


def test_a_model_that_refused_or_failed_gave_no_answer(tmp_path: Path) -> None:
    """What it was asked for stands beside what it gave; nothing of it is pending."""
    outcomes = ("decided", "decided", "refused", "error")
    told = findings(
        tmp_path, [{"task": "generation", "item_first": f"i{n}", "outcome": o} for n, o in enumerate(outcomes)]
    )
    assert told.about.summary == ("1 model gave 2 of 4 answers, which are no judgments.",)


def test_the_first_of_a_ranking_has_the_places_that_hold_for_all_at_once(tmp_path: Path) -> None:
    """It was chosen by the data: where items hardly differ, its own places held the true one in .67 to .77 of sets."""
    rng = np.random.default_rng(1)
    rows: list[Row] = [
        {"task": "pairwise", "rubric_id": "r", "item_first": f"i{one}", "item_second": f"i{two}",
         "verdict": str(rng.choice(["first", "second"]))}
        for one, two in itertools.permutations(range(10), 2)
    ]  # fmt: skip
    (text,) = findings(tmp_path, rows)["ranking"]
    assert "is first of 10 items: places 1 to 10 fit the data, and it is not told apart from 9 others when all" in text


def test_a_ranking_of_more_items_than_its_table_holds_counts_all_of_them(tmp_path: Path) -> None:
    """In its finding and in its caption, which are of the study and not of the rows that are printed."""
    n_items = ROWS_MAX + 30
    rows: list[Row] = [
        {"task": "pairwise", "rubric_id": "r", "item_first": f"i{one:03}", "item_second": f"i{two % n_items:03}",
         "verdict": "first" if (one + two) % 3 else None, "outcome": "decided" if (one + two) % 3 else "refused"}
        for one in range(n_items) for two in (one + 1, one + 2)
    ]  # fmt: skip
    n_decided = sum(row["verdict"] is not None for row in rows)
    told = findings(tmp_path, rows)
    (text,) = told["ranking"]
    assert f"is first of {n_items} items" in text
    caption = told.exhibit("ranking").caption
    assert f"n = {n_decided} verdicts on {n_items} items. Left out: {len(rows) - n_decided} answers" in caption


def test_items_that_are_ranked_by_several_rubrics_are_as_many_as_they_are(tmp_path: Path) -> None:
    """Three texts under two rubrics are three items, in the caption of six rows."""
    rows: list[Row] = [
        {"task": "pairwise", "rubric_id": rubric, "item_first": one, "item_second": two, "verdict": "first"}
        for rubric in ("clear", "deep") for one, two in itertools.permutations("abc", 2)
    ]  # fmt: skip
    told = findings(tmp_path, rows)
    exhibit = told.exhibit("ranking")
    assert (len(exhibit.frame), exhibit.caption.partition(". ")[0]) == (6, "n = 12 verdicts on 3 items in 2 rubrics")


def asked_twice(judge: str, words: str) -> list[Row]:
    """Return a judge's verdicts on five pairs in both orders, each asked once for every word."""
    return [
        {"task": "pairwise", "rubric_id": "r", "request_model": judge, "item_first": one, "item_second": two,
         "repeat_no": repeat, "verdict": word}
        for n in range(5) for one, two in itertools.permutations((f"a{n}", f"b{n}"))
        for repeat, word in enumerate(words.split(), 1)
    ]  # fmt: skip


def test_a_judge_without_a_majority_anywhere_is_in_the_tables_and_nothing_of_it_is_left_out(tmp_path: Path) -> None:
    """Its repeats split on every pair, which the table counts; its votes say how consistent it is, and of places."""
    told = findings(tmp_path, [*asked_twice("m1", "first first"), *asked_twice("m2", "first second")])
    assert told.exhibit("consistency").frame["request_model"].to_list() == ["m1", "m2"]
    (split,) = told.exhibit("consistency").frame.filter(pl.col("request_model") == "m2").to_dicts()
    assert (split["n_split"], split["consistency_decided"], split["conflict_rate"]) == (5, 0.5, 0.5)
    assert "Nothing was left out." in told.exhibit("consistency").caption
    assert told.exhibit("position").frame.filter(pl.col("request_model") == "m2")["position_logodds"].to_list() == [0.0]
    assert "Nothing was left out." in told.exhibit("position").caption


def differing(word: Any, judges: str = "m1 m2", n_repeats: int = 1) -> list[Row]:
    """Return judges' verdicts on all pairs of 12 items in both orders, by whether the first of two wins."""
    return [
        {"task": "pairwise", "rubric_id": "r", "request_model": judge, "item_first": f"i{one:02}",
         "item_second": f"i{two:02}", "repeat_no": repeat, "verdict": "first" if word(judge, one, two) else "second"}
        for judge in judges.split() for one, two in itertools.permutations(range(12), 2) for repeat in range(n_repeats)
    ]  # fmt: skip


def test_what_to_buy_next_is_what_moves_verdicts_in_this_study(tmp_path: Path) -> None:
    """Judges where these differ, repeats where chance does, of one vote per order too; nothing where none differ."""
    rng = np.random.default_rng(1)
    own = {judge: rng.random((12, 12)) < 0.5 for judge in ("m1", "m2")}
    held = lambda judge, one, two: own[judge][min(one, two), max(one, two)] == (one < two)  # noqa: E731
    told = {
        "judges": differing(held),
        "chance": differing(lambda *_: rng.random() < 0.5, n_repeats=3),
        "first": differing(lambda _, one, two: (one < two) if (one + two) % 2 else rng.random() < 0.9),
        "same": differing(lambda _, one, two: one < two),
    }
    found = {name: findings(tmp_path / name, rows).get("variance", []) for name, rows in told.items()}
    assert found["judges"][0].startswith("What moves a verdict most, beside the pairs, is which judge is asked (")
    assert "more judges would narrow it most" in found["judges"][0]
    assert "is chance (" in found["chance"][0]
    assert "more repeats would" in found["chance"][0]
    assert "order and chance together" in found["first"][0]
    assert ": for an answer about these pairs repeats would" in found["first"][0]
    assert found["same"] == []


def test_more_items_are_to_be_bought_where_these_stand_for_others_badly(tmp_path: Path) -> None:
    """A judge names the first where one of three items of twelve is shown: its flips hang on which items there are."""
    rows = differing(lambda _, one, two: min(one, two) < 3 or one < two, "m1")
    (wide,) = [text for text in findings(tmp_path, rows)["variance"] if "in general" in text]
    assert wide.startswith("For an answer about items in general more items would: of ")
    assert "(the median of 1 cell)" in wide


def voted(votes: str, **columns: Any) -> list[Row]:
    """Return compliance of two candidates on inputs to six statements; a word per judge, t, f, or u for unparsed."""
    said = {"t": {"verdict": "true"}, "f": {"verdict": "false"}, "u": {"outcome": "unparsed"}}
    return [
        {"task": "compliance", "rubric_id": f"s{n % 6}", "unit_id": f"u{n}", "item_first": f"u{n}-{candidate}",
         "candidate_first": candidate, "request_model": f"m{judge}"} | said[vote] | columns
        for n, words in enumerate(votes.split()) for candidate in "ab" for judge, vote in enumerate(words)
    ]  # fmt: skip


def test_three_judges_of_whom_two_agree_do_not_agree_all(tmp_path: Path) -> None:
    """What is shown of three or more is of any two of them, and beside it the units on which all agree."""
    (text,) = findings(tmp_path, voted("ttt ttf tff fff ttf ttf"))["agreement-overall"]
    # per unit of a candidate 1, 1/3, 1/3, 1, 1/3, 1/3
    assert text.startswith("Any two of 3 judges (task compliance, template t1) agree on 55.6")
    assert "of 12 units on average, all that voted on 33.3" in text


def test_of_several_templates_those_of_most_and_of_least_agreement_are_told_and_called_so(tmp_path: Path) -> None:
    """Which two of three stand in the sentences follows from what they say, and not from their names."""
    votes = {"t1": "ttt ttf tff fff ttf ttf", "t2": "ttt ttt ttt fff fff ttf", "t3": "tff ttf tff fff ttf ttf"}
    rows = [row for template, words in votes.items() for row in voted(words, template_id=template)]
    most, least = findings(tmp_path, rows)["agreement-overall"]
    assert "template t2" in most
    assert most.endswith(", the highest of 3 templates.")
    assert "template t3" in least
    assert least.endswith(", the lowest.")


def test_an_answer_that_is_left_out_is_counted_once_and_not_again_for_the_panel(tmp_path: Path) -> None:
    """Neither of compliance nor of ratings; of what is shown per statement, the panel's, it is the panel's own."""
    rows = voted("uut ttf uuu fff ttf ttf")
    rated: list[Row] = [
        {"task": "likert", "rubric_id": "r", "item_first": f"i{n}", "request_model": f"m{judge}"}
        | ({"outcome": "unparsed"} if n < 2 else {"score": 1 + n % 3}) for n in range(8) for judge in range(2)
    ]  # fmt: skip
    told = findings(tmp_path, rows + rated)
    captions = {key: told.exhibit(key).caption for key in ("compliance", "ratings", "statements")}
    assert "Left out: 10 answers without a verdict." in captions["compliance"]
    assert "Left out: 4 answers without a rating." in captions["ratings"]
    assert "Left out: 2 answers without a verdict." in captions["statements"]


def test_what_labels_could_have_found_is_no_test_of_the_judges(tmp_path: Path) -> None:
    """People's labels of both candidates are compared as well, and are in no sentence or table on power."""
    told = findings(tmp_path, voted("tf tf ff tt ft tt " * 2) + voted("t f t f t f " * 2, provider="human"))
    (power,) = [text for text in told["power"] if "would have found" in text]
    assert power.startswith("Of 3 comparisons of two candidates' compliance")
    exhibit = told.exhibit("power")
    assert exhibit.frame["n_tests"].to_list() == [3]


def test_what_is_right_stands_beside_how_many_are_labelled(tmp_path: Path) -> None:
    """A jury's accuracy is of the labelled units that it has a verdict on, and not of those that it was asked about."""
    rows = [row | {"rubric_id": "s"} for row in voted("tt tf ff tt ft tt") + voted("t f", provider="human")]
    told = findings(tmp_path, rows)
    exhibit = told.exhibit("jury")
    assert [exhibit.frame[name].to_list() for name in ("n_units", "n_labelled", "majority_units")] == [[12], [4], [2]]
    titles = [column.title for column in exhibit.columns]
    assert titles.index("majority right") + 1 == titles.index("of")


def test_what_audits_confirm_stands_beside_how_many_were_audited(tmp_path: Path) -> None:
    """Two judges of all six units, a third on the one where they differ, and on three where they agree."""
    rows = [row for row in voted("ttt ttf ttt tft tt tt") if row["candidate_first"] == "a"]
    told = findings(tmp_path, [row | {"rubric_id": "s"} for row in rows])
    exhibit = told.exhibit("cascade")
    assert [exhibit.frame[name].to_list() for name in ("n_audited", "n_confirmed")] == [[3], [2]]
    titles = [column.title for column in exhibit.columns]
    assert titles.index("audited") + 1 == titles.index("audits confirm")
