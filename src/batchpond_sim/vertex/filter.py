"""The filters of a Vertex AI job listing: comparisons joined by AND, as far as they are documented."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from batchpond_sim.shared.pages import PageError

_TERM = re.compile(r'(labels\.[\w-]+|display_name|state|create_time)(:\*|!=|<=|>=|=|<|>|:)("[^"]*"|[^\s"]*)')
_FIELDS = {"display_name": "displayName", "state": "state", "create_time": "createTime"}


def is_shown(view: Mapping[str, Any], text: str) -> bool:
    """Return whether a filter lets a job through; raises PageError for one that cannot be read."""
    return all(_holds(view, term.strip()) for term in re.split(r"\s+AND\s+", text.strip()) if term)


def _holds(view: Mapping[str, Any], term: str) -> bool:
    match = _TERM.fullmatch(term)
    if match is None:
        raise PageError(400, f"Invalid filter: {term}", "filter")
    name, operator, value = match[1], match[2], match[3].strip('"')
    if name.startswith("labels."):
        found = view.get("labels", {}).get(name.removeprefix("labels."))
    else:
        found = view.get(_FIELDS[name])
    match operator:
        case ":*":
            return found is not None
        case ":":
            return fnmatchcase(found or "", value)
        case "=":
            return bool(found == value)
        case "!=":
            return bool(found != value)
        case _:
            return _compares(str(found), operator, value)


def _compares(found: str, operator: str, value: str) -> bool:
    # RFC 3339 in UTC: without their zone, the texts sort as the times do.
    one, two = found.rstrip("Z"), value.rstrip("Z")
    return {"<": one < two, "<=": one <= two, ">": one > two, ">=": one >= two}[operator]
