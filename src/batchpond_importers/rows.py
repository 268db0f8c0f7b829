"""Reading a provider's output files: what each custom_id asked is said by a person, by a table or a pattern."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from batchpond import fields
from batchpond.answers import derive
from batchpond.answers.derive import Judge
from batchpond.errors import UsageError
from batchpond.files import Columns, RowFile
from batchpond.interop import foreign
from batchpond.interop.foreign import (
    Defaults,
    Doubt,
    Findings,
    ForeignJudgment,
    ForeignText,
    Reader,
    Record,
    SourceFile,
)
from batchpond.model import Outcome, Response, ResponseStatus
from batchpond.providers import registry
from batchpond.study import file as study
from batchpond.tasks import base, pairwise, prompts
from batchpond.tasks import registry as tasks
from batchpond.tasks.base import Judgment, Rule
from batchpond.tasks.prompts import Pattern
from batchpond.text import plural

ROWS_MAX: Final = 300_000  # more than any provider takes in one batch
ID_MAX_CHARS: Final = 1_000
GENERATION: Final = "generation"
NUMBERS: Final = ("turn_no", "repeat_no")
_KNOWN: Final = orjson.loads(Path(__file__).with_name("custom_ids.json").read_bytes())
NEEDS: Final[Mapping[str, Sequence[str]]] = _KNOWN.pop("needs")
"""The columns that a row of each task must have."""
COLUMNS: Final = Columns(**_KNOWN)
_HINT: Final = f"a task is one of {', '.join(NEEDS)}; nothing was imported"
_QUANTIFIER: Final = re.compile(r"(?<!\\)([+*}])\??")

Row = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Asked:
    """What custom_ids asked, as a table or a pattern says it: `row` of one, and `rows` of all that there should be.

    `is_clear` says of an id whether there is but one way to read it: a row of a table says it, whatever the id is.
    """

    name: str
    rows: Mapping[str, Row]
    row: Callable[[str], Row | None]
    is_clear: Callable[[str], bool] = lambda _: True


class IdPattern:
    """A regular expression of whole custom_ids, whose named groups are columns of a table.

    Raises UsageError for one that cannot be used. Which ids should have been there it cannot say.
    """

    def __init__(self, text: str, task: str, given: Collection[str] = ()) -> None:
        self._task, self._given = task, given
        self._patterns = [Pattern(f"^(?:{form})$") for form in (text, *_other_ways(text))]
        self._patterns[0].check("--pattern")
        self._names = {name: COLUMNS.aliases.get(name, name) for name in self._patterns[0].groups}
        for name in self._names.values():
            if name not in COLUMNS.optional:
                raise UsageError(
                    f"--pattern has the group {name!r}, which is no column",
                    hint=f"columns: {', '.join(COLUMNS.optional)}",
                )
        named = {*self._names.values(), *given}
        lacking = [name for name in NEEDS[task] if name not in named] if "task" not in named else []
        if lacking:
            raise UsageError(f"--pattern has no group {lacking[0]!r}, which {task} needs", hint="name it (?P<name>...)")

    def row(self, custom_id: str) -> Row | None:
        """Return the groups of a custom_id that the pattern fits as a whole."""
        found = self._groups(self._patterns[0], custom_id)
        if found is None:
            return None
        row = dict.fromkeys(COLUMNS.names) | {"custom_id": custom_id, "task": self._task} | found
        problem = _problem(row, self._given)
        if problem is not None:
            raise ValueError(problem)
        return row

    def is_clear(self, custom_id: str) -> bool:
        """Whether taking as little as possible for each part gives the same as taking as much."""
        ways = [self._groups(pattern, custom_id) for pattern in self._patterns]
        return all(way == ways[0] for way in ways)

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


def _read_table(path: Path, task: str, given: Collection[str]) -> dict[str, Row]:
    file = RowFile(path, COLUMNS)
    found: dict[str, Row] = {}
    for block in file.blocks():
        for read in block.to_pylist():
            row = read | {"task": read["task"] or task}
            problem = _problem(row, given)
            if problem is None and row["custom_id"] in found:
                problem = f"repeats the custom_id of line {found[row['custom_id']]['line_no']}"
            if problem is not None:
                file.problems.add((row["line_no"], problem))
                continue
            found[row["custom_id"]] = row
            if len(found) > ROWS_MAX:
                raise UsageError(f"{path} has more than {ROWS_MAX:,} rows", hint="map one output file at a time")
    n, told = file.problems.n, (f"{file.unit} {number} {problem}" for number, problem in sorted(file.problems.shown))
    foreign.refuse(path, f"{plural(n, 'row')} cannot be used", told, n, _HINT)
    if not found:
        raise UsageError(f"{path} has no rows", hint="it needs one per answer to be imported")
    return found


def _problem(row: Mapping[str, Any], given: Collection[str]) -> str | None:
    task = row["task"]
    if not row["custom_id"]:
        return "has no custom_id"
    if task not in NEEDS:
        return f"has task {foreign.shortened(task)}"
    missing = next((name for name in NEEDS[task] if name not in given and not (row[name] or "").strip()), None)
    if missing is not None:
        return f"has no {missing}, which {task} needs"
    if row["item_first"] is not None and row["item_first"] == row["item_second"]:
        return f"judges {foreign.shortened(row['item_first'])} against itself"
    wrong = next((name for name in NUMBERS if row[name] and whole(row[name]) is None), None)
    return f"has {wrong} {foreign.shortened(row[wrong])}, not a whole number" if wrong else None


def whole(text: str | None) -> int | None:
    """Return a whole number written as a text, also as `2.0`."""
    return fields.count(text.removesuffix(".0")) if text else None


_BLOCK_LINES: Final = 1_000
# The usual rule of each task, but of the two that have none: a study must say how prompts are read.
_RULES: Final[Mapping[str, Rule]] = {
    task: next(iter(tasks.TASKS[task].values()))() for task in NEEDS if task not in {prompts.TASK, GENERATION}
}


@dataclass(slots=True)
class _Line:
    """The line that answers an id."""

    place: str
    digest: bytes
    is_answered: bool


@dataclass(slots=True)
class _Chosen:
    """Which line answers which id; an id with two different answers has none."""

    lines: dict[str, _Line] = field(default_factory=dict)
    conflicts: set[str] = field(default_factory=set)

    def has(self, custom_id: str, place: str) -> bool:
        """Whether the line at a place answers an id."""
        line = self.lines.get(custom_id)
        return line is not None and line.place == place and custom_id not in self.conflicts

    def add(self, custom_id: str, line: _Line, findings: Findings) -> None:
        """Take a line into account: an answer counts more than a request that failed or was not executed."""
        told = self.lines.setdefault(custom_id, line)
        if told is line:
            return
        if told.digest == line.digest or told.is_answered != line.is_answered or not line.is_answered:
            other = told if line.is_answered and not told.is_answered else line
            findings.doubt(Doubt.REPEATED_ANSWER, other.place, f"of {foreign.shortened(custom_id)}")
            self.lines[custom_id] = told if other is line else line
            return
        findings.doubt(
            Doubt.CONFLICTING_ANSWER, line.place, f"of {foreign.shortened(custom_id)}, told by {told.place} too"
        )
        self.conflicts.add(custom_id)


def reader(
    map_path: Path | None,
    provider: str,
    *,
    pattern: str | None = None,
    task: str = pairwise.TASK,
    rules_path: Path | None = None,
    given: Collection[str] = (),
) -> Reader:
    """Return what reads a provider's output files by a table or a pattern of its custom_ids.

    `task` is that of rows that name none, `given` the columns that a person gives for all of them, `rules_path` a
    study file whose rules read the answers of their tasks. Raises UsageError for what cannot be used of these.
    """
    if task not in NEEDS:
        raise UsageError(f"--task {task} is none of {', '.join(NEEDS)}")
    if (map_path is None) == (pattern is None):
        raise UsageError("what was asked is said by one of --map and --pattern")
    if map_path is not None:
        found = _read_table(map_path, task, given)
        asked = Asked(map_path.name, found, found.get)
    else:
        read = IdPattern(pattern or "", task, given)
        asked = Asked("the pattern", {}, read.row, read.is_clear)
    return _Output(asked, provider, _judges(rules_path))


@dataclass(frozen=True, slots=True)
class _Output:
    """What reads output files: twice, because only all lines together say which of them answers an id."""

    asked: Asked
    provider: str
    judges: Mapping[str, Judge]

    def __call__(self, files: Sequence[SourceFile], defaults: Defaults, findings: Findings) -> Iterator[Record]:  # noqa: ARG002 - a Reader
        chosen = _Chosen()
        for place, line, response in self._responses(files, findings):
            digest = hashlib.blake2b(line, digest_size=16).digest()
            found = _Line(place, digest, response.status is ResponseStatus.SUCCEEDED)
            _choose(self.asked, chosen, found, response, findings)
        answers = (
            (place, row, response)
            for place, _, response in self._responses(files, Findings())  # what is wrong was noted above
            if (custom_id := response.custom_id) and chosen.has(custom_id, place) and (row := self.asked.row(custom_id))
        )
        while block := list(itertools.islice(answers, _BLOCK_LINES)):
            yield from _records(block, self.provider, self.judges, findings)
        for custom_id, row in self.asked.rows.items():
            place = f"{self.asked.name}:{row['line_no']}"
            if custom_id in chosen.lines or row["task"] == GENERATION:
                continue
            if Doubt.UNREADABLE_LINE in findings.doubts:
                findings.doubt(
                    Doubt.UNREADABLE_LINE, place, f"asked {foreign.shortened(custom_id)}, which it may have answered"
                )
            else:
                yield _judgment(place, row, None, Judgment(None, Outcome.MISSING), self.provider)

    def _responses(self, files: Sequence[SourceFile], findings: Findings) -> Iterator[tuple[str, bytes, Response]]:
        read_line = registry.module(self.provider).read_line
        for place, line in itertools.chain.from_iterable(foreign.lines(file, findings) for file in files):
            bare = line.rstrip(b"\r\n")
            response = read_line(bare)
            if response.status is not ResponseStatus.UNREADABLE:
                yield place, bare, response
            else:
                findings.doubt(Doubt.UNREADABLE_LINE, place, foreign.shortened(response.error_message))


def _judges(rules_path: Path | None) -> dict[str, Judge]:
    """Return the readers of answers by task; raises UsageError for a study with two rules of one task."""
    rules = dict(_RULES)
    if rules_path is not None:
        given = [(stage.task, stage.rule) for stage in study.load(rules_path).stages]
        for task, rule in given:
            if rule.parts:
                raise UsageError(
                    f"{rules_path} has [[answer.fields]]", hint="rows of others are read by one rule a task"
                )
            if any(task == name and rule.parser_id != other.parser_id for name, other in given):
                raise UsageError(f"{rules_path} has more than one rule of the task {task}", hint="leave one in a copy")
            rules[task] = rule
    return {task: derive.judge_of(rule.to_spec()) for task, rule in rules.items()}


def _choose(asked: Asked, chosen: _Chosen, line: _Line, response: Response, findings: Findings) -> None:
    custom_id = response.custom_id or None
    try:
        row = None if custom_id is None else asked.row(custom_id)
    except ValueError as error:
        findings.problem(line.place, f"answers {foreign.shortened(custom_id)}, which {error}")
        return
    if custom_id is None or row is None:
        text = f"answers {foreign.shortened(custom_id)}, of which {asked.name} says nothing"
        findings.doubt(Doubt.FOREIGN_ID, line.place, text)
    elif row["task"] not in {*_RULES, prompts.TASK, GENERATION}:
        findings.problem(line.place, f"answers a request of the task {row['task']}")
    elif asked.is_clear(custom_id) or findings.trusts(Doubt.RECOVERED_ID, line.place, foreign.shortened(custom_id)):
        chosen.add(custom_id, line, findings)


def _records(
    block: Sequence[tuple[str, Row, Response]], provider: str, judges: Mapping[str, Judge], findings: Findings
) -> Iterator[Record]:
    read: dict[int, Judgment] = {}
    for task in NEEDS:
        numbers = [number for number, (_, row, _) in enumerate(block) if row["task"] == task != GENERATION]
        if numbers and task not in judges:
            raise UsageError(f"answers of the task {task} need a rule to be read by", hint="--rules study.toml has one")
        if numbers:
            read |= dict(zip(numbers, judges[task]([block[number][2] for number in numbers]), strict=True))
    for number, (place, row, response) in enumerate(block):
        if number in read:
            yield _judgment(place, row, response, read[number], provider)
        else:
            yield from _generated(place, row, response, findings)


def _generated(place: str, row: Row, response: Response, findings: Findings) -> Iterator[Record]:
    text = response.text or ""
    if base.not_answered(response) is not None or not text.strip():
        reason = response.error_message or response.status
        findings.doubt(Doubt.FAILED_ANSWER, place, f"of {row['candidate_first']}: {foreign.shortened(reason)}")
        return
    unit_id, candidate = row["unit_id"] or "", row["candidate_first"] or ""
    item_id = row["item_first"] or foreign.output_id(unit_id, candidate, text)
    more = {"finish_reason": response.finish_reason, "response_model": response.response_model}
    yield ForeignText(place, "output", item_id, text, unit_id, row["rubric_id"], candidate, whole(row["turn_no"]), more)


def _judgment(place: str, row: Row, response: Response | None, found: Judgment, provider: str) -> ForeignJudgment:
    response = response or Response(None, ResponseStatus.ERRORED)
    model = row["request_model"] or response.response_model
    return ForeignJudgment(
        place,
        row["task"] or "",
        found,
        Defaults(row["study"], row["template_id"], row["rubric_id"], provider, model, row["thinking"]),
        row["unit_id"] or "",
        item_first=row["item_first"],
        item_second=row["item_second"],
        candidate_first=row["candidate_first"],
        candidate_second=row["candidate_second"],
        turn_no=whole(row["turn_no"]),
        repeat_no=whole(row["repeat_no"]) or 1,
        input_tokens=response.input_tokens,
        output_tokens=response.output_tokens,
    )
