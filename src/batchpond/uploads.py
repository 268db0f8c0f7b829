"""A resumable upload: a session, chunks from disk, and after a break the place to go on from.

Google's protocol: google-genai 3.4 `files.py` and `_api_client.py` (`start`, `upload`, `finalize`); `query`
is of Google's guide of resumable uploads. Nothing here connects: `Calls` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Final

import orjson

from batchpond import fields
from batchpond.answers import Answer
from batchpond.outcomes import Fault
from batchpond.retry import Again, RetryReason

CHUNK_BYTES: Final = 8 << 20
_BLOCK_BYTES: Final = 1 << 18
_SESSIONS_MAX: Final = 3
_ACTIVE, _FINAL, _CANCELLED = "active", "final", "cancelled"

Result = Answer | Again | Fault


@dataclass(frozen=True, slots=True)
class Calls:
    """What an upload needs of an HTTP client.

    `post(address, headers, content)` sends one request, to a path or to a whole address of the same
    origin; `repeated(call)` makes a call again where that may help. Content is read while it is sent:
    a request that lives on in some cycle then holds no chunk.
    """

    post: Callable[[str, Mapping[str, str], bytes | Iterable[bytes]], Result]
    repeated: Callable[[Callable[[], Result]], Result]


@dataclass(frozen=True, slots=True)
class Start:
    """What opens a session: where, with which JSON body, for what kind of content."""

    path: str
    payload: Mapping[str, object]
    mime_type: str


def send(calls: Calls, start: Start, content: BinaryIO, size_bytes: int) -> Result:
    """Send a file's bytes and return the answer to the last of them, or what ended the attempt.

    A success without a body means that the provider took the whole file, but the answer that named
    it was lost. A session that the provider has forgotten is opened anew, three times at most.
    """
    result: Result = Fault("no upload session could be opened")
    for _ in range(_SESSIONS_MAX):
        result = calls.repeated(lambda: _opened(calls, start, size_bytes))
        if not isinstance(result, Answer) or not result.is_success:
            return result
        result = _Transfer(calls, _header(result, "url"), content, size_bytes).run()
        if not _is_lost(result):
            return result
    return result


def _opened(calls: Calls, start: Start, size_bytes: int) -> Result:
    headers = {
        "X-Goog-Upload-Protocol": "resumable",
        "X-Goog-Upload-Command": "start",
        "X-Goog-Upload-Header-Content-Length": str(size_bytes),
        "X-Goog-Upload-Header-Content-Type": start.mime_type,
        "Content-Type": "application/json",
    }
    answer = calls.post(start.path, headers, orjson.dumps(start.payload))
    if isinstance(answer, Answer) and answer.is_success and not _header(answer, "url"):
        return Again(RetryReason.SHORT_BODY, "the answer names no upload address", status_code=answer.status_code)
    return answer


class _Transfer:
    """One session: `_offset` is where the provider stands, None when only it knows."""

    def __init__(self, calls: Calls, address: str, content: BinaryIO, size_bytes: int) -> None:
        self._calls = calls
        self._address = address
        self._content = content
        self._size_bytes = size_bytes
        self._offset: int | None = 0

    def run(self) -> Result:
        """Send chunk after chunk; bounded, since a provider that goes back again and again never ends."""
        steps_max = 2 * (self._size_bytes // CHUNK_BYTES + 1) + 16
        for _ in range(steps_max):
            result = self._calls.repeated(self._step)
            if not (isinstance(result, Answer) and result.is_success and _header(result, "status") == _ACTIVE):
                return result
        return Fault(f"the upload did not end within {steps_max} chunks")

    def _step(self) -> Result:
        if self._offset is None:
            asked = self._query()
            if self._offset is None:
                return asked
        offset = self._offset
        n_bytes = min(CHUNK_BYTES, self._size_bytes - offset)
        is_last = offset + n_bytes >= self._size_bytes
        headers = {
            "X-Goog-Upload-Command": "upload, finalize" if is_last else "upload",
            "X-Goog-Upload-Offset": str(offset),
            "Content-Length": str(n_bytes),
        }
        self._offset = None
        answer = self._calls.post(self._address, headers, _blocks(self._content, offset, n_bytes))
        if _is_silent(answer):
            return Again(RetryReason.SHORT_BODY, "the answer does not say how the upload stands")
        if isinstance(answer, Answer) and answer.is_success:
            self._offset = offset + n_bytes
        return answer

    def _query(self) -> Result:
        """Ask where the provider stands; `_offset` is set where the upload can go on."""
        answer = self._calls.post(self._address, {"X-Goog-Upload-Command": "query"}, b"")
        if not (isinstance(answer, Answer) and answer.is_success):
            return answer
        if _is_silent(answer):
            return Again(RetryReason.SHORT_BODY, "the answer does not say how the upload stands")
        if _header(answer, "status") == _ACTIVE:
            received = fields.count(_header(answer, "size-received") or "0")
            if received is None or received > self._size_bytes:
                return Fault(f"the provider says that it has more than the {self._size_bytes} bytes of the file")
            self._offset = received
        return answer


def _blocks(content: BinaryIO, offset: int, n_bytes: int) -> Iterator[bytes]:
    content.seek(offset)
    while n_bytes > 0 and (block := content.read(min(_BLOCK_BYTES, n_bytes))):
        n_bytes -= len(block)
        yield block


def _is_silent(answer: Result) -> bool:
    if not (isinstance(answer, Answer) and answer.is_success):
        return False
    is_told = _header(answer, "status") in (_ACTIVE, _FINAL, _CANCELLED)
    return not is_told and "file" not in fields.mapping(answer.json)


def _is_lost(result: Result) -> bool:
    if not isinstance(result, Answer):
        return False
    return result.status_code in (404, 410) or (result.is_success and _header(result, "status") == _CANCELLED)


def _header(answer: Answer, name: str) -> str:
    value = answer.headers.get(f"x-goog-upload-{name}", "").strip()
    return value if name == "url" else value.lower()
