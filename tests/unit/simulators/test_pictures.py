"""Simulators count what a body shows by the arithmetic of the providers' guides."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from batchpond_sim.judges.speech import shown_tokens
from tests.rigs.pictures import golden, png


def body_of(content: bytes, kind: str = "image/png") -> list[dict[str, Any]]:
    """Return messages that show one thing."""
    source = {"type": "base64", "media_type": kind, "data": base64.b64encode(content).decode()}
    return [{"role": "user", "content": [{"type": "image", "source": source}, {"type": "text", "text": "Which?"}]}]


@pytest.mark.parametrize(
    ("model", "width", "height", "n_tokens"),
    [
        ("gpt-4o", 1024, 1024, 765),  # OpenAI's own example: 768 x 768, four tiles
        ("gpt-4o", 2048, 4096, 1105),  # and its other: 768 x 1536, six tiles
        ("gpt-4.1-mini", 1024, 1024, 1659),  # 1,024 patches of 32 pixels, 1.62 tokens each
        ("gpt-4.1-mini", 1800, 2400, 2353),  # its example of one that is shrunk: 1,452 patches
        ("claude-haiku-4-5", 280, 140, 50),
        ("gemini-2.5-flash", 300, 200, 258),
        ("gemini-2.5-flash", 960, 540, 1548),  # Google's own example: six crops of 360 pixels
        ("gemini-3.5-flash", 960, 540, 1120),
        ("Qwen/Qwen2.5-VL-72B-Instruct", 1100, 300, 3202),
        ("ministral-8b-2512", 280, 56, 22),  # two rows of ten, each with a token of its own
        ("grok-4.3", 960, 540, 0),  # not documented
    ],
)
def test_pictures_are_counted_as_the_guide_of_their_model_does(
    model: str, width: int, height: int, n_tokens: int
) -> None:
    assert shown_tokens(model, body_of(png(width, height))) == n_tokens


def test_a_document_counts_by_its_pages_and_a_text_as_nothing() -> None:
    """Where the guide says what a page is."""
    content, about = golden()["pdf"]
    assert shown_tokens("claude-haiku-4-5", body_of(content, "application/pdf")) == 4_568 * about["pages"]
    assert shown_tokens("gpt-4o", [{"role": "user", "content": "A text."}]) == 0
