"""The counts that rankings start from are those of a plain loop over the judgments, through the command and the API."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchpond
from batchpond.model import CELL_COLUMNS
from batchpond.results.rank.verb import What, counted
from batchpond.stats import ranking
from batchpond.stats.votes import of_rows
from batchpond.views import database
from tests.rigs.lakes import LakeBuilder
from tests.unit.results.test_rank_command import call, planned_lake

FIELDS = {
    "item", "theta", "se", "theta_lo", "theta_hi", "rank", "rank_lo", "rank_hi", "tied_group", "component_id",
    "n_comparisons", "n_wins", "n_losses", "n_ties", "n_opponents", "n_without_verdict", "n_pending", "flags",
}  # fmt: skip


def messy(seed: int, *, units: int) -> list[dict[str, Any]]:
    """Draw imported judgments of two templates and two judges, with failures, ties and units, one of them missing."""
    rng = np.random.default_rng(seed)
    items = ["b", "B", "é", "a b", "z", "aa", "10", "9"]
    rows = []
    for number in range(400):
        first, second = rng.choice(len(items), 2, replace=False)
        word = str(rng.choice(["first", "second", "tie", "unparsed"], p=[0.5, 0.3, 0.1, 0.1]))
        is_vote = word != "unparsed"
        rows.append(
            {"study": "s", "import_key": f"k{number}", "template_id": f"t{rng.integers(2)}", "provider": "p",
             "request_model": f"m{rng.integers(2)}", "unit_id": [None, "u2", "u1"][rng.integers(units)],
             "item_first": items[first], "item_second": items[second], "verdict": word if is_vote else None,
             "outcome": {"tie": "tie", "unparsed": "unparsed"}.get(word, "decided")}
        )  # fmt: skip
    return rows


@pytest.mark.parametrize("units", [1, 3])
def test_counts_are_those_of_a_plain_loop(tmp_path: Path, units: int) -> None:
    """Per cell: items in binary order, the missing unit last, votes by order of presentation, the rest beside."""
    rows = messy(units, units=units)
    builder = LakeBuilder(tmp_path / "lake")
    builder.imported(rows)
    builder.build()
    with closing(database.connect(builder.store.path)) as connection:
        found = {(c.scope[1], c.scope[4]): c for c in counted(connection, None, What.AUTO, CELL_COLUMNS)}
    assert list(found) == sorted({(row["template_id"], row["request_model"]) for row in rows})
    for cell, counts in found.items():
        own = [row for row in rows if (row["template_id"], row["request_model"]) == cell]
        names = sorted({row[side] for row in own for side in ("item_first", "item_second")})
        order = sorted({row["unit_id"] for row in own}, key=lambda unit: (unit is None, unit))
        wanted = of_rows(
            len(names), *([names.index(row[side]) for row in own] for side in ("item_first", "item_second")),
            [row["verdict"] for row in own], [order.index(row["unit_id"]) for row in own],
        )  # fmt: skip
        assert counts.names == names
        got = counts.votes.decided()
        for name in ("lo", "hi", "unit", "counts"):
            assert np.array_equal(getattr(got, name), getattr(wanted, name)), name
        failed = Counter(row[side] for row in own if row["verdict"] is None for side in ("item_first", "item_second"))
        assert counts.n_without_verdict == [failed[name] for name in names]
        assert counts.n_pending == [0] * len(names)


def test_planned_and_imported_cells_pooled_are_one_ranking_of_all_votes(tmp_path: Path) -> None:
    """`rank --by study --json` and `Lake.rank(by=())`: an object per item, every field, theta of the added votes."""
    planned = planned_lake(tmp_path / "planned")
    imported = LakeBuilder(tmp_path / "imported")
    imported.imported(messy(7, units=1))
    imported.build()
    for lake in (planned.store.path, imported.store.path):
        shown = json.loads(call(lake, "rank", "--by", "study", "--json").stdout)
        assert all(row.keys() >= FIELDS for row in shown)
        assert len({row["item"] for row in shown}) == len(shown)
        assert batchpond.Lake(lake).rank(by=()).to_dicts() == shown
        with closing(database.connect(lake)) as connection:
            (counts,) = counted(connection, None, What.AUTO, ())
        found = ranking.rank(counts.votes, ranking.Options(has_position=None))
        theta = dict(zip(counts.names, found.theta.tolist(), strict=True))
        assert {row["item"]: row["theta"] for row in shown} == pytest.approx(theta)
        cells = json.loads(call(lake, "rank", "--json").stdout)
        for item in theta:
            n_of_cells = sum(row["n_comparisons"] for row in cells if row["item"] == item)
            assert [row["n_comparisons"] for row in shown if row["item"] == item] == [n_of_cells]


def test_people_are_no_part_of_what_models_are_pooled_to(tmp_path: Path) -> None:
    """Their labels are what judges are held against; where people alone judged, they are ranked by."""
    lake = LakeBuilder(tmp_path / "lake")
    rows = [
        {"study": study, "item_first": "a", "item_second": "b", "outcome": "decided", "verdict": "first",
         "provider": provider, "request_model": f"j{n}", "import_key": f"{study}{provider}{n}"}
        for study, provider, n_judges in (("both", "openai", 3), ("both", "human", 2), ("people", "human", 2))
        for n in range(n_judges)
    ]  # fmt: skip
    lake.imported(rows)
    lake.build()
    with closing(database.connect(lake.path)) as connection:
        pooled = {found.scope[0]: found for found in counted(connection, None, What.ITEMS, ())}
        apart = list(counted(connection, "both", What.ITEMS, ("provider",)))
    assert {name: int(found.votes.counts.sum()) for name, found in pooled.items()} == {"both": 3, "people": 2}
    assert sorted(int(found.votes.counts.sum()) for found in apart) == [2, 3]
