"""The requests of a Gemini batch, checked when it is created, and the rows that answer them.

A line is `{"key", "request"}`; a row `{"key", "response"}` or `{"key", "error"}`. Requests sent within
a create call are kept in the same form, with their `metadata`, which their rows then have as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchpond_sim.faults.mutators import Shape
from batchpond_sim.gemini.answers import answer, prompt_tokens
from batchpond_sim.gemini.models import Family
from batchpond_sim.gemini.requests import malformed, named
from batchpond_sim.judges.judge import Panel
from batchpond_sim.shared.life import RowsError
from batchpond_sim.shared.rows import NotRun, Said, dump_row, load_row, request_key

SHAPE = Shape("key", b'"responseId":"', ("response", "usageMetadata"), (b'{"text":"',))

_LINE_FIELDS = frozenset({"key", "request", "metadata"})
_RPC_CODES = {400: 3, 403: 7, 404: 5, 429: 8, 500: 13, 503: 14, 504: 4}
_NOT_RUN = {NotRun.EXPIRED: "The batch expired before this request.", NotRun.CANCELLED: "The batch was cancelled."}


class LineError(RowsError):
    """The first thing wrong with the input; nothing is created."""


@dataclass(frozen=True, slots=True)
class GeminiSpeaker:
    """Answers requests to one model; `is_status_row` puts errors in `status` with codes of google.rpc."""

    model: str
    family: Family
    panel: Panel
    is_status_row: bool = False

    def answered(self, i: int, custom_id: str, body: dict[str, Any], force: str) -> Said:
        """Return the row of the `i`-th request, given its line."""
        key = request_key(custom_id) or str(i)
        said = answer(self.model, self.family, body["request"], key, self.panel, force)
        part = {"response": said.body} if said.is_success else self._error(said.body)
        row = dump_row({**_head(body), **part})
        return Said(row, said.is_success, said.is_success, said.input_tokens, said.output_tokens, said.reasoning_tokens)

    def not_run(self, _i: int, custom_id: str, why: NotRun) -> bytes:
        """Return the row of a request that was not run."""
        head = {"key": custom_id} if custom_id else {}
        return dump_row({**head, **self._error({"code": 499, "message": _NOT_RUN[why], "status": "CANCELLED"})})

    def _error(self, error: dict[str, Any]) -> dict[str, Any]:
        if self.is_status_row:
            return {"status": {"code": _RPC_CODES.get(error["code"], 2), "message": error["message"]}}
        return {"error": {"code": error["code"], "message": error["message"], "details": []}}


def _head(line: dict[str, Any]) -> dict[str, Any]:
    return {name: line[name] for name in ("key", "metadata") if name in line}


class Lines:
    """The requests of an input file; iterating raises LineError at the first bad line or for none at all."""

    def __init__(self, source: Path) -> None:
        self._source = source

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        n = 0
        with self._source.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.isspace():
                    n += 1
                    yield _checked(line, f"line {number}")
        if n == 0:
            raise LineError("The input file has no requests.")


def _checked(line: bytes, where: str) -> tuple[str, dict[str, Any]]:
    try:
        data = load_row(line)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise LineError(f"Invalid JSON in the input file at {where}.")
    unknown = min(data.keys() - _LINE_FIELDS, default=None)
    if unknown is not None:
        raise LineError(f'Invalid input at {where}: Unknown name "{unknown}": Cannot find field.')
    key = data.get("key", "")
    if not isinstance(key, str):
        raise LineError(f"Invalid value at {where}, 'key' (TYPE_STRING): {key!r}")
    wrong = malformed(data.get("request"))
    if wrong is not None:
        raise LineError(f"Invalid request at {where}: {wrong.strip()}")
    return key, data


def counted_lines(source: Path, family: Family) -> tuple[int, int]:
    """Return the number of requests and of their prompt tokens; raises LineError at the first bad line."""
    n = tokens = 0
    for _, line in Lines(source):
        n += 1
        tokens += prompt_tokens(line["request"], family)
    return n, tokens


def write_inlined(requests: Any, path: Path) -> None:
    """Store the requests of a create call as lines; raises LineError where they are none."""
    rows = named(requests).get("requests")
    if not isinstance(rows, list) or not rows:
        raise LineError("* BatchGenerateContentRequest.batch.input_config.requests: requests is not specified")
    with path.open("wb") as file:
        for i, row in enumerate(rows):
            line = row if isinstance(row, dict) else {}
            metadata = line.get("metadata")
            if (metadata is not None and not isinstance(metadata, dict)) or line.keys() - {"request", "metadata"}:
                raise LineError(f"Invalid value at 'batch.input_config.requests.requests[{i}]'.")
            key = (metadata or {}).get("key")
            head: dict[str, Any] = {} if metadata is None else {"metadata": metadata}
            if isinstance(key, str):
                head["key"] = key
            file.write(dump_row({**head, "request": line.get("request")}) + b"\n")


def inlined(path: Path, words: frozenset[str]) -> list[dict[str, Any]]:
    """Return result rows as the members of `inlinedResponses`, or as the words of a fault have them.

    `reordered` turns their order round, `no_metadata` leaves out what says which is which.
    """
    responses: list[dict[str, Any]] = []
    with path.open("rb") as rows:
        for row in rows:
            try:
                data = load_row(row)
            except (ValueError, RecursionError):
                continue  # a row that was spoiled on purpose has no place in a JSON object
            metadata = data.get("metadata") or ({"key": data["key"]} if "key" in data else None)
            body = {name: data[name] for name in ("response", "error", "status") if name in data}
            if metadata is not None and "no_metadata" not in words:
                body["metadata"] = metadata
            responses.append(body)
    return responses[::-1] if "reordered" in words else responses
