"""Reading OpenAI result lines: every row shape, and any bytes at all."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.responses import ResponseOutputMessage

from batchpond.model import ErrorClass, Finish, Response, ResponseStatus
from batchpond.providers.openai.dialect import DIALECT

CID = "abcdefghij-abcdefghijklmnopqrst"
USAGE = {
    "prompt_tokens": 8,
    "completion_tokens": 5,
    "total_tokens": 13,
    "prompt_tokens_details": {"cached_tokens": 3},
    "completion_tokens_details": {"reasoning_tokens": 2},
}


def read(line: bytes) -> Response:
    return DIALECT.read_line(line)


def row(response: Any = None, error: Any = None, **more: Any) -> bytes:
    value = {"id": "batch_req_1", "custom_id": CID, "response": response, "error": error} | more
    return json.dumps(value).encode()


def http(body: Any, status_code: Any = 200) -> dict[str, Any]:
    return {"status_code": status_code, "request_id": "req_x", "body": body}


def chat(message: Any = None, reason: Any = "stop", usage: Any = None, **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": "Hello", "refusal": None} if message is None else message
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return {"object": "chat.completion", "model": "gpt-x-1", "choices": [choice], "usage": usage or USAGE} | more


def responses(*output: Any, status: str = "completed", **more: Any) -> dict[str, Any]:
    usage = {
        "input_tokens": 8,
        "output_tokens": 5,
        "input_tokens_details": {"cached_tokens": 3},
        "output_tokens_details": {"reasoning_tokens": 2},
    }
    return {"object": "response", "model": "gpt-x-1", "status": status, "output": output, "usage": usage} | more


def message(*content: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": content}


def text(value: str) -> dict[str, Any]:
    return {"type": "output_text", "text": value}


def test_a_chat_answer_is_made_uniform() -> None:
    """Every field of a plain answer."""
    assert read(row(http(chat()))) == Response(
        custom_id=CID,
        status=ResponseStatus.SUCCEEDED,
        status_code=200,
        response_model="gpt-x-1",
        finish_reason="stop",
        finish=Finish.STOP,
        text="Hello",
        input_tokens=8,
        output_tokens=5,
        reasoning_tokens=2,
        cached_tokens=3,
        provider_request_id="req_x",
    )


def test_what_was_written_to_a_cache_is_told_of_both_endpoints() -> None:
    """From GPT-5.6 on it costs more than other input (OpenAI's guide "prompt caching")."""
    spoken = chat(usage=USAGE | {"prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 4}})
    answered = responses(message(text("A")))
    answered["usage"]["input_tokens_details"]["cache_write_tokens"] = 4
    for body in (spoken, answered):
        got = read(row(http(body)))
        assert (got.input_tokens, got.cached_tokens, got.cache_write_tokens) == (8, 3, 4)
        assert got == DIALECT.read_any_line(row(http(body)))


def test_a_responses_answer_carries_its_reasoning_summary_as_thoughts() -> None:
    """Reasoning items become thoughts, message items text, usage its own spelling."""
    reasoning = {"type": "reasoning", "summary": [{"type": "summary_text", "text": t} for t in ("First.", "Then.")]}
    got = read(row(http(responses(reasoning, message(text("A"), text("B"))))))
    assert (got.text, got.thoughts, got.finish, got.finish_reason) == (
        "AB",
        "First.\n\nThen.",
        Finish.STOP,
        "completed",
    )
    assert (got.input_tokens, got.output_tokens, got.reasoning_tokens, got.cached_tokens) == (8, 5, 2, 3)


def test_commentary_before_an_answer_is_no_part_of_it() -> None:
    """What a model says on its way (openai 3.57 `response_output_message.py`, `phase`) is kept with its thoughts."""
    more = {"annotations": [], "logprobs": [{"token": "B", "logprob": -0.1, "bytes": [66], "top_logprobs": []}]}
    phases = {"commentary": "First I look at A.", "final_answer": "B"}
    output = [
        message(text(said) | more) | {"id": "m", "status": "completed", "phase": phase}
        for phase, said in phases.items()
    ]
    for one in output:
        assert ResponseOutputMessage.model_validate_json(json.dumps(one), strict=True)
    got = read(row(http(responses(*output))))
    assert (got.text, got.thoughts, got.finish) == ("B", "First I look at A.", Finish.STOP)
    assert [token.text for token in got.logprobs or ()] == [b"B"]
    assert read(row(http(responses(output[0])))).text == ""


@pytest.mark.parametrize(
    ("body", "finish", "expected_text", "refusal"),
    [
        (chat(reason="length"), Finish.LENGTH, "Hello", None),
        (chat({"content": "", "refusal": None}, "length"), Finish.LENGTH, "", None),
        (chat(reason="content_filter"), Finish.BLOCKED, "Hello", None),
        (chat({"content": None, "refusal": "No."}), Finish.REFUSAL, None, "No."),
        (chat({"content": None}), Finish.STOP, None, None),
        (chat({"content": []}), Finish.STOP, "", None),
        (chat({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}), Finish.STOP, "ab", None),
        (chat({"content": [{"type": "refusal", "refusal": "No."}]}), Finish.REFUSAL, "", "No."),
        (chat(reason="tool_calls"), Finish.OTHER, "Hello", None),
        (chat(reason=None), Finish.OTHER, "Hello", None),
        (chat(choices=[]), None, None, None),
        (chat(choices="x"), None, None, None),
        (responses(), Finish.STOP, None, None),
        (responses(message({"type": "refusal", "refusal": "No."})), Finish.REFUSAL, "", "No."),
        (
            responses(message(text("cut")), status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
            Finish.LENGTH,
            "cut",
            None,
        ),
        (responses(status="incomplete", incomplete_details={"reason": "content_filter"}), Finish.BLOCKED, None, None),
        (responses(message(text("cut")), status="incomplete", incomplete_details={"reason": "max_messages"}),
         Finish.LENGTH, "cut", None),
        (responses(status="incomplete"), Finish.OTHER, None, None),
    ],
)  # fmt: skip
def test_why_the_model_stopped(
    body: Any, finish: Finish | None, expected_text: str | None, refusal: str | None
) -> None:
    """Truncation, refusal, filter, emptiness and the rest are told apart."""
    got = read(row(http(body)))
    assert got.status is ResponseStatus.SUCCEEDED
    assert (got.finish, got.text, got.refusal) == (finish, expected_text, refusal)


def api_error(message: str = "no", code: Any = None, kind: str = "invalid_request_error") -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


# BeehiveInnovations/pal-mcp-server#178.
FLAGGED = (
    "Invalid prompt: your prompt was flagged as potentially violating our usage policy. Please try again with a"
    " different prompt: https://platform.openai.com/docs/guides/reasoning#advice-on-prompting"
)


@pytest.mark.parametrize(
    ("line", "status", "error_class"),
    [
        (row(http(api_error(code="x"), 400)), "errored", "permanent"),
        (row(http(api_error(), 429)), "errored", "transient"),
        (row(http(api_error(code="insufficient_quota"), 429)), "errored", "billing"),
        (row(http(api_error("Your credit balance is too low"), 400)), "errored", "billing"),
        (row(http(api_error(), 402)), "errored", "billing"),
        (row(http(api_error(code="invalid_api_key"), 401)), "errored", "access"),
        (row(http(api_error(code="model_not_found"), 404)), "errored", "model_gone"),
        (row(http(api_error(code="model_not_found"), 403)), "errored", "model_gone"),
        (row(http(api_error(code="model_decommissioned"), 400)), "errored", "model_gone"),
        (row(http(api_error(FLAGGED, "invalid_prompt"), 400)), "errored", "permanent"),
        (row(http(responses(status="failed", error={"code": "invalid_prompt", "message": FLAGGED}))), "errored",
         "permanent"),
        (row(http(api_error("Something went wrong, please try again.", None, "x"), 400)), "errored", "transient"),
        (row(http(api_error(), 404)), "errored", "permanent"),
        (row(http("<html>", 502)), "errored", "transient"),
        (row(http(None, 500)), "errored", "transient"),
        (row(http({}, 0)), "errored", "transient"),
        (row(http(chat(), 0)), "errored", "transient"),
        (row(http(None, None)), "errored", "transient"),
        (row(http(chat(), "abc")), "errored", "transient"),
        (row(http(api_error("late", "server_error"))), "errored", "transient"),
        (row(http({"error": {"code": 429, "message": "m"}})), "errored", "transient"),
        (row(http({"error": {"code": 402, "message": "m"}})), "errored", "billing"),
        (row(http({"error": {"code": "401", "message": "m"}})), "errored", "access"),
        (row(http({"error": {"code": 400, "message": "m"}})), "errored", "permanent"),
        (row(None, {"code": "batch_expired", "message": "m"}), "expired", "expired"),
        (row(None, {"code": "batch_cancelled", "message": "m"}), "cancelled", "cancelled"),
        (row(None, {"code": "request_timeout", "message": "m"}), "errored", "transient"),
        (row(None, {"code": "400", "message": "m"}), "errored", "permanent"),
        (row(None, {"code": 503, "message": "m"}), "errored", "transient"),
        (row(None, {"message": "An error occurred while processing your request."}), "errored", "transient"),
        (row(None, {"code": None, "message": None}), "errored", "permanent"),
        (row(None, {}), "errored", "permanent"),
        (row(None, "boom"), "errored", "permanent"),
        (row(http(responses(status="failed", error={"code": "server_error", "message": "m"}))), "errored", "transient"),
        (row(http(responses(status="failed"))), "errored", "permanent"),
        (row(http(responses(status="cancelled"))), "cancelled", "cancelled"),
        (row(http(responses(status="in_progress"))), "errored", "transient"),
        (row(http(chat()), {"code": "batch_expired", "message": "m"}), "expired", "expired"),
    ],
)  # fmt: skip
def test_errors_keep_their_class(line: bytes, status: str, error_class: str) -> None:
    """What may pass, what will not, whose bill, whose key: told apart, and never a success."""
    got = read(line)
    assert (got.status, got.error_class) == (ResponseStatus(status), ErrorClass(error_class))
    assert got.text is None
    assert got.custom_id == CID
    assert got.input_tokens is None


def test_an_error_about_a_custom_id_is_no_duplicate() -> None:
    """Only two at the top of the row make it unreadable."""
    error = {"message": "m", "param": "custom_id", "code": "duplicate_custom_id"}
    assert read(row(http({"error": error}, 400))).custom_id == CID


@pytest.mark.parametrize(
    "usage", [None, [], "x", {"prompt_tokens": -1}, {"prompt_tokens": "x"}, {"prompt_tokens": True}]
)
def test_unusable_usage_is_unknown_not_zero(usage: Any) -> None:
    """A missing count must not become a cost of nothing."""
    body = chat()
    body["usage"] = usage
    assert read(row(http(body))).input_tokens is None


def test_usage_as_text_is_read() -> None:
    """Some servers send numbers as strings."""
    assert read(row(http(chat(usage={"prompt_tokens": "8", "completion_tokens": 5.0})))).input_tokens == 8


@pytest.mark.parametrize(
    ("error", "error_code"),
    [
        ({"error": {"message": "No.", "type": "BadRequestError", "param": None, "code": 400}}, "400"),
        ({"object": "error", "message": "No.", "type": "BadRequestError", "param": None, "code": 400}, "400"),
        ("No.", None),
    ],
    ids=["in an envelope", "bare", "text"],
)
def test_vllm_rows_without_a_body_keep_status_and_words(error: Any, error_code: str | None) -> None:
    """Failed rows of `vllm run-batch` (0.32, recorded): status and request id on one side, the error on the other."""
    got = read(row({"status_code": 400, "request_id": "vllm-batch-1", "body": None}, error))
    assert (got.custom_id, got.status, got.status_code) == (CID, ResponseStatus.ERRORED, 400)
    assert (got.error_message, got.error_code, got.error_class) == ("No.", error_code, ErrorClass.PERMANENT)
    assert got.provider_request_id == "vllm-batch-1"


def test_compatible_servers_may_leave_the_status_out_and_put_thoughts_beside() -> None:
    """vLLM and its relatives: no status_code, `reasoning_content` on the message."""
    body = chat({"content": "Hi", "reasoning_content": "Hm."})
    got = read(row({"body": body}))
    assert (got.status, got.text, got.thoughts) == (ResponseStatus.SUCCEEDED, "Hi", "Hm.")
    assert read(row(http(chat()), {"code": None, "message": None})).status is ResponseStatus.SUCCEEDED
