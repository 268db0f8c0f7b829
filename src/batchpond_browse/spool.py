"""Labels that somebody gave on a page: durable at once, outside the lake's tables, until they are handed in.

No lock of the lake is held while a page is open. A label is a line of `_labels.csv` in the lake, with the columns of a
sheet that `batchpond label` draws; the last line of a unit and a rater counts, and an empty label takes one back. To
hand in is what `batchpond import labels` does with what counts; a second time it would find all of it known. The file
has a lock of its own, so that several pages may be open.
"""

from __future__ import annotations

import csv
import fcntl
import io
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from batchpond.errors import LakeError, UsageError
from batchpond.interop import labels
from batchpond_browse.asking import Row
from batchpond_browse.cases import Case

FILE: Final = "_labels.csv"  # `forget` goes by this name
TAKEN_BACK: Final = labels.TAKEN_BACK
NAME_MAX: Final = 100
COMMENT_MAX: Final = 5_000


class Label(NamedTuple):
    """One label: of a unit (its key, and a letter for which text stood first), by whom."""

    study: str
    key: str
    label: str
    rater: str
    comment: str

    @property
    def of(self) -> tuple[str, str, str]:
        """Of what it is the one label: study, unit and rater."""
        return self.study, self.key[:-1], self.rater


@dataclass(frozen=True, slots=True)
class Sheet:
    """What can be said of a case, what this rater said of it, and whether that was handed in already."""

    choices: Sequence[labels.Choice]
    label: str = ""
    comment: str = ""
    key_letter: str = "a"
    is_handed_in: bool = False

    def shown(self, key_letter: str) -> str:
        """Return the label for texts in the order of a key's letter, whichever order it was given in."""
        swapped = {"1": "2", "2": "1"} if key_letter != self.key_letter else {}
        return swapped.get(self.label, self.label)


class Spool:
    """The labels that wait in one lake; what it knows is in the file alone."""

    def __init__(self, lake_path: Path) -> None:
        self._lake_path = lake_path
        self._path = lake_path / FILE
        self._choices: dict[str, dict[str, tuple[str, ...]]] = {}

    def waiting(self) -> list[Label]:
        """Return the labels that count and are not handed in."""
        try:
            lines = self._path.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        found: dict[tuple[str, str, str], Label] = {}
        for line in lines:  # one that was cut off has fewer columns, and spoils no other
            row = next(csv.reader([line.decode("utf-8", "replace")]), [])
            if len(row) == len(Label._fields):
                label = Label(*row)
                found[label.of] = label
        return [label for label in found.values() if label.label.strip()]

    def sheet(self, case: Case, rater: str) -> Sheet:
        """Return what can be said of a case, and what was said of it last; raises as the lake's views do."""
        if case.study not in self._choices:
            self._choices[case.study] = labels.choices(self._lake_path, case.study)
        _, words = labels.said_of(self._choices[case.study], case.task, case.rows[0]["rubric_id"])
        is_offered = 1 < len(words) <= labels.CHOICES_MAX and all(text is not None for _, text in case.texts)
        choices = labels.offered(words, is_pair=case.is_pair) if is_offered else []
        for given in self.waiting():
            if given.of == (case.study, case.unit_key, rater):
                return Sheet(choices, given.label, given.comment, given.key[-1])
        for row in case.rows:
            if row["provider"] == "human" and row["request_model"] == rater:
                is_lo_first = not case.is_pair or row["item_first"] == case.given["lo"]
                return Sheet(choices, _word(row), row["explanation"] or "", "ba"[is_lo_first], is_handed_in=True)
        return Sheet(choices)

    def give(self, label: Label) -> None:
        """Keep a label, durably; raises UsageError for one that has no rater, LakeError where it cannot be kept."""
        if not label.rater or len(label.rater) > NAME_MAX:
            raise UsageError("a label needs the name of who gives it", hint="write your name into the field at the top")
        if not label.key[:-1] or label.key[-1] not in "ab" or len(label.comment) > COMMENT_MAX:
            raise UsageError("this is no label of a pair or an item", hint="give it on the page of one")
        with self._opened() as file:
            file.write(b"\r\n" + _lines([label]))  # on a line of its own, whatever was cut off before it
            file.flush()
            os.fsync(file.fileno())

    def hand_in(self) -> int:
        """Import all labels that wait as people's judgments and return how many; raises as `import labels` does."""
        with self._opened() as file:
            wanted = self.waiting()
            path = self._lake_path / "_tmp" / f"{secrets.token_hex(8)}.csv"
            path.touch(0o600, exist_ok=False)
            try:
                path.write_bytes(_lines([Label._fields, *wanted]))
                if wanted:
                    labels.hand_in(self._lake_path, path)
            except UsageError as error:
                hint = f"nothing was handed in; take what is wrong out of {self._path}"
                raise UsageError(error.message.replace(path.name, FILE), hint=hint) from error
            finally:
                path.unlink(missing_ok=True)
            file.truncate(0)
            return len(wanted)

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        try:
            with open(self._path, "ab", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o600)) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield file
        except OSError as error:
            hint = "labels need a lake that can be written to; those given before are safe"
            raise LakeError(f"{self._path}: {error.strerror or error}", hint=hint) from error


def _lines(rows: Sequence[Sequence[str]]) -> bytes:
    """Return rows as lines of CSV; none has a line's end within."""
    out = io.StringIO()
    csv.writer(out).writerows([" ".join(value.splitlines()) for value in row] for row in rows)
    return out.getvalue().encode()


def _word(row: Row) -> str:
    """Return what a person's judgment says in the words of a sheet."""
    if row["score"] is not None:
        return f"{row['score']:g}"
    verdict = row["verdict"]
    return {"first": "1", "second": "2", "tie": row["label"] or "tie"}.get(verdict, verdict or row["label"] or "")
