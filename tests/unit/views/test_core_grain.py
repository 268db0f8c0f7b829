"""Every core view names each of its rows once, and the views agree with each other on a busy lake."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

from batchpond.lake.schemas import ITEMS, RUBRICS, STUDIES
from batchpond.views import database
from tests.rigs.lakes import BAD, OK, LakeBuilder

VIEWS = [view for view in database.views() if view.stage in {"1_core", "3_report"}]


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """A random lake with two studies, shared requests, retries, errors, duplicates and open batches."""
    lake = LakeBuilder(tmp_path_factory.mktemp("busy") / "lake")
    random.seed(11)
    for study in ("demo", "other"):
        _busy_plan(lake, study)
        claims = '{"claims":{"primary":"position","secondary":["length"],"stop":"all is answered"}}'
        lake.rows(STUDIES, [{"study": study, "study_version": "v1", "config": claims}])
    _staged_plan(lake)
    requests = [f"r{n:03d}" for n in range(120)]
    for number in range(6):
        part = requests[number * 20 : number * 20 + 20]
        lake.sent(f"A{number}", f"S{number}", part)
        _busy_lines(lake, f"A{number}", part)
        if number < 5:
            lake.ended(f"A{number}", random.choice(["completed", "expired"]))
    for number in range(6, 9):
        part = random.sample(requests, 15)
        lake.sent(f"A{number}", f"R{number}", part, shard_kind="retry")
        _busy_lines(lake, f"A{number}", part)
        if number < 8:
            lake.ended(f"A{number}")
    lake.retry("R9", requests[:3])
    lake.sent("A9", "S9", [f"r{n}" for n in range(120, 130)])
    items = [f"s{n}" for n in range(6)]
    lake.imported([{"item_first": f, "item_second": s, "verdict": "first", "outcome": "decided"}
                   for f in items for s in items if f != s]
                  + [{"study": "staged", "task": "compliance", "provider": "human", "unit_id": "q1",
                      "item_first": "o-c1", "verdict": "true", "outcome": "decided"}])  # fmt: skip
    with lake.connect() as connection:
        yield connection


def _busy_plan(lake: LakeBuilder, study: str) -> None:
    items = [f"s{n}" for n in range(6)]
    pairs = [(a, b) for a in items for b in items if a != b]
    rows = []
    for template in ("t1", "t2"):
        for model in ("m1", "m2"):
            for first, second in pairs:
                request = f"r{random.randrange(140):03d}"
                rows.append(
                    {"slot": len(rows), "request_id": request, "template_id": template, "request_model": model}
                    | {"item_first": first, "item_second": second, "pair_id": "|".join(sorted((first, second)))}
                    | {"direction": "forward" if first < second else "reverse"}
                )
    lake.plan(rows, study)


def _staged_plan(lake: LakeBuilder) -> None:
    """Plan a study of stages: conversations, judges of their answers, and of two candidates' outputs; and a cascade."""
    tactic = {"rubric_id": "praise", "rubric_hash": "hash of praise", "unit_id": "q1"}
    judged = {"direction": None, "is_lo_first": None, "item_second": None, "pair_id": None}
    rows: list[dict[str, Any]] = [
        {"task": task, "stage": task, "turn_no": turn, "candidate_first": "c1", "item_first": f"{task}{turn}"}
        | tactic | judged for task in ("conversation", "pressure") for turn in (0, 1)
    ]  # fmt: skip
    outputs = {"o-c1": "c1", "o-c2": "c2"}
    rows += [
        {"task": "compliance", "stage": "compliance", "unit_id": "q1", "candidate_first": candidate, "item_first": item}
        | judged | {"item_first_hash": f"hash of {item}", "rubric_hash": "hash of quality"}
        for item, candidate in outputs.items()
    ]  # fmt: skip
    rows += [
        {"task": "ranking", "stage": "ranking", "unit_id": "q1", "item_first": first, "item_second": second,
         "candidate_first": outputs[first], "candidate_second": outputs[second], "is_lo_first": first < second}
        for first, second in (("o-c1", "o-c2"), ("o-c2", "o-c1"))
    ]  # fmt: skip
    lake.rows(RUBRICS, [
        {"rubric_hash": "hash of praise", "rubric_id": "praise", "name": "social"},
        {"rubric_hash": "hash of quality", "rubric_id": "quality", "name": "quality", "points": 2.0},
    ])  # fmt: skip
    lake.rows(ITEMS, [{"item_hash": f"hash of {item}", "item_id": item, "text": "An answer."} for item in outputs])
    lake.plan([row | {"slot": slot, "request_id": f"staged{slot}"} for slot, row in enumerate(rows)], "staged")
    asked = [
        ("first", "m1", "o1"),
        ("first", "m1", "o2"),
        ("first", "m2", "o1"),
        ("first", "m2", "o2"),
        ("third", "m3", "o1"),
    ]
    cascade = [
        {"task": "compliance", "stage": stage, "request_model": model, "unit_id": "", "item_first": item, "slot": slot,
         "request_id": f"cascade{slot}"} | judged
        for slot, (stage, model, item) in enumerate(asked)
    ]  # fmt: skip
    lake.plan(cascade, "cascade")


def _busy_lines(lake: LakeBuilder, attempt: str, requests: list[str]) -> None:
    lines: list[dict[str, Any]] = []
    for request in requests:
        chance = random.random()
        if chance < 0.6:
            lines.append({"request_id": request} | OK | {"verdict": random.choice(["first", "second"])})
        elif chance < 0.8:
            lines.append({"request_id": request} | BAD)
        if chance < 0.1:
            lines.append({"request_id": request, "match": random.choice(["duplicate", "conflict"])})
    lake.lines(attempt, lines)


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_the_grain_in_a_view_s_header_names_each_row_once(
    busy: duckdb.DuckDBPyConnection, view: database.ViewInfo
) -> None:
    """No two rows of a random lake share the grain, and the view is not empty there."""
    grain = ", ".join(view.grain_columns)
    ((n_rows, n_grains),) = busy.execute(f"SELECT count(*), count(DISTINCT row({grain})) FROM {view.name}").fetchall()
    assert n_rows == n_grains
    assert n_rows > 0


def test_results_and_the_plan_have_the_same_rows(busy: duckdb.DuckDBPyConnection) -> None:
    """No join loses or doubles a planned request, and only imported ones are added to judgments and calls."""
    ((plan, results, pairs, items, asked, calls, imported),) = busy.execute(
        "SELECT (SELECT count(*) FROM plan_current), (SELECT count(*) FROM results),"
        " (SELECT count(*) FROM pair_judgments), (SELECT count(*) FROM item_judgments),"
        " (SELECT count(*) FROM plan_current WHERE task = 'conversation'), (SELECT count(*) FROM calls),"
        " (SELECT count(*) FROM imported_judgments)"
    ).fetchall()
    assert (results, calls) == (plan, plan + imported)
    assert pairs + items == plan - asked + imported
    busy_states = busy.execute("SELECT DISTINCT request_state FROM results ORDER BY 1").fetchall()
    assert [state for (state,) in busy_states] == ["answered", "failed", "missing", "outstanding", "planned"]


def test_coverage_adds_up_in_every_cell(busy: duckdb.DuckDBPyConnection) -> None:
    """planned = answered + failed + missing + outstanding + unknown + unsent."""
    wrong = busy.execute(
        "SELECT * FROM coverage"
        " WHERE n_planned <> n_answered + n_failed + n_missing + n_outstanding + n_unknown + n_unsent"
    ).fetchall()
    assert wrong == []


def test_coverage_counts_further_answers_as_result_attempts_lists_them(busy: duckdb.DuckDBPyConnection) -> None:
    """n_extra, n_duplicate and n_conflict of each cell are the rows of result_attempts that do not count."""
    cell = "study, template_id, rubric_id, provider, request_model, thinking"
    counted = busy.execute(
        f"SELECT {cell}, n_extra, n_duplicate, n_conflict FROM coverage"
        " WHERE n_extra + n_duplicate + n_conflict > 0 ORDER BY ALL"
    ).fetchall()
    listed = busy.execute(
        f"SELECT {cell}, count(*) FILTER (match = 'matched'), count(*) FILTER (match = 'duplicate'),"
        f" count(*) FILTER (match = 'conflict') FROM result_attempts WHERE NOT is_accepted GROUP BY {cell} ORDER BY ALL"
    ).fetchall()
    assert counted == listed
    assert len(counted) > 4
