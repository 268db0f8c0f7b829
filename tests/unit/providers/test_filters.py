"""What a provider's own filter says, as an error: blocked, whoever says it, in a line and in a live answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from batchpond.answers.derive import judge_of
from batchpond.model import ErrorClass, Finish, Outcome, Response, ResponseStatus
from batchpond.providers import registry
from batchpond.providers.base import Answered
from batchpond.providers.http.errors import answer_of
from batchpond.providers.shared.live import judge
from tests.rigs.http import START
from tests.rigs.result_lines import CID
from tests.rigs.task import rule_of

AZURE = {"code": "content_filter", "message": "filtered", "type": None, "param": "prompt", "status": 400}
OPENAI = {
    "code": "invalid_prompt",
    "message": "Invalid prompt: your prompt was flagged as potentially violating our usage policy. Please try again"
    " with a different prompt: https://platform.openai.com/docs/guides/reasoning#advice-on-prompting",
    "type": "invalid_request_error",
}
ANTHROPIC = {"type": "invalid_request_error", "message": "Output blocked by content filtering policy"}
XAI = "Content violates usage guidelines. Team: t, API key ID: k, Model: grok-4, Failed check: SAFETY_CHECK_TYPE_BIO"
MODERATED = {"code": 403, "message": "flagged", "metadata": {"reasons": ["violence"], "flagged_input": "..."}}
RISK = {"message": "Content Exists Risk", "type": "invalid_request_error", "code": "invalid_request_error"}


def http(error: Any) -> dict[str, Any]:
    return {"response": {"status_code": 400, "request_id": "r", "body": {"error": error}}, "error": None}


def errored(error: Any) -> dict[str, Any]:
    return {"result": {"type": "errored", "error": {"type": "error", "error": error, "request_id": "r"}}}


LINES = {
    "openai": (http(AZURE), http(OPENAI), {"response": None, "error": AZURE}),
    "anthropic": (errored(ANTHROPIC),),
    "xai": ({"batch_request_id": CID, "batch_result": {"error": {"code": 7, "message": XAI}}},),
    "together": (http(AZURE),),
    "mistral": (http(AZURE),),
    "groq": (http(AZURE),),
    "gemini": ({"key": CID, "response": {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}},),
    "vertex": ({"custom_id": CID, "response": {"promptFeedback": {"blockReason": "SAFETY"}}},),
}
LIVE = (
    ("openai", 400, {"error": AZURE}),
    ("openai", 400, {"error": OPENAI}),
    ("anthropic", 400, {"type": "error", "error": ANTHROPIC, "request_id": "r"}),
    ("xai", 403, {"code": "The caller does not have permission to execute the specified operation", "error": XAI}),
    ("openrouter", 403, {"error": MODERATED}),
    ("deepseek", 400, {"error": RISK}),
    ("deepseek", 400, {"detail": "Content Exists Risk"}),
)


def read(provider: str, row: dict[str, Any]) -> Response:
    return registry.module(provider).read_line(json.dumps({"custom_id": CID, **row}).encode())


def test_every_provider_of_batches_has_a_row() -> None:
    """A provider that is added is asked what its filter says."""
    assert LINES.keys() == {*registry.NAMES}


@pytest.mark.parametrize(("provider", "row"), [(name, row) for name, rows in LINES.items() for row in rows])
def test_a_line_in_which_a_filter_speaks_is_blocked(provider: str, row: dict[str, Any]) -> None:
    """And nothing that asking again would change."""
    found = read(provider, row)
    assert (found.custom_id is not None, found.finish, found.text) == (True, Finish.BLOCKED, None)
    assert found.error_class in (None, ErrorClass.PERMANENT)


@pytest.mark.parametrize(("provider", "status_code", "body"), LIVE)
def test_a_live_answer_in_which_a_filter_speaks_is_blocked_and_stops_no_run(
    provider: str, status_code: int, body: dict[str, Any]
) -> None:
    """It is about one text, and says nothing of the key, whatever status it has."""
    content = json.dumps(body).encode()
    assert judge(answer_of(status_code, {}, content), START) == Answered(status_code, content)
    found = registry.module(provider).read_answer(status_code, content)
    assert (found.status, found.finish) == (ResponseStatus.ERRORED, Finish.BLOCKED)
    assert found.error_class is ErrorClass.PERMANENT


@pytest.mark.parametrize(
    "error",
    [
        {"message": "Invalid prompt: your message is empty", "code": "invalid_prompt"},
        {"message": "the field content_filter is unknown", "code": "invalid_request_error"},
        {"message": "You have reached your specified API usage limits", "type": "invalid_request_error"},
        {"message": "m", "code": 403, "metadata": {"provider_name": "Azure"}},
    ],
)
def test_any_other_error_is_none_of_a_filter(error: dict[str, Any]) -> None:
    """A refusal must not be made of what a study's author can mend."""
    assert read("openai", http(error)).finish is None


@pytest.mark.parametrize("task", ["pairwise", "likert", "generation"])
@pytest.mark.parametrize(
    ("reader", "outcome"), [(1, Outcome.ERROR), (2, Outcome.ERROR), (3, Outcome.BLOCKED)], ids=["1", "2", "3"]
)
def test_readers_before_the_third_took_it_for_an_error(task: str, reader: int, outcome: Outcome) -> None:
    """A study goes on with the reader that it has, and an error of another kind is one to all of them."""
    judged = judge_of({**rule_of(task).to_spec(), "read_by": reader})
    withheld, other = read("openai", http(AZURE)), read("openai", http({"message": "no", "code": "bad"}))
    body = {"choices": [{"finish_reason": "content_filter"}]}
    spoken = read("openai", {"response": {"status_code": 200, "body": body}})
    found = [judgment.outcome for judgment in judged([withheld, other, spoken])]
    assert found == [outcome, Outcome.ERROR, Outcome.BLOCKED]
