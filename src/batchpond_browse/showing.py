"""How values are shown: templates that escape every text, numbers for people, and links between pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from math import floor, log10
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from batchpond.text import escape, plural, usd

HTML: Final = Path(__file__).with_name("html")
STATIC: Final = Path(__file__).with_name("static")
# Groups of outcomes, as the filter `state` has them, by which a word is coloured; it is always written out too.
_GROUPS: Final = {
    "refusals": ("refused", "blocked"),
    "unread": ("unparsed", "ambiguous", "truncated", "empty", "unsure", "not_applicable", "undecided", "one order"),
    "errors": ("error", "expired", "cancelled", "missing", "failed"),
    "open": ("planned", "outstanding", "unknown", "pending"),
}
_GROUP_OF: Final = {word: group for group, words in _GROUPS.items() for word in words}
Links = Callable[..., str]


def address(page: str, given: Mapping[str, Any] | None = None, /, **more: Any) -> str:
    """Return the address of a page of the server with its parameters, those without a value left out."""
    given = {"study": None, **(given or {}), **more}
    found = {name: value for name, value in given.items() if value not in (None, "")}
    return f"/{page}" + (f"?{urlencode(found)}" if found else "")


def environment(links: Links, *, is_bundle: bool) -> Environment:
    """Return the templates; `links` says where a page with some parameters is, or "" where there is none."""
    found = Environment(
        loader=FileSystemLoader(HTML), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        finalize=_inert,
    )  # fmt: skip
    found.globals |= {"link": links, "is_bundle": is_bundle, "plural": plural, "has_report": False}
    found.filters |= {"n": number, "usd": money, "group": group}
    return found


def _inert(value: Any) -> Any:
    """Return what is printed for a value: nothing for none, and no character that a page would obey."""
    if value is None:
        return ""
    if isinstance(value, str) and not isinstance(value, Markup):
        return escape(value.replace("\r\n", "\n").replace("\t", "    "), keep_newlines=True)
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S UTC")
    return value


def number(value: float | None) -> str:
    """Return a number with its thousands apart; nothing for none."""
    return "" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def money(value: float | None) -> str:
    """Return a cost, a small one with its first two digits; nothing where none is known."""
    if value is None:
        return ""
    return usd(value) if not 0 < value < 0.0001 else f"${value:.{1 - floor(log10(value))}f}"


def group(word: str | None) -> str:
    """Return the group of a word for an outcome or a standing, which says its colour."""
    return _GROUP_OF.get(word or "", (word or "none").replace(" ", "-"))
