"""xAI's results: chat completions by `batch_request_id`, and errors that are texts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from batchpond.model import ErrorClass, ResponseStatus
from batchpond.providers.shared.dialect import CHAT, ModelSettings
from batchpond.providers.xai.dialect import DIALECT


def read(result: Any) -> Any:
    return DIALECT.read_line(json.dumps({"batch_request_id": "c-1", "batch_result": result}).encode())


@pytest.mark.parametrize(
    ("error", "status", "error_class"),
    [
        ("Batch cancelled", ResponseStatus.CANCELLED, ErrorClass.CANCELLED),
        ("max_tokens must be positive but max_tokens = -5", ResponseStatus.ERRORED, ErrorClass.PERMANENT),
        ("Internal server error", ResponseStatus.ERRORED, ErrorClass.TRANSIENT),
        ("Model grok-9 does not exist", ResponseStatus.ERRORED, ErrorClass.MODEL_GONE),
        ("The team is out of credits", ResponseStatus.ERRORED, ErrorClass.BILLING),
        ("Your team 1 has either used all available credits or reached its monthly spending limit.",
         ResponseStatus.ERRORED, ErrorClass.BILLING),
        ({"code": 8, "message": "the team is out of credits"}, ResponseStatus.ERRORED, ErrorClass.BILLING),
    ],
)  # fmt: skip
def test_an_error_is_told_by_its_text(error: Any, status: ResponseStatus, error_class: ErrorClass) -> None:
    got = read({"error": error})
    assert (got.custom_id, got.status, got.error_class) == ("c-1", status, error_class)
    assert got.error_message == (error if isinstance(error, str) else error["message"])


def test_reasoning_is_counted_with_the_output() -> None:
    """`completion_tokens` leave it out, and it is billed."""
    usage = {
        "prompt_tokens": 198, "completion_tokens": 1, "total_tokens": 317,
        "completion_tokens_details": {"reasoning_tokens": 118},
    }  # fmt: skip
    message = {"role": "assistant", "content": "A", "reasoning_content": "Hm", "refusal": None}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = {"object": "chat.completion", "model": "grok-4.3", "choices": [choice], "usage": usage}
    got = read({"response": {"chat_get_completion": body}})
    assert (got.text, got.thoughts, got.input_tokens, got.output_tokens, got.reasoning_tokens) == (
        "A", "Hm", 198, 119, 118,
    )  # fmt: skip


@pytest.mark.parametrize("result", [None, {}, {"response": {}}, {"response": {"chat_get_completion": []}}, "x", []])
def test_a_result_without_either_is_unreadable_but_keeps_its_id(result: Any) -> None:
    got = read(result)
    assert (got.custom_id, got.status) == ("c-1", ResponseStatus.UNREADABLE)


def test_a_line_is_openais_with_xais_words() -> None:
    body = DIALECT.build_body("A or B?", ModelSettings("grok-4.3", CHAT, thinking="low", max_output_tokens=9)).body
    assert body == {
        "model": "grok-4.3", "messages": [{"role": "user", "content": "A or B?"}], "max_completion_tokens": 9,
        "reasoning_effort": "low",
    }  # fmt: skip
    line = json.loads(DIALECT.payload_line("c-1", CHAT, json.dumps(body).encode()))
    assert line == {"custom_id": "c-1", "method": "POST", "url": CHAT, "body": body}
