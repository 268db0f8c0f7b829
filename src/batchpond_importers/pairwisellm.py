"""Reading what pairwiseLLM 1.3 writes: results CSVs, job registries, batch outputs and writing samples.

Known faults of those files, and what is done here: ids cut out of a custom_id are believed only where
there is one way to cut; Gemini batch answers, joined by row order, are not; the winner is read again from the
text where it is there, because the package takes a text with both answers as a vote for the first sample;
a row without a winner is no tie. `combined_results.csv` repeats the files of the segments beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import PurePosixPath, PureWindowsPath
from typing import Final

from batchpond import fields
from batchpond.errors import UsageError
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
    shortened,
)
from batchpond.model import Origin, Outcome, Response, ResponseStatus, Verdict
from batchpond.providers import registry
from batchpond.tasks.base import Judgment
from batchpond.tasks.pairwise import PairwiseRule
from batchpond_importers.reading import json_lines

_RULE: Final = PairwiseRule()
_OUTPUT_NAME: Final = re.compile(r"(.*batch_\d+)_output\.jsonl", re.IGNORECASE)
_SEGMENT_NAME: Final = re.compile(r"(.*batch_\d+)_results\.csv", re.IGNORECASE)
_COMBINED_NAME: Final = re.compile(r"combined_.*\.csv", re.IGNORECASE)
_VS: Final = "_vs_"
_LIVE: Final = "LIVE_"
_GEMINI: Final = frozenset({"gemini", "google"})
_ENDED: Final = {
    "expired": Outcome.EXPIRED, "canceled": Outcome.CANCELLED, "cancelled": Outcome.CANCELLED,
    "errored": Outcome.ERROR,
}  # fmt: skip
_WINNER_WORDS: Final = {
    "SAMPLE_1": Verdict.FIRST, "SAMPLE_2": Verdict.SECOND, "1": Verdict.FIRST, "2": Verdict.SECOND,
    "pos1": Verdict.FIRST, "pos2": Verdict.SECOND,
}  # fmt: skip
_DIRECTIONS: Final = {"forward": "forward", "main": "forward", "reverse": "reverse", "rev": "reverse"}


class _Kind(Enum):
    RESULTS = auto()
    SAMPLES = auto()
    REGISTRY = auto()
    FAILED = auto()
    OTHER = auto()


@dataclass
class _Context:
    findings: Findings
    defaults: Defaults
    # What a registry says of a segment's files.
    jobs: dict[tuple[str, str], Defaults] = field(default_factory=dict)
    sample_ids: set[str] = field(default_factory=set)

    def job(self, file: SourceFile) -> Defaults:
        return self.jobs.get((_folder(file), file.path.name), Defaults())


def read(files: Sequence[SourceFile], defaults: Defaults, findings: Findings) -> Iterator[Record]:
    """Yield what files of pairwiseLLM hold.

    Raises UsageError for a CSV that is none.
    """
    context = _Context(findings, defaults)
    kinds = {file.shown: _kind(file) for file in files if file.path.suffix.lower() == ".csv"}
    for file in files:
        if kinds.get(file.shown) is _Kind.REGISTRY:
            _read_registry(file, context)
    for file in files:
        if kinds.get(file.shown) is _Kind.SAMPLES or file.path.suffix.lower() == ".txt":
            yield from _read_samples(file, context)
    segments = {(_folder(file), match[1]) for file in files if (match := _SEGMENT_NAME.fullmatch(file.path.name))}
    for file in files:
        yield from _read_answers(file, kinds.get(file.shown), segments, context)


def _folder(file: SourceFile) -> str:
    return PurePosixPath(file.shown).parent.as_posix()


def _kind(file: SourceFile) -> _Kind:
    names = set(csv_header(file))
    if "batch_id" in names and names & {"segment_index", "idx", "batch_output_path"} and "better_id" not in names:
        return _Kind.REGISTRY
    if "better_id" in names and ({"ID1", "ID2"} <= names or {"A_id", "B_id"} <= names):
        return _Kind.RESULTS
    if "ID" in names and "text" in names:
        return _Kind.SAMPLES
    return _Kind.FAILED if {"error_code", "attempted_at"} <= names else _Kind.OTHER


def _read_registry(file: SourceFile, context: _Context) -> None:
    for place, row in csv_rows(file, context.findings):
        if (problem := _bad_direction(row)) is not None:
            context.findings.problem(place, problem)
            continue
        job = Defaults(
            template_id=row.get("template_id"), provider=row.get("provider"), request_model=row.get("model"),
            thinking=row.get("thinking"), direction=_DIRECTIONS.get(row.get("direction", "")),
        )  # fmt: skip
        for value in row.values():
            name = PureWindowsPath(value).name  # takes both kinds of slash
            if name.lower().endswith((".csv", ".jsonl")):
                context.jobs[_folder(file), name] = job
        if "batch_id" in row:
            context.findings.batch(TrackedBatch(job.provider, row["batch_id"], job.request_model, place))


def _read_samples(file: SourceFile, context: _Context) -> Iterator[Record]:
    if file.path.suffix.lower() == ".txt":
        try:
            text = file.path.read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            context.findings.problem(file.shown, f"cannot be read: {error}")
            return
        rows: Iterator[tuple[str, dict[str, str]]] = iter([(file.shown, {"ID": file.path.stem, "text": text})])
    else:
        rows = csv_rows(file, context.findings)
    for place, row in rows:
        item_id, text = row.get("ID", ""), row.get("text", "")
        if not item_id.strip() or not text.strip():
            context.findings.problem(place, "has no ID" if not item_id.strip() else f"has no text for {item_id!r}")
            continue
        if item_id in context.sample_ids:
            context.findings.problem(place, f"repeats the ID {shortened(item_id)}")
            continue
        context.sample_ids.add(item_id)
        more = {name: value for name, value in row.items() if name not in {"ID", "text"}}
        yield ForeignText(place, "sample", item_id, text, more=more)


def _read_answers(
    file: SourceFile, kind: _Kind | None, segments: set[tuple[str, str]], context: _Context
) -> Iterator[Record]:
    findings, folder = context.findings, _folder(file)
    has_segments = any(of == folder for of, _ in segments)
    match kind:
        case _Kind.RESULTS if _COMBINED_NAME.fullmatch(file.path.name) and has_segments:
            findings.skip(file.shown, "the segments' files beside it hold its rows")
        case _Kind.RESULTS:
            yield from _read_results(file, context)
        case _Kind.FAILED:
            findings.skip(file.shown, "failed attempts, which hold no answers")
        case _Kind.OTHER:
            findings.skip(file.shown, "no table of pairwiseLLM by its columns")
        case _Kind.REGISTRY | _Kind.SAMPLES:
            return
        case None:
            match = _OUTPUT_NAME.fullmatch(file.path.name)
            if match and (folder, match[1]) not in segments:
                yield from _read_output(file, context)
            elif file.path.suffix.lower() != ".txt":
                findings.skip(file.shown, "its results are in a CSV" if match else "not read: no CSV, text or output")


def _read_results(file: SourceFile, context: _Context) -> Iterator[Record]:
    job = context.job(file)
    for place, row in csv_rows(file, context.findings):
        first, second = row.get("A_id", row.get("ID1")), row.get("B_id", row.get("ID2"))
        problem = _problem(row, first, second)
        if problem is not None:
            context.findings.problem(place, problem)
        elif first is not None and second is not None and _is_known_pair(row, first, second, place, job, context):
            yield _judgment(row, (first, second), place, job, context)


def _problem(row: Mapping[str, str], first: str | None, second: str | None) -> str | None:
    if first is None or second is None:
        return "has no id of one of the two samples"
    if first == second:
        return f"compares {shortened(first)} with itself"
    for name in ("status_code", "prompt_tokens", "completion_tokens", "repeat_no"):
        if name in row and row[name].lower() != "nan" and _count(row[name]) is None:
            return f"has {name} {shortened(row[name])}, not a whole number"
    if "outcome" in row and row["outcome"] not in set(Outcome):
        return f"has outcome {shortened(row['outcome'])}"
    return _bad_direction(row)


def _bad_direction(row: Mapping[str, str]) -> str | None:
    is_known = row.get("direction") in {None, *_DIRECTIONS}
    return None if is_known else f"has direction {shortened(row['direction'])}, not forward or reverse"


def _count(text: str | None) -> int | None:
    return fields.count(re.sub(r"\.0+$", "", text)) if text else None


def _is_known_pair(
    row: Mapping[str, str], first: str, second: str, place: str, job: Defaults, context: _Context
) -> bool:
    findings = context.findings
    if row.get("ID1", first) != first or row.get("ID2", second) != second:
        findings.doubt(Doubt.IDS_DISAGREE, place, f"is about {first} and {second}, or {row['ID1']} and {row['ID2']}")
        return False
    custom_id = row.get("custom_id", "")
    backend = row.get("backend") or job.provider or context.defaults.provider
    is_gemini = backend in _GEMINI or custom_id.startswith("GEM_")
    is_ours = "origin" in row  # an export of a lake, where every answer was joined by its own id
    if is_gemini and not is_ours and not custom_id.startswith(_LIVE):
        return findings.trusts(Doubt.POSITIONAL_JOIN, place, f"gives {first} and {second} a Gemini answer by its row")
    if _VS in custom_id and not is_ours and not _says(custom_id, first, second, context):
        return findings.trusts(Doubt.RECOVERED_ID, place, f"has {first} and {second} for {shortened(custom_id)}")
    return True


def _says(custom_id: str, first: str, second: str, context: _Context) -> bool:
    """Whether a custom_id can only mean these two."""
    return custom_id == f"{_LIVE}{first}{_VS}{second}" or _cut(custom_id, context) == (first, second)


def _cut(custom_id: str, context: _Context) -> tuple[str, str] | None:
    """Return the ids in `PREFIX_first_vs_second`, if there is one way to cut it, or one that gives known samples."""
    parts = custom_id.split(_VS)
    if len(parts) == 2 and parts[0].count("_") == 1 and all(parts[0].split("_")) and parts[1]:
        return parts[0].split("_")[1], parts[1]
    ways = set()
    for place in (match.start() for match in re.finditer(_VS, custom_id)):
        left, second = custom_id[:place], custom_id[place + len(_VS) :]
        firsts = (left[match.end() :] for match in re.finditer("_", left))
        ways |= {(first, second) for first in firsts if {first, second} <= context.sample_ids}
    return ways.pop() if len(ways) == 1 else None


def _judgment(
    row: Mapping[str, str], pair: tuple[str, str], place: str, job: Defaults, context: _Context
) -> ForeignJudgment:
    own = Defaults(
        study=row.get("study"), template_id=row.get("template_id"), rubric_id=row.get("rubric_id"),
        provider=row.get("backend"), request_model=job.request_model or row.get("model"),
        thinking=row.get("thinking"), direction=_DIRECTIONS.get(row.get("direction", "")),
    )  # fmt: skip
    return ForeignJudgment(
        place,
        _RULE.TASK,
        _verdict(row, pair, place, context.findings),
        own.or_else(job),
        unit_id=row.get("unit_id", ""),
        item_first=pair[0],
        item_second=pair[1],
        repeat_no=_count(row.get("repeat_no")),  # the package's own occurrence index starts anew in each segment
        input_tokens=_count(row.get("prompt_tokens")),
        output_tokens=_count(row.get("completion_tokens")),
        origin=Origin.SIMULATED if row.get("origin") == Origin.SIMULATED else None,
    )


def _verdict(row: Mapping[str, str], pair: tuple[str, str], place: str, findings: Findings) -> Judgment:
    better = row.get("better_id")
    if better is not None and better not in pair:
        return findings.unbelieved(
            Doubt.INVALID_WINNER, place, f"names {shortened(better)} the better of {pair[0]} and {pair[1]}"
        )
    claims = {Verdict.FIRST if better == pair[0] else Verdict.SECOND} if better is not None else set()
    claims |= {_WINNER_WORDS[row[name]] for name in ("better_sample", "winner_pos") if row.get(name) in _WINNER_WORDS}
    if len(claims) > 1:
        return findings.unbelieved(Doubt.CONTRADICTORY, place, "names both samples as the better one")
    claim = next(iter(claims), None)
    if "outcome" in row:
        return _own_verdict(Outcome(row["outcome"]), claim, place, findings)
    return _claimed(row, claim, place, findings)


def _claimed(row: Mapping[str, str], claim: Verdict | None, place: str, findings: Findings) -> Judgment:
    failure = _failure(row)
    if failure is not None:
        if claim is not None:
            findings.doubt(Doubt.CONTRADICTORY, place, "has an error and a winner")
        return Judgment(None, failure)
    if "content" in row:
        return _read_again(row["content"], claim, place, findings)
    if claim is not None:
        return Judgment(claim, Outcome.DECIDED)
    return Judgment(None, Outcome.UNPARSED if row.get("status_code") else Outcome.MISSING)


def _own_verdict(outcome: Outcome, claim: Verdict | None, place: str, findings: Findings) -> Judgment:
    if (outcome is Outcome.DECIDED) != (claim is not None):
        return findings.unbelieved(
            Doubt.CONTRADICTORY, place, f"is {outcome} {'without' if claim is None else 'with'} a winner"
        )
    return Judgment(Verdict.TIE if outcome is Outcome.TIE else claim, outcome)


def _failure(row: Mapping[str, str]) -> Outcome | None:
    if row.get("result_type") in _ENDED:
        return _ENDED[row["result_type"]]
    status = _count(row.get("status_code"))
    is_error = "error_message" in row or "error_code" in row or (status is not None and status >= 400)
    return Outcome.ERROR if is_error else None


def _read_again(text: str, claim: Verdict | None, place: str, findings: Findings) -> Judgment:
    """Return the verdict that a text gives by the strict rule, if it is not another than the recorded one."""
    found = _RULE.read(Response(None, ResponseStatus.SUCCEEDED, text=text))
    if found.outcome is Outcome.AMBIGUOUS:
        return findings.unbelieved(Doubt.BOTH_ANSWERS, place, f"was recorded as {claim}", Outcome.AMBIGUOUS)
    if found.outcome is Outcome.DECIDED:
        if claim is not None and claim != found.verdict:
            return findings.unbelieved(
                Doubt.CONTRADICTORY, place, f"was recorded as {claim}, the text says {found.verdict}"
            )
        return found
    if claim is None:
        return Judgment(None, found.outcome)
    if findings.trusts(Doubt.UNREAD_WINNER, place, f"was recorded as {claim}, the text says neither"):
        return Judgment(claim, Outcome.DECIDED)
    return Judgment(None, Outcome.UNPARSED)


def _read_output(file: SourceFile, context: _Context) -> Iterator[Record]:
    findings, job = context.findings, context.job(file)
    provider = job.provider or context.defaults.provider
    if provider is None:
        findings.skip(file.shown, "nothing says whose output it is; `--set provider=NAME` does")
        return
    try:
        read_line = registry.module(provider).read_line
    except UsageError:
        findings.skip(file.shown, f"provider {provider!r} is not known")
        return
    for place, line, _ in json_lines(file, findings):
        response = read_line(line.rstrip(b"\r\n"))
        pair = _cut(response.custom_id, context) if response.custom_id else None
        if provider in _GEMINI:
            findings.doubt(Doubt.POSITIONAL_JOIN, place, "has no id of its own")
        elif pair is None or pair[0] == pair[1]:
            findings.doubt(Doubt.RECOVERED_ID, place, f"is the answer to {shortened(response.custom_id)}")
        else:
            said = job.or_else(Defaults(request_model=response.response_model))
            yield ForeignJudgment(
                place, _RULE.TASK, _RULE.read(response), said, item_first=pair[0], item_second=pair[1], repeat_no=None,
                input_tokens=response.input_tokens, output_tokens=response.output_tokens,
            )  # fmt: skip
