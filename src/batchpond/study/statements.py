"""Policy statements from a file of JSON lines, or of a form that an installed package reads, or a folder of YAML files.

    {"id": "be_honest", "text": "...", "type": "requirement", "authority_level": "platform", "section": "...",
     "subsection": "...", "metadata": {"examples": [{"description", "user_query", "bad_response", "good_response"}]}}

`id` and `text` are needed. What cannot be used is an error, never skipped. Other keys are kept where a template shows
them or where they are the points that a criterion gives. Other forms are entry points of the group
`batchpond.statements`, by the suffix of their files: batchpond itself brings YAML and Markdown.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from batchpond import fields
from batchpond.errors import StudyError
from batchpond.files import json_rows, listed, read_text, reader_of, readers
from batchpond.tasks.templates import NOT_KNOWN, OF_STATEMENT, POINTS, STATEMENT_PLACEHOLDERS, Rubric

READERS: Final = "batchpond.statements"
FILE_SIZE_MAX_BYTES: Final = 200_000_000
STATEMENTS_MAX: Final = 100_000
EXAMPLES_MAX: Final = 100
YAML: Final = (".yaml", ".yml")
JSON_LINES: Final = (".jsonl", ".ndjson")
_LACKING: Final = {one: one for one in ((name, NOT_KNOWN) for name in STATEMENT_PLACEHOLDERS)}  # in all the same one
_EXAMPLE: Final = ("description", "user_query", "bad_response", "good_response")
_PARTS: Final = ("Request", "Goes against the statement", "In line with the statement")


def read(path: Path, shown: Collection[str] = (), points: str | None = None) -> tuple[Rubric, ...]:
    """Return a file's or folder's statements as rubrics, in its order; raises one StudyError for all that is wrong.

    `shown` are the keys that templates show, `points` the one with the points that a criterion gives, if it gives any.
    """
    found: dict[str, tuple[str, Rubric]] = {}
    problems: list[str] = []
    for place, entry in _entries(path):
        if isinstance(entry, str):
            problems.append(f"{place}: {entry}")
            continue
        try:
            rubric = rubric_of(entry, shown, points)
        except ValueError as error:
            problems.append(f"{place}: {error}")
            continue
        if rubric.rubric_id in found:
            problems.append(f"{place}: id {rubric.rubric_id!r} a second time, first at {found[rubric.rubric_id][0]}")
        found.setdefault(rubric.rubric_id, (place, rubric))
    if problems or not 0 < len(found) <= STATEMENTS_MAX:
        problems = problems or [f"{len(found):,} statements; 1 to {STATEMENTS_MAX:,} can be used"]
        hint = "a statement needs an id and a text; nothing was planned"
        if path.suffix.lower() in (".md", ".markdown"):
            hint = "in Markdown a statement is a heading with {#its_id} and a text below it; nothing was planned"
        raise StudyError(f"{path}: statements cannot be read:{listed(problems, len(problems))}", hint=hint)
    return tuple(rubric for _, rubric in found.values())


def _entries(path: Path) -> Iterator[tuple[str, Any]]:
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix.lower() in YAML)
    if len(files) > STATEMENTS_MAX:
        raise StudyError(f"{path} holds more than {STATEMENTS_MAX:,} YAML files")
    for file in files:
        yield from ((f"{file}:{line_no}", entry) for line_no, entry in entries(file))


def entries(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield what stands for a statement in a file, or a text that says what is wrong, with its line number.

    Raises StudyError for a file that cannot be read, or whose name ends with none of the known suffixes.
    """
    suffix = path.suffix.lower()
    if suffix in JSON_LINES:
        yield from json_rows(read_text(path, FILE_SIZE_MAX_BYTES).split("\n"))
        return
    known = suffixes()
    if suffix not in known:
        raise StudyError(
            f"{path} ends with {suffix!r}, not one of {', '.join(known)}", hint="or name a folder of .yaml files"
        )
    yield from reader_of(READERS, suffix[1:], f"statements in {suffix}")(read_text(path, FILE_SIZE_MAX_BYTES))


def suffixes() -> tuple[str, ...]:
    """Return how files end whose statements can be read."""
    return (*JSON_LINES, *(f".{name}" for name in readers(READERS)))


def rubric_of(entry: object, shown: Collection[str] = (), points: str | None = None) -> Rubric:
    """Return one statement as a rubric with what `read` says; raises ValueError that says what it lacks."""
    found = fields.mapping(entry)
    statement_id, text = found.get("id"), found.get("text")
    if not isinstance(statement_id, str) or not statement_id.strip():
        raise ValueError("no id")
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"statement {statement_id!r} has no text")
    said = {
        "STATEMENT": text,
        "STATEMENT_ID": statement_id,
        "STATEMENT_TYPE": _word(found, "type") or "guideline",
        "AUTHORITY": _word(found, "authority_level"),
        "SECTION": fields.text(found.get("section")),
        "SUBSECTION": fields.text(found.get("subsection")),
        "EXAMPLES": "\n\n".join(_examples(statement_id, found)),
    }
    more = {name: value or NOT_KNOWN for name, value in said.items()}
    for name in sorted(shown):
        if name.upper() not in said and (value := found.get(name)) is not None:
            more[f"{OF_STATEMENT}.{name}"] = value if isinstance(value, str) else orjson.dumps(value).decode()
    if points is not None:
        more[POINTS] = _points(statement_id, points, found.get(points))
    return Rubric(statement_id, statement_id, text, tuple(_LACKING.get(one, one) for one in more.items()))


def _points(statement_id: str, name: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"statement {statement_id!r} has no number in {name!r}, which the study names for points")
    return repr(value)


def _word(found: Mapping[str, Any], name: str) -> str:
    # SpecEval's YAML says PROHIBITION where its JSON says prohibition.
    return (fields.text(found.get(name)) or "").strip().lower()


def _examples(statement_id: str, found: Mapping[str, Any]) -> Iterator[str]:
    """Yield a statement's examples, numbered, without the parts that are blank."""
    written = fields.mapping(found.get("metadata")).get("examples", found.get("examples"))
    if written is None:
        return
    if not isinstance(written, list) or len(written) > EXAMPLES_MAX:
        raise ValueError(f"statement {statement_id!r} has examples that are no list of at most {EXAMPLES_MAX}")
    for number, example in enumerate(written, 1):
        values: list[Any] = [example.get(name) or "" for name in _EXAMPLE] if isinstance(example, dict) else [None]
        if not all(isinstance(value, str) for value in values):
            raise ValueError(f"statement {statement_id!r}: example {number} is not {', '.join(_EXAMPLE)} with texts")
        description, *parts = values
        named = (f"- {name}: {part}" for name, part in zip(_PARTS, parts, strict=True) if part.strip())
        yield "\n".join([f"Example {number}: {description}".rstrip(": "), *named])
