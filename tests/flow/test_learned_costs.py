"""What a pilot cost says what the rest will cost: forecasts learn from the answers that the study has."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchpond.plan.report import PlanReport
from batchpond.plan.verb import plan_study
from batchpond.study import file
from tests.rigs.sim_inputs import STUDY, write_study
from tests.rigs.sim_providers import SIMULATED
from tests.rigs.sim_study import Rig

MODELS = tuple(model for name in ("openai", "anthropic", "gemini") for model in SIMULATED[name].models)
COSTS = """
select requests.request_model, sum(responses.cost_usd) as usd from responses join requests using (request_id)
where responses.status = 'succeeded' group by all
"""


def planned(rig: Rig) -> PlanReport:
    return plan_study(rig.store(), file.load(rig.study_path))


def spent(rig: Rig) -> dict[object, float]:
    return {row[0]: float(str(row[1])) for row in rig.rows(COSTS, "responses", "requests")}


@pytest.mark.parametrize("seed", [1, 2])
def test_after_a_pilot_the_rest_costs_what_was_said(tmp_path: Path, seed: int) -> None:
    """Six models, some 25 answers each: the total within a tenth, a factor of the first guess before; never above."""
    rig = Rig(tmp_path, n_items=12, max_requests=500, models=MODELS, lake_seed=seed)
    first = planned(rig)
    assert {cell.n_learned_from for cell in first.cells} == {0}
    assert first.cost.high_usd is None
    rig.submit(limit=25 * len(MODELS))
    rig.settle(is_begun=True)
    pilot, said = spent(rig), planned(rig)
    rig.submit()
    rig.settle(is_begun=True)
    rest = {model: usd - pilot[model] for model, usd in spent(rig).items()}
    assert all(cell.n_learned_from >= 10 for cell in said.cells)
    actual = sum(rest.values())
    assert said.cost.expected_usd == pytest.approx(actual, rel=0.1)
    assert abs(said.cost.expected_usd - actual) < abs((first.cost.expected_usd or 0.0) - actual - sum(pilot.values()))
    assert said.cost.low_usd is not None
    assert said.cost.high_usd is not None
    assert said.cost.low_usd <= actual <= said.cost.high_usd
    for cell in said.cells:
        assert cell.cost.expected_usd == pytest.approx(rest[cell.request_model], rel=0.25)
        assert cell.cost.worst_usd is not None
        assert rest[cell.request_model] <= cell.cost.worst_usd


def test_submit_says_the_same_as_plan(tmp_path: Path) -> None:
    """One estimate: the question before the rest is sent, and the plan."""
    rig = Rig(tmp_path, n_items=8, max_requests=500)
    rig.plan()
    rig.submit(limit=40)
    rig.settle(is_begun=True)
    said = planned(rig).cost.expected_usd
    preview = rig.submit().preview
    assert preview.cost_expected_usd == pytest.approx(said)


def test_submit_says_the_same_as_plan_of_what_another_study_asked_first(tmp_path: Path) -> None:
    """A study that has answers before it has a batch of its own: one estimate all the same."""
    rig = Rig(tmp_path, n_items=8, max_requests=500)
    rig.settle()
    rig.n_items += 1
    write_study(rig.path / "study", max_requests=500, n_items=rig.n_items, models=rig.models)
    rig.study_path.write_text(rig.study_path.read_text("utf-8").replace(f'"{STUDY}"', '"second"'), "utf-8")
    said = planned(rig)
    assert all(cell.n_learned_from > 20 for cell in said.cells)
    assert rig.submit(study="second").preview.cost_expected_usd == pytest.approx(said.cost.expected_usd)


def test_a_version_that_shares_no_question_learns_as_well(tmp_path: Path) -> None:
    """What was answered to other items says what an answer costs, where the template is the same."""
    rig = Rig(tmp_path, n_items=8, max_requests=500)
    rig.settle()
    items = rig.study_path.with_name("items.csv")
    items.write_text(items.read_text("utf-8").replace("text number", "words"), "utf-8")
    said = planned(rig)
    assert said.n_answered_already == 0
    assert all(cell.n_learned_from > 20 for cell in said.cells)
    assert rig.submit().preview.cost_expected_usd == pytest.approx(said.cost.expected_usd)


def test_a_new_version_learns_from_the_last_one_where_the_template_is_the_same(tmp_path: Path) -> None:
    rig = Rig(tmp_path, n_items=8, max_requests=500)
    rig.settle()
    rig.change()
    cells = planned(rig).cells
    assert all(cell.n_to_ask and cell.n_learned_from > 20 for cell in cells)
