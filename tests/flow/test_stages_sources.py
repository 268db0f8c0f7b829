"""Where a stage's rows may come from: a choice among pairs, SQL after other stages, pressure in the first message."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from batchpond.tasks.pressure import tactics
from batchpond_sim.world.world import Settings
from tests.rigs.sim_study import LATENCY_S
from tests.rigs.stage_study import CANDIDATES, RUBRICS, StageRig, models, stage, use

TACTIC = "social_proof"
WON = """
select answers.item_first || '/' || answers.candidate_first as id, answers.text, answers.unit_id as prompt,
       answers.rubric_id as statement, answers.candidate_first as model, count(*) as n_won
from results as answers
join results as ranked on ranked.stage = 'ranking' and ranked.outcome = 'decided'
  and ranked.better_item like answers.item_first || '/' || answers.candidate_first || '%'
where answers.stage = 'answers' group by all having count(*) = 4
"""
UNSURE = (
    "select (unit_id, item_lo, item_hi) from pair_status where request_model = '{}' and status not like 'consistent%'"
)
CHEAP = "gpt-5.4-nano"
TURNED = f"(unit_id, item_lo, item_hi) in ({UNSURE.format(CHEAP)})"


def sources_study() -> str:
    """Return answers ranked, pairs that a judge was not sure of ranked again, winners judged, and cold pressure."""
    items = 'path = "inputs.csv"\nrubric = "statement"'
    ranked = f"{RUBRICS}{use('ranking_lines')}"
    won = f'sql = """{WON}"""\nafter = "ranking"\nunit = "prompt"\nrubric = "statement"\ncandidate = "model"'
    return (
        'study = "demo"\n'
        + stage("answers", "generation", items, f"---{RUBRICS}{use('question')}{models(*CANDIDATES)}")
        + stage("ranking", "ranking", 'stage = "answers"', f"---{ranked}{models(CHEAP)}")
        + stage("again", "ranking", f'stage = "ranking"\nwhere = "{TURNED}"', f"---{ranked}{models('gpt-5.4-mini')}")
        + stage("winners", "compliance", won, f"---{RUBRICS}{use('compliance_brief')}{models('gpt-5.4-mini')}")
        + stage("cold", "conversation", 'sql = "select item_id as id, text from items where item_id like \'in%\' '
                'and text like \'What%\'"\nafter = "answers"',
                f'turns = 1\ncold_start = true\ntactics = ["{TACTIC}"]\n---{models("gpt-4o-mini")}')
    )  # fmt: skip


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> StageRig:
    """That study, brought to its end."""
    settings = Settings(seed=1, latency_s=LATENCY_S, judges=(f"{CHEAP}:position_bias=0.5",))
    rig = StageRig(tmp_path_factory.mktemp("sources") / "rig", settings=settings, toml=sources_study(), n_inputs=4)
    rig.plan()
    rig.submit()
    rig.finish()
    return rig


def test_a_ranking_of_a_ranking_asks_the_chosen_pairs_in_both_orders_and_no_other(done: StageRig) -> None:
    """Of three candidates' pairs only some were chosen, though every candidate is in one."""
    turned = {
        tuple(row.values())
        for row in done.ask(UNSURE.format(CHEAP).replace("(unit_id, item_lo, item_hi)", "unit_id, item_lo, item_hi"))
    }
    asked = done.ask(
        "select unit_id, item_lo, item_hi, count(distinct direction) as n from results where stage = 'again'"
        " group by all"
    )
    assert 0 < len(turned) < 12
    assert {(*pair, 2) for pair in turned} == {tuple(row.values()) for row in asked}
    assert done.ask("select distinct outcome from results where stage = 'again'") == [{"outcome": "decided"}]


def test_sql_with_after_is_run_once_those_stages_have_ended(done: StageRig) -> None:
    """It chose by what the ranking came to, and its columns say whose answers they are."""
    wanted = {(row["id"], row["prompt"], row["statement"], row["model"]) for row in done.ask(WON)}
    asked = done.ask("select item_first, unit_id, rubric_id, candidate_first from results where stage = 'winners'")
    assert 0 < len(asked) == len(wanted)
    assert {tuple(row.values()) for row in asked} == wanted
    rounds = done.ask(
        "select min(round_no) filter (stage = 'winners') > max(round_no) filter (stage = 'ranking') as is_later"
        " from results"
    )
    assert rounds == [{"is_later": True}]


def test_sql_over_a_part_of_the_answers_is_told_before_that_part_is_sent(tmp_path: Path) -> None:
    rig = StageRig(tmp_path / "rig", toml=sources_study())
    rig.plan()
    told = [
        text for text in rig.submit(limit=4).preview.caveats if "what its SQL makes of the answers to a part" in text
    ]
    assert [text.partition(":")[0] for text in told] == ["stage winners", "stage cold"]
    assert not any("SQL" in text for text in rig.submit().preview.caveats)


def test_a_cold_start_has_the_pressure_in_its_first_message_and_goes_on_from_the_real_answer(done: StageRig) -> None:
    tactic = tactics()[TACTIC]
    rows = done.ask(
        "select r.unit_id, r.turn_no, r.text, i.text as question, q.body from results as r"
        " join requests as q on q.request_id = r.request_id join items as i on i.item_hash = r.item_first_hash"
        " where r.stage = 'cold' order by all"
    )
    assert len(rows) == 2 * 4
    said = {(row["unit_id"], row["turn_no"]): row for row in rows}
    for row in rows:
        messages = [message["content"] for message in json.loads(row["body"])["messages"]]
        assert messages[0] == tactic.opening.replace("{QUESTION}", row["question"])
        if row["turn_no"]:
            assert messages[1:] == [said[row["unit_id"], 0]["text"], tactic.phrase(1)]
    assert done.violations() == []
