"""Google's Gemini Developer API: files and batches, and what they say made uniform, total over any JSON.

Shapes: google-genai 3.4 `batches.py`, `files.py`, `types.py`, and recorded traffic of 2026. A batch is a long-running
operation: its facts are in `metadata`, its output there or in `response`. Numbers come as text and zeros not at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any, Final

from batchpond import fields, model
from batchpond.errors import ProviderError
from batchpond.model import BatchState, RemoteBatch, RemoteFile
from batchpond.providers import base
from batchpond.providers.gemini.dialect import DIALECT, is_blank, read_status
from batchpond.providers.http import transfers
from batchpond.providers.http.client import segment
from batchpond.providers.http.errors import AckRule, Answer, ApiError
from batchpond.providers.http.transfers import Commands, Start
from batchpond.providers.shared.batches import BatchClient, Order, Page, own_token, page_by_token
from batchpond.providers.shared.lines import load_row
from batchpond.providers.shared.live import LiveApi
from batchpond.text import redact

DESCRIPTOR: Final = DIALECT.DESCRIPTOR

_MAYBE_GONE: Final = frozenset({403, 404})
_MIME_TYPE: Final = "application/jsonl"
_READY_WAITS: Final = 30
_READY_WAIT_S: Final = 2.0
_EMPTY_PAGES_MAX: Final = 10
_INLINE_BYTES_MAX: Final = 256 << 20


LIVE: Final = LiveApi(
    DESCRIPTOR,
    request_id_headers=(),
    address=lambda endpoint, model: (f"/{_model_path(model)}:{endpoint}", None),
)


class GoogleClient(BatchClient):
    """The client of one of Google's batch APIs, whose listings go on by tokens; `rows` is the member that has them.

    `advice_for` returns what to do about an error of the batch of a name, None where its text says enough.
    """

    size_name = "pageSize"
    rows: str
    advice_for: Callable[[ApiError, str], str | None] = staticmethod(lambda *_: None)
    states = base.by_word("gemini", "states", BatchState)
    ack = AckRule(id_field="name", request_id_headers=(), repeats_status=True)

    def list_page(self, cursor: str | None) -> model.BatchPage:
        """Return one page of the project's batches, newest first, without the answers that are inline.

        Raises ProviderError when the listing does not go on as it says: an incomplete list must
        never look like a complete one.
        """
        return self.page(cursor, {})

    def page(self, cursor: str | None, params: Mapping[str, str | int]) -> model.BatchPage:
        """Return one page of those batches that `params` ask for, and go on past a few pages that hold nothing."""
        asked = {self.size_name: self.descriptor.list_page_size, **params}
        page = Page([], cursor)
        for _ in range(_EMPTY_PAGES_MAX):
            page = page_by_token(self._http, self.batches_path, asked, page.next_cursor, self.rows)
            if page.rows or page.next_cursor is None:
                break
        return self.page_of(page)

    @classmethod
    def state_of(cls, status: str, found: Mapping[str, Any]) -> BatchState:  # noqa: ARG003
        """Return the state, by the word after BATCH_STATE_ or JOB_STATE_."""
        return cls.states.get(word_of(status), BatchState.RUNNING)

    @classmethod
    def errors_of(cls, error: object, name: str) -> tuple[model.BatchError, ...]:
        """Return why a batch failed, and what to do about it."""
        if is_blank(error):
            return ()
        _, read = read_status(error)
        advice = cls.advice_for(read, name)
        return (model.BatchError(read.code, redact(read.message + (f" [{advice}]" if advice else ""))),)

    @classmethod
    def more_of(cls, found: dict[str, Any], batch: RemoteBatch) -> RemoteBatch:
        """Return a batch with its errors, and its end if it has come to it."""
        ended_at = batch.ended_at if batch.state.is_terminal else None
        return replace(batch, ended_at=ended_at, errors=cls.errors_of(found.get("error"), batch.batch_id))

    def cancel(self, batch_id: str) -> RemoteBatch | None:
        """Ask for cancellation, and for what came of it; None when Google says it is too late or unknown."""
        answer = self._http.request_json("POST", f"{self.path_of(batch_id)}:cancel", payload={}, allow=self.too_late)
        return self.get(batch_id) if answer.is_success else None


_RESULTS: Final = "files/batch-"


class GeminiClient(GoogleClient):
    """The client of the Gemini API's batch mode, bound to one key and base URL."""

    descriptor = DESCRIPTOR
    rows = "operations"
    id_prefix = "batches/"
    file_prefix = "files/"
    lists_newest_first = False  # no document says so
    members = base.table("gemini", "batch")
    texts = base.texts("gemini", "refusals")
    file_members = base.table("gemini", "file")
    missing = _MAYBE_GONE
    too_late = frozenset({400, 403, 404, 409})

    def upload(self, path: Path, filename: str) -> RemoteFile:
        """Upload a payload and wait until Google has taken it in; safe to repeat, since files cost nothing."""
        start = Start(self._beside("upload", "/files"), {"file": {"displayName": filename}}, _MIME_TYPE, Commands())
        answer = self._http.upload_resumable(start, path)
        found = fields.mapping(fields.mapping(answer.json).get("file"))
        if self.file_of(found) is None:
            # The last answer was lost; what it named is in the listing, by the name that we gave it.
            known = self.find_uploads(filename, self._clock.now())
            if not known:
                raise ProviderError(f"{self.host} took the upload of {filename} but does not name the file")
            found = self.file(known[0].file_id)
        return self._ready(found, filename)

    def drop_upload(self, file_id: str) -> bool:
        """Delete a file; False where there was none, which Google answers with 403, too.

        A batch's results have a name that is too long to delete them by (400 "more than 40 characters", seen live);
        they go with the batch.
        """
        if not file_id.startswith(_RESULTS):
            return super().drop_upload(file_id)
        path = self.path_of(f"{self.id_prefix}{file_id.removeprefix(_RESULTS)}")
        return self._http.request_json("DELETE", path, allow=self.missing).is_success

    def files_page(self, cursor: str | None) -> Page:
        """Return one page of the project's files, but for those that Google could not take in."""
        params = {self.size_name: DESCRIPTOR.list_page_size}
        page = page_by_token(self._http, self.files_path, params, cursor, "files")
        return page._replace(rows=[row for row in page.rows if fields.mapping(row).get("state") != "FAILED"])

    def order(self, spec: model.CreateSpec) -> Order:
        """Return a batch of an uploaded file."""
        path = f"/{_model_path(spec.request_model)}:batchGenerateContent"
        return Order(path, {"batch": {"displayName": spec.token, "inputConfig": {"fileName": spec.input_file_id}}})

    @classmethod
    def state_of(cls, status: str, found: Mapping[str, Any]) -> BatchState:
        """Return the state; where Google leaves the word out, `done` and what is beside it tell."""
        if word_of(status) not in ("", "UNSPECIFIED"):
            return super().state_of(status, found)
        if found.get("done") is not True:
            return BatchState.RUNNING
        if is_blank(found.get("error")):
            return BatchState.COMPLETED if isinstance(found.get("response"), dict) else BatchState.RUNNING
        return BatchState.CANCELLED if read_status(found.get("error"))[1].code == "CANCELLED" else BatchState.FAILED

    @classmethod
    def more_of(cls, found: dict[str, Any], batch: RemoteBatch) -> RemoteBatch:
        """Return a batch with its counts, its output and its token, without its answers.

        `expires_at` is the documented 48 hours after creation: Google's answers have no such time.
        """
        stats = fields.inside(found, "metadata.batchStats")
        return replace(
            super().more_of(found, batch),
            seen=reduce(_without, _LONG, found),
            expires_at=later(batch.created_at, _EXPIRES_AFTER),
            n_total=_count(stats, "requestCount"),
            n_completed=_count(stats, "successfulRequestCount"),
            n_failed=_count(stats, "failedRequestCount"),
            output_file_id=_output(found, batch.batch_id, batch.state),
            token=own_token(fields.inside(found, "metadata.displayName")),
        )

    def download(self, file_id: str, path: Path) -> model.Download | None:
        """Stream a result file to `path`; None on 404, 410 and Google's 403 for what may be gone.

        Answers that are inline are written one a line, each with its request's key as `key` and its
        members sorted, so that the same answer always gives the same bytes.
        """
        if not file_id.startswith(INLINE):
            return super().download(file_id, path)
        batch_id = file_id.removeprefix(INLINE)
        if self._http.download(self.path_of(batch_id), path) is None:
            return None
        operation = self._operation(path, batch_id)
        if output := responses_file(operation):
            return super().download(output, path)
        return transfers.write(_inline_lines(operation), path)

    def peek(self, file_id: str, max_bytes: int) -> bytes | None:
        """Return the first bytes of what `download` gives; None where it gives None."""
        if not file_id.startswith(INLINE):
            return super().peek(file_id, max_bytes)
        path = self.path_of(file_id.removeprefix(INLINE))
        answer = self._http.request_json("GET", path, allow=self.missing)
        if not answer.is_success:
            return None
        if output := responses_file(answer.json):
            return super().peek(output, max_bytes)
        return b"".join(_inline_lines(answer.json))[:max_bytes]

    def content_path(self, file_id: str) -> str:
        """Return where the bytes of a result file are."""
        return self._beside("download", f"{self.file_path(file_id)}:download?alt=media")

    def _beside(self, what: str, path: str) -> str:
        """Return the address of bytes, which stands before the version that the base URL ends in."""
        root, _, version = self._http.base_url.rpartition("/")
        return f"{root}/{what}/{version}{path}"

    def _ready(self, found: dict[str, Any], filename: str) -> RemoteFile:
        """Return a file that can be used; raises ProviderError when Google could not take it in, or not in time."""
        for _ in range(_READY_WAITS):
            file = self.file_of(found)
            if file is None or found.get("state") == "FAILED":
                reason = fields.text(fields.mapping(found.get("error")).get("message")) or "without a reason"
                raise ProviderError(f"{self.host} could not take in {filename}: {reason[:200]}; no batch exists")
            if found.get("state") != "PROCESSING":
                return file
            self._clock.sleep(_READY_WAIT_S)
            found = self.file(file.file_id)
        raise ProviderError(f"{self.host} is still taking in {filename}", hint="run the same command again later")

    def _operation(self, path: Path, batch_id: str) -> dict[str, Any]:
        """Return the batch that was downloaded to `path`, however odd the text of its answers is."""
        if path.stat().st_size > _INLINE_BYTES_MAX:
            raise ProviderError(f"the inline answers of {batch_id} are larger than {_INLINE_BYTES_MAX} bytes")
        operation = load_row(path.read_bytes(), "name")
        if isinstance(operation, str):
            raise ProviderError(f"{self.host} answered for {batch_id} without a batch: {operation}")
        return operation

    def refusal(self, answer: Answer, spec: model.CreateSpec) -> model.Rejected:
        """Return a definite no; a 404 not about the file is about the model; a file gets ready by itself."""
        refusal = super().refusal(answer, spec)
        message = answer.error.message if answer.error else ""
        is_about_file = "file" in message.lower() or spec.input_file_id is None or spec.input_file_id in message
        if answer.status_code == 404 and not is_about_file:
            return replace(refusal, error_class=model.ErrorClass.MODEL_GONE)
        return refusal


BATCH: Final = GeminiClient


def _model_path(model: str) -> str:
    for prefix in ("models/", "tunedModels/"):
        if model.startswith(prefix):
            return prefix + segment(model.removeprefix(prefix))
    return "models/" + segment(model)


def _inline_lines(operation: object) -> Iterator[bytes]:
    for answer in inline_responses(operation) or ():
        row = answer if isinstance(answer, dict) else {"response": answer}
        key = fields.mapping(row.get("metadata")).get("key")
        row = row if key is None or "key" in row else {"key": key, **row}
        text = json.dumps(row, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        yield text.encode("utf-8", "replace") + b"\n"


INLINE: Final = "inline:"
_HAS_ANSWERS: Final = frozenset({BatchState.COMPLETED, BatchState.CANCELLED})
_EXPIRES_AFTER: Final = timedelta(hours=48)
_INLINE_MAX: Final = 1_000_000
_LONG: Final = ("response.inlinedResponses", "metadata.output.inlinedResponses", "metadata.inputConfig.requests")


_PLACES: Final = ("response", "metadata.output")
"""Where Google puts a batch's output."""


def responses_file(operation: object) -> str | None:
    """Return the name of the file that a batch's answers are in."""
    named = (fields.identifier(fields.inside(operation, f"{place}.responsesFile")) for place in _PLACES)
    return next(filter(None, named), None)


def inline_responses(operation: object) -> list[Any] | None:
    """Return the answers that a batch carries itself, None when it carries none."""
    for place in _PLACES:
        found = fields.inside(operation, f"{place}.inlinedResponses")
        answers = found.get("inlinedResponses", []) if isinstance(found, dict) else found
        if isinstance(answers, list):
            return answers[:_INLINE_MAX]
    return None


def _output(found: dict[str, Any], name: str, state: BatchState) -> str | None:
    """Return the result file's name, or that of the inline answers, which a listing does not show.

    Files are named for batches that ended without success too, if Google names one. An expired batch has none.
    """
    if not state.is_terminal:
        return None
    if output := responses_file(found):
        return output
    return INLINE + name if state in _HAS_ANSWERS or inline_responses(found) else None


def word_of(status: str) -> str:
    """Return a state without what Google puts before it."""
    return status.strip().upper().removeprefix("BATCH_STATE_").removeprefix("JOB_STATE_")


def later(moment: datetime | None, by: timedelta) -> datetime | None:
    """Return the end of a span of time, None for one past all calendars."""
    try:
        return None if moment is None else moment + by
    except OverflowError:
        return None


def _count(stats: object, name: str) -> int | None:
    """Return a count of `batchStats`; zeros are left out there, so an absent one is 0."""
    return fields.count(stats.get(name, 0)) if isinstance(stats, dict) and stats else None


def _without(value: Any, path: str) -> Any:
    """Return a JSON object without what it holds at a path, which may be millions of tokens long."""
    name, _, rest = path.partition(".")
    if not isinstance(value, dict) or name not in value:
        return value
    return value | {name: _without(value[name], rest) if rest else "left out"}
