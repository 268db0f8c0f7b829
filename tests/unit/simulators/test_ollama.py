"""The simulated Ollama is one as far as the official SDK and the documented facts can tell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import ollama
import pytest

from batchpond_sim.host.server import Running, running
from batchpond_sim.ollama.api import MODELS, fitted
from batchpond_sim.world.world import Settings
from tests.rigs.simulator import FIRST, SECOND, prompt

GOOD, BAD = "[[quality=0.9]] a fine text", "[[quality=0.1]] a poor one"
PLAIN, THINKER, LEVELLED = "llama3.2", "qwen3:8b", "gpt-oss:20b"


@pytest.fixture
def sim() -> Iterator[Running]:
    with running(Settings()) as run:
        yield run


@pytest.fixture
def client(sim: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[ollama.Client]:
    monkeypatch.delenv("OLLAMA_API_KEY", raising=False)
    with ollama.Client(host=sim.base_url_of("ollama"), timeout=20) as sdk:
        yield sdk


def asked(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def test_a_chat_names_the_better_sample_with_times_in_nanoseconds(sim: Running, client: ollama.Client) -> None:
    said = client.chat(model=PLAIN, messages=asked(prompt(GOOD, BAD)), stream=False)
    assert FIRST in str(said.message.content)
    assert (said.model, said.done, said.done_reason) == (PLAIN, True, "stop")
    assert said.message.thinking is None
    assert said.prompt_eval_count
    assert said.eval_count
    assert said.total_duration is not None
    assert said.total_duration > 1_000_000_000
    assert sum(d or 0 for d in (said.load_duration, said.prompt_eval_duration, said.eval_duration)) == (
        said.total_duration
    )
    assert sim.world.snapshot()["live"]["input_tokens"] == said.prompt_eval_count


def test_an_answer_streams_unless_told_not_to_and_ends_with_done(sim: Running, client: ollama.Client) -> None:
    messages = asked(prompt(GOOD, BAD))
    parts = list(client.chat(model=THINKER, messages=messages, stream=True))
    whole = client.chat(model=THINKER, messages=messages, stream=False)
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert "".join(part.message.content or "" for part in parts) == whole.message.content
    assert "".join(part.message.thinking or "" for part in parts) == whole.message.thinking
    raw = httpx.post(f"{sim.base_url_of('ollama')}/api/chat", json={"model": PLAIN, "messages": messages})
    assert raw.headers["content-type"] == "application/x-ndjson"
    assert json.loads(raw.text.splitlines()[-1])["done"] is True


def test_generate_answers_a_bare_prompt(client: ollama.Client) -> None:
    said = client.generate(model=PLAIN, prompt=prompt(BAD, GOOD), system="Be brief.")
    assert SECOND in str(said.response)
    assert said.done_reason == "stop"


def test_thinking_is_apart_from_the_text_and_can_be_switched_off(client: ollama.Client) -> None:
    messages = asked(prompt(GOOD, BAD))
    by_default, off = (client.chat(model=THINKER, messages=messages, think=think) for think in (None, False))
    assert by_default.message.thinking
    assert "<think>" not in (by_default.message.content or "")
    assert off.message.thinking is None
    low, high = (client.chat(model=LEVELLED, messages=messages, think=level) for level in ("low", "high"))
    assert (low.eval_count or 0) < (high.eval_count or 0)


@pytest.mark.parametrize(
    ("model", "more", "status", "says"),
    [
        (PLAIN, {"think": True}, 400, '"llama3.2" does not support thinking'),
        ("nope", {}, 404, "model 'nope' not found"),
        (PLAIN, {"options": {"num_ctx": "big"}}, 400, 'option "num_ctx" must be of type integer'),
        (THINKER, {"think": "enormous"}, 400, "invalid think value"),
        (PLAIN, {"keep_alive": "soon"}, 400, "invalid duration"),
        (PLAIN, {"format": "xml"}, 400, "invalid format"),
        ("", {}, 400, "model is required"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_plain_string_and_not_billed(
    sim: Running, model: str, more: dict[str, Any], status: int, says: str
) -> None:
    body = {"model": model, "messages": asked("hello"), "stream": False, **more}
    answer = httpx.post(f"{sim.base_url_of('ollama')}/api/chat", json=body)
    assert answer.status_code == status
    assert says in answer.json()["error"]
    assert sim.world.ledger.live.n_billed == 0


def test_the_sdk_raises_what_the_server_says(client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError, match="not found") as caught:
        client.chat(model="nope", messages=asked("hello"))
    assert caught.value.status_code == 404


def test_a_prompt_beyond_num_ctx_is_cut_without_a_word(client: ollama.Client) -> None:
    long = prompt(GOOD + " word" * 6000, BAD)
    cut = client.chat(model=PLAIN, messages=asked(long))
    assert cut.prompt_eval_count == 4096
    wide = client.chat(model=PLAIN, messages=asked(long), options={"num_ctx": 32_768})
    assert (wide.prompt_eval_count or 0) > 7000
    assert FIRST in (wide.message.content or "")


def test_a_prompt_that_must_not_be_cut_is_refused_and_an_answer_that_must_not_shift_ends(sim: Running) -> None:
    url = f"{sim.base_url_of('ollama')}/api/chat"
    body = {"model": PLAIN, "messages": asked("word " * 6000), "stream": False, "truncate": False}
    answer = httpx.post(url, json=body)
    assert answer.status_code == 400
    error = json.loads(answer.json()["error"])["error"]
    assert (error["type"], error["n_ctx"]) == ("exceed_context_size_error", 4096)
    assert httpx.post(url, json=body | {"options": {"num_ctx": 16_384}}).status_code == 200
    tight = body | {"messages": asked(prompt(GOOD, BAD)), "shift": False, "options": {"num_ctx": 64}}
    said = httpx.post(url, json=tight | {"truncate": True}).json()
    assert said["done_reason"] == "length"
    assert said["prompt_eval_count"] + said["eval_count"] <= 65


def test_the_oldest_messages_go_first_and_the_system_message_stays() -> None:
    messages = [
        {"role": "system", "content": "judge fairly"},
        *({"role": "user", "content": f"turn {i} " + "x" * 400} for i in range(10)),
    ]
    text, n_tokens = fitted(messages, 256)
    assert text.startswith("judge fairly")
    assert "turn 9" in text
    assert "turn 0" not in text
    assert n_tokens <= 256
    assert fitted(messages, 4096)[0].count("turn") == 10


def test_a_prompt_that_is_still_in_memory_has_no_prompt_eval_count(client: ollama.Client) -> None:
    first, again = (client.chat(model=PLAIN, messages=asked("hello")) for _ in range(2))
    assert first.prompt_eval_count
    assert again.prompt_eval_count is None
    assert (again.load_duration or 0) < (first.load_duration or 0)
    assert client.chat(model=PLAIN, messages=asked("other")).prompt_eval_count


def test_num_predict_cuts_the_answer_and_says_length(client: ollama.Client) -> None:
    said = client.chat(model=PLAIN, messages=asked(prompt(GOOD, BAD)), options={"num_predict": 3})
    assert (said.done_reason, said.eval_count) == ("length", 3)


def test_a_model_stays_loaded_for_keep_alive_and_zero_unloads_it(sim: Running, client: ollama.Client) -> None:
    def loaded() -> list[str | None]:
        return [row.model for row in client.ps().models]

    client.chat(model=PLAIN, messages=asked("hello"), options={"num_ctx": 8192})
    (row,) = client.ps().models
    assert (row.model, row.context_length) == ("llama3.2:latest", 8192)
    assert client.chat(model=PLAIN, messages=[], keep_alive=0).done_reason == "unload"
    assert loaded() == []
    assert client.generate(model=THINKER, keep_alive="90s").done_reason == "load"
    assert loaded() == [THINKER]
    sim.world.advance(91)
    assert loaded() == []
    client.chat(model=THINKER, messages=asked("hello"), keep_alive=-1)
    sim.world.advance(1e6)
    assert loaded() == [THINKER]
    client.chat(model=THINKER, messages=asked("hello"), keep_alive=0)
    assert loaded() == []
    for name in MODELS:
        client.generate(model=name)
    assert len(loaded()) == 3
    assert sim.world.ledger.live.n_billed == 3


def test_models_are_listed_and_shown(sim: Running, client: ollama.Client) -> None:
    assert [row.model for row in client.list().models] == list(MODELS)
    assert client.show(THINKER).capabilities == ["completion", "thinking"]
    assert client.show(PLAIN).capabilities == ["completion"]
    with pytest.raises(ollama.ResponseError):
        client.show("nope")
    root = sim.base_url_of("ollama")
    assert httpx.get(f"{root}/").text == httpx.get(root).text == "Ollama is running"
    assert httpx.head(f"{root}/").status_code == 200
    assert httpx.get(f"{root}/api/version").json()["version"]
    assert httpx.get(f"{root}/api/nothing").status_code == 404


def test_a_full_queue_is_503_without_any_header(sim: Running, client: ollama.Client) -> None:
    sim.world.add_limit("*:rpm=60,burst=1")
    client.chat(model=PLAIN, messages=asked("hello"))
    with pytest.raises(ollama.ResponseError, match="maximum pending requests exceeded") as caught:
        client.chat(model=PLAIN, messages=asked("hello"))
    assert caught.value.status_code == 503


@pytest.mark.parametrize(("fault", "error"), [("truncate=0.5", None), ("stream_error", ollama.ResponseError),
                                              ("reset_at=300", httpx.ReadError)])  # fmt: skip
def test_a_stream_that_breaks_off_never_says_done(
    sim: Running, client: ollama.Client, fault: str, error: type[Exception] | None
) -> None:
    sim.world.add_fault(f"live@1:{fault}")
    seen: list[Any] = []

    def listen() -> None:
        seen.extend(client.chat(model=PLAIN, messages=asked(prompt(GOOD, BAD)), stream=True))

    if error is None:
        listen()
    else:
        with pytest.raises(error):
            listen()
    assert not any(part.done for part in seen)
    assert sim.world.ledger.live.n_billed == 1
