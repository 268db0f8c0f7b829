"""Where OpenAI-compatible chat endpoints are and how their words differ from OpenAI's, as data.

Sources: [sdk] the hosts' own SDKs: groq 1.7 `_client.py`, xai-sdk 1.21 `chat.py`, together 3.1; [mis] Mistral's
OpenAPI file of 2026-08; [ds] api-docs.deepseek.com "thinking mode", 2026-11; [groq] console.groq.com "reasoning";
[or] openrouter.ai "reasoning tokens"; [cer] inference-docs.cerebras.ai "reasoning"; [fw] Fireworks' reasoning guide;
[vllm] vLLM's reasoning guide; [llama] llama.cpp `tools/server/README.md`; [lms] LM Studio's OpenAI-compatibility
page; [us] the variable is batchpond's own, after the others' pattern. Rows marked `uncertain` rest on documents
that do not agree, or on none: such a host may refuse a word with a 400, which is kept as the request's error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from batchpond.providers.shared.live import ANY_RATES, NO_RATES, Per, RateNames, rate_limit

Words = Mapping[str, Mapping[str, Any]]
"""Thinking words, and what each puts into a body."""


def _efforts(*words: str) -> dict[str, Mapping[str, Any]]:
    return {word: {"reasoning_effort": word} for word in words}


def _template(**words: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {word: {"chat_template_kwargs": value} for word, value in words.items()}


def _switch(name: str) -> dict[str, Mapping[str, Any]]:
    return _template(none={name: False}, enabled={name: True})


@dataclass(frozen=True, slots=True)
class Family:
    """Models that take the same thinking words: those whose name, without its maker, begins with `prefix`."""

    prefix: str
    words: Words
    source: str


_ANY_MODEL: Final = ("",)


@dataclass(frozen=True, slots=True)
class Host:
    """One host, or one kind of server; `base_path` is what its SDK adds to a base URL without a path.

    `schema_prefixes` begin the names of the models whose answers can be held to a JSON schema; () is none.
    `reasoning_is_apart` where `completion_tokens` leave the reasoning out. `is_free` for servers of one's own.
    `price_name` is what the price data call the host.
    """

    name: str
    base_url: str
    base_url_env: str
    key_env: tuple[str, ...]
    families: tuple[Family, ...]
    source: str
    limit_name: str = "max_tokens"
    base_path: str = ""
    rates: RateNames = ANY_RATES
    is_free: bool = False
    reasoning_is_apart: bool = False
    schema_prefixes: tuple[str, ...] = _ANY_MODEL
    caveats: tuple[str, ...] = ()
    price_name: str | None = None


_GROQ_RATES: Final = RateNames((rate_limit("requests", Per.UNKNOWN),), (rate_limit("tokens"),))
_MISTRAL_RATES: Final = RateNames(
    (rate_limit("req-minute"), rate_limit("requests")), (rate_limit("tokens-minute"), rate_limit("tokens"))
)
_LOW_TO_HIGH: Final = ("low", "medium", "high")
_NONE: Final[Words] = {}
_GPT_OSS: Final = Family("gpt-oss", _efforts(*_LOW_TO_HIGH), "[vllm] [groq]")
_DEEPSEEK: Final[Words] = {
    "none": {"thinking": {"type": "disabled"}},
    "enabled": {"thinking": {"type": "enabled"}},
    **{word: {"thinking": {"type": "enabled"}, "reasoning_effort": word} for word in ("low", "high", "max")},
}
_OPENROUTER: Final[Words] = {word: {"reasoning": {"effort": word}} for word in ("minimal", *_LOW_TO_HIGH, "xhigh")} | {
    "none": {"reasoning": {"enabled": False}},
    "enabled": {"reasoning": {"enabled": True}},
}
OWN_FAMILIES: Final = (
    _GPT_OSS,
    Family("qwen3", _switch("enable_thinking"), "[vllm]"),
    Family("glm-4", _switch("enable_thinking"), "[vllm]"),
    Family("deepseek-v3", _switch("thinking"), "[vllm]"),
    Family("deepseek-v4", _switch("thinking"), "[vllm]; uncertain"),
)
_LLAMACPP: Final = (
    Family("gpt-oss", _template(**{word: {"reasoning_effort": word} for word in _LOW_TO_HIGH}), "[llama]"),
    Family("qwen3", _switch("enable_thinking"), "[llama]"),
)
_SILENT: Final = "this server cuts a prompt that is longer than its context, or refuses it: start it with enough"

HOSTS: Final = (
    Host(
        "xai",
        "https://api.x.ai/v1",
        "XAI_BASE_URL",
        ("XAI_API_KEY",),
        (
            Family("grok-3-mini", _efforts("low", "high"), "[sdk]"),
            Family("grok-4-0709", _NONE, "third-party guides: refuses reasoning_effort"),
            Family("grok-4-fast", _NONE, "third-party guides: refuses reasoning_effort"),
            Family("grok-code-fast", _NONE, "third-party guides: refuses reasoning_effort"),
            Family("grok-4", _efforts("none", *_LOW_TO_HIGH, "xhigh"), "[sdk]; xhigh for some models only: uncertain"),
        ),
        "[sdk] for the key; base URL: docs.x.ai; variable [us]",
        price_name="x-ai",
        limit_name="max_completion_tokens",
        reasoning_is_apart=True,
    ),
    Host(
        "deepseek",
        "https://api.deepseek.com/v1",
        "DEEPSEEK_BASE_URL",
        ("DEEPSEEK_API_KEY",),
        (Family("deepseek-v4", _DEEPSEEK, "[ds]"),),
        "[ds]; variable of the base URL [us]",
        rates=NO_RATES,
        schema_prefixes=(),  # [ds]: an answer can be held to JSON, not to a schema
        caveats=(
            'DeepSeek\'s models think unless told not to (`thinking = ["none"]`), and then ignore a temperature',
            "DeepSeek tells no limits: a call waits in its queue, with blank lines to keep it alive",
        ),
    ),
    Host(
        "groq",
        "https://api.groq.com/openai/v1",
        "GROQ_BASE_URL",
        ("GROQ_API_KEY",),
        (
            _GPT_OSS,
            Family(
                "qwen3", {"none": {"reasoning_effort": "none"}, "enabled": {"reasoning_effort": "default"}}, "[groq]"
            ),
        ),
        "[sdk]",
        limit_name="max_completion_tokens",
        base_path="/openai/v1",
        rates=_GROQ_RATES,
        schema_prefixes=("gpt-oss",),  # [groq]: other models refuse a strict schema
        caveats=("Groq limits requests per day and tokens per minute, for the whole organisation",),
    ),
    Host(
        "mistral",
        "https://api.mistral.ai/v1",
        "MISTRAL_BASE_URL",
        ("MISTRAL_API_KEY",),
        (
            Family("magistral", {"enabled": {"prompt_mode": "reasoning"}}, "[mis]"),
            Family("mistral-", _efforts("none", "minimal", *_LOW_TO_HIGH, "xhigh"), "[mis]; newer models: uncertain"),
        ),
        "[mis]; variable of the base URL [us]",
        rates=_MISTRAL_RATES,
    ),
    Host(
        "fireworks",
        "https://api.fireworks.ai/inference/v1",
        "FIREWORKS_BASE_URL",
        ("FIREWORKS_API_KEY",),
        (_GPT_OSS, Family("", _efforts("none", *_LOW_TO_HIGH), "[fw]; uncertain which models")),
        "fireworks-ai 1.2 `_client.py`",
        base_path="/inference/v1",
    ),
    Host(
        "openrouter",
        "https://openrouter.ai/api/v1",
        "OPENROUTER_BASE_URL",
        ("OPENROUTER_API_KEY",),
        (Family("", _OPENROUTER, "[or]: made to fit each model by OpenRouter"),),
        "[or]; variable of the base URL [us]",
        caveats=("OpenRouter chooses who answers: fix it with the parameter `provider`, or the judge may change",),
    ),
    Host(
        "cerebras",
        "https://api.cerebras.ai/v1",
        "CEREBRAS_BASE_URL",
        ("CEREBRAS_API_KEY",),
        (_GPT_OSS,),
        "[cer]",
        limit_name="max_completion_tokens",
        base_path="/v1",
    ),
    Host(
        "deepinfra",
        "https://api.deepinfra.com/v1/openai",
        "DEEPINFRA_BASE_URL",
        ("DEEPINFRA_API_KEY", "DEEPINFRA_TOKEN"),
        (_GPT_OSS,),
        "deepinfra.com docs; variable of the base URL [us]",
        schema_prefixes=(),  # deepinfra.com docs: an answer can be held to JSON; a schema is uncertain
    ),
    Host(
        "vllm",
        "http://127.0.0.1:8000/v1",
        "VLLM_BASE_URL",
        ("VLLM_API_KEY",),
        OWN_FAMILIES,
        "[vllm]; VLLM_API_KEY is the server's own variable",
        base_path="/v1",
        is_free=True,
    ),
    Host(
        "sglang",
        "http://127.0.0.1:30000/v1",
        "SGLANG_BASE_URL",
        ("SGLANG_API_KEY",),
        OWN_FAMILIES,
        "SGLang's OpenAI-compatible API page; variables [us]",
        base_path="/v1",
        is_free=True,
    ),
    Host(
        "llamacpp",
        "http://127.0.0.1:8080/v1",
        "LLAMACPP_BASE_URL",
        ("LLAMA_API_KEY",),
        _LLAMACPP,
        "[llama]; LLAMA_API_KEY is the server's own variable",
        base_path="/v1",
        is_free=True,
        caveats=(_SILENT,),
    ),
    Host(
        "lmstudio",
        "http://127.0.0.1:1234/v1",
        "LMSTUDIO_BASE_URL",
        ("LMSTUDIO_API_KEY",),
        (_GPT_OSS,),
        "[lms]; variables [us]",
        base_path="/v1",
        is_free=True,
        caveats=(_SILENT,),
    ),
)
