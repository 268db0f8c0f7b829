"""What reading a result line promises, whoever wrote it: total, nobody's id guessed, no answer lost to odd bytes."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchpond.model import ErrorClass, FileRole, Response, ResponseStatus
from batchpond.providers import registry
from tests.rigs.result_lines import CID, N_OUTPUT, SHAPES, Shape
from tests.rigs.swept import examples

each = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
each_reader = pytest.mark.parametrize(
    "shape", {shape.provider: shape for shape in SHAPES}.values(), ids=lambda shape: shape.provider
)
NOBODYS = (b"", b"\r", b"null", b"7", b"[]", b'"x"', b"{", b"\xff\xfe{\x00}\x00", b"[" * 100_000, b'{"a":' * 100_000)


def read(shape: Shape, line: bytes, role: FileRole = FileRole.OUTPUT) -> Response:
    return registry.module(shape.provider).read_line(line)


def check(got: Response) -> None:
    """What every Response must be: typed, storable, and never an error that looks answered."""
    assert isinstance(got.status, ResponseStatus)
    for name, value in got._asdict().items():
        if isinstance(value, str):
            value.encode("utf-8")
        elif isinstance(value, int):
            assert 0 <= value < 2**63
        else:
            assert value is None, (name, value)
    if got.status is ResponseStatus.SUCCEEDED:
        assert got.error_class is None
    else:
        assert got.error_class is not None
        assert got.text is None


def test_every_provider_of_batches_has_a_row() -> None:
    """A provider that is added is held to all of this."""
    assert set(registry.NAMES) <= {shape.provider for shape in SHAPES}


@each
def test_a_good_line_is_an_answer(shape: Shape) -> None:
    """The rows of this contract are what they say."""
    got = read(shape, shape.row())
    assert (got.custom_id, got.status, got.text) == (CID, ResponseStatus.SUCCEEDED, "Hello")
    assert got.output_tokens == N_OUTPUT
    check(got)


@each
def test_what_cannot_be_read_is_unreadable_and_not_an_exception(shape: Shape) -> None:
    """Broken, foreign, too deep, empty: the line is kept raw and counted."""
    foreign = [json.dumps({shape.id_name: CID, **members}).encode() for members in shape.foreign]
    for line in (*NOBODYS, b"{}", *foreign):
        got = read(shape, line)
        assert got.status is ResponseStatus.UNREADABLE, line[:80]
        assert got.error_class is ErrorClass.UNREADABLE
        assert got.error_message
        assert len(got.error_message) < 400


@each
@pytest.mark.parametrize("value", [None, 0, 7, 7.0, True, [], ["k"], {}, {"id": 1}, ""])
def test_only_a_string_is_an_id(shape: Shape, value: Any) -> None:
    """Nothing is trimmed, converted or guessed."""
    assert read(shape, shape.row(**{shape.id_name: value})).custom_id is None
    assert read(shape, shape.row(**{shape.id_name: "7 "})).custom_id == "7 "


@each
@pytest.mark.parametrize("other", [CID, "someone-else"])
def test_a_row_that_names_two_ids_is_nobodys_answer(shape: Shape, other: str) -> None:
    """Parsers disagree on which one counts, so neither gets a good answer."""
    got = read(shape, f'{{"{shape.id_name}":"{other}",'.encode() + shape.row()[1:])
    assert got.status is ResponseStatus.UNREADABLE
    assert got.custom_id is None


def nested(value: Any, name: str) -> Any:
    """Return a value whose objects all have one more member."""
    if isinstance(value, dict):
        return {key: nested(item, name) for key, item in value.items()} | {name: "x"}
    return [nested(item, name) for item in value] if isinstance(value, list) else value


@each
def test_an_id_as_a_value_or_nested_key_is_no_duplicate(shape: Shape) -> None:
    """Only two at the top of the row make it unreadable."""
    text = f'say "{shape.id_name}"'
    below = {key: nested(value, shape.id_name) for key, value in shape.answered(text).items()}
    got = read(shape, json.dumps({shape.id_name: CID, **below}).encode())
    assert (got.custom_id, got.text) == (CID, text)


@each
@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (rb"a\ud83d b", "a\ufffd b"),
        (rb"a\ude00\ud83d", "a\ufffd\ufffd"),
        (rb"\ud83d\ude00", "\U0001f600"),
        (b"a\xffb", "a\ufffdb"),
        (b"a\xe2\x80\xa8\xc2\x85b", "a\u2028\u0085b"),
        (rb"a\u0000b", "a\x00b"),
    ],
)
def test_text_is_always_valid_utf8(shape: Shape, raw: bytes, expected: str) -> None:
    """Lone surrogates and invalid bytes become U+FFFD, in text and in thoughts."""
    got = read(shape, shape.row("@@").replace(b"@@", raw))
    assert got.text == expected
    assert got.thoughts == (expected if shape.has_thoughts else None)


@each
@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-0", b"9" * 5000, b"1.5"])
def test_numbers_that_json_parsers_choke_on_do_not_cost_the_answer(shape: Shape, number: bytes) -> None:
    """The text survives; a count that is no count is None."""
    got = read(shape, shape.row().replace(b"12345678", number))
    assert got.text == "Hello"
    assert got.input_tokens in (None, 0)
    assert got.output_tokens == N_OUTPUT


@each
def test_a_byte_order_mark_and_a_carriage_return_are_ignored(shape: Shape) -> None:
    """Files that passed through other tools keep their answers."""
    assert read(shape, b"\xef\xbb\xbf" + shape.row() + b"\r").text == "Hello"


@each_reader
@settings(max_examples=examples(400))
@given(line=st.binary(max_size=300))
def test_any_bytes_give_a_response(shape: Shape, line: bytes) -> None:
    """Total: no bytes raise, in either file."""
    check(read(shape, line))
    check(read(shape, line, FileRole.ERROR))


@each_reader
@settings(max_examples=examples(400))
@given(data=st.data())
def test_any_row_of_roughly_the_right_shape_gives_a_response(shape: Shape, data: st.DataObject) -> None:
    """Wrong types in every place, lone surrogates and NaN included."""
    check(read(shape, json.dumps(data.draw(shape.odd)).encode("utf-8", "surrogatepass")))


@each
@given(content=st.text(st.characters(codec="utf-8")))
def test_the_two_parsers_agree(shape: Shape, content: str) -> None:
    """A line that the fast parser reads gives the same Response through the careful one."""
    fast = orjson.dumps({shape.id_name: CID, **shape.answered(content)})
    assert read(shape, fast) == read(shape, b"\xef\xbb\xbf" + fast)
    if not shape.splits:
        assert read(shape, fast).text == content
