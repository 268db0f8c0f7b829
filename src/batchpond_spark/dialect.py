"""The product's SQL for engines that speak Spark's: the same views, written from the same files by sqlglot.

A call of a macro is written out where it stands, its arguments bound once by a `transform` over a list of one, or is
the number that DuckDB makes of it where nothing in it is a column; what DuckDB has and Spark lacks are macros too
(`macros.sql`). What says one thing there and another here, and no error, is
rewritten: a decimal literal (Spark divides decimals at six digits), the first row of `arg_max` (Spark takes one without
a value), an index beyond a list. `refused.toml` names the views that cannot be said, and why.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import duckdb
import sqlglot
from sqlglot import exp

from batchpond.lake.schemas import TABLES, Table
from batchpond.model import CELL_COLUMNS
from batchpond.views import refresh
from batchpond.views.draft import AS_TABLES
from batchpond.views.refresh import Files, Good, Script, named, sorted_out

SPARK: Final = "spark"
_DUCKDB: Final = "duckdb"
_MACROS: Final = Path(__file__).with_name("macros.sql")
_REFUSED: Final = Path(__file__).with_name("refused.toml")
_LEVEL: Final = "1_core"
_OF_ITS_MOMENT: Final = (
    exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentDatetime, exp.CurrentTime, exp.Localtimestamp, exp.Rand, exp.Uuid
)  # fmt: skip
_COMMENT: Final = re.compile(r"--[^\n]*")
_MACRO: Final = re.compile(r"CREATE (?:OR REPLACE )?MACRO (\w+)\((.*?)\) AS\s+(.*?);", re.DOTALL)
_VIEW: Final = re.compile(r"\s*CREATE OR REPLACE VIEW \w+ AS\b(.*);", re.DOTALL)
_HEAD: Final = """\
-- Views over a lake in Spark SQL, each a temporary view of the session that runs these statements one after another.
-- The lake's files are where they stand on this machine; of a copy elsewhere, replace {lake} by its address.
-- The session needs spark.sql.ansi.enabled = false, spark.sql.session.timeZone = UTC and, on Spark itself,
-- spark.sql.analyzer.maxIterations = 400: statistics are written out, one expression in another.
"""


def script(lake_path: Path, files: Files) -> str:
    """Return the views over a lake as one script of Spark SQL; one that Spark cannot run is a comment that says why."""
    good, _ = sorted_out(lake_path, named(lake_path, files), {})
    tables = (_table(lake_path, table, good) for table in TABLES.values())
    return "\n".join([_HEAD.format(lake=os.path.abspath(lake_path)), *tables, *_views()])


def refused() -> dict[str, str]:
    """Return the views that Spark cannot run, each with the reason: its own, or that of what it reads."""
    found: dict[str, str] = tomllib.loads(_REFUSED.read_text("utf-8"))["refused"]
    for script in refresh.scripts():
        lost = sorted(script.needs & found.keys())
        if script.views and script.name not in found and lost:
            found[script.name] = f"it reads {', '.join(lost)}"
    return found


def select(script: Script) -> str:
    """Return the SELECT of a view in Spark SQL, its macros written out."""
    match = _VIEW.match(_COMMENT.sub("", script.text))
    assert match is not None, script.name  # noqa: S101 - sql/ has this form
    tree = _expanded(_spelled(_parsed(match[1])))
    for struct in list(tree.find_all(exp.Struct)):
        is_known = any(isinstance(part.expression.unnest(), exp.Literal) for part in struct.expressions)
        for part in struct.expressions:
            part.set("expression", _worth(part.expression) or _maybe(part.expression))
        if is_known and {*CELL_COLUMNS}.issuperset(names := [part.name for part in struct.expressions]):
            kind = f"STRUCT<{', '.join(f'{name}: STRING' for name in names)}>"  # as that of a cell of the lake's
            struct.replace(exp.cast(struct.copy(), kind, dialect=SPARK))
    return _rewritten(tree).sql(SPARK)


def statements(lake_path: Path, good: Good, names: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield what makes some views and all that they are made of, each by its name, one after another."""
    by_name = {script.name: script for script in refresh.scripts() if script.views}
    reached = refresh.reached(names, by_name.get)
    read = {*names}.union(*(script.needs for script in reached.values()))
    yield from ((name, _table(lake_path, TABLES[name], good)) for name in TABLES if name in read)
    yield from ((name, _view(name, select(script))) for name, script in by_name.items() if name in reached)


def levels(sql: str) -> list[str]:
    """Return what an engine writes for a query, in running order.

    That are the tables and views of a row per judgment, pair or cluster that are read from above, and of what those
    are made of the few that are small and dear to plan, which are tables of the lens too.
    """
    by_name = {script.name: script for script in refresh.scripts() if script.views}
    asked = refresh.parse("", "", sql).needs
    above = refresh.reached(asked, lambda name: None if _is_level(by_name.get(name)) else by_name.get(name))
    read = asked.union(*(script.needs for script in above.values())) - above.keys()
    below = refresh.reached(read, by_name.get).keys() & AS_TABLES
    return [name for name in (*TABLES, *by_name) if name in read | below]


def _is_level(script: Script | None) -> bool:
    return script is not None and script.stage == _LEVEL


def _views() -> Iterator[str]:
    why = refused()
    for script in refresh.scripts():
        if script.name in why:
            yield f"-- {script.name} is not here: {why[script.name]}\n"
        elif script.views:
            yield f"-- {script.header['question']}\n{_view(script.name, select(script))}"


def _view(name: str, rows: str) -> str:
    return f"CREATE OR REPLACE TEMPORARY VIEW {name} AS\n{rows};\n"


def _table(lake_path: Path, table: Table, good: Good) -> str:
    files = good[table.name].items()
    parts = [_file(table, f"{os.path.abspath(lake_path)}/{path}", sound.is_older) for path, sound in files]
    nothing = sqlglot.transpile(table.select(" WHERE FALSE", is_empty=True), _DUCKDB, SPARK)[0]
    return _view(table.name, "\nUNION ALL\n".join(parts) or nothing)


def _file(table: Table, path: str, is_older: bool) -> str:
    import pyarrow.parquet as pq  # noqa: PLC0415 - most lakes have no older file

    there = set(pq.read_schema(path).names) if is_older else {name for name, _ in table.columns}
    columns = (f"`{name}`" if name in there else f"NULL AS `{name}`" for name, _ in table.columns)
    return f"SELECT {', '.join(columns)} FROM parquet.`{path}`"


@dataclass(frozen=True, slots=True)
class _Macro:
    """A macro's parameters with their defaults, and its body."""

    name: str
    parameters: dict[str, exp.Expr | None]
    body: exp.Expr


def _texts(text: str) -> list[tuple[str, str, str]]:
    return _MACRO.findall(_COMMENT.sub("", text))


_SPARKS: Final = _texts(_MACROS.read_text("utf-8"))
_MARK: Final = "lens_"
_CALL: Final = re.compile(rf"\b(?=(?:{'|'.join(name for name, _, _ in _SPARKS)})\s*\()", re.IGNORECASE)


def _parsed(sql: str) -> exp.Expr:
    """Return DuckDB's SQL as a tree, in which what `macros.sql` defines is marked: no function that sqlglot knows."""
    return _bare(sqlglot.parse_one(_CALL.sub(_MARK, sql), dialect=_DUCKDB))


def _bare(tree: exp.Expr) -> exp.Expr:
    """Return a tree whose parts do not say where they stood in the text: copies would take twice as long."""
    for node in tree.walk():
        node._meta = None
    return tree


@cache
def _macro(name: str) -> _Macro | None:
    for (found, parameters, body), parse in _all_macros():
        if found == name:
            pairs = (parameter.partition(":=")[::2] for parameter in parameters.split(","))
            defaults = {key.strip(): _parsed(value) if value else None for key, value in pairs}
            return _Macro(name, defaults, parse(body))
    return None


@cache
def _all_macros() -> list[tuple[tuple[str, str, str], Callable[[str], exp.Expr]]]:
    ours = [(found, _parsed) for script in refresh.scripts() if script.macros for found in _texts(script.text)]
    sparks = ((_MARK + name, parameters, body) for name, parameters, body in _SPARKS)
    return [*ours, *((found, partial(sqlglot.parse_one, dialect=SPARK)) for found in sparks)]


def _spelled(tree: exp.Expr) -> exp.Expr:
    """Return a tree in which `cell.*` names its columns: Sail takes no star where rows are grouped or joined."""
    for query in tree.find_all(exp.Select):
        parts = (
            (part, _macro(part.table) if part.is_star and isinstance(part, exp.Column) else None)
            for part in query.expressions
        )
        spelled = (_fields(part.table, macro) if macro else [part] for part, macro in parts)
        query.set("expressions", [part for found in spelled for part in found])
    return tree


def _fields(value: str, macro: _Macro) -> list[exp.Expr]:
    return [exp.column(part.name, value) for part in macro.body.expressions]


def _expanded(tree: exp.Expr) -> exp.Expr:
    """Return a tree in which every call of a macro is written out, the outer ones first."""
    for node in list(tree.find_all(exp.Anonymous, exp.Case)):
        if node.root() is not tree:
            continue  # a part of a call that was written out, or of a case that never is
        if isinstance(node, exp.Case):
            _settle(node)
        elif macro := _macro(node.name.lower()):
            new = _worth(node) or _expanded(_called(macro, node.expressions))
            if node is tree:
                return new
            node.replace(new)
    return tree


def _settle(node: exp.Case) -> None:
    """Take out of a CASE what is true or false whatever the row."""
    for case in list(node.args["ifs"]) if node.this is None else ():
        holds = _value(case.this)
        if holds is True:
            node.set("default", case.args["true"])
            node.set("ifs", node.args["ifs"][: node.args["ifs"].index(case)])
            break
        if holds is False:
            node.args["ifs"].remove(case)
    if not node.args["ifs"]:
        node.replace(node.args.get("default") or exp.Null())


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for script in refresh.scripts():
        if script.macros:
            connection.execute(script.text)
    return connection


def _value(value: exp.Expr) -> Any:
    """Return what DuckDB makes of an expression without columns; None of any other, and of what is of its moment."""
    if value.find(exp.Column, exp.Dot, exp.Star, exp.Query, exp.AggFunc, *_OF_ITS_MOMENT):
        return None
    if any(_macro(call.name.lower()) is None for call in value.find_all(exp.Anonymous)):
        return None  # nobody here knows whether it says the same again
    return _evaluated(value.sql(_DUCKDB).replace(_MARK, ""))


@cache
def _evaluated(expression: str) -> Any:
    try:
        return _duckdb().execute(f"SELECT {expression}").fetchall()[0][0]
    except duckdb.Error:
        return None  # a lambda's own name, or Spark's words


def _worth(value: exp.Expr) -> exp.Expr | None:
    """Return the number that an expression without columns is, or None; Sail mistakes the type of what it folds."""
    found = None if isinstance(value, exp.Literal) else _value(value)
    if isinstance(found, bool) or not isinstance(found, int | float | Decimal):
        return None
    number = exp.Literal.number(str(abs(found)) if isinstance(found, int) else repr(abs(float(found))))
    return exp.Neg(this=number) if found < 0 else number


def _rewritten(tree: exp.Expr) -> exp.Expr:
    for node in reversed(list(tree.bfs())):  # what stands inside comes first, so nothing is rewritten twice
        new = _node(node)
        if node is tree:
            tree = new
        elif new is not node:
            node.replace(new)
    return tree


def _node(node: exp.Expr) -> exp.Expr:
    """Return what stands for one node of DuckDB's SQL, whose parts are rewritten."""
    if isinstance(node, exp.CTE):
        node.set("materialized", None)
    elif isinstance(node, exp.Literal) and not node.is_string and not node.is_int:
        return exp.Literal.number(f"{node.name}D")
    elif isinstance(node, exp.Window) and node.args.get("alias"):
        return exp.paren(node)  # Spark reads `whole - x` as one name
    elif isinstance(node, exp.Bracket):
        return exp.func("get", node.this, *node.expressions)
    elif isinstance(node, exp.ArgMax | exp.ArgMin):
        there = exp.If(this=exp.not_(exp.Is(this=node.this.copy(), expression=exp.Null())), true=node.expression)
        node.set("expression", exp.Case(ifs=[there]))
    elif isinstance(node, exp.Anonymous):
        name = node.name.lower()
        if name == "list_reduce":  # sql/ puts the seed in front of the list
            seeded, step = node.expressions
            return exp.func("aggregate", seeded.this, seeded.expression, step)
    return node


def _called(macro: _Macro, arguments: list[exp.Expr]) -> exp.Expr:
    """Return a macro's body over arguments; what is more than a name and used twice is worked out once."""
    by_name = {part.name: part.expression for part in arguments if isinstance(part, exp.PropertyEQ)}
    by_place = dict(zip(macro.parameters, arguments, strict=False))
    given = {name: by_name.get(name, by_place.get(name, default)) for name, default in macro.parameters.items()}
    values = {name: _worth(value) or value for name, value in given.items() if value is not None}
    body = exp.paren(macro.body)
    uses = Counter(column.parts[0].name for column in body.find_all(exp.Column))
    row = f"of_{macro.name.removeprefix(_MARK)}"
    bound = {name: value for name, value in values.items() if uses[name] > 1 and _is_bound(value)}
    for column in list(body.find_all(exp.Column)):
        name, *rest = column.parts
        if name.name in given:
            value = values[name.name]
            plain = value if isinstance(value, exp.Column) else exp.paren(value)
            new = exp.column(name.name, row) if name.name in bound else plain
            column.replace(exp.Dot.build([new, *(part.copy() for part in rest)]) if rest else new)
    if not bound:
        return body
    fields = [exp.PropertyEQ(this=exp.to_identifier(name), expression=value) for name, value in bound.items()]
    once = exp.Lambda(this=body, expressions=[exp.to_identifier(row)])
    return exp.func(
        "get", exp.Transform(this=exp.array(exp.Struct(expressions=fields)), expression=once), exp.Literal.number(0)
    )


def _is_bound(value: exp.Expr) -> bool:
    """Whether an argument is to be worked out once: no name, and no number."""
    return not isinstance(value, exp.Column | exp.Dot) and value.find(exp.Column, exp.Dot) is not None


def _maybe(value: exp.Expr) -> exp.Expr:
    """Return a struct's field that may be NULL: Sail must not find out later, in a lambda, that it never is."""
    return value if isinstance(value, exp.Literal) else exp.Nullif(this=value, expression=exp.Null())
