"""Mistral's rows: an error as JSON in a text, thoughts in parts, and lines that name no path."""

from __future__ import annotations

import json
from typing import Any

import pytest

from batchpond.model import ErrorClass, Finish, ResponseStatus
from batchpond.providers.mistral.dialect import DIALECT
from batchpond.providers.shared.dialect import CHAT, ModelSettings

ERROR = {"object": "error", "message": "File could not be fetched", "type": "invalid_request_file", "code": "3310"}


def read(status: int, body: Any) -> Any:
    row = {"id": "batch-1-0", "custom_id": "c-1", "response": {"status_code": status, "body": body}, "error": None}
    return DIALECT.read_line(json.dumps(row).encode())


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, json.dumps(ERROR), ("3310", "File could not be fetched", ErrorClass.PERMANENT)),
        (400, ERROR, ("3310", "File could not be fetched", ErrorClass.PERMANENT)),
        (429, json.dumps({"detail": "slow down"}), (None, "slow down", ErrorClass.TRANSIENT)),
        (400, json.dumps(ERROR | {"message": "Invalid model: m", "type": "invalid_model", "code": "1500"}),
         ("1500", "Invalid model: m", ErrorClass.MODEL_GONE)),
        (500, "plain words", (None, "plain words", ErrorClass.TRANSIENT)),
        (500, "[1]", (None, "[1]", ErrorClass.TRANSIENT)),
        (500, "\ud83d", (None, "\ufffd", ErrorClass.TRANSIENT)),
    ],
)  # fmt: skip
def test_the_error_of_a_row_may_be_json_in_a_text(status: int, body: Any, expected: Any) -> None:
    got = read(status, body)
    assert (got.status, got.custom_id) == (ResponseStatus.ERRORED, "c-1")
    assert (got.error_code, got.error_message, got.error_class) == expected


def test_thoughts_are_parts_of_the_content() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}, {"type": "text", "text": "SAMPLE_1"},
    ]  # fmt: skip
    choice = {"message": {"role": "assistant", "content": parts}, "finish_reason": "model_length"}
    got = read(200, {"object": "chat.completion", "choices": [choice]})
    assert (got.text, got.thoughts, got.finish) == ("SAMPLE_1", "Hm", Finish.LENGTH)


def test_a_row_without_an_id_is_nobodys() -> None:
    """Mistral takes lines without one: joined by nothing else."""
    assert DIALECT.read_line(b'{"custom_id":null,"response":{"status_code":200,"body":{}}}').custom_id is None


@pytest.mark.parametrize(
    ("model", "word", "expected"),
    [
        ("magistral-medium-latest", "enabled", {"prompt_mode": "reasoning"}),
        ("mistral-medium-3-5", "high", {"reasoning_effort": "high"}),
    ],
)
def test_a_line_has_the_body_as_it_is_and_no_path(model: str, word: str, expected: dict[str, str]) -> None:
    body = DIALECT.build_body("A or B?", ModelSettings(model, CHAT, thinking=word, max_output_tokens=9)).body
    assert body == {"model": model, "messages": [{"role": "user", "content": "A or B?"}], "max_tokens": 9} | expected
    line = DIALECT.payload_line("c-1", CHAT, json.dumps(body).encode())
    assert json.loads(line) == {"custom_id": "c-1", "body": body}
