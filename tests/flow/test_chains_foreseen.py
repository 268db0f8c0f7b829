"""What a stage after another one is said to ask is what it asks: of files and answers, by one rubric and several."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flow.test_wide_items import rig_of
from tests.rigs.stage_study import models, stage, use

RUBRIC = '[[stages.rubrics]]\nid = "{0}"\nname = "{0}"\ndescription = "It is {0}."\n'
WIDE = 'path = "wide.csv"\ncandidates = ["low", "mid", "top"]\ninput = "question"'
LONG = 'path = "long.csv"\nunit = "asked"\ncandidate = "model"\ninput = "question"'
TEXTS = 'path = "texts.csv"'
OWN = 'path = "own.csv"\nrubric = "rubric"'
TEMPLATES = {"ranking": "ranking_plain", "pairwise": "plain", "compliance": "compliance_brief", "likert": "likert_json",
             "generation": "question", "listwise": "listwise_order"}  # fmt: skip


def of(name: str, task: str, items: str, rubrics: str, more: str = "") -> str:
    """Return a stage by so many rubrics, a letter each."""
    asked = models(*(("gpt-4o", "gpt-4o-mini", "gpt-4.1-mini") if task == "generation" else ("gpt-5.4-mini",)))
    judged = "" if task == "generation" else "".join(map(RUBRIC.format, rubrics))
    return stage(name, task, items, f"---{more}{judged}{use(TEMPLATES[task])}{asked}")


AGAIN = 'stage = "one"'
COUNT = "[stages.pairs]\ncount = 5\n"
BASELINE = '[stages.pairs]\nbaseline = "mid"\n'
CHAINS = {
    "a ranking of columns": [of("one", "ranking", WIDE, "a"), of("two", "ranking", AGAIN, "a")],
    "a ranking by three": [of("one", "ranking", LONG, "abc"), of("two", "ranking", AGAIN, "abc")],
    "a ranking by one of three": [of("one", "ranking", LONG, "abc"), of("two", "ranking", AGAIN, "b")],
    "a ranking against a baseline": [of("one", "ranking", WIDE, "ab", BASELINE), of("two", "ranking", AGAIN, "ab")],
    "a ranking of answers": [of("answers", "generation", TEXTS, ""), of("one", "ranking", 'stage = "answers"', "ab"),
                             of("two", "ranking", AGAIN, "ab")],
    "pairs by two": [of("one", "pairwise", TEXTS, "ab"), of("two", "pairwise", AGAIN, "ab")],
    "some pairs by three": [of("one", "pairwise", TEXTS, "abc", COUNT), of("two", "pairwise", AGAIN, "abc")],
    "pairs by others": [of("one", "pairwise", TEXTS, "ab", COUNT), of("two", "pairwise", AGAIN, "cd")],
    "compliance by two": [of("one", "compliance", LONG, "ab"), of("two", "likert", AGAIN, "ab")],
    "compliance by one of two": [of("one", "compliance", LONG, "ab"), of("two", "compliance", AGAIN, "a")],
    "compliance by each row's own": [of("one", "compliance", OWN, "ab"), of("two", "likert", AGAIN, "ab")],
    "a third time": [of("one", "likert", LONG, "ab"), of("two", "compliance", AGAIN, "ab"),
                     of("three", "likert", 'stage = "two"', "ab")],
}  # fmt: skip


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_of_stages_asks_what_it_was_foreseen_to(tmp_path: Path, name: str) -> None:
    """A ranking of what a file's ranking compared was foreseen as nothing, and two rubrics as one: half the price."""
    rig = rig_of(tmp_path, 'study = "demo"\n' + "".join(CHAINS[name]))
    folder = rig.study_path.parent
    (folder / "texts.csv").write_text("id,text\n" + "".join(f"t{n},Text {n}.\n" for n in range(5)))
    (folder / "own.csv").write_text("id,text,rubric\n" + "".join(f"o{n},Text {n}.,{'ab'[n % 2]}\n" for n in range(5)))
    foreseen = {one.name: one.n_requests for one in rig.planned().stages}
    rig.submit()
    rig.finish()
    assert rig.violations() == []
    asked = rig.ask("SELECT stage, count(DISTINCT request_id) AS n FROM plan_current GROUP BY ALL")
    assert foreseen == {row["stage"]: row["n"] for row in asked}


def test_a_rubric_that_nothing_is_asked_by_is_told(tmp_path: Path) -> None:
    """What was chosen by a and b is judged again by b, and by c not at all."""
    rig = rig_of(tmp_path, 'study = "demo"\n' + of("one", "compliance", LONG, "ab") + of("two", "likert", AGAIN, "bc"))
    (note,) = [note for note in rig.planned().notes if "nothing is asked by" in note]
    assert note.startswith("stage two: nothing is asked by c, as stage one chose nothing by that")
    rig.submit()
    rig.finish()
    assert rig.ask("SELECT DISTINCT rubric_id FROM plan_current WHERE stage = 'two'") == [{"rubric_id": "b"}]
