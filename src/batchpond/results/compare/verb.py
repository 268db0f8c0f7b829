"""The verb `compare`: what each of some sides says of the items of a first one, paired in SQL.

A side is a study, or an earlier version of it, or some of its cells: `essays`, `essays@k3vq7d`, `essays:template=v2`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any, Final

from batchpond.errors import UsageError
from batchpond.lake.tables import query, reading
from batchpond.text import did_you_mean
from batchpond.views.read import asked, check_study

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

KEYS: Final = ("template", "rubric", "provider", "model", "thinking", "candidate", "repeat")
VALUES_SHOWN_MAX: Final = 10
_GATED: Final = "SELECT DISTINCT metric FROM compare_metrics WHERE better IS NOT NULL ORDER BY ALL"
_LIMIT = re.compile(r"([^:]+)(?::(\d+\.?\d*|\.\d+))?")
_FORM = re.compile(r"(?P<study>.+?)(?:@(?P<version>[0-9a-z]+))?(?::(?P<where>[a-z_]+=.*))?", re.DOTALL)


@dataclass(frozen=True)
class Compared:
    """Rows: of `comparisons` per cell of a and of another `side`, of `differences` per metric, of `flips` per item.

    `gates` has what each gate says of each comparison: `is_worse` is NULL where there is no interval to decide on.
    """

    comparisons: pa.Table
    differences: pa.Table
    flips: pa.Table
    gates: pa.Table
    notes: tuple[str, ...]


def side(text: str) -> dict[str, Any]:
    """Return what `STUDY[@VERSION][:KEY=VALUE,...]` names: study, version, and by key the values, None for all of them.

    Raises UsageError for a key that is none.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise UsageError("a side of a comparison is empty", hint="name a study: `batchpond status` lists them")
    values: dict[str, Any] = {"study": found["study"], "version": found["version"], **dict.fromkeys(KEYS)}
    for part in re.split(r",(?=[a-z_]+=)", found["where"] or ""):
        key, _, value = part.partition("=")
        if key and key not in KEYS:
            raise UsageError(f"{text!r}: a side has no {key!r}", hint=did_you_mean(key, KEYS, ", ".join(KEYS)))
        if key:
            values[key] = [*(values[key] or ()), value]
    return values


def limit(text: str, *, is_margin: bool) -> tuple[str, float]:
    """Return what `METRIC[:DELTA]` says; raises UsageError for a delta that is no number from 0 on."""
    found = _LIMIT.fullmatch(text)
    if found is None:
        raise UsageError(f"{text!r} is no METRIC:DELTA, such as consistency:0.02", hint="DELTA is a number from 0 on")
    metric, delta = found[1], float(found[2] or 0)
    if is_margin and not delta:
        hint = f"--fail-if-worse {metric}:0.02 --margin"
        raise UsageError(f"--margin needs one: {metric} may be worse by how much?", hint=hint)
    return metric, delta


def compare(
    lake_path: Path, a: str, *others: str, n_flips: int = 20, gates: Sequence[str] = (), is_margin: bool = False
) -> Compared:
    """Compare what sides say of the same items, each of the others (b, c, ...) against a, and hold it to `gates`.

    Raises UsageError for a side or metric that is not there, or where nothing is in both, and LakeError when the
    judgments cannot be read.
    """
    given = named(a, *others)
    sides = {name: side(text) for name, text in given.items()}
    limits = [limit(text, is_margin=is_margin) for text in gates]
    if again := [text for place, text in enumerate(others) if text in (a, *others[:place])]:
        raise UsageError(f"both sides are {again[0]}", hint="`batchpond compare essays:template=v1 essays:template=v2`")

    def ask(connection: duckdb.DuckDBPyConnection) -> Compared:
        for name, one in sides.items():
            _take(connection, name, dict(one))
        for step in ("comparisons", "cells", "subjects", "paired", "metrics", "unmatched"):
            connection.execute(query(__package__, step))
        told, differences, flips, notes = (
            connection.sql(query(__package__, name), params=values).to_arrow_table()
            for name, values in (("told", None), ("differences", None), ("flips", {"limit": n_flips}), ("notes", None))
        )
        met = {row["side"] for row in told.select(["side", "n_common"]).to_pylist() if row["n_common"]}
        for lone in (text for name, text in given.items() if name not in {"a", *met}):
            hint = "items are known by their id, rubrics by theirs: `batchpond results --study STUDY` shows them"
            raise UsageError(f"{a} and {lone} have no item, or pair of items, in common", hint=hint)
        found = _gated(connection, limits, is_margin=is_margin)
        return Compared(told, differences, flips, found, tuple(notes["note"].to_pylist()))

    with reading("the comparison"), asked(lake_path, ask) as compared:
        return compared


def named(*sides: str) -> dict[str, str]:
    """Return sides by their letters, in order; raises UsageError for more than there are letters."""
    if len(sides) > len(ascii_lowercase):
        raise UsageError(f"{len(sides)} sides are more than {len(ascii_lowercase)}", hint="compare fewer at once")
    return dict(zip(ascii_lowercase, sides, strict=False))


def _gated(connection: duckdb.DuckDBPyConnection, limits: list[tuple[str, float]], *, is_margin: bool) -> pa.Table:
    names, deltas = [name for name, _ in limits], [delta for _, delta in limits]
    values = {"metrics": names, "deltas": deltas, "is_margin": is_margin}
    found = connection.sql(query(__package__, "gates"), params=values).to_arrow_table()
    for lacking in set(names).difference(found["gate"].to_pylist()):
        known = [name for (name,) in connection.execute(_GATED).fetchall()]
        hint = did_you_mean(lacking, known, f"a gate can hold {', '.join(known)}")
        raise UsageError(f"there is no {lacking} here of which one side could be worse", hint=hint)
    return found


def _take(connection: duckdb.DuckDBPyConnection, name: str, values: dict[str, Any]) -> None:
    """Add a side's judgments to the table `compare_said`; the first side makes it."""
    study, version, rows = values["study"], values.pop("version"), "current"
    check_study(connection, study)
    if version is not None:
        known = {"study": study, "version": version}
        found = connection.execute(query(__package__, "versions"), known).fetchall()
        if len(found) != 1:
            lacks = "no version" if not found else f"{len(found)} versions"
            hint = "`batchpond query \"select * from studies where study = '...'\"` lists them"
            raise UsageError(f"study {study!r} has {lacks} {version!r}", hint=hint)
        if not found[0][1]:
            rows, values = "earlier", values | {"version": found[0][0]}
    into = "CREATE OR REPLACE TEMP TABLE compare_said AS" if name == "a" else "INSERT INTO compare_said"
    connection.execute(query(__package__, "said", into=into, rows=query(__package__, rows)), {"side": name, **values})
    if not connection.execute("SELECT 1 FROM compare_said WHERE side = ? LIMIT 1", [name]).fetchall():
        hint = f"`batchpond results --study {study}` shows its cells; pairs that lists imply are not compared"
        raise UsageError(f"side {name} holds no judgments", hint=_nearest(connection, values) or hint)


def _nearest(connection: duckdb.DuckDBPyConnection, side: dict[str, Any]) -> str | None:
    """Return a hint for a value of a side that its study has not, if there is one."""
    found = connection.execute(query(__package__, "values"), {"study": side["study"]}).fetchall()
    known = dict(zip(KEYS, found[0], strict=True))
    for key, there in known.items():
        for value in sorted({*(side[key] or ())} - {*(there or ())}):
            listed = [*filter(None, there or ())]
            near = did_you_mean(value, listed, f"{', '.join(listed[:VALUES_SHOWN_MAX]) or 'none'} is what it has")
            return f"study {side['study']} has no {key} {value!r}: {near}"
    return None
