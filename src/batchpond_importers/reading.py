"""JSON as other tools write it, what their files must say, and the error messages that stand where answers should.

`Scored` is what reports of scored answers share: a question, an answer to it, and what each judge said of the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from batchpond import ids
from batchpond.interop.foreign import (
    Defaults,
    Doubt,
    Findings,
    ForeignJudgment,
    ForeignText,
    Record,
    SourceFile,
    lines,
    output_id,
    shortened,
)
from batchpond.model import Outcome
from batchpond.tasks import base, compliance, prompts
from batchpond.tasks.base import Judgment
from batchpond.text import is_unicode

JSON_SIZE_MAX_BYTES: Final = 1_000_000_000
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_ERROR_TEXT: Final = re.compile(r"\s*(?:\[?error\]?\s*[:\-]|ERROR\b|UNKNOWN_STATUS:|(?:EXPIRED|CANCELLED)\s*$)")
_ERROR_WORD: Final = re.compile(r"\s*\[?(?:api |parsing )?error\b\]?\s*[:\-]", re.IGNORECASE)


class _RepeatedKeyError(ValueError):
    """A JSON object says something twice."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _RepeatedKeyError(f"the key {next(name for name in names if names.count(name) > 1)!r} stands twice")
    return found


# NaN and infinities, which are no JSON but are written by Python, are unknown numbers.
_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_constant=lambda _: None)


def parsed(text: str) -> Any:
    """Return what a JSON text says; raises ValueError that says why it cannot be used."""
    try:
        found = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON: {error}") from None
    if _SURROGATE.search(text) and not is_unicode(json.dumps(found, ensure_ascii=False)):
        raise ValueError("holds a lone surrogate, which UTF-8 cannot say")
    return found


def json_documents(file: SourceFile, findings: Findings) -> Iterator[Any]:
    """Yield what a JSON file says; nothing, and a problem, where it cannot be read."""
    try:
        if file.path.stat().st_size > JSON_SIZE_MAX_BYTES:
            findings.problem(file.shown, f"is larger than {JSON_SIZE_MAX_BYTES:,} bytes")
            return
        found = parsed(file.path.read_text("utf-8-sig"))
    except UnicodeDecodeError as error:
        findings.problem(file.shown, f"is not UTF-8 ({error.reason} at byte {error.start})")
    except ValueError as error:
        findings.problem(file.shown, str(error))
    except OSError as error:
        findings.problem(file.shown, f"cannot be read: {error.strerror or error}")
    else:
        yield found


def json_lines(file: SourceFile, findings: Findings) -> Iterator[tuple[str, bytes, dict[str, Any]]]:
    """Yield each line's place, bytes and object; lines that are none are noted."""
    for place, line in lines(file, findings):
        try:
            found = parsed(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            findings.problem(place, f"is not UTF-8 ({error.reason})")
        except ValueError as error:
            findings.problem(place, str(error))
        else:
            if isinstance(found, dict):
                yield place, line, found
            else:
                findings.problem(place, "is not a JSON object")


def objects(value: Any, place: str, findings: Findings) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a JSON array with their pointers; anything else is noted."""
    if not isinstance(value, list):
        findings.problem(place, "is not a list")
        return
    for number, entry in enumerate(value):
        if isinstance(entry, dict):
            yield f"{place}/{number}", entry
        else:
            findings.problem(f"{place}/{number}", "is not an object")


def needed(entry: Mapping[str, Any], name: str, place: str, findings: Findings) -> str | None:
    """Return a text that must be there and not blank; None, and a problem, where it is not."""
    value = entry.get(name)
    if isinstance(value, str) and value.strip():
        return value
    findings.problem(place, f"has no {name}" if value is None else f"has {name} {shortened(value)}, not a text")
    return None


def is_error_text(text: str) -> bool:
    """Whether an answer is an error message that was stored in its place."""
    return _ERROR_TEXT.match(text) is not None or _ERROR_WORD.match(text) is not None


YES: Final = compliance.YES
NO: Final = compliance.NO
UNIT_MAX_CHARS: Final = 60


@dataclass(frozen=True, slots=True)
class Scored:
    """An answer, whose it is and to what; `said` names the study of its judgments."""

    place: str
    unit_id: str
    question: str
    candidate: str
    text: str
    said: Defaults
    more: dict[str, Any] = field(default_factory=dict)

    def texts(self, findings: Findings) -> Iterator[ForeignText]:
        """Yield the question and the answer as items; one that is no answer is noted."""
        yield ForeignText(self.place, "input", self.unit_id, self.question, unit_id=self.unit_id)
        if self.is_answer:
            yield ForeignText(
                self.place, "output", self.item_id, self.text, self.unit_id, candidate=self.candidate, more=self.more
            )
        else:
            findings.doubt(Doubt.FAILED_ANSWER, self.place, f"of {self.candidate}: {shortened(self.text)}")

    @property
    def is_answer(self) -> bool:
        """Whether the text is one, and no error message in its place."""
        return bool(self.text.strip()) and not is_error_text(self.text)

    @property
    def item_id(self) -> str:
        """The answer's id as an item."""
        return output_id(self.unit_id, self.candidate, self.text)

    def judged(
        self, place: str, judge: Defaults, found: Judgment, explanation: object, origin: str | None = None
    ) -> Record:
        """Return what a judge said of the answer: pass or fail, which is compliance with its criterion, or else.

        A number, or a word of the judge's own, is an answer of the task `prompts`.
        """
        is_other = found.verdict is None and found.outcome is Outcome.DECIDED
        return ForeignJudgment(
            place,
            prompts.TASK if is_other else compliance.TASK,
            found._replace(explanation=base.explanation(explanation)),
            judge.or_else(self.said),
            self.unit_id,
            self.item_id,
            candidate_first=self.candidate,
            repeat_no=None,
            origin=origin,
        )


def unit_of(suite: str, name: object, question: str) -> str:
    """Return the id of a question of a suite: its name there, and a digest, since a name may come to mean another."""
    return f"{suite}/{str(name)[:UNIT_MAX_CHARS]}/{ids.digest('input', question, length=8)}"


def model_of(name: str, sign: str) -> Defaults:
    """Return the judge that a name means, such as `openai/gpt-4o` where the sign is a slash."""
    provider, mark, model = name.partition(sign)
    return Defaults(provider=provider, request_model=model) if mark and model else Defaults(request_model=name)
