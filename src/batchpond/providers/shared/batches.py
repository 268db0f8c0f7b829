"""What batch APIs have in common: an object a batch, made by one POST, listed, looked at, cancelled.

`BatchClient` is every one of them, `FilesClient` those of the files kind (OpenAI's and whoever copies it): a JSONL file
is uploaded, a batch names it, and ends with an output file and an error file. A provider says what differs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

import orjson

from batchpond import fields, ids, model
from batchpond.clock import Clock
from batchpond.errors import ProviderError
from batchpond.model import BatchError, BatchState, Download, RemoteBatch, RemoteFile
from batchpond.providers import base
from batchpond.providers.base import BatchProvider
from batchpond.providers.http import errors
from batchpond.providers.http.client import HttpClient, JsonStream, ProviderClient, segment
from batchpond.providers.http.errors import AckRule, Answer, ApiError, Shape
from batchpond.text import redact

_READERS: Final[Mapping[str, Callable[[object], Any]]] = {
    "batch_id": fields.identifier,
    "provider_status": fields.word,
    **dict.fromkeys(("endpoint", "filename"), fields.text),
    **dict.fromkeys(("created_at", "expires_at", "ended_at"), fields.moment),
    **dict.fromkeys(("n_total", "n_completed", "n_failed", "size_bytes"), fields.count),
    **dict.fromkeys(("file_id", "input_file_id", "output_file_id", "error_file_id"), fields.identifier),
}
TOKEN_KEY: Final = "batchpond"
_PAIRS_MAX, _VALUE_CHARS = 16, 512
_ERRORS_MAX: Final = 100
_FILES_PER_PAGE: Final = 1_000
_NUMBERED_SIZE: Final = 100
PAGES_MAX: Final = 1_000
# What a server that cuts lists off might cut them off at: no document names any such bound.
_LIKELY_BOUNDS: Final = frozenset({20, 25, 50, 100, 200, 250, 500, 1_000, 2_000, 5_000, 10_000})
_CUT: Final = "cut"
_CLOCK_SKEW: Final = timedelta(hours=1)


def _read(value: object, members: Mapping[str, str]) -> dict[str, Any]:
    """Return what the first of each field's paths has, with `|` between them; None where none of them has it."""
    read: dict[str, Any] = {}
    for name, paths in members.items():
        said = (_READERS[name](fields.inside(value, path)) for path in paths.split("|"))
        read[name] = next((one for one in said if one is not None), None)
    return read


class Page(NamedTuple):
    """The rows of a page of a listing, the next one's cursor (None on the last), and the answer's headers if kept."""

    rows: list[Any]
    next_cursor: str | None
    headers: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """What the one POST that makes a batch says, and where; `headers` replace those of the same name."""

    path: str
    payload: Mapping[str, Any] | JsonStream
    headers: Mapping[str, str] | None = None


class BatchClient(ProviderClient, BatchProvider):
    """The client of one batch API, bound to one key and base URL.

    Ids may begin with `id_prefix`, those of files with `file_prefix`, which is no part of their paths.
    `size_name` and `cursor_name` are what a listing is asked by; that of files may end early where it
    `lists_newest_first`. `ack` tells the provider's own answers from a proxy's; `members` says by what path, or paths,
    a batch object has which field of a RemoteBatch, `file_members` the same of a file object, `states` what a batch's
    status means, `texts` what refusals mean whose codes do not tell.
    `list_shapes` are the listings that are a bare array, where there are no pages.
    The bytes of a result file are at its path with `content_suffix`.
    `missing` are the statuses of a batch that may not exist, `too_late` those of a cancel that changes nothing.
    """

    batches_path = "/batches"
    files_path = "/files"
    id_prefix = ""
    file_prefix = ""
    lists_newest_first = True
    size_name = "limit"
    cursor_name = "after"
    cancel_suffix = "/cancel"
    content_suffix = "/content"
    ack = AckRule()
    members: Mapping[str, str]
    file_members: Mapping[str, str]
    states: Mapping[str, BatchState]
    texts: base.Texts = ()
    list_shapes: Mapping[str, Shape] = {}
    missing = frozenset({404})
    too_late = frozenset({400, 404, 409})

    @classmethod
    def connect(cls, clock: Clock, environ: Mapping[str, str], transport: Any) -> Self:
        """Return the client for the environment's key, by the descriptor's names; raises AccessError without one.

        `transport` replaces the network.
        """
        return cls(HttpClient.connect(cls.descriptor, clock, environ, transport), clock)

    @abstractmethod
    def order(self, spec: model.CreateSpec) -> Order:
        """Return what makes a batch; what it raises, it raises before anything is sent."""

    @classmethod
    def state_of(cls, status: str, found: Mapping[str, Any]) -> BatchState:  # noqa: ARG003
        """Return the state of a batch object; an unknown status is RUNNING."""
        return cls.states.get(status.strip().lower(), BatchState.RUNNING)

    @classmethod
    def more_of(cls, found: dict[str, Any], batch: RemoteBatch) -> RemoteBatch:  # noqa: ARG003
        """Return a batch with what no one member of its object says."""
        return batch

    def refusal(self, answer: Answer, spec: model.CreateSpec) -> model.Rejected:  # noqa: ARG002
        """Return what a definite no to a create comes to: its text decides where its code and status do not."""
        error = (errors.own_error(answer.json) if self.ack.has_text_errors else answer.error) or ApiError(
            answer.excerpt()
        )
        # What a proxy's page says is no word of a provider that has an envelope for its own.
        error_class = (
            errors.classify(answer.status_code, error) if self.ack.has_text_errors else errors.error_class_of(answer)
        )
        if error_class is model.ErrorClass.PERMANENT:
            error_class = base.class_of(self.texts, error.message) or error_class
        wait_s = answer.retry_after_s(self._clock.now())
        return model.Rejected(error_class, error.code, redact(error.message), answer.status_code, wait_s)

    def scope_of(self, headers: Mapping[str, str], batches: Sequence[RemoteBatch]) -> str:  # noqa: ARG002
        """Return the account that an answer with these headers came from, and the batches in it."""
        return self.scope_in(headers, self.descriptor.scope_headers)

    def path_of(self, batch_id: str) -> str:
        """Return the path of a batch; raises ProviderError for what would address something else."""
        return f"{self.batches_path}/{segment(batch_id.removeprefix(self.id_prefix))}"

    def file_path(self, file_id: str) -> str:
        """Return the path of a file; raises ProviderError for what would address something else."""
        return f"{self.files_path}/{segment(file_id.removeprefix(self.file_prefix))}"

    def content_path(self, file_id: str) -> str:
        """Return where the bytes of a result file are."""
        return f"{self.file_path(file_id)}{self.content_suffix}"

    def files_page(self, cursor: str | None) -> Page:
        """Return one page of the account's files that can be used, and the cursor of the next one."""
        raise ProviderError(f"{self.descriptor.name} lists no batch files after {cursor}")

    def is_of(self, batch: RemoteBatch, batch_id: str) -> bool:
        """Return whether an id means a batch."""
        return batch.batch_id.removeprefix(self.id_prefix) == batch_id.removeprefix(self.id_prefix)

    @classmethod
    def file_of(cls, value: object) -> RemoteFile | None:
        """Return a file object made uniform, None when it has no id."""
        read = _read(value, cls.file_members)
        return None if read["file_id"] is None else RemoteFile(**read | {"filename": read["filename"] or ""})

    @classmethod
    def read_batch(cls, value: object) -> RemoteBatch | None:
        """Return a batch object made uniform, None when it has no id."""
        found = fields.mapping(value)
        read = _read(found, cls.members)
        if read["batch_id"] is None:
            return None
        status = read["provider_status"] = read["provider_status"] or ""
        state = cls.state_of(status, found)
        return cls.more_of(found, RemoteBatch(state=state, seen=found, **read))

    def create(self, spec: model.CreateSpec) -> model.CreateAnswer:
        """Send exactly one POST and classify its answer; raises nothing for network faults.

        Raises ProviderError, LakeError or UsageError, with nothing sent, for what no batch can be made of.
        """
        if self.descriptor.takes_files and spec.input_file_id is None:
            raise ProviderError(f"a batch of {self.descriptor.name} is made of an uploaded file, and none was given")
        order = self.order(spec)
        body = order.payload if isinstance(order.payload, JsonStream) else orjson.dumps(order.payload)
        deadline_s = self.descriptor.create_deadline_s
        result = self._http.ask(order.path, body, deadline_s, order.headers, may_be_silent=False)
        answer = errors.judge_create(result, self.ack)
        if isinstance(answer, model.Unclear):
            return answer
        if not answer.is_success:
            return self.refusal(answer, spec)
        batch = self.read_batch(answer.json)
        if batch is None:
            return model.Unclear("the answer has no batch id")
        return model.Created(batch, self.scope_of(answer.headers, (batch,)))

    def list_page(self, cursor: str | None) -> model.BatchPage:
        """Return one page of the account's batches, newest first.

        Raises ProviderError when the listing does not go on as it says: an incomplete list must
        never look like a complete one.
        """
        if not self.descriptor.list_page_size:
            return self._list_of_all(cursor)
        params = {self.size_name: self.descriptor.list_page_size}
        return self.page_of(page_by_last_id(self._http, self.batches_path, params, cursor, self.cursor_name))

    def _list_of_all(self, cursor: str | None) -> model.BatchPage:
        """Return all of the account's batches, newest first, where there are no pages.

        A list as long as servers like to make them may be cut off. Its oldest batch then makes a page of its own, and
        an empty one that has no end follows, so that only those take the list for complete who look for nothing as old.
        """
        if cursor is not None:
            oldest = None if cursor == _CUT else self.get(cursor)
            return model.BatchPage(() if oldest is None else (oldest,), _CUT)
        found = list(self.page_of(Page(self.all_of(self.batches_path), None)).batches)
        dates = [batch.created_at for batch in found if batch.created_at is not None]
        if len(dates) == len(found):
            found.sort(key=lambda batch: batch.created_at or dates[0], reverse=True)
        if len(found) in _LIKELY_BOUNDS:
            return model.BatchPage(tuple(found[:-1]), found[-1].batch_id)
        return model.BatchPage(tuple(found), None)

    def all_of(self, path: str) -> list[Any]:
        """Return the rows of a listing without pages; raises ProviderError for an answer that is none."""
        rows = self._http.request_json("GET", path, shape=self.list_shapes.get(path, dict)).json
        rows = rows if isinstance(rows, list) else rows.get("data")
        if not isinstance(rows, list):
            raise ProviderError(f"GET {path} at {self.host} answered without a list")
        return rows

    def page_of(self, page: Page) -> model.BatchPage:
        """Return a page's rows made uniform; raises ProviderError for a row without an id."""
        found = tuple(batch for batch in map(self.read_batch, page.rows) if batch is not None)
        if len(found) < len(page.rows):
            raise ProviderError(f"{self.host} lists a batch without an id")
        scope = None if page.headers is None else self.scope_of(page.headers, found)
        return model.BatchPage(found, page.next_cursor, scope)

    def get(self, batch_id: str) -> RemoteBatch | None:
        """Return a batch, or None where it may be missing, which is not proof of loss."""
        path = self.path_of(batch_id)
        answer = self._http.request_json("GET", path, allow=self.missing)
        if not answer.is_success:
            return None
        batch = self.read_batch(answer.json)
        if batch is None or not self.is_of(batch, batch_id):
            raise ProviderError(f"GET {path} at {self.host} answered with another object: {answer.excerpt()}")
        return batch

    def cancel(self, batch_id: str) -> RemoteBatch | None:
        """Ask for cancellation; None when the provider says that it is too late or the batch unknown."""
        answer = self._http.request_json("POST", f"{self.path_of(batch_id)}{self.cancel_suffix}", allow=self.too_late)
        return self.read_batch(answer.json) if answer.is_success else None

    def find_uploads(self, filename: str, since: datetime) -> list[RemoteFile]:
        """Return the uploaded files of that name, newest first, made since then or at an unknown time."""
        too_many = f"{self.host} lists more than {PAGES_MAX} pages of files"
        found: list[RemoteFile] = []
        for rows in every_page(self.files_page, too_many) if self.descriptor.takes_files else ():
            files = [file for file in map(self.file_of, rows) if file is not None]
            found += [file for file in files if file.filename == filename and not _is_before(file, since)]
            if self.lists_newest_first and files and all(_is_before(file, since) for file in files):
                break
        return sorted(found, key=lambda file: file.created_at or since, reverse=True)

    def drop_upload(self, file_id: str) -> bool:
        """Delete an uploaded payload; False where there was none."""
        return self._http.request_json("DELETE", self.file_path(file_id), allow=self.missing).is_success

    def file(self, file_id: str) -> dict[str, Any]:
        """Return a file object as the provider has it."""
        return fields.mapping(self._http.request_json("GET", self.file_path(file_id)).json)

    def size_of(self, file_id: str) -> int | None:
        """Return how many bytes a file has by its object, None where that does not say."""
        found = self.file_of(self.file(file_id))
        return None if found is None else found.size_bytes

    def download(self, file_id: str, path: Path) -> Download | None:
        """Stream a result file's bytes to `path`; None on 404 and 410, and where Google says that it may be gone."""
        return self._http.download(self.content_path(file_id), path)

    def peek(self, file_id: str, max_bytes: int) -> bytes | None:
        """Return the first bytes of what `download` gives; None where it gives None."""
        return self._http.peek(self.content_path(file_id), max_bytes)

    def check(self) -> str:
        """List one batch, or all where there are no pages, which is free, and return the scope that the key is of."""
        if not self.descriptor.list_page_size:
            return self.scope_of({}, self.list_page(None).batches)
        answer = self._http.request_json("GET", self.batches_path, params={self.size_name: 1})
        return self.scope_of(answer.headers, ())


class FilesClient(BatchClient):
    """The client of a batch API of the files kind.

    `already_there` are the statuses of an upload whose content the provider has; the answer names the file.
    `ended_at` are the members with the time at which a batch came to its state, `key_chars` bound a name of metadata.
    """

    members: Mapping[str, str] = base.table("shared", "batch")
    file_members = base.table("shared", "file")
    states = base.by_word("shared", "states", BatchState)

    upload_path = "/files"
    key_chars = 64
    already_there: frozenset[int] = frozenset()
    ended_at: Mapping[BatchState, str] = MappingProxyType({one: f"{one}_at" for one in BatchState if one.is_terminal})

    def files_page(self, cursor: str | None) -> Page:
        """Return one page of the account's files for batches, newest first, or all where there are no pages."""
        if not self.descriptor.list_page_size:
            return Page(self.all_of(self.files_path), None)
        params: dict[str, str | int] = {"purpose": "batch", self.size_name: _FILES_PER_PAGE, "order": "desc"}
        return page_by_last_id(self._http, self.files_path, params, cursor, self.cursor_name)

    def form(self, filename: str) -> dict[str, str]:  # noqa: ARG002  # some name the file again
        """Return the members of an upload's form beside the file."""
        return {"purpose": "batch"}

    @classmethod
    def errors_of(cls, found: Mapping[str, Any]) -> tuple[BatchError, ...]:
        """Return why a batch failed."""
        value = found.get("errors")
        rows = value if isinstance(value, list) else fields.mapping(value).get("data")
        return tuple(
            BatchError(
                fields.word(row.get("code")),
                redact(fields.text(row.get("message")) or ""),
                fields.count(row.get("line")),
            )
            for row in map(fields.mapping, fields.sequence(rows, _ERRORS_MAX))
            if row
        )

    def upload(self, path: Path, filename: str) -> RemoteFile:
        """Upload a payload for batch use; safe to repeat, since files cost nothing."""
        answer = self._http.upload_multipart(
            self.upload_path, path, filename, self.form(filename), allow=self.already_there
        )
        found = self.file_of(answer.json)
        if not answer.is_success:
            known = fields.identifier(fields.mapping(answer.json).get("file_id"))
            found = None if known is None else self.file_of(self.file(known))
        if found is None:
            raise ProviderError(f"{self.host} took the upload of {filename} but answered without a file id")
        return found

    def order(self, spec: model.CreateSpec) -> Order:
        """Return a batch of an uploaded file, with its token in the metadata where the provider keeps them."""
        payload = {"input_file_id": spec.input_file_id, "endpoint": spec.endpoint, "completion_window": "24h"}
        metadata = {"metadata": self.metadata_of(spec)} if self.descriptor.has_token else {}
        return Order(self.batches_path, payload | metadata)

    def metadata_of(self, spec: model.CreateSpec) -> dict[str, str]:
        """Return the metadata within the provider's bounds, the token first so that it is never cut off."""
        key = next((key for key, value in spec.metadata if value == spec.token), TOKEN_KEY)
        pairs = {key[: self.key_chars]: spec.token}
        for name, value in spec.metadata:
            if len(pairs) < _PAIRS_MAX:
                pairs.setdefault(name[: self.key_chars], value[:_VALUE_CHARS])
        return pairs

    @classmethod
    def more_of(cls, found: dict[str, Any], batch: RemoteBatch) -> RemoteBatch:
        """Return a batch with its end, its token and its errors."""
        ended_at = fields.moment(found.get(cls.ended_at.get(batch.state, "")))
        token = own_token(*fields.mapping(found.get("metadata")).values())
        return replace(batch, ended_at=ended_at, token=token, errors=cls.errors_of(found))


def own_token(*marks: object) -> str | None:
    """Return the first of the texts on a batch that is a token of ours."""
    return next((text for text in map(fields.text, marks) if text and text.startswith(f"{ids.TOKEN_PREFIX}-")), None)


def _is_before(file: RemoteFile, since: datetime) -> bool:
    """Return whether a file was made before a time, by its provider's clock and an hour at least."""
    return file.created_at is not None and file.created_at < since - _CLOCK_SKEW


def every_page(page: Callable[[str | None], Page], too_many: str) -> Iterator[list[Any]]:
    """Yield the rows of each page from the first on; raises ProviderError, which says so, for a list without an end."""
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        rows, cursor, _ = page(cursor)
        yield rows
        if cursor is None:
            return
    raise ProviderError(too_many)


def page_by_last_id(
    http: HttpClient, path: str, params: Mapping[str, str | int], cursor: str | None, cursor_name: str
) -> Page:
    """Return a page's rows and the next page's cursor, None on the last; `params` has the `limit`.

    For listings of `{data, has_more, last_id}`. A full page is never taken for the last, whatever it
    says: a short or an empty one must follow. Raises ProviderError when the listing does not go
    on as it says: an incomplete list must never look like a complete one.
    """
    asked = params if cursor is None else {**params, cursor_name: cursor}
    answer = http.request_json("GET", path, params=asked)
    page, rows = answer.json, answer.json.get("data")
    if not isinstance(rows, list):
        raise ProviderError(f"GET {path} at {http.host} answered without a list")
    has_more = page.get("has_more")
    if "has_more" not in page:
        has_more = len(rows) >= int(params["limit"])
    if (not has_more or has_more == "false") and len(rows) != int(params["limit"]):
        return Page(rows, None, answer.headers)
    last = fields.mapping(rows[-1]).get("id") if rows else None
    next_cursor = fields.identifier(page.get("last_id")) or fields.identifier(last)
    if next_cursor is None or next_cursor == cursor:
        raise ProviderError(f"GET {path} at {http.host} does not go on after a page that cannot be the last")
    return Page(rows, next_cursor, answer.headers)


def page_by_token(
    http: HttpClient,
    path: str,
    params: Mapping[str, str | int],
    cursor: str | None,
    member: str,
    names: tuple[str, str] = ("pageToken", "nextPageToken"),
) -> Page:
    """Return a page's rows and the next page's cursor, None on the last.

    For listings of `{<member>, <token>}`, such as Google's and xAI's, where a page without rows lacks the member;
    `names` are what a token is asked by, and called. Raises ProviderError when the listing does not go on as it says.
    """
    asked = params if cursor is None else {**params, names[0]: cursor}
    page = http.request_json("GET", path, params=asked).json
    rows = page.get(member, [])
    if not isinstance(rows, list) or "error" in page:
        raise ProviderError(f"GET {path} at {http.host} answered without a list")
    next_cursor = page.get(names[1]) or None
    if next_cursor is not None and (not isinstance(next_cursor, str) or next_cursor == cursor):
        raise ProviderError(f"GET {path} at {http.host} says that there is more, but its list does not go on")
    return Page(rows, next_cursor)


def page_by_number(
    http: HttpClient, path: str, params: Mapping[str, str], cursor: str | None, *, has_total: bool = True
) -> Page:
    """Return a page's rows and the next page's cursor, None on the last.

    For listings of `{data, total}` whose pages are numbers from 0 on. Raises ProviderError where the rows are not as
    many as the total says, or the total has become smaller: what was deleted meanwhile moves another row to a page that
    was read before. Without a total a full page is never taken for the last.
    """
    number, before = (int(part) for part in (cursor or "0:0").split(":"))
    asked: dict[str, str | int] = {**params, "page": number, "page_size": _NUMBERED_SIZE}
    page = http.request_json("GET", path, params=asked).json
    rows = page.get("data")
    total = fields.count(page.get("total")) if has_total else None
    if not isinstance(rows, list) or (has_total and total is None):
        raise ProviderError(f"GET {path} at {http.host} answered without a list, or a total of it")
    n_left = (total or 0) - number * _NUMBERED_SIZE
    if total is not None and (total < before or len(rows) != max(0, min(n_left, _NUMBERED_SIZE))):
        raise ProviderError(f"GET {path} at {http.host} does not go on as its total says, or changed meanwhile")
    has_more = len(rows) >= _NUMBERED_SIZE if total is None else n_left > _NUMBERED_SIZE
    return Page(rows, f"{number + 1}:{total or 0}" if has_more else None)
