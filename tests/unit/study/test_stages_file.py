"""Study files with stages: what is wrong is one clear error, with file, line and key, before anything is planned."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchpond.cli import init
from batchpond.cli.init import COMMENTED, EXAMPLES, example
from batchpond.errors import StudyError
from batchpond.study.file import load
from batchpond.study.spec import Study, from_config, to_config, to_json
from tests.rigs.stage_study import RUBRICS, models, spec_study, stage, use, write_files

MODEL = models("gpt-5.4-mini")
ANSWERS = 'study = "s"\n' + stage(
    "answers", "generation", 'path = "inputs.csv"', f"---{RUBRICS}{use('question')}{MODEL}"
)
TALK = 'study = "s"\n' + stage("talk", "conversation", 'path = "questions.csv"', f"turns = 1\n---{MODEL}")
JUDGED = f"{RUBRICS}{use('compliance_brief')}{MODEL}"


def after_answers(items: str, tail: str = "---" + JUDGED, task: str = "compliance") -> str:
    """Return a study with a second stage."""
    return ANSWERS + stage("b", task, items, tail)


def loaded(folder: Path, text: str) -> Study:
    """Write and load a study file."""
    write_files(folder)
    path = folder / "study.toml"
    path.write_text(text)
    found = load(path)
    return found


WRONG = {
    "no stage is named": (f'study = "s"\n[[stages]]\ntask = "generation"\n{MODEL}', "stages[1].name is missing"),
    "name twice": (ANSWERS + stage("answers", "compliance", 'stage = "answers"', f"---{JUDGED}"),
                   "stages[2].name is 'answers' a second time"),
    "unknown task": ('study = "s"\n' + stage("a", "guessing", 'path = "inputs.csv"', f"---{MODEL}"), "is 'guessing'"),
    "unknown key": (ANSWERS + 'colour = "red"\n', "colour is not a known key"),
    "unknown stage": (after_answers('stage = "answer"'),
                      "stages[2].items.stage names 'answer', which is no earlier stage (earlier: answers)"),
    "own stage": (after_answers('stage = "b"'), "which is no earlier stage"),
    "where without stage": (after_answers('path = "inputs.csv"\nwhere = "true"'),
                            "stages[2].items.where needs a stage"),
    "path and stage": (after_answers('stage = "answers"\npath = "x.csv"'),
                       "stages[2].items.path cannot be given together with stage"),
    "after a file": (after_answers('path = "inputs.csv"\nafter = "answers"'),
                     "stages[2].items.after has no meaning with a file"),
    "turns of no conversation": (after_answers('stage = "answers"', f"turns = 2\n---{JUDGED}"),
                                 "stages[2].turns has no meaning for the task compliance"),
    "a share of everything": (after_answers('stage = "answers"', f"expected_share = 0.5\n---{JUDGED}"),
                              "stages[2].expected_share has no meaning without"),
    "repeats of conversations": (
        'study = "s"\n' + stage("t", "conversation", 'path = "q.csv"', f"repeats = 2\n---{MODEL}"),
        "stages[1].repeats has no meaning for conversations"),
    "two numbers of repeats": (
        'study = "s"\n' + stage("p", "pairwise", 'path = "inputs.csv"',
                                f"repeats = 2\n---[stages.pairs]\nrepeats = 3\n{RUBRICS}{use('plain')}{MODEL}"),
        "stages[1].repeats cannot be given together with pairs.repeats"),
    "ranking of nobody's outputs": ('study = "s"\n' + stage("r", "ranking", 'path = "inputs.csv"',
                                                           f"---{RUBRICS}{use('ranking_lines')}{MODEL}"),
                                    "stages[1].items has no candidate"),
    "a template of another task": (ANSWERS + stage("b", "compliance", 'stage = "answers"',
                                                   f"---{RUBRICS}{use('likert_json')}{MODEL}"),
                                   "stages[2].templates[1].use is 'likert_json', not one of"),
    "an answer that could not be read": (ANSWERS + stage("b", "likert", 'stage = "answers"',
                                                         f"---[stages.answer]\nminimum = 5\nmaximum = 5\n{RUBRICS}"
                                                         f"{use('likert_json')}{MODEL}"), "has no room"),
    "rubrics of a conversation's judges": (TALK + stage("b", "pressure", 'stage = "talk"',
                                                        f"---{RUBRICS}{use('pressure_label')}{MODEL}"),
                                           "stages[2].rubrics cannot be given"),
    "an unknown tactic": (TALK.replace("turns = 1", 'turns = 1\ntactics = ["begging"]'), "is 'begging', not one of"),
    "nothing to ask about": (f'study = "s"\n[[stages]]\nname = "a"\ntask = "generation"\n{MODEL}',
                             "stages[1] has no items"),
    "nobody to ask": ('study = "s"\n[[stages]]\nname = "a"\ntask = "generation"\n', "stages[1].models is missing"),
    "keys beside stages": ('study = "s"\nrepeats = 2\n' + ANSWERS.partition("\n")[2], "repeats is not a known key"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named_by_file_line_and_key(tmp_path: Path, name: str) -> None:
    text, problem = WRONG[name]
    with pytest.raises(StudyError) as caught:
        loaded(tmp_path, text)
    assert problem in caught.value.message
    place = caught.value.message.split(": ")[0]
    assert place.startswith(str(tmp_path / "study.toml"))
    line = text.split("\n")[int(place.rpartition(":")[2]) - 1]
    assert line.strip(), "the line named is blank"


def test_statements_that_cannot_be_used_are_all_named_by_line(tmp_path: Path) -> None:
    write_files(tmp_path)
    (tmp_path / "statements.jsonl").write_text(
        '{"id": "a", "text": "A."}\n{"id": "b"}\nnot json\n{"id": "a", "text": "B."}\n'
    )
    (tmp_path / "study.toml").write_text(ANSWERS)
    with pytest.raises(StudyError) as caught:
        load(tmp_path / "study.toml")
    for part in ("statements.jsonl:2: statement 'b' has no text", "statements.jsonl:3: ", "statements.jsonl:4: id 'a'"):
        assert part in caught.value.message


@pytest.mark.parametrize("text", [spec_study(), TALK], ids=["spec", "talk"])
def test_a_study_comes_back_from_the_lake_as_it_was(tmp_path: Path, text: str) -> None:
    study = loaded(tmp_path, text)
    again = from_config(to_config(study))
    assert to_json(again) == to_json(study)
    assert [stage.rule.parser_id for stage in again.stages] == [stage.rule.parser_id for stage in study.stages]


def test_the_example_of_stages_can_be_planned_as_it_stands_and_with_its_comments_taken_off(tmp_path: Path) -> None:
    text = example("stages", is_commented=True)
    (offered,) = (one.type for one in init.command.params if one.name == "example")
    assert tuple(offered.to_info_dict()["choices"]) == EXAMPLES
    assert set(COMMENTED) < set(EXAMPLES)
    names = [stage.name for stage in loaded(tmp_path, text).stages]
    assert names == ["answers", "screen", "verdicts"]
    head, line, talk = text.partition("# -- under pressure")
    rows = [row for row in talk.split("\n")[1:] if not row.startswith("# --")]
    opened = "\n".join(row.removeprefix("# ").removeprefix("#") for row in rows)
    found = [stage.name for stage in loaded(tmp_path, head + line + "\n" + opened).stages]
    assert found[:5] == [*names, "talk", "labels"]
    assert (found[5], found[-2:]) == ("asked.categories", ["asked.ratings-3", "kept"])


def with_tactic(table: str) -> str:
    """Return a conversation that is pressed by a tactic of the study's own."""
    return TALK.replace("turns = 1", "turns = 1\ncold_start = true") + f'[[stages.tactics]]\nid = "mine"\n{table}\n'


@pytest.mark.parametrize(
    "table",
    [
        "",
        'category = "c"',
        'category = "c"\nphrases = []',
        'category = "c"\nphrases = ["a", " "]',
        'category = " "\nphrases = "a"',
        'category = "c"\nphrases = ["a", 1]',
        'category = "c"\nphrases = {a = 1}',
        'category = 1\nphrases = "a"',
        'category = "c"\nphrases = "a"\nopening = "no question"',
        'category = "c"\nphrases = "a"\nopening = "{QUESTIONS} {QUESTION}"',
        'category = "c"\nphrases = "a"\ncolour = "red"',
        f'category = "c"\nphrases = {["a"] * 101}',
        f'category = "c"\nphrases = "{"a" * 30_000}"',
    ],
)
def test_custom_tactics_are_checked(tmp_path: Path, table: str) -> None:
    """Every fault is a StudyError that says where."""
    with pytest.raises(StudyError, match=r"study\.toml:\d+: stages\[1\]\.tactics\[1\]"):
        loaded(tmp_path, with_tactic(table))


def test_custom_tactics_have_categories_and_one_phrase_or_more(tmp_path: Path) -> None:
    """A single text is a list of one."""
    study = loaded(
        tmp_path, with_tactic('category = "flattery"\nphrases = "You are so clever"\nopening = "Clever! {QUESTION}"')
    )
    (tactic,) = study.stages[0].tactics
    assert (tactic.category, tactic.phrases, tactic.phrase(7)) == (
        "flattery",
        ("You are so clever",),
        "You are so clever",
    )
