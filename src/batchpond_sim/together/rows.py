"""The lines of a Together input file, as far as they are checked, and the rows that answer them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchpond_sim.faults.mutators import Shape
from batchpond_sim.judges.judge import Panel
from batchpond_sim.shared.life import RowsError
from batchpond_sim.shared.rows import NotRun, Said, dump_row, load_row, request_key
from batchpond_sim.together.answers import answer

MAX_LINES = 50_000
LINE_MAX_BYTES = 10_000_000
SHAPE = Shape("custom_id", b'"id":"br_', ("response", "body", "usage"), (b'"content":"',))


class LineError(RowsError):
    """What makes a whole batch fail, in the words of its `error`."""


@dataclass(frozen=True, slots=True)
class TogetherSpeaker:
    """Answers requests as rows of result files."""

    batch_id: str
    created_at: int
    panel: Panel

    def answered(self, i: int, custom_id: str, body: dict[str, Any], force: str) -> Said:
        """Return the row of the `i`-th request: a success has a response alone, a failure an error alone."""
        said = answer(body, request_key(custom_id), self.panel, self.created_at, force)
        head = {"id": f"br_{self.batch_id[-12:]}{i:06x}", "custom_id": custom_id}
        if said.is_success:
            tokens = said.input_tokens, said.output_tokens, said.reasoning_tokens
            return Said(dump_row(head | {"response": {"status_code": 200, "body": said.body}}), True, True, *tokens)
        error = {"code": "batch_client_error", "message": said.body["error"]["message"]}
        return Said(dump_row(head | {"error": error}), force == "output_500", False)

    def not_run(self, _i: int, _custom_id: str, _why: NotRun) -> bytes | None:
        """Return nothing: no row was ever seen of a request that was not run."""
        return None


class Lines:
    """The requests of an input file; iterating raises LineError where the whole batch fails."""

    def __init__(self, source: Path) -> None:
        self.model = ""
        self._source = source

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        n = 0
        with self._source.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.isspace():
                    continue
                n += 1
                if n > MAX_LINES:
                    raise LineError(f"Failed to calculate tokens: more than {MAX_LINES} requests")
                yield self._checked(line, number)
        if not n:
            raise LineError("Failed to calculate tokens: the input file holds no requests")

    def _checked(self, line: bytes, number: int) -> tuple[str, dict[str, Any]]:
        if len(line) > LINE_MAX_BYTES:
            raise LineError("error reading input file")
        where = f"Failed to calculate tokens: input format error: Line {number} (within chunk)"
        try:
            data = load_row(line)
        except (ValueError, RecursionError):
            raise LineError(f"{where}: Invalid JSON format") from None
        custom_id = data.get("custom_id") if isinstance(data, dict) else None
        body = data.get("body") if isinstance(data, dict) else None
        if not isinstance(custom_id, str) or not isinstance(body, dict):
            raise LineError(f"{where}: a line needs a custom_id and a body")
        self.model = self.model or str(body.get("model") or "")
        if self.model.startswith("dedicated/"):
            text = f"Unable to access non-serverless model {self.model}. It needs a dedicated endpoint."
            raise LineError(f"Invalid model ID: {text}")
        return custom_id, body
