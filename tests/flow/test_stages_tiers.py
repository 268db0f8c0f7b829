"""Tiers: what is of an earlier one is sent first, and gets the room and the money that there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchpond.errors import StudyError
from batchpond.lake.records import Sharded
from batchpond.lake.store import CONFIG
from batchpond.run.dispatch import ALL, Precedence, of_model, tier_of
from batchpond.run.due import new_shards
from batchpond.study.file import load
from batchpond_sim.world.world import Settings
from tests.rigs.events import fact
from tests.rigs.sim_study import LATENCY_S
from tests.rigs.stage_study import RUBRICS, StageRig, models, stage, use

ONE, TWO = "gpt-4.1-mini", "gpt-4o-mini"
N_INPUTS = 12


def tiered_study(head: str = "", models_of: tuple[str, ...] = (ONE, TWO), per_shard: int = 6, tail: bool = True) -> str:
    """Return questions of two tiers to two models, and verdicts on their answers."""
    text = (
        f'study = "demo"\n{head}[shards]\nmax_requests = {per_shard}\n'
        + stage("answers", "generation", 'path = "tiered.csv"\nrubric = "statement"\ntier = "priority"',
                f"---{RUBRICS}{use('question')}{models(*models_of)}")
        + stage("verdicts", "compliance", 'stage = "answers"', f"---{RUBRICS}{use('compliance_brief')}{models(ONE)}")
    )  # fmt: skip
    return text if tail else text.partition('\n[[stages]]\nname = "verdicts"')[0]


def rig_of(path: Path, toml: str, config: str = "", n_later: int = N_INPUTS) -> StageRig:
    """Return a user with questions, the odd ones of tier 1, and at most `n_later` of tier 2."""
    rig = StageRig(path, settings=Settings(seed=1, latency_s=LATENCY_S), toml=toml)
    wanted = [n for n in range(N_INPUTS) if n % 2 or n < 2 * n_later]
    rows = [f"in{n:02},What about case {n}?,be_honest,{1 if n % 2 else 2}" for n in wanted]
    (path / "study" / "tiered.csv").write_text("\n".join(["id,text,statement,priority", *rows]) + "\n")
    rig.store()
    (rig.lake / CONFIG).write_text(config)
    return rig


def is_first(item: str) -> bool:
    """Whether an item is of tier 1."""
    return int(item[2:4]) % 2 == 1


def sent(rig: StageRig) -> list[tuple[str, list[int]]]:
    """Return each batch's stage and the tiers in it, in the order in which the batches were sent."""
    rows = rig.ask(
        "select r.stage, b.intended_at, b.attempt_id, list(distinct r.tier) as tiers from results as r"
        " join batches as b on b.attempt_id = r.attempt_id group by all order by b.intended_at, b.attempt_id"
    )
    order = [attempt.attempt_id for attempt in rig.attempts()]
    return [(row["stage"], row["tiers"]) for row in sorted(rows, key=lambda row: order.index(row["attempt_id"]))]


def test_with_room_for_one_batch_the_first_tier_is_asked_and_answered_first(tmp_path: Path) -> None:
    """What an answer leads to keeps its tier."""
    rig = rig_of(tmp_path / "rig", tiered_study(models_of=(ONE,)), "[limits.openai]\nopen_batches = 1\n")
    rig.plan()
    rig.submit()
    rig.finish()
    tiers = sent(rig)
    assert [tier for name, tier in tiers if name == "answers"] == [[1], [2]]
    assert [tier for name, tier in tiers if name == "verdicts"] == [[1], [2]]
    assert rig.ask("select count(*) as n from results where outcome = 'decided'") == [{"n": 2 * N_INPUTS}]
    assert rig.violations() == []


def test_money_that_ends_before_the_second_tier_leaves_the_first_whole(tmp_path: Path) -> None:
    """The last batch of tier 1 does not fit what is left, that of tier 2 would: it waits for tier 1 all the same."""
    toml = tiered_study(models_of=(ONE,), per_shard=2, tail=False).replace("tokens = 300", "tokens = 3000")
    rig = rig_of(tmp_path / "rig", toml, n_later=1)
    rig.plan()
    lake_state = rig.lake_state()
    new = new_shards(rig.store(), lake_state, "demo", lake_state.current_versions["demo"], None)
    worst = {shard.event.shard_id: shard.event.cost_max_usd or 0.0 for shard in new}
    *first, last = worst.values()
    cap = sum(first) - first[-1] + last * 1.01
    assert last < first[-1]
    rig.write(f"{toml}[budget]\nmax_cost_usd = {cap}\n")
    rig.plan()
    rig.submit()
    assert [tier for _, tier in sent(rig)] == [[1]] * (len(first) - 1)
    assert any("wait for tier 1 to be sent first" in note for note in rig.notes)
    rig.finish()
    assert [tier for _, tier in sent(rig)] == [[1]] * len(first) + [[2]]


def event(tier: int | None, provider: str = "openai", model: str = ONE) -> Sharded:
    """Return the fact of a shard."""
    name = f"{tier}{provider}{model}"
    return fact(Sharded, shard_id=name, provider=provider, request_model=model, tier=tier)


def test_a_tier_holds_back_later_ones_where_they_would_take_what_it_waits_for() -> None:
    assert [shard.tier for shard in sorted([event(3), event(None), event(2)], key=tier_of)] == [None, 2, 3]
    precedence = Precedence()
    assert precedence.before(event(2)) is None
    precedence.hold(event(None), of_model(event(None)))
    assert precedence.before(event(2)) == 1
    assert precedence.before(event(1)) is None
    assert precedence.before(event(2, model=TWO)) is None
    precedence.hold(event(2), event(2).provider)
    assert precedence.before(event(3, model=TWO)) == 2
    assert precedence.before(event(3, provider="together")) is None
    assert not precedence.is_for_money(event(3, model=TWO))
    precedence.hold(event(2, provider="gemini"), ALL)
    assert precedence.is_for_money(event(3, provider="together"))
    assert precedence.before(event(3, provider="together")) == 2
    assert precedence.before(event(2, provider="together")) is None


def test_a_stage_of_an_earlier_tier_is_cut_into_the_first_batches_wherever_it_stands(tmp_path: Path) -> None:
    """A row's own tier counts before its stage's, and no batch holds two tiers."""
    items = 'path = "tiered.csv"\nrubric = "statement"'
    tail = f"---{RUBRICS}{use('question')}{models(ONE)}"
    toml = (
        'study = "demo"\n'
        + stage("later", "generation", items, f"tier = 3\n{tail}")
        + stage("sooner", "generation", items, f"tier = 2\n{tail}".replace(ONE, TWO))
        + stage("rows", "generation", f'{items}\ntier = "priority"', f"tier = 4\n{tail}".replace(ONE, "gpt-4o"))
    )
    rig = rig_of(tmp_path / "rig", toml)
    rig.plan()
    lake_state = rig.lake_state()
    shards = list(new_shards(rig.store(), lake_state, "demo", lake_state.current_versions["demo"], None))
    assert [(shard.event.tier, shard.event.request_model, len(shard.lines)) for shard in shards] == [
        (None, "gpt-4o", 6), (2, "gpt-4o", 6), (2, TWO, 12), (3, ONE, 12),
    ]  # fmt: skip


def test_labels_of_a_conversation_are_of_its_questions_tier(tmp_path: Path) -> None:
    toml = (
        'study = "demo"\n'
        + stage("talk", "conversation", 'path = "tiered.csv"\ntier = "priority"', f"turns = 0\n---{models(ONE)}")
        + stage("labels", "pressure", 'stage = "talk"', f"---{use('pressure_first_answer')}{models(ONE)}")
    )
    rig = rig_of(tmp_path / "rig", toml)
    rig.plan()
    rig.submit()
    rig.clock.advance(1_000.0)
    rig.sync()
    rows = rig.ask("select unit_id, tier from results where stage = 'labels'")
    assert {row["unit_id"]: row["tier"] for row in rows} == {
        f"in{n:02}": 1 if is_first(f"in{n:02}") else 2 for n in range(N_INPUTS)
    }


@pytest.mark.parametrize("value", ["0", "first", "1.5", "1001", "-1"])
def test_what_is_no_tier_is_an_error_before_anything_is_planned(tmp_path: Path, value: str) -> None:
    rig = rig_of(tmp_path / "rig", tiered_study())
    (rig.path / "study" / "tiered.csv").write_text(f"id,text,statement,priority\na,b,be_honest,{value}\n")
    with pytest.raises(StudyError, match="the tier of 'a' is"):
        rig.plan()
    assert rig.rows("select count(*) from plan", "plan") == [(0,)]


def test_a_file_without_stages_may_have_tiers_too(tmp_path: Path) -> None:
    """A pair is of the later of its items' tiers, so that the first tier is whole without it."""
    toml = (
        'study = "demo"\nrubrics = ["organization"]\ntemplates = ["plain"]\n[pairs]\nreverse = false\n'
        '[items]\npath = "tiered.csv"\ntier = "priority"\n' + models(ONE).replace("stages.", "")
    )
    rig = rig_of(tmp_path / "rig", toml)
    loaded = load(rig.study_path)
    rig.plan()
    rows = rig.rows("select item_first, item_second, tier from plan", "plan")
    assert loaded.name == "demo"
    assert len(rows) == N_INPUTS * (N_INPUTS - 1) // 2
    for first, second, tier in rows:
        assert tier == (1 if is_first(str(first)) and is_first(str(second)) else 2)
