"""Ollama: addresses in every form, contexts that no prompt outgrows, and the models in its memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ollama
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpond.errors import ProviderError, UsageError
from batchpond.model import Mode, PricedModel, ResponseStatus
from batchpond.providers import registry
from batchpond.providers.base import Answered
from batchpond.providers.http.keys import checked_base, completed
from batchpond.providers.ollama.live import (
    ANSWER_TOKENS,
    CHAT,
    CONTEXT_MIN_TOKENS,
    DIALECT,
    TEMPLATE_TOKENS,
    context_tokens,
)
from batchpond.providers.shared.dialect import ModelSettings
from batchpond.study.prices import Prices
from batchpond_sim.host.server import Running, running
from tests.rigs.hostile_server import HostileServer, hostile, reply
from tests.rigs.http import CANARY


def built(prompt: str = "A or B?", model: str = "llama3.2", **more: Any) -> dict[str, Any]:
    return DIALECT.build_body(prompt, ModelSettings(model, more.pop("endpoint", CHAT), **more)).body


# --- addresses ------------------------------------------------------------------------------------

EVERYWHERE = "0.0.0.0"  # noqa: S104  # read, not bound
HOSTS = [
    ("1.2.3.4", "http://1.2.3.4:11434"),
    (":56789", "http://127.0.0.1:56789"),
    ("1.2.3.4:56789", "http://1.2.3.4:56789"),
    ("http://1.2.3.4", "http://1.2.3.4"),
    ("https://ollama.com", "https://ollama.com"),
    ("https://1.2.3.4:56789", "https://1.2.3.4:56789"),
    ("example.com", "http://example.com:11434"),
    ("example.com/", "http://example.com:11434/"),
    ("example.com/path", "http://example.com:11434/path"),
    ("example.com:56789/path", "http://example.com:56789/path"),
    ("[::1]", "http://[::1]:11434"),
    ("[::1]:56789", "http://[::1]:56789"),
    ("http://[::1]", "http://[::1]"),
    (EVERYWHERE, "http://127.0.0.1:11434"),
    ("0.0.0.0:8080", "http://127.0.0.1:8080"),
    ("http://0.0.0.0:8080", "http://127.0.0.1:8080"),
    ("[::]:8080", "http://[::1]:8080"),
    (" 1.2.3.4 ", "http://1.2.3.4:11434"),
]


@pytest.mark.parametrize(("written", "url"), HOSTS)
def test_the_forms_of_ollama_host(written: str, url: str) -> None:
    """As Ollama's SDK reads them; an address that a server listens on everywhere is this machine."""
    assert completed(written, 11_434) == url
    assert (
        registry.connect_live("ollama", environ={"OLLAMA_HOST": written}).host
        == checked_base(url, has_key=False)[1].name
    )


@pytest.mark.parametrize(
    "written", [written for written, _ in HOSTS if EVERYWHERE not in written and "::]" not in written]
)
def test_addresses_agree_with_the_official_sdk(written: str) -> None:
    """Its own reading of each form, but for the scheme's own port, which it writes out."""
    with ollama.Client(written.strip()) as official:
        theirs = checked_base(str(official._client.base_url), has_key=False)[1]
    assert checked_base(completed(written, 11_434), has_key=False)[1] == theirs


@given(st.from_regex(r"[a-z0-9.-]{1,20}", fullmatch=True), st.none() | st.integers(1, 65535))
def test_any_host_and_port_are_kept(host: str, port: int | None) -> None:
    """Nothing is lost between what was written and where the calls go."""
    written = host if port is None else f"{host}:{port}"
    expected = "127.0.0.1" if host == EVERYWHERE else host
    assert completed(written, 11_434) == f"http://{expected}:{port or 11_434}"


@pytest.mark.parametrize("written", ["http://", "http://a b", "a@b", "user:word@host", "::::"])
def test_an_address_that_cannot_be_read_is_a_clear_error(written: str) -> None:
    """Before anything is sent."""
    with pytest.raises(UsageError):
        registry.connect_live("ollama", environ={"OLLAMA_HOST": written})


def test_no_address_is_this_machine_and_a_key_is_for_the_cloud() -> None:
    """The key goes over https alone, or to this machine."""
    assert registry.connect_live("ollama", environ={}).is_loopback
    cloud = {"OLLAMA_HOST": "https://ollama.com", "OLLAMA_API_KEY": CANARY}
    assert registry.connect_live("ollama", environ=cloud).host == "ollama.com"
    with pytest.raises(UsageError, match="https"):
        registry.connect_live("ollama", environ={"OLLAMA_HOST": "gpu-1", "OLLAMA_API_KEY": CANARY})


# --- bodies ---------------------------------------------------------------------------------------


def test_a_plain_body() -> None:
    """Whole answers, no silent cuts, and a context of its own."""
    assert built() == {
        "model": "llama3.2",
        "messages": [{"role": "user", "content": "A or B?"}],
        "stream": False,
        "truncate": False,
        "shift": False,
        "options": {"num_ctx": CONTEXT_MIN_TOKENS},
    }


def test_the_official_sdks_types_take_the_options() -> None:
    """Every option that is set is one that Ollama knows."""
    body = built(max_output_tokens=64, temperature=0.2, parameters={"seed": 7, "top_k": 5, "keep_alive": "10m"})
    assert body["options"] == {"num_ctx": 8192, "num_predict": 64, "temperature": 0.2, "seed": 7, "top_k": 5}
    assert ollama.Options(**body["options"]).model_dump(exclude_none=True) == body["options"]
    assert body["keep_alive"] == "10m"


@given(st.text(max_size=400).map(lambda text: text * 60), st.none() | st.integers(1, 100_000))
def test_a_prompt_and_its_answer_fit_into_the_context(prompt: str, limit: int | None) -> None:
    """Counted as a token for every two bytes; a power of two, so that few contexts are ever loaded."""
    tokens = context_tokens(prompt, limit)
    needed = len(prompt.encode("utf-8", "replace")) // 2 + TEMPLATE_TOKENS + (ANSWER_TOKENS if limit is None else limit)
    assert tokens >= max(needed, CONTEXT_MIN_TOKENS)
    assert tokens & (tokens - 1) == 0
    assert tokens == CONTEXT_MIN_TOKENS or tokens < 2 * needed


def test_the_context_can_be_fixed() -> None:
    """One size for all prompts loads the model once."""
    assert built(parameters={"num_ctx": 32_768})["options"]["num_ctx"] == 32_768


@pytest.mark.parametrize(
    ("model", "word", "think"),
    [("qwen3:8b", "none", False), ("qwen3:8b", "enabled", True), ("gpt-oss:20b", "low", "low"),
     ("gpt-oss:120b-cloud", "high", "high"), ("library/gpt-oss", "medium", "medium")],
)  # fmt: skip
def test_thinking(model: str, word: str, think: bool | str) -> None:
    """A switch, or a level for gpt-oss."""
    assert built(model=model, thinking=word)["think"] == think
    assert "think" not in built(model=model)


@pytest.mark.parametrize(("model", "word"), [("gpt-oss:20b", "none"), ("gpt-oss:20b", "enabled"), ("qwen3", "high"),
                                             ("qwen3", "4096")])  # fmt: skip
def test_thinking_that_ollama_would_ignore_is_refused(model: str, word: str) -> None:
    """gpt-oss takes no switch, the others no level."""
    with pytest.raises(UsageError, match="it accepts"):
        built(model=model, thinking=word)


@pytest.mark.parametrize("name", ["model", "messages", "stream", "think", "options", "num_predict", "temperature"])
def test_what_a_study_sets_elsewhere_is_no_parameter(name: str) -> None:
    """The error says what sets it."""
    with pytest.raises(UsageError, match=name) as caught:
        built(parameters={name: 1})
    assert caught.value.hint


def test_what_ollama_has_not() -> None:
    """Batches, files, other endpoints."""
    with pytest.raises(UsageError):
        DIALECT.payload_line("a-1", CHAT, b"{}")
    with pytest.raises(UsageError, match="/api/generate"):
        built(endpoint="/api/generate")
    assert DIALECT.DESCRIPTOR.modes == (Mode.LIVE,)


def test_it_costs_nothing() -> None:
    """A price of 0, not an unknown one; a cloud model says that prompts leave the machine."""
    unit = Prices().unit(PricedModel("ollama", "llama3.2", Mode.LIVE))
    assert unit is not None
    assert unit.cost_usd(1_000_000, 0, 1_000_000) == 0.0
    assert DIALECT.caveats("gpt-oss:120b-cloud")
    assert not DIALECT.caveats("llama3.2")


# --- models in memory -----------------------------------------------------------------------------


def server_of(*replies: Any) -> Any:
    return hostile(*(reply(*one) if isinstance(one, tuple) else reply(one) for one in replies))


def started(server: HostileServer, model: str) -> list[tuple[str, str, Any]]:
    live = registry.connect_live("ollama", environ={"OLLAMA_HOST": server.url.removesuffix("/v1")})
    try:
        live.start(model)
    finally:
        live.close()
    return [(seen.method, seen.path, json.loads(seen.body or b"null")) for seen in server.requests]


TAGS = {"models": [{"name": "llama3.2:latest"}, {"name": "qwen3:8b"}]}


@pytest.mark.parametrize("model", ["llama3.2", "llama3.2:latest", "qwen3:8b"])
def test_a_model_that_is_there_is_let_alone(model: str) -> None:
    """Names without a tag are `latest`."""
    with server_of(TAGS, {"models": []}) as server:
        assert [call[:2] for call in started(server, model)] == [("GET", "/api/tags"), ("GET", "/api/ps")]


def test_other_models_are_unloaded_first() -> None:
    """Each of them, and never the one that is wanted."""
    loaded = {"models": [{"name": "qwen3:8b"}, {"name": "llama3.2:latest"}, {"name": "phi4:latest"}]}
    with server_of(TAGS, loaded, {"done": True}) as server:
        calls = started(server, "llama3.2")
    unloaded = [body for method, path, body in calls if path == "/api/generate"]
    assert sorted(body["model"] for body in unloaded) == ["phi4:latest", "qwen3:8b"]
    assert {body["keep_alive"] for body in unloaded} == {0}


def test_a_model_that_is_not_there_says_how_to_get_it() -> None:
    """Nothing is unloaded for it."""
    missing = {"error": "model 'nope' not found"}
    with server_of(TAGS, (missing, 404)) as server, pytest.raises(ProviderError, match="'nope'") as caught:
        started(server, "nope")
    assert "ollama pull nope" in (caught.value.hint or "")
    assert [seen.path for seen in server.requests] == ["/api/tags", "/api/show"]


def test_a_model_of_the_cloud_is_there_without_being_listed() -> None:
    """What `show` knows can be asked; the cloud shows no memory."""
    with server_of({"models": []}, {"details": {}}, ({"error": "not found"}, 404)) as server:
        assert [path for _, path, _ in started(server, "gpt-oss:120b")] == ["/api/tags", "/api/show", "/api/ps"]


def test_no_server_is_a_clear_error() -> None:
    """With what to do next."""
    with hostile() as server:
        url = server.url
    live = registry.connect_live("ollama", environ={"OLLAMA_HOST": url})
    with pytest.raises(ProviderError, match="connect"):
        live.start("llama3.2")
    live.close()


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Run the simulator once for this module."""
    folder: Path = tmp_path_factory.mktemp("ollama")
    with running(state_dir=folder) as sim:
        yield sim


def test_a_long_prompt_is_read_whole(simulator: Running) -> None:
    """The simulator cuts a prompt beyond num_ctx as Ollama does: the count shows that nothing was cut."""
    prompt = "Which is better? " * 2_000
    body = built(prompt, max_output_tokens=64)
    live = registry.connect_live("ollama", environ={"OLLAMA_HOST": simulator.base_url_of("ollama")})
    live.start("llama3.2")
    answer = live.ask(CHAT, "llama3.2", json.dumps(body).encode(), 10.0)
    assert isinstance(answer, Answered)
    found = DIALECT.read_answer(answer.status_code, answer.body)
    assert found.status is ResponseStatus.SUCCEEDED
    assert 4_096 < (found.input_tokens or 0) < body["options"]["num_ctx"]
    short = body | {"options": {"num_ctx": 2_048}, "truncate": True, "shift": True}
    cut = live.ask(CHAT, "llama3.2", json.dumps(short).encode(), 10.0)
    live.close()
    assert isinstance(cut, Answered)
    assert (DIALECT.read_answer(cut.status_code, cut.body).input_tokens or 0) <= 2_048


def test_only_the_wanted_model_stays_loaded(simulator: Running) -> None:
    """Switching models leaves one in memory, as the official SDK sees it."""
    url = simulator.base_url_of("ollama")
    live = registry.connect_live("ollama", environ={"OLLAMA_HOST": url})
    for model in ("llama3.2:latest", "gpt-oss:20b"):
        live.start(model)
        live.ask(CHAT, model, json.dumps(built(model=model)).encode(), 10.0)
        with ollama.Client(url) as official:
            assert [row.model for row in official.ps().models] == [model]
    live.close()
