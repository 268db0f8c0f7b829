"""What other tools' files say, before the lake hears of it: each row with its place, and what cannot be believed."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Final

from batchpond import files, ids
from batchpond.errors import UsageError
from batchpond.interop import READERS
from batchpond.model import Outcome
from batchpond.tasks.base import Judgment
from batchpond.tasks.templates import Rubric

FILES_MAX: Final = 1_000_000
_NOTHING: Final = frozenset({"", "NA"})


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file, and how it is called in messages and in `source`: its path below what was given."""

    path: Path
    shown: str

    @property
    def parts(self) -> tuple[str, ...]:
        """The folders above it, the nearest last, those above what was given included."""
        return tuple(map(_storable, Path(os.path.abspath(self.path)).parts[:-1]))


def _storable(name: str) -> str:
    # A file's name may be any bytes; a place is told as text.
    return name.encode("utf-8", "replace").decode("utf-8")


def files_below(paths: Iterable[Path]) -> list[SourceFile]:
    """Return all files that were given or stand in given folders, in name order; raises UsageError."""
    found: list[SourceFile] = []
    for path in paths:
        if not path.is_dir():
            found.append(SourceFile(path, _storable(path.name)))
            continue
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(name for name in names if not name.startswith(".")):
                whole = Path(folder) / name
                found.append(SourceFile(whole, _storable(whole.relative_to(path).as_posix())))
            if len(found) > FILES_MAX:
                raise UsageError(f"{path} holds more than {FILES_MAX:,} files", hint="import it folder by folder")
    if not found:
        raise UsageError(f"{', '.join(map(str, paths))}: no files there")
    return found


def refuse(where: object, told: str, lines: Iterable[str], n: int, hint: str) -> None:
    """Raise UsageError that says what is told of `n` places, and the first of them; of none, nothing is raised."""
    if n:
        raise UsageError(f"{where}: {told}:{files.listed(lines, n)}", hint=hint)


def csv_rows(file: SourceFile, findings: Findings) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each row with its place, `name:line`; empty fields are left out, broken rows noted.

    Raises UsageError for a file that is no CSV.
    """
    for line_no, row in files.csv_rows(file.path):
        place = f"{file.shown}:{line_no}"
        if isinstance(row, str):
            findings.problem(place, row)
        else:
            yield place, {name: value for name, value in row.items() if value not in _NOTHING}


def csv_header(file: SourceFile) -> list[str]:
    """Return the names in a CSV's first line; raises UsageError for a file that is no CSV."""
    with closing(files.csv_records(file.path)) as records:
        return next(records, (1, []))[1]


def lines(file: SourceFile, findings: Findings) -> Iterator[tuple[str, bytes]]:
    """Yield each line that is not blank with its place, `name:line`; a file that cannot be read is noted."""
    try:
        with file.path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                bare = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                if bare.strip():
                    yield f"{file.shown}:{number}", bare
    except OSError as error:
        findings.problem(file.shown, f"cannot be read: {error.strerror or error}")


BATCHES_MAX: Final = 10_000


class Doubt(StrEnum):
    """Why something in a foreign file cannot be believed as it stands; `doubts.toml` says what becomes of it."""

    RECOVERED_ID = "recovered-id"
    IDS_DISAGREE = "ids-disagree"
    POSITIONAL_JOIN = "positional-join"
    FOREIGN_ID = "foreign-id"
    PLACEHOLDER_TURN = "placeholder-turn"
    UNPROVEN_CANDIDATES = "unproven-candidates"
    MISATTRIBUTED = "misattributed"
    ERROR_TEXT = "error-text"
    FAILED_ANSWER = "failed-answer"
    BOTH_ANSWERS = "both-answers"
    UNREAD_WINNER = "unread-winner"
    INVALID_WINNER = "invalid-winner"
    CONTRADICTORY = "contradictory"
    ZERO_RANK = "zero-rank"
    ERROR_AS_VERDICT = "error-as-verdict"
    BAD_CONFIDENCE = "bad-confidence"
    UNREADABLE_LINE = "unreadable-line"
    REPEATED_ANSWER = "repeated-answer"
    CONFLICTING_ANSWER = "conflicting-answer"
    UNSCORED = "unscored"

    @property
    def meaning(self) -> str:
        """What becomes of it, in words."""
        return str(_meanings()[self])


@cache
def _meanings() -> dict[str, str]:
    return tomllib.loads(Path(__file__).with_name("doubts.toml").read_text("utf-8"))


# What a person may know better than the files show.
ACCEPTABLE: Final = (Doubt.RECOVERED_ID, Doubt.POSITIONAL_JOIN, Doubt.UNPROVEN_CANDIDATES, Doubt.UNREAD_WINNER)


def acceptable(words: Iterable[str]) -> list[Doubt]:
    """Return the doubts that a person answers for; raises UsageError for one that nobody can."""
    found = list(words)
    unknown = [word for word in found if word not in ACCEPTABLE]
    if unknown:
        raise UsageError(
            f"{unknown[0]!r} is no kind that a person can answer for", hint=f"kinds: {', '.join(ACCEPTABLE)}"
        )
    return [Doubt(word) for word in found]


@dataclass(frozen=True, slots=True)
class Defaults:
    """How something was judged: what a row says of itself, a file of its rows, or a person of files that do not."""

    study: str | None = None
    template_id: str | None = None
    rubric_id: str | None = None
    provider: str | None = None
    request_model: str | None = None
    thinking: str | None = None
    direction: str | None = None

    def or_else(self, other: Defaults) -> Defaults:
        """Return this, with what the other says where this says nothing."""
        return Defaults(*(getattr(self, name) or getattr(other, name) for name in self.__slots__))

    @classmethod
    def given(cls, study: str | None, columns: Iterable[tuple[str, str]]) -> Defaults:
        """Return what a person says of files that do not; raises UsageError for what is no such column."""
        values = {"study": study} if study else {}
        for name, value in columns:
            said = f"{name}={value}"
            if name not in cls.__slots__[1:] or not value.strip() or name in values:
                raise UsageError(
                    f"{said!r} is not COLUMN=VALUE",
                    hint=f"columns: {', '.join(cls.__slots__[1:])}, each once",
                )
            if name == "direction" and value not in ("forward", "reverse"):
                raise UsageError(f"{said!r} is neither forward nor reverse", hint="forward is the main run")
            values[name] = value
        return cls(**values)


@dataclass(frozen=True, slots=True)
class ForeignJudgment:
    """A judgment as the lake will keep it; `repeat_no` None is numbered in order of appearance.

    `said` says, among others, which run it is from, forward or reverse, and `origin` that it was simulated, where that
    is known. `other_first` and `other_second` are the ids that the two outputs would have if they were each other's
    candidate's: with them, the generations must prove whose output is whose. `purpose` is of a person's label the
    stratum of which it was drawn, and its number of units.
    """

    source: str
    task: str
    found: Judgment
    said: Defaults
    unit_id: str = ""
    item_first: str | None = None
    item_second: str | None = None
    candidate_first: str | None = None
    candidate_second: str | None = None
    turn_no: int | None = None
    repeat_no: int | None = 1
    input_tokens: int | None = None
    output_tokens: int | None = None
    origin: str | None = None
    other_first: str | None = None
    other_second: str | None = None
    purpose: str | None = None


@dataclass(frozen=True, slots=True)
class ForeignText:
    """A text that later stages can judge: `kind` is sample, statement, input, question or output."""

    source: str
    kind: str
    item_id: str
    text: str
    unit_id: str | None = None
    rubric_id: str | None = None
    candidate: str | None = None
    turn_no: int | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    def metadata(self) -> str:
        """Return the JSON of everything but id and text, without what is unknown."""
        known = {
            "kind": self.kind, "origin": "imported", "source": self.source, "unit_id": self.unit_id,
            "rubric_id": self.rubric_id, "candidate": self.candidate, "turn_no": self.turn_no, **self.more,
        }  # fmt: skip
        return json.dumps({k: v for k, v in known.items() if v is not None}, ensure_ascii=False, sort_keys=True)


@dataclass(frozen=True, slots=True)
class ForeignRubric:
    """What something is judged by."""

    source: str
    rubric: Rubric


Record = ForeignJudgment | ForeignText | ForeignRubric


@dataclass(frozen=True, slots=True)
class TrackedBatch:
    """A provider batch that a tracking file names: its answers may still be at the provider."""

    provider: str | None
    batch_id: str
    model: str | None
    source: str


Notes = files.Noted[str]
"""How often something was found, and the first places."""


@dataclass
class Findings:
    """What readers found beside records: broken rows, doubts by kind, files that were not read, batches."""

    accepted: frozenset[Doubt] = frozenset()
    problems: Notes = field(default_factory=Notes)
    doubts: dict[Doubt, Notes] = field(default_factory=dict)
    skipped: Notes = field(default_factory=Notes)
    n_files: int = 0
    batches: list[TrackedBatch] = field(default_factory=list)

    def problem(self, place: str, text: str) -> None:
        """Note a row that cannot be read: nothing at all is imported then."""
        self.problems.add(f"{place} {text}")

    def doubt(self, kind: Doubt, place: str, text: str) -> None:
        """Note what cannot be believed."""
        self.doubts.setdefault(kind, Notes()).add(f"{place} {text}")

    def unbelieved(self, kind: Doubt, place: str, text: str, outcome: Outcome = Outcome.UNPARSED) -> Judgment:
        """Note what cannot be believed, and return the judgment that is left of it: one without a verdict."""
        self.doubt(kind, place, text)
        return Judgment(None, outcome)

    def trusts(self, kind: Doubt, place: str, text: str) -> bool:
        """Return whether a person accepts this kind of doubt; note it otherwise."""
        if kind not in self.accepted:
            self.doubt(kind, place, text)
        return kind in self.accepted

    def skip(self, shown: str, why: str) -> None:
        """Note a file, or a part of one, that holds nothing to import."""
        self.skipped.add(f"{shown}: {why}")

    def batch(self, batch: TrackedBatch) -> None:
        """Note a batch that a tracking file names."""
        if len(self.batches) < BATCHES_MAX and batch not in self.batches:
            self.batches.append(batch)


Reader = Callable[[Sequence[SourceFile], Defaults, Findings], Iterator[Record]]


def reader_of(tool: str) -> Reader:
    """Return what reads the files of a tool; raises UsageError where nothing that is installed does."""
    known = files.readers(READERS)
    if tool not in known:
        raise UsageError(f"nothing reads files of {tool!r}", hint=f"tools: {', '.join(known)}")
    read: Reader = files.reader_of(READERS, tool, f"files of {tool}")
    return read


def shortened(value: object) -> str:
    """Return a value as a message can show it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def output_id(unit_id: str, candidate: str, text: str) -> str:
    """Return the id of what a candidate answered; it is the same wherever the same text is found again."""
    return f"{unit_id}/{candidate}/{ids.digest('output', text, length=10)}"
