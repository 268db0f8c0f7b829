"""Reading a provider's output files: what each custom_id asked is said by a person, by a table or a pattern.

The answer is read by the task's usual rule, or by that of a study file. With the task `generation` the answer
is a text, kept as an item. What cannot be read, nobody asked for, or stands twice is left out and told; an id of a
table that no line answers is missing, unless a line that cannot be read may be its answer.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from batchpond.answers import judging
from batchpond.answers.judging import Judge
from batchpond.errors import UsageError
from batchpond.interop.foreign import Doubt, Findings, ForeignJudgment, ForeignText, Record, Said, output_id, shortened
from batchpond.interop.foreign_files import Reader, SourceFile
from batchpond.interop.rows_map import GENERATION, NEEDS, TEXTS, Asked, IdPattern, Row, Table, check_task, whole
from batchpond.model import FileRole, Outcome, Response, ResponseStatus
from batchpond.providers import registry
from batchpond.study import file as study
from batchpond.study.spec import Study
from batchpond.study.stages.spec import StagedStudy
from batchpond.tasks import compliance, likert, pairwise, prompts, ranking
from batchpond.tasks.base import Judgment, Rule
from batchpond.tasks.pressure import task as pressure
from batchpond.tasks.shared import reading as common

_BLOCK_LINES: Final = 1_000
_BOM: Final = b"\xef\xbb\xbf"
_RULES: Final[Mapping[str, Rule]] = {
    pairwise.TASK: pairwise.AnswerRule(),
    ranking.TASK: ranking.AnswerRule(),
    compliance.TASK: compliance.AnswerRule(),
    likert.TASK: likert.AnswerRule(),
    pressure.TASK: pressure.AnswerRule(),
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
            findings.doubt(Doubt.REPEATED_ANSWER, other.place, f"of {shortened(custom_id)}")
            self.lines[custom_id] = told if other is line else line
            return
        findings.doubt(Doubt.CONFLICTING_ANSWER, line.place, f"of {shortened(custom_id)}, told by {told.place} too")
        self.conflicts.add(custom_id)


def reader(
    map_path: Path | None,
    provider: str,
    *,
    pattern: str | None = None,
    task: str = pairwise.TASK,
    rules_path: Path | None = None,
    said: Collection[str] = (),
) -> Reader:
    """Return what reads a provider's output files by a table or a pattern of its custom_ids.

    `task` is that of rows that name none, `said` the columns that a person gives for all of them, `rules_path` a
    study file whose rules read the answers of their tasks. Raises UsageError for what cannot be used of these.
    """
    check_task(task)
    if (map_path is None) == (pattern is None):
        raise UsageError("what was asked is said by one of --map and --pattern")
    asked = Table(map_path, task, said) if map_path is not None else IdPattern(pattern or "", task, said)
    return _Output(asked, provider, _judges(rules_path))


@dataclass(frozen=True, slots=True)
class _Output:
    """What reads output files: twice, because only all lines together say which of them answers an id."""

    asked: Asked
    provider: str
    judges: Mapping[str, Judge]

    def __call__(self, files: Sequence[SourceFile], said: Said, findings: Findings) -> Iterator[Record]:  # noqa: ARG002 - a Reader
        chosen = _Chosen()
        for place, line, response in self._responses(files, findings):
            _choose(self.asked, chosen, _line(place, line, response), response, findings)
        lines = (
            (place, row, response)
            for place, _, response in self._responses(files, None)
            if chosen.has(response.custom_id or "", place) and (row := self.asked.row(response.custom_id or ""))
        )
        while block := list(itertools.islice(lines, _BLOCK_LINES)):
            yield from _records(block, self.provider, self.judges, findings)
        for custom_id, row in self.asked.rows():
            place = f"{self.asked.name}:{row['line_no']}"
            if custom_id in chosen.lines or row["task"] == GENERATION:
                continue
            if Doubt.UNREADABLE_LINE in findings.doubts:
                findings.doubt(
                    Doubt.UNREADABLE_LINE, place, f"asked {shortened(custom_id)}, which it may have answered"
                )
            else:
                yield _judgment(place, row, None, Judgment(None, Outcome.MISSING), self.provider)

    def _responses(
        self, files: Sequence[SourceFile], findings: Findings | None
    ) -> Iterator[tuple[str, bytes, Response]]:
        read_line = registry.module(self.provider).read_line
        for place, line in itertools.chain.from_iterable(_lines(file, findings) for file in files):
            response = read_line(line, FileRole.OUTPUT)
            if response.status is not ResponseStatus.UNREADABLE:
                yield place, line, response
            elif findings is not None:
                findings.doubt(Doubt.UNREADABLE_LINE, place, shortened(response.error_message))


def _judges(rules_path: Path | None) -> dict[str, Judge]:
    """Return the readers of answers by task; raises UsageError for a study with two rules of one task."""
    rules = dict(_RULES)
    if rules_path is not None:
        given = _rules_of(study.load(rules_path))
        for task, rule in given:
            if any(task == name and rule.parser_id != other.parser_id for name, other in given):
                raise UsageError(f"{rules_path} has more than one rule of the task {task}", hint="leave one in a copy")
            rules[task] = rule
    return {task: judging.judge_of(rule.to_spec()) for task, rule in rules.items()}


def _rules_of(found: Study | StagedStudy) -> list[tuple[str, Rule]]:
    match found:
        case StagedStudy():
            return [(stage.task, stage.rule) for stage in found.stages]
        case Study():
            return [(pairwise.TASK, found.answer)]


def _lines(file: SourceFile, findings: Findings | None) -> Iterator[tuple[str, bytes]]:
    try:
        with file.path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                bare = (line.removeprefix(_BOM) if number == 1 else line).rstrip(b"\r\n")
                if bare.strip():
                    yield f"{file.shown}:{number}", bare
    except OSError as error:
        if findings is not None:
            findings.problem(file.shown, f"cannot be read: {error.strerror or error}")


def _line(place: str, line: bytes, response: Response) -> _Line:
    digest = hashlib.blake2b(line, digest_size=16).digest()
    return _Line(place, digest, response.status is ResponseStatus.SUCCEEDED)


def _choose(asked: Asked, chosen: _Chosen, line: _Line, response: Response, findings: Findings) -> None:
    custom_id = response.custom_id or ""
    try:
        row = asked.row(custom_id)
    except ValueError as error:
        findings.problem(line.place, f"answers {shortened(custom_id)}, which {error}")
        return
    if row is None:
        findings.doubt(
            Doubt.FOREIGN_ID, line.place, f"answers {shortened(custom_id or None)}, of which {asked.name} says nothing"
        )
    elif row["task"] not in {*_RULES, prompts.TASK, GENERATION}:
        findings.problem(line.place, f"answers a request of the task {row['task']}")
    elif asked.is_clear(custom_id) or findings.trusts(Doubt.RECOVERED_ID, line.place, shortened(custom_id)):
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
    if common.not_answered(response) is not None or not text.strip():
        reason = response.error_message or response.status
        findings.doubt(Doubt.FAILED_ANSWER, place, f"of {row['candidate_first']}: {shortened(reason)}")
        return
    unit_id, candidate = row["unit_id"] or "", row["candidate_first"] or ""
    item_id = row["item_first"] or output_id(unit_id, candidate, text)
    more = {"finish_reason": response.finish_reason, "response_model": response.response_model}
    yield ForeignText(place, "output", item_id, text, unit_id, row["rubric_id"], candidate, whole(row["turn_no"]), more)


def _judgment(place: str, row: Row, response: Response | None, found: Judgment, provider: str) -> ForeignJudgment:
    response = response or Response(None, ResponseStatus.ERRORED)
    texts: dict[str, Any] = {name: row[name] for name in TEXTS}
    return ForeignJudgment(
        place, row["task"] or "", found.outcome, found.verdict, found.label, found.score, found.confidence,
        found.explanation,
        provider=provider,
        request_model=row["request_model"] or response.response_model,
        unit_id=row["unit_id"] or "",
        turn_no=whole(row["turn_no"]),
        repeat_no=whole(row["repeat_no"]) or 1,
        input_tokens=response.input_tokens,
        output_tokens=response.output_tokens,
        **texts,
    )  # fmt: skip
