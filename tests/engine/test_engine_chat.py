"""Real engines with a model of noise answer the official SDK: what a live study talks to is no simulator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
from openai.types.chat import ChatCompletion

from tests.engine.engines import ENGINES, MODEL, Engine, Running, running

N_AT_ONCE = 8


@pytest.fixture(scope="module", params=ENGINES, ids=lambda engine: engine.name)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A real engine that answers, started for this module."""
    kind: Engine = request.param
    with running(kind, tmp_path_factory.mktemp(kind.name)) as found:
        yield found


@pytest.fixture
def client(engine: Running) -> Iterator[openai.OpenAI]:
    """The official SDK, without retries."""
    with openai.OpenAI(base_url=engine.base_url, api_key="none", max_retries=0, timeout=60) as found:
        yield found


def ask(client: openai.OpenAI, prompt: str, max_tokens: int = 48) -> ChatCompletion:
    """Ask for the likeliest answer."""
    return client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": prompt}],
        max_tokens=max_tokens,  # the older word, which every engine knows
        temperature=0,
    )


def test_an_answer_has_text_a_reason_and_tokens(client: openai.OpenAI) -> None:
    """Every token of a prompt is one byte, so the engine's own count can be checked."""
    answer = ask(client, "Which is better, a or ä?")
    choice, usage = answer.choices[0], answer.usage
    assert choice.finish_reason in ("stop", "length")
    assert choice.message.content is not None
    assert usage is not None
    n_marks = 3  # user, end, assistant
    assert usage.prompt_tokens == len("Which is better, a or ä?".encode()) + n_marks
    assert 0 < usage.completion_tokens <= 48
    assert answer.model.startswith(MODEL)


@pytest.mark.parametrize("max_tokens", [1, 7, 30])
def test_the_limit_of_tokens_is_honoured(client: openai.OpenAI, max_tokens: int) -> None:
    """An answer that was cut says so and has exactly as many tokens as were allowed."""
    answers = [ask(client, f"Question {number}", max_tokens) for number in range(6)]
    for answer in answers:
        assert answer.usage is not None
        is_cut = answer.choices[0].finish_reason == "length"
        assert answer.usage.completion_tokens == max_tokens if is_cut else answer.usage.completion_tokens <= max_tokens
    assert any(answer.choices[0].finish_reason == "length" for answer in answers)


def test_many_at_once_get_each_their_own_answer(client: openai.OpenAI) -> None:
    """The likeliest answers to prompts asked together are those of the same prompts asked alone."""
    prompts = [f"Sample {number}. " * (1 + number % 5) for number in range(16)]
    with ThreadPoolExecutor(N_AT_ONCE) as threads:
        together = list(threads.map(lambda prompt: ask(client, prompt), prompts))
    reasons = Counter(answer.choices[0].finish_reason for answer in together)
    texts = [answer.choices[0].message.content for answer in together]
    assert set(reasons) == {"stop", "length"}
    assert len(set(texts)) > len(prompts) // 2
    for prompt, text in list(zip(prompts, texts, strict=True))[:4]:
        assert ask(client, prompt).choices[0].message.content == text


def test_a_model_that_is_not_there_is_a_clear_error(engine: Running, client: openai.OpenAI) -> None:
    """A wrong model name is a client error, not an answer of another model; llama.cpp's server has only one."""
    if engine.engine.takes_any_model:
        assert client.chat.completions.create(
            model="other", messages=[{"role": "user", "content": "Hello"}], max_tokens=8
        ).choices
        return
    with pytest.raises((openai.NotFoundError, openai.BadRequestError)) as caught:
        client.chat.completions.create(model="other", messages=[{"role": "user", "content": "Hello"}])
    assert "other" in caught.value.response.text  # not the SDK's own message: engines word their errors as they like
