"""What a pilot cost says what the rest will cost: forecasts learn from the answers that the study has."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from batchpond.plan.report import PlanReport
from batchpond.plan.verb import plan_study
from batchpond.study import file
from batchpond_sim.world.world import Settings
from tests.rigs.sim_inputs import STUDY, write_study
from tests.rigs.sim_providers import SIMULATED, environ
from tests.rigs.sim_study import LATENCY_S, Rig
from tests.rigs.swept import some

MODELS = tuple(model for name in ("openai", "anthropic", "gemini") for model in SIMULATED[name].models)[:5]
TEMPLATES = ("plain", "concise", "step_by_step")
N_PILOT = 25
REMOTE = "https://api.openai.com/openai/v1"
WORDS = ("tide", "lamp", "orchard", "because", "although", "seven")
COSTS = """
select requests.request_model, plan.template_id, sum(responses.cost_usd)
from responses join requests using (request_id) join plan using (request_id)
where responses.status = 'succeeded' group by all
"""
Costs = dict[tuple[object, object], float]


@pytest.fixture(autouse=True)
def on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the environment say of all providers that simulators stand for them."""
    for name, value in environ("key").items():
        monkeypatch.setenv(name, value)


def planned(rig: Rig) -> PlanReport:
    return plan_study(rig.store(), file.load(rig.study_path))


def spent(rig: Rig) -> Costs:
    found = rig.rows(COSTS, "responses", "requests", "plan")
    return {(model, template): float(str(usd)) for model, template, usd in found}


def drawn(path: Path, seed: int) -> Rig:
    """Return a study of fifteen cells whose items, in length and quality, and whose answers are this seed's own."""
    settings = Settings(seed=seed, latency_s=LATENCY_S)
    rig = Rig(path, n_items=12, max_requests=500, models=MODELS, lake_seed=seed, settings=settings)
    draw = random.Random(seed)
    texts = (" ".join(draw.choices(WORDS, k=int(draw.lognormvariate(4, 0.6)))) for _ in range(rig.n_items))
    rows = [f"i{n},{text} [[quality={draw.random():.3f}]]" for n, text in enumerate(texts)]
    rig.study_path.with_name("items.csv").write_text("\n".join(["id,text", *rows]), "utf-8")
    templates = "".join(f'[[templates]]\nuse = "{name}"\n' for name in TEMPLATES)
    one = '[[templates]]\nuse = "plain"\n'
    rig.study_path.write_text(rig.study_path.read_text("utf-8").replace(one, templates), "utf-8")
    return rig


def after_a_pilot(rig: Rig) -> tuple[PlanReport, Costs]:
    """Return what was said of the rest after some 25 answers of each cell, and what the rest did cost."""
    first = planned(rig)
    assert {cell.n_learned_from for cell in first.cells} == {0}
    assert first.cost.high_usd is None
    rig.submit(limit=N_PILOT * len(first.cells))
    rig.settle(is_begun=True)
    pilot, said = spent(rig), planned(rig)
    rig.submit()
    rig.settle(is_begun=True)
    whole = spent(rig)
    actual_usd = sum(whole.values())
    assert said.cost.expected_usd is not None
    left_usd = actual_usd - sum(pilot.values())
    assert abs(said.cost.expected_usd - left_usd) < abs((first.cost.expected_usd or 0.0) - actual_usd)
    return said, {cell: usd - pilot[cell] for cell, usd in whole.items()}


def test_after_a_pilot_the_rest_costs_what_was_said(tmp_path: Path) -> None:
    """In nine of ten studies of fifteen cells the total is within a tenth; so many cells are inside their intervals.

    Never above worst. Studies differ in all that is drawn, so that ten of them are ten trials.
    """
    studies = [after_a_pilot(drawn(tmp_path / str(seed), seed)) for seed in some(1, 2, swept=range(3, 11))]
    assert len({sum(rest.values()) for _, rest in studies}) == len(studies)
    is_near, is_inside = [], []
    for said, rest in studies:
        expected, low, high = said.cost.expected_usd, said.cost.low_usd, said.cost.high_usd
        is_near.append(expected == pytest.approx(sum(rest.values()), rel=0.1))
        assert (low or 0.0) < (expected or 0.0) < (high or 0.0)
        for cell in said.cells:
            usd = rest[cell.request_model, cell.template_id]
            assert N_PILOT - 5 <= cell.n_learned_from <= N_PILOT + 5
            assert usd <= (cell.cost.worst_usd or 0.0)
            is_inside.append((cell.cost.low_usd or 0.0) <= usd <= (cell.cost.high_usd or 0.0))
    assert len(is_inside) == 15 * len(studies)
    assert sum(is_near) >= 0.9 * len(studies)
    assert 0.85 <= sum(is_inside) / len(is_inside) <= 0.95


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


def test_a_rehearsal_says_nothing_of_what_real_calls_will_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor real answers of what a simulator's will be: each address learns from its own alone."""
    rig = Rig(tmp_path, n_items=8, max_requests=500, models=SIMULATED["openai"].models[:1])
    rough = planned(rig).cost
    rig.settle()
    items = rig.study_path.with_name("items.csv")

    def changed(word: str) -> PlanReport:
        items.write_text(items.read_text("utf-8").replace("number", word), "utf-8")
        return planned(rig)

    assert {cell.n_learned_from for cell in changed("numbers").cells} == {56}
    monkeypatch.setenv(SIMULATED["openai"].url_env, REMOTE)
    said = planned(rig)
    assert {cell.n_learned_from for cell in said.cells} == {0}
    assert said.cost.expected_usd == pytest.approx(rough.expected_usd, rel=0.05)
    assert said.cost.high_usd is None
    assert said.cost.expected_usd is not None
    rig.base_urls["openai"] = REMOTE
    preview = rig.submit(limit=20).preview
    assert preview.cost_expected_usd == pytest.approx(said.cost.expected_usd * 20 / 56, rel=0.05)
    rig.settle(is_begun=True)
    assert {cell.n_learned_from for cell in changed("figure").cells} == {20}
    monkeypatch.setenv(SIMULATED["openai"].url_env, SIMULATED["openai"].base_url)
    assert {cell.n_learned_from for cell in planned(rig).cells} == {56}
