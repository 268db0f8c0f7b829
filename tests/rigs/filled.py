"""A template with its placeholders replaced, as a judge would read it."""

from __future__ import annotations

from collections.abc import Mapping

from batchpond.tasks.templates import Placeholders


def fill(placeholders: Placeholders, text: str, values: Mapping[str, str]) -> str:
    """Return a text with all placeholders replaced in one pass; an optional one without a value becomes nothing."""
    return placeholders.pattern.sub(
        lambda match: values.get(match[1], "") if match[1] in placeholders.optional else values[match[1]], text
    )
