"""Policy statements from a file: one JSON object a line, as SpecEval writes its specs.

    {"id": "be_honest", "text": "...", "type": "requirement", "authority_level": "platform", "section": "...",
     "subsection": "...", "metadata": {"examples": [{"description", "user_query", "bad_response", "good_response"}]}}

`id` and `text` are needed. A line that cannot be used is an error, never skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from batchpond import fields
from batchpond.errors import StudyError
from batchpond.rubrics import Rubric
from batchpond.tasks.common_text import Example, Statement
from batchpond.text_files import read_text

FILE_SIZE_MAX_BYTES: Final = 200_000_000
STATEMENTS_MAX: Final = 10_000
EXAMPLES_MAX: Final = 100
PROBLEMS_SHOWN_MAX: Final = 20


def read(path: Path) -> tuple[Rubric, ...]:
    """Return a file's statements as rubrics, in its order; raises one StudyError for all unusable lines."""
    found: dict[str, Rubric] = {}
    problems: list[str] = []
    for number, line in enumerate(read_text(path, FILE_SIZE_MAX_BYTES).split("\n"), 1):
        if not line.strip():
            continue
        try:
            rubric = rubric_of(orjson.loads(line))
        except (orjson.JSONDecodeError, ValueError) as error:
            problems.append(f"{path}:{number}: {error}")
            continue
        if rubric.rubric_id in found:
            problems.append(f"{path}:{number}: id {rubric.rubric_id!r} a second time")
        found[rubric.rubric_id] = rubric
    if problems or not 0 < len(found) <= STATEMENTS_MAX:
        shown = "\n  ".join(
            problems[:PROBLEMS_SHOWN_MAX] or [f"{len(found):,} statements; 1 to {STATEMENTS_MAX:,} can be used"]
        )
        raise StudyError(
            f"{path}: statements cannot be read:\n  {shown}",
            hint="a statement needs an id and a text; nothing was planned",
        )
    return tuple(found.values())


def rubric_of(entry: object) -> Rubric:
    """Return one statement as a rubric; raises ValueError that says what it lacks."""
    found = fields.mapping(entry)
    statement_id, text = found.get("id"), found.get("text")
    if not isinstance(statement_id, str) or not statement_id.strip():
        raise ValueError("no id")
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"statement {statement_id!r} has no text")
    statement = Statement(
        statement_id,
        text,
        fields.text(found.get("type")) or "guideline",
        fields.text(found.get("authority_level")) or "",
        fields.text(found.get("section")) or "",
        fields.text(found.get("subsection")) or "",
        tuple(_examples(found)),
    )
    return Rubric(statement_id, statement_id, text, tuple(statement.values().items()))


def _examples(found: Mapping[str, Any]) -> list[Example]:
    written = fields.mapping(found.get("metadata")).get("examples", found.get("examples"))
    names = ("description", "user_query", "bad_response", "good_response")
    return [
        Example(*(fields.text(example.get(name)) or "" for name in names))
        for example in map(fields.mapping, fields.sequence(written, EXAMPLES_MAX))
    ]
