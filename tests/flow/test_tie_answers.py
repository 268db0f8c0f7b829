"""A pairwise study may have a word for ties: asked for, read, counted as ties, and paid for like any answer."""

from __future__ import annotations

from pathlib import Path

import pytest

import batchpond
from batchpond.errors import StudyError
from batchpond_sim.world.world import Settings
from tests.rigs.sim_study import LATENCY_S, Rig

TEMPLATE = """
[[templates]]
id = "with_ties"
text = '''
Which is better in {TRAIT_NAME} ({TRAIT_DESCRIPTION})?
{SAMPLE_1}
or {SAMPLE_2}
Reply with {ANSWER_FIRST}, {ANSWER_SECOND} or, if they are equal, {ANSWER_TIE}.
'''
"""
WORD = """
[answer]
tie = "TIE"
"""


def view(rig: Rig, sql: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in batchpond.Lake(rig.lake).sql(sql).iter_rows()]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """A study of one model and a template with ties, not planned yet; half of the judge's answers are ties."""
    settings = Settings(seed=1, latency_s=LATENCY_S, judges=("*:tie_rate=0.5",))
    rig = Rig(tmp_path, settings, models=("gpt-4.1-mini",), max_requests=50)
    text = rig.study_path.read_text().replace('\n[[templates]]\nuse = "plain"\n', TEMPLATE)
    rig.study_path.write_text(text + WORD)
    return rig


def test_ties_are_asked_for_read_and_counted(rig: Rig) -> None:
    """The prompt spells the answer out; the judge's ties are ties in every view, and no other answer is lost."""
    rig.plan()
    (body,) = view(rig, "select body from requests limit 1")
    assert "<BETTER_SAMPLE>TIE</BETTER_SAMPLE>" in body[0]
    rig.submit()
    for _ in range(3):
        rig.clock.advance(1_000)
        rig.sync()
    found = dict(view(rig, "select outcome, count(*) from results group by all"))
    assert set(found) == {"decided", "tie"}
    assert sum(found.values()) == 12
    assert view(rig, "select sum(n_tie) from coverage") == [(found["tie"],)]
    rig.world.close()


def test_a_template_cannot_ask_for_ties_that_the_study_has_no_word_for(rig: Rig) -> None:
    """The error names the placeholder before anything is planned."""
    rig.study_path.write_text(rig.study_path.read_text().replace(WORD, ""))
    with pytest.raises(StudyError, match="ANSWER_TIE"):
        rig.plan()
    rig.world.close()
