"""Cursor paging as OpenAI does it, and the ways in which it can go wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from batchpond.simulators.faults import Stage, Value
from batchpond.simulators.world import Call


class PageError(ValueError):
    """A page that cannot be shown."""

    def __init__(self, status: int, message: str, param: str | None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param


@dataclass(frozen=True, slots=True)
class Page:
    """The ids of one page."""

    ids: tuple[str, ...]
    has_more: bool

    def body(self, data: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the list object around the shown objects."""
        first, last = (self.ids[0], self.ids[-1]) if self.ids else (None, None)
        return {"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": self.has_more}


def page_of(ids: Sequence[str], query: Mapping[str, str], call: Call, *, default: int, most: int) -> Page:
    """Return the page that a query's `after` and `limit` ask for; raises PageError for bad ones."""
    faults: dict[str, Value] = {fault.kind: fault.value for fault in call.at(Stage.VIEW)}
    limit = _limit(query.get("limit"), default, most)
    start = 0
    after = query.get("after")
    if after and "cursor_loop" not in faults:
        if after not in ids:
            raise PageError(400, f"Invalid 'after': no object with id '{after}'.", "after")
        start = ids.index(after) + 1
    if faults.get("list_error_page") == 1 + -(-start // limit):
        raise PageError(500, "The server had an error while processing your request. Sorry about that!", None)
    shown = tuple(ids[start : start + limit])
    has_more = start + limit < len(ids)
    if "empty_page" in faults:
        return Page((), True)
    if "cursor_loop" in faults:
        return Page(shown, True)
    if "has_more_lies" in faults:
        has_more = str(faults["has_more_lies"]).lower() == "true"
    return Page(shown, has_more)


def _limit(text: str | None, default: int, most: int) -> int:
    if text is None:
        return default
    if not text.isdigit() or not 1 <= int(text) <= most:
        raise PageError(400, f"Invalid 'limit': expected an integer from 1 to {most}, but got '{text[:20]}'.", "limit")
    return int(text)
