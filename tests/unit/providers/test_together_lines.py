"""Reading Together's lines and live answers: every shape that was seen, and any bytes at all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from batchpond.model import ErrorClass, Finish, Response, ResponseStatus
from batchpond.providers.together.dialect import DIALECT

CID = "abcdefghij-abcdefghijklmnopqrst"
USAGE = {"prompt_tokens": 73, "completion_tokens": 42, "total_tokens": 115, "reasoning_tokens": 30}


def chat(content: Any = "Hello", reason: Any = "stop", usage: Any = None, **message: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": content, "tool_calls": []} | message
    choice = {"index": 0, "finish_reason": reason, "logprobs": None, "seed": None, "message": said}
    return {
        "id": "x", "object": "chat.completion", "model": "openai/gpt-oss-20b", "prompt": [], "choices": [choice],
        "usage": USAGE if usage is None else usage,
    }  # fmt: skip


def good(body: Any) -> Response:
    """Read a row that has a response and no `error` member."""
    row = {"id": "br_1", "custom_id": CID, "response": {"status_code": 200, "body": body}}
    return DIALECT.read_line(json.dumps(row).encode())


def bad(message: str, code: str = "batch_client_error") -> Response:
    """Read a row that has an error and no `response` member."""
    row = {"id": "br_2", "custom_id": CID, "error": {"code": code, "message": message}}
    return DIALECT.read_line(json.dumps(row).encode())


def test_a_success_row() -> None:
    got = good(chat(reasoning="because"))
    assert got == Response(
        CID, ResponseStatus.SUCCEEDED, 200, "openai/gpt-oss-20b", "stop", Finish.STOP, "Hello", "because", None,
        73, 42, 30, None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop", Finish.STOP), ("eos", Finish.STOP), ("length", Finish.LENGTH), ("tool_calls", Finish.OTHER),
        ("function_call", Finish.OTHER), (None, Finish.OTHER), (7, Finish.OTHER),
    ],
)  # fmt: skip
def test_reasons_to_stop(reason: Any, finish: Finish) -> None:
    assert good(chat(reason=reason)).finish is finish


def test_reasoning_tokens_stand_flat_or_among_details() -> None:
    nested = {"prompt_tokens": 1, "completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 4}}
    assert good(chat(usage=nested)).reasoning_tokens == 4
    assert good(chat(usage=nested | {"reasoning_tokens": 5})).reasoning_tokens == 4
    assert good(chat(usage=nested | {"completion_tokens_details": None, "reasoning_tokens": 5})).reasoning_tokens == 5
    assert good(chat(usage={})).input_tokens is None


def test_all_tokens_spent_on_thoughts_leave_an_empty_text() -> None:
    """Recorded with small token limits: it is a success, cut off, that says nothing."""
    got = good(chat("", "length", reasoning="I was about to"))
    assert (got.status, got.finish, got.text, got.thoughts) == (
        ResponseStatus.SUCCEEDED, Finish.LENGTH, "", "I was about to",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("content", "text", "thoughts"),
    [
        ("<think>one\ntwo</think>\n\nHello", "Hello", "one\ntwo"),
        ("  <think></think>Hello", "Hello", None),
        ("<think>cut off", "", "cut off"),
        ("opened by the template</think>Hello", "Hello", "opened by the template"),
        ("Say <think> in a text", "Say <think> in a text", None),
        ("a </think> b </think> c", "a </think> b </think> c", None),
        ("<think>x</think>a</think>b", "a</think>b", "x"),
    ],
)
def test_thoughts_in_the_text_are_taken_out_of_it(content: str, text: str, thoughts: str | None) -> None:
    got = good(chat(content))
    assert (got.text, got.thoughts) == (text, thoughts)
    apart = good(chat(content, reasoning="kept apart"))
    assert (apart.thoughts or "").startswith("kept apart")
    assert apart.text == (text if content.strip().startswith("<think>") else content)


@pytest.mark.parametrize(
    ("message", "error_class"),
    [
        ("Unable to access model nonexistent/model-xyz. Please visit the page.", ErrorClass.MODEL_GONE),
        ("Selected function was not found in the tools list", ErrorClass.PERMANENT),
        ("missing 'model' field in body or not a string", ErrorClass.PERMANENT),
        ("Internal server error", ErrorClass.TRANSIENT),
        ("Insufficient credits: add some to go on.", ErrorClass.BILLING),
        ("Credit limit exceeded. Please navigate to https://... to add credit or upgrade.", ErrorClass.BILLING),
    ],
)
def test_one_code_stands_for_all_errors_so_the_text_decides(message: str, error_class: ErrorClass) -> None:
    got = bad(message)
    assert (got.custom_id, got.status, got.error_class) == (CID, ResponseStatus.ERRORED, error_class)
    assert (got.error_code, got.error_message, got.text) == ("batch_client_error", message, None)


def test_a_row_with_neither_or_with_a_bare_text_is_still_a_row() -> None:
    assert DIALECT.read_line(b'{"custom_id":"a"}').status is ResponseStatus.UNREADABLE
    got = DIALECT.read_line(b'{"custom_id":"a","error":"boom"}')
    assert (got.status, got.error_message) == (ResponseStatus.ERRORED, "boom")


# --- live answers ---------------------------------------------------------------------------------


def test_a_live_answer_is_read_as_a_row_without_an_id() -> None:
    got = DIALECT.read_answer(200, json.dumps(chat("<think>hm</think>Yes", "eos")).encode())
    assert (got.custom_id, got.status, got.text, got.thoughts) == (None, ResponseStatus.SUCCEEDED, "Yes", "hm")


@pytest.mark.parametrize(
    ("status_code", "body", "error_class", "message"),
    [
        (400, {"error": {"message": "too long", "type": "invalid_request_error"}}, ErrorClass.PERMANENT, "too long"),
        (402, {"error": {"message": "pay", "type": "credit_limit"}}, ErrorClass.BILLING, "pay"),
        (404, {"error": {"message": "Unable to access model x", "code": "model_not_available"}},
         ErrorClass.MODEL_GONE, "Unable to access model x"),
        (429, {"error": {"message": "slow", "type": "rate_limit"}}, ErrorClass.TRANSIENT, "slow"),
        (503, {"error": "overloaded", "request_id": "r"}, ErrorClass.TRANSIENT, "overloaded"),
        (500, "<html>bad gateway</html>", ErrorClass.TRANSIENT, "<html>bad gateway</html>"),
    ],
)  # fmt: skip
def test_errors_of_live_calls(status_code: int, body: Any, error_class: ErrorClass, message: str) -> None:
    """The text of an error as an object or bare, or whatever a proxy says."""
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    got = DIALECT.read_answer(status_code, data)
    assert (got.status, got.status_code) == (ResponseStatus.ERRORED, status_code)
    assert (got.error_class, got.error_message) == (error_class, message)


def test_a_success_that_is_no_answer_is_unreadable() -> None:
    assert DIALECT.read_answer(200, b"<html>sign in</html>").status is ResponseStatus.UNREADABLE
    assert DIALECT.read_answer(200, b"[]").status is ResponseStatus.UNREADABLE
