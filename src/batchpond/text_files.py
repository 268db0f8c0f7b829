"""Reading the files that a study names, whole and bounded, with errors that say what to do."""

from __future__ import annotations

from pathlib import Path

from batchpond.errors import StudyError


def read_bytes(path: Path, size_max: int) -> bytes:
    """Return a file's bytes; raises StudyError for one that cannot be read or is larger than `size_max` bytes."""
    try:
        with path.open("rb") as file:
            data = file.read(size_max + 1)
    except OSError as error:
        raise StudyError(f"{path}: {error.strerror or error}", hint="paths start at the study file's folder") from None
    if len(data) > size_max:
        raise StudyError(f"{path}: larger than {size_max:,} bytes")
    return data


def read_text(path: Path, size_max: int) -> str:
    """Return a text file's content; raises StudyError for what cannot be read, is too large or no UTF-8."""
    data = read_bytes(path, size_max)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise StudyError(f"{path}:{line}: not valid UTF-8 ({error.reason})", hint="save the file as UTF-8") from None
