"""Settings of a study that no other test has together; `python -m tests.sweeps.combinations` plays many more."""

from __future__ import annotations

from pathlib import Path

import pytest

import batchpond
from tests.rigs.combined import carry_out, drawn, rig_of, write
from tests.rigs.stage_study import StageRig, models, stage, use
from tests.rigs.swept import some

# answers that another judge is shown, and claims; pairs, repeats and answers that nobody can read
SEEDS = some(208, swept=(221,))

OUTPUTS = 'path = "outputs.jsonl"\nunit = "prompt"\ncandidate = "model"\ninput = "question"'
STATEMENTS = '[stages.rubrics]\npath = "statements.jsonl"\n'
JUDGE = f"{STATEMENTS}{use('compliance_brief')}{models('gpt-5.4-mini')}"


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_true_of_every_study_is_true_of_this_one(tmp_path: Path, seed: int) -> None:
    """Asked as foreseen, billed as counted, each view possible, planned again as before, one prompt more alone."""
    study = drawn(seed)
    assert list(carry_out(rig_of(tmp_path, study), study)) == []


def test_what_two_stages_ask_of_one_judge_is_one_vote(tmp_path: Path) -> None:
    """Its repeats are two, not three; each stage has a result; a later stage that is asked more adds what is new."""
    pilot = stage("pilot", "compliance", OUTPUTS, f"repeats = 2\n---{JUDGE}")
    main = stage("main", "compliance", 'stage = "pilot"\nwhere = "repeat_no = 1"', f"repeats = 3\n---{JUDGE}")
    rig = StageRig(tmp_path / "rig", toml=f'study = "demo"\n{pilot}{main}')
    write(rig.study_path.parent)
    rig.plan()
    rig.submit()
    rig.finish()
    assert rig.violations() == []
    n_items = 17 * 3  # outputs by statements
    assert rig.ask("SELECT stage, purpose, count(*) AS n FROM results GROUP BY ALL ORDER BY ALL") == [
        {"stage": "main", "purpose": "shared", "n": 2 * n_items},
        {"stage": "main", "purpose": None, "n": n_items},
        {"stage": "pilot", "purpose": None, "n": 2 * n_items},
    ]
    assert rig.ask("SELECT DISTINCT n_votes FROM item_status WHERE provider = 'openai'") == [{"n_votes": 3}]
    (calls,) = rig.ask("SELECT n_answered FROM metric_failures")
    assert calls["n_answered"] == rig.billed()[0] == 3 * n_items
    costs, spent = (rig.ask(f"SELECT sum(cost_usd) AS usd FROM {view}")[0]["usd"] for view in ("costs", "metric_cost"))
    assert spent == pytest.approx(costs)
    file, other = tmp_path / "results.csv", batchpond.Lake(tmp_path / "other")
    batchpond.Lake(rig.lake).export(file)
    other.import_judgments(file)
    n_votes = other.sql("SELECT DISTINCT n_votes FROM item_status WHERE provider = 'openai'").to_dicts()
    assert n_votes == [{"n_votes": 3}]
    assert other.sql("SELECT n_answered FROM metric_failures").to_dicts() == [calls]
