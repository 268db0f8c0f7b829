"""What each custom_id of a provider's output file asked: a person says it, by a table or by a pattern of the ids."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from batchpond import fields
from batchpond.errors import UsageError
from batchpond.files import Columns, RowFile, listed
from batchpond.interop.foreign import shortened
from batchpond.tasks import compliance, likert, pairwise, prompts, ranking
from batchpond.tasks.pressure import task as pressure
from batchpond.tasks.shared.regex import Pattern

ROWS_MAX: Final = 300_000  # more than any provider takes in one batch
ID_MAX_CHARS: Final = 1_000
GENERATION: Final = "generation"
NEEDS: Final = {
    pairwise.TASK: ("item_first", "item_second"),
    ranking.TASK: ("rubric_id", "unit_id", "item_first", "item_second", "candidate_first", "candidate_second"),
    compliance.TASK: ("rubric_id", "unit_id", "item_first"),
    likert.TASK: ("rubric_id", "unit_id", "item_first"),
    pressure.TASK: ("unit_id", "item_first", "candidate_first", "turn_no"),
    prompts.TASK: ("item_first",),
    GENERATION: ("unit_id", "candidate_first"),
}
TEXTS: Final = (
    "study", "template_id", "rubric_id", "thinking", "item_first", "item_second", "candidate_first", "candidate_second",
)  # fmt: skip
NUMBERS: Final = ("turn_no", "repeat_no")
COLUMNS: Final = Columns(
    required=("custom_id",),
    optional=("task", "request_model", "unit_id", *TEXTS, *NUMBERS),
    aliases={
        "id": "custom_id", "key": "custom_id", "model": "request_model", "judge": "request_model",
        "id1": "item_first", "id2": "item_second", "item_a": "item_first", "item_b": "item_second",
        "item": "item_first",
        "candidate": "candidate_first", "template": "template_id", "trait": "rubric_id", "rubric": "rubric_id",
        "statement": "rubric_id", "prompt_id": "unit_id", "input": "unit_id", "turn": "turn_no", "repeat": "repeat_no",
    },
    suffixes=(".csv", ".jsonl", ".parquet"),
)  # fmt: skip
_HINT: Final = f"a task is one of {', '.join(NEEDS)}; nothing was imported"
_QUANTIFIER: Final = re.compile(r"(?<!\\)([+*}])\??")

Row = Mapping[str, str | None]


class Asked(Protocol):
    """What custom_ids asked."""

    name: str

    def row(self, custom_id: str) -> Row | None:
        """Return what a custom_id asked, None if that is not known; raises ValueError where it cannot be used."""

    def is_clear(self, custom_id: str) -> bool:
        """Whether there is only one way to say what a custom_id asked."""

    def rows(self) -> Iterator[tuple[str, Row]]:
        """Yield all that is known to have been asked, with its custom_id."""


class Table:
    """A table with a row per custom_id."""

    def __init__(self, path: Path, task: str, said: Collection[str] = ()) -> None:
        self.name = path.name
        self._found = _read_table(path, task, said)

    def row(self, custom_id: str) -> Row | None:
        """Return the row of a custom_id."""
        return self._found.get(custom_id)

    def is_clear(self, custom_id: str) -> bool:  # noqa: ARG002 - an Asked
        """Return True: a row says it."""
        return True

    def rows(self) -> Iterator[tuple[str, Row]]:
        """Yield all rows."""
        yield from self._found.items()


class IdPattern:
    """A regular expression of whole custom_ids, whose named groups are columns of a table.

    Raises UsageError for one that cannot be used. Which ids should have been there it cannot say.
    """

    def __init__(self, text: str, task: str, said: Collection[str] = ()) -> None:
        self.name = "the pattern"
        self._task, self._said = task, said
        self._patterns = [Pattern(f"^(?:{form})$") for form in (text, *_other_ways(text))]
        self._patterns[0].check("--pattern")
        self._names = {name: COLUMNS.aliases.get(name, name) for name in self._patterns[0].groups}
        for name in self._names.values():
            if name not in COLUMNS.optional:
                raise UsageError(
                    f"--pattern has the group {name!r}, which is no column",
                    hint=f"columns: {', '.join(COLUMNS.optional)}",
                )
        named = {*self._names.values(), *said}
        lacking = [name for name in NEEDS[task] if name not in named] if "task" not in named else []
        if lacking:
            raise UsageError(f"--pattern has no group {lacking[0]!r}, which {task} needs", hint="name it (?P<name>...)")

    def row(self, custom_id: str) -> Row | None:
        """Return the groups of a custom_id that the pattern fits as a whole."""
        found = self._groups(self._patterns[0], custom_id)
        if found is None:
            return None
        row = dict.fromkeys(COLUMNS.names) | {"custom_id": custom_id, "task": self._task} | found
        problem = _problem(row, self._said)
        if problem is not None:
            raise ValueError(problem)
        return row

    def is_clear(self, custom_id: str) -> bool:
        """Whether taking as little as possible for each part gives the same as taking as much."""
        ways = [self._groups(pattern, custom_id) for pattern in self._patterns]
        return all(way == ways[0] for way in ways)

    def rows(self) -> Iterator[tuple[str, Row]]:
        """Yield nothing: a pattern does not know which ids there should be."""
        yield from ()

    def _groups(self, pattern: Pattern, custom_id: str) -> dict[str, str] | None:
        if len(custom_id) > ID_MAX_CHARS or "\n" in custom_id:
            return None
        found = pattern.matches(custom_id)
        return {self._names[name]: value for name, value in found[0].items()} if found else None


def _other_ways(text: str) -> Iterator[str]:
    """Yield the pattern with every repetition as short, and as long, as possible."""
    for mark in ("?", ""):
        other = _QUANTIFIER.sub(rf"\1{mark}", text)
        try:
            re.compile(other)
        except re.error:
            continue
        if other != text:
            yield other


def check_task(task: str) -> None:
    """Raise UsageError for a task whose answers cannot be imported."""
    if task not in NEEDS:
        raise UsageError(f"--task {task} is none of {', '.join(NEEDS)}")


def _read_table(path: Path, task: str, said: Collection[str]) -> dict[str, Row]:
    file = RowFile(path, COLUMNS)
    found: dict[str, Row] = {}
    for block in file.blocks():
        for given in block.to_pylist():
            row = given | {"task": given["task"] or task}
            problem = _problem(row, said)
            if problem is None and row["custom_id"] in found:
                problem = f"repeats the custom_id of line {found[row['custom_id']]['line_no']}"
            if problem is not None:
                file.problems.add(row["line_no"], problem)
                continue
            found[row["custom_id"]] = row
            if len(found) > ROWS_MAX:
                raise UsageError(f"{path} has more than {ROWS_MAX:,} rows", hint="map one output file at a time")
    if file.problems.n:
        lines = (f"{file.unit} {line_no} {problem}" for line_no, problem in sorted(file.problems.shown))
        raise UsageError(
            f"{path}: {file.problems.n:,} {'rows' if file.problems.n > 1 else 'row'} cannot be used:"
            + listed(lines, file.problems.n),
            hint=_HINT,
        )
    if not found:
        raise UsageError(f"{path} has no rows", hint="it needs one per answer to be imported")
    return found


def _problem(row: Mapping[str, Any], said: Collection[str]) -> str | None:
    task = row["task"]
    if not row["custom_id"]:
        return "has no custom_id"
    if task not in NEEDS:
        return f"has task {shortened(task)}"
    missing = next((name for name in NEEDS[task] if name not in said and not (row[name] or "").strip()), None)
    if missing is not None:
        return f"has no {missing}, which {task} needs"
    if row["item_first"] is not None and row["item_first"] == row["item_second"]:
        return f"judges {shortened(row['item_first'])} against itself"
    wrong = next((name for name in NUMBERS if row[name] and whole(row[name]) is None), None)
    return f"has {wrong} {shortened(row[wrong])}, not a whole number" if wrong else None


def whole(text: str | None) -> int | None:
    """Return a whole number written as a text, also as `2.0`."""
    return fields.count(text.removesuffix(".0")) if text else None
