"""Gates of `compare`: what they decide on, and where they do not."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from batchpond.lake.tables import query
from batchpond.results.compare.verb import compare, limit
from tests.rigs.lakes import LakeBuilder
from tests.unit.results.test_compare import JUDGE, Row, differences

ERROR = {"metric": "error", "better": "lower"}


def gated(text: str, *, is_margin: bool, **values: Any) -> list[Row]:
    """Return what a gate says of one difference, of consistency unless said."""
    row = {"metric": "consistency", "better": "higher", "is_main": True, "comparison_no": 1, "side": "b",
           "value_a": 0.9,
           "value_b": 0.8, "diff": -0.1, "diff_lo": -0.15, "diff_hi": -0.05, "n_clusters": 20,
           "clustered_by": "item"} | values  # fmt: skip
    metric, delta = limit(text, is_margin=is_margin)
    with duckdb.connect() as connection:
        made = pa.Table.from_pylist([row], schema=pa.Table.from_pylist([row | {"diff_lo": 0.0, "diff_hi": 0.0}]).schema)
        connection.register("compare_metrics", made)
        connection.execute(
            "CREATE TABLE compare_unmatched "
            "(comparison_no INT, metric TEXT, is_main BOOL, n_common INT, n_a INT, n_b INT)"
        )
        connection.execute("CREATE TABLE compare_comparisons (comparison_no INT, side TEXT)")
        asked = {"metrics": [metric], "deltas": [delta], "is_margin": is_margin}
        found: list[Row] = (
            connection.sql(query("batchpond.results.compare", "gates"), params=asked).to_arrow_table().to_pylist()
        )
        return found


@pytest.mark.parametrize(
    ("text", "is_margin", "values", "is_worse"),
    [
        ("consistency", False, {}, True),
        ("consistency:0.04", False, {}, True),
        ("consistency:0.06", False, {}, False),
        ("consistency", False, {"diff_hi": 0.01}, False),
        ("consistency:0.1", True, {}, True),
        ("consistency:0.2", True, {}, False),
        ("error", False, ERROR, False),
        ("error", False, ERROR | {"diff": 0.1, "diff_lo": 0.05, "diff_hi": 0.15}, True),
        ("error:0.1", True, ERROR | {"diff_lo": 0.05, "diff_hi": 0.15}, True),
        ("main", False, {}, True),
        ("consistency", False, {"diff_lo": None, "diff_hi": None}, None),
    ],
)
def test_the_gate_decides_on_the_whole_interval(text: str, is_margin: bool, values: Row, is_worse: bool | None) -> None:
    """Worse where all of it is beyond delta; by a margin, wherever any of it is; undecided without one."""
    (found,) = gated(text, is_margin=is_margin, **values)
    assert found["is_worse"] is is_worse
    assert found["says"].startswith({True: "worse: ", False: "not worse: ", None: "undecided: "}[is_worse])


@pytest.mark.parametrize("gate", ["score", "score:0.5"])
@pytest.mark.parametrize("more", [0.0, -1.0, -1 / 3])
def test_scores_that_all_differ_by_the_same_have_no_interval(tmp_path: Path, more: float, gate: str) -> None:
    """They show no spread: six equal ones are no proof that nothing is worse, nor six of one less that all are."""
    builder = LakeBuilder(tmp_path / "lake")
    builder.imported([
        {"import_key": f"{template}{item}", "study": "s", "task": "likert", "template_id": template, "rubric_id": "r",
         **JUDGE, "item_first": f"i{item}", "outcome": "decided", "score": 4.0 - item % 2 + more * (template == "b")}
        for template, item in product("ab", range(6))
    ])  # fmt: skip
    builder.build()
    found = compare(builder.store.path, "s:template=a", "s:template=b", gates=[gate], is_margin=":" in gate)
    row = differences(found, "score")
    assert row["diff"] == pytest.approx(more)
    lacking = ("diff_lo", "diff_hi", "p_diff", "q_bh", "diff_mde", "diff_lo_these_items", "diff_hi_these_items")
    assert [row[name] for name in lacking] == [None] * len(lacking)
    (told,) = found.gates.to_pylist()
    assert told["is_worse"] is None
    assert told["says"].endswith("all differ by the same, which shows no spread, so there is no interval to decide on")


@pytest.mark.parametrize("gate", ["compliance", "main", "compliance:0.2", "error"])
@pytest.mark.parametrize("is_margin", [True, False])
def test_a_gate_does_not_pass_over_a_comparison_whose_answers_cannot_be_read(
    tmp_path: Path, gate: str, *, is_margin: bool
) -> None:
    """Of one template all that b says is unreadable: undecided, where the other alone would let it pass."""
    builder = LakeBuilder(tmp_path / "lake")
    builder.imported([
        {"import_key": f"{study}{template}{item}", "study": study, "task": "compliance", "template_id": template,
         "rubric_id": "r", **JUDGE, "item_first": f"i{item}", **said}
        for study, template, item in product(("old", "new"), ("t1", "t2"), range(40))
        for said in [{"outcome": "unparsed"} if (study, template) == ("new", "t2")
                     else {"outcome": "decided", "verdict": "true" if item % 3 else "false"}]
    ])  # fmt: skip
    builder.build()
    text = gate if ":" in gate or not is_margin else f"{gate}:0.2"
    told = compare(builder.store.path, "old", "new", gates=[text], is_margin=is_margin).gates.to_pylist()
    found = {row["comparison_no"]: row for row in told}
    is_worse = {number: row["is_worse"] for number, row in found.items()}
    assert is_worse == {1: False, 2: False if gate == "error" else None}
    if gate != "error":
        assert found[2]["says"] == ("undecided: compliance of comparison 2 has no value on both sides: of 40 in both, "
                                    "a has it of 40, b of 0")  # fmt: skip
