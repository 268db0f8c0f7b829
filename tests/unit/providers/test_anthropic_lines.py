"""Reading Anthropic result lines: every row shape, and any bytes at all."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchpond.model import ErrorClass, FileRole, Finish, Response, ResponseStatus
from batchpond.providers.anthropic.batch import read_line

CID = "abcdefghij-abcdefghijklmnopqrst"
USAGE = {
    "input_tokens": 9,
    "cache_creation_input_tokens": 100,
    "cache_read_input_tokens": 1000,
    "cache_creation": {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 0},
    "output_tokens": 40,
    "output_tokens_details": {"thinking_tokens": 30},
    "service_tier": "batch",
    "inference_geo": "not_available",
}


def read(line: bytes) -> Response:
    return read_line(line, FileRole.OUTPUT)


def row(result: Any, **more: Any) -> bytes:
    return json.dumps({"custom_id": CID, "result": result} | more).encode()


def text(value: Any) -> dict[str, Any]:
    return {"type": "text", "text": value}


def succeeded(*content: Any, reason: Any = "end_turn", **more: Any) -> dict[str, Any]:
    message = {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "model": "claude-haiku-4-5-20251001",
        "content": list(content) or [text("Hello")],
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": USAGE,
    }
    return {"type": "succeeded", "message": message | more}


def errored(kind: Any, message: Any = "no", request_id: Any = None, **more: Any) -> dict[str, Any]:
    error = {"type": kind, "message": message} | more
    return {"type": "errored", "error": {"type": "error", "error": error, "request_id": request_id}}


def test_an_answer_is_made_uniform() -> None:
    """Every field of a plain answer; all prompt tokens, cached and newly cached ones included."""
    assert read(row(succeeded())) == Response(
        custom_id=CID,
        status=ResponseStatus.SUCCEEDED,
        response_model="claude-haiku-4-5-20251001",
        finish_reason="end_turn",
        finish=Finish.STOP,
        text="Hello",
        input_tokens=1109,
        output_tokens=40,
        reasoning_tokens=30,
        cached_tokens=1000,
        cache_write_tokens=100,
        provider_request_id="msg_01",
    )


def thought(value: Any) -> dict[str, Any]:
    return {"type": "thinking", "thinking": value, "signature": "c2ln"}


REDACTED = {"type": "redacted_thinking", "data": "ZGF0YQ=="}


@pytest.mark.parametrize(
    ("content", "expected_text", "thoughts"),
    [
        ([thought("First."), thought("Then."), text("A"), text("B")], "AB", "First.\n\nThen."),
        ([thought(""), text("A")], "A", None),
        ([REDACTED, text("A")], "A", None),
        ([REDACTED, thought("Hm."), text("A")], "A", "Hm."),
        ([thought("Hm.")], None, "Hm."),
        ([REDACTED], None, None),
        ([text("")], "", None),
        ([{"type": "tool_use", "id": "t", "name": "n", "input": {}}], None, None),
        ([{"type": "new_block", "text": "no"}, text("A")], "A", None),
        ([None, 3, "x", [], text(None), {"type": "thinking"}], None, None),
    ],
)
def test_text_and_thoughts_are_told_apart(content: list[Any], expected_text: str | None, thoughts: str | None) -> None:
    """Blocks of other types add nothing; redacted and hidden thoughts are no thoughts; no text is not empty text."""
    got = read(row(succeeded(*content)))
    assert (got.status, got.text, got.thoughts) == (ResponseStatus.SUCCEEDED, expected_text, thoughts)


@pytest.mark.parametrize("content", [None, [], {}, 7])
def test_a_message_without_content_is_an_answer_without_text(content: Any) -> None:
    """Empty is for the task to judge."""
    got = read(row(succeeded(content=content)))
    assert (got.status, got.text) == (ResponseStatus.SUCCEEDED, None)


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", Finish.STOP),
        ("stop_sequence", Finish.STOP),
        ("max_tokens", Finish.LENGTH),
        ("model_context_window_exceeded", Finish.LENGTH),
        ("refusal", Finish.REFUSAL),
        ("tool_use", Finish.OTHER),
        ("pause_turn", Finish.OTHER),
        ("novelty", Finish.OTHER),
        (None, Finish.OTHER),
        (7, Finish.OTHER),
    ],
)
def test_why_the_model_stopped(reason: Any, finish: Finish) -> None:
    """Every stop reason of the SDK, unknown ones and none."""
    got = read(row(succeeded(reason=reason)))
    assert (got.status, got.finish, got.text) == (ResponseStatus.SUCCEEDED, finish, "Hello")
    assert got.finish_reason == (None if reason is None else str(reason))


@pytest.mark.parametrize(
    ("details", "refusal"),
    [
        ({"type": "refusal", "category": "cyber", "explanation": "No exploits."}, "cyber: No exploits."),
        ({"type": "refusal", "category": None, "explanation": "No."}, "No."),
        ({"type": "refusal", "category": "bio", "explanation": None}, "bio"),
        ({"type": "refusal", "category": None, "explanation": None}, None),
        (None, None),
        ("x", None),
    ],
)
def test_a_refusal_is_a_billed_answer_that_says_why(details: Any, refusal: str | None) -> None:
    """Category and explanation, either of which may be missing; elsewhere they mean nothing."""
    got = read(row(succeeded(thought("Hm."), reason="refusal", stop_details=details)))
    assert (got.status, got.finish, got.refusal, got.text) == (
        ResponseStatus.SUCCEEDED,
        Finish.REFUSAL,
        refusal,
        None,
    )
    assert got.output_tokens == 40
    assert read(row(succeeded(stop_details=details))).refusal is None


@pytest.mark.parametrize(
    ("result", "status", "error_class", "code"),
    [
        (errored("invalid_request_error"), "errored", "permanent", "invalid_request_error"),
        (errored("request_too_large"), "errored", "permanent", "request_too_large"),
        (errored("not_found_error", "model: claude-nope"), "errored", "model_gone", "not_found_error"),
        (errored("not_found_error", "file not found"), "errored", "permanent", "not_found_error"),
        (errored("permission_error"), "errored", "permanent", "permission_error"),
        (errored("authentication_error"), "errored", "access", "authentication_error"),
        (errored("billing_error"), "errored", "billing", "billing_error"),
        (errored("invalid_request_error", "Your credit balance is too low"), "errored", "billing", None),
        (
            errored("rate_limit_error", details={"error_code": "enforced_spend_limit_reached"}),
            "errored",
            "billing",
            "enforced_spend_limit_reached",
        ),
        (errored("rate_limit_error"), "errored", "transient", "rate_limit_error"),
        (errored("overloaded_error", "Overloaded"), "errored", "transient", "overloaded_error"),
        (errored("api_error"), "errored", "transient", "api_error"),
        (errored("timeout_error"), "errored", "transient", "timeout_error"),
        (errored("novel_error"), "errored", "permanent", "novel_error"),
        (errored(None, None), "errored", "permanent", None),
        ({"type": "errored", "error": {"type": "overloaded_error", "message": "m"}}, "errored", "transient", None),
        ({"type": "errored", "error": "boom"}, "errored", "permanent", None),
        ({"type": "errored"}, "errored", "permanent", None),
        ({"type": "canceled"}, "cancelled", "cancelled", "canceled"),
        ({"type": "cancelled"}, "cancelled", "cancelled", "cancelled"),
        ({"type": "expired"}, "expired", "expired", "expired"),
    ],
)
def test_errors_keep_their_class(result: Any, status: str, error_class: str, code: str | None) -> None:
    """What may pass, what will not, whose bill, whose key: told apart, and never a success."""
    got = read(row(result))
    assert (got.status, got.error_class) == (ResponseStatus(status), ErrorClass(error_class))
    assert got.error_message
    assert got.text is None
    assert got.custom_id == CID
    assert got.input_tokens is None
    if code is not None:
        assert got.error_code == code


def test_an_error_keeps_the_request_id_that_support_asks_for() -> None:
    """None for validation errors, `workerreq_...` for later ones."""
    assert read(row(errored("api_error", request_id="workerreq_1"))).provider_request_id == "workerreq_1"
    assert read(row(errored("api_error"))).provider_request_id is None


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\r",
        b"null",
        b"7",
        b"[]",
        b'"x"',
        b"{",
        b"\xff\xfe{\x00}\x00",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"custom_id":"a","custom_id":"b","result":{"type":"expired"}}',
        b"{}",
        row(None),
        row({}),
        row("expired"),
        row({"type": "novelty"}),
        row({"type": "x" * 10_000}),
        row({"type": 7}),
        row({"type": "succeeded"}),
        row({"type": "succeeded", "message": "Hello"}),
        json.dumps({"custom_id": CID, "message": {}}).encode(),
    ],
)
def test_what_cannot_be_read_is_unreadable_and_not_an_exception(line: bytes) -> None:
    """Broken, foreign, too deep, doubled: the line is kept raw and counted."""
    got = read(line)
    assert got.status is ResponseStatus.UNREADABLE
    assert got.error_class is ErrorClass.UNREADABLE
    assert got.error_message
    assert len(got.error_message) < 400


@pytest.mark.parametrize("value", [None, 7, 7.0, True, [], {}, ""])
def test_only_a_string_is_a_custom_id(value: Any) -> None:
    """Nothing is trimmed, converted or guessed."""
    assert read(row(succeeded(), custom_id=value)).custom_id is None
    assert read(row(succeeded(), custom_id="7 ")).custom_id == "7 "


def test_custom_id_as_a_value_or_nested_key_is_no_duplicate() -> None:
    """Only two at the top of the row make it unreadable."""
    got = read(row(succeeded(text('say "custom_id"'), custom_id="x")))
    assert (got.custom_id, got.text) == (CID, 'say "custom_id"')


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (rb"a\ud83d b", "a\ufffd b"),
        (rb"\ud83d\ude00", "\U0001f600"),
        (b"a\xffb", "a\ufffdb"),
        (b"\xe2\x80\xa8\xc2\x85", "\u2028\u0085"),
        (rb"a\u0000b", "a\x00b"),
    ],
)
def test_text_is_always_valid_utf8(raw: bytes, expected: str) -> None:
    """Lone surrogates and invalid bytes become U+FFFD, in text and in thoughts."""
    got = read(row(succeeded(thought("@@"), text("@@"))).replace(b"@@", raw))
    assert got.text == got.thoughts == expected


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"input_tokens": 9, "output_tokens": 4}, (9, 4, None, None, None)),
        ({"input_tokens": 9, "cache_read_input_tokens": None, "output_tokens": 4}, (9, 4, None, None, None)),
        ({"input_tokens": 9, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 3}, (12, None, None, 3, 0)),
        ({"input_tokens": None, "cache_read_input_tokens": 3}, (None, None, None, 3, None)),
        ({"input_tokens": "8", "output_tokens": 5.0}, (8, 5, None, None, None)),
        ({"input_tokens": 2**63 - 1, "cache_read_input_tokens": 1}, (None, None, None, 1, None)),
        ({"input_tokens": -1, "output_tokens": True}, (None, None, None, None, None)),
        (None, (None, None, None, None, None)),
        ([], (None, None, None, None, None)),
        ("x", (None, None, None, None, None)),
    ],
)
def test_usage_adds_the_cache_to_the_prompt_and_never_guesses(usage: Any, expected: tuple[int | None, ...]) -> None:
    """Input, output, reasoning, cached, cache write; what is not said is unknown, not zero."""
    got = read(row(succeeded(usage=usage)))
    tokens = (got.input_tokens, got.output_tokens, got.reasoning_tokens, got.cached_tokens, got.cache_write_tokens)
    assert tokens == expected
    assert got.text == "Hello"


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"1e999", b"9" * 5000, b"1.5"])
def test_numbers_that_json_parsers_choke_on_do_not_cost_the_answer(number: bytes) -> None:
    """The text survives; a count that is no count is None."""
    got = read(row(succeeded(usage=USAGE | {"input_tokens": 12345678})).replace(b"12345678", number))
    assert got.text == "Hello"
    assert got.input_tokens is None
    assert got.output_tokens == 40


def test_a_byte_order_mark_and_a_carriage_return_are_ignored() -> None:
    """Files that passed through other tools keep their answers."""
    assert read(b"\xef\xbb\xbf" + row(succeeded()) + b"\r").text == "Hello"


def check(got: Response) -> None:
    """What every Response must be: typed, storable, and never an error that looks answered."""
    assert isinstance(got.status, ResponseStatus)
    for field in dataclasses.fields(Response):
        value = getattr(got, field.name)
        if isinstance(value, str):
            value.encode("utf-8")
        elif isinstance(value, int):
            assert 0 <= value < 2**63
        else:
            assert value is None, (field.name, value)
    if got.status is ResponseStatus.SUCCEEDED:
        assert got.error_class is None
    else:
        assert got.error_class is not None
        assert got.text is None


@settings(max_examples=400)
@given(st.binary(max_size=300))
def test_any_bytes_give_a_response(line: bytes) -> None:
    """Total: no bytes raise."""
    check(read(line))


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def thing(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({}, optional={name: value | ANYTHING for name, value in members.items()})


BLOCK = thing(
    type=st.sampled_from(["text", "thinking", "redacted_thinking"]),
    text=st.text(st.characters()),
    thinking=st.text(st.characters()),
)
MESSAGE = thing(
    id=st.text(),
    model=st.text(),
    content=st.lists(BLOCK | ANYTHING, max_size=3),
    stop_reason=st.sampled_from(["end_turn", "max_tokens", "refusal"]),
    stop_details=thing(category=st.text(), explanation=st.text(st.characters())),
    usage=thing(input_tokens=st.integers(), cache_read_input_tokens=st.integers(), output_tokens_details=ANYTHING),
)
ERROR = thing(
    type=st.sampled_from(["api_error", "not_found_error"]),
    message=st.text(st.characters()),
    details=thing(error_code=st.text()),
)
RESULT = thing(
    type=st.sampled_from(["succeeded", "errored", "canceled", "expired"]),
    message=MESSAGE,
    error=thing(error=ERROR, request_id=st.text()) | ERROR,
)
ROW = thing(custom_id=st.text(st.characters()), result=RESULT)


@settings(max_examples=400)
@given(ROW)
def test_any_row_of_roughly_the_right_shape_gives_a_response(value: Any) -> None:
    """Wrong types in every place, lone surrogates and NaN included."""
    check(read(json.dumps(value).encode("utf-8", "surrogatepass")))


@given(st.text(st.characters(codec="utf-8")))
def test_the_two_parsers_agree(content: str) -> None:
    """A line that the fast parser reads gives the same Response through the careful one."""
    fast = orjson.dumps({"custom_id": CID, "result": succeeded(thought(content), text(content))})
    slow = b"\xef\xbb\xbf" + fast
    assert read(fast) == read(slow)
    assert read(fast).text == content


def test_rows_are_of_the_official_type() -> None:
    """What these tests call a row is one to the official SDK too."""
    messages = pytest.importorskip("anthropic.types.messages", reason="NOT CHECKED: the official SDK is not installed")
    refused = succeeded(reason="refusal", stop_details={"type": "refusal", "category": "bio", "explanation": "No."})
    rows = [succeeded(thought("Hm."), REDACTED, text("A")), refused, {"type": "canceled"}, {"type": "expired"}]
    rows.append(errored("invalid_request_error", details={"error_visibility": "user_facing"}))
    for result in rows:
        assert messages.MessageBatchIndividualResponse.model_validate_json(row(result), strict=True).custom_id == CID
