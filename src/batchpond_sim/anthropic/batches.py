"""The batches of a simulated Anthropic account: the requests in a create call, their rows and how they look.

    in_progress -> ended            in_progress -> canceling -> ended

A batch of nothing but refused requests has ended like any other; there is no failed state. Requests that travel inside
a create call are spooled to disk, then checked and kept one at a time: a body may be hundreds of megabytes, and memory
stays bounded by its largest single request.
"""

from __future__ import annotations

import mmap
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from batchpond_sim.anthropic.answers import VERSION, Conditions, answer
from batchpond_sim.host.messages import CHUNK_BYTES, Request
from batchpond_sim.judges.judge import Panel
from batchpond_sim.judges.speech import RowAnswer
from batchpond_sim.shared.batches import Account, Batch, End
from batchpond_sim.shared.rows import (
    AnsweredRow,
    NotRun,
    Outputs,
    RowCount,
    RowPlan,
    Shape,
    dump_row,
    load_row,
    request_key,
    write_rows,
)
from batchpond_sim.world.faults import Value, number
from batchpond_sim.world.world import World

PROVIDER = "anthropic"
WINDOW_S = 86_400
RETENTION_S = 29 * 86_400
SHAPE = Shape("custom_id", b'"id":"msg_', ("result", "message", "usage"), (b'"text":"', b'"thinking":"'))
_NOT_RUN = {NotRun.EXPIRED: "expired", NotRun.CANCELLED: "canceled"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageBatch(Batch):
    """A batch whose requests came with it; they are kept in a blob until it has ended."""

    version: str = VERSION
    has_results: bool = False
    n_results_404: int = 0

    def status(self) -> str:
        """Return the status word."""
        if self.is_ended:
            return "ended"
        return "in_progress" if self.cancel_s is None else "canceling"

    def is_archived(self, now_s: float) -> bool:
        """Return whether the results are gone for their age."""
        return now_s >= self.created_s + RETENTION_S


@dataclass(frozen=True, slots=True)
class AnthropicSpeaker:
    """Answers a batch's requests as rows of its result stream; `fail` makes all of them errors."""

    batch_id: str
    version: str
    panel: Panel
    fail: str | None = None
    cached: set[str] = field(default_factory=set)

    def answered(self, i: int, custom_id: str, body: dict[str, Any], force: str) -> AnsweredRow:
        """Return the row of the `i`-th request."""
        if self.fail is not None:
            kind = self.fail if self.fail.endswith("_error") else "invalid_request_error"
            said = RowAnswer(400, {"type": kind, "message": f"The request failed: {self.fail}."}, is_checked=False)
        else:
            conditions = Conditions(self.version, True, self.cached)
            said = answer(body, request_key(custom_id), self.panel, conditions, force)
        if said.is_success:
            return AnsweredRow.of(_row(custom_id, {"type": "succeeded", "message": said.body}), said)
        error = said.body if said.is_checked else said.body | {"details": {"error_visibility": "user_facing"}}
        request_id = f"workerreq_{self.batch_id[-12:]}{i:06x}" if said.is_checked else None
        result = {"type": "errored", "error": {"type": "error", "error": error, "request_id": request_id}}
        return AnsweredRow.of(_row(custom_id, result), said)

    def not_run(self, i: int, custom_id: str, why: NotRun) -> bytes:  # noqa: ARG002
        """Return the row of a request that was not run."""
        return _row(custom_id, {"type": _NOT_RUN[why]})


def _row(custom_id: str, result: dict[str, Any]) -> bytes:
    return dump_row({"custom_id": custom_id, "result": result})


class AnthropicAccount(Account[MessageBatch]):
    """All batches."""

    def __init__(self, world: World) -> None:
        super().__init__(world, PROVIDER, MessageBatch, WINDOW_S)

    def requests_blob(self, batch_id: str) -> Path:
        """Return where a batch's requests are until it has ended."""
        return self.blob(f"{batch_id}.requests")

    def results_blob(self, batch_id: str) -> Path:
        """Return where a batch's results are once it has ended."""
        return self.blob(f"{batch_id}.results")

    def write(self, batch: MessageBatch, plan: RowPlan) -> RowCount:
        """Write the result stream."""
        fail = batch.effects.get("fail")
        speaker = AnthropicSpeaker(batch.id, batch.version, self.world.panel, fail if isinstance(fail, str) else None)
        return write_rows(self._requests(batch), Outputs(self.part(batch, "output"), None, SHAPE), plan, speaker)

    def _requests(self, batch: MessageBatch) -> Iterator[tuple[str, dict[str, Any]]]:
        with self.requests_blob(batch.id).open("rb") as lines:
            for line in lines:
                request = load_row(line)
                yield request["custom_id"], request["params"]

    def publish(self, batch: MessageBatch) -> MessageBatch:
        """Make the result stream available, unless a fault withholds it."""
        if "expire_bare" in batch.effects or "empty_output" in batch.effects:
            return batch
        part, results = self.part(batch, "output"), self.results_blob(batch.id)
        if part.exists():
            part.replace(results)
        n_404 = int(number(batch.effects.get("results_404")))
        return replace(batch, has_results=results.exists(), n_results_404=n_404)

    def clear(self, batch: MessageBatch) -> None:
        """Remove the parts of a batch, and the requests of an ended one."""
        super().clear(batch)
        if batch.is_ended:
            self.requests_blob(batch.id).unlink(missing_ok=True)

    def drop(self, batch: MessageBatch) -> None:
        """Delete an ended batch with its results."""
        super().drop(batch)
        self.results_blob(batch.id).unlink(missing_ok=True)


def timestamp(seconds: float) -> str:
    """Return Unix seconds as the API writes times."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")


def batch_view(batch: MessageBatch, now_s: float, host: str, faults: Mapping[str, Value]) -> dict[str, Any]:
    """Return a batch as the API shows it, or as `faults` make it look."""
    is_ended = batch.is_ended and "regress" not in faults
    status = batch.status() if is_ended or not batch.is_ended else "in_progress"
    created_s = batch.created_s + number(faults.get("clock_skew"))
    has_results = is_ended and batch.has_results and not batch.is_archived(now_s)
    url = f"http://{host}/anthropic/v1/messages/batches/{batch.id}/results"
    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": str(faults["status_word"]) if "status_word" in faults else status,
        "request_counts": _counts(batch, now_s, is_ended, faults),
        "ended_at": timestamp(batch.done_s) if is_ended else None,
        "created_at": timestamp(created_s),
        "expires_at": timestamp(created_s + WINDOW_S),
        "archived_at": timestamp(batch.created_s + RETENTION_S) if batch.is_archived(now_s) else None,
        "cancel_initiated_at": None if batch.cancel_s is None else timestamp(batch.cancel_s),
        "results_url": url if has_results else "" if "error_file_empty_string" in faults else None,
    }


def _counts(batch: MessageBatch, now_s: float, is_ended: bool, faults: Mapping[str, Value]) -> dict[str, Any] | None:
    if "counts_null" in faults:
        return None
    share = 1.0 if is_ended else batch.share_done(now_s)
    if "counts_late" in faults and not is_ended:
        share = 0.0
    succeeded, errored = int(batch.n_completed * share), int(batch.n_failed * share)
    counts: dict[str, Any] = {"processing": 0, "succeeded": succeeded, "errored": errored, "canceled": 0, "expired": 0}
    rest = batch.n_total - succeeded - errored
    if not is_ended:
        counts["processing"] = rest
    elif batch.end == End.CANCELLED:
        counts["canceled"] = rest
    else:
        counts["expired"] = rest
    if "counts_wrong" in faults:
        counts |= {"succeeded": 0 if succeeded == 1 else 1, "errored": 0}
    return {name: str(n) for name, n in counts.items()} if "counts_text" in faults else counts


_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_BLANK = re.compile(rb"[ \t\r\n]*+")
_QUOTED = re.compile(_STRING, re.DOTALL)
_SCALAR = re.compile(rb'[^\s,:"\[\]{}]++')
_BRACKET = re.compile(rb'[^"\[\]{}]*+(?:' + _STRING + rb'[^"\[\]{}]*+)*+([\[\]{}])', re.DOTALL)


class InboxError(ValueError):
    """A body that is refused."""


class TooLargeError(InboxError):
    """A body of more bytes than allowed."""


class EncodingError(InboxError):
    """A body whose Content-Encoding is unknown (`is_known` false) or does not fit its bytes."""

    def __init__(self, encoding: str, *, is_known: bool) -> None:
        super().__init__(encoding)
        self.is_known = is_known


class JsonError(InboxError):
    """A body that is not JSON."""


class RequestsError(InboxError):
    """The first thing wrong with the requests, as the API names it."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a create call may hold: the pattern of a custom_id, most requests, keys beside `requests`."""

    custom_id: re.Pattern[str]
    id_length_max: int
    requests_max: int
    other_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Taken:
    """The requests of a create call: how many, the first id, the first model."""

    n_requests: int
    first_custom_id: str
    model: str


def spool(request: Request, path: Path, max_bytes: int) -> None:
    """Write a request's body to a file, unpacked; raises TooLargeError or EncodingError."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip"):
        raise EncodingError(encoding, is_known=False)
    unpack = zlib.decompressobj(wbits=31) if encoding == "gzip" else None
    n_bytes = 0
    with path.open("wb") as file:
        while chunk := request.body.read(CHUNK_BYTES):
            for piece in _unpacked(unpack, chunk):
                n_bytes += len(piece)
                if n_bytes > max_bytes:
                    raise TooLargeError(f"over {max_bytes} bytes")
                file.write(piece)
        if unpack is not None:
            file.write(unpack.flush())
    if unpack is not None and not unpack.eof:
        raise EncodingError(encoding, is_known=True)


def _unpacked(unpack: Any, chunk: bytes) -> Iterator[bytes]:
    if unpack is None:
        yield chunk
        return
    while chunk:
        try:
            yield unpack.decompress(chunk, CHUNK_BYTES)
        except zlib.error as error:
            raise EncodingError("gzip", is_known=True) from error
        chunk = unpack.unconsumed_tail


def take(body: Path, lines: Path, rules: Rules) -> Taken:
    """Check a body `{"requests": [...]}` and write each request as a line of its own.

    Raises JsonError for what is no JSON and RequestsError for the first wrong request.
    """
    if body.stat().st_size == 0:
        raise JsonError("the body is empty")
    with (
        body.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        lines.open("wb") as out,
    ):
        taking = _Taking(rules)
        for request in _Scanner(data, rules.other_keys).requests():
            out.write(taking.line(request))
    return taking.done()


class _Taking:
    """Checks requests one by one."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._seen: set[str] = set()
        self._first = self._model = ""

    def line(self, request: Any) -> bytes:
        i = len(self._seen)
        if not isinstance(request, dict):
            raise RequestsError(f"requests.{i}: Input should be an object")
        custom_id = self._custom_id(i, request)
        params = request.get("params")
        if params is None:
            raise RequestsError(f"requests.{i}.params: Field required")
        if not isinstance(params, dict):
            raise RequestsError(f"requests.{i}.params: Input should be an object")
        extra = request.keys() - {"custom_id", "params"}
        if extra:
            raise RequestsError(f"requests.{i}.{min(extra)}: Extra inputs are not permitted")
        if custom_id in self._seen:
            text = f"custom_id's must be unique within a batch. Duplicate custom_id found: {custom_id}"
            raise RequestsError(f"requests: {text}")
        self._seen.add(custom_id)
        if i == self._rules.requests_max:
            raise RequestsError(f"requests: List should have at most {i} items after validation, not {i + 1}")
        if i == 0:
            self._first, self._model = custom_id, str(params.get("model", ""))
        return dump_row({"custom_id": custom_id, "params": params}) + b"\n"

    def _custom_id(self, i: int, request: dict[str, Any]) -> str:
        custom_id = request.get("custom_id")
        where = f"requests.{i}.custom_id"
        if custom_id is None:
            raise RequestsError(f"{where}: Field required")
        if not isinstance(custom_id, str):
            raise RequestsError(f"{where}: Input should be a valid string")
        if len(custom_id) > self._rules.id_length_max:
            raise RequestsError(f"{where}: String should have at most {self._rules.id_length_max} characters")
        if not self._rules.custom_id.fullmatch(custom_id):
            raise RequestsError(f"{where}: String should match pattern '{self._rules.custom_id.pattern}'")
        return custom_id

    def done(self) -> Taken:
        if not self._seen:
            raise RequestsError("requests: List should have at least 1 item after validation, not 0")
        return Taken(len(self._seen), self._first, self._model)


class _Scanner:
    """Finds the requests of a body without reading all of it at once."""

    def __init__(self, data: mmap.mmap, other_keys: tuple[str, ...]) -> None:
        self._data = data
        self._other_keys = other_keys
        self._at = 0

    def requests(self) -> Iterator[Any]:
        has_requests = False
        self._expect(b"{")
        for _ in self._items(b"}"):
            name = self._value(_QUOTED)
            self._expect(b":")
            if name == "requests":
                has_requests = True
                yield from self._elements()
            elif name in self._other_keys:
                self._value()
            else:
                raise RequestsError(f"{name}: Extra inputs are not permitted")
        self._blank()
        if self._at != len(self._data):
            raise self._error()
        if not has_requests:
            raise RequestsError("requests: Field required")

    def _elements(self) -> Iterator[Any]:
        self._blank()
        if self._data[self._at : self._at + 1] != b"[":
            self._value()
            raise RequestsError("requests: Input should be a valid list")
        self._expect(b"[")
        for _ in self._items(b"]"):
            yield self._value()

    def _items(self, close: bytes) -> Iterator[None]:
        """Stop before each item up to the closing bracket."""
        if self._skips(close):
            return
        while True:
            yield
            if self._skips(close):
                return
            self._expect(b",")

    def _value(self, only: re.Pattern[bytes] | None = None) -> Any:
        self._blank()
        start = self._at
        if only is not None:
            end = self._end(only)
        elif self._data[start : start + 1] in (b"{", b"["):
            end = self._closing()
        else:
            end = self._end(_QUOTED if self._data[start : start + 1] == b'"' else _SCALAR)
        self._at = end
        try:
            return load_row(self._data[start:end])
        except (ValueError, RecursionError) as error:
            raise JsonError(f"{error} in the value at byte {start}") from error

    def _end(self, pattern: re.Pattern[bytes]) -> int:
        match = pattern.match(self._data, self._at)
        if match is None:
            raise self._error()
        return match.end()

    def _closing(self) -> int:
        depth, at = 0, self._at
        while True:
            match = _BRACKET.match(self._data, at)
            if match is None:
                raise self._error()
            at = match.end()
            depth += 1 if match[1] in b"[{" else -1
            if depth == 0:
                return at

    def _blank(self) -> None:
        self._at = self._end(_BLANK)

    def _skips(self, mark: bytes) -> bool:
        self._blank()
        is_there = self._data[self._at : self._at + 1] == mark
        self._at += is_there
        return is_there

    def _expect(self, mark: bytes) -> None:
        if not self._skips(mark):
            raise self._error()

    def _error(self) -> JsonError:
        return JsonError(f"unexpected data at byte {self._at}")
