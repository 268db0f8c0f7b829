"""One page of a listing, and the ways in which it can go wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from batchpond_sim.faults.faults import Stage, Value
from batchpond_sim.world.world import Call


class PageError(ValueError):
    """A page that cannot be shown; `param` is the query parameter to blame."""

    def __init__(self, status: int, message: str, param: str | None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param


@dataclass(frozen=True, slots=True)
class Page:
    """The ids of one page, and what comes after the last of them."""

    ids: tuple[str, ...]
    has_more: bool

    def body(self, data: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the shown objects with first and last id, as OpenAI and Anthropic answer."""
        first, last = (self.ids[0], self.ids[-1]) if self.ids else (None, None)
        return {"data": data, "first_id": first, "last_id": last, "has_more": self.has_more}


def page_at(ids: Sequence[str], start: int, limit: int, call: Call) -> Page:
    """Return up to `limit` ids from `start` on, or what the call's faults make of them.

    Raises PageError of status 500 where a fault asks for it.
    """
    faults: dict[str, Value] = {fault.kind: fault.value for fault in call.at(Stage.VIEW)}
    if "cursor_loop" in faults:
        start = 0
    if faults.get("list_error_page") == 1 + -(-start // limit):
        raise PageError(500, "the listing failed", None)
    shown = tuple(ids[start : start + limit])
    if "empty_page" in faults:
        return Page((), True)
    if "cursor_loop" in faults:
        return Page(shown, True)
    if "has_more_lies" in faults:
        return Page(shown, str(faults["has_more_lies"]).lower() == "true")
    return Page(shown, start + limit < len(ids))


def is_looping(call: Call) -> bool:
    """Return whether the cursor of this call is to be ignored."""
    return call.has(Stage.VIEW, "cursor_loop")
