"""SQL expressions over the column `text`, written in a study to read answers: checked, then run in a sealed engine.

An expression sees one answer's text and nothing else: no table, file, network, setting or clock. Its syntax tree may
hold only columns, constants, operators, CASE, casts, and functions that give the same for the same text, and do not
make much of little; the engine has no external access, its settings are locked, and it never spills to disk. `TRY`
turns what fails on one text into NULL for that text alone, and refuses aggregates, windows and subqueries by itself.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import duckdb
import orjson
import pyarrow as pa

from batchpond.errors import UsageError
from batchpond.lake.tables import query
from batchpond.views.draft import config
from batchpond.views.read import interrupted, nodes, syntax_tree
from batchpond.views.refresh import first_line

TEXT_MAX_CHARS: Final = 100_000
VALUE_MAX_CHARS: Final = 20_001
MEMORY_LIMIT: Final = "512MB"
WITHIN_S: Final = 600.0
AT_ONCE_S: Final = 30.0
PROBE_MAX_S: Final = 2.0
_PROBE_CHARS: Final = (0, 100, 1_000, 10_000, TEXT_MAX_CHARS)
_NUMBER: Final = "#"
_PROBE_TEXT: Final = 'Score: 4\n{"a": [1, "x"]} It\'s A, not B.\n'
_SEALED: Final = "SET temp_directory = ''; SET enable_external_access = FALSE; SET lock_configuration = TRUE"
_CLASSES: Final = frozenset(
    {"COLUMN_REF", "CONSTANT", "FUNCTION", "OPERATOR", "COMPARISON", "CONJUNCTION", "CASE", "CAST", "BETWEEN",
     "COLLATE", "TYPE"}
)  # fmt: skip
# What depends on more than the text, makes large things out of small ones, or takes the square of a text's length.
_REFUSED: Final = re.compile(
    r"(?:pg|has|inet|current|json_(?:de)?serialize|json_execute|st|icu|col|obj|shobj)_.*|__.*|session_user|user|version"
    r"|getvariable|getenv|ag[eo]|format_(?:pg_)?type|map_to_pg_oid|today|now|get_.*|assert_true|error"
    r"|range|generate_(?:series|subscripts)|repeat|(?:list|array)_resize|[lr]pad|bar|bitstring|factorial|printf|format"
    r"|(?:damerau_)?levenshtein|editdist3|jaro_.*|equi_width_bins"
)
_ZONED: Final = re.compile(r"TIMESTAMPTZ|TIMETZ|WITH TIME ZONE", re.IGNORECASE)
_NUMERIC: Final = re.compile(r"U?(?:TINY|SMALL|BIG|HUGE)?INT(?:EGER)?|FLOAT|DOUBLE|DECIMAL\(.*\)|BIGNUM")
_PLAIN: Final = re.compile(rf"VARCHAR|BOOLEAN|ENUM\(.*\)|{_NUMERIC.pattern}", re.DOTALL)


def why_not(expression: str, *, is_number: bool = False) -> str | None:
    """Return why an expression can read no answer, None when it can.

    It is bound on an empty table, and run on texts of up to TEXT_MAX_CHARS characters. With `is_number`
    it must give a number, or a text that may be one.
    """
    with closing(_connection()) as connection:
        try:
            return _wrong_syntax(connection, expression) or _wrong_type(connection, expression, is_number)
        except duckdb.Error as error:
            return f"cannot be evaluated: {first_line(error)}"


def evaluate(expressions: Mapping[str, str], texts: Sequence[str]) -> list[dict[str, str] | None]:
    """Return for each text what the expressions give, as texts, by name; what is NULL is left out.

    None stands for a text longer than TEXT_MAX_CHARS, half of which could say the opposite, and for one that by
    itself stops the engine or takes it longer than AT_ONCE_S. Raises UsageError where this DuckDB does not know the
    expressions, or cannot evaluate all texts within WITHIN_S.
    """
    ends_at = time.monotonic() + WITHIN_S
    found: list[dict[str, str] | None] = [None] * len(texts)
    usable = [number for number, text in enumerate(texts) if len(text) <= TEXT_MAX_CHARS]
    pending = [usable] if usable else []
    while pending:
        if time.monotonic() >= ends_at:
            raise UsageError(
                f"the SQL of an answer rule did not read {len(texts):,} answers within {WITHIN_S:.0f} s",
                hint="write it simpler and `plan` again; the answers are safe in `raw`",
            )
        numbers = pending.pop()
        try:
            rows = _evaluated(expressions, [texts[number] for number in numbers])
        except (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException) as error:
            raise UsageError(
                f"DuckDB {duckdb.__version__} cannot run the SQL of an answer rule: {first_line(error)}",
                hint="install the DuckDB that the study was planned with; the answers are safe in `raw`",
            ) from None
        except duckdb.Error:
            # What stops the engine on one text must not take the others with it.
            middle = len(numbers) // 2
            pending += [part for part in (numbers[:middle], numbers[middle:]) if middle]
            continue
        for number, row in zip(numbers, rows, strict=True):
            found[number] = row
    return found


def _connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config=config(Path(), MEMORY_LIMIT) | {"threads": 1})
    connection.execute(_SEALED)
    return connection


def _wrong_syntax(connection: duckdb.DuckDBPyConnection, expression: str) -> str | None:
    statement = f"SELECT (\n{expression}\n)"
    tree = syntax_tree(connection, statement)
    if tree is None:
        return "is nested too deeply"
    if tree.get("error"):
        return f"is not SQL: {first_line(tree.get('error_message'))}"
    (node,) = (statement["node"] for statement in tree["statements"])
    if node["type"] != "SELECT_NODE" or len(node["select_list"]) != 1 or node["from_table"]["type"] != "EMPTY":
        return "is not one expression"
    parts = [part for part in nodes(node["select_list"]) if "class" in part]
    if problem := next(filter(None, map(_wrong_part, parts)), None):
        return problem
    if not any(part["class"] == "COLUMN_REF" for part in parts):
        return "does not look at the column `text`: it says the same of every answer"
    names = sorted({str(part["function_name"]).lower() for part in parts if part["class"] == "FUNCTION"})
    refused = [name for name in names if _REFUSED.fullmatch(name)]
    unsteady = connection.execute(query(__package__, "unsteady"), {"names": names}).fetchall()
    bad = [*refused, *(name for (name,) in unsteady)]
    return f"uses the function {bad[0]}, which is not allowed here" if bad else None


def _wrong_part(part: Mapping[str, Any]) -> str | None:
    kind = str(part["class"])
    if kind == "LAMBDA":
        return "has a lambda, or `->`, which gives JSON where `->>` gives a text"
    if kind not in _CLASSES:
        return f"has a {kind.lower().replace('_', ' ')}, which one answer's text cannot give"
    if kind == "COLUMN_REF" and [str(name).lower() for name in part["column_names"]] != ["text"]:
        return f"names the column {'.'.join(map(str, part['column_names']))!r}; there is only `text`"
    wanted = part.get("type_expr", part.get("cast_type"))  # as DuckDB 2 and 1.5 say it
    if kind == "CAST" and _ZONED.search(orjson.dumps(wanted).decode()):
        return "has a time with its zone, which depends on where it is read"
    return None


def _wrong_type(connection: duckdb.DuckDBPyConnection, expression: str, is_number: bool) -> str | None:
    with suppress(duckdb.ConversionException, duckdb.OutOfRangeException):  # which TRY makes NULL, as it may
        connection.execute(f"SELECT (\n{expression}\n) FROM (SELECT NULL::VARCHAR AS text)")
    bound = connection.sql(f"SELECT TRY((\n{expression}\n)) AS value FROM (SELECT NULL::VARCHAR AS text)")
    kind = str(bound.types[0])
    if not (_NUMERIC.fullmatch(kind) or kind == "VARCHAR" if is_number else _PLAIN.fullmatch(kind)):
        wanted = "a number" if is_number else "a text, a number, or true and false"
        return f"gives {kind}, not {wanted}"
    for size in _PROBE_CHARS:
        text = (_PROBE_TEXT * (size // len(_PROBE_TEXT) + 1))[:size]
        starts_at = time.process_time()
        _evaluated({"value": expression}, [text])
        took_s = time.process_time() - starts_at
        if took_s > PROBE_MAX_S:
            return f"takes {took_s:.0f} s for one text of {size:,} characters"
    return None


def _evaluated(expressions: Mapping[str, str], texts: Sequence[str]) -> list[dict[str, str]]:
    found: list[dict[str, str]] = [{} for _ in texts]
    plain = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
    given = pa.table({_NUMBER: pa.array(range(len(plain)), pa.int32()), "text": pa.array(plain, pa.string())})
    values = ", ".join(
        f"left(CAST(TRY((\n{expression}\n)) AS VARCHAR), {VALUE_MAX_CHARS})" for expression in expressions.values()
    )
    with closing(_connection()) as connection:
        connection.register("answers", given)
        with interrupted(connection, AT_ONCE_S):
            rows = connection.execute(f'SELECT "{_NUMBER}", {values} FROM answers').fetchall()
    for number, *row in rows:
        found[number] = {name: value for name, value in zip(expressions, row, strict=True) if value is not None}
    return found
