"""What the wires of several providers share: ids in paths, scopes, cursors, rejections."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

from batchpond import fields
from batchpond.clock import Clock
from batchpond.errors import ProviderError
from batchpond.model import ErrorClass, Rejected, RemoteBatch, RemoteFile
from batchpond.providers.base import Descriptor
from batchpond.providers.http.client import HttpClient
from batchpond.providers.http.errors import Answer, ApiError
from batchpond.text import redact

_SCOPE_CHARS: Final = 100
_EMPTY_PAGES_MAX: Final = 10
_CLOCK_SKEW: Final = timedelta(hours=1)


class Wire:
    """What every wire has: one provider's descriptor, one key at one host, and a clock."""

    descriptor: Descriptor

    def __init__(self, http: HttpClient, clock: Clock) -> None:
        self._http = http
        self._clock = clock

    @property
    def host(self) -> str:
        """Return the host that the key is bound to."""
        return self._http.host

    @property
    def is_loopback(self) -> bool:
        """Whether the base URL is on this machine, that is, a simulator."""
        return self._http.is_loopback

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def find_batches(self, token: str) -> tuple[RemoteBatch, ...]:  # noqa: ARG002
        """Return nothing: most listings cannot be asked for a token."""
        return ()


def file_object(value: object) -> RemoteFile | None:
    """Return a file object `{id, filename, bytes, created_at}` made uniform, None when it has no id."""
    found = fields.mapping(value)
    file_id = fields.identifier(found.get("id"))
    if file_id is None:
        return None
    size_bytes, created_at = fields.count(found.get("bytes")), fields.moment(found.get("created_at"))
    return RemoteFile(file_id, fields.text(found.get("filename")) or "", size_bytes, created_at)


def is_before(file: RemoteFile, since: datetime) -> bool:
    """Return whether a file was made before a time, by its provider's clock and an hour at least."""
    return file.created_at is not None and file.created_at < since - _CLOCK_SKEW


def segment(identifier: str) -> str:
    """Return an id as one segment of a path; raises ProviderError for what would address something else."""
    if not identifier or set(identifier) <= {"."}:
        raise ProviderError(f"{identifier!r} is not an id")
    return quote(identifier, safe="")


def scope(provider: str, host: str, headers: Mapping[str, str], names: tuple[str, ...]) -> str:
    """Return `provider/host/...`: which account an answer came from, by the headers that say so."""
    parts = (re.sub(r"[^\w.-]", "_", headers.get(name, "").strip())[:_SCOPE_CHARS] or "-" for name in names)
    return "/".join((provider, host, *parts))


def page_by_last_id(
    http: HttpClient, path: str, params: dict[str, str | int], cursor: str | None, cursor_name: str
) -> tuple[list[Any], str | None]:
    """Return a page's rows and the next page's cursor, None on the last; `params` has the `limit`.

    For listings of `{data, has_more, last_id}`. A full page is never taken for the last, whatever it
    says: a short or an empty one must follow. Raises ProviderError when the listing does not go
    on as it says: an incomplete list must never look like a complete one.
    """
    asked = params if cursor is None else {**params, cursor_name: cursor}
    page = http.request_json("GET", path, params=asked).json
    rows = page.get("data")
    if not isinstance(rows, list):
        raise ProviderError(f"GET {path} at {http.host} answered without a list")
    has_more = page.get("has_more")
    if "has_more" not in page:
        has_more = len(rows) >= int(params["limit"])
    if (not has_more or has_more == "false") and len(rows) != int(params["limit"]):
        return rows, None
    last = fields.mapping(rows[-1]).get("id") if rows else None
    next_cursor = fields.identifier(page.get("last_id")) or fields.identifier(last)
    if next_cursor is None or next_cursor == cursor:
        raise ProviderError(f"GET {path} at {http.host} does not go on after a page that cannot be the last")
    return rows, next_cursor


def page_by_token(
    http: HttpClient, path: str, params: Mapping[str, str | int], cursor: str | None, member: str
) -> tuple[list[Any], str | None]:
    """Return a page's rows and the next page's cursor, None on the last.

    For Google's listings of `{<member>, nextPageToken}`, where a page without rows lacks the member. Raises
    ProviderError when the listing does not go on as it says.
    """
    asked = params if cursor is None else {**params, "pageToken": cursor}
    page = http.request_json("GET", path, params=asked).json
    rows = page.get(member, [])
    if not isinstance(rows, list) or "error" in page:
        raise ProviderError(f"GET {path} at {http.host} answered without a list")
    next_cursor = page.get("nextPageToken") or None
    if next_cursor is not None and (not isinstance(next_cursor, str) or next_cursor == cursor):
        raise ProviderError(f"GET {path} at {http.host} says that there is more, but its list does not go on")
    return rows, next_cursor


def filled_page_by_token(
    http: HttpClient, path: str, params: Mapping[str, str | int], cursor: str | None, member: str
) -> tuple[list[Any], str | None]:
    """Return a page as `page_by_token` does, and go on past a few pages that hold nothing."""
    rows: list[Any] = []
    for _ in range(_EMPTY_PAGES_MAX):
        rows, cursor = page_by_token(http, path, params, cursor, member)
        if rows or cursor is None:
            break
    return rows, cursor


def rejection(answer: Answer, error_class: ErrorClass, now: datetime, error: ApiError | None = None) -> Rejected:
    """Return a definite no, in the provider's words and with the wait that it asks for."""
    error = error or answer.error or ApiError(answer.excerpt())
    return Rejected(error_class, error.code, redact(error.message), answer.status_code, answer.retry_after_s(now))
