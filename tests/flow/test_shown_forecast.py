"""What `plan` foretells of stages that are shown answers: how many questions there will be, and how long they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flow import test_listwise as lists
from tests.flow.test_shown_answers import BY, SAW, answers, judged, rig_of
from tests.rigs.stage_study import models, stage, use


def test_the_forecast_counts_what_is_shown(tmp_path: Path) -> None:
    """As long as an answer of the stage is expected to be, once for each way that it asks in."""
    long = "expected_output_tokens = 3000\n"

    def tokens(text: str, *names: str) -> int:
        rig = rig_of(
            tmp_path / f"{len(names)}{len(text)}",
            answers("gpt-4o"),
            judged("first", 'stage = "answers"', "", *names, more=long),
            judged("second", 'stage = "answers"', text, "gpt-5.4-mini"),
        )
        return next(one for one in rig.planned().stages if one.name == "second").input_tokens

    plain = tokens("", "gpt-4o")
    assert tokens("{answers.first.text}", "gpt-4o") - plain == pytest.approx(3 * 3000, rel=0.01)
    assert tokens("{answers.first.text}", "gpt-4o", "gpt-4o-mini") - plain == pytest.approx(6 * 3000, rel=0.01)
    assert tokens("{answers.first.verdict}", "gpt-4o") - plain < 30


def test_the_forecast_of_a_conversation_that_waits_counts_what_stands_before_it(tmp_path: Path) -> None:
    """Its system prompt is read with every turn."""

    def tokens(said: str) -> int:
        template = BY.format("t", f"[[system]]\n{said}\n[[user]]\n{{INPUT}}")
        asked = f"turns = 1\n---{template}{models('gpt-4o')}"
        rig = rig_of(
            tmp_path / f"{len(said)}", answers("gpt-4o"), stage("talk", "conversation", 'stage = "answers"', asked)
        )
        return next(one for one in rig.planned().stages if one.name == "talk").input_tokens

    assert tokens("Be brief. " * 400) - tokens("Be brief. ") == pytest.approx(3 * 2 * 3990 / 4, rel=0.01)


def test_what_is_foretold_is_about_what_is_asked(tmp_path: Path) -> None:
    rig = rig_of(
        tmp_path,
        answers("gpt-4o", more="expected_output_tokens = 52\n"),
        judged("first", 'stage = "answers"', "", "gpt-4.1-mini", more="expected_output_tokens = 25\n"),
        judged("second", 'stage = "answers"', "{answers.first.text}", "gpt-5.4-mini"),
    )
    report = rig.planned()
    rig.submit()
    rig.finish()
    asked = sum(row["tokens"] for row in rig.ask(f"{SAW} where stage = 'second'"))
    foretold = next(one for one in report.stages if one.name == "second").input_tokens
    assert foretold == pytest.approx(asked, rel=0.25)


@pytest.mark.parametrize(("reverse", "n_pairs"), [(1.0, 8), (0.0, 8), (1.0, 66)])
def test_pairs_after_pairs_are_forecast_as_those(tmp_path: Path, reverse: float, n_pairs: int) -> None:
    """Not as all pairs of the items that were compared: of 200 items and 100 pairs that was 39,800 for 200."""
    asked = f"[[stages.rubrics]]\nuse = 'overall_quality'\n{use('plain')}{models('gpt-5.4-mini')}"
    pairs = f"[stages.pairs]\ncount = {n_pairs}\n"
    text = (
        'study = "demo"\n'
        + stage("one", "pairwise", 'path = "texts.csv"', f"---{pairs}{asked}")
        + stage("two", "pairwise", 'stage = "one"', f"---[stages.pairs]\nreverse = {reverse}\n{asked}")
    )
    rig = lists.rig_of(tmp_path, text)
    foretold = next(one for one in rig.planned().stages if one.name == "two").n_requests
    rig.submit()
    rig.finish()
    ((n,),) = [tuple(row.values()) for row in rig.ask("SELECT count(*) AS n FROM results WHERE stage = 'two'")]
    assert foretold == n == n_pairs * (1 + reverse)
