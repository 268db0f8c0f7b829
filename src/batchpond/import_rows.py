"""Reading a provider's output file by a map: what each custom_id asked is said by a person, not guessed from its shape.

A row of the map names the task and what was judged; the answer is read by the task's usual rule. With
the task `generation` the answer is a text, kept as an item. A mapped id without a line is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from batchpond import fields
from batchpond.errors import UsageError
from batchpond.foreign import (
    Doubt,
    Findings,
    ForeignJudgment,
    ForeignText,
    Record,
    Said,
    output_id,
    shortened,
)
from batchpond.foreign_files import Reader, SourceFile, json_lines
from batchpond.model import FileRole, Outcome, Response, ResponseStatus
from batchpond.providers import registry
from batchpond.row_files import Columns, RowFile, listed
from batchpond.tasks import common, compliance, likert, pairwise, pressure, ranking
from batchpond.tasks.base import Judgment

ROWS_MAX: Final = 300_000  # more than any provider takes in one batch
GENERATION: Final = "generation"
_RULES: Final = {
    pairwise.TASK: pairwise.AnswerRule(),
    ranking.TASK: ranking.AnswerRule(),
    compliance.TASK: compliance.AnswerRule(),
    likert.TASK: likert.AnswerRule(),
    pressure.TASK: pressure.AnswerRule(),
}
_NEEDS: Final = {
    pairwise.TASK: ("item_first", "item_second"),
    ranking.TASK: ("rubric_id", "unit_id", "item_first", "item_second", "candidate_first", "candidate_second"),
    compliance.TASK: ("rubric_id", "unit_id", "item_first"),
    likert.TASK: ("rubric_id", "unit_id", "item_first"),
    pressure.TASK: ("unit_id", "item_first", "candidate_first", "turn_no"),
    GENERATION: ("unit_id", "candidate_first"),
}
_TEXTS: Final = (
    "study", "template_id", "rubric_id", "thinking", "item_first", "item_second", "candidate_first", "candidate_second",
)  # fmt: skip
_NUMBERS: Final = ("turn_no", "repeat_no")
COLUMNS: Final = Columns(
    required=("custom_id",),
    optional=("task", "request_model", "unit_id", *_TEXTS, *_NUMBERS),
    aliases={
        "id": "custom_id", "key": "custom_id", "model": "request_model", "judge": "request_model",
        "id1": "item_first", "id2": "item_second", "item_a": "item_first", "item_b": "item_second",
        "item": "item_first",
        "candidate": "candidate_first", "template": "template_id", "trait": "rubric_id", "rubric": "rubric_id",
        "statement": "rubric_id", "prompt_id": "unit_id", "input": "unit_id", "turn": "turn_no", "repeat": "repeat_no",
    },
    suffixes=(".csv", ".jsonl", ".parquet"),
)  # fmt: skip

_Row = Mapping[str, str | None]


def reader(map_path: Path, provider: str) -> Reader:
    """Return what reads a provider's output files by a map; raises UsageError for a map that cannot be used."""
    mapped = _read_map(map_path)
    read_line = registry.module(provider).read_line

    def read(files: Sequence[SourceFile], said: Said, findings: Findings) -> Iterator[Record]:  # noqa: ARG001 - a Reader
        told: dict[str, str] = {}
        for file in files:
            for place, line, _ in json_lines(file, findings):
                response = read_line(line.rstrip(b"\r\n"), FileRole.OUTPUT)
                custom_id = response.custom_id or ""
                row = mapped.get(custom_id)
                if row is None:
                    findings.doubt(Doubt.FOREIGN_ID, place, f"answers {shortened(custom_id or None)}, not in the map")
                elif custom_id in told:
                    findings.problem(place, f"answers {shortened(custom_id)} as {told[custom_id]} does")
                else:
                    told[custom_id] = place
                    yield from _records(place, row, response, provider, findings)
        for custom_id, row in mapped.items():
            if custom_id not in told and row["task"] != GENERATION:
                yield _judgment(f"{map_path.name}:{row['line_no']}", row, None, provider)

    return read


def _read_map(path: Path) -> dict[str, _Row]:
    file = RowFile(path, COLUMNS)
    found: dict[str, _Row] = {}
    for block in file.blocks():
        for row in block.to_pylist():
            problem = _problem(row, found)
            if problem is not None:
                file.problems.add(row["line_no"], problem)
                continue
            found[row["custom_id"]] = row | {"task": row["task"] or pairwise.TASK}
            if len(found) > ROWS_MAX:
                raise UsageError(f"{path} has more than {ROWS_MAX:,} rows", hint="map one output file at a time")
    if file.problems.n:
        lines = (f"{file.unit} {line_no} {problem}" for line_no, problem in sorted(file.problems.shown))
        raise UsageError(
            f"{path}: {file.problems.n:,} {'rows' if file.problems.n > 1 else 'row'} cannot be used:"
            + listed(lines, file.problems.n),
            hint=f"a task is one of {', '.join(_NEEDS)}; nothing was imported",
        )
    if not found:
        raise UsageError(f"{path} has no rows", hint="it needs one per answer to be imported")
    return found


def _problem(row: Mapping[str, Any], found: Mapping[str, _Row]) -> str | None:
    task = row["task"] or pairwise.TASK
    if not row["custom_id"]:
        return "has no custom_id"
    if row["custom_id"] in found:
        return f"repeats the custom_id of line {found[row['custom_id']]['line_no']}"
    if task not in _NEEDS:
        return f"has task {shortened(task)}"
    missing = next((name for name in _NEEDS[task] if not (row[name] or "").strip()), None)
    if missing is not None:
        return f"has no {missing}, which {task} needs"
    if row["item_first"] is not None and row["item_first"] == row["item_second"]:
        return f"judges {shortened(row['item_first'])} against itself"
    wrong = next((name for name in _NUMBERS if row[name] and _whole(row[name]) is None), None)
    return f"has {wrong} {shortened(row[wrong])}, not a whole number" if wrong else None


def _whole(text: str | None) -> int | None:
    return fields.count(text.removesuffix(".0")) if text else None


def _records(place: str, row: _Row, response: Response, provider: str, findings: Findings) -> Iterator[Record]:
    if row["task"] != GENERATION:
        yield _judgment(place, row, response, provider)
        return
    text = response.text or ""
    if common.not_answered(response) is not None or not text.strip():
        reason = response.error_message or response.status
        findings.doubt(Doubt.FAILED_ANSWER, place, f"of {row['candidate_first']}: {shortened(reason)}")
        return
    unit_id, candidate = row["unit_id"] or "", row["candidate_first"] or ""
    item_id = row["item_first"] or output_id(unit_id, candidate, text)
    more = {"finish_reason": response.finish_reason, "response_model": response.response_model}
    yield ForeignText(
        place, "output", item_id, text, unit_id, row["rubric_id"], candidate, _whole(row["turn_no"]), more
    )


def _judgment(place: str, row: _Row, response: Response | None, provider: str) -> ForeignJudgment:
    task = row["task"] or pairwise.TASK
    if response is None:
        found = Judgment(None, Outcome.MISSING)
        response = Response(None, ResponseStatus.ERRORED)
    else:
        found = _RULES[task].read(response)
    texts: dict[str, Any] = {name: row[name] for name in _TEXTS}
    return ForeignJudgment(
        place, task, found.outcome, found.verdict, found.label, found.score, found.confidence, found.explanation,
        provider=provider,
        request_model=row["request_model"] or response.response_model,
        unit_id=row["unit_id"] or "",
        turn_no=_whole(row["turn_no"]),
        repeat_no=_whole(row["repeat_no"]) or 1,
        input_tokens=response.input_tokens,
        output_tokens=response.output_tokens,
        **texts,
    )  # fmt: skip
