"""Policy statements from a file: JSON lines, YAML or Markdown, or a folder of YAML files, as SpecEval keeps its specs.

    {"id": "be_honest", "text": "...", "type": "requirement", "authority_level": "platform", "section": "...",
     "subsection": "...", "metadata": {"examples": [{"description", "user_query", "bad_response", "good_response"}]}}

`id` and `text` are needed; YAML has the same keys, and `markdown` says how Markdown does. What cannot
be used is an error, never skipped.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from batchpond import fields
from batchpond.errors import StudyError
from batchpond.files import read_text
from batchpond.study import markdown
from batchpond.tasks.templates import Example, Rubric, Statement

FILE_SIZE_MAX_BYTES: Final = 200_000_000
STATEMENTS_MAX: Final = 10_000
EXAMPLES_MAX: Final = 100
PROBLEMS_SHOWN_MAX: Final = 20
YAML: Final = (".yaml", ".yml")
MARKDOWN: Final = (".md", ".markdown")
JSON_LINES: Final = (".jsonl", ".ndjson")
_EXAMPLE: Final = ("description", "user_query", "bad_response", "good_response")


def read(path: Path) -> tuple[Rubric, ...]:
    """Return a file's or folder's statements as rubrics, in its order; raises one StudyError for all that is wrong."""
    found: dict[str, tuple[str, Rubric]] = {}
    problems: list[str] = []
    for place, entry in _entries(path):
        if isinstance(entry, str):
            problems.append(f"{place}: {entry}")
            continue
        try:
            rubric = rubric_of(entry)
        except ValueError as error:
            problems.append(f"{place}: {error}")
            continue
        if rubric.rubric_id in found:
            problems.append(f"{place}: id {rubric.rubric_id!r} a second time, first at {found[rubric.rubric_id][0]}")
        found.setdefault(rubric.rubric_id, (place, rubric))
    if problems or not 0 < len(found) <= STATEMENTS_MAX:
        more = [f"and {len(problems) - PROBLEMS_SHOWN_MAX:,} more"] if len(problems) > PROBLEMS_SHOWN_MAX else []
        count = f"{len(found):,} statements; 1 to {STATEMENTS_MAX:,} can be used"
        shown = "\n  ".join((problems[:PROBLEMS_SHOWN_MAX] + more) or [count])
        raise StudyError(f"{path}: statements cannot be read:\n  {shown}", hint=_hint(path))
    return tuple(rubric for _, rubric in found.values())


def _hint(path: Path) -> str:
    if path.suffix.lower() in MARKDOWN:
        return "in Markdown a statement is a heading with {#its_id} and a text below it; nothing was planned"
    return "a statement needs an id and a text; nothing was planned"


def _entries(path: Path) -> Iterator[tuple[str, Any]]:
    if not path.is_dir():
        yield from ((f"{path}:{line_no}", entry) for line_no, entry in entries(path))
        return
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
    if suffix in MARKDOWN:
        yield from markdown.entries(read_text(path, FILE_SIZE_MAX_BYTES))
    elif suffix in YAML:
        yield from yaml_entries(read_text(path, YAML_SIZE_MAX_BYTES))
    elif suffix in JSON_LINES:
        yield from _json_lines(read_text(path, FILE_SIZE_MAX_BYTES))
    else:
        known = ", ".join((*JSON_LINES, *YAML, *MARKDOWN))
        raise StudyError(f"{path} ends with {suffix!r}, not one of {known}", hint="or name a folder of .yaml files")


def _json_lines(text: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield number, orjson.loads(line)
            except orjson.JSONDecodeError as error:
                yield number, f"is not JSON: {error}"


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
        _word(found, "type") or "guideline",
        _word(found, "authority_level"),
        fields.text(found.get("section")) or "",
        fields.text(found.get("subsection")) or "",
        tuple(_examples(statement_id, found)),
    )
    return Rubric(statement_id, statement_id, text, tuple(statement.values().items()))


def _word(found: Mapping[str, Any], name: str) -> str:
    # SpecEval's YAML says PROHIBITION where its JSON says prohibition.
    return (fields.text(found.get(name)) or "").strip().lower()


def _examples(statement_id: str, found: Mapping[str, Any]) -> Iterator[Example]:
    written = fields.mapping(found.get("metadata")).get("examples", found.get("examples"))
    if written is None:
        return
    if not isinstance(written, list) or len(written) > EXAMPLES_MAX:
        raise ValueError(f"statement {statement_id!r} has examples that are no list of at most {EXAMPLES_MAX}")
    for number, example in enumerate(written, 1):
        values = [example.get(name) or "" for name in _EXAMPLE] if isinstance(example, dict) else [None]
        if not all(isinstance(value, str) for value in values):
            raise ValueError(f"statement {statement_id!r}: example {number} is not {', '.join(_EXAMPLE)} with texts")
        yield Example(*values)


YAML_VALUES_MAX: Final = 200_000
YAML_SIZE_MAX_BYTES: Final = 10_000_000
_LIST: Final = "statements"
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})


def yaml_entries(text: str) -> Iterator[tuple[int, Any]]:
    """Yield each statement of a YAML text as a mapping, or what is wrong as a text, with its line number.

    It holds one statement, a list of them, or several documents, as SpecEval's tools write. Every value is the text
    that stands in the file: `no` is an id, not false, and a date is no date. Raises StudyError where PyYAML, which
    belongs to the extra `yaml`, is not installed.
    """
    try:
        yaml = importlib.import_module("yaml")
    except ImportError:
        raise StudyError("YAML specs need PyYAML", hint="pip install 'batchpond[yaml]'") from None
    reader = _YamlReader(yaml)
    try:
        # Not the loader in C: a text that is nested deeply enough ends the process there.
        for node in yaml.compose_all(text, yaml.BaseLoader):
            yield from reader.statements(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        yield (mark.line + 1 if mark else 1), f"is not YAML: {error.problem or error.context}"
    except yaml.reader.ReaderError as error:
        yield text.count("\n", 0, error.position) + 1, f"is not YAML: {error.reason}"
    except RecursionError:
        yield 1, "is not usable YAML: nested too deeply"
    except _WrongError as error:
        yield error.line_no, error.problem


class _WrongError(ValueError):
    """What a node says cannot be used."""

    def __init__(self, node: Any, problem: str) -> None:
        super().__init__(problem)
        self.line_no: int = node.start_mark.line + 1
        self.problem = problem


class _YamlReader:
    """Nodes to texts, lists and mappings; how many values there are is bounded, because YAML can repeat by name."""

    def __init__(self, yaml: Any) -> None:
        self._yaml = yaml
        self._n_left = YAML_VALUES_MAX

    def statements(self, node: Any) -> Iterator[tuple[int, Any]]:
        """Yield what one document holds."""
        if isinstance(node, self._yaml.MappingNode):
            lists = [value for key, value in node.value if key.value == _LIST]
            if lists and not any(key.value == "id" for key, _ in node.value):
                node = lists[0]
        if isinstance(node, self._yaml.SequenceNode):
            yield from map(self._statement, node.value)
        elif not (isinstance(node, self._yaml.ScalarNode) and self._value(node) is None):
            yield self._statement(node)

    def _statement(self, node: Any) -> tuple[int, Any]:
        found = self._value(node)
        is_mapping = isinstance(found, dict)
        return node.start_mark.line + 1, found if is_mapping else f"is {found!r:.60}, not a mapping with id and text"

    def _value(self, node: Any) -> Any:
        self._n_left -= 1
        if self._n_left < 0:
            raise _WrongError(node, f"is not usable YAML: more than {YAML_VALUES_MAX:,} values")
        match node:
            case self._yaml.SequenceNode():
                return [self._value(one) for one in node.value]
            case self._yaml.MappingNode():
                return self._mapping(node)
            case _:
                return None if not node.style and node.value in _NULLS else node.value

    def _mapping(self, node: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in node.value:
            name = self._value(key)
            if not isinstance(name, str):
                raise _WrongError(key, "has a key that is no text")
            if name in found:
                raise _WrongError(key, f"has the key {name!r} twice")
            found[name] = self._value(value)
        return found
