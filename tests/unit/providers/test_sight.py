"""What models can be shown, in the words of the official SDKs, and how many tokens it is by the providers' guides."""

from __future__ import annotations

import re
from typing import Any, get_args, get_type_hints

import orjson
import pytest
from anthropic import types as anthropic_types
from google.genai import types as google_types
from groq.types.chat.completion_create_params import CompletionCreateParams as groq_params
from mistralai.client.models import ChatCompletionRequest
from ollama._types import ChatRequest, Image, Message
from pydantic import TypeAdapter, ValidationError
from together.types.chat.completion_create_params import CompletionCreateParamsNonStreaming as together_params

from batchpond.model import Media, Role, Turn
from batchpond.plan.cells import canonical
from batchpond.providers import registry
from batchpond.providers.shared.dialect import PAGES_UNKNOWN, UNKNOWN_TOKENS, ModelSettings
from tests.unit.providers.test_anthropic_body import validated
from tests.unit.providers.test_openai_body import needs_spec, validator

PNG = Media("image/png", "a" * 64, 900, 1024, 1024)
PDF = Media("application/pdf", "b" * 64, 5_000, n_pages=3)
ADDRESS = Media("image/*", url="https://example.org/cat.png")
DOCUMENT_ADDRESS = Media("application/pdf", url="https://example.org/cats.pdf")
MODELS = {
    "openai": "gpt-4.1-mini",
    "anthropic": "claude-haiku-4-5",
    "gemini": "gemini-2.5-flash-lite",
    "vertex": "gemini-2.5-flash-lite",
    "together": "Qwen/Qwen2.5-VL-72B-Instruct",
    "mistral": "mistral-medium-latest",
    "groq": "meta-llama/llama-4-scout-17b-16e-instruct",
    "xai": "grok-4",
    "ollama": "gemma3",
    "vllm": "Qwen/Qwen3-VL-8B",
    "compatible-mine": "anything",
}
ENDPOINTS = [(name, endpoint) for name in MODELS for endpoint in registry.module(name).DESCRIPTOR.endpoints]


def body_of(provider: str, endpoint: str, *shown: Media) -> dict[str, Any]:
    """Return a body that shows something between texts, as it is kept, read back."""
    parts = tuple(part for one in shown for part in ("Look:", one))
    turns = (Turn(Role.SYSTEM, "Be fair."), Turn(Role.USER, "Look:" * len(shown) + "Which?", (*parts, "Which?")))
    settings = ModelSettings(MODELS[provider], endpoint, max_output_tokens=50)
    body: dict[str, Any] = orjson.loads(canonical(registry.module(provider).build_body(turns, settings).body))
    return body


def seen(provider: str, endpoint: str, *media: Media) -> list[Media]:
    """Return what of these a provider's model can be shown."""
    sight = registry.module(provider).sight
    return [one for one in media if sight.refusal(MODELS[provider], one, endpoint) is None]


@pytest.mark.parametrize(("provider", "endpoint"), ENDPOINTS)
def test_what_is_shown_stands_in_the_body_in_order(provider: str, endpoint: str) -> None:
    """Each picture and document once, between its texts; Ollama alone has no place for it."""
    shown = seen(provider, endpoint, PNG, PDF, ADDRESS, DOCUMENT_ADDRESS)
    assert PNG in shown
    said = orjson.dumps(body_of(provider, endpoint, *shown)).decode()
    marks = [one.url or f"/blob/{one.sha256}.{one.size_bytes}" for one in shown]
    assert [said.count(mark) for mark in marks] == [1] * len(marks)
    assert said.count("Look:") == len(shown)
    if provider != "ollama":
        places = [match.start() for match in re.finditer("|".join(map(re.escape, [*marks, "Look:", "Which"])), said)]
        assert places == sorted(places)
        found = [match[0] for match in re.finditer("|".join(map(re.escape, [*marks, "Look:", "Which"])), said)]
        assert found == [part for mark in marks for part in ("Look:", mark)] + ["Which"]


@pytest.mark.parametrize(
    ("endpoint", "name", "schema"),
    [
        ("/v1/chat/completions", "messages", "ChatCompletionRequestMessage"),
        # A list as content is a message of two kinds there, of which `input` as a whole may be but one.
        ("/v1/responses", "input", "EasyInputMessage"),
    ],
)
def test_openai_bodies_validate_against_the_official_schema(endpoint: str, name: str, schema: str) -> None:
    """Pictures, documents and addresses, in OpenAI's own OpenAPI document; a form of another endpoint does not."""
    needs_spec()
    messages = body_of("openai", endpoint, *seen("openai", endpoint, PNG, PDF, ADDRESS, DOCUMENT_ADDRESS))[name]
    assert [error.message for message in messages for error in validator(schema).iter_errors(message)] == []
    for part in ({"type": "image", "source": {}}, {"type": "input_image"}, {"type": "image_url"}):
        assert not validator(schema).is_valid({"role": "user", "content": [part]})


def test_anthropic_bodies_are_of_the_official_type() -> None:
    """Nothing missing, nothing unknown, no wrong value: every block is of the SDK's own type for it."""
    body = body_of("anthropic", "/v1/messages", PNG, PDF, ADDRESS, DOCUMENT_ADDRESS)
    assert validated(body)["messages"][0]["role"] == "user"
    types = anthropic_types
    blocks = {"text": types.TextBlockParam, "image": types.ImageBlockParam, "document": types.DocumentBlockParam}
    for block in body["messages"][0]["content"]:
        assert TypeAdapter(blocks[block["type"]]).validate_python(block) == block
    with pytest.raises(ValidationError):
        TypeAdapter(types.ImageBlockParam).validate_python({"type": "image", "source": {"type": "base64"}})


@pytest.mark.parametrize("provider", ["gemini", "vertex"])
def test_google_bodies_are_of_the_official_type(provider: str) -> None:
    """Contents as google-genai reads them, which forbids what it does not know."""
    body = body_of(provider, "generateContent", PNG, PDF)
    (content,) = body["contents"]
    read = google_types.Content.model_validate({**content, "parts": [_with_bytes(part) for part in content["parts"]]})
    kinds = [part.inline_data.mime_type if part.inline_data else part.text for part in read.parts or ()]
    assert kinds == ["Look:", "image/png", "Look:", "application/pdf", "Which?"]


@pytest.mark.parametrize(("provider", "params"), [("groq", groq_params), ("together", together_params)])
def test_groq_and_together_bodies_are_of_the_official_types(provider: str, params: Any) -> None:
    """What the system says, pictures and addresses, as the types of their SDKs read messages; no other form."""
    kind = TypeAdapter(get_args(get_type_hints(params)["messages"])[0])
    system, asked = body_of(provider, "/v1/chat/completions", *seen(provider, "/v1/chat/completions", PNG, ADDRESS))[
        "messages"
    ]
    assert kind.validate_python(system) == system == {"role": "system", "content": "Be fair."}
    assert [*kind.validate_python(asked)["content"]] == asked["content"]  # parts are read as they are taken
    assert [part["type"] for part in asked["content"]] == ["text", "image_url", "text", "image_url", "text"]
    for part in ({"type": "image", "source": {}}, {"type": "image_url", "image_url": "x"}):
        with pytest.raises(ValidationError):
            list(kind.validate_python(asked | {"content": [part]})["content"])


def _with_bytes(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part as it is sent."""
    return {"inlineData": part["inlineData"] | {"data": "aGVsbG8="}} if "inlineData" in part else part


def test_mistral_and_ollama_bodies_are_of_the_official_types() -> None:
    """The SDKs' models take the messages."""
    read = ChatCompletionRequest.model_validate(body_of("mistral", "/v1/chat/completions", PNG, ADDRESS))
    kinds = [chunk.type for chunk in read.messages[1].content]  # type: ignore[union-attr]
    assert kinds == ["text", "image_url", "text", "image_url", "text"]
    body = body_of("ollama", "/api/chat", PNG)
    images = [message.pop("images", None) for message in body["messages"]]
    assert images == [None, [f"/blob/{PNG.sha256}.{PNG.size_bytes}"]]
    sent = Message(role="user", content="x", images=[Image(value="aGVsbG8=")]).model_dump()
    assert sent["images"] == ["aGVsbG8="]  # as ours are: base64 without anything around it
    assert ChatRequest.model_validate(body).model == MODELS["ollama"]


def tokens(provider: str, model: str, width: int, height: int) -> tuple[int, bool]:
    """Return how many tokens a picture counts as, and whether that is documented."""
    return registry.module(provider).sight.tokens(model, Media("image/png", "a" * 64, 9, width, height))


@pytest.mark.parametrize(
    ("provider", "model", "size", "expected"),
    [
        # OpenAI's guide "images and vision": its own examples.
        ("openai", "gpt-4o", (1024, 1024), 765),
        ("openai", "gpt-4o-2024-08-06", (2048, 4096), 1105),
        ("openai", "gpt-4.1", (1024, 1024), 765),
        ("openai", "gpt-5", (1024, 1024), 70 + 4 * 140),
        ("openai", "gpt-4o-mini", (512, 512), 2833 + 5667),
        ("openai", "gpt-4.1-mini", (1024, 1024), 1659),
        ("openai", "o4-mini", (1024, 1024), 1762),
        # Anthropic's guide "vision": a token for every 28 x 28 pixels.
        ("anthropic", "claude-haiku-4-5", (200, 200), 64),
        ("anthropic", "claude-sonnet-4-5-20250929", (1000, 1000), 36 * 36),
        ("anthropic", "claude-haiku-4-5", (1920, 1080), 1568),
        ("anthropic", "claude-opus-4-8", (1920, 1080), 69 * 39),
        ("anthropic", "claude-opus-5", (1920, 1080), 69 * 39),
        # Google's guide "image understanding".
        ("gemini", "gemini-2.5-flash", (384, 384), 258),
        ("gemini", "gemini-2.5-flash", (960, 540), 6 * 258),
        ("vertex", "publishers/google/models/gemini-2.5-pro", (960, 540), 6 * 258),
        ("gemini", "gemini-3.5-flash", (4000, 3000), 1120),
        # Together's guide "vision".
        ("together", "meta-llama/Llama-4-Scout", (500, 500), 1601),
        ("together", "meta-llama/Llama-4-Scout", (2000, 2000), 6404),
        # Mistral's page "vision" and mistral-common: a token a square, and one at the end of each row.
        ("mistral", "pixtral-12b-2409", (640, 480), 40 * 30 + 30),
        ("mistral", "pixtral-large-2411", (1024, 1024), 4096 + 64),
        ("mistral", "pixtral-12b-2409", (2048, 4096), 32 * 64 + 64),
        ("mistral", "mistral-small-2506", (1540, 1540), 3025 + 55),
        ("mistral", "mistral-medium-2508", (280, 141), 10 * 6 + 6),
        ("mistral", "mistral-large-2512", (3080, 1540), 55 * 28 + 28),
        ("mistral", "ministral-8b-2512", (28, 28), 2),
        ("mistral", "magistral-medium-2509", (1540, 1540), 3025 + 55),
    ],
)
def test_tokens_are_those_of_the_guides(provider: str, model: str, size: tuple[int, int], expected: int) -> None:
    """Of a picture that is shrunk they are the most that it can be."""
    assert tokens(provider, model, *size) == (expected, True)


def test_a_shrunk_picture_is_never_counted_too_low() -> None:
    """OpenAI's example: 1800 x 2400 pixels become 1452 patches; at most 1536 fit."""
    found, is_known = tokens("openai", "gpt-4.1-mini", 1800, 2400)
    assert is_known
    assert 1452 * 1.62 <= found <= 1536 * 1.62 + 1


def test_what_nobody_documents_counts_as_very_large() -> None:
    """Also an address, whose picture nobody has seen, and a document whose pages cannot be told."""
    assert tokens("xai", "grok-4", 300, 300) == (UNKNOWN_TOKENS, False)
    assert tokens("openai", "gpt-6-sol", 300, 300) == (UNKNOWN_TOKENS, False)
    assert tokens("groq", "meta-llama/llama-4-scout-17b-16e-instruct", 300, 300) == (UNKNOWN_TOKENS, False)
    for newer in ("mistral-medium-latest", "mistral-medium-3-5", "mistral-large-4", "mistral-small-2603"):
        assert tokens("mistral", newer, 300, 300) == (UNKNOWN_TOKENS, False), newer
    openai, anthropic = registry.module("openai").sight, registry.module("anthropic").sight
    assert openai.tokens("gpt-4o", ADDRESS) == (UNKNOWN_TOKENS, False)
    assert anthropic.tokens("claude-haiku-4-5", PDF) == (3 * 4568, True)
    unseen = Media("application/pdf", "b" * 64, 5_000)
    assert anthropic.tokens("claude-haiku-4-5", unseen) == (UNKNOWN_TOKENS * PAGES_UNKNOWN, False)


@pytest.mark.parametrize(
    ("provider", "model", "media", "why"),
    [
        ("openai", "gpt-3.5-turbo", PNG, "neither pictures nor documents"),
        ("openai", "gpt-4-0613", PNG, "neither pictures nor documents"),
        ("openai", "o3-mini", PNG, "neither pictures nor documents"),
        ("deepseek", "deepseek-chat", PNG, "neither pictures nor documents"),
        ("groq", "openai/gpt-oss-20b", PNG, "neither pictures nor documents"),
        ("gemini", "gemini-2.5-flash", Media("image/gif", "a" * 64, 9, 3, 3), "takes no image/gif"),
        ("mistral", "mistral-medium-latest", PDF, "takes no application/pdf"),
        ("gemini", "gemini-2.5-flash", ADDRESS, "takes no addresses"),
        ("xai", "grok-4", ADDRESS, "takes no addresses"),
        ("xai", "grok-4", DOCUMENT_ADDRESS, "takes no addresses of documents"),
        ("mistral", "mistral-medium-latest", DOCUMENT_ADDRESS, "takes no addresses of documents"),
        ("gemini", "gemini-2.5-flash", DOCUMENT_ADDRESS, "takes no addresses of documents"),
        ("anthropic", "claude-haiku-4-5", Media("image/png", "a" * 64, 5_000_001, 3, 3), "5,000,000 bytes at once"),
        ("anthropic", "claude-haiku-4-5", Media("image/png", "a" * 64, 9, 300, 8_001), "8,000 pixels a side"),
    ],
)
def test_what_a_model_cannot_be_shown_is_said(provider: str, model: str, media: Media, why: str) -> None:
    """By type, size, address, or because it sees nothing."""
    assert why in (registry.module(provider).sight.refusal(model, media) or "")


def test_the_address_of_a_document_goes_where_an_endpoint_takes_it() -> None:
    """Never as a picture: in the form of a document, at OpenAI's responses and at Anthropic."""
    for provider, endpoint in ENDPOINTS:
        is_taken = provider == "anthropic" or (provider, endpoint) == ("openai", "/v1/responses")
        assert bool(seen(provider, endpoint, DOCUMENT_ADDRESS)) == is_taken
    _, shown, _ = body_of("openai", "/v1/responses", DOCUMENT_ADDRESS)["input"][-1]["content"]
    assert shown == {"type": "input_file", "file_url": DOCUMENT_ADDRESS.url}
    _, shown, _ = body_of("anthropic", "/v1/messages", DOCUMENT_ADDRESS)["messages"][-1]["content"]
    assert shown == {"type": "document", "source": {"type": "url", "url": DOCUMENT_ADDRESS.url}}


def test_models_that_see_are_not_taken_for_blind() -> None:
    """The names of blind models begin like theirs."""
    for name in (
        "gpt-4o",
        "gpt-4-turbo",
        "gpt-4-turbo-2024-04-09",
        "gpt-4.1",
        "gpt-5",
        "o1",
        "o3",
        "o4-mini",
        "gpt-6-sol",
    ):
        assert registry.module("openai").sight.refusal(name, PNG) is None, name
