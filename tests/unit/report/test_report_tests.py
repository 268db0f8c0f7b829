"""What a report claims as a whole: Holm's over what was claimed, and p values that may still change."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from batchpond.lake.records import COMPLETE, INCOMPLETE, Planned, Rounds
from batchpond_report import build
from batchpond_report.declared import exhibits
from batchpond_report.numbers import Kind
from tests.rigs.findings import Told
from tests.rigs.lakes import LakeBuilder
from tests.rigs.sql import Row, judged, result, table, views_over


@pytest.fixture
def judge_rows() -> list[Row]:
    """Return one judge's verdicts on seven items under three templates, which favour the first."""
    rng = np.random.default_rng(1)
    return [
        {"template_id": f"t{template}", "item_first": f"i{one}", "item_second": f"i{other}", "study": "s",
         "verdict": str(rng.choice(["first", "second"], p=[0.6, 0.4]))}
        for template in range(3) for one, other in np.ndindex(7, 7) if one != other
    ]  # fmt: skip


def test_holm_of_the_claims_is_over_what_was_claimed_alone(judge_rows: list[Row]) -> None:
    """statsmodels' over the tests that are marked primary or secondary; of claims that came late there is none."""
    rows = [row | {"study": study} for study in ("s", "late") for row in judge_rows]
    claims = [
        {"study": study, "primary_claim": "position", "secondary_claims": "length,win matrix",
         "is_claimed_first": study == "s"} for study in ("s", "late")
    ]  # fmt: skip
    (declared,) = exhibits("tests").values()
    with views_over({"pair_judgments": table(judged(rows)), "report_claims": table(claims)}) as connection:
        tests = result(connection, f"SELECT * FROM {declared.view} ORDER BY {declared.order}")
    found, late = ([row for row in tests if row["study"] == study] for study in ("s", "late"))
    assert [row["p"] for row in late] == [row["p"] for row in found]
    assert {row["holm_claimed"] for row in late} == {None}
    family = [row for row in found if row["finding"] == "position"]
    assert 0 < len(family) < len(found)
    wanted = multipletests([row["p"] for row in family], method="holm")[1]
    np.testing.assert_allclose([row["holm_claimed"] for row in family], wanted, rtol=1e-7)
    assert {row["holm_claimed"] for row in found if row["finding"] != "position"} == {None}
    assert all(row["holm_claimed"] <= row["holm"] for row in family)


def test_a_judge_over_all_its_cells_is_among_all_tests(judge_rows: list[Row]) -> None:
    """Once, where it has several; of one cell it is that cell's, and told there alone."""
    (declared,) = exhibits("tests").values()
    rows = judge_rows + [row | {"study": "one"} for row in judge_rows if row["template_id"] == "t0"]
    with views_over({"pair_judgments": table(judged(rows))}) as connection:
        tests = result(connection, f"SELECT study, p FROM {declared.view} WHERE finding = 'position of a judge'")
        wanted = result(connection, "SELECT study, p_position AS p FROM report_judges WHERE study <> 'one'")
    assert tests == wanted
    assert len(tests) == 1


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
