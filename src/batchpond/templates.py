"""Prompt templates: text with placeholders, filled in one pass so that values stay plain text.

A pairwise template must contain `{TRAIT_NAME}`, `{TRAIT_DESCRIPTION}`, `{SAMPLE_1}` and `{SAMPLE_2}`,
each at least once, and may contain `{ANSWER_FIRST}` and `{ANSWER_SECOND}`, which become the study's
exact answers. Any other brace is text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Final

from batchpond import ids
from batchpond.errors import StudyError

REQUIRED: Final = ("TRAIT_NAME", "TRAIT_DESCRIPTION", "SAMPLE_1", "SAMPLE_2")
OPTIONAL: Final = ("ANSWER_FIRST", "ANSWER_SECOND")
SAMPLES: Final = ("SAMPLE_1", "SAMPLE_2")
SIZE_MAX_BYTES: Final = 1_000_000
_PLACEHOLDER: Final = re.compile(r"\{(" + "|".join(REQUIRED + OPTIONAL) + r")\}")


@dataclass(frozen=True, slots=True)
class Filled:
    """A template with everything filled in but the samples.

    `texts` has one more element than `samples`; `samples` holds 0 for the sample shown first, 1 for
    the second, in the order in which they appear.
    """

    texts: tuple[str, ...]
    samples: tuple[int, ...]

    def prompt(self, first: str, second: str) -> str:
        """Return the prompt for two samples, in the order they are shown."""
        pair = (first, second)
        parts = [self.texts[0]]
        for text, sample in zip(self.texts[1:], self.samples, strict=True):
            parts += (pair[sample], text)
        return "".join(parts)


@dataclass(frozen=True)
class Template:
    """A prompt text by name; its hash changes with any character of either."""

    template_id: str
    text: str

    @cached_property
    def template_hash(self) -> str:
        """The digest of id and text, so that a row of the lake is found by it alone."""
        return ids.digest("template", self.template_id, self.text)

    def check(self, where: str) -> None:
        """Raise StudyError when a required placeholder is missing or the text cannot be sent."""
        if len(self.text.encode("utf-8", "surrogatepass")) > SIZE_MAX_BYTES:
            raise StudyError(f"{where}: the template is larger than {SIZE_MAX_BYTES:,} bytes")
        found = set(_PLACEHOLDER.findall(self.text))
        missing = [f"{{{name}}}" for name in REQUIRED if name not in found]
        if missing:
            raise StudyError(
                f"{where}: the template lacks {', '.join(missing)}",
                hint="`batchpond templates` shows complete ones to start from",
            )

    def fill(self, values: Mapping[str, str]) -> Filled:
        """Fill in all placeholders but the samples; `values` is by placeholder name."""
        # With one group, split() alternates text and placeholder name.
        pieces = _PLACEHOLDER.split(self.text)
        texts, samples = [pieces[0]], []
        for name, text in zip(pieces[1::2], pieces[2::2], strict=True):
            if name in SAMPLES:
                samples.append(SAMPLES.index(name))
                texts.append(text)
            else:
                texts[-1] += values[name] + text
        return Filled(tuple(texts), tuple(samples))


def prompt(template: Template, values: Mapping[str, str]) -> str:
    """Return a template with every placeholder, samples included, replaced by its value."""
    filled = template.fill(values)
    return filled.prompt(values["SAMPLE_1"], values["SAMPLE_2"])


@cache
def builtin() -> dict[str, Template]:
    """Return the templates that batchpond brings, by id."""
    folder = resources.files("batchpond") / "data" / "templates"
    files = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".txt")), key=lambda e: e.name)
    return {
        name: Template(name, entry.read_text("utf-8").removesuffix("\n"))
        for entry in files
        if (name := entry.name.removesuffix(".txt"))
    }


def listing() -> list[Template]:
    """Return the built-in templates in name order, for the `templates` command."""
    return list(builtin().values())
