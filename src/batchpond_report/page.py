"""The report as one HTML page: no script, no request, nothing in a name or an answer that acts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from batchpond.clock import Work
from batchpond_report import drawing, markdown, palette
from batchpond_report.markdown import table
from batchpond_report.numbers import Kind
from batchpond_report.parts import Exhibit, Figure, Report
from batchpond_report.reading import undrawn_rows

FOLDER: Final = Path(__file__).parent / "html"
_JUDGE: Final = ("provider", "request_model", "thinking")
_PAIRS: Final = "pair"  # what several tasks ask about
_TOGETHER: Final = ("panel", "jury")  # providers of what several judges hold together
_NUMBER: Final = re.compile(
    r"(?<![\w.\-/#])[-+\u2212]?\d+(?:[.,]\d+)*(?:\u202f%| \u00d7 10\u207b?[⁰¹²³⁴⁵⁶⁷⁸⁹]+)?(?![\w\-/])"
)


LinkTo = Callable[[Mapping[str, str]], str]
"""Returns the address of the judgments of a study that a filter lets through, by the names of its values."""


def render(report: Report, link_to: LinkTo | None = None) -> str:
    """Return the whole page; with `link_to`, findings and rows of tables lead to their judgments, heads to all."""
    names = _names(report)
    with Work("drawing", "figures", len(report.figures())) as work:
        return _environment(work).get_template("report.html.j2").render(
            report=report,
            back="" if link_to is None else link_to({}),
            links=lambda exhibit: [] if link_to is None else _behind(link_to, exhibit),
            judged=lambda finding: "" if link_to is None else _link(link_to, finding.row) or link_to({}),
            names=names,
            numbered=numbered,
            anchor=lambda key: f"{key}-{'figure' if names[key].startswith('Figure') else 'table'}",
            queries=_queries(report, names),
            figure_css=Markup(palette.page_css()),  # noqa: S704 - made of our own colours alone
        )  # fmt: skip


def _environment(work: Work) -> Environment:
    def drawn(figure: Figure) -> Markup:
        work.add()
        # The drawing holds only shapes and escaped texts: `drawing` raises for anything else.
        return Markup(drawing.figure_html(figure))  # noqa: S704

    environment = Environment(
        loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=False,
    )  # fmt: skip
    environment.globals |= {
        "kind_of": lambda part: type(part).__name__.lower(), "table": table, "csv_link": markdown.csv_link,
        "command": markdown.command, "drawing": drawn, "undrawn": undrawn_rows,
    }  # fmt: skip
    return environment


def _behind(link_to: LinkTo, exhibit: Exhibit) -> list[list[str]]:
    """Return where each printed cell of a table leads: the first, and each number, to the judgments behind it."""
    return [
        [
            _link(link_to, row, column.to) if not (is_interval or (number and column.kind is Kind.TEXT)) else ""
            for number, column in enumerate(exhibit.columns) for is_interval in (False, True)[: 1 + column.has_ends]
        ]
        for row in exhibit.frame.head(markdown.TABLE_ROWS_MAX).to_dicts()
    ]  # fmt: skip


def _link(link_to: LinkTo, row: Mapping[str, Any], narrowed: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return where the judgments are that a row is made of, as far as it tells them from the study's others.

    A name with characters that were made visible is nobody's name any more, and leads nowhere, as does no name at all.
    """
    named = {name: row.get(f"{name}_id") for name in ("template", "rubric", "unit")}
    named |= {"candidate": row.get("candidate"), row.get("item_kind") or "item": row.get("item")}
    if row.get("task") != _PAIRS:
        named["task"] = row.get("task")
    if {*_JUDGE} <= row.keys() and row["provider"] not in _TOGETHER:
        named["judge"] = "/".join(row[name] for name in _JUDGE if row[name])
    known = {name: value for name, value in named.items() if value}
    return "" if not known or any("\\" in value for value in known.values()) else link_to({**known, **narrowed})


def numbered(text: str, address: str) -> Markup:
    """Return a sentence each number of which leads to an address; digits of names lead nowhere."""
    link = f'<a class="number" href="{escape(address)}">'
    return Markup(_NUMBER.sub(lambda number: f"{link}{number[0]}</a>", escape(text)))  # noqa: S704


def _names(report: Report) -> dict[str, str]:
    """Return what each exhibit is called: figures and tables are counted apart."""
    names: dict[str, str] = {}
    counts = {"Figure": 0, "Table": 0}
    for exhibit in report.exhibits():
        word = "Table" if exhibit.figure is None else "Figure"
        counts[word] += 1
        names[exhibit.key] = f"{word} {counts[word]}"
    return names


def _queries(report: Report, names: dict[str, str]) -> dict[str, str]:
    """Return for each exhibit which earlier one has the same query, or nothing."""
    first: dict[str, str] = {}
    found: dict[str, str] = {}
    for exhibit in report.exhibits():
        found[exhibit.key] = first.get(exhibit.sql, "") if exhibit.sql else ""
        first.setdefault(exhibit.sql, names[exhibit.key])
    return found
