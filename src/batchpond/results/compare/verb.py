"""The verb `compare`: what two sides say of the same items, paired in SQL.

A side is a study, or an earlier version of it, or some of its cells: `essays`, `essays@k3vq7d`, `essays:template=v2`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from batchpond.errors import UsageError
from batchpond.lake.tables import query, reading
from batchpond.text import did_you_mean
from batchpond.views.read import asked, check_study

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

KEYS: Final = ("template", "rubric", "provider", "model", "thinking", "candidate", "repeat")
_FORM = re.compile(r"(?P<study>.+?)(?:@(?P<version>[0-9a-z]+))?(?::(?P<where>[a-z_]+=.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Side:
    """One side as it was typed; `where` holds the values wanted by key, none for a key of which all are."""

    text: str
    study: str
    version: str | None
    where: dict[str, list[str]]


@dataclass(frozen=True)
class Compared:
    """`comparisons`: a row per cell of a with a cell of b; `differences`: per metric of each; `flips`: per subject."""

    a: str
    b: str
    comparisons: pa.Table
    differences: pa.Table
    flips: pa.Table
    notes: tuple[str, ...]


def side(text: str) -> Side:
    """Return what `STUDY[@VERSION][:KEY=VALUE,...]` names; raises UsageError for a key that is none."""
    found = _FORM.fullmatch(text)
    where: dict[str, list[str]] = {}
    for part in re.split(r",(?=[a-z_]+=)", found["where"]) if found and found["where"] else ():
        key, _, value = part.partition("=")
        if key not in KEYS:
            raise UsageError(f"{text!r}: a side has no {key!r}", hint=did_you_mean(key, KEYS, ", ".join(KEYS)))
        where.setdefault(key, []).append(value)
    if found is None:
        raise UsageError("a side of a comparison is empty", hint="name a study: `batchpond status` lists them")
    return Side(text, found["study"], found["version"], where)


def compare(lake_path: Path, a: str, b: str, *, n_flips: int = 20) -> Compared:
    """Compare what two sides say of the same items, b against a.

    Raises UsageError for a side that is not there, or where nothing is in both, and LakeError when the judgments
    cannot be read.
    """
    sides = {"a": side(a), "b": side(b)}
    if a == b:
        raise UsageError(f"both sides are {a}", hint="`batchpond compare essays:template=v1 essays:template=v2`")
    with reading("the comparison"), asked(lake_path, lambda lens: _compared(lens, sides, n_flips)) as found:
        return found


def _compared(connection: duckdb.DuckDBPyConnection, sides: dict[str, Side], n_flips: int) -> Compared:
    for name, one in sides.items():
        _take(connection, name, one)
    for step in ("comparisons", "subjects", "paired", "metrics"):
        studies = {f"study_{name}": one.study for name, one in sides.items()} if step == "subjects" else None
        connection.execute(query(__package__, step), studies)
    limit = {"limit": n_flips}
    told, differences, flips = (
        connection.sql(query(__package__, name), params=values).to_arrow_table()
        for name, values in (("told", None), ("differences", None), ("flips", limit))
    )
    if not any(told["n_common"].to_pylist()):
        raise UsageError(
            f"{sides['a'].text} and {sides['b'].text} have no item, or pair of items, in common",
            hint="items are known by their id, rubrics by theirs: `batchpond results --study STUDY` shows them",
        )
    return Compared(sides["a"].text, sides["b"].text, told, differences, flips, tuple(_notes(connection, told)))


def _take(connection: duckdb.DuckDBPyConnection, name: str, one: Side) -> None:
    """Add a side's judgments to the table `compare_said`; the first side makes it."""
    check_study(connection, one.study)
    values: dict[str, object] = {"side": name, "study": one.study} | {key: one.where.get(key) for key in KEYS}
    rows = "current"
    if one.version is not None:
        known = {"study": one.study, "version": one.version}
        found = connection.execute(query(__package__, "versions"), known).fetchall()
        if len(found) != 1:
            lacks = "no version" if not found else f"{len(found)} versions"
            hint = "`batchpond query \"select * from studies where study = '...'\"` lists them"
            raise UsageError(f"study {one.study!r} has {lacks} {one.version!r}", hint=hint)
        if not found[0][1]:
            rows, values = "earlier", values | {"version": found[0][0]}
    into = "CREATE OR REPLACE TEMP TABLE compare_said AS" if name == "a" else "INSERT INTO compare_said"
    connection.execute(query(__package__, "said", into=into, rows=query(__package__, rows)), values)
    if not connection.execute("SELECT 1 FROM compare_said WHERE side = ? LIMIT 1", [name]).fetchall():
        raise UsageError(f"{one.text} holds no judgments", hint="`batchpond results --study STUDY` shows its cells")


def _notes(connection: duckdb.DuckDBPyConnection, comparisons: pa.Table) -> Iterator[str]:
    ((n_asked, n_shared),) = connection.execute(query(__package__, "shared")).fetchall()
    if n_shared:
        yield (
            f"{n_shared:,} of b's {n_asked:,} requests are the same requests as in a: one answer stands for both. "
            "To ask them again, plan more `repeats`, and compare repeat=1 with repeat=2"
        )
    n_pending = sum(sum(comparisons[f"n_pending_{name}"].to_pylist()) for name in "ab")
    if n_pending:
        yield f"{n_pending:,} calls are not answered yet: what they will say is in no number"
