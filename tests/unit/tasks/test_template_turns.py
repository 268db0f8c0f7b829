"""A template may be a conversation, which is cut into turns before anything is filled in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpond.errors import StudyError
from batchpond.model import Role, Turn
from batchpond.tasks.pairwise import PairwiseRule
from batchpond.tasks.templates import PAIRWISE, Placeholders, Template, builtin, tasks, text_of

ANY = Placeholders(("INPUT",), ("STATEMENT",))
FEW = """
[[system]]
Be fair about {STATEMENT}.

[[user]]
Is 1 even?
[[assistant]]
No.
[[user]]

    {INPUT}

"""


def turns(text: str) -> list[tuple[str, str]]:
    """Return who says what in a template."""
    return [(str(turn.role), turn.text) for turn in Template("t", text).turns]


def problem(text: str, *literal: str) -> str:
    """Return what is said against a template, with its hint."""
    with pytest.raises(StudyError) as caught:
        Template("t", text).check("mine.txt", ANY, literal)
    return f"{caught.value.message} | {caught.value.hint}"


def test_turns_are_what_stands_between_the_lines_without_blank_lines_around_it() -> None:
    assert turns(FEW) == [
        ("system", "Be fair about {STATEMENT}."),
        ("user", "Is 1 even?"),
        ("assistant", "No."),
        ("user", "    {INPUT}"),
    ]
    assert turns(FEW.replace("\n", "\r\n")) == [(role, text) for role, text in turns(FEW)]
    Template("t", FEW).check("mine.txt", ANY)


@pytest.mark.parametrize("text", ["", "x", " {INPUT} \n", "Rules:\n[[user]]\n{INPUT}", "a [[system]]\n{INPUT}"])
def test_a_text_that_begins_with_anything_else_is_what_the_user_says_to_the_last_character(text: str) -> None:
    assert turns(text) == [("user", text)]


def test_every_built_in_template_is_one_turn() -> None:
    for task in tasks():
        for template in builtin(task).values():
            assert template.turns == (Turn(Role.USER, template.text),)


said = st.text(st.characters(exclude_characters="[]\r\n"), min_size=1).filter(lambda text: text == text.strip("\r\n"))


@given(st.lists(st.tuples(st.sampled_from(Role), said), min_size=1, max_size=6))
def test_the_one_text_of_turns_has_these_turns(spoken: list[tuple[Role, str]]) -> None:
    written = tuple(Turn(role, text) for role, text in spoken)
    assert Template("t", text_of(written)).turns == written


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[[assistant]]\nHi\n[[user]]\n{INPUT}", "mine.txt: line 1: the assistant cannot speak here"),
        ("[[user]]\n{INPUT}\n\n[[system]]\nBe fair.", "mine.txt: line 4: the system cannot speak here"),
        ("[[system]]\nA\n[[system]]\nB\n[[user]]\n{INPUT}", "mine.txt: line 3: the system cannot speak here"),
        ("[[user]]\nA\n[[user]]\n{INPUT}", "mine.txt: line 3: the user cannot speak here"),
        ("[[system]]\nA\n[[assistant]]\n{INPUT}", "mine.txt: line 3: the assistant cannot speak here"),
        ("[[system]]\n{INPUT}", "mine.txt: line 2: the system cannot speak last"),
        ("[[user]]\n{INPUT}\n[[assistant]]\n<answer>", "mine.txt: line 4: the assistant cannot speak last"),
        ("[[system]]\n \n\n[[user]]\n{INPUT}", "mine.txt: line 1: the system says nothing"),
        ("[[user]]\n{INPUT} {OUTPT}", "mine.txt: line 2: {OUTPT} is no placeholder here"),
        ("[[system]]\nA\n[[user]]\nB", "mine.txt: the template lacks {INPUT}"),
        ("Rules:\n[[user]]\n{INPUT}", "mine.txt: line 2: [[user]] begins no turn here"),
        ("[[System]]\nA\n[[user]]\n{INPUT}", "mine.txt: line 1: [[System]] begins no turn here"),
        (
            "[[system]]\nA\n[[user]]\n{INPUT}\n [[ asistant ]]\nB",
            "mine.txt: line 5: [[ asistant ]] begins no turn here",
        ),
    ],
)
def test_what_no_provider_would_take_is_refused_with_its_line(text: str, expected: str) -> None:
    assert problem(text).startswith(expected)


def test_a_line_that_is_meant_as_text_is_declared() -> None:
    """In a text without turns; the answers [[A]] and [[B]] need no declaration."""
    text = "Write [[A]] or\n[[B]]\nafter\n[[user]]\n{INPUT}"
    assert 'literal = ["[[user]]"]' in problem(text)
    Template("t", text).check("mine.txt", ANY, ["[[user]]"])
    assert turns(text) == [("user", text)]


def test_the_hash_of_a_template_without_turns_is_that_of_its_text_alone() -> None:
    """What was bought is found by it."""
    assert builtin(PAIRWISE)["plain"].template_hash == Template("plain", builtin(PAIRWISE)["plain"].text).template_hash
    hashes = {
        Template("t", text).template_hash
        for text in ("{INPUT}", "[[user]]\n{INPUT}", "[[system]]\nA\n[[user]]\n{INPUT}")
    }
    assert len(hashes) == 3


def test_placeholders_may_stand_in_any_turn() -> None:
    Template("t", "[[system]]\n{TRAIT_NAME} {TRAIT_DESCRIPTION}\n[[user]]\n{SAMPLE_1} {SAMPLE_2}").check(
        "mine.txt", PairwiseRule.PLACEHOLDERS
    )
