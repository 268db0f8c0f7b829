"""The verb `compare`: what two sides say of the same items, paired in SQL.

A side is a study, or an earlier version of it, or some of its cells: `essays`, `essays@k3vq7d`, `essays:template=v2`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
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
_GATED: Final = "SELECT DISTINCT metric FROM compare_metrics WHERE better IS NOT NULL ORDER BY ALL"
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
    """Rows: of `comparisons` per cell of a with a cell of b, of `differences` per metric of each, of `flips` per item.

    `gates` has what each gate says of each comparison: `is_worse` is NULL where there is no interval to decide on.
    """

    comparisons: pa.Table
    differences: pa.Table
    flips: pa.Table
    gates: pa.Table
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


def limit(text: str, *, is_margin: bool) -> tuple[str, float]:
    """Return what `METRIC[:DELTA]` says; raises UsageError for a delta that is no number from 0 on."""
    metric, _, given = text.partition(":")
    try:
        delta = float(given or 0)
    except ValueError:
        delta = math.nan
    if not 0 <= delta < math.inf:
        raise UsageError(f"{given!r} is no number from 0 on", hint="METRIC:DELTA, such as consistency:0.02")
    if is_margin and not delta:
        hint = f"--fail-if-worse {metric}:0.02 --margin"
        raise UsageError(f"--margin needs one: {metric} may be worse by how much?", hint=hint)
    return metric, delta


def compare(
    lake_path: Path, a: str, b: str, *, n_flips: int = 20, gates: Sequence[str] = (), is_margin: bool = False
) -> Compared:
    """Compare what two sides say of the same items, b against a, and hold it to `gates`.

    Raises UsageError for a side or metric that is not there, or where nothing is in both, and LakeError when the
    judgments cannot be read.
    """
    sides = {"a": side(a), "b": side(b)}
    limits = [limit(text, is_margin=is_margin) for text in gates]
    if a == b:
        raise UsageError(f"both sides are {a}", hint="`batchpond compare essays:template=v1 essays:template=v2`")

    def ask(connection: duckdb.DuckDBPyConnection) -> Compared:
        for name, one in sides.items():
            _take(connection, name, one)
        for step in ("comparisons", "subjects", "paired", "metrics"):
            studies = {f"study_{name}": one.study for name, one in sides.items()} if step == "subjects" else None
            connection.execute(query(__package__, step), studies)
        told, differences, flips, notes = (
            connection.sql(query(__package__, name), params=values).to_arrow_table()
            for name, values in (("told", None), ("differences", None), ("flips", {"limit": n_flips}), ("notes", None))
        )
        if not any(told["n_common"].to_pylist()):
            hint = "items are known by their id, rubrics by theirs: `batchpond results --study STUDY` shows them"
            raise UsageError(f"{a} and {b} have no item, or pair of items, in common", hint=hint)
        found = _gated(connection, limits, is_margin=is_margin)
        return Compared(told, differences, flips, found, tuple(notes["note"].to_pylist()))

    with reading("the comparison"), asked(lake_path, ask) as compared:
        return compared


def _gated(connection: duckdb.DuckDBPyConnection, limits: list[tuple[str, float]], *, is_margin: bool) -> pa.Table:
    names, deltas = [name for name, _ in limits], [delta for _, delta in limits]
    values = {"metrics": names, "deltas": deltas, "is_margin": is_margin}
    found = connection.sql(query(__package__, "gates"), params=values).to_arrow_table()
    for lacking in set(names).difference(found["gate"].to_pylist()):
        known = [name for (name,) in connection.execute(_GATED).fetchall()]
        hint = did_you_mean(lacking, known, f"a gate can hold {', '.join(known)}")
        raise UsageError(f"there is no {lacking} here of which one side could be worse", hint=hint)
    return found


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
