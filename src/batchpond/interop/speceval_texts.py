"""Reading the texts of SpecEval: specs, inputs, and what candidates answered to them.

Specs are JSON lines, YAML or Markdown. Answers are a list per statement and model of a batch run, a cache of a live
run, or the one `results.json` of a Together run. A candidate is named as SpecEval names its folders, with `-` for
`/`: only so are its rankings and its answers the same candidate's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from batchpond import ids
from batchpond.interop.foreign import (
    Doubt,
    Findings,
    ForeignRubric,
    ForeignText,
    Record,
    is_error_text,
    needed,
    output_id,
    shortened,
)
from batchpond.interop.foreign_files import SourceFile, json_lines, objects
from batchpond.study.statements import read as statements

_STAMP: Final = re.compile(r"\d{8}[_-]\d{6}")
_JUDGES: Final = ("judge_", "ranker_")


@dataclass(frozen=True, slots=True)
class Place:
    """A file's statement and what the folders above it say."""

    statement: str
    study: str | None
    judge: str | None
    candidate: str


@dataclass(frozen=True, slots=True)
class _Answers:
    """What the rows of one file of answers share, and which of their keys are the input and the output."""

    candidate: str
    asked: str = "input_text"
    answered: str = "output_text"
    model_name: str | None = None


def unit_of(statement: str, text: str) -> str:
    """Return the id of an input: the same wherever the same text belongs to the same statement."""
    return f"{statement}/{ids.digest('input', statement, text, length=12)}"


def word(entry: Mapping[str, Any], name: str) -> str | None:
    """Return a text that is not blank, None for anything else."""
    value = entry.get(name)
    return value if isinstance(value, str) and value.strip() else None


def candidate_of(info: Any) -> str | None:
    """Return a model as SpecEval names its folders, of its name or of the object that describes it."""
    name = info if isinstance(info, str) else word(info, "model_name") if isinstance(info, dict) else None
    return name.replace("/", "-") if name and name.strip() else None


def place(file: SourceFile) -> Place:
    """Return what a file's name and the folders above it say; folders named after two models are not taken apart."""
    folders = [part for part in file.parts if part != "results" and not _STAMP.fullmatch(part)]
    named = {head: part.removeprefix(head) for part in folders for head in ("spec_", *_JUDGES) if part.startswith(head)}
    spec = named.get("spec_")
    judge = next((named[head] for head in _JUDGES if head in named), None)
    return Place(file.path.stem, f"speceval-{spec}" if spec else None, judge, folders[-1] if folders else "")


def read_spec(file: SourceFile, findings: Findings) -> Iterator[Record]:
    """Yield the statements of a spec, each as a rubric and as a text."""
    if file.path.suffix.lower() in statements.JSON_LINES:
        yield from _statements(((place, entry) for place, _, entry in json_lines(file, findings)), findings)
        return
    found = list(statements.entries(file.path))
    if all(isinstance(entry, dict) and not {"id", "text"} & set(entry) for _, entry in found):
        findings.skip(file.shown, "holds no statements")
        return
    yield from _statements(((f"{file.shown}:{line_no}", entry) for line_no, entry in found), findings)


def _statements(rows: Iterable[tuple[str, Any]], findings: Findings) -> Iterator[Record]:
    seen: dict[str, str] = {}
    for place_of, entry in rows:
        if isinstance(entry, str):
            findings.problem(place_of, entry)
            continue
        statement, text = (needed(entry, name, place_of, findings) for name in ("id", "text"))
        if statement is None or text is None:
            continue
        if statement in seen:
            findings.problem(place_of, f"repeats the id {shortened(statement)} of {seen[statement]}")
            continue
        seen[statement] = place_of
        try:
            rubric = statements.rubric_of(entry)
        except ValueError as error:
            findings.problem(place_of, f"cannot be used: {error}")
            continue
        more = {name: value for name, value in entry.items() if name not in {"id", "text"}}
        yield ForeignRubric(place_of, rubric)
        yield ForeignText(place_of, "statement", f"statement/{statement}", text, rubric_id=statement, more=more)


def read_inputs(file: SourceFile, inputs: Any, findings: Findings) -> Iterator[Record]:
    """Yield the inputs of the statement that a file is named after."""
    if not isinstance(inputs, list):
        findings.problem(f"{file.shown}#/inputs", "is not a list")
        return
    statement = file.path.stem
    for number, text in enumerate(inputs):
        place_of = f"{file.shown}#/inputs/{number}"
        if isinstance(text, str) and text.strip():
            yield asked_text(place_of, statement, text)
        else:
            findings.problem(place_of, f"is {shortened(text)}, not a text")


def asked_text(place_of: str, statement: str, text: str) -> ForeignText:
    """Return an input as an item."""
    unit = unit_of(statement, text)
    return ForeignText(place_of, "input", unit, text, unit_id=unit, rubric_id=statement)


def answered_text(
    place_of: str, statement: str, asked: str, candidate: str, text: str, more: Mapping[str, Any] | None = None
) -> ForeignText:
    """Return what a candidate answered as an item."""
    unit = unit_of(statement, asked)
    item_id = output_id(unit, candidate, text)
    return ForeignText(place_of, "output", item_id, text, unit, statement, candidate, more=more or {})


def read_batch(file: SourceFile, rows: Any, findings: Findings) -> Iterator[Record]:
    """Yield the answers of one model to one statement's inputs, of a batch run."""
    place_of = place(file)
    answers = _Answers(place_of.candidate)
    for where, entry in objects(rows, f"{file.shown}#", findings):
        yield from _answer(where, place_of.statement, answers, entry, findings)


def read_live(file: SourceFile, found: Mapping[str, Any], findings: Findings) -> Iterator[Record]:
    """Yield the answers that a live run keeps; the file says the candidate, of which its folder's name may not."""
    metadata = found["metadata"]
    model = metadata.get("candidate_model")
    candidate = candidate_of(model)
    if candidate is None:
        findings.problem(f"{file.shown}#/metadata", f"has candidate_model {shortened(model)}, which names no model")
        return
    statement = word(metadata, "statement_id") or file.path.stem
    model_name = model if isinstance(model, str) else word(model, "model_name")
    answers = _Answers(candidate, "input", "output", model_name)
    for where, entry in objects(found["generations"], f"{file.shown}#/generations", findings):
        yield from _answer(where, statement, answers, entry, findings)


def read_together(file: SourceFile, found: Mapping[str, Any], findings: Findings) -> Iterator[Record]:
    """Yield all answers of a Together run: one file of one model and many statements."""
    model_name = found["metadata"]["model_name"]
    candidate = candidate_of(model_name)
    if candidate is None:
        findings.problem(f"{file.shown}#/metadata", "has a blank model_name")
        return
    answers = _Answers(candidate, model_name=model_name)
    for where, entry in objects(found["results"], f"{file.shown}#/results", findings):
        statement = needed(entry, "statement_id", where, findings)
        if statement is not None:
            yield from _answer(where, statement, answers, entry, findings)


def _answer(
    where: str, statement: str, answers: _Answers, entry: Mapping[str, Any], findings: Findings
) -> Iterator[Record]:
    asked = needed(entry, answers.asked, where, findings)
    if asked is None:
        return
    text = entry.get(answers.answered)
    if answers.answered not in entry or (text is not None and not isinstance(text, str)):
        findings.problem(where, f"has {answers.answered} {shortened(text)}, not a text")
        return
    yield asked_text(where, statement, asked)
    candidate = word(entry, "candidate") or answers.candidate  # a folder's name lacks what a path cannot hold
    if text is None or not text.strip() or is_error_text(text):
        findings.doubt(Doubt.FAILED_ANSWER, where, f"of {candidate}: {shortened(text)}")
        return
    more = {
        "batch_id": word(entry, "batch_id"), "original_index": entry.get("original_index"),
        "model_name": answers.model_name,
    }  # fmt: skip
    yield answered_text(where, statement, asked, candidate, text, more)
