"""Reading Anthropic result lines: every row shape, and any bytes at all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from batchpond.model import ErrorClass, Finish, Response, ResponseStatus
from batchpond.providers.anthropic.dialect import DIALECT

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
    return DIALECT.read_line(line)


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
        cache_hour_tokens=0,
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
        ("pause_turn", Finish.LENGTH),
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


def test_rows_are_of_the_official_type() -> None:
    """What these tests call a row is one to the official SDK too."""
    messages = pytest.importorskip("anthropic.types.messages", reason="NOT CHECKED: the official SDK is not installed")
    refused = succeeded(reason="refusal", stop_details={"type": "refusal", "category": "bio", "explanation": "No."})
    rows = [succeeded(thought("Hm."), REDACTED, text("A")), refused, {"type": "canceled"}, {"type": "expired"}]
    rows.append(errored("invalid_request_error", details={"error_visibility": "user_facing"}))
    for result in rows:
        assert messages.MessageBatchIndividualResponse.model_validate_json(row(result), strict=True).custom_id == CID
