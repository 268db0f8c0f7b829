"""`compare` of two versions of a study: what they share, and what is another item under the same id."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from batchpond.errors import UsageError
from batchpond.results.compare.verb import compare
from tests.rigs.lakes import LakeBuilder
from tests.unit.results.test_compare import Row, differences


def test_an_earlier_version_is_compared_with_the_current_one(tmp_path: Path) -> None:
    """A template edited under its name: the plan of each version, with its own answers; what is shared is said."""
    builder = LakeBuilder(tmp_path / "lake")
    pairs = [(f"i{x}", f"i{y}") for x, y in product(range(4), range(4)) if x != y]

    def planned(version: str) -> list[Row]:
        return [
            {"slot": n, "request_id": f"r{'' if first == 'i0' else version}{n}", "item_first": first,
             "item_second": second, "is_lo_first": first < second, "pair_id": " | ".join(sorted((first, second)))}
            for n, (first, second) in enumerate(pairs)
        ]  # fmt: skip

    asked: set[str] = set()
    for version, always in (("old1", "first"), ("new2", None)):
        rows = planned(version)
        builder.plan(rows, version=version)
        new = [row for row in rows if row["request_id"] not in asked]
        asked |= {row["request_id"] for row in new}
        builder.sent(f"att{version}", f"shard{version}", [row["request_id"] for row in new], study_version=version)
        builder.lines(f"att{version}", [
            {"request_id": row["request_id"], "outcome": "decided", "cost_usd": 0.01,
             "verdict": always or ("first" if row["is_lo_first"] else "second")} for row in new
        ])  # fmt: skip
        builder.ended(f"att{version}")
    builder.build()
    found = compare(builder.store.path, "demo@old", "demo")
    row = differences(found, "consistency")
    # Of the six pairs the three of i0 keep one answer of two.
    assert (row["n"], row["value_a"], row["value_b"]) == (6, 0.0, 1.0)
    assert {"12 answers of a are simulated", "12 answers of b are simulated"} < set(found.notes)
    (told,) = found.comparisons.to_pylist()
    assert told["cost_a_simulated_usd"] == told["cost_a_usd"] == pytest.approx(0.12)
    assert told["says"].endswith("; a cost $0.1200 (simulated, not spent), b $0.1200 (simulated, not spent)")
    assert any(note.startswith("3 of b's 12 requests are the same requests as in a") for note in found.notes)
    with pytest.raises(UsageError, match="no version 'zzz'"):
        compare(builder.store.path, "demo@zzz", "demo")


def test_items_that_hold_something_else_under_their_id_are_said(tmp_path: Path) -> None:
    """An item edited between two versions is not the same item: the pairs stay, and a note counts them."""
    builder = LakeBuilder(tmp_path / "lake")
    for version, edited in (("old1", ""), ("new2", "i1")):
        builder.plan([
            {"slot": n, "request_id": f"{version}{n}", "item_first": first, "item_second": second,
             "item_first_hash": f"{first}{version if first == edited else ''}",
             "item_second_hash": f"{second}{version if second == edited else ''}",
             "is_lo_first": first < second, "pair_id": " | ".join(sorted((first, second)))}
            for n, (first, second) in enumerate((("i0", "i1"), ("i1", "i0"), ("i0", "i2"), ("i2", "i0")))
        ], version=version)  # fmt: skip
        builder.sent(f"att{version}", f"shard{version}", [f"{version}{n}" for n in range(4)], study_version=version)
        builder.lines(f"att{version}", [
            {"request_id": f"{version}{n}", "outcome": "decided", "verdict": "first"} for n in range(4)
        ])  # fmt: skip
        builder.ended(f"att{version}")
    builder.build()
    found = compare(builder.store.path, "demo@old", "demo")
    (note,) = (note for note in found.notes if "items in both" in note)
    assert note.startswith("1 of 3 items in both a and b have another text, or other columns, under the same id")
