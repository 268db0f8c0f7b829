"""Exhibits and sections as they are declared: query, table, figure and caption follow from one place.

The cells of a table are called by what tells them apart, and by nothing else. `sections/NAME.toml` declares a section's
exhibits, and code adds what only code can say.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import polars as pl

from batchpond.model import CELL_COLUMNS
from batchpond.text import plural
from batchpond_report.numbers import PPI, Kind, interval, left_out, ranged, sentences, shown, total
from batchpond_report.parts import (
    FIGURE_ROWS_MAX,
    PANELS_MAX,
    Cases,
    ChartKind,
    Column,
    Exhibit,
    Facts,
    Figure,
    Finding,
    Section,
    When,
    text,
)
from batchpond_report.source import ROWS_MAX, Rows, Source

JUDGE: Final = "judge"
LABEL: Final = "label"
GROUPS_MAX: Final = 6
TITLES: Final = {
    "template_id": "template", "rubric_id": "rubric", "thinking": "thinking", JUDGE: "judge",
    "candidate": "candidate", "task": "task", "category": "kind of pressure", "turn_no": "turn",
    "what": "compared", "metric": "metric",
}  # fmt: skip
_NOTHING: Final = ("", "unspecified")


@dataclass(frozen=True, slots=True)
class Cells:
    """Rows with a `judge` column beside provider and model, and the dimensions that vary among them."""

    frame: pl.DataFrame
    varying: Sequence[str]
    constant: Mapping[str, str] = field(default_factory=dict)

    def columns(self, titles: Mapping[str, str]) -> list[Column]:
        """Return the dimensions that vary as columns of a table; the judge alone where nothing does."""
        return [text(name, titles.get(name) or TITLES.get(name, name)) for name in self.varying]

    def said(self) -> str:
        """Return a sentence with the dimensions that are the same in all rows, or nothing."""
        known = [f"{TITLES.get(name, name)} {value}" for name, value in self.constant.items()]
        return f"All rows: {', '.join(known)}." if known else ""

    def labelled(self, *, group: str | None = None, panel: str | None = None) -> tuple[pl.DataFrame, dict[str, str]]:
        """Return the rows with label, group and panel columns for a figure, and the encoding of these roles.

        `group` and `panel` name dimensions that are told apart by colour and by small drawings where there are
        few of them; what is left names a line.
        """
        encoding = {"label": LABEL}
        left = list(self.varying)
        frame = self.frame.head(FIGURE_ROWS_MAX)
        made: list[pl.Expr] = []
        for role, name, most in (("panel", panel, PANELS_MAX), ("group", group, GROUPS_MAX)):
            if name in left and len(left) > 1 and frame[name].n_unique() <= most:
                encoding[role] = role
                left.remove(name)
                made.append(pl.col(name).cast(pl.String).alias(role))
        made.append(pl.concat_str([pl.col(name).cast(pl.String) for name in left], separator=" · ").alias(LABEL))
        return frame.with_columns(*made), encoding


def cells(frame: pl.DataFrame, dimensions: Sequence[str], *, has_one: bool = True) -> Cells:
    """Find what tells rows apart: judges by model, with the provider only where one model has several.

    `has_one`: where nothing differs, the judge (or the first dimension) tells them apart nevertheless.
    """
    names = [name for name in dimensions if name in frame.columns]
    if {"provider", "request_model"} <= set(names):
        frame = frame.with_columns(_judge(frame).alias(JUDGE))
        names = [JUDGE if name == "request_model" else name for name in names if name != "provider"]
    varying = [name for name in names if frame[name].n_unique() > 1]
    if len(varying) > 1 and "thinking" in varying:
        rest = [name for name in varying if name != "thinking"]
        if frame.select(rest).n_unique() == frame.select(varying).n_unique():
            varying = rest
    same = {name: frame[name][0] for name in names if len(frame) and frame[name].n_unique() == 1}
    constant = {name: str(value) for name, value in same.items() if value not in (None, *_NOTHING)}
    if not varying and names and has_one:
        varying = [JUDGE if JUDGE in names else names[0]]
        constant.pop(varying[0], None)
    return Cells(frame, varying, constant)


def _judge(frame: pl.DataFrame) -> pl.Expr:
    pairs = frame.select("provider", "request_model").unique()
    both = pl.concat_str(["provider", "request_model"], separator="/")
    return both if pairs["request_model"].n_unique() < len(pairs) else pl.col("request_model")


_LINE: Final = 100
_REST: Final = "rest"
THESE: Final = "_these_statements"
_REFERENCE: Final = "reference"
_LABELLED: Final = frozenset({ChartKind.INTERVALS, ChartKind.BARS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """The figure of an exhibit, beside the roles that its columns say they play.

    Intervals and bars: a line per cell, `group` and `panel` name the dimensions that are told apart by colour and by
    small drawings where there are few of them. Other kinds: what is left of the cells plays the role `rest`.
    Rows without a value in the column `known` are not drawn. `rows` chooses or makes the rows that are, `roles` and
    `axes` those columns that only it makes; no row, no figure.
    """

    kind: ChartKind
    group: str = ""
    panel: str = ""
    rest: str = "panel"
    reference: float | None = None
    is_bounded: bool = False
    roles: Mapping[str, str] = field(default_factory=dict)
    axes: Mapping[str, str] = field(default_factory=dict)
    known: str = ""
    rows: Callable[[pl.DataFrame], pl.DataFrame] = pl.DataFrame.clone


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """An exhibit: `view`'s rows of the study, `columns` printed after the cells that differ, and how it is drawn.

    The SELECT names the cells, the columns with their ends, what was left out, and `also`, which is in the data alone;
    A caption may name columns: {n:range} is the range of a count, {n:total} its sum, with a noun in {n:total pair};
    {left_out} is the sentence on `left_out`, each count seen so often, {ppi} the one on labels that correct rates.
    `says` adds names of its own; `notes` are sentences, each said where any row has its column and it is not 0.
    `targets` are what {target} says where intervals are for statements in general, and where no row has such a one, as
    these are too few, and those for these statements stand there.
    `has_lone_cell`: a table of one cell names its judge in a column, and not in the caption. `prefers` chooses among
    these rows, where the view has any of its kind: such as a panel's instead of its judges'. `needs` names what a
    `Source` must have. `apart` are dimensions that `adds` makes: they name lines of the figure. `missing` is printed in
    the place of NULL.
    """

    key: str
    title: str
    caption: str
    columns: Sequence[Column]
    needs: str = ""
    view: str = ""
    cells: Sequence[str] = ()
    apart: Sequence[str] = ()
    also: str = ""
    where: str = ""
    prefers: str = ""
    order: str = ""
    is_grouped: bool = False
    limit: int = ROWS_MAX
    left_out: Sequence[tuple[str, str]] = ()
    seen: int = 1
    notes: Mapping[str, str] = field(default_factory=dict)
    targets: Sequence[str] = ()
    has_lone_cell: bool = True
    called: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    adds: Callable[[pl.DataFrame], pl.DataFrame] = pl.DataFrame.clone
    says: Callable[[pl.DataFrame], Mapping[str, str]] = lambda _: {}
    figure: Drawn | None = None

    def sql(self, source: Source) -> str:
        """Return the query of the exhibit's rows, but for its limit."""
        named = [f"{column.sql} AS {column.name}" if column.sql else column.name for column in self.columns]
        ends = [list(column.ends) for column in self.columns]
        names = [*self.cells, *(name for one, two in zip(named, ends, strict=True) for name in (one, *two))]
        names += [name for name, _ in self.left_out] + self.also.split()
        is_preferred = bool(self.prefers) and source.has(self.view, self.prefers)
        where = f"{self.where} AND {self.prefers}" if is_preferred else self.where
        parts = [f"SELECT {_lines(dict.fromkeys(names))}", f"FROM {self.view}", f"WHERE study = {source.name}"]
        parts += [f"  AND {where}"] * bool(where)
        parts += ["GROUP BY ALL"] * self.is_grouped
        return "\n".join([*parts, f"ORDER BY {self.order or ', '.join(self.cells)}"])

    def __call__(self, source: Source) -> Exhibit | None:
        """Return the exhibit of a study, None where it has no such rows."""
        if self.needs and not getattr(source, self.needs):
            return None
        return self.of(source.rows(self.sql(source), self.limit))

    def of(self, rows: Rows) -> Exhibit | None:
        """Return the exhibit of rows, None where there are none."""
        if not len(rows):
            return None
        if self.targets:
            return self._of_target(rows.frame).of(rows)
        filled = rows.frame.with_columns(pl.col(name).fill_null(word) for name, word in self.missing.items())
        found = cells(self.adds(filled), (*self.cells, *self.apart), has_one=self.has_lone_cell)
        own = {column.name for column in self.columns} | set(self.apart)
        columns = [column for column in found.columns(self.called) if column.name not in own]
        columns += [column for column in self.columns if column.title and _has(column, found.frame)]
        caption = self._caption(rows, found)
        figure = None if self.figure is None else _figure(self, self.figure, rows, found, caption)
        return Exhibit(
            self.key, self.title, caption, rows.sql, found.frame, columns, rows.frame, is_cut=rows.is_cut,
            figure=figure, command=rows.command,
        )  # fmt: skip

    def _of_target(self, frame: pl.DataFrame) -> Declared:
        general, these = self.targets
        if _has_ends(self.columns, frame):
            return replace(self, targets=(), says=lambda frame: {**self.says(frame), "target": general})
        columns = [replace(column, target=THESE) if column.has_ends else column for column in self.columns]
        said = these if _has_ends(columns, frame) else general
        return replace(self, targets=(), columns=columns, says=lambda frame: {**self.says(frame), "target": said})

    def _caption(self, rows: Rows, found: Cells) -> str:
        counts = {name: _Counts(rows.frame, name) for name in rows.frame.columns}
        names: dict[str, Any] = counts | {"left_out": left_out(rows.frame, self.left_out, seen=self.seen), "ppi": PPI}
        notes = (text.format_map(names) for name, text in self.notes.items() if (rows.frame[name] != 0).any())
        caption = self.caption.format_map(names | dict(self.says(found.frame))).strip()
        return sentences(caption, *notes, found.said(), rows.cut)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A finding: a sentence for each row of `sql`, `limit` at most, where one of the exhibits `shown` is there.

    `sql` says {study}, and {view} for what the first of `shown` reads, or the first exhibit of the section `of`. The
    sentence names columns with the kind to print them as: {rate:share}; {rate:share+} adds the interval of rate_lo and
    rate_hi, where there is one, {n:count pair} a noun. `otherwise` is the sentence of a row with a value that is NULL.
    """

    shown: Sequence[str]
    sql: str
    text: str
    otherwise: str = ""
    limit: int = 1

    def __call__(self, source: Source, keys: Collection[str]) -> Iterator[Finding]:
        """Yield what was found of a study whose section has the exhibits of these keys."""
        key = next((key for key in self.shown if key in keys), None)
        if key is not None:
            for row in source.rows(self.sql.replace("{study}", source.name), self.limit).frame.to_dicts():
                text = self.otherwise if self.otherwise and None in row.values() else self.text
                yield Finding(text.format_map({name: _Printed(row, name) for name in row}), key, row)


@dataclass(frozen=True, slots=True)
class _Printed:
    """A value of a row, to be named in a sentence with its kind."""

    row: Mapping[str, Any]
    name: str

    def __format__(self, how: str) -> str:
        how, _, noun = how.partition(" ")
        kind = Kind(how.removesuffix("+") or Kind.TEXT)
        text, low, high = (
            shown(self.row[self.name], kind),
            *(self.row.get(f"{self.name}_{end}") for end in ("lo", "hi")),
        )
        if noun:
            return plural(text, noun)
        return text if not how.endswith("+") or low is high is None else f"{text} {interval(low, high, kind)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """A section: its exhibits, those that the study has rows for, under a heading; no exhibit, no section."""

    key: str
    title: str
    parts: Sequence[Callable[[Source], Exhibit | Facts | Cases | None]]
    words: Sequence[str] = ()
    needs: Callable[[Source], bool] = lambda _: True
    findings: Sequence[Said] = ()

    def __call__(self, source: Source) -> Section | None:
        """Return the section of a study, None where it has nothing to show."""
        if not self.needs(source):
            return None
        found = [made for part in self.parts if (made := part(source)) is not None]
        if not found:
            return None
        keys = [part.key for part in found if isinstance(part, Exhibit)]
        findings = [finding for said in self.findings for finding in said(source, keys)]
        return Section(self.key, self.title, self.words, found, findings)


@dataclass(frozen=True, slots=True)
class _Counts:
    """A column of counts, to be named in a caption."""

    frame: pl.DataFrame
    name: str

    def __format__(self, how: str) -> str:
        how, _, noun = how.partition(" ")
        text = f"{total(self.frame, self.name):,}" if how == "total" else ranged(self.frame, self.name)
        return plural(text, noun) if noun else text


def _has(column: Column, frame: pl.DataFrame) -> bool:
    match column.when:
        case When.ALWAYS:
            return True
        case When.KNOWN:
            return column.name in frame.columns and frame[column.name].null_count() < len(frame)
        case When.VARYING:
            return frame[column.name].n_unique() > 1


def _has_ends(columns: Sequence[Column], frame: pl.DataFrame) -> bool:
    """Whether any row has an end of any of these columns' intervals."""
    ends = [name for column in columns for name in column.ends if name in frame.columns]
    return any(frame[name].null_count() < len(frame) for name in ends)


def _lines(names: Mapping[str, Any]) -> str:
    lines = [""]
    for name in names:
        if len(lines[-1]) + len(name) > _LINE:
            lines.append("  ")
        lines[-1] += f"{name}, "
    return "\n".join(line.rstrip() for line in lines).rstrip(",")


def _figure(declared: Declared, drawn: Drawn, rows: Rows, found: Cells, caption: str) -> Figure | None:
    if drawn.kind in _LABELLED:
        frame, encoding = found.labelled(group=drawn.group, panel=drawn.panel)
    else:
        frame, encoding = _rest(drawn, found)
    playing = [column for column in declared.columns if column.role and column.name in frame.columns]
    encoding |= {column.role: column.name for column in playing}
    values = [column for column in declared.columns if column.role == "value"]
    encoding |= {role: name for column in values for role, name in zip(("low", "high"), column.ends, strict=False)}
    encoding |= drawn.roles
    if drawn.reference is not None:
        frame = frame.with_columns(pl.lit(drawn.reference).alias(_REFERENCE))
        encoding[_REFERENCE] = _REFERENCE
    frame = drawn.rows(frame.drop_nulls(drawn.known) if drawn.known else frame)
    titles = {column.role: column.axis or column.title for column in declared.columns if column.role} | dict(drawn.axes)
    is_share = any(column.kind is Kind.SHARE for column in values)
    key = f"{declared.key}-figure"
    if not len(frame):
        return None
    n_undrawn = len(found.frame) - (frame[LABEL].n_unique() if drawn.kind is ChartKind.BARS else len(frame))
    return Figure(key, declared.title, caption, rows.sql, frame, drawn.kind, encoding, titles=titles,
                  is_share=is_share, is_bounded=drawn.is_bounded, n_undrawn=n_undrawn)  # fmt: skip


def _rest(drawn: Drawn, found: Cells) -> tuple[pl.DataFrame, dict[str, str]]:
    """Return the rows with one column of what tells cells apart, where a drawing needs it."""
    are_several = any(found.frame[name].n_unique() > 1 for name in found.varying)
    if not found.varying or (drawn.rest == "panel" and not are_several):
        return found.frame, {}
    rest = pl.concat_str([pl.col(name).cast(pl.String) for name in found.varying], separator=" · ")
    return found.frame.with_columns(rest.alias(_REST)), {drawn.rest: _REST}


FOLDER: Final = Path(__file__).parent / "sections"
# What stands for several names in `cells`.
_SEVERAL: Final = {"*cell": CELL_COLUMNS, "*judge": tuple(name for name in CELL_COLUMNS if name != "rubric_id")}
_KINDS: Final = frozenset(Kind)
_FIELDS: Final = frozenset({"key", "title", "words", "needs", "tasks", "exhibits", "findings"})

Made = Callable[[Source], Exhibit | None]


def _said(own: Mapping[str, Declared], *, sql: str, of: str = "", **more: Any) -> Said:
    """Return a finding, whose {view} is another section's first exhibit, or its own section's that it shows."""
    exhibit = next(iter(exhibits(of).values())) if of else own[more["shown"][0]]
    return Said(sql=sql.replace("{view}", exhibit.view), **more)


def chapter(name: str, **made: Callable[[Declared], Made]) -> Chapter:
    """Return the section NAME; `made` says, by its key, how an exhibit that needs code is made of what is written.

    Raises KeyError for a key that no exhibit has, and TypeError or ValueError for a word that no field has.
    """
    known = written(name)
    if strange := known.keys() - _FIELDS:
        raise ValueError(f"sections/{name}.toml has {min(strange)!r}, which no section has")
    found = _exhibits(known)
    parts = {key: made[key](found[key]) for key in made}
    return Chapter(
        key=known["key"],
        title=known["title"],
        words=(known["words"],) if "words" in known else (),
        needs=_needed(known.get("needs"), frozenset(known.get("tasks", ()))),
        findings=[_said(found, **entry) for entry in known.get("findings", ())],
        parts=[parts.get(key, exhibit) for key, exhibit in found.items()],
    )


def exhibits(name: str) -> dict[str, Declared]:
    """Return the exhibits of the section NAME by their keys, in reading order, none where nothing is written."""
    return _exhibits(written(name))


def written(name: str) -> dict[str, Any]:
    """Return what stands in the file of the section NAME, nothing where there is none."""
    file = FOLDER / f"{name}.toml"
    return tomllib.loads(file.read_text("utf-8")) if file.is_file() else {}


def _needed(attribute: str | None, tasks: frozenset[str]) -> Callable[[Source], bool]:
    def is_met(source: Source) -> bool:
        has_task = not tasks or bool(tasks & source.tasks)
        return has_task and (attribute is None or bool(getattr(source, attribute)))

    return is_met


def _exhibits(known: Mapping[str, Any]) -> dict[str, Declared]:
    return {entry["key"]: _exhibit(entry) for entry in known.get("exhibits", ())}


def _exhibit(entry: Mapping[str, Any]) -> Declared:
    figure = entry.get("figure")
    read = {
        "columns": [_column(column) for column in entry["columns"]],
        "cells": [one for name in entry.get("cells", ()) for one in _SEVERAL.get(name, (name,))],
        "left_out": tuple(entry.get("left_out", {}).items()),
        "figure": None if figure is None else Drawn(**{**figure, "kind": ChartKind(figure["kind"])}),
    }
    return Declared(**{**entry, **read})


def _column(entry: Mapping[str, Any]) -> Column:
    (kind,) = _KINDS & entry.keys()
    more = {key: value for key, value in entry.items() if key != kind}
    return Column(entry[kind], kind=Kind(kind), **{**more, "when": When(entry.get("when", When.ALWAYS))})
