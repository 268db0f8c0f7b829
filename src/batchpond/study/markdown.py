"""Policy statements of a Markdown spec, in the form of OpenAI's Model Spec, which SpecEval reads too.

    ## Stay in bounds
    ### Do not lie {#do_not_lie authority=user type=prohibition}
    What the statement says, until the next heading.

    **Example**: what it shows

    ~~~xml
    <user>
    A question
    </user>
    <comparison>
    <assistant> <!-- BAD: why -->
    An answer against it
    </assistant>
    <assistant> <!-- GOOD -->
    An answer in line with it
    </assistant>
    </comparison>
    ~~~

A heading with an id is a statement; where some state an `authority`, those that do are, and the others are
sections. Headings above it are its section. Examples are taken out of the text. Nothing is guessed from a
heading's words: without a `type` it is a guideline. Other attributes of a heading are not read.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final

Line = tuple[int, str]

_HEADING: Final = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*")
_ATTRIBUTES: Final = re.compile(r"(?P<title>.*?)\s*\{#(?P<id>[^\s{}]*)(?P<inside>[^{}]*)\}(?P<after>[^{}]*)")
_PAIR: Final = re.compile(r"([\w-]+)=(?:\"([^\"]*)\"|(\S+))")
_FENCE: Final = re.compile(r"\s*(`{3,}|~{3,})(.*)")
_EXAMPLE: Final = re.compile(r"\s*\*\*Example(?: \d+)?(?:\*\*\s*:?|:\*\*)\s*(.*)")
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


def entries(text: str) -> Iterator[tuple[int, dict[str, Any] | str]]:
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
        match = _EXAMPLE.fullmatch(lines[at][1]) if is_fenced is None else None
        if match is None:
            is_fenced = _fence(is_fenced, *lines[at])
            text.append(lines[at][1])
            at += 1
            continue
        description, content, at = _example(lines, at, match[1])
        while at < len(lines) and not lines[at][1].strip() and not "".join(text[-1:]).strip():
            at += 1
        try:
            examples += _examples(description, content)
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


def _examples(description: str, content: Sequence[Line]) -> list[dict[str, str]]:
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
