"""Reading what SycoBench writes: conversations, pressure rows, cold starts, judges' labels and tracking files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from batchpond import fields, ids
from batchpond.interop.foreign import (
    Defaults,
    Doubt,
    Findings,
    ForeignJudgment,
    ForeignText,
    Record,
    SourceFile,
    TrackedBatch,
    csv_header,
    csv_rows,
    output_id,
    shortened,
)
from batchpond.model import Outcome
from batchpond.tasks import base
from batchpond.tasks.base import Judgment
from batchpond_importers.reading import is_error_text, json_documents, json_lines, needed, objects

TASK: Final = "pressure"
KEYWORDS: Final = Defaults(provider="sycobench", request_model="keywords")
_LABELS: Final = {
    "no_flip": "no_flip", "soft_flip": "soft_flip", "explicit_flip": "explicit_flip",
    "initially_unsafe": "initially_wrong", "initially_wrong": "initially_wrong",
}  # fmt: skip
_OWN_OUTCOMES: Final = frozenset(Outcome) - {Outcome.TIE}  # which no answer under pressure is
_SCORES: Final = {"no_flip": 0, "soft_flip": 1, "explicit_flip": 2}
_AT_FIRST: Final = {"safe": "no_flip", "unsafe": "initially_wrong"}
_FAILED_REASON: Final = re.compile(
    r"\s*(?:\[?(?:parsing |scoring |api )?error\b|failed to |could not |exception\b|no (?:json|response)\b|timeout\b)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Label:
    """What a scorer said of an answer, and how it was asked: `said` has the tactic, and the scorer if it is known."""

    word: object
    score: object
    reason: object
    confidence: object
    said: Defaults
    outcome: object = None


def at_first(answer: ForeignText, assessment: object, tactic: str | None) -> Iterator[Record]:
    """Yield a first answer, and what the keyword scorer made of it where it said anything."""
    yield answer
    if not isinstance(assessment, str):
        return
    label = _AT_FIRST.get(assessment)
    found = Judgment(None, Outcome.UNSURE if label is None else Outcome.DECIDED, label or "unjudgeable")
    yield _judgment(answer, found, replace(KEYWORDS, rubric_id=tactic))


def _judgment(answer: ForeignText, found: Judgment, said: Defaults) -> ForeignJudgment:
    return ForeignJudgment(
        answer.source, TASK, found, said, answer.unit_id or "", answer.item_id, candidate_first=answer.candidate,
        turn_no=answer.turn_no,
    )  # fmt: skip


def labelled(answer: ForeignText, label: Label, findings: Findings) -> ForeignJudgment:
    """Return a scorer's label; one that stands for a failure of the scorer is none."""
    found = _reading(answer.source, label, findings)
    confidence = base.confidence(label.confidence) if found.outcome is Outcome.DECIDED else None
    if confidence is None and found.outcome is Outcome.DECIDED and label.confidence is not None:
        findings.doubt(Doubt.BAD_CONFIDENCE, answer.source, f"has confidence {shortened(label.confidence)}")
    found = found._replace(confidence=confidence, explanation=base.explanation(label.reason))
    return _judgment(answer, found, label.said)


def _reading(place: str, label: Label, findings: Findings) -> Judgment:
    word = _LABELS.get(label.word) if isinstance(label.word, str) else None
    if isinstance(label.outcome, str) and label.outcome in _OWN_OUTCOMES:  # an export of a lake
        own = Outcome(label.outcome)
        if own is not Outcome.DECIDED or word is not None:
            return Judgment(None, own, {Outcome.DECIDED: word, Outcome.UNSURE: "unjudgeable"}.get(own))
    reason = label.reason if isinstance(label.reason, str) else None
    score = base.number(label.score)
    told = f"has {shortened(label.word)} for {shortened(reason)}"
    if label.word == "error" or (reason is not None and _FAILED_REASON.match(reason) is not None):
        return findings.unbelieved(Doubt.ERROR_AS_VERDICT, place, told, Outcome.ERROR)
    # A failure was recorded as "no flip" with no reason given; keywords give none either.
    is_by_words = (label.said.provider, label.said.request_model) == (KEYWORDS.provider, KEYWORDS.request_model)
    if word == "no_flip" and not is_by_words and not (reason or "").strip() and score is None:
        return findings.unbelieved(Doubt.ERROR_AS_VERDICT, place, told)
    if word is None:
        return findings.unbelieved(Doubt.ERROR_AS_VERDICT, place, f"has the label {shortened(label.word)}")
    if score is not None and _SCORES.get(word, score) != score:
        return findings.unbelieved(Doubt.CONTRADICTORY, place, f"has score {score:g} for {word}")
    return Judgment(None, Outcome.DECIDED, word)


_PLACEHOLDER: Final = "[PLACEHOLDER_RESPONSE]"
_PRESSURE_ID: Final = re.compile(r"request-\d+-pressure-\d+")
_PROVIDERS: Final = {"claude": "anthropic", "openai": "openai", "gemini": "gemini", "grok": "xai", "xai": "xai"}


@dataclass
class _Context:
    findings: Findings
    # What an answer in the 50-pressure set was, by model, question and tactic number; None where it is two things.
    answers: dict[tuple[str, str, int], tuple[str, str, str | None] | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Talk:
    """Who answers which question, and how that is scored: `said` has the tactic, and the scorer if it is known."""

    candidate: str
    question: str
    said: Defaults
    findings: Findings
    more: Mapping[str, Any] = field(default_factory=dict)

    def answer(self, place: str, text: object, turn_no: int, **more: Any) -> ForeignText | None:
        """Return an answer, whose id names the turn and the tactic: the same text may be the answer to several."""
        if text is not None and not isinstance(text, str):
            self.findings.problem(place, f"has response {shortened(text)}, not a text")
            return None
        if text is None or not text.strip() or is_error_text(text) or _PLACEHOLDER in text:
            is_placeholder = text is not None and _PLACEHOLDER in text
            kind = Doubt.PLACEHOLDER_TURN if is_placeholder else Doubt.FAILED_ANSWER
            self.findings.doubt(kind, place, f"of {self.candidate}: {shortened(text)}")
            return None
        unit, tactic = unit_of(self.question), self.said.rubric_id
        turn = "/".join(part for part in (self.candidate, tactic, str(turn_no)) if part)
        more = {**self.more, "tactic": tactic, **more}
        item_id = output_id(unit, turn, text)
        return ForeignText(place, "output", item_id, text, unit, tactic, self.candidate, turn_no, more)


def read(files: Sequence[SourceFile], defaults: Defaults, findings: Findings) -> Iterator[Record]:  # noqa: ARG001 - a Reader
    """Yield what files of SycoBench hold.

    Raises UsageError for a CSV that is none.
    """
    context = _Context(findings)
    for file in files:
        match file.path.suffix.lower():
            case ".json":
                for found in json_documents(file, findings):
                    yield from _read_document(file, found, context)
            case ".jsonl":
                yield from _read_lines(file, findings)
            case ".csv":
                continue
            case _:
                is_notes = file.path.name == "job_info.txt"
                findings.skip(file.shown, "notes of a batch job" if is_notes else "not read")
    for file in files:
        if file.path.suffix.lower() == ".csv":
            yield from _read_scores(file, context)


def unit_of(question: str) -> str:
    """Return the id of a question, whatever number it has in which file."""
    return f"q/{ids.digest('question', question, length=12)}"


def _question(place: str, text: str) -> ForeignText:
    unit = unit_of(text)
    return ForeignText(place, "question", unit, text, unit_id=unit)


def _read_document(file: SourceFile, found: Any, context: _Context) -> Iterator[Record]:
    findings = context.findings
    match found:
        case {"conversations": rows}:
            yield from _read_conversations(file, found, rows, findings)
        case {"results": rows} | ([{"status": _}, *_] as rows):
            metadata = fields.mapping(fields.mapping(found).get("metadata"))
            yield from _read_rows(file, metadata or fields.mapping(found), rows, context)
        case {"batches": batches}:
            for place, entry in objects(batches, f"{file.shown}#/batches", findings):
                _track(entry, place, findings)
        case {"batch_id": _} | {"job_name": _}:
            _track(found, file.shown, findings)
        case {"error": error}:
            findings.doubt(Doubt.FAILED_ANSWER, file.shown, f"holds an error and no conversation: {shortened(error)}")
        case _:
            findings.skip(file.shown, "no conversations, rows or batches by its keys")


def _track(entry: Mapping[str, Any], place: str, findings: Findings) -> None:
    batch_id = fields.identifier(entry.get("batch_id")) or fields.identifier(entry.get("job_name"))
    if batch_id is None:
        findings.problem(place, "has no batch_id")
        return
    named = fields.identifier(entry.get("provider"))
    provider = named or ("claude" if batch_id.startswith("msgbatch_") else None)
    model = fields.identifier(entry.get("model"))
    findings.batch(TrackedBatch(_PROVIDERS.get(provider or "", provider), batch_id, model, place))


def _read_lines(file: SourceFile, findings: Findings) -> Iterator[Record]:
    """Note why no line of a batch file can be an answer to a question."""
    n = 0
    for place, line, entry in json_lines(file, findings):
        custom_id = fields.identifier(entry.get("custom_id"))
        if "body" in entry or "params" in entry or ("request" in entry and "response" not in entry):
            n += 1
        elif (custom_id and _PRESSURE_ID.fullmatch(custom_id)) or _PLACEHOLDER.encode() in line:
            findings.doubt(Doubt.PLACEHOLDER_TURN, place, f"answers {shortened(custom_id)}")
        else:
            findings.doubt(Doubt.FOREIGN_ID, place, f"answers {shortened(custom_id)}; see `import rows --map`")
    if n:
        findings.skip(file.shown, "requests, which hold no answers")
    return iter(())


def _read_conversations(file: SourceFile, found: Mapping[str, Any], rows: Any, findings: Findings) -> Iterator[Record]:
    candidate = fields.identifier(found.get("model_key")) or fields.identifier(found.get("model_name"))
    if candidate is None:
        findings.problem(file.shown, "has no model_key")
        return
    for place, entry in objects(rows, f"{file.shown}#/conversations", findings):
        question = needed(entry, "question", place, findings)
        if question is None:
            continue
        if "error" in entry and not entry.get("pressure_rounds"):
            findings.doubt(Doubt.FAILED_ANSWER, place, f"holds an error: {shortened(entry['error'])}")
            continue
        yield _question(place, question)
        tactic = fields.identifier(entry.get("pressure_type"))
        scorer = fields.identifier(fields.inside(entry, "flip_summary.scorer_model"))
        said = Defaults(rubric_id=tactic, provider=fields.identifier(found.get("judge_provider")), request_model=scorer)
        talk = _Talk(candidate, question, said, findings, {"question_id": entry.get("question_id")})
        first = fields.mapping(entry.get("initial_response"))
        answer = talk.answer(f"{place}/initial_response", first.get("response"), 0)
        if answer is not None:
            yield from at_first(answer, first.get("safety_assessment"), tactic)
            if "flip_type" in first:
                yield labelled(answer, _label(first, said), findings)
        yield from _rounds(objects(entry.get("pressure_rounds", []), f"{place}/pressure_rounds", findings), talk)


def _rounds(rounds: Iterator[tuple[str, dict[str, Any]]], talk: _Talk) -> Iterator[Record]:
    seen: set[int] = set()
    for place, entry in rounds:
        level = fields.count(entry.get("level"))
        if not level or level in seen:
            talk.findings.problem(place, f"{'repeats' if level else 'has'} level {shortened(entry.get('level'))}")
            continue
        seen.add(level)
        answer = talk.answer(place, entry.get("response"), level, pressure=fields.text(entry.get("pressure")))
        if answer is None:
            continue
        yield answer
        if "flip_type" in entry:
            yield labelled(answer, _label(entry, talk.said), talk.findings)


def _label(entry: Mapping[str, Any], said: Defaults) -> Label:
    reason = entry.get("explanation", entry.get("reasoning"))
    said = replace(said, template_id=fields.identifier(entry.get("template_id")))
    if not (said.provider or said.request_model or {"explanation", "reasoning"} & set(entry)):
        said, reason = said.or_else(KEYWORDS), ""
    return Label(entry["flip_type"], None, reason, entry.get("confidence"), said, entry.get("outcome"))


def _read_rows(file: SourceFile, about: Mapping[str, Any], rows: Any, context: _Context) -> Iterator[Record]:
    findings = context.findings
    for place, entry in objects(rows, f"{file.shown}#/results" if not isinstance(rows, str) else "", findings):
        question = needed(entry, "question", place, findings)
        if question is None:
            continue
        if entry.get("status") != "success":
            findings.doubt(Doubt.FAILED_ANSWER, place, f"is {shortened(entry.get('error', entry.get('status')))}")
            continue
        yield _question(place, question)
        result = entry.get("result")
        if isinstance(result, dict):
            yield from _tactic_row(place, about, question, entry, result, context)
        else:
            yield from _cold_row(place, about, question, entry, findings)


def _candidate(about: Mapping[str, Any], result: Mapping[str, Any]) -> str | None:
    names = (about.get("model_key"), result.get("model_name"), about.get("model"), about.get("model_name"))
    return next((name for name in names if isinstance(name, str) and name), None)


def _tactic_row(
    place: str,
    about: Mapping[str, Any],
    question: str,
    entry: Mapping[str, Any],
    result: Mapping[str, Any],
    context: _Context,
) -> Iterator[Record]:
    findings = context.findings
    candidate = _candidate(about, result)
    if candidate is None:
        findings.problem(place, "does not say which model answered")
        return
    if result.get("model_name") not in (None, candidate):
        findings.doubt(Doubt.MISATTRIBUTED, place, f"of {candidate} was answered by {shortened(result['model_name'])}")
        return
    tactic = fields.identifier(entry.get("pressure_type"))
    more = {name: entry.get(name) for name in ("question_id", "pressure_num", "category")}
    talk = _Talk(candidate, question, Defaults(rubric_id=tactic), findings, more)
    answer = talk.answer(f"{place}/result/initial_response", result.get("initial_response"), 0)
    if answer is not None:
        yield from at_first(answer, result.get("initial_safety_assessment"), tactic)
    rounds = list(objects(result.get("pressure_results", []), f"{place}/result/pressure_results", findings))
    for record in _rounds(iter(rounds), talk):
        if isinstance(record, ForeignText):
            _remember(context, candidate, entry, record, tactic)
        yield record


def _remember(
    context: _Context, candidate: str, entry: Mapping[str, Any], text: ForeignText, tactic: str | None
) -> None:
    question_id, number = entry.get("question_id"), fields.count(entry.get("pressure_num"))
    if question_id is not None and number is not None and text.turn_no == 1:
        key = (candidate, str(question_id), number)
        told = (text.unit_id or "", text.item_id, tactic)
        context.answers[key] = told if context.answers.get(key, told) == told else None


def _cold_row(
    place: str, about: Mapping[str, Any], question: str, entry: Mapping[str, Any], findings: Findings
) -> Iterator[Record]:
    candidate = _candidate(about, entry)
    if candidate is None:
        findings.problem(place, "does not say which model answered")
        return
    said = Defaults(rubric_id="cold_start", request_model=fields.identifier(entry.get("judge_model")))
    talk = _Talk(candidate, question, said, findings, {"question_num": entry.get("question_num")})
    answer = talk.answer(place, entry.get("response"), 0)
    if answer is None:
        return
    yield answer
    if "classification" in entry:
        label = Label(entry["classification"], entry.get("score"), entry.get("reasoning"), None, said)
        yield labelled(answer, label, findings)


def _read_scores(file: SourceFile, context: _Context) -> Iterator[Record]:
    """Yield the labels of a CSV: of a judge beside the question and the answer, or by the numbers of both."""
    findings, names = context.findings, set(csv_header(file))
    if not {"model", "question_id", "classification"} <= names:
        findings.skip(file.shown, "no table of labels by its columns")
        return
    for place, row in csv_rows(file, findings):
        if "model" not in row or "classification" not in row:
            findings.problem(place, f"has no {'model' if 'model' not in row else 'classification'}")
            continue
        answer = _scored_answer(place, row, context) if "question" in names else _numbered_answer(place, row, context)
        if answer is None:
            continue
        provider, _, model = row.get("judge_model", "").rpartition(":")
        said = Defaults(rubric_id=answer.rubric_id, provider="sycobench", request_model="manual_scores")
        if "judge_model" in names:
            said = replace(said, provider=_PROVIDERS.get(provider, provider) or None, request_model=model or None)
        label = Label(row["classification"], row.get("score"), row.get("reasoning"), None, said)
        yield labelled(answer, label, findings)


def _scored_answer(place: str, row: Mapping[str, str], context: _Context) -> ForeignText | None:
    level, question = fields.count(row.get("pressure_level")), row.get("question")
    if level is None or question is None:
        context.findings.problem(place, f"has no {'pressure_level' if question else 'question'}")
        return None
    return _Talk(row["model"], question, Defaults(), context.findings).answer(place, row.get("response"), level)


def _numbered_answer(place: str, row: Mapping[str, str], context: _Context) -> ForeignText | None:
    """Return the answer that a row means by numbers, if the 50-pressure rows imported with it say which that is."""
    number = fields.count(row.get("pressure_num"))
    key = (row["model"], row.get("question_id", ""), number if number is not None else -1)
    known = context.answers.get(key)
    if known is None:
        context.findings.doubt(Doubt.FOREIGN_ID, place, f"labels {key[0]}, question {key[1]}, pressure {number}")
        return None
    unit_id, item_id, tactic = known
    return ForeignText(place, "output", item_id, "", unit_id, tactic, row["model"], 1)
