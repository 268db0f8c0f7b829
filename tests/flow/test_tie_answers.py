"""A pairwise study may have a word for ties: asked for, read, counted as ties, and paid for like any answer."""

from __future__ import annotations

from pathlib import Path

import pytest

import batchpond
from batchpond.errors import StudyError
from batchpond.interop import labels
from batchpond.interop.imports import import_judgments
from batchpond.lake.store import Store
from batchpond_sim.judges.judge import parse_judge
from batchpond_sim.world.world import Settings
from tests.rigs.sim_inputs import STUDY
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


KINDS = """
[answer]
tie = "TIE"
both_good = "BOTH_GOOD"
both_bad = "BOTH_BAD"
"""
SHOWN = TEMPLATE.replace("{ANSWER_TIE}", "{ANSWER_TIE}, {ANSWER_BOTH_GOOD} or {ANSWER_BOTH_BAD}")


@pytest.fixture
def told(rig: Rig) -> Rig:
    """The same, of a judge that says why the two are equal."""
    rig.world.panel.judges = (parse_judge("*:tie_rate=0.2,both_good_rate=0.2,both_bad_rate=0.4"),)
    rig.study_path.write_text(rig.study_path.read_text().replace(TEMPLATE, SHOWN).replace(WORD, KINDS))
    rig.plan()
    rig.submit()
    for _ in range(3):
        rig.clock.advance(1_000)
        rig.sync()
    return rig


def test_kinds_of_ties_are_ties_whose_label_says_why(told: Rig, tmp_path: Path) -> None:
    """They have a share, leave the lake as CSV and come back, and people say them too."""
    found = dict(view(told, "select label, count(*) from results where verdict = 'tie' group by all"))
    assert set(found) == {None, "both_good", "both_bad"}
    assert view(told, "select sum(n_tie) from coverage") == [(sum(found.values()),)]
    assert view(told, "select sum(n_both_good), sum(n_both_bad) from pair_status") == [
        (found["both_good"], found["both_bad"])
    ]
    shares = "select n_both_good, n_both_bad, round(both_bad_rate * 12, 9) from metric_consistency"
    assert view(told, shares) == [(found["both_good"], found["both_bad"], found["both_bad"])]
    batchpond.Lake(told.lake).results(STUDY).collect().write_csv(tmp_path / "results.csv")
    other = Store.init(tmp_path / "other")
    import_judgments(other, tmp_path / "results.csv")
    assert [*batchpond.Lake(other.path).sql(shares).iter_rows()] == view(told, shares)
    sheet = labels.draw(told.lake, STUDY, 4)
    assert {question.choices for question in sheet.questions} == {("1", "2", "tie", "both_good", "both_bad")}
    told.world.close()


def test_people_change_a_tie_into_one_that_says_why(told: Rig, tmp_path: Path) -> None:
    """It is another label, which takes the place of the first."""
    ((pair,),) = view(told, "select item_lo || ',' || item_hi from pair_status order by all limit 1")
    for said in ("tie", "both_bad"):
        path = tmp_path / f"{said}.csv"
        path.write_text(f"item_1,item_2,label\n{pair},{said}\n")
        labels.import_labels(Store.open(told.lake), [path], study=STUDY)
    people = "select verdict, outcome, label from imported_judgments where provider = 'human'"
    assert view(told, people) == [("tie", "tie", "both_bad")]
    assert view(told, "select truth from truths") == [("tie",)]
    told.world.close()


def test_a_word_for_a_kind_of_ties_that_no_judge_is_shown_is_refused(rig: Rig) -> None:
    """Its rate would be 0 because nobody was asked."""
    rig.study_path.write_text(rig.study_path.read_text().replace(WORD, KINDS))
    with pytest.raises(StudyError, match="ANSWER_BOTH_GOOD"):
        rig.plan()
    rig.world.close()
