"""What a report claims as a whole: every p that it prints stands in one table, corrected over all of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from statsmodels.stats.multitest import multipletests

from batchpond.lake.records import COMPLETE, INCOMPLETE, Planned, Rounds
from batchpond_report import build
from batchpond_report.declared import exhibits
from batchpond_report.numbers import Kind
from batchpond_report.parts import Exhibit, Report
from tests.rigs.findings import Told
from tests.rigs.lakes import LakeBuilder
from tests.rigs.report import build as build_lake
from tests.rigs.sql import judged, result, table, views_over

CORRECTED = {"q_bh", "q_these", "q", "holm", "holm_claimed"}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return build.build(build_lake(tmp_path_factory.mktemp("tests") / "lake"), "every")


def together(report: Report) -> Exhibit:
    """Return the table of all tests."""
    (found,) = [exhibit for exhibit in report.exhibits() if exhibit.key == "tests"]
    return found


def test_every_printed_p_is_in_the_table(report: Report) -> None:
    """As often as it is printed elsewhere; of the win matrix, whose q is printed, the p that it is made of.

    Each pair of the matrix has two rows, whose one p is in the table once.
    """
    printed = Counter(
        value
        for exhibit in report.exhibits()
        if exhibit.key != "tests"
        for column in exhibit.columns
        if column.kind is Kind.P and column.name not in CORRECTED
        for value in exhibit.frame[column.name].drop_nulls().to_list()[:: 2 if exhibit.key == "matrix" else 1]
    )
    found = together(report).frame.filter((pl.col("finding") != "win matrix") | (pl.col("target") != "in general"))
    assert printed
    assert Counter(found["p"].to_list()) == printed


def test_q_and_holm_are_statsmodels(report: Report) -> None:
    """Over all p of the report; the caption says how many are found by each."""
    frame = together(report).data
    assert frame["p"].is_sorted()
    p = frame["p"].to_numpy()
    np.testing.assert_allclose(frame["q"].to_numpy(), multipletests(p, method="fdr_bh")[1], rtol=1e-7)
    np.testing.assert_allclose(frame["holm"].to_numpy(), multipletests(p, method="holm")[1], rtol=1e-7)
    for name, values in (("n_found", p), ("n_found_q", frame["q"]), ("n_found_holm", frame["holm"])):
        assert set(frame[name]) == {int(np.sum(np.asarray(values) < 0.05))}
    assert f"n = {len(p):,} p values" in together(report).caption


@pytest.mark.parametrize("is_claimed_first", [True, False])
def test_holm_of_the_claims_is_over_what_was_claimed_alone(*, is_claimed_first: bool) -> None:
    """statsmodels' over the tests that are marked primary or secondary; of claims that came late there is none."""
    rng = np.random.default_rng(1)
    rows = [
        {"study": "s", "template_id": f"t{template}", "item_first": f"i{one}", "item_second": f"i{other}",
         "verdict": str(rng.choice(["first", "second"], p=[0.6, 0.4]))}
        for template in range(3) for one, other in np.ndindex(7, 7) if one != other
    ]  # fmt: skip
    claims = {"study": "s", "primary_claim": "position", "secondary_claims": "length,win matrix",
              "is_claimed_first": is_claimed_first}  # fmt: skip
    (declared,) = exhibits("tests").values()
    with views_over({"pair_judgments": table(judged(rows)), "report_claims": table([claims])}) as connection:
        found = result(connection, f"SELECT * FROM {declared.view} ORDER BY {declared.order}")
    family = [row for row in found if row["finding"] == "position"]
    assert 0 < len(family) < len(found)
    if not is_claimed_first:
        assert {row["holm_claimed"] for row in found} == {None}
        return
    wanted = multipletests([row["p"] for row in family], method="holm")[1]
    np.testing.assert_allclose([row["holm_claimed"] for row in family], wanted, rtol=1e-7)
    assert {row["holm_claimed"] for row in found if row["finding"] != "position"} == {None}
    assert all(row["holm_claimed"] <= row["holm"] for row in family)


@pytest.mark.parametrize("still_to_come", ["a judgment", "an answer to be judged", "a round", "nothing"])
def test_p_values_of_an_open_study_say_so(tmp_path: Path, still_to_come: str) -> None:
    """In each head of p or q, as long as an answer is to come, of a judged model too, or questions of a round."""
    builder = LakeBuilder(tmp_path / "lake")
    builder.imported([
        {"study": "demo", "import_key": f"{one}{other}", "provider": "p", "request_model": "m", "item_first": f"i{one}",
         "item_second": f"i{other}", "unit_id": "", "repeat_no": 1, "verdict": "first", "outcome": "decided"}
        for one, other in np.ndindex(6, 6) if one != other
    ])  # fmt: skip
    if still_to_come == "a judgment":
        builder.plan([{"item_first": "i0", "item_second": "i1"}])
    elif still_to_come == "an answer to be judged":
        builder.plan([{"task": "generation", "item_first": "i0", "item_second": None}])
    elif still_to_come == "a round":
        builder.event(Planned, study="demo", study_version="v1")
        for version, progress in (("v1", COMPLETE), ("v1", INCOMPLETE), ("v0", COMPLETE)):
            builder.event(Rounds, study="demo", study_version=version, progress=progress, looked="{}")
    builder.build()
    about = Told(builder.store.path, "demo").about
    assert about.is_open == (still_to_come != "nothing")
    assert ("all numbers may change" in " ".join(about.summary)) == about.is_open
    if still_to_come not in {"a judgment", "nothing"}:  # all heads follow from that it is open, and not from what is
        return
    made = build.build(builder.store.path, "demo")
    heads = [column.title for exhibit in made.exhibits() for column in exhibit.columns if column.kind is Kind.P]
    assert heads
    assert {head.endswith(" (open)") for head in heads} == {about.is_open}
