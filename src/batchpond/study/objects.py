"""A study as Python objects: the tables of a study file, with frames in place of its files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, Protocol

from batchpond.errors import StudyError, UsageError
from batchpond.lake.disk import destined, placed

if TYPE_CHECKING:
    import polars as pl

FRAME: Final = "__arrow_c_stream__"  # what a frame has, of whatever library


class Frame(Protocol):
    """What gives its rows to Arrow: a frame of polars, pandas, Arrow and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as a stream of Arrow's C interface."""


class Study:
    """What a study.toml says, as keyword arguments: its tables by their names, and frames where it names files.

    `items` may be a frame with the columns `id` and `text`, or a table whose `path` is one: polars, pandas, Arrow, or
    whatever gives its rows to Arrow.
    """

    def __init__(self, study: str, **tables: Any) -> None:
        if hasattr(tables.get("items"), FRAME):
            tables["items"] = {"path": tables["items"], "id": "id", "text": "text"}
        self._frames: dict[str, Any] = {}
        self._tables = {"study": study, **{name: self._named(value, name) for name, value in tables.items()}}

    def __repr__(self) -> str:
        return f"Study({self._tables['study']!r})"

    def _named(self, value: Any, place: str) -> Any:
        """Return plain values, frames kept apart and in their place the names of the files that they become."""
        if hasattr(value, FRAME):
            name = f"{place.removesuffix('.path')}.parquet"
            self._frames[name] = value
            return name
        if isinstance(value, Mapping):
            return {name: self._named(one, f"{place}.{name}") for name, one in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, str):
            return [self._named(one, f"{place}.{number}") for number, one in enumerate(value, 1)]
        return os.fspath(value) if isinstance(value, os.PathLike) else value

    def to_toml(self) -> str:
        """Return the study file; raises UsageError for a value that TOML has no form for, such as None."""
        import tomli_w  # noqa: PLC0415 - nobody else writes TOML

        try:
            return tomli_w.dumps(self._tables)
        except TypeError as error:
            raise UsageError(f"a study file cannot say that: {error}", hint="leave out what is None") from None

    def save(self, folder: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write study.toml and a Parquet file for each frame into a folder, and return the path of the former.

        Raises UsageError where a file stands and `force` is not set.
        """
        content = self.to_toml()
        with destined(Path(folder), force=force) as where:
            where.mkdir(parents=True, exist_ok=True)
            for name, frame in self._frames.items():
                with placed(where / name, force=force) as staged:
                    to_polars(frame).write_parquet(staged)
            with placed(where / "study.toml", force=force) as staged:
                staged.write_text(content, "utf-8")
        return Path(folder) / "study.toml"


@contextmanager
def file_of(study: Study | str | os.PathLike[str]) -> Iterator[Path]:
    """Yield the path of a study file; that of objects is there for as long as it is read."""
    if not isinstance(study, Study):
        yield Path(study)
        return
    with TemporaryDirectory(prefix="batchpond-study-") as folder:
        path = study.save(folder)
        try:
            yield path
        except StudyError as error:
            text = error.message.replace(os.fspath(path), f"{study!r}.to_toml()").replace(f"{folder}/", "")
            raise StudyError(text, hint=error.hint) from None


def to_polars(frame: Frame) -> pl.DataFrame:
    """Return a frame of whatever library; raises UsageError for what gives no rows to Arrow."""
    import polars  # noqa: PLC0415 - a study of files needs no frames

    if not hasattr(frame, FRAME):
        raise UsageError(f"{type(frame).__name__} is no frame", hint="give a frame of polars, pandas or Arrow")
    return frame if isinstance(frame, polars.DataFrame) else polars.DataFrame(frame)
