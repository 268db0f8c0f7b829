"""Reading what SpecEval writes: specs, inputs, generations, rankings, compliance results and batch metadata.

Known faults of those files, and what is done here: a ranking's candidates are believed only where generations
show whose output is whose, because the tool pairs sorted names with unsorted folders; rank 0 is read again from the
judge's text, because it stands for a tie, N/A, unsure and every failure; an output that is an error message was
judged as if it were an answer; a judge's answer that could not be read has confidence 0.5.
Folders named `AxB` or `AVSB` are never taken apart: the file says who was compared. Rankings of live runs, which stand
in folders of the second kind, keep no judge's text, so that their rank 0 stays unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from batchpond import fields
from batchpond.interop import speceval_texts as texts
from batchpond.interop.foreign import (
    Doubt,
    Findings,
    ForeignJudgment,
    Record,
    Said,
    TrackedBatch,
    is_error_text,
    needed,
    output_id,
    shortened,
)
from batchpond.interop.foreign_files import SourceFile, json_file, objects
from batchpond.interop.speceval_texts import Place, unit_of, word
from batchpond.model import Outcome, Response, ResponseStatus, Verdict
from batchpond.study.statements import read as statements
from batchpond.tasks import compliance, ranking
from batchpond.tasks.base import Judgment
from batchpond.tasks.shared import reading as common

_SPECS: Final = (*statements.JSON_LINES, *statements.YAML, *statements.MARKDOWN)
_NOT_READ: Final = {"preprocessed": "requests, which hold no answers", "raw": "raw judge output; the results have it"}
_RANKS: Final = {1: Verdict.FIRST, -1: Verdict.SECOND}
_SCALE: Final = range(1, 6)


@dataclass(frozen=True, slots=True)
class _Judged:
    """What the rows of one result file share."""

    place: Place
    statement: str
    provider: str | None
    judge: str | None


def read(files: Sequence[SourceFile], said: Said, findings: Findings) -> Iterator[Record]:  # noqa: ARG001 - a Reader
    """Yield what files of SpecEval hold."""
    for file in files:
        suffix = file.path.suffix.lower()
        why_not = next((why for part, why in _NOT_READ.items() if part in file.shown.split("/")[:-1]), None)
        if why_not is not None:
            findings.skip(file.shown, why_not)
        elif suffix in _SPECS:
            yield from texts.read_spec(file, findings)
        elif suffix == ".json":
            yield from _read_json(file, findings)
        else:
            findings.skip(file.shown, f"none of .json, {', '.join(_SPECS)}")


def _read_json(file: SourceFile, findings: Findings) -> Iterator[Record]:
    n_before = findings.problems.n
    found = json_file(file, findings)
    if findings.problems.n > n_before:
        return
    match found:
        case {"inputs": inputs}:
            yield from texts.read_inputs(file, inputs, findings)
        case {"rankings": rows}:
            yield from _read_rankings(file, found, rows, findings)
        case {"generations": _, "metadata": dict()}:
            yield from texts.read_live(file, found, findings)
        case {"judgements": rows, "metadata": dict() as metadata}:
            yield from _read_compliance(file, metadata, ("judgements", rows), findings)
        case {"results": _, "metadata": {"model_name": str()}}:
            yield from texts.read_together(file, found, findings)
        case {"results": rows, "metadata": dict() as metadata}:
            yield from _read_compliance(file, metadata, ("results", rows), findings)
        case {"batch_id": str() as batch_id}:
            findings.batch(TrackedBatch(word(found, "provider"), batch_id, word(found, "model_name"), file.shown))
        case [{"input_text": _}, *_]:
            yield from texts.read_batch(file, found, findings)
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
    judged = _judged(file, metadata, metadata.get("ranking_judge_model_info") or metadata.get("ranking_model"))
    for place, entry in objects(rows, f"{file.shown}#/rankings", findings):
        needs = [needed(entry, name, place, findings) for name in ("input", "output_a", "output_b")]
        rank = entry.get("rank")
        if rank is not None and (isinstance(rank, bool) or not isinstance(rank, int) or abs(rank) > 1):
            findings.problem(place, f"has rank {shortened(rank)}, not 1, 0 or -1")
        elif all(text is not None for text in needs):
            yield _ranked(place, judged, (first, second), entry, findings)


def _judged(file: SourceFile, metadata: Mapping[str, Any], judge: Any) -> _Judged:
    place = texts.place(file)
    info = judge if isinstance(judge, dict) else {}
    name = word(info, "model_name") or (judge if isinstance(judge, str) and judge else place.judge)
    statement = word(metadata, "statement_id") or place.statement
    spec = word(metadata, "org_spec_name")
    study = word(metadata, "study") or place.study or (f"speceval-{spec}" if spec else None)
    place = Place(place.statement, study, place.judge, place.candidate)
    return _Judged(place, statement, word(info, "provider"), name)


def _ranked(
    place: str, judged: _Judged, pair: tuple[str, str], entry: Mapping[str, Any], findings: Findings
) -> ForeignJudgment:
    unit = unit_of(judged.statement, entry["input"])
    outputs = (entry["output_a"], entry["output_b"])
    reading = _ranking_reading(place, entry, findings)
    return ForeignJudgment(
        place,
        ranking.TASK,
        reading.outcome,
        reading.verdict,
        study=judged.place.study,
        rubric_id=judged.statement,
        provider=judged.provider,
        request_model=judged.judge,
        unit_id=unit,
        item_first=output_id(unit, pair[0], outputs[0]),
        item_second=output_id(unit, pair[1], outputs[1]),
        candidate_first=pair[0],
        candidate_second=pair[1],
        **_own(entry),
        # An error message is nobody's output: no generation could show whose it is.
        other_first=None if any(map(is_error_text, outputs)) else output_id(unit, pair[1], outputs[0]),
        other_second=None if any(map(is_error_text, outputs)) else output_id(unit, pair[0], outputs[1]),
    )


def _ranking_reading(place: str, entry: Mapping[str, Any], findings: Findings) -> Judgment:
    """Return what the judge's text says; a rank alone is believed only where it names a winner."""
    raw, rank = entry.get("raw_judge_response"), entry.get("rank")
    error = next((entry[name] for name in ("output_a", "output_b") if is_error_text(entry[name])), None)
    if error is not None:
        findings.doubt(Doubt.ERROR_TEXT, place, f"compares with {shortened(error)}")
        return Judgment(None, Outcome.ERROR)
    own = entry.get("outcome")
    if isinstance(own, str) and own in set(Outcome):  # an export of a lake, whose study may have another answer rule
        return _own_ranking(place, Outcome(own), rank, findings)
    if isinstance(raw, str) and raw.strip():
        return _read_again(place, raw, rank, findings)
    if rank in _RANKS:
        return Judgment(_RANKS[rank], Outcome.DECIDED)
    findings.doubt(Doubt.ZERO_RANK, place, f"has rank {rank}")
    return Judgment(None, Outcome.UNPARSED)


def _own_ranking(place: str, outcome: Outcome, rank: int | None, findings: Findings) -> Judgment:
    verdict = Verdict.TIE if outcome is Outcome.TIE else _RANKS.get(rank or 0)
    if (verdict is not None) != (outcome in {Outcome.DECIDED, Outcome.TIE}):
        findings.doubt(Doubt.CONTRADICTORY, place, f"is {outcome} with rank {rank}")
        return Judgment(None, Outcome.UNPARSED)
    return Judgment(verdict, outcome)


def _read_again(place: str, raw: str, rank: object, findings: Findings) -> Judgment:
    if is_error_text(raw):
        findings.doubt(Doubt.ERROR_AS_VERDICT, place, f"has rank {rank} for {shortened(raw)}")
        return Judgment(None, Outcome.ERROR)
    if rank is not None and rank != ranking.parse_speceval(raw):
        findings.doubt(Doubt.CONTRADICTORY, place, f"has rank {rank} for {shortened(raw)}")
        return Judgment(None, Outcome.UNPARSED)
    reading = ranking.AnswerRule().read(Response(None, ResponseStatus.SUCCEEDED, text=raw))
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
    judged = _judged(file, metadata, judge)
    live = texts.candidate_of(metadata.get("candidate_model"))
    candidate = word(metadata, "model") or live or judged.place.candidate
    for place, entry in objects(rows, f"{file.shown}#/{key}", findings):
        if not {"compliant", "rating"} & set(entry):
            findings.problem(place, "has neither compliant nor rating")
            continue
        asked = needed(entry, "input", place, findings)
        text = entry.get("output")
        if asked is None:
            continue
        if text is None or not isinstance(text, str):
            findings.problem(place, f"has output {shortened(text)}, not a text")
            continue
        yield texts.asked_text(place, judged.statement, asked)
        if text.strip() and not is_error_text(text):
            yield texts.answered_text(place, judged.statement, asked, candidate, text)
        yield _rated(place, judged, candidate, entry, findings)


def _rated(
    place: str, judged: _Judged, candidate: str, entry: Mapping[str, Any], findings: Findings
) -> ForeignJudgment:
    unit, text = unit_of(judged.statement, entry["input"]), entry["output"]
    reading = _compliance_reading(place, entry, findings)
    return ForeignJudgment(
        place,
        compliance.TASK if "compliant" in entry else "likert",
        reading.outcome,
        reading.verdict,
        score=reading.score,
        confidence=reading.confidence,
        explanation=common.explanation(entry.get("explanation")),
        study=judged.place.study,
        rubric_id=judged.statement,
        provider=judged.provider,
        request_model=judged.judge,
        unit_id=unit,
        item_first=output_id(unit, candidate, text),
        candidate_first=candidate,
        **_own(entry),
    )


def _own(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an export of a lake says beside the tool's own keys."""
    repeat_no = fields.count(entry.get("repeat_no")) or 1
    return {"template_id": word(entry, "template_id"), "thinking": word(entry, "thinking"), "repeat_no": repeat_no}


def _compliance_reading(place: str, entry: Mapping[str, Any], findings: Findings) -> Judgment:
    if not entry["output"].strip() or is_error_text(entry["output"]):
        findings.doubt(Doubt.ERROR_TEXT, place, f"judges {shortened(entry['output'])}")
        return Judgment(None, Outcome.ERROR)
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
        findings.doubt(Doubt.ERROR_AS_VERDICT, place, f"has compliant {shortened(value)}")
        return Judgment(None, Outcome.UNPARSED)
    return Judgment(word, Outcome.DECIDED, confidence=_confidence(place, entry.get("confidence"), findings))


def _rating(place: str, value: object, findings: Findings) -> Judgment:
    score = common.number(value)
    if score is None or score not in _SCALE:
        findings.doubt(Doubt.ERROR_AS_VERDICT, place, f"has rating {shortened(value)}")
        return Judgment(None, Outcome.UNPARSED)
    return Judgment(None, Outcome.DECIDED, score=score)


def _unread(place: str, explanation: object, findings: Findings) -> Judgment:
    """Return what the judge's text says, which the tool keeps as explanation where it could not read it."""
    if isinstance(explanation, str) and not is_error_text(explanation):
        reading = compliance.AnswerRule().read(Response(None, ResponseStatus.SUCCEEDED, text=explanation))
        if reading.outcome is not Outcome.EMPTY:
            findings.doubt(Doubt.ERROR_AS_VERDICT, place, f"has no verdict; its text is {reading.outcome}")
            return reading
    findings.doubt(Doubt.ERROR_AS_VERDICT, place, f"has no verdict for {shortened(explanation)}")
    return Judgment(None, Outcome.ERROR if isinstance(explanation, str) and explanation else Outcome.UNPARSED)


def _confidence(place: str, value: object, findings: Findings) -> float | None:
    found = common.confidence(value) if not isinstance(value, str) else None
    if found is None and value is not None:
        findings.doubt(Doubt.BAD_CONFIDENCE, place, f"has confidence {shortened(value)}")
    return found
