"""Reading the logs of Inspect: what models answered, and what scorers, which are judges, said of each answer.

Shapes: inspect_ai 0.3.285 `log/_log.py` and `scorer/_metric.py`; `tests/golden/inspect` holds logs that it wrote. A log
is one JSON document, or an archive (`.eval`) with a JSON file for each sample, packed by zstd. A scorer's value is a
letter (C, I, P, N), true or false, a number, any other word, or several of these by name. NaN is its word for no
score.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Final

import pyarrow as pa

from batchpond import fields
from batchpond.interop.foreign import Defaults, Doubt, Findings, Record, SourceFile, shortened
from batchpond.model import Origin, Outcome
from batchpond.tasks import base
from batchpond.tasks.base import Judgment
from batchpond_importers.reading import NO, YES, Scored, json_documents, model_of, objects, parsed, unit_of

_SAMPLES: Final = "samples/"
_HEADER: Final = "header.json"
_SAMPLE_MAX_BYTES: Final = 1_000_000_000
_ZSTD: Final = 93  # APPNOTE 6.3.7 of the ZIP format, 4.4.5
_LOCAL_HEADER: Final = struct.Struct("<4s5H3I2H")
_DAMAGED: Final = (
    OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, struct.error, zlib.error,
)  # fmt: skip
_MOCK: Final = "mockllm"
# What its `value_to_float` counts as 1, 0, .5 and 0: partly right and not answered are neither right nor wrong here.
_LETTERS: Final = {
    "C": Judgment(YES, Outcome.DECIDED),
    "I": Judgment(NO, Outcome.DECIDED),
    "P": Judgment(None, Outcome.UNSURE),
    "N": Judgment(None, Outcome.UNSURE),
}


def read(files: Sequence[SourceFile], defaults: Defaults, findings: Findings) -> Iterator[Record]:
    """Yield what logs of Inspect hold."""
    for file in files:
        match file.path.suffix.lower():
            case ".json":
                for found in json_documents(file, findings):
                    yield from _document(file, found, defaults, findings)
            case ".eval":
                yield from _archive(file, defaults, findings)
            case _:
                findings.skip(file.shown, "neither .json nor .eval")


def _document(file: SourceFile, found: Any, defaults: Defaults, findings: Findings) -> Iterator[Record]:
    match found:
        case {"eval": dict() as header, "samples": samples}:
            for place, sample in objects(samples, f"{file.shown}#/samples", findings):
                yield from _sample(place, header, sample, defaults, findings)
        case {"eval": dict()}:
            findings.skip(file.shown, "holds no samples: it was written with --no-log-samples")
        case _:
            findings.skip(file.shown, "no log of Inspect by its keys")


def _archive(file: SourceFile, defaults: Defaults, findings: Findings) -> Iterator[Record]:
    try:
        with file.path.open("rb") as stream, zipfile.ZipFile(stream) as archive:
            names = archive.NameToInfo
            if _HEADER not in names:
                findings.skip(file.shown, "the run has not ended: it has no header.json")
                return
            header = fields.mapping(_member(stream, archive, names[_HEADER])).get("eval")
            for name in sorted(one for one in names if one.startswith(_SAMPLES)):
                sample = _member(stream, archive, names[name])
                place = f"{file.shown}#{name}"
                yield from _sample(place, fields.mapping(header), fields.mapping(sample), defaults, findings)
    except _DAMAGED as error:
        findings.problem(file.shown, f"cannot be read: {error}")


def _member(stream: BinaryIO, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Any:
    """Return what a JSON file of an archive says; raises ValueError for one that is too large, damaged or none."""
    if max(info.file_size, info.compress_size) > _SAMPLE_MAX_BYTES:
        raise ValueError(f"{info.filename} is larger than {_SAMPLE_MAX_BYTES:,} bytes")
    if info.compress_type != _ZSTD:
        return parsed(archive.read(info).decode("utf-8"))
    stream.seek(info.header_offset)
    *_, n_name, n_extra = _LOCAL_HEADER.unpack(stream.read(_LOCAL_HEADER.size))
    stream.seek(n_name + n_extra, 1)
    packed = stream.read(info.compress_size)
    text = pa.decompress(packed, info.file_size, "zstd", asbytes=True)
    if zlib.crc32(text) != info.CRC:
        raise ValueError(f"{info.filename} does not have the checksum that the archive states")
    return parsed(text.decode("utf-8"))


def _sample(
    place: str, header: Mapping[str, Any], sample: Mapping[str, Any], defaults: Defaults, findings: Findings
) -> Iterator[Record]:
    task, model = fields.identifier(header.get("task")), fields.identifier(header.get("model"))
    if task is None or model is None:
        findings.problem(place, "is of a log that names no task or no model")
        return
    question = _question(sample.get("input"))
    if not question.strip():
        findings.problem(place, f"has input {shortened(sample.get('input'))}, not a text or messages")
        return
    scored = Scored(
        place,
        unit_of(task, sample.get("id"), question),
        question,
        model,
        fields.text(fields.mapping(sample.get("output")).get("completion")) or "",
        Defaults(defaults.study or f"inspect-{task}"),
        {"sample_id": sample.get("id"), "epoch": sample.get("epoch"), "target": sample.get("target")},
    )
    if sample.get("error"):
        message = fields.mapping(sample["error"]).get("message")
        findings.doubt(Doubt.FAILED_ANSWER, place, f"of {model}: {shortened(message)}")
        return
    yield from scored.texts(findings)
    scores = fields.mapping(sample.get("scores")) if scored.is_answer else {}
    for name, score in scores.items():
        yield from _scores(f"{place}/scores/{name}", scored, name, fields.mapping(score), findings)


def _question(asked: object) -> str:
    """Return a sample's input: a text, or what the messages of a conversation say, each after who says it."""
    if not isinstance(asked, list):
        return fields.text(asked) or ""
    said = [(fields.text(turn.get("role")) or "", _content(turn.get("content"))) for turn in map(fields.mapping, asked)]
    return said[0][1] if len(said) == 1 else "\n\n".join(f"{role}: {text}" for role, text in said)


def _content(content: object) -> str:
    if not isinstance(content, list):
        return fields.text(content) or ""
    return "\n".join(fields.text(fields.mapping(part).get("text")) or "" for part in content).strip()


def _scores(place: str, scored: Scored, name: str, score: Mapping[str, Any], findings: Findings) -> Iterator[Record]:
    judge = _judge(name, score)
    value = score.get("value")
    parts = dict(enumerate(value)) if isinstance(value, list) else value
    by_name = {f"{name}/{part}": one for part, one in parts.items()} if isinstance(parts, dict) else {name: value}
    for criterion, one in by_name.items():
        said = Defaults(template_id=name, rubric_id=criterion).or_else(judge)
        origin = Origin.SIMULATED if judge.provider == _MOCK else None
        yield scored.judged(place, said, _reading(place, one, score, findings), score.get("explanation"), origin)


def _judge(name: str, score: Mapping[str, Any]) -> Defaults:
    """Return who scored: the model that a graded score keeps the conversation of, or the scorer itself, a rule."""
    turns = fields.sequence(fields.mapping(score.get("metadata")).get("grading"), 1_000)
    models = [model for turn in turns if (model := fields.identifier(fields.mapping(turn).get("model")))]
    return model_of(models[-1], "/") if models else Defaults(provider="inspect", request_model=name)


def _reading(place: str, value: object, score: Mapping[str, Any], findings: Findings) -> Judgment:
    if isinstance(value, bool):
        return Judgment(YES if value else NO, Outcome.DECIDED)
    if isinstance(value, str) and value in _LETTERS:
        return _LETTERS[value]
    number = base.number(value)
    if number is not None:
        return Judgment(None, Outcome.DECIDED, score=number)
    if isinstance(value, str) and value.strip():
        return Judgment(None, Outcome.DECIDED, value.strip()[:200])
    return findings.unbelieved(Doubt.UNSCORED, place, f"has no score: {shortened(score.get('reason') or value)}")
