"""An engine that speaks Spark SQL, given rows and asked views, and what its answer differs in from DuckDB's.

BATCHPOND_SPARK names it: `sail` starts Sail in a process of its own; `local` starts Spark on a Java virtual machine,
where the package pyspark is there; an address as `sc://host:15002` is that of a Spark Connect server.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

VARIABLE: Final = "BATCHPOND_SPARK"
HOW: Final = "pip install -r tests/spark/requirements.txt; then set BATCHPOND_SPARK=sail"
ASKED_WITHIN_S: Final = 900.0


def name() -> str:
    """Return which engine is asked for; skips, loudly, where none is."""
    return os.environ.get(VARIABLE) or pytest.skip(f"NOT RUN on an engine of Spark SQL: {HOW}")


@contextmanager
def session() -> Iterator[Any]:
    """Open a session of the engine that is asked for."""
    engine = name()
    from batchpond_spark import engine as product

    main = sys.modules["__main__"]
    if not hasattr(main, "__file__"):
        main.__file__ = __file__  # else Spark's client takes a worker of xdist for its own doctests, and ends it
    with product.session(product.LOCAL if engine == "local" else engine, Path(tempfile.gettempdir())) as spark:
        yield spark


def give(spark: Any, name: str, rows: pa.Table) -> None:
    """Let the engine have rows as a temporary view."""
    from pyspark.sql.pandas.types import from_arrow_schema

    frame = spark.createDataFrame(rows if rows.num_rows else [], from_arrow_schema(rows.schema))
    frame.createOrReplaceTempView(name)


def ask(spark: Any, sql: str) -> pa.Table:
    """Return an answer as Arrow has it."""
    return spark.sql(sql).toArrow()


def differences(wanted: pa.Table, got: pa.Table, grain: tuple[str, ...]) -> list[str]:
    """Return in what two tables differ, row by row in order of the grain; numbers to 1e-9."""
    if set(wanted.column_names) != set(got.column_names):
        return [f"columns {sorted(set(wanted.column_names) ^ set(got.column_names))}"]
    ours, theirs = (
        sorted(table.to_pylist(), key=lambda row: [_key(row[name]) for name in grain]) for table in (wanted, got)
    )
    if len(ours) != len(theirs):
        return [f"{len(theirs)} rows instead of {len(ours)}"]
    return [
        f"row {number}: {name} is {there[name]!r} instead of {here[name]!r}"
        for number, (here, there) in enumerate(zip(ours, theirs, strict=True), 1)
        for name in wanted.column_names
        if not _agree(name, here[name], there[name])
    ]


def _agree(name: str, here: Any, there: Any) -> bool:
    """Whether two values of a column are the same, as far as they can be."""
    if name == "clusters":
        return bool(_unhashed(here) == _unhashed(there))
    return _same(here, there) or _is_by_now(name, here, there)


def _unhashed(clusters: Any) -> Any:
    """Return how much each cluster holds, without the hash that tells it apart: each engine makes its own."""
    return sorted(map(_unhashed, clusters), key=str) if isinstance(clusters, list) else int(clusters["value"])


def _is_by_now(name: str, here: Any, there: Any) -> bool:
    """Whether two values are the same age, each measured when it was asked for."""
    return name.endswith("_age_s") and None not in (here, there) and abs(here - there) < ASKED_WITHIN_S


def _key(value: Any) -> tuple[bool, str]:
    return value is not None, str(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def _same(here: Any, there: Any) -> bool:
    here, there = _plain(here), _plain(there)
    if isinstance(here, list) and isinstance(there, list):
        return len(here) == len(there) and all(map(_same, here, there))
    if isinstance(here, dict) and isinstance(there, dict):
        return here.keys() == there.keys() and all(_same(here[name], there[name]) for name in here)
    if isinstance(here, float) and isinstance(there, int | float) and not isinstance(there, bool):
        return math.isclose(here, there, rel_tol=1e-9, abs_tol=1e-12) or (math.isnan(here) and math.isnan(there))
    return type(here) is type(there) and bool(here == there)
