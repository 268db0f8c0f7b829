"""Exhibits as printed cells, the same for the page and for Markdown; the report, or its methods alone, as Markdown."""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import polars as pl

from batchpond.text import defused, escape
from batchpond.views import refresh
from batchpond.views.refresh import Script
from batchpond_report.numbers import Kind, interval, shown
from batchpond_report.parts import Cases, Column, Exhibit, Facts, Report, Section

TABLE_ROWS_MAX: Final = 200
INTERVAL_TITLE: Final = "95 % interval"


@dataclass(frozen=True, slots=True)
class Cell:
    """A printed value, or a head; numbers stand to the right."""

    text: str
    is_number: bool = False


@dataclass(frozen=True, slots=True)
class Printed:
    """A table ready to be set; the first `n_names` columns say what a row is. `is_cut`: there are more rows."""

    heads: Sequence[Cell]
    rows: Sequence[Sequence[Cell]]
    n_names: int
    is_cut: bool


def table(exhibit: Exhibit) -> Printed:
    """Return an exhibit's table as text."""
    heads = [cell for column in exhibit.columns for cell in _heads(column)]
    shown_rows = exhibit.frame.head(TABLE_ROWS_MAX).to_dicts()
    rows = [[cell for column in exhibit.columns for cell in _cells(column, row)] for row in shown_rows]
    n_names = next(
        (n for n, column in enumerate(exhibit.columns) if column.kind is not Kind.TEXT), len(exhibit.columns)
    )
    return Printed(heads, rows, n_names, is_cut=exhibit.is_cut or len(exhibit.frame) > TABLE_ROWS_MAX)


def _heads(column: Column) -> Iterator[Cell]:
    is_number = column.kind is not Kind.TEXT
    yield Cell(column.title, is_number)
    if column.has_ends:
        yield Cell(INTERVAL_TITLE, is_number)


def _cells(column: Column, row: dict[str, Any]) -> Iterator[Cell]:
    is_number = column.kind is not Kind.TEXT
    yield Cell(shown(row[column.name], column.kind), is_number)
    if column.has_ends:
        low, high = (row[name] for name in column.ends)
        yield Cell(interval(low, high, column.kind), is_number)


def csv_link(frame: pl.DataFrame) -> str:
    """Return a `data:` address that holds the rows as CSV; text that a spreadsheet would run gets a ' before it."""
    return "data:text/csv;charset=utf-8;base64," + base64.b64encode(csv_text(frame).encode()).decode("ascii")


def csv_text(frame: pl.DataFrame) -> str:
    """Return rows as CSV, lists joined and formulas defused."""
    flat = frame.with_columns(
        *(pl.col(name).list.join(", ") for name, kind in frame.schema.items() if isinstance(kind, pl.List)),
    )
    texts = [name for name, kind in flat.schema.items() if kind == pl.String]
    return flat.with_columns(pl.col(name).map_elements(defused, return_dtype=pl.String) for name in texts).write_csv()


def command(exhibit: Exhibit) -> str:
    """Return the shell command that prints all rows of an exhibit."""
    return exhibit.command or f"batchpond query {shlex.quote(exhibit.sql)} --format csv"


_SPECIAL = re.compile(r"([\\`*_\[\]#|~!$])")
_FENCE = re.compile(r"`{3,}")


def render(report: Report) -> str:
    """Return the whole report; nothing in a name or an answer acts as markup."""
    return "\n".join(_lines(report)).rstrip() + "\n"


def _lines(report: Report) -> Iterator[str]:
    numbers = count(1)
    yield f"# {plain(report.title)}\n"
    yield from (f"{plain(sentence)}\n" for sentence in report.summary)
    if report.findings():
        yield "## Findings\n"
        yield from _findings(report)
    yield from (line for one in report.sections for line in section(one, numbers))


def section(one: Section, numbers: Iterator[int]) -> Iterator[str]:
    """Yield a section, its tables numbered on."""
    yield f"## {plain(one.title)}\n"
    yield from (f"{plain(paragraph)}\n" for paragraph in one.paragraphs)
    for part in one.parts:
        match part:
            case Exhibit():
                yield from _exhibit(part, next(numbers))
            case Facts():
                yield from _facts(part)
            case Cases():
                yield from _cases(part)
    yield from _fenced(one.listing, "bibtex") if one.listing else ()


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
        yield from _fenced(command(exhibit), "sh")
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
        yield f"### {plain(case.title)}\n"
        for passage in (*case.sides, *case.background):
            yield f"{plain(passage.title)}:\n"
            rest = f"\n[{passage.n_left_out:,} more characters]" if passage.n_left_out else ""
            shown = "".join(f"\n[{escape(name)}: in the page]" for name in passage.pictures)
            yield from _fenced(passage.text + rest + shown, "text")
    yield from _fenced(cases.sql, "sql")


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


def methods(report: Report) -> str:
    """Return a report's methods: what was claimed and when, then each estimator that it used, in its view's own words.

    Metrics first, and then what these are made of.
    """
    claims = [one for one in report.sections if one.key == "claims"]
    lines = [f"# {plain(report.study)}: methods\n", *(line for one in claims for line in section(one, count(1)))]
    words, scripts = used(report.exhibits())
    lines += [part for script in scripts if script.views for part in about(script, words)]
    unread = (one for one in report.exhibits() if not one.sql)
    lines += [f"## {plain(one.title)}\n\n{plain(one.caption)}\n\n    {one.command}\n" for one in unread]
    lines += [part for script in scripts if script.macros for part in about(script, {*script.macros})]
    return "\n".join([*lines, f"Fingerprint of the facts: {report.fingerprint}."]) + "\n"


def used(exhibits: Sequence[Exhibit]) -> tuple[set[str], list[Script]]:
    """Return the words of exhibits' queries, and the files that define what these name and read, with estimators."""
    words = {word for exhibit in exhibits for word in re.findall(r"\w+", exhibit.sql)}
    words -= set() if any(exhibit.key == "claims" for exhibit in exhibits) else {"report_claims"}
    definer = {name: script for script in refresh.scripts() for name in (*script.views, *script.macros)}
    found = refresh.reached(words, definer.get)  # the views that are named, and all that these read
    return words, [script for script in refresh.scripts() if script.name in found and "estimators" in script.header]


def about(script: Script, words: Set[str]) -> Iterator[str]:
    """Yield what a file's header says of itself; of its estimators those that define one of these words."""
    yield f"## {script.name}\n\n{script.header['question']}\n"
    lines = script.header["estimators"].splitlines()
    yield from (line for line in lines if words & set(re.findall(r"\w+", line.partition(":")[0])))
    yield ""
    said = (key for key in ("source", "reference", "note") if key in script.header)
    yield from (f"{key.title()}: {script.header[key]}\n" for key in said)
