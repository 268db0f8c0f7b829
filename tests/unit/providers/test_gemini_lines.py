"""Gemini result lines: every documented shape, every odd one, and any bytes at all."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest

from batchpond.model import ErrorClass, Finish, Response, ResponseStatus
from batchpond.providers.gemini.dialect import DIALECT

CID = "attempt234-abcdefghijklmnopqrst"
QUOTA = "You exceeded your current quota, please check your plan and billing details."
USAGE = {
    "promptTokenCount": 8,
    "candidatesTokenCount": 3,
    "thoughtsTokenCount": 20,
    "cachedContentTokenCount": 5,
    "totalTokenCount": 31,
}


def read(line: bytes) -> Response:
    return DIALECT.read_line(line)


def row(response: Any = None, **more: Any) -> bytes:
    value = {"key": CID} | ({} if response is None else {"response": response}) | more
    return json.dumps(value).encode()


def answer(*parts: Any, reason: Any = "STOP", usage: Any = None, **more: Any) -> dict[str, Any]:
    parts = parts or ({"text": "Hello"},)
    candidate = {"content": {"role": "model", "parts": list(parts)}, "finishReason": reason, "index": 0}
    return {
        "candidates": [candidate],
        "usageMetadata": USAGE if usage is None else usage,
        "modelVersion": "gemini-x-1",
        "responseId": "r1",
    } | more


def thought(text: str) -> dict[str, Any]:
    return {"text": text, "thought": True}


def test_an_answer_is_made_uniform() -> None:
    """Thoughts apart from text, signatures nowhere, output tokens with the thoughts."""
    parts = ({"text": "Hm.", "thought": True}, {"text": "Hello", "thoughtSignature": "AbC="}, {"text": " you"})
    assert read(row(answer(*parts))) == Response(
        custom_id=CID,
        status=ResponseStatus.SUCCEEDED,
        response_model="gemini-x-1",
        finish_reason="STOP",
        finish=Finish.STOP,
        text="Hello you",
        thoughts="Hm.",
        input_tokens=8,
        output_tokens=23,
        reasoning_tokens=20,
        cached_tokens=5,
        provider_request_id="r1",
    )


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", Finish.STOP),
        ("MAX_TOKENS", Finish.LENGTH),
        ("CONTINUATION", Finish.LENGTH),
        ("SAFETY", Finish.BLOCKED),
        ("RECITATION", Finish.BLOCKED),
        ("LANGUAGE", Finish.BLOCKED),
        ("BLOCKLIST", Finish.BLOCKED),
        ("PROHIBITED_CONTENT", Finish.BLOCKED),
        ("SPII", Finish.BLOCKED),
        ("IMAGE_SAFETY", Finish.BLOCKED),
        ("IMAGE_PROHIBITED_CONTENT", Finish.BLOCKED),
        ("IMAGE_RECITATION", Finish.BLOCKED),
        ("ESCALATION", Finish.BLOCKED),
        ("PUP_LIMITED_DISABLED", Finish.BLOCKED),
        ("MODEL_ARMOR", Finish.BLOCKED),
        ("OTHER", Finish.OTHER),
        ("MALFORMED_FUNCTION_CALL", Finish.OTHER),
        ("UNEXPECTED_TOOL_CALL", Finish.OTHER),
        ("TOO_MANY_TOOL_CALLS", Finish.OTHER),
        ("MISSING_THOUGHT_SIGNATURE", Finish.OTHER),
        ("MALFORMED_RESPONSE", Finish.OTHER),
        ("IMAGE_OTHER", Finish.OTHER),
        ("NO_IMAGE", Finish.OTHER),
        ("FINISH_REASON_UNSPECIFIED", Finish.OTHER),
        ("SOMETHING_NEW", Finish.OTHER),
        (None, Finish.OTHER),
        (7, Finish.OTHER),
        ([], Finish.OTHER),
    ],
)
def test_why_the_model_stopped(reason: Any, finish: Finish) -> None:
    """Truncation, filters and the rest are told apart; a hop that could go on is truncated."""
    got = read(row(answer(reason=reason)))
    assert (got.status, got.finish, got.text) == (ResponseStatus.SUCCEEDED, finish, "Hello")


def test_every_reason_of_the_official_sdk_is_in_the_table_above() -> None:
    """A new one makes somebody look."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        types = pytest.importorskip("google.genai.types", reason="NOT CHECKED: google-genai is not installed")
    marks = test_why_the_model_stopped.pytestmark  # type: ignore[attr-defined]
    listed = {case[0] for mark in marks for case in mark.args[1] if isinstance(case[0], str)}
    assert {reason.value for reason in types.FinishReason} <= listed


@pytest.mark.parametrize(
    ("response", "finish", "text", "thoughts"),
    [
        ({"promptFeedback": {"blockReason": "SAFETY"}}, Finish.BLOCKED, None, None),
        ({"promptFeedback": {"blockReason": "OTHER"}, "candidates": []}, Finish.BLOCKED, None, None),
        (answer(promptFeedback={"blockReason": "SAFETY"}), Finish.STOP, "Hello", None),
        ({"candidates": []}, None, None, None),
        ({"candidates": "x"}, None, None, None),
        ({"candidates": [None]}, None, None, None),
        ({"candidates": [{"finishReason": "SAFETY"}]}, Finish.BLOCKED, None, None),
        ({"candidates": [{"finishReason": "MAX_TOKENS", "content": {"role": "model"}}]}, Finish.LENGTH, None, None),
        (answer({"text": ""}), Finish.STOP, "", None),
        (answer(thought("Hm."), reason="MAX_TOKENS"), Finish.LENGTH, None, "Hm."),
        (answer(thought("A"), thought("B"), {"text": "C"}), Finish.STOP, "C", "A\n\nB"),
        (answer({"functionCall": {"name": "f"}}, {"text": "C"}, None, "x", {"text": 7}), Finish.STOP, "C", None),
        ({"candidates": answer()["candidates"] + answer({"text": "2nd"})["candidates"]}, Finish.STOP, "Hello", None),
    ],
)  # fmt: skip
def test_blocked_empty_and_odd_answers(response: Any, finish: Finish | None, text: str | None, thoughts: Any) -> None:
    """A blocked prompt has succeeded, is billed, and is blocked; the first of several candidates counts."""
    got = read(row(response))
    assert got.status is ResponseStatus.SUCCEEDED
    assert (got.finish, got.text, got.thoughts) == (finish, text, thoughts)
    assert got.error_class is None


def test_a_blocked_prompt_says_why_and_what_it_cost() -> None:
    """The reason is the prompt's; its output is nothing."""
    got = read(
        row({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": "8"}})
    )
    assert (got.finish_reason, got.input_tokens, got.output_tokens) == ("PROHIBITED_CONTENT", 8, 0)


@pytest.mark.parametrize(
    ("error", "status", "error_class", "code"),
    [
        ({"code": 400, "message": "m", "status": "INVALID_ARGUMENT"}, "errored", "permanent", "INVALID_ARGUMENT"),
        ({"code": 400, "message": "m"}, "errored", "permanent", "INVALID_ARGUMENT"),
        ({"code": 3, "message": "m"}, "errored", "permanent", "INVALID_ARGUMENT"),
        ({"code": 429, "message": QUOTA, "status": "RESOURCE_EXHAUSTED"}, "errored", "transient", "RESOURCE_EXHAUSTED"),
        ({"code": 8, "message": "m"}, "errored", "transient", "RESOURCE_EXHAUSTED"),
        ({"code": 8, "message": "Your prepayment credits are depleted."}, "errored", "billing", "RESOURCE_EXHAUSTED"),
        ({"code": 13, "message": "m"}, "errored", "transient", "INTERNAL"),
        ({"code": 14, "message": "m"}, "errored", "transient", "UNAVAILABLE"),
        ({"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}, "errored", "transient", "UNAVAILABLE"),
        ({"code": 4, "message": "m"}, "errored", "transient", "DEADLINE_EXCEEDED"),
        ({"code": 10, "message": "m"}, "errored", "transient", "ABORTED"),
        ({"code": 7, "message": "m"}, "errored", "permanent", "PERMISSION_DENIED"),
        ({"code": 403, "message": "m"}, "errored", "permanent", "PERMISSION_DENIED"),
        ({"code": 16, "message": "m"}, "errored", "access", "UNAUTHENTICATED"),
        ({"code": 5, "message": "m"}, "errored", "permanent", "NOT_FOUND"),
        ({"code": 5, "message": "models/gemini-0 is not found for API v1"}, "errored", "model_gone", "NOT_FOUND"),
        ({"code": 404, "message": "models/gemini-0 is no longer available"}, "errored", "model_gone", "NOT_FOUND"),
        ({"code": 1, "message": "m"}, "cancelled", "cancelled", "CANCELLED"),
        ({"code": 499, "message": "m"}, "cancelled", "cancelled", "CANCELLED"),
        ({"code": 429, "message": "m"}, "errored", "transient", "RESOURCE_EXHAUSTED"),
        ({"code": 429, "message": "prepayment credits depleted"}, "errored", "billing", "RESOURCE_EXHAUSTED"),
        ({"code": 418, "message": "m"}, "errored", "permanent", "418"),
        ({"code": "x", "message": "m"}, "errored", "permanent", "x"),
        ({"code": [], "message": "m"}, "errored", "permanent", None),
        ({"message": "m"}, "errored", "permanent", None),
        ("boom", "errored", "permanent", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("member", ["error", "status"])
def test_errors_keep_their_class_under_either_name(
    member: str, error: Any, status: str, error_class: str, code: str | None
) -> None:
    """Numbers of HTTP and of google.rpc.Code; what may pass, what will not, whose bill, whose key."""
    for line in (row(**{member: error}), row(answer(), **{member: error})):
        got = read(line)
        assert (got.status, got.error_class) == (ResponseStatus(status), ErrorClass(error_class))
        assert (got.custom_id, got.error_code, got.text, got.input_tokens) == (CID, code, None, None)
        assert got.error_message


@pytest.mark.parametrize("blank", [None, {}, "", {"code": 0}, {"code": 0, "message": ""}, [], 0])
def test_an_error_that_says_nothing_is_none(blank: Any) -> None:
    """Proto3 may write an OK status beside the answer."""
    assert read(row(answer(), error=blank, status=blank)).status is ResponseStatus.SUCCEEDED
    assert read(row(error=blank)).status is ResponseStatus.UNREADABLE


def test_an_error_inside_the_response_is_an_error() -> None:
    """Never a success without text."""
    assert read(row({"error": {"code": 14, "message": "m"}})).error_class is ErrorClass.TRANSIENT


def test_other_members_keys_are_not_the_rows() -> None:
    """Only the one at the top is."""
    assert read(row(answer({"text": 'say "key"', "key": "x"}), metadata={"key": "y"})).custom_id == CID


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"promptTokenCount": 8, "candidatesTokenCount": 3}, (8, 3, 0, 0)),
        ({"promptTokenCount": "8", "candidatesTokenCount": "3", "thoughtsTokenCount": "4"}, (8, 7, 4, 0)),
        ({"promptTokenCount": 8, "thoughtsTokenCount": 4}, (8, 4, 4, 0)),
        ({"promptTokenCount": 8, "toolUsePromptTokenCount": 2, "candidatesTokenCount": 1}, (10, 1, 0, 0)),
        ({"totalTokenCount": 9, "candidatesTokenCount": 3}, (None, 3, 0, 0)),
        ({"promptTokenCount": -1, "candidatesTokenCount": 3}, (None, 3, 0, 0)),
        ({"promptTokenCount": 8, "candidatesTokenCount": "x", "thoughtsTokenCount": 4}, (8, None, 4, 0)),
        ({"promptTokenCount": 2**63 - 1, "toolUsePromptTokenCount": 1}, (None, 0, 0, 0)),
        ({"candidatesTokenCount": 3}, (None, None, None, None)),
        ({}, (None, None, None, None)),
        ([], (None, None, None, None)),
        ("x", (None, None, None, None)),
    ],
)
def test_tokens_are_summed_as_they_are_billed(usage: Any, expected: tuple[int | None, ...]) -> None:
    """Output is candidates and thoughts; a zero that Google left out is 0, a count it never gave is unknown."""
    got = read(row(answer(usage=usage)))
    assert (got.input_tokens, got.output_tokens, got.reasoning_tokens, got.cached_tokens) == expected
