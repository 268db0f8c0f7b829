"""Finding JSON: complete outermost objects, whatever stands around them, and never half an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchpond.errors import StudyError
from batchpond.tasks.structured import CONFLICT, arrays, check_keys, holders, objects, whole
from tests.rigs.swept import examples
from tests.rigs.task import ANY_TEXT

KEY = "k"
scalars = st.one_of(st.none(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=20))
keys = st.text(st.characters(categories=["Ll", "Nd"]), min_size=1, max_size=5).filter(lambda key: key != KEY)
values = st.recursive(
    scalars, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=3))
)
# Prose without an opening bracket of its own: what is in it can then only be ours.
prose = st.text(st.characters(exclude_characters="{["))


def folded(value: Any) -> Any:
    """Return JSON as it is found: keys without case."""
    match value:
        case dict():
            return {key.strip().casefold(): folded(part) for key, part in value.items()}
        case list():
            return [folded(part) for part in value]
        case _:
            return value


@given(prose, values, prose, st.sampled_from(["{}", "```json\n{}\n```", "{{{}}}"]), st.integers(0, 2))
def test_embedded_json_round_trips(before: str, value: Any, after: str, frame: str, indent: int) -> None:
    """An object in prose, in a fence or in one more pair of braces is found as it was written."""
    written = {KEY: value, "other": 1}
    text = before + frame.replace("{}", json.dumps(written, indent=indent or None), 1) + after
    assert holders(text, KEY)[-1] == folded(written)
    if frame != "{{{}}}":
        assert objects(text, lambda found: [found] if KEY in found else []) == [folded(written)]


@given(ANY_TEXT, ANY_TEXT)
def test_nothing_raises_and_nothing_is_made_up(text: str, key: str) -> None:
    """What is found has the key, in any text."""
    assert all(key.strip().casefold() in found for found in holders(text, key))
    assert all(isinstance(found, list) for found in arrays(text, lambda _: True))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"k": 1}', [1]),
        ('{"a":1} {"k":true}', [True]),
        ('{"k": 1} and {"k": 2}', [1, 2]),
        ('{"K ": 1}', [1]),
        ('{"result": {"k": 1}}', [1]),
        ('{"results": [{"k": 1}, {"k": 2}]}', [1, 2]),
        ('{"k": {"k": 1}}', [{"k": 1}]),
        ('[{"k": 1}]', [1]),
        ('{{"k": {{"a": 1}} }}', [{"a": 1}]),
        ('{"k": 1,}', [1]),
        ('{"k": [1, 2, ], }', [[1, 2]]),
        ('{"k": "two\nlines"}', ["two\nlines"]),
        ('{"k": "a } b { c"}', ["a } b { c"]),
        ('The set {a, b and "quotes {"k": 1}', [1]),
        ('{"x": {"k": 1}', [1]),
        ('{"k": "\\ud83d\\ude00"}', ["\U0001f600"]),
        ('{"k": NaN}', [None]),
        ('{"k": 1', []),
        ('{"k": tru}', []),
        ("{'k': 1}", []),
        ('"k": 1', []),
        ("", []),
    ],
)
def test_the_table_of_forms(text: str, found: list[Any]) -> None:
    """Fences, prose, several objects, nesting, doubled braces and a comma too many; the rest is no JSON."""
    assert [one[KEY] for one in holders(text, KEY)] == found


def test_a_key_with_two_values_is_a_conflict() -> None:
    """The last one does not win; the same value twice is one."""
    assert holders('{"k": true, "K": false}', KEY)[0][KEY] is CONFLICT
    assert holders('{"k": true, "k": true}', KEY)[0][KEY] is True


def test_a_hostile_text_gives_nothing_rather_than_its_first_part() -> None:
    """What stands after the bound could say the opposite."""
    assert holders('{"k": 1}' + '{"' * 5_000, KEY) == []
    assert holders('{"k": 1}' + '{"' * 400 + ' {"k": 2}', KEY)[-1] == {KEY: 2}


def test_arrays_hold_texts_or_objects() -> None:
    """Arrays of numbers, and brackets in prose, are passed over."""
    assert arrays('see [1] and [2, 3]: ["a", "b"] or [{"k": 1}]', lambda _: True) == [["a", "b"], [{"k": 1}]]
    assert arrays('{"questions": ["a",]}', lambda _: True) == [["a"]]


@pytest.mark.parametrize("names", [("a", "A "), ("", "b"), ('"', "b"), ("a{", "b")])
def test_keys_must_be_different_and_plain(names: tuple[str, ...]) -> None:
    """They stand in a prompt's JSON as they are."""
    with pytest.raises(StudyError):
        check_keys("answer", *names)


FLAT = st.dictionaries(
    st.text(max_size=6), st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9), max_size=4
)


@settings(max_examples=examples(1_000))
@given(
    found=FLAT,
    more=FLAT,
    is_ascii=st.booleans(),
    odd=st.sampled_from(["", '"a":1,"A":2,', '"":-0,', " ", '"\\\\":"\\"",', "{"]),
)
def test_a_text_that_is_one_object_is_read_as_it_is_among_other_words(
    found: dict[str, Any], more: dict[str, Any], is_ascii: bool, odd: str
) -> None:
    """Keys named twice, -0, quotes and numbers of any size included."""
    both = [json.dumps(one, ensure_ascii=is_ascii)[1:-1] for one in (found, more) if one]
    text = "{" + odd + ",".join(both) + "}"
    alone = whole(text)
    if alone is not None:
        assert repr(objects(f"x {text}", lambda one: [one])) == repr([alone])
