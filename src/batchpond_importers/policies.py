"""Statements of policies as other tools write them: SpecEval's YAML, and Markdown as OpenAI's Model Spec is written.

YAML has the keys of `batchpond.study.statements`. Of Markdown (guide: tasks) a heading with an id is a statement; where
some state an `authority`, those that do are, and the others are sections. Headings above it are its section. Examples
are taken out of the text. Nothing is guessed from a heading's words: without a `type` it is a guideline. Other
attributes of a heading are not read.
"""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final

from batchpond.errors import StudyError

YAML_VALUES_MAX: Final = 200_000
YAML_SIZE_MAX: Final = 10_000_000
_LIST: Final = "statements"
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})


def yaml_entries(text: str) -> Iterator[tuple[int, Any]]:
    """Yield each statement of a YAML text as a mapping, or what is wrong as a text, with its line number.

    It holds one statement, a list of them, or several documents, as SpecEval's tools write. Every value is the text
    that stands in the file: `no` is an id, not false, and a date is no date. Raises StudyError where PyYAML, which
    belongs to the extra `yaml`, is not installed.
    """
    if len(text) > YAML_SIZE_MAX:
        yield 1, f"is YAML of more than {YAML_SIZE_MAX:,} characters: JSON lines may be longer"
        return
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


Line = tuple[int, str]

_HEADING: Final = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*")
_ATTRIBUTES: Final = re.compile(r"(?P<title>.*?)\s*\{#(?P<id>[^\s{}]*)(?P<inside>[^{}]*)\}(?P<after>[^{}]*)")
_PAIR: Final = re.compile(r"([\w-]+)=(?:\"([^\"]*)\"|(\S+))")
_FENCE: Final = re.compile(r"\s*(`{3,}|~{3,})(.*)")
_EXAMPLE_LINE: Final = re.compile(r"\s*\*\*Example(?: \d+)?(?:\*\*\s*:?|:\*\*)\s*(.*)")
_OPENED: Final = re.compile(r"<([a-z_]+)(?:\s[^<>]*)?>\s*(?:<!--\s*(.*?)\s*-->)?\s*(.*)")
_MARK: Final = re.compile(r"(GOOD|BAD)\b(?:\[[^\]]*\])?[\s:,]*(.*)", re.IGNORECASE)
_KEYS: Final = {"authority": "authority_level", "type": "type"}
_COMPARISON: Final = "comparison"


@dataclass
class _Heading:
    """A heading and the lines below it, up to the next one."""

    line_no: int
    level: int
    title: str
    path: tuple[str, ...]
    values: dict[str, str] = field(default_factory=dict)
    problem: str | None = None
    body: list[Line] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Message:
    """A message of an example: who says it, what a comment beside it says, and whether it is one of several answers."""

    role: str
    comment: str
    text: str
    is_compared: bool


def markdown_entries(text: str) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Yield each statement of a Markdown text, or what is wrong, with its line number."""
    headings, problem = _headings(text)
    if problem is not None:
        yield problem
    yield from ((heading.line_no, heading.problem) for heading in headings if heading.problem)
    with_id = [heading for heading in headings if "id" in heading.values]
    stated = [heading for heading in with_id if "authority_level" in heading.values]
    for heading in stated or with_id:
        yield from _statement(heading)


def _headings(text: str) -> tuple[list[_Heading], tuple[int, str] | None]:
    found: list[_Heading] = []
    above: list[tuple[int, str]] = []
    fence: Line | None = None
    for line_no, line in enumerate(text.split("\n"), 1):
        bare = line.removesuffix("\r")
        heading = _HEADING.fullmatch(bare) if fence is None else None
        if heading is not None:
            above = [(level, title) for level, title in above if level < len(heading[1])]
            found.append(_heading(line_no, len(heading[1]), heading[2], tuple(title for _, title in above)))
            above.append((found[-1].level, found[-1].title))
            continue
        fence = _fence(fence, line_no, bare)
        if found:
            found[-1].body.append((line_no, bare))
    return found, None if fence is None else (fence[0], f"the block {fence[1]} is not closed")


def _fence(fence: Line | None, line_no: int, line: str) -> Line | None:
    """Return the fence that is open after a line; one closes only with as many of its own marks, and nothing else."""
    match = _FENCE.fullmatch(line)
    if match is None:
        return fence
    if fence is None:
        return line_no, match[1]
    is_end = match[1].startswith(fence[1]) and not match[2].strip()
    return None if is_end else fence


def _heading(line_no: int, level: int, title: str, path: tuple[str, ...]) -> _Heading:
    match = _ATTRIBUTES.fullmatch(title)
    if match is None:
        return _Heading(line_no, level, title, path)
    values, problem = {"id": match["id"]}, None
    written = f"{match['inside']} {match['after']}"
    for name, quoted, plain in _PAIR.findall(written):
        if name not in _KEYS and difflib.get_close_matches(name, _KEYS, n=1, cutoff=0.7):
            problem = f"the heading has {name!r}; did you mean one of {', '.join(_KEYS)}?"
        values[_KEYS.get(name, name)] = quoted or plain
    if not match["id"]:
        problem = "the heading has {#} without an id"
    elif _PAIR.sub("", written).strip():
        problem = f"the heading has {_PAIR.sub('', written).strip()!r}, which is no name=value"
    return _Heading(line_no, level, match["title"], path, values, problem)


def _statement(heading: _Heading) -> Iterator[tuple[int, dict[str, Any] | str]]:
    text: list[str] = []
    examples: list[dict[str, str]] = []
    lines = heading.body
    at = 0
    is_fenced: Line | None = None
    while at < len(lines):
        match = _EXAMPLE_LINE.fullmatch(lines[at][1]) if is_fenced is None else None
        if match is None:
            is_fenced = _fence(is_fenced, *lines[at])
            text.append(lines[at][1])
            at += 1
            continue
        description, content, at = _example(lines, at, match[1])
        while at < len(lines) and not lines[at][1].strip() and not "".join(text[-1:]).strip():
            at += 1
        try:
            examples += _side_by_side(description, content)
        except ValueError as error:
            yield error.args
    path = (*heading.path, heading.title)
    yield heading.line_no, {
        **heading.values, "text": "\n".join(text).strip(), "section": path[0], "subsection": " / ".join(path[1:]),
        "metadata": {"examples": examples},
    }  # fmt: skip


def _example(lines: Sequence[Line], at: int, first: str) -> tuple[str, list[Line], int]:
    """Return an example's paragraph, the block that follows it, and where the text goes on."""
    words = [first]
    at += 1
    while at < len(lines) and lines[at][1].strip() and not _FENCE.fullmatch(lines[at][1]):
        words.append(lines[at][1].strip())
        at += 1
    after = at
    while after < len(lines) and not lines[after][1].strip():
        after += 1
    if after == len(lines) or not _FENCE.fullmatch(lines[after][1]):
        return " ".join(words).strip(), [], at
    fence = _fence(None, *lines[after])
    content: list[Line] = []
    while fence is not None and after + 1 < len(lines):
        after += 1
        fence = _fence(fence, *lines[after])
        if fence is not None:
            content.append(lines[after])
    return " ".join(words).strip(), content, after + 1


def _side_by_side(description: str, content: Sequence[Line]) -> list[dict[str, str]]:
    """Return an example's bad and good answers side by side; raises ValueError of a line and what is wrong in it."""
    messages = _messages(content)
    whole = "\n".join(line for _, line in content).strip()
    marked = [(message, mark) for message in messages if (mark := _MARK.fullmatch(message.comment))]
    if not marked:
        return [_shown(description, whole, None, None)]
    asked = [message for message in messages if not message.is_compared and not _MARK.fullmatch(message.comment)]
    question = asked[0].text if len(asked) == 1 else "\n\n".join(f"{one.role}: {one.text}" for one in asked)
    answers: dict[str, list[tuple[str, str]]] = {"BAD": [], "GOOD": []}
    for message, mark in marked:
        answers[mark[1].upper()].append((message.text, mark[2]))
    return [_shown(description, question, bad, good) for bad, good in zip_longest(answers["BAD"], answers["GOOD"])]


def _shown(
    description: str, question: str, bad: tuple[str, str] | None, good: tuple[str, str] | None
) -> dict[str, str]:
    notes = [f"{word}: {told[1]}" for word, told in (("bad", bad), ("good", good)) if told and told[1]]
    return {
        "description": f"{description} ({'; '.join(notes)})" if notes else description,
        "user_query": question,
        "bad_response": bad[0] if bad else "",
        "good_response": good[0] if good else "",
    }


def _messages(content: Sequence[Line]) -> list[_Message]:
    found: list[_Message] = []
    compared_from: int | None = None
    lines = iter(content)
    for line_no, line in lines:
        opened = _OPENED.fullmatch(line.strip())
        if opened is None or not line.strip():
            if line.strip() == f"</{_COMPARISON}>":
                compared_from = None
            elif line.strip():
                return []  # no conversation: an example may be anything
        elif opened[1] == _COMPARISON:
            compared_from = line_no
        else:
            text = _until(f"</{opened[1]}>", (line_no, opened[3]), lines)
            found.append(_Message(opened[1], opened[2] or "", text, compared_from is not None))
    if compared_from is not None:
        raise ValueError(compared_from, f"<{_COMPARISON}> is not closed")
    return found


def _until(end: str, first: Line, lines: Iterator[Line]) -> str:
    """Return a message's text; raises ValueError where its end is missing."""
    text = [first[1]]
    while not text[-1].rstrip().endswith(end):
        line = next(lines, None)
        if line is None:
            raise ValueError(first[0], f"{end.replace('/', '')} is not closed")
        text.append(line[1])
    text[-1] = text[-1].rstrip().removesuffix(end)
    return "\n".join(text).strip()
