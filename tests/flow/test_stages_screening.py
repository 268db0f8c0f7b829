"""Screening: the cheap model first, what it flags to the others, at the price that was foretold."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchpond.plan.report import PlanReport
from batchpond_sim.world.world import Settings
from tests.rigs.sim_study import LATENCY_S
from tests.rigs.stage_study import RUBRICS, StageRig, models, stage, use

N_INPUTS = 120
SHARE = 0.25
CHEAP, DEAR = "gpt-4o", ("gpt-5.4-mini", "gpt-4.1-mini")
OUTPUT_TOKENS = "expected_output_tokens = 39\n"


def screening_study(where: str | None) -> str:
    """Return answers, a cheap look at them, and dear judges for what it flags, or for everything."""
    dear = f'stage = "screen"\nwhere = "{where}"' if where else 'stage = "answers"'
    share = f"expected_share = {SHARE}\n" if where else ""
    judged = f"{RUBRICS}{use('compliance_json')}"
    return (
        'study = "demo"\n'
        + stage("answers", "generation", 'path = "inputs.csv"\nrubric = "statement"',
                f"expected_output_tokens = 52\n---{RUBRICS}{use('question')}{models('gpt-4o-mini')}")
        + stage("screen", "compliance", 'stage = "answers"', f"{OUTPUT_TOKENS}---{judged}{models(CHEAP)}")
        + stage("verdicts", "compliance", dear, f"{OUTPUT_TOKENS}{share}---{judged}{models(*DEAR)}")
    )  # fmt: skip


def finished(path: Path, where: str | None) -> tuple[StageRig, PlanReport]:
    """Return a study brought to its end, and what its plan foretold."""
    settings = Settings(seed=1, latency_s=LATENCY_S, judges=(f"*:compliance_rate={1 - SHARE}",))
    rig = StageRig(path, settings=settings, toml=screening_study(where), n_inputs=N_INPUTS)
    report = rig.planned()
    rig.submit()
    rig.finish()
    return rig, report


@pytest.fixture(scope="module")
def screened(tmp_path_factory: pytest.TempPathFactory) -> tuple[StageRig, PlanReport]:
    """A study that escalates what the cheap model flags."""
    return finished(tmp_path_factory.mktemp("screened") / "rig", "verdict = 'false'")


def test_flagged_items_get_the_same_verdicts_as_when_everyone_is_asked(
    screened: tuple[StageRig, PlanReport], tmp_path: Path
) -> None:
    everyone, _ = finished(tmp_path / "rig", None)
    verdicts = "select request_model, item_first, request_id, verdict, outcome from results where stage = 'verdicts'"
    flagged = "select item_first from results where stage = 'screen' and verdict = 'false'"
    got = screened[0].ask(f"{verdicts} order by all")
    assert 0 < len(got) < len(DEAR) * N_INPUTS
    assert got == everyone.ask(f"{verdicts} and item_first in ({flagged}) order by all")


def test_screening_costs_what_its_plan_foretold(screened: tuple[StageRig, PlanReport]) -> None:
    rig, report = screened
    ((cost,),) = [tuple(row.values()) for row in rig.ask("select sum(cost_usd) from responses")]
    assert report.cost.expected_usd == pytest.approx(cost, rel=0.1)


def test_a_screened_row_is_asked_by_the_statement_that_flagged_it_only(tmp_path: Path) -> None:
    toml = screening_study("verdict = 'false'").replace('\nrubric = "statement"', "")
    settings = Settings(seed=1, latency_s=LATENCY_S, judges=("*:compliance_rate=1,mislabel_rate=0.3",))
    rig = StageRig(tmp_path / "rig", settings=settings, toml=toml, n_inputs=4)
    rig.plan()
    rig.submit()
    rig.finish()
    pairs = "select distinct item_first, rubric_id from results where stage = '{}' and {} order by all"
    flagged = rig.ask(pairs.format("screen", "verdict = 'false'"))
    assert 0 < len(flagged) < 16
    assert rig.ask(pairs.format("verdicts", "true")) == flagged


def test_submit_shows_what_plan_foretold(tmp_path: Path) -> None:
    """Both believe the study's author about the length of answers, of what is sent now and of what comes later."""
    rig = StageRig(tmp_path / "rig", toml=screening_study("verdict = 'false'"), n_inputs=4)
    foretold = rig.planned().cost
    shown = rig.submit().preview
    assert shown.cost_expected_usd == pytest.approx(foretold.expected_usd, rel=0.001)
    assert shown.cost_max_usd == pytest.approx(foretold.worst_usd, rel=0.001)
