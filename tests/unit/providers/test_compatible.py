"""OpenAI-compatible hosts: where they are, what they are sent, and servers of one's own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpond.errors import AccessError, UsageError
from batchpond.model import Mode
from batchpond.providers import registry
from batchpond.providers.base import Answered
from batchpond.providers.compatible.dialect import CHAT, HOSTS, NAMES, Compatible
from batchpond.providers.http import keys
from batchpond.providers.http.keys import checked_base
from batchpond.providers.shared.dialect import ModelSettings
from tests.rigs.hostile_server import hostile, reply
from tests.rigs.http import CANARY

KEYLESS = {"vllm", "sglang", "llamacpp", "lmstudio"}
BODY = b'{"model":"m"}'
GOOD = {"choices": [{"message": {"content": "A"}, "finish_reason": "stop"}]}


def host(name: str) -> Compatible:
    module = registry.module(name)
    assert isinstance(module, Compatible)
    return module


def built(name: str, model: str = "some-model", **more: Any) -> dict[str, Any]:
    settings = ModelSettings(model, more.pop("endpoint", CHAT), **more)
    return host(name).build_body("A or B?", settings).body


# --- the table ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_each_row_is_whole(name: str) -> None:
    """An address that is safe, a variable for it, a key, sources; live calls and files, no batches."""
    descriptor = host(name).DESCRIPTOR
    _, origin = checked_base(descriptor.default_base_url)
    assert origin.is_loopback is (name in KEYLESS)
    assert descriptor.base_url_env.endswith("_BASE_URL")
    assert descriptor.key_env
    assert descriptor.notes
    assert descriptor.modes == (Mode.LIVE, Mode.FILES)
    assert (descriptor.is_free, descriptor.needs_key) == (name in KEYLESS, name not in KEYLESS)
    assert not descriptor.is_opaque


def test_no_two_hosts_share_a_name_or_a_variable() -> None:
    """And none has the name of another provider."""
    assert len({row.DESCRIPTOR.name for row in HOSTS}) == len(HOSTS)
    assert len({row.DESCRIPTOR.base_url_env for row in HOSTS}) == len(HOSTS)
    assert not {row.DESCRIPTOR.name for row in HOSTS} & {*registry.NAMES, *registry.LIVE_ONLY}


def test_the_groq_sdks_address_has_no_path() -> None:
    """As its SDK does, a base URL without a path gets the host's own; one with a path is taken as it is."""
    for tail, path in (("", "/openai/v1/chat/completions"), ("/proxy/v1", "/proxy/v1/chat/completions")):
        with hostile(reply(GOOD)) as server:
            root = server.url.removesuffix("/v1")
            live = registry.connect_live("groq", environ={"GROQ_BASE_URL": root + tail, "GROQ_API_KEY": CANARY})
            assert isinstance(live.ask(CHAT, "m", BODY, 5.0), Answered)
            live.close()
        assert server.requests[0].path == path
        assert server.requests[0].headers["authorization"] == f"Bearer {CANARY}"


@pytest.mark.parametrize("name", sorted(KEYLESS))
def test_a_server_of_ones_own_needs_no_key(name: str) -> None:
    """No key, no header; a key that is set is sent."""
    row = host(name).DESCRIPTOR
    for environ in ({}, {row.key_env[0]: ""}, {row.key_env[0]: CANARY}):
        with hostile(reply(GOOD)) as server:
            live = registry.connect_live(name, environ={row.base_url_env: server.url, **environ})
            assert isinstance(live.ask(CHAT, "m", BODY, 5.0), Answered)
            live.close()
        sent = server.requests[0].headers.get("authorization")
        assert sent == (f"Bearer {CANARY}" if CANARY in environ.values() else None)


def test_a_host_of_others_needs_a_key() -> None:
    """The error names the variable."""
    with pytest.raises(AccessError, match="XAI_API_KEY"):
        registry.connect_live("xai", environ={})


def test_http_to_another_machine_is_for_calls_without_a_key() -> None:
    """A cluster's node is asked over http; a key does not travel there in clear."""
    environ = {"VLLM_BASE_URL": "http://gpu-1:8000/v1"}
    assert registry.connect_live("vllm", environ=environ).host == "gpu-1:8000"
    with pytest.raises(UsageError, match="https"):
        registry.connect_live("vllm", environ=environ | {"VLLM_API_KEY": CANARY})
    with pytest.raises(UsageError, match="https"):
        registry.connect_live("xai", environ={"XAI_BASE_URL": "http://gpu-1:8000/v1", "XAI_API_KEY": CANARY})


# --- compatible-NAME ------------------------------------------------------------------------------


def test_a_server_by_a_name_of_ones_own() -> None:
    """Its address and its key are the environment's, whatever a study's file says."""
    with hostile(reply(GOOD)) as server:
        environ = {
            "LAB_GPU_1_BASE_URL": server.url,
            "LAB_GPU_1_API_KEY": CANARY,
            "OPENAI_API_KEY": "sk-another-0123456",
        }
        live = registry.connect_live("compatible-lab-gpu-1", environ=environ)
        assert isinstance(live.ask(CHAT, "m", BODY, 5.0), Answered)
        assert live.start("m").scope == f"compatible-lab-gpu-1/127.0.0.1:{server.port}"
        live.close()
    assert {seen.headers["authorization"] for seen in server.requests} == {f"Bearer {CANARY}"}


def test_a_server_without_an_address_is_an_error() -> None:
    """Which names the variable, at the latest when it is asked."""
    assert host("compatible-lab").DESCRIPTOR.base_url_env == "LAB_BASE_URL"
    with pytest.raises(UsageError, match="LAB_BASE_URL is not set"):
        registry.connect_live("compatible-lab", environ={})


BAD_NAMES = ("", "A", "a b", "a--b", "-a", "a/b", "\u00e4", "1a", "a" * 41)


@pytest.mark.parametrize("name", [f"compatible-{name}" for name in BAD_NAMES])
def test_a_name_that_makes_no_variable_is_refused(name: str) -> None:
    """Before it could stand in a path or a variable."""
    with pytest.raises(UsageError, match="no server of one's own") as caught:
        registry.module(name)
    assert caught.value.hint


@given(st.text(max_size=12))
def test_any_name_is_a_provider_or_a_clear_error(name: str) -> None:
    """And a provider's variables are its own name's."""
    try:
        module = registry.module(f"compatible-{name}")
    except UsageError:
        return
    assert module.DESCRIPTOR.base_url_env == f"{name.replace('-', '_').upper()}_BASE_URL"


@pytest.mark.parametrize(
    ("name", "near"), [("deepseak", "deepseek"), ("olama", "ollama"), ("vlm", "vllm"), ("grok", "groq")]
)
def test_a_name_that_is_nearly_one_is_guessed(name: str, near: str) -> None:
    """Did you mean."""
    with pytest.raises(UsageError) as caught:
        registry.module(name)
    assert caught.value.hint == f"did you mean {near!r}?"


def test_all_that_take_live_calls_are_listed() -> None:
    """With the providers that have batches too."""
    names = [descriptor.name for descriptor in registry.all_descriptors() if Mode.LIVE in descriptor.modes]
    assert {"openai", "anthropic", "gemini", "together", "ollama", *NAMES} <= set(names)
    assert len(set(names)) == len(names)
    assert "vertex" not in names


def test_keys_are_listed_without_showing_any() -> None:
    """Rows for live providers too, whatever form their addresses have."""
    environ = {"OLLAMA_HOST": "0.0.0.0:81", "VLLM_BASE_URL": "http://gpu-1:8000/v1", "XAI_API_KEY": CANARY}
    rows = {row.provider: row for row in keys.listing(registry.all_descriptors(), environ)}
    assert rows["ollama"].base_url_host == "127.0.0.1:81"
    assert rows["vllm"].base_url_host == "gpu-1:8000"
    assert rows["xai"].is_found
    assert CANARY not in repr(rows)


def test_a_key_is_checked_with_one_free_call() -> None:
    """And one that is refused is a problem of its own provider alone."""
    refusal = {"code": "invalid argument", "error": "Incorrect API key provided"}
    with hostile(reply(refusal, 400)) as bad, hostile(reply({"data": []})) as good:
        environ = {"XAI_API_KEY": CANARY, "XAI_BASE_URL": bad.url, "GROQ_API_KEY": CANARY, "GROQ_BASE_URL": good.url}
        checks = {check.row.provider: check for check in registry.check_keys(environ=environ)}
    assert "XAI_API_KEY was refused" in (checks["xai"].problem or "")
    assert (checks["groq"].scope, checks["groq"].problem) == (f"groq/127.0.0.1:{good.port}", None)
    assert checks["vllm"].problem == "VLLM_API_KEY is not set"
    assert len(bad.requests) == len(good.requests) == 1


# --- bodies ---------------------------------------------------------------------------------------


def test_a_plain_body() -> None:
    """The prompt, and nothing that was not asked for."""
    assert built("vllm") == {"model": "some-model", "messages": [{"role": "user", "content": "A or B?"}]}


@pytest.mark.parametrize("name", NAMES)
def test_the_limit_goes_by_the_hosts_word(name: str) -> None:
    """`max_completion_tokens` where `max_tokens` is on its way out."""
    body = built(name, max_output_tokens=64, temperature=0.5)
    word = "max_completion_tokens" if name in {"xai", "groq", "cerebras"} else "max_tokens"
    assert (body[word], body["temperature"]) == (64, 0.5)
    assert not {"max_tokens", "max_completion_tokens"} - {word} & body.keys()


@pytest.mark.parametrize(
    ("name", "model", "thinking", "expected"),
    [
        ("xai", "grok-4.3", "low", {"reasoning_effort": "low"}),
        ("xai", "grok-3-mini", "high", {"reasoning_effort": "high"}),
        ("deepseek", "deepseek-v4-pro", "none", {"thinking": {"type": "disabled"}}),
        ("deepseek", "deepseek-v4-pro", "max", {"thinking": {"type": "enabled"}, "reasoning_effort": "max"}),
        ("groq", "openai/gpt-oss-120b", "medium", {"reasoning_effort": "medium"}),
        ("groq", "qwen/qwen3-32b", "none", {"reasoning_effort": "none"}),
        ("groq", "qwen/qwen3-32b", "enabled", {"reasoning_effort": "default"}),
        ("mistral", "magistral-medium-latest", "enabled", {"prompt_mode": "reasoning"}),
        ("openrouter", "any/model", "xhigh", {"reasoning": {"effort": "xhigh"}}),
        ("openrouter", "any/model", "none", {"reasoning": {"enabled": False}}),
        ("vllm", "openai/gpt-oss-20b", "low", {"reasoning_effort": "low"}),
        ("vllm", "Qwen/Qwen3-8B", "none", {"chat_template_kwargs": {"enable_thinking": False}}),
        ("compatible-lab", "qwen3-8b", "enabled", {"chat_template_kwargs": {"enable_thinking": True}}),
        ("llamacpp", "gpt-oss-20b.gguf", "high", {"chat_template_kwargs": {"reasoning_effort": "high"}}),
    ],
)
def test_thinking_in_each_hosts_words(name: str, model: str, thinking: str, expected: dict[str, Any]) -> None:
    """A word becomes what this host understands for this family, and nothing else changes."""
    plain = built(name, model)
    assert built(name, model, thinking=thinking) == plain | expected


@pytest.mark.parametrize(
    ("name", "model", "thinking"),
    [("groq", "llama-3.3-70b", "low"), ("xai", "grok-4-0709", "low"), ("vllm", "Qwen/Qwen3-8B", "high"),
     ("deepseek", "deepseek-v4-pro", "medium"), ("lmstudio", "qwen3-8b", "none"), ("vllm", "llama", "enabled")],
)  # fmt: skip
def test_a_word_that_means_nothing_there_is_refused_at_plan(name: str, model: str, thinking: str) -> None:
    """Sent all the same it would be ignored, and the study would compare levels that do not differ."""
    with pytest.raises(UsageError) as caught:
        built(name, model, thinking=thinking)
    assert thinking in caught.value.message
    assert model in caught.value.message
    assert caught.value.hint
    assert thinking not in host(name).words(model)


@pytest.mark.parametrize("row", HOSTS, ids=lambda row: row.DESCRIPTOR.name)
def test_every_word_of_the_table_builds(row: Any) -> None:
    """Accepted words and built words are the same set."""
    for family in row.families:
        model = f"{family.prefix or 'any'}-1"
        for word in row.words(model):
            body = built(row.DESCRIPTOR.name, model, thinking=word)
            assert json.dumps(body)
            assert body != built(row.DESCRIPTOR.name, model)


@pytest.mark.parametrize("name", ["messages", "model", "stream", "n"])
def test_what_a_study_sets_elsewhere_is_no_parameter(name: str) -> None:
    """Nor what would break the reading of answers."""
    with pytest.raises(UsageError, match=name):
        built("vllm", parameters={name: 1})


def test_parameters_pass_as_written_but_never_twice() -> None:
    """The server's own words are the way to what the table does not know."""
    assert built("vllm", parameters={"top_k": 5, "chat_template_kwargs": {"a": 1}})["chat_template_kwargs"] == {"a": 1}
    with pytest.raises(UsageError, match="max_tokens"):
        built("vllm", max_output_tokens=5, parameters={"max_tokens": 6})
    with pytest.raises(UsageError, match="reasoning_effort"):
        built("groq", "gpt-oss-20b", thinking="low", parameters={"reasoning_effort": "high"})


def test_other_endpoints_are_refused() -> None:
    """There is one that all of them have."""
    with pytest.raises(UsageError, match="/v1/responses"):
        built("vllm", endpoint="/v1/responses")
    assert host("vllm").endpoint_for("m", True, 0.0) == CHAT


def test_a_line_for_vllm_run_batch() -> None:
    """Its url is the endpoint, its body what a live call sends."""
    line = json.loads(host("vllm").payload_line("a-1", CHAT, b'{"model":"m"}'))
    assert line == {"custom_id": "a-1", "method": "POST", "url": CHAT, "body": {"model": "m"}}
