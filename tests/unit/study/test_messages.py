"""`[[templates.messages]]` is a template by its turns: the same template as the text that has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchpond.errors import StudyError
from batchpond.study.file import load, parse_study, schema
from tests.rigs.stage_study import models, stage, write_files

HEAD = """\
study = "s"
rubrics = ["organization"]
items = { path = "x.csv" }
models = [{ provider = "openai", model = "gpt-5.4-mini" }]
"""
MESSAGES = """\
[[templates]]
id = "judge"
[[templates.messages]]
role = "system"
text = "You judge {TRAIT_NAME}: {TRAIT_DESCRIPTION}"
[[templates.messages]]
role = "user"
text = '''
{SAMPLE_1}
or
{SAMPLE_2}
'''
"""
TEXT = """\
[[templates]]
id = "judge"
text = '''
[[system]]
You judge {TRAIT_NAME}: {TRAIT_DESCRIPTION}
[[user]]
{SAMPLE_1}
or
{SAMPLE_2}'''
"""
INLINE = """\
[[templates]]
id = "judge"
messages = [
  { role = "system", text = "You judge {TRAIT_NAME}: {TRAIT_DESCRIPTION}" },
  { role = "user", text = "{SAMPLE_1}\\nor\\n{SAMPLE_2}" },
]
"""


def turns_of(text: str) -> list[tuple[str, str]]:
    """Return the turns of a study's only template."""
    (template,) = parse_study(text.encode(), "study.toml", Path()).stages[0].templates
    return [(str(turn.role), turn.text) for turn in template.turns]


def problem(text: str) -> str:
    """Return what is said against a study file."""
    with pytest.raises(StudyError) as caught:
        parse_study(text.encode(), "study.toml", Path())
    return caught.value.message


def test_messages_inline_tables_and_a_text_with_lines_for_turns_say_the_same() -> None:
    """To the version of the study and the hash of the template."""
    found = [parse_study((HEAD + text).encode(), "study.toml", Path()) for text in (MESSAGES, INLINE)]
    assert found[0].stages == found[1].stages
    assert found[0].templates == found[1].templates
    assert turns_of(HEAD + MESSAGES) == turns_of(HEAD + TEXT)
    (template,) = found[0].stages[0].templates
    assert template.text.startswith("[[system]]\nYou judge")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            'role = "system"',
            'role = "assistant"',
            "study.toml:7: templates[1].messages[1]: the assistant cannot speak here",
        ),
        ('role = "user"', 'role = "system"', "study.toml:10: templates[1].messages[2]: the system cannot speak here"),
        ('role = "user"', 'role = "judge"', "study.toml:11: templates[1].messages[2].role"),
        ('id = "judge"', 'text = "x"\nid = "judge"', "study.toml:5: templates[1]"),
        (
            "{SAMPLE_2}",
            "{SAMPLE_2} {SAMPL_1}",
            "study.toml:10: templates[1].messages[2]: {SAMPL_1} is no placeholder here",
        ),
        ("{SAMPLE_2}", "B", "study.toml:7: templates[1].messages: the template lacks {SAMPLE_2}"),
        ("or\n", "[[user]]\n", "study.toml:12: templates[1].messages[2].text has a line that begins a turn"),
        ('role = "user"', 'roles = "user"', "study.toml:11: templates[1].messages[2].roles is not a known key"),
        ('id = "judge"\n', "", "study.toml:5: templates[1].id is missing"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(old: str, new: str, expected: str) -> None:
    assert problem(HEAD + MESSAGES.replace(old, new, 1)).startswith(expected)


def test_a_file_is_cut_into_turns_and_its_errors_name_its_lines(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(HEAD + '[[templates]]\nfile = "judge.txt"\n')
    text = "[[system]]\nYou judge {TRAIT_NAME}: {TRAIT_DESCRIPTION}\n[[user]]\n{SAMPLE_1} {SAMPLE_2}\n"
    (tmp_path / "judge.txt").write_text("\ufeff" + text, encoding="utf-8")
    (template,) = load(tmp_path / "study.toml").stages[0].templates
    assert [turn.role for turn in template.turns] == ["system", "user"]
    (tmp_path / "judge.txt").write_text(text + "[[assistant]]\n<answer>\n")
    with pytest.raises(StudyError, match=r"judge\.txt: line 7: the assistant cannot speak last"):
        load(tmp_path / "study.toml")


def test_editors_know_the_roles() -> None:
    defined = schema()["$defs"]
    assert defined["Role"]["enum"] == ["assistant", "system", "user"]
    assert set(defined["MessageTable"]["required"]) == {"role", "text"}


def talk(templates: str) -> str:
    """Return a study of conversations that begin in some way."""
    return 'study = "demo"\n' + stage(
        "talk",
        "conversation",
        'path = "questions.csv"',
        f'tactics = ["false_research"]\n---{templates}{models("gpt-4o")}',
    )


@pytest.mark.parametrize(
    "text", ["{INPUT} {INPUT}", "[[system]]\\nAbout {INPUT}\\n[[user]]\\n{INPUT}", "[[user]]\\n{INPUT}?"]
)
def test_a_conversation_ends_with_the_question_alone(tmp_path: Path, text: str) -> None:
    write_files(tmp_path)
    (tmp_path / "study.toml").write_text(talk(f'[[stages.templates]]\nid = "a"\ntext = "{text}"\n'))
    with pytest.raises(StudyError, match=r"study\.toml:\d+: stages\[1\]\.templates\[1\] must end with \{INPUT\} alone"):
        load(tmp_path / "study.toml")
