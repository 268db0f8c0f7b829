"""Reading what SpecEval writes: specs, inputs, generations, rankings, compliance results and batch metadata."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from batchpond import fields, ids
from batchpond.interop.foreign import (
    Defaults,
    Doubt,
    Findings,
    ForeignJudgment,
    ForeignRubric,
    ForeignText,
    Record,
    SourceFile,
    TrackedBatch,
    output_id,
    shortened,
)
from batchpond.model import Outcome, Response, ResponseStatus, Verdict
from batchpond.study import statements
from batchpond.tasks import base, compliance, likert, ranking
from batchpond.tasks.base import Judgment
from batchpond_importers.reading import is_error_text, json_documents, json_lines, needed, objects

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


_SPECS: Final = statements.suffixes()
_NOT_READ: Final = {"preprocessed": "requests, which hold no answers", "raw": "raw judge output; the results have it"}
_RANKS: Final = {1: Verdict.FIRST, -1: Verdict.SECOND}
_SCALE: Final = range(1, 6)


def read(files: Sequence[SourceFile], defaults: Defaults, findings: Findings) -> Iterator[Record]:
    """Yield what files of SpecEval hold.

    A folder named after a spec names no study where one is given.
    """
    for file in files:
        suffix = file.path.suffix.lower()
        why_not = next((why for part, why in _NOT_READ.items() if part in file.shown.split("/")[:-1]), None)
        if why_not is not None:
            findings.skip(file.shown, why_not)
        elif suffix in _SPECS:
            yield from read_spec(file, findings)
        elif suffix == ".json":
            for found in json_documents(file, findings):
                if defaults.study and isinstance(found, dict) and isinstance(found.get("metadata"), dict):
                    found["metadata"].setdefault("study", defaults.study)
                yield from _read_document(file, found, findings)
        else:
            findings.skip(file.shown, f"none of .json, {', '.join(_SPECS)}")


def _read_document(file: SourceFile, found: Any, findings: Findings) -> Iterator[Record]:
    match found:
        case {"inputs": inputs}:
            yield from read_inputs(file, inputs, findings)
        case {"rankings": rows}:
            yield from _read_rankings(file, found, rows, findings)
        case {"generations": _, "metadata": dict()}:
            yield from read_live(file, found, findings)
        case {"judgements": rows, "metadata": dict() as metadata}:
            yield from _read_compliance(file, metadata, ("judgements", rows), findings)
        case {"results": _, "metadata": {"model_name": str()}}:
            yield from read_together(file, found, findings)
        case {"results": rows, "metadata": dict() as metadata}:
            yield from _read_compliance(file, metadata, ("results", rows), findings)
        case {"batch_id": str() as batch_id}:
            findings.batch(TrackedBatch(word(found, "provider"), batch_id, word(found, "model_name"), file.shown))
        case [{"input_text": _}, *_]:
            yield from read_batch(file, found, findings)
        case []:
            findings.skip(file.shown, "is empty")
        case _:
            findings.skip(file.shown, "no layout of SpecEval by its keys")


def _read_rankings(file: SourceFile, found: Mapping[str, Any], rows: Any, findings: Findings) -> Iterator[Record]:
    metadata = found.get("metadata")
    if not isinstance(metadata, dict):
        findings.problem(f"{file.shown}#/metadata", "is not an object")
        return
    where = f"{file.shown}#/metadata"
    first, second = (needed(metadata, name, where, findings) for name in ("model_a", "model_b"))
    if first is None or second is None:
        return
    if first == second:
        findings.problem(where, f"compares {shortened(first)} with itself")
        return
    judge = metadata.get("ranking_judge_model_info") or metadata.get("ranking_model")
    statement, said = _judged(file, metadata, judge)
    for place, entry in objects(rows, f"{file.shown}#/rankings", findings):
        needs = [needed(entry, name, place, findings) for name in ("input", "output_a", "output_b")]
        rank = entry.get("rank")
        if rank is not None and (isinstance(rank, bool) or not isinstance(rank, int) or abs(rank) > 1):
            findings.problem(place, f"has rank {shortened(rank)}, not 1, 0 or -1")
        elif all(text is not None for text in needs):
            unit = unit_of(statement, entry["input"])
            yield _ranked(place, said, unit, (first, second), entry, findings)


def _judged(file: SourceFile, metadata: Mapping[str, Any], judge: Any) -> tuple[str, Defaults]:
    found = place(file)
    info = judge if isinstance(judge, dict) else {}
    name = word(info, "model_name") or (judge if isinstance(judge, str) and judge else found.judge)
    statement = word(metadata, "statement_id") or found.statement
    spec = word(metadata, "org_spec_name")
    study = word(metadata, "study") or found.study or (f"speceval-{spec}" if spec else None)
    return statement, Defaults(study, rubric_id=statement, provider=word(info, "provider"), request_model=name)


def _own(said: Defaults, entry: Mapping[str, Any]) -> Defaults:
    """Return how a row was judged; what an export of a lake says beside the tool's own keys included."""
    return replace(said, template_id=word(entry, "template_id"), thinking=word(entry, "thinking"))


def _repeat_no(entry: Mapping[str, Any]) -> int:
    return fields.count(entry.get("repeat_no")) or 1


def _ranked(
    place: str, said: Defaults, unit: str, pair: tuple[str, str], entry: Mapping[str, Any], findings: Findings
) -> ForeignJudgment:
    outputs = (entry["output_a"], entry["output_b"])
    first, second = (output_id(unit, *named) for named in zip(pair, outputs, strict=True))
    found = ForeignJudgment(
        place, ranking.TASK, _ranking_reading(place, entry, findings), _own(said, entry), unit, first, second, *pair,
        repeat_no=_repeat_no(entry),
    )  # fmt: skip
    if any(map(is_error_text, outputs)):
        return found  # an error message is nobody's output: no generation could show whose it is
    other_first, other_second = (output_id(unit, *named) for named in zip(pair[::-1], outputs, strict=True))
    return replace(found, other_first=other_first, other_second=other_second)


def _ranking_reading(place: str, entry: Mapping[str, Any], findings: Findings) -> Judgment:
    """Return what the judge's text says; a rank alone is believed only where it names a winner."""
    raw, rank = entry.get("raw_judge_response"), entry.get("rank")
    error = next((entry[name] for name in ("output_a", "output_b") if is_error_text(entry[name])), None)
    if error is not None:
        return findings.unbelieved(Doubt.ERROR_TEXT, place, f"compares with {shortened(error)}", Outcome.ERROR)
    own = entry.get("outcome")
    if isinstance(own, str) and own in set(Outcome):  # an export of a lake, whose study may have another answer rule
        return _own_ranking(place, Outcome(own), rank, findings)
    if isinstance(raw, str) and raw.strip():
        return _read_again(place, raw, rank, findings)
    if rank in _RANKS:
        return Judgment(_RANKS[rank], Outcome.DECIDED)
    return findings.unbelieved(Doubt.ZERO_RANK, place, f"has rank {rank}")


def _own_ranking(place: str, outcome: Outcome, rank: int | None, findings: Findings) -> Judgment:
    verdict = Verdict.TIE if outcome is Outcome.TIE else _RANKS.get(rank or 0)
    if (verdict is not None) != (outcome in {Outcome.DECIDED, Outcome.TIE}):
        return findings.unbelieved(Doubt.CONTRADICTORY, place, f"is {outcome} with rank {rank}")
    return Judgment(verdict, outcome)


def _read_again(place: str, raw: str, rank: object, findings: Findings) -> Judgment:
    if is_error_text(raw):
        return findings.unbelieved(
            Doubt.ERROR_AS_VERDICT, place, f"has rank {rank} for {shortened(raw)}", Outcome.ERROR
        )
    if rank is not None and rank != ranking.parse_speceval(raw):
        return findings.unbelieved(Doubt.CONTRADICTORY, place, f"has rank {rank} for {shortened(raw)}")
    reading = ranking.RankingRule().read(Response(None, ResponseStatus.SUCCEEDED, text=raw))
    if rank == 0 and reading.outcome in {Outcome.UNPARSED, Outcome.AMBIGUOUS}:
        findings.doubt(Doubt.ERROR_AS_VERDICT, place, f"has rank 0 for {shortened(raw)}")
    elif rank in _RANKS and reading.verdict is None:
        findings.doubt(Doubt.CONTRADICTORY, place, f"has rank {rank} for {shortened(raw)}")
    return reading


def _read_compliance(
    file: SourceFile, metadata: Mapping[str, Any], named: tuple[str, Any], findings: Findings
) -> Iterator[Record]:
    key, rows = named
    judge = metadata.get("judge_model_info") or metadata.get("judge_model") or metadata.get("compliance_judge_model")
    statement, said = _judged(file, metadata, judge)
    live = candidate_of(metadata.get("candidate_model"))
    candidate = word(metadata, "model") or live or place(file).candidate
    for where, entry in objects(rows, f"{file.shown}#/{key}", findings):
        if not {"compliant", "rating"} & set(entry):
            findings.problem(where, "has neither compliant nor rating")
            continue
        asked = needed(entry, "input", where, findings)
        text = entry.get("output")
        if asked is None:
            continue
        if text is None or not isinstance(text, str):
            findings.problem(where, f"has output {shortened(text)}, not a text")
            continue
        yield asked_text(where, statement, asked)
        if text.strip() and not is_error_text(text):
            yield answered_text(where, statement, asked, candidate, text)
        yield _rated(where, said, unit_of(statement, asked), candidate, entry, findings)


def _rated(
    place: str, said: Defaults, unit: str, candidate: str, entry: Mapping[str, Any], findings: Findings
) -> ForeignJudgment:
    task = compliance.TASK if "compliant" in entry else likert.TASK
    found = _compliance_reading(place, entry, findings)
    found = found._replace(explanation=base.explanation(entry.get("explanation")))
    item = output_id(unit, candidate, entry["output"])
    return ForeignJudgment(
        place, task, found, _own(said, entry), unit, item, candidate_first=candidate, repeat_no=_repeat_no(entry)
    )


def _compliance_reading(place: str, entry: Mapping[str, Any], findings: Findings) -> Judgment:
    if not entry["output"].strip() or is_error_text(entry["output"]):
        return findings.unbelieved(Doubt.ERROR_TEXT, place, f"judges {shortened(entry['output'])}", Outcome.ERROR)
    own = entry.get("outcome")
    if isinstance(own, str) and own in set(Outcome) - {Outcome.DECIDED, Outcome.TIE}:  # an export of a lake
        return Judgment(None, Outcome(own))
    if "compliant" not in entry:
        return _rating(place, entry.get("rating"), findings)
    value = entry["compliant"]
    if value is None:
        return _unread(place, entry.get("explanation"), findings)
    word = str(value).strip().lower() if isinstance(value, bool | str) else ""
    if word not in {compliance.YES, compliance.NO}:
        return findings.unbelieved(Doubt.ERROR_AS_VERDICT, place, f"has compliant {shortened(value)}")
    return Judgment(word, Outcome.DECIDED, confidence=_confidence(place, entry.get("confidence"), findings))


def _rating(place: str, value: object, findings: Findings) -> Judgment:
    score = base.number(value)
    if score is None or score not in _SCALE:
        return findings.unbelieved(Doubt.ERROR_AS_VERDICT, place, f"has rating {shortened(value)}")
    return Judgment(None, Outcome.DECIDED, score=score)


def _unread(place: str, explanation: object, findings: Findings) -> Judgment:
    """Return what the judge's text says, which the tool keeps as explanation where it could not read it."""
    if isinstance(explanation, str) and not is_error_text(explanation):
        reading = compliance.ComplianceRule().read(Response(None, ResponseStatus.SUCCEEDED, text=explanation))
        if reading.outcome is not Outcome.EMPTY:
            findings.doubt(Doubt.ERROR_AS_VERDICT, place, f"has no verdict; its text is {reading.outcome}")
            return reading
    return findings.unbelieved(
        Doubt.ERROR_AS_VERDICT,
        place,
        f"has no verdict for {shortened(explanation)}",
        Outcome.ERROR if isinstance(explanation, str) and explanation else Outcome.UNPARSED,
    )


def _confidence(place: str, value: object, findings: Findings) -> float | None:
    found = base.confidence(value) if not isinstance(value, str) else None
    if found is None and value is not None:
        findings.doubt(Doubt.BAD_CONFIDENCE, place, f"has confidence {shortened(value)}")
    return found
