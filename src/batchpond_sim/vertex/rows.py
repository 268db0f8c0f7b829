"""The requests of a Vertex AI job and the rows that answer them.

A line is `{"request": ...}` with any keys beside it, which come back; a row failed when its `status` says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import orjson

from batchpond_sim.faults.mutators import Shape
from batchpond_sim.gemini.answers import answer
from batchpond_sim.gemini.models import Family
from batchpond_sim.judges.judge import Panel
from batchpond_sim.shared.rows import NotRun, Said, dump_row, load_row, request_key
from batchpond_sim.storage.api import ROW_ID
from batchpond_sim.vertex.job_import import Columns, ImportFailure, reserialised

SHAPE = Shape("custom_id", ROW_ID, ("response", "usageMetadata"), (b'{"text":"',))


@dataclass(frozen=True, slots=True)
class VertexSpeaker:
    """Answers requests to one model; `time` is when rows say that they were made."""

    model: str
    family: Family
    panel: Panel
    time: str

    def answered(self, i: int, custom_id: str, body: dict[str, Any], force: str) -> Said:
        """Return the row of the `i`-th request, given its line."""
        said = answer(self.model, self.family, body["request"], request_key(custom_id) or str(i), self.panel, force)
        beside = {name: reserialised(value) for name, value in body.items() if name != "request"}
        # The answer stands before the echo, so that what spoils a row's first text spoils the answer.
        row = {"status": "", "processed_time": self.time, **beside, "response": said.body, "request": body["request"]}
        if not said.is_success:
            phrase = HTTPStatus(said.status).phrase if said.status in set(HTTPStatus) else "Error"
            row["status"] = f"{phrase}: {orjson.dumps({'error': said.body}).decode()}"
            del row["response"]
        tokens = said.input_tokens, said.output_tokens, said.reasoning_tokens
        return Said(dump_row(row), said.is_success, said.is_success, *tokens)

    def not_run(self, _i: int, _custom_id: str, _why: NotRun) -> bytes | None:
        """Return nothing: only what was finished is written out."""
        return None


class Lines:
    """The requests of an input file; iterating raises ImportFailure at the first line that cannot be loaded."""

    def __init__(self, source: Path) -> None:
        self._source = source

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        columns = Columns()
        n = 0
        with self._source.open("rb") as lines:
            for line in lines:
                if not line.isspace():
                    n += 1
                    yield _checked(line, columns)
        if n == 0:
            raise ImportFailure("no rows")


def _checked(line: bytes, columns: Columns) -> tuple[str, dict[str, Any]]:
    try:
        row = load_row(line)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict) or not isinstance(row.get("request"), dict):
        raise ImportFailure("a row without a request")
    columns.load(row)
    return str(row.get("custom_id", "")), row
