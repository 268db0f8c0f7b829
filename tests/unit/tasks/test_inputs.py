"""Making inputs: lists are read whole, and the selection depends on nothing but ratings, ids and seed."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpond.errors import StudyError
from batchpond.model import Finish, Outcome
from batchpond.tasks.base import Judgment
from batchpond.tasks.generation import GenerationRule
from batchpond.tasks.inputs import InputsRule, Question, entries, promising, same, select
from tests.rigs.task import ANY_TEXT, answered

RULE = InputsRule(count=2, count_max=5, entry_max_chars=30)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('["a", "b"]', ("a", "b")),
        ('Here:\n```json\n["a",\n "b",]\n```', ("a", "b")),
        ('{"questions": ["a", "b"]}', ("a", "b")),
        ('[{"text": "a"}, {"Text": "b"}, {"x": "c"}]', ("a", "b")),
        ('["a"] and ["b", "A "]', ("a", "b")),
        ('["a", " ", 3, null, "a"]', ("a",)),
        ('["a", "' + "x" * 31 + '"]', ("a",)),
        (json.dumps([str(n) for n in range(9)]), ("0", "1", "2", "3", "4")),
        ("1. first\n2) **second**\n\n10: third", ("first", "second", "third")),
        ('- "one"\n* two\n\u2022 three', ("one", "two", "three")),
        # An array of something else does not hide the list.
        ("see [1, 2]:\n1. a\n2. b", ("a", "b")),
        ("Here are two questions: a and b", ()),
        ("1.5 is a number\n-3", ()),
        ('["a", "b"', ()),
        ("", ()),
    ],
)
def test_the_table_of_lists(text: str, found: tuple[str, ...]) -> None:
    """JSON arrays first, then numbered or bulleted lines."""
    assert entries(text, RULE) == found
    expected = Outcome.DECIDED if found else Outcome.UNPARSED if text else Outcome.EMPTY
    assert RULE.read(answered(text)) == Judgment(None, expected)


def test_a_cut_list_is_truncated() -> None:
    """Its last entry may be half of one."""
    assert RULE.read(answered("1. a\n2. b", Finish.LENGTH)) == Judgment(None, Outcome.TRUNCATED)


def test_a_cut_generation_is_truncated() -> None:
    """And one that was not is decided, whatever it says."""
    assert GenerationRule().read(answered("A long ans", Finish.LENGTH)) == Judgment(None, Outcome.TRUNCATED)
    assert GenerationRule().read(answered("I'd rather not")) == Judgment(None, Outcome.DECIDED)
    assert GenerationRule().read(answered("x", refusal="no")) == Judgment(None, Outcome.DECIDED)


@given(st.lists(st.text(min_size=1, max_size=20)), ANY_TEXT)
def test_lists_round_trip_without_repetitions(texts: list[str], prose: str) -> None:
    """Bounded, different, storable, in order."""
    rule = InputsRule(entry_max_chars=100)
    found = entries(json.dumps(texts), rule)
    wanted = {same(text.strip()): text.strip() for text in reversed(texts) if text.strip()}
    if texts and texts[0] and not any("[" in text for text in texts):
        assert set(found) == set(wanted.values())
    assert all(entry.encode("utf-8") for entry in entries(prose, RULE))
    assert len(entries(prose, RULE)) <= RULE.count_max


@pytest.mark.parametrize(
    "rule",
    [InputsRule(step="topics"), InputsRule(count=0), InputsRule(count=11, count_max=10), InputsRule(key=" "),
     InputsRule(entry_max_chars=0)],
)  # fmt: skip
def test_bounds_are_checked(rule: InputsRule) -> None:
    """A step that does not exist, or no room."""
    with pytest.raises(StudyError, match=r"^answer"):
        rule.check("answer")


def question(statement: str, number: int, rating: float | None, text: str | None = None) -> Question:
    """Return a question."""
    return Question(statement, f"{statement}-{number}", text or f"text {number}", rating)


def test_low_ratings_are_kept_the_same_number_per_statement() -> None:
    """None is kept that was not rated, was rated too high or is repeated; a statement without any stays visible."""
    questions = [
        question("s1", 1, 1), question("s1", 2, 2), question("s1", 3, 4.9), question("s1", 4, 5),
        question("s1", 5, None), question("s1", 6, 1, "TEXT  2"),
        question("s2", 1, 3), question("s2", 2, 2), question("s3", 1, 5),
    ]  # fmt: skip
    found = select(questions, threshold=5, seed=1)
    assert found.n_by_statement == {"s1": 2, "s2": 2, "s3": 0}
    everything = select(questions, threshold=5, seed=1, is_uniform=False)
    assert everything.n_by_statement == {"s1": 3, "s2": 2, "s3": 0}
    assert [one.input_id for one in everything.kept] == ["s1-1", "s1-2", "s1-3", "s2-1", "s2-2"]
    assert select(questions, 5, 1, count=1).n_by_statement == {"s1": 1, "s2": 1, "s3": 0}
    assert select([], 5, 1).kept == ()
    for count, threshold in ((0, 5.0), (1, math.nan)):
        with pytest.raises(StudyError):
            select(questions, threshold, 1, count)


ratings = st.one_of(st.none(), st.integers(1, 5).map(float))
some = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 30), ratings), max_size=40, unique_by=lambda q: q[:2])


@given(some, st.integers(0, 5), st.randoms(), st.one_of(st.none(), st.integers(1, 4)))
def test_selection_does_not_depend_on_order(
    drawn: list[tuple[str, int, float | None]], seed: int, random: object, count: int | None
) -> None:
    """The same questions in any order give the same selection, each low question at most once."""
    questions = [question(*one) for one in drawn]
    found = select(questions, 4, seed, count)
    shuffled = list(questions)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert select(shuffled, 4, seed, count) == found
    assert all(one.rating is not None and one.rating < 4 for one in found.kept)
    assert len({n for n in found.n_by_statement.values() if n}) <= 1
    assert sum(found.n_by_statement.values()) == len(found.kept) == len(set(found.kept))


def test_the_seed_decides_among_equals() -> None:
    """Another seed draws others."""
    questions = [question("s", n, 1) for n in range(50)]
    assert len({select(questions, 5, seed, count=5).kept for seed in range(5)}) == 5


def test_the_next_round_goes_where_ratings_are_lowest() -> None:
    """A third of the rated scenarios, at least one; failed ratings do not count as low."""
    means: dict[str, list[float | None]] = {"a": [5.0], "b": [1.0, None], "c": [2.0, 4.0], "d": [None], "e": [1.0, 2.0]}
    assert promising(means, 0.5, 1) == ("b", "e")
    assert promising(means, 0.01, 1) == ("b",)
    assert promising(means, 1, 1) == ("b", "e", "c", "a")
    assert promising({}, 0.5, 1) == ()
    assert promising({str(n): [1.0] for n in range(3)}, 1 / 3, 1) != ()
    with pytest.raises(StudyError):
        promising(means, 0, 1)
