"""How long an answer is expected to be before there is any: by what is asked for, and by how hard a model thinks."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchpond.plan.cells import length_of
from batchpond.providers import registry
from batchpond.study import file as study_file
from batchpond.study.prices import Length

STUDY = """
study = "lengths"
task = "prompts"
[items]
path = "texts.csv"
[[templates]]
id = "own"
text = '''{INPUT}
%s'''
[answer]
form = "regex"
pattern = "(?P<score>[1-9])"
score_min = 1
score_max = 9
[[models]]
provider = "openai"
model = "gpt-4o"
%s
"""


def length(folder: Path, asks: str, more: str = "") -> Length:
    """Return how long an answer to a template is expected to be."""
    (folder / "texts.csv").write_text("id,text\nt1,Words.\n")
    (folder / "study.toml").write_text(STUDY % (asks, more))
    (stage,) = study_file.load(folder / "study.toml").stages
    return length_of(stage, stage.templates[0])


@pytest.mark.parametrize(
    ("asks", "tokens"),
    [
        ("Reply with one digit and nothing else.", 10),
        ("Reply with a digit only.", 10),
        ("Do not explain anything, just give the digit.", 10),
        ("Rate it from 1 to 9.", 60),
        ("Give a digit and say why.", 60),
        ("Think step by step, then give a digit.", 190),
        ("Explain your choice, and end your reply with exactly one digit.", 190),
        ('Reply with JSON: {"score": 1, "kind": "a word"}', 12),
        ('Reply with JSON and nothing else: {"why": "a sentence", "score": 1}', 62),
    ],
)
def test_an_answer_is_as_long_as_its_template_asks_for(tmp_path: Path, asks: str, tokens: int) -> None:
    assert length(tmp_path, asks) == Length(tokens)


@pytest.mark.parametrize(
    ("provider", "model", "thinking", "effort"),
    [
        ("openai", "gpt-4.1-mini", "default", "none"),
        ("openai", "gpt-5-mini", "default", "medium"),
        ("openai", "gpt-5.4", "default", "none"),
        ("openai", "gpt-5.4", "high", "high"),
        ("openai", "nobody-knows-it", "default", "default"),
        ("anthropic", "claude-haiku-4-5", "default", "none"),
        ("anthropic", "claude-haiku-4-5", "low", "2048"),
        ("anthropic", "claude-sonnet-4-6", "low", "low"),
        ("anthropic", "claude-opus-5", "default", "high"),
        ("gemini", "gemini-2.0-flash", "default", "none"),
        ("gemini", "gemini-2.5-flash", "default", "medium"),
        ("gemini", "gemini-2.5-flash", "medium", "8192"),
        ("gemini", "gemini-2.5-flash-lite", "default", "none"),
        ("gemini", "gemini-3.1-pro", "default", "high"),
        ("vertex", "gemini-2.5-flash", "medium", "8192"),
        ("groq", "llama-3.3-70b-versatile", "default", "none"),
        ("groq", "gpt-oss-120b", "default", "default"),
    ],
)
def test_a_model_thinks_as_it_is_told_or_as_its_family_does_unasked(
    provider: str, model: str, thinking: str, effort: str
) -> None:
    assert registry.module(provider).effort(model, thinking) == effort
