"""Listings of Google's kind: `pageSize` and `pageToken` in, `nextPageToken` out, members left out when empty."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from batchpond_sim.host.wire import Request
from batchpond_sim.shared.pages import Page, PageError, is_looping, page_at
from batchpond_sim.world.world import Call

_FIRST = "-"


@dataclass(frozen=True, slots=True)
class Paging:
    """How long a listing's pages are, and what the parameter is called that says so."""

    size_name: str
    size_default: int
    size_max: int


def page_of(ids: Sequence[str], request: Request, call: Call, paging: Paging) -> Page:
    """Return the page that a request asks for; raises PageError for a wrong size or token."""
    text = request.query.get(paging.size_name) or str(paging.size_default)
    if not text.isdigit():
        raise PageError(400, "page_size must not be negative", paging.size_name)
    start = 0
    token = request.query.get("pageToken")
    if token and not is_looping(call):
        start = _start_of(token, ids)
    return page_at(ids, start, min(int(text) or paging.size_default, paging.size_max), call)


def _start_of(token: str, ids: Sequence[str]) -> int:
    try:
        after = base64.urlsafe_b64decode(token.encode("ascii")).decode("utf-8")
    except (binascii.Error, UnicodeError):
        after = ""
    if after == _FIRST:
        return 0
    if after not in ids:
        raise PageError(400, "page_token is invalid", "pageToken")
    return ids.index(after) + 1


def listing_of(name: str, page: Page, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the body that shows a page."""
    body: dict[str, Any] = {name: rows} if rows else {}
    if page.has_more:
        last = page.ids[-1] if page.ids else _FIRST
        body["nextPageToken"] = base64.urlsafe_b64encode(last.encode("utf-8")).decode("ascii")
    return body
