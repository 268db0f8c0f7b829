"""The pages: what each shows, made of what the lake was asked, and how values are printed, every text escaped.

The server and the bundle print the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import floor, log10
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from batchpond.errors import UsageError
from batchpond.interop.labels import CARD
from batchpond.text import did_you_mean, escape, plural, usd
from batchpond_browse import cases, lists
from batchpond_browse.asking import Lake, Query, query
from batchpond_browse.spool import Spool

HTML: Final = Path(__file__).with_name("html")
STATIC: Final = Path(__file__).with_name("static")
# Groups of outcomes, as the filter `state` has them, by which a word is coloured; it is always written out too.
_GROUPS: Final = {
    "refusals": ("refused", "blocked"),
    "unread": ("unparsed", "ambiguous", "truncated", "empty", "undecided", "one order"),
    "unsure": ("unsure", "not_applicable"),
    "errors": ("error", "expired", "cancelled", "missing", "failed"),
    "open": ("planned", "outstanding", "unknown", "pending"),
}
_GROUP_OF: Final = {word: group for group, words in _GROUPS.items() for word in words}
Links = Callable[..., str]
LISTS: Final = {"pairs": "Pairs", "items": "Items", "rows": "Judgments"}
GENERATION: Final = "generation"  # its answers are judged by other tasks


@dataclass(frozen=True, slots=True)
class Reader:
    """Who looks: the name that labels are given under, and whether what judges said is hidden until then."""

    rater: str = ""
    is_blind: bool = False


@dataclass(frozen=True)
class Pages:
    """Prints pages of one lake; `spool` takes labels, and is None where none can be given."""

    lake: Lake
    templates: Environment
    spool: Spool | None = None
    study_alone: str | None = None

    def page(self, reader: Reader, name: str, given: Mapping[str, str]) -> str:
        """Return a page by its name in an address, and what stands behind that; raises UsageError without a study."""
        asked, study = {key: value for key, value in given.items() if key != "study"}, given.get("study", "")
        if not name:
            return self.studies(reader)
        if not study:
            raise UsageError("the address names no study", hint="the first page lists them")
        match name:
            case "study":
                return self.study(reader, study)
            case "case":
                return self.case(reader, study, asked)
            case "row":
                return self.row(reader, study, given.get("row", ""))
            case _:
                return self.listed(reader, name, study, asked)

    def studies(self, reader: Reader) -> str:
        """Return the page of all studies."""
        asked = query("studies", {})
        found = [row for row in self.lake.rows(asked) if self.study_alone in {None, row["study"]}]
        return self._page("studies", reader, [asked], studies=found, study="", title="Studies")

    def study(self, reader: Reader, study: str) -> str:
        """Return a study's page: its cells, and what became of what each asked."""
        asked = query("cells", {"study": study})
        self.facets(study)  # raises where there is none
        cells = self.lake.rows(asked)
        names = [name for name in cells[0] if name.startswith("n") or name.endswith("cost_usd")]
        known = {name: [cell[name] for cell in cells if cell[name] is not None] for name in names}
        totals = {name: sum(values) if values else None for name, values in known.items()}
        return self._page("study", reader, [asked], study=study, title=study, cells=cells, totals=totals)

    def listed(self, reader: Reader, kind: str, study: str, given: Mapping[str, str]) -> str:
        """Return a page of a list."""
        found = lists.page(self.lake, lists.Wish(kind, study, given))
        return self._page(
            "list", reader, [found.asked], study=study, title=f"{LISTS[kind]} of {study}", kind=kind, given=given,
            page=found, names_of=cases.names_of, filters=lists.filter_names(kind),
            about=lists.kinds()[kind],
        )  # fmt: skip

    def facets(self, study: str) -> dict[str, list[str]]:
        """Return what the filters of a study offer."""
        rows = self.lake.rows(query("facets", {"study": study}))
        if not rows:
            known = [row["study"] for row in self.lake.rows(query("studies", {}))]
            raise UsageError(f"the lake holds no study {study!r}", hint=did_you_mean(study, known, "see page `/`"))
        names = {"task": "task", "template": "template_id", "rubric": "rubric_id", "judge": "judge"}
        return {name: sorted({row[column] for row in rows} - {None}) for name, column in names.items()}

    def case(self, reader: Reader, study: str, given: Mapping[str, str]) -> str:
        """Return the page of a pair or an item."""
        found = cases.case(self.lake, study, given, is_whole=self.spool is None)
        sheet = None if self.spool is None else self.spool.sheet(found, reader.rater)
        is_hidden = reader.is_blind and not (sheet and sheet.label)
        # Which text a blind reader sees first is a matter of lot, which the key's last letter tells.
        is_lo_first = not (reader.is_blind and found.is_pair and int(found.unit_key[-1], 16) % 2)
        title = "To label" if is_hidden else " and ".join(side for side, _ in found.texts)
        return self._page(
            "case", reader, [found.asked], study=study, title=title, case=found, sheet=sheet, is_hidden=is_hidden,
            texts=found.texts if is_lo_first else found.texts[::-1], key_letter="a" if is_lo_first else "b",
        )  # fmt: skip

    def row(self, reader: Reader, study: str, key: str) -> str:
        """Return the page of one judgment."""
        found = cases.judgment(self.lake, study, key)
        return self._page(
            "row", reader, [found.asked], study=study, title=f"Judgment {key}", judgment=found, row=found.row,
            case_names=cases.names_of(found.row),
        )  # fmt: skip

    def problem(self, reader: Reader, message: str, hint: str) -> str:
        """Return a page that says what cannot be shown, and what to do."""
        return self._page("problem", reader, [], study="", title="Not shown", message=message, hint=hint)

    def _page(self, name: str, reader: Reader, asked: list[Query], **shown: Any) -> str:
        n_waiting = 0 if self.spool is None else len(self.spool.waiting())
        facets = self.facets(shown["study"]) if shown["study"] else {}
        are_pairs = [task in cases.PAIR_TASKS for task in facets.get("task", []) if task != GENERATION]
        tabs = {name: words for name, words in LISTS.items() if name == "rows" or (name == "pairs") in are_pairs}
        return self.templates.get_template(f"{name}.html.j2").render(
            page_name=name, reader=reader, has_labels=self.spool is not None, n_waiting=n_waiting, tabs=tabs,
            facets=facets, messages=cases.messages, queries=[one.shown() for one in asked], pulse=self.lake.pulse(),
            **shown,
        )  # fmt: skip


def address(page: str, given: Mapping[str, Any] | None = None, /, **more: Any) -> str:
    """Return the address of a page of the server with its parameters, those without a value left out."""
    given = {"study": None, **(given or {}), **more}
    found = {name: value for name, value in given.items() if value not in (None, "")}
    return f"/{page}" + (f"?{urlencode(found)}" if found else "")


def environment(links: Links, *, is_bundle: bool) -> Environment:
    """Return the templates; `links` says where a page with some parameters is, or "" where there is none."""
    found = Environment(
        loader=FileSystemLoader([HTML, CARD]), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=_inert,
    )  # fmt: skip
    found.globals |= {"link": links, "is_bundle": is_bundle, "plural": plural, "has_report": False}
    found.filters |= {"n": number, "usd": money, "group": group}
    return found


def _inert(value: Any) -> Any:
    """Return what is printed for a value: nothing for none, and no character that a page would obey."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return escape(value.replace("\r\n", "\n").replace("\t", "    "), keep_newlines=True)
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S UTC")
    return "" if value is None else value


def number(value: float | None) -> str:
    """Return a number with its thousands apart; nothing for none."""
    return "" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def money(value: float | None) -> str:
    """Return a cost, a small one with its first two digits; nothing where none is known."""
    is_small = value is not None and 0 < value < 0.0001
    return "" if value is None else f"${value:.{1 - floor(log10(value))}f}" if is_small else usd(value)


def group(word: str | None) -> str:
    """Return the group of a word for an outcome or a standing, which says its colour."""
    return _GROUP_OF.get(word or "", (word or "none").replace(" ", "-"))
