"""vLLM's own types accept the input lines that batchpond writes, and batchpond reads the rows that they produce."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from batchpond.model import ErrorClass, Finish, Response, ResponseStatus
from batchpond.providers import registry
from batchpond.providers.compatible.dialect import CHAT
from batchpond.providers.openai.dialect import DIALECT as openai
from batchpond.providers.shared.dialect import ModelSettings
from tests.engine.engines import VLLM, environment, interpreter, stop

DEADLINE_S = 120.0
CID = "abcdefghij-abcdefghijklmnopqrst"
FINISHES = {"stop": Finish.STOP, "length": Finish.LENGTH, "tool_calls": Finish.OTHER, "repetition": Finish.LENGTH}
MESSAGE_CHARS = 4_000

PROVIDER = registry.module("vllm")

many = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
tokens = st.integers(0, 2**40)
errors = st.fixed_dictionaries(
    {
        "message": texts,
        "type": st.sampled_from(["BadRequestError", "NotFoundError", "InternalServerError", "x"]) | texts,
        "param": st.none() | st.sampled_from(["model", "max_completion_tokens"]) | texts,
        "code": st.integers(400, 599),
    }
)


class Types:
    """vLLM's types in the interpreter that has them: one line asked, one line answered."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        """Speak to a running `vllm_rows.py`."""
        self._process = process
        self._log = log

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to one question; a process that hangs is ended, which fails the test."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        guard = Timer(DEADLINE_S, self._process.kill)
        guard.start()
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        finally:
            guard.cancel()
        assert answer, self._log.read_text()[-4_000:]
        found: dict[str, Any] = json.loads(answer)
        return found

    def read(self, line: bytes) -> dict[str, Any]:
        """Return what vLLM understands of an input line."""
        return self.ask({"line": line.decode()})

    def row(self, **ending: Any) -> Response:
        """Return what batchpond reads in the row that vLLM writes for a request that ends so."""
        return self.row_of(CID, **ending)

    def row_of(self, custom_id: str, **ending: Any) -> Response:
        """Like `row`, for a custom_id."""
        row: str = self.ask({"custom_id": custom_id, "ending": ending})["row"]
        found = PROVIDER.read_line(row.encode())
        assert openai.read_line(row.encode()) == found  # files of this form may come under either name
        return found


@contextmanager
def asking(folder: Path) -> Iterator[Types]:
    """Run `vllm_rows.py` until the block ends."""
    log, python = folder / "vllm_rows.log", interpreter(VLLM)
    with log.open("w") as said:
        process = subprocess.Popen(
            [python, Path(__file__).with_name("vllm_rows.py")],
            env=environment(VLLM, folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said,
            text=True, encoding="utf-8", start_new_session=True,
        )  # fmt: skip
    with process:
        try:
            yield Types(process, log)
        finally:
            stop(process)


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Types]:
    """vLLM's types, imported once."""
    with asking(tmp_path_factory.mktemp("types")) as found:
        yield found


# --- what batchpond writes ------------------------------------------------------------------------


@many
@given(prompt=texts, max_tokens=st.none() | st.integers(1, 100_000), temperature=st.none() | st.floats(0, 2))
@example("\u2028\x85\r\n\0\ufeff \U0001f600", 16, 0.0)
def test_input_lines_are_understood_as_they_are_meant(
    vllm: Types, prompt: str, max_tokens: int | None, temperature: float | None
) -> None:
    """Every member of a line arrives with its value, and vLLM ignores none."""
    parameters = {"top_p": 0.5, "seed": 7, "chat_template_kwargs": {"enable_thinking": False}}
    model = ModelSettings(
        "Qwen/Qwen3-0.6B", CHAT, max_output_tokens=max_tokens, temperature=temperature, parameters=parameters
    )
    body = PROVIDER.build_body(prompt, model).body
    line = PROVIDER.payload_line(CID, CHAT, orjson.dumps(body))
    found = vllm.read(line)
    assert "refused" not in found, found
    assert found == {"custom_id": CID, "method": "POST", "url": CHAT, "body": body, "ignored": []}


def test_vllm_says_what_it_does_not_know(vllm: Types) -> None:
    """The test above could fail: a foreign member is named, a line without a body is refused."""
    body = b'{"model":"m","messages":[{"role":"user","content":"Hello"}],"foreign":1}'
    assert vllm.read(PROVIDER.payload_line(CID, CHAT, body))["ignored"] == ["foreign"]
    assert "refused" in vllm.read(PROVIDER.payload_line(CID, CHAT, b"{}"))
    assert "refused" in vllm.read(b'{"custom_id":"a"}')


# --- what batchpond reads -------------------------------------------------------------------------


@many
@given(
    content=st.none() | texts,
    reasoning=st.none() | texts,
    finish=st.sampled_from(sorted(FINISHES)),
    usage=st.tuples(tokens, st.none() | tokens, st.none() | tokens),
    custom_id=texts.filter(bool),
)
def test_answers_are_read_whole(
    vllm: Types,
    content: str | None,
    reasoning: str | None,
    finish: str,
    usage: tuple[int, int | None, int | None],
    custom_id: str,
) -> None:
    """Text, thoughts, reason and tokens of a chat completion, whatever they hold."""
    given_tokens, made_tokens, cached_tokens = usage
    message = {"role": "assistant", "content": content, "reasoning": reasoning}
    found = vllm.row_of(
        custom_id,
        body={
            "model": "noise",
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": {
                "prompt_tokens": given_tokens,
                "completion_tokens": made_tokens,
                "total_tokens": 0,
                "prompt_tokens_details": {"cached_tokens": cached_tokens},
            },
        },
    )
    assert (found.custom_id, found.status, found.status_code) == (custom_id, ResponseStatus.SUCCEEDED, 200)
    assert (found.text, found.thoughts) == (content, reasoning or None)
    assert (found.finish_reason, found.finish, found.response_model) == (finish, FINISHES[finish], "noise")
    assert (found.input_tokens, found.output_tokens, found.cached_tokens) == usage
    assert found.error_class is None
    assert (found.provider_request_id or "").startswith("vllm-batch-")


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_what_vllm_broke_off_is_no_answer(vllm: Types, reason: str) -> None:
    """Half an answer is in a row of status 200; it is worth another try."""
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hal"}, "finish_reason": reason}
    usage = {"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4}
    found = vllm.row(body={"model": "noise", "choices": [choice], "usage": usage})
    assert (found.custom_id, found.status, found.error_class) == (
        CID,
        ResponseStatus.ERRORED,
        ErrorClass.TRANSIENT,
    )
    assert found.text is None


@many
@given(error=errors, is_http=st.booleans())
@example({"message": "x", "type": "t", "param": None, "code": 429}, False)
def test_an_engines_errors_are_read_from_a_row_without_a_body(
    vllm: Types, error: dict[str, Any], is_http: bool
) -> None:
    """Status and message are the engine's own, though vLLM wraps the error object twice."""
    found = vllm.row(**{"http_error" if is_http else "error": error})
    assert (found.custom_id, found.status, found.status_code) == (CID, ResponseStatus.ERRORED, error["code"])
    assert found.error_message == error["message"][:MESSAGE_CHARS]
    assert found.error_code == str(error["code"])
    assert (found.text, found.input_tokens) == (None, None)
    assert (found.provider_request_id or "").startswith("vllm-batch-")


@pytest.mark.parametrize(
    ("kind", "status_code", "error_class"),
    [
        ("value", 400, ErrorClass.PERMANENT),
        ("invalid", 400, ErrorClass.PERMANENT),
        ("runtime", 500, ErrorClass.TRANSIENT),
        ("unsupported", 501, ErrorClass.TRANSIENT),
    ],
)
def test_an_engines_exceptions_are_errors(vllm: Types, kind: str, status_code: int, error_class: ErrorClass) -> None:
    """What breaks inside the engine is worth another try; what it refuses is not."""
    found = vllm.row(raises="it broke", kind=kind)
    assert (found.status, found.status_code) == (ResponseStatus.ERRORED, status_code)
    assert (found.error_class, found.error_message) == (error_class, "it broke")


@many
@given(message=texts.filter(bool))
def test_errors_that_are_plain_text_are_read(vllm: Types, message: str) -> None:
    """Requests that never reach the engine have their error as a string."""
    found = vllm.row(unserved=message)
    assert (found.custom_id, found.status, found.status_code) == (CID, ResponseStatus.ERRORED, 400)
    assert found.error_message == message[:MESSAGE_CHARS]
    assert (found.provider_request_id or "").startswith("vllm-batch-")


def test_an_answer_in_pieces_is_an_error(vllm: Types) -> None:
    """A streamed request has no answer in its row, and is not taken for an empty one."""
    found = vllm.row(streams=True)
    assert (found.status, found.status_code, found.text) == (ResponseStatus.ERRORED, 400, None)
    assert "stream" in (found.error_message or "")
