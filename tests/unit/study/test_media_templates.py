"""What a study may say of pictures and documents, and what is refused before anything is read."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from batchpond.errors import StudyError
from batchpond.study.file import parse_study
from batchpond.study.spec import ItemsFrom, ItemsSpec, from_config, to_config

STUDY = '''\
study = "demo"
task = "likert"
[items]
path = "items.csv"
[[templates]]
id = "look"
text = """%s"""
[[models]]
provider = "openai"
model = "gpt-4.1-mini"
'''
SEEN = "{STATEMENT} Rate {item.photo as media}: {ANSWER_FORMAT}"

SYSTEM = "[[system]]\n{item.photo as media}\n[[user]]\n{STATEMENT} {OUTPUT} {ANSWER_FORMAT}"


def columns(text: str) -> tuple[str, ...]:
    """Return the columns of the template of a study that asks by a text."""
    (stage,) = parse_study((STUDY % text).encode()).stages
    return stage.templates[0].columns


def test_a_picture_stands_for_the_text_that_a_task_asks_for() -> None:
    """Its name is that of its column, wherever the study is read from."""
    assert columns(SEEN) == ("item.photo as media",)
    study = parse_study((STUDY % SEEN).encode())
    assert study.media == frozenset({"photo"})
    assert from_config(to_config(study)).media == study.media
    items = replace(study.stages[0].rows, items=ItemsSpec(ItemsFrom.CSV, "i.csv", media_max_px=640))
    smaller = replace(study, stages=(replace(study.stages[0], rows=items),))
    assert from_config(to_config(smaller)).stages == smaller.stages


def test_a_study_without_pictures_says_nothing_of_them() -> None:
    """What it is kept as, and so its version, is as it was."""
    study = parse_study((STUDY % "{STATEMENT} {INPUT}, {OUTPUT}, {item.photo}: {ANSWER_FORMAT}").encode())
    assert study.media == frozenset()
    assert "media" not in str(to_config(study))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{STATEMENT} {item.photo}: {ANSWER_FORMAT}", "the template lacks {OUTPUT}"),
        (SYSTEM, "the system cannot show a picture"),
        ("{STATEMENT} {OUTPUT} {item.photo as  media}", "{item.photo as  media} is no placeholder here"),
        ("{STATEMENT} {OUTPUT} { item.photo as media }", "{ item.photo as media } is no placeholder here"),
        ("{STATEMENT} {OUTPUT} {SAMPLE_1.photo as media}", "{SAMPLE_1.photo as media} is no placeholder here"),
    ],
)
def test_what_cannot_be_shown_is_said(text: str, why: str) -> None:
    """By the line."""
    with pytest.raises(StudyError) as caught:
        columns(text)
    assert why in str(caught.value)


def test_rows_of_later_sql_show_nothing() -> None:
    """Their pictures would have to be read when nobody is there; a stage that names another shows its items'."""
    head = 'study = "demo"\n[[stages]]\nname = "one"\ntask = "generation"\n[stages.items]\npath = "i.csv"\n'
    use = '[[stages.templates]]\nid = "t"\ntext = "{INPUT}"\n[[stages.models]]\nprovider = "openai"\nmodel = "gpt-4o"\n'
    later = '[[stages]]\nname = "two"\ntask = "likert"\n[stages.items]\nsql = "select 1"\nafter = ["one"]\n'
    seen = use.replace("{INPUT}", SEEN)
    named = later.replace("sql", "stage").replace("select 1", "one").replace('after = ["one"]\n', "")
    assert parse_study((head + use + named + seen).encode()).media == frozenset({"photo"})
    with pytest.raises(StudyError, match="pictures of rows that only SQL will give"):
        parse_study((head + use + later + seen).encode())


SMALLER = 'path = "items.csv"\nmedia_max_px = 640\n'
HEAD = 'study = "demo"\n[[stages]]\nname = "one"\ntask = "generation"\n[stages.items]\n' + SMALLER
USE = '[[stages.templates]]\nid = "t"\ntext = "{INPUT}"\n[[stages.models]]\nprovider = "openai"\nmodel = "gpt-4o"\n'
LATER = '[[stages]]\nname = "two"\ntask = "likert"\n[stages.items]\nstage = "one"\n'


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ((STUDY % "{STATEMENT} {OUTPUT} {ANSWER_FORMAT}").replace('path = "items.csv"\n', SMALLER), ":5: items."),
        (HEAD + USE, ":7: stages[1].items."),
        (
            HEAD + USE + LATER + USE.replace("{INPUT}", "{OUTPUT} " + SEEN.replace(" as media", "")),
            ":7: stages[1].items.",
        ),
    ],
)
def test_a_size_of_pictures_that_no_template_shows_is_refused(text: str, where: str) -> None:
    """By file, line and key, with what to write instead."""
    with pytest.raises(StudyError) as caught:
        parse_study(text.encode())
    assert caught.value.message.startswith(f"study.toml{where}media_max_px has no effect: no template shows a picture")
    assert "as media}" in (caught.value.hint or "")


def test_a_size_of_pictures_that_a_later_stage_shows_is_taken() -> None:
    """The rows that it stands beside are those that are shown."""
    study = parse_study((HEAD + USE + LATER + USE.replace("{INPUT}", SEEN)).encode())
    assert study.stages[0].rows.items == ItemsSpec(ItemsFrom.CSV, "items.csv", media_max_px=640)


@pytest.mark.parametrize("rows", ['stage = "one"\n', 'sql = "select 1"\nafter = ["one"]\n'])
def test_a_size_of_pictures_stands_where_the_pictures_are_read(rows: str) -> None:
    """Not beside rows that another stage or later SQL gives, where nothing would be made smaller."""
    later = LATER.replace('stage = "one"\n', rows + "media_max_px = 640\n") + USE.replace("{INPUT}", SEEN)
    with pytest.raises(StudyError, match=r"study.toml:\d+: stages\[2\].items.media_max_px") as caught:
        parse_study((HEAD + USE + later).encode())
    assert "under the items whose pictures are read" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("task", "text", "error", "hint"),
    [
        ("prompts", "Rate it.\n{INPUT} {item.photo as image}", "line 2: {item.photo as image} is no",
         "{item.COLUMN as media}"),
        ("prompts", "{INPUT} {item.photo as Media}", "line 1: {item.photo as Media} is no", "{item.COLUMN as media}"),
        ("prompts", "{INPUT} {STATEMENT}\n{statement.photo as media}", "line 2: {statement.photo as media}",
         "{item.COLUMN as media}"),
        ("listwise", "{SAMPLES} {ANSWER_FORMAT}\n{item.photo as media}", "line 2: {item.photo as media}",
         "what its samples say"),
        ("listwise", "{SAMPLES} {ANSWER_FORMAT}\n{SAMPLE_1.photo}", "line 2: {SAMPLE_1.photo}", "what its samples say"),
        ("conversation", "{item.photo as media}\n{INPUT}", "shows neither columns nor pictures", ""),
    ],
)  # fmt: skip
def test_what_cannot_be_shown_is_told_with_its_line_and_what_can(task: str, text: str, error: str, hint: str) -> None:
    """Before any row is read: what is no picture, whose column it is none of, which task shows none."""
    answer = '[answer]\nform = "regex"\npattern = "(?P<label>[a-z]+)"\n' if task == "prompts" else ""
    study = (
        f'study = "s"\ntask = "{task}"\n[items]\npath = "i.csv"\n{answer}'
        f'[[templates]]\nid = "t"\ntext = """\n{text}"""\n[[models]]\nprovider = "openai"\nmodel = "gpt-4o"\n'
    )
    with pytest.raises(StudyError) as found:
        parse_study(study.encode())
    assert re.search(r"study.toml:\d+: templates\[1\]", str(found.value))
    assert error in str(found.value)
    assert hint in str(found.value.hint)
