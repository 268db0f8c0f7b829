"""The report as Markdown: the same chapters and tables, without drawings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count

from batchpond.results.report import tables
from batchpond.results.report.parts import Case, Cases, Exhibit, Facts, Report
from batchpond.results.report.tables import table
from batchpond.text import escape

_SPECIAL = re.compile(r"([\\`*_\[\]#|~!])")
_FENCE = re.compile(r"`{3,}")


def render(report: Report) -> str:
    """Return the whole report; nothing in a name or an answer acts as markup."""
    return "\n".join(_lines(report)).rstrip() + "\n"


def _lines(report: Report) -> Iterator[str]:
    numbers = count(1)
    yield f"# {plain(report.title)}\n"
    yield from (f"{plain(sentence)}\n" for sentence in (*report.summary, *report.notes))
    if report.findings():
        yield "## Findings\n"
        yield from _findings(report)
    for section in report.sections:
        yield f"## {plain(section.title)}\n"
        yield from (f"{plain(paragraph)}\n" for paragraph in section.paragraphs)
        for part in section.parts:
            match part:
                case Exhibit():
                    yield from _exhibit(part, next(numbers))
                case Facts():
                    yield from _facts(part)
                case Cases():
                    yield from _cases(part)


def _findings(report: Report) -> Iterator[str]:
    """Yield what was found, each with the table that shows it and a link to its section."""
    numbers = {exhibit.key: number for number, exhibit in enumerate(report.exhibits(), 1)}
    for finding, section in report.findings():
        heading = re.sub(r"[^\w -]", "", section.title.lower()).replace(" ", "-")
        yield f"- {plain(finding.text)} [Table {numbers[finding.key]}](#{heading})"
    yield ""


def _exhibit(exhibit: Exhibit, number: int) -> Iterator[str]:
    yield f"**Table {number}. {plain(exhibit.title)}.** {plain(exhibit.caption)}\n"
    printed = table(exhibit)
    yield _row([head.text for head in printed.heads])
    yield "|" + "|".join(" ---: " if head.is_number else " --- " for head in printed.heads) + "|"
    yield from (_row([cell.text for cell in row]) for row in printed.rows)
    yield ""
    if printed.is_cut:
        yield f"The table holds the first {len(printed.rows):,} rows. A command prints all of them:\n"
    if printed.is_cut or not exhibit.sql:
        yield from _fenced(tables.command(exhibit), "sh")
    if exhibit.sql:
        yield from _fenced(exhibit.sql, "sql")


def _facts(facts: Facts) -> Iterator[str]:
    yield f"| {plain(facts.title)} | |"
    yield "| --- | --- |"
    yield from (_row(row) for row in facts.rows)
    yield ""


def _cases(cases: Cases) -> Iterator[str]:
    yield f"**{plain(cases.title)}.** {plain(cases.caption)}\n"
    for case in cases.cases:
        yield from _case(case)
    yield from _fenced(cases.sql, "sql")


def _case(case: Case) -> Iterator[str]:
    yield f"### {plain(case.title)}\n"
    for passage in (*case.sides, *case.background):
        yield f"{plain(passage.title)}:\n"
        rest = f"\n[{passage.n_left_out:,} more characters]" if passage.n_left_out else ""
        yield from _fenced(passage.text + rest, "text")


def _row(texts: tuple[str, ...] | list[str]) -> str:
    return "| " + " | ".join(plain(text) for text in texts) + " |"


def plain(text: str) -> str:
    """Return a text on one line that Markdown shows as it is."""
    return _SPECIAL.sub(r"\\\1", escape(text)).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _fenced(text: str, language: str) -> Iterator[str]:
    longest = max((len(found) for found in _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    yield f"{fence}{language}"
    yield text
    yield f"{fence}\n"
