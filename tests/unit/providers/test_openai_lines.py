"""Reading OpenAI result lines: every row shape, and any bytes at all."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchpond.model import ErrorClass, FileRole, Finish, Response, ResponseStatus
from batchpond.providers.openai.batch import read_line

CID = "abcdefghij-abcdefghijklmnopqrst"
USAGE = {
    "prompt_tokens": 8,
    "completion_tokens": 5,
    "total_tokens": 13,
    "prompt_tokens_details": {"cached_tokens": 3},
    "completion_tokens_details": {"reasoning_tokens": 2},
}


def read(line: bytes) -> Response:
    return read_line(line, FileRole.OUTPUT)


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
        (responses(status="incomplete"), Finish.OTHER, None, None),
    ],
)
def test_why_the_model_stopped(
    body: Any, finish: Finish | None, expected_text: str | None, refusal: str | None
) -> None:
    """Truncation, refusal, filter, emptiness and the rest are told apart."""
    got = read(row(http(body)))
    assert got.status is ResponseStatus.SUCCEEDED
    assert (got.finish, got.text, got.refusal) == (finish, expected_text, refusal)


def api_error(message: str = "no", code: Any = None, kind: str = "invalid_request_error") -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


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
        (row(http(api_error(), 404)), "errored", "permanent"),
        (row(http("<html>", 502)), "errored", "transient"),
        (row(http(None, 500)), "errored", "transient"),
        (row(http({}, 0)), "errored", "transient"),
        (row(http(chat(), 0)), "errored", "transient"),
        (row(http(None, None)), "errored", "transient"),
        (row(http(chat(), "abc")), "errored", "transient"),
        (row(http(api_error("late", "server_error"))), "errored", "transient"),
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
)
def test_errors_keep_their_class(line: bytes, status: str, error_class: str) -> None:
    """What may pass, what will not, whose bill, whose key: told apart, and never a success."""
    got = read(line)
    assert (got.status, got.error_class) == (ResponseStatus(status), ErrorClass(error_class))
    assert got.text is None
    assert got.custom_id == CID
    assert got.input_tokens is None


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
        b'{"custom_id":"a","custom_id":"b","response":null}',
        b'{"custom_id":"a","custom_id":"a"}',
        b"{}",
        row(None, None),
        row(http([], 200)),
        row("x"),
        json.dumps({"custom_id": CID, "response": {"status_code": 200}}).encode(),
    ],
)
def test_what_cannot_be_read_is_unreadable_and_not_an_exception(line: bytes) -> None:
    """Broken, foreign, too deep, doubled: the line is kept raw and counted."""
    got = read(line)
    assert got.status is ResponseStatus.UNREADABLE
    assert got.error_class is ErrorClass.UNREADABLE
    assert got.error_message


@pytest.mark.parametrize("value", [None, 7, 7.0, True, [], {}, ""])
def test_only_a_string_is_a_custom_id(value: Any) -> None:
    """Nothing is trimmed, converted or guessed."""
    assert read(row(http(chat()), custom_id=value)).custom_id is None
    assert read(row(http(chat()), custom_id="7 ")).custom_id == "7 "


def test_a_row_that_names_two_custom_ids_is_nobodys_answer() -> None:
    """Parsers disagree on which one counts, so neither gets a good answer."""
    good = row(http(chat()))
    for other in (CID, "someone-else"):
        got = read(b'{"custom_id":"' + other.encode() + b'",' + good[1:])
        assert got.status is ResponseStatus.UNREADABLE
        assert got.custom_id is None


def test_custom_id_as_a_value_or_nested_key_is_no_duplicate() -> None:
    """Only two at the top of the row make it unreadable."""
    error = {"message": "m", "param": "custom_id", "code": "duplicate_custom_id"}
    assert read(row(http({"error": error}, 400))).custom_id == CID
    got = read(row(http(chat({"content": 'say "custom_id"', "custom_id": "x"}))))
    assert (got.custom_id, got.text) == (CID, 'say "custom_id"')


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (rb"a\ud83d b", "a\ufffd b"),
        (rb"a\ude00\ud83d", "a\ufffd\ufffd"),
        (rb"\ud83d\ude00", "\U0001f600"),
        (b"a\xffb", "a\ufffdb"),
        (b"\xe2\x80\xa8\xc2\x85", "\u2028\u0085"),
        (rb"a\u0000b", "a\x00b"),
    ],
)
def test_text_is_always_valid_utf8(raw: bytes, expected: str) -> None:
    """Lone surrogates and invalid bytes become U+FFFD, in content strings and in parts."""
    plain = row(http(chat({"content": "@@"}))).replace(b"@@", raw)
    parts = row(http(chat({"content": [{"type": "text", "text": "@@"}]}))).replace(b"@@", raw)
    assert read(plain).text == read(parts).text == expected


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-0", b"9" * 5000, b"1.5"])
def test_numbers_that_json_parsers_choke_on_do_not_cost_the_answer(number: bytes) -> None:
    """The text survives; a count that is no count is None."""
    got = read(row(http(chat(usage=USAGE | {"prompt_tokens": 12345678}))).replace(b"12345678", number))
    assert got.text == "Hello"
    assert got.input_tokens in (None, 0)
    assert got.output_tokens == 5


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


def test_a_byte_order_mark_and_a_carriage_return_are_ignored() -> None:
    """Files that passed through other tools keep their answers."""
    assert read(b"\xef\xbb\xbf" + row(http(chat())) + b"\r").text == "Hello"


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


def sometimes(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return strategy | ANYTHING


def thing(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({}, optional={name: sometimes(value) for name, value in members.items()})


ERROR = thing(
    code=st.sampled_from(["batch_expired", "server_error", 400]), message=st.text(st.characters()), type=st.text()
)
PART = thing(type=st.sampled_from(["text", "refusal", "output_text", "summary_text"]), text=st.text(st.characters()))
CONTENT = st.text(st.characters()) | st.lists(sometimes(PART), max_size=2)
MESSAGE = thing(content=CONTENT, refusal=st.text(), reasoning=st.text())
ITEM = thing(
    type=st.sampled_from(["message", "reasoning"]), content=CONTENT, summary=st.lists(sometimes(PART), max_size=2)
)
CHOICE = thing(message=MESSAGE, finish_reason=st.sampled_from(["stop", "length", "content_filter"]))
BODY = thing(
    object=st.sampled_from(["response", "chat.completion"]),
    model=st.text(),
    status=st.sampled_from(["completed", "failed", "incomplete", "queued"]),
    choices=st.lists(sometimes(CHOICE), max_size=2),
    output=st.lists(sometimes(ITEM), max_size=2),
    error=ERROR,
    incomplete_details=thing(reason=st.just("max_output_tokens")),
    usage=thing(prompt_tokens=st.integers(), input_tokens=st.integers(), output_tokens_details=ANYTHING),
)
ROW = thing(
    custom_id=st.text(st.characters()),
    response=thing(status_code=st.sampled_from([200, 0, 429, "200"]), request_id=st.text(), body=BODY),
    error=ERROR,
)


@settings(max_examples=400)
@given(ROW)
def test_any_row_of_roughly_the_right_shape_gives_a_response(value: Any) -> None:
    """Wrong types in every place, lone surrogates and NaN included."""
    check(read(json.dumps(value).encode("utf-8", "surrogatepass")))


@given(st.text(st.characters(codec="utf-8")))
def test_the_two_parsers_agree(content: str) -> None:
    """A line that the fast parser reads gives the same Response through the careful one."""
    body = http(chat({"content": content}))
    fast = orjson.dumps({"custom_id": CID, "response": body, "error": None})
    slow = b"\xef\xbb\xbf" + fast
    assert read(fast) == read(slow)
    assert read(fast).text == content
