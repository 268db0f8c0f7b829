"""One planner: a study of pairs is told the same, and stands in the lake the same, however its file says it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from batchpond.cli.plan import report_lines
from batchpond.lake.disk import read_rows
from batchpond.lake.schemas import PLAN
from batchpond.lake.store import Store
from batchpond.lake.tables import connect
from batchpond.plan.cells import cell_id
from batchpond.plan.report import PlanReport
from batchpond.plan.verb import plan_study
from batchpond.study.file import load
from tests.rigs.clock import ManualClock
from tests.rigs.sim_cache import without_lens

START = datetime(2026, 11, 21, tzinfo=UTC)
STUDY = """\
study = "{name}"
rubrics = ["overall_quality"]
[items]
path = "items.csv"
{items}
[pairs]
{pairs}
[[templates]]
id = "t"
text = "{{TRAIT_NAME}} {{TRAIT_DESCRIPTION}} {{SAMPLE_1}} {{SAMPLE_2}}"
[[models]]
provider = "openai"
model = "gpt-unknown-model"
"""
TIER = 'tier = "prio"'
FIXED = 'order = "fixed"\nreverse = 0.2\ncount = 100'
ADAPTIVE = 'select = "adaptive"\ncount = 100'
WAYS = {"plain": ("", FIXED), "tiered": (TIER, FIXED), "adaptive": ("", ADAPTIVE), "both": (TIER, ADAPTIVE)}
N_ITEMS = 5


@pytest.fixture(scope="module", autouse=True)
def _no_lens() -> Iterator[None]:
    """What is looked at here are the lake's tables; a view is worked out when one is asked for."""
    with without_lens():
        yield


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return an empty lake."""
    return Store.init(tmp_path / "lake", ManualClock(START))


def planned(store: Store, folder: Path, way: str, name: str = "s") -> PlanReport:
    """Plan the study in one of the ways to say it."""
    items, pairs = WAYS[way]
    rows = "".join(f"i{number},essay {number},{1 + number % 2}\n" for number in range(N_ITEMS))
    (folder / "items.csv").write_text("id,text,prio\n" + rows)
    (folder / "study.toml").write_text(STUDY.format(name=name, items=items, pairs=pairs))
    return plan_study(store, load(folder / "study.toml"))


def rows(store: Store, sql: str) -> list[tuple[Any, ...]]:
    """Run SQL over the lake's tables."""
    with connect(store, ("requests", "plan", "items", "studies")) as connection:
        return connection.execute(sql).fetchall()


@pytest.mark.parametrize("way", WAYS)
def test_every_study_of_pairs_is_told_what_its_author_should_know(store: Store, tmp_path: Path, way: str) -> None:
    report = planned(store, tmp_path, way)
    text = "\n".join(report_lines(report))
    said = [
        "template t does not spell out the two answers",
        "no batch price is known for openai/gpt-unknown-model",
        "without max_output_tokens the worst cost is unknown",
        "pairs.count is 100, but there are only 10 pairs",
    ]
    if "adaptive" not in WAYS[way][1]:  # whose orders are balanced whatever the file says
        said.append("with a fixed order and not every pair reversed, position and item cannot be told apart")
    for note in said:
        assert sum(note in line for line in report.notes) == 1
        assert note in text
    assert report.balance is not None
    assert f"({report.balance.n_forward:,} asked forward, {report.balance.n_reverse:,} in reverse)" in text
    assert (report.n_items, report.n_pairs_possible, report.n_cells) == (N_ITEMS, 10, 1)
    assert (report.n_answered_already, report.n_in_shards, report.n_shards) == (0, 0, 2 if WAYS[way][0] else 1)
    assert report.n_plan_rows == report.n_to_ask == sum(cell.n_to_ask for cell in report.cells)
    assert any(line.split()[:2] == ["t", "overall_quality"] for line in text.splitlines()), "the table of cells"


def test_a_tier_changes_nothing_but_what_is_sent_first(store: Store, tmp_path: Path) -> None:
    """Notes, counts, requests, cells and items are those of the study without tiers; nothing waits, so no forecast."""
    plain, tiered = (planned(store, tmp_path, way) for way in ("plain", "tiered"))
    assert plain.study_version != tiered.study_version
    assert (tiered.notes, tiered.balance, tiered.cost) == (plain.notes, plain.balance, plain.cost)
    assert tiered.cells == tuple(plain.cells)
    assert (tiered.n_requests, tiered.n_new, tiered.n_shards) == (plain.n_requests, 0, 2)
    assert "~)" not in "\n".join(report_lines(tiered))
    assert rows(store, "select count(*), count(distinct item_id) from items") == [(N_ITEMS, N_ITEMS)]
    per_version = "select {} from plan where study_version = '{}' order by all"
    columns = "cell_id, request_id, item_first, item_second, item_first_hash, direction, repeat_no, pair_id, stage"
    one, other = (rows(store, per_version.format(columns, r.study_version)) for r in (plain, tiered))
    assert one == other
    tiers = rows(store, per_version.format("item_first, item_second, tier", tiered.study_version))
    assert all(tier == max(1 + int(a[1:]) % 2, 1 + int(b[1:]) % 2) for a, b, tier in tiers)
    assert rows(store, per_version.format("distinct tier", plain.study_version)) == [(None,)]


STAGE_REPEATS = {
    "of a stage's pairs": ("stages", "", "repeats = 3"),
    "of a stage": ("stages", "repeats = 3", ""),
    "of a tiered study's pairs": ("tiered", "", "repeats = 3"),
    "of a study's pairs": ("plain", "", "repeats = 3"),
}


@pytest.mark.parametrize("where", STAGE_REPEATS)
def test_each_question_is_asked_as_often_as_the_file_says(store: Store, tmp_path: Path, where: str) -> None:
    """Wherever the number stands, of the pairs or of the stage; what is foreseen counts them too."""
    way, of_stage, of_pairs = STAGE_REPEATS[where]
    (tmp_path / "items.csv").write_text("id,text,prio\na,x,1\nb,y,1\nc,z,2\n")
    study = STUDY.format(name="s", items=TIER if way == "tiered" else "", pairs=of_pairs)
    if way == "stages":
        head, body = study.split("\n", 1)
        for part in ("items", "pairs"):
            body = body.replace(f"[{part}]", f"[stages.{part}]")
        for part in ("templates", "models"):
            body = body.replace(f"[[{part}]]", f"[[stages.{part}]]")
        study = f'{head}\n[[stages]]\nname = "a"\n{of_stage}\n{body}'
    (tmp_path / "study.toml").write_text(study)
    report = plan_study(store, load(tmp_path / "study.toml"))
    assert (report.n_plan_rows, report.n_requests) == (3 * 2 * 3, 3 * 2 * 3)
    assert rows(store, "select repeat_no, count(*) from plan group by all order by all") == [(1, 6), (2, 6), (3, 6)]
    assert sum(stage.n_requests for stage in report.stages) == report.n_plan_rows


def test_rounds_ask_in_the_same_cells_about_the_same_items(store: Store, tmp_path: Path) -> None:
    """One lake with all ways: one cell, no item twice; only what waits for answers is a forecast."""
    reports = {way: planned(store, tmp_path, way) for way in WAYS}
    assert len({report.study_version for report in reports.values()}) == len(WAYS)
    assert len(rows(store, "select distinct cell_id from plan")) == 1
    assert rows(store, "select count(*), count(distinct item_id) from items") == [(N_ITEMS, N_ITEMS)]
    assert rows(store, "select count(*), count(distinct request_id) from requests")[0][0] <= 2 * 10
    for way, report in reports.items():
        (stage,) = report.stages
        assert stage.is_forecast == ("adaptive" in WAYS[way][1])
        assert ("~)" in "\n".join(report_lines(report))) == stage.is_forecast
        again = planned(store, tmp_path, way)
        assert (again.n_new, again.study_version) == (0, report.study_version)
        assert again.n_requests == report.n_requests
    grain = "select count(*), count(distinct (study_version, slot)) from plan"
    ((n_rows, n_places),) = rows(store, grain)
    assert n_rows == n_places == sum(report.n_plan_rows for report in reports.values())


def test_a_version_that_was_begun_with_the_stage_in_its_cells_goes_on_so(store: Store, tmp_path: Path) -> None:
    """As an earlier version of the program named them, half of a plan on disk: no cell is split and no row twice."""
    whole = Store.init(tmp_path / "whole", ManualClock(START))
    report = planned(whole, tmp_path, "tiered")
    (path,) = whole.files(PLAN.name)
    names = ("template_id", "rubric_id", "provider", "request_model", "thinking")
    begun = [
        {**row, "cell_id": cell_id("s", [row[name] for name in names], "main")}
        for row in read_rows(path).to_pylist()[::2]
    ]
    store.publish(PLAN, f"p_study=s/{report.study_version}-r0001-00000", begun)
    again = planned(store, tmp_path, "tiered")
    n = report.n_plan_rows
    assert (again.study_version, again.n_plan_rows, again.n_cells) == (report.study_version, n, 1)
    grains = "count(*), count(distinct (item_first, item_second)), count(distinct slot), min(cell_id), max(cell_id)"
    name = begun[0]["cell_id"]
    assert rows(store, f"select {grains} from plan") == [(n, n, n, name, name)]


def test_repeats_are_asked_whatever_is_sent_first(store: Store, tmp_path: Path) -> None:
    """The file says them under its pairs, with tiers or without."""
    (tmp_path / "items.csv").write_text("id,text,prio\na,one,1\nb,two,2\n")
    n_rows = []
    for items in ("", TIER):
        (tmp_path / "study.toml").write_text(STUDY.format(name="s", items=items, pairs="repeats = 3"))
        n_rows.append(plan_study(store, load(tmp_path / "study.toml")).n_plan_rows)
    assert n_rows == [6, 6]
