"""Reading other tools' files: folders, CSV of any columns, JSON and JSON lines, each row with its place.

A place is `name:line` or `name#/json/pointer`. Broken rows are noted in `Findings`, all of them.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from batchpond.errors import UsageError
from batchpond.files import csv_records
from batchpond.interop.foreign import Findings, Record, Said

FILES_MAX: Final = 1_000_000
JSON_SIZE_MAX_BYTES: Final = 1_000_000_000
_FIELD_SIZE_MAX: Final = 100_000_000
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
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


Reader = Callable[[Sequence[SourceFile], Said, Findings], Iterator[Record]]


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


def csv_rows(file: SourceFile, findings: Findings) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each row with its place, `name:line`; empty fields are left out, broken rows noted.

    Raises UsageError for a file that is no CSV.
    """
    # The reader's field limit is global to the process; answers need more than its default.
    limit = csv.field_size_limit(_FIELD_SIZE_MAX)
    try:
        with closing(csv_records(file.path)) as records:
            _, header = next(records, (1, []))
            repeated = sorted({name for name in header if header.count(name) > 1})
            if repeated:
                raise UsageError(f"{file.path}: column {repeated[0]!r} stands in the header more than once")
            for line_no, fields in records:
                if not fields:
                    continue
                place = f"{file.shown}:{line_no}"
                if len(fields) != len(header):
                    findings.problem(place, f"has {len(fields)} fields, the header has {len(header)}")
                    continue
                yield place, {k: v for k, v in zip(header, fields, strict=True) if v not in _NOTHING}
    finally:
        csv.field_size_limit(limit)


def csv_header(file: SourceFile) -> list[str]:
    """Return the names in a CSV's first line; raises UsageError for a file that is no CSV."""
    with closing(csv_records(file.path)) as records:
        return next(records, (1, []))[1]


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


def parsed(text: str, place: str, findings: Findings) -> Any:
    """Return what a JSON text says; None, and a problem, where it is no JSON."""
    try:
        found = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        findings.problem(place, f"is not JSON: {error}")
        return None
    if _SURROGATE.search(text) and not _is_unicode(found):
        findings.problem(place, "holds a lone surrogate, which UTF-8 cannot say")
        return None
    return found


def _is_unicode(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def json_file(file: SourceFile, findings: Findings) -> Any:
    """Return what a JSON file says; None, and a problem, where it cannot be read."""
    try:
        if file.path.stat().st_size > JSON_SIZE_MAX_BYTES:
            findings.problem(file.shown, f"is larger than {JSON_SIZE_MAX_BYTES:,} bytes")
            return None
        text = file.path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        findings.problem(file.shown, f"is not UTF-8 ({error.reason} at byte {error.start})")
        return None
    except OSError as error:
        findings.problem(file.shown, f"cannot be read: {error.strerror or error}")
        return None
    return parsed(text, file.shown, findings)


def json_lines(file: SourceFile, findings: Findings) -> Iterator[tuple[str, bytes, dict[str, Any]]]:
    """Yield each line's place, bytes and object; lines that are none are noted."""
    try:
        with file.path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                place = f"{file.shown}:{number}"
                bare = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                if not bare.strip():
                    continue
                try:
                    text = bare.decode("utf-8")
                except UnicodeDecodeError as error:
                    findings.problem(place, f"is not UTF-8 ({error.reason})")
                    continue
                n_before = findings.problems.n
                found = parsed(text, place, findings)
                if isinstance(found, dict):
                    yield place, bare, found
                elif findings.problems.n == n_before:
                    findings.problem(place, "is not a JSON object")
    except OSError as error:
        findings.problem(file.shown, f"cannot be read: {error.strerror or error}")


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
