"""Pair judgments counted in SQL, a row per pair and unit, as the win tables that rankings start from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np

from batchpond import lens
from batchpond.errors import LakeError, UsageError
from batchpond.stats.arrays import Ints
from batchpond.stats.votes import Votes

CELL: Final = ("template_id", "rubric_id", "provider", "request_model", "thinking")
SCOPE: Final = ("study", *CELL)
ITEMS_MAX: Final = 5_000
RANKINGS_MAX: Final = 10_000


class What(StrEnum):
    """What is ranked."""

    AUTO = "auto"
    ITEMS = "items"
    CANDIDATES = "candidates"


@dataclass(frozen=True, slots=True)
class Counts:
    """One scope's votes: counts per item of judgments without verdict and of those still out, beside the votes."""

    scope: tuple[str | None, ...]
    what: What
    names: list[str]
    votes: Votes
    n_without_verdict: list[int]
    n_pending: list[int]


def counted(lake_path: Path, study: str | None, what: What, by: Sequence[str]) -> Iterator[Counts]:
    """Yield the counts of every ranking asked for, in order of study and cell."""
    with closing(lens.connect(lake_path)) as connection:
        try:
            for name, chosen in _studies(connection, study, what):
                _count(connection, name, chosen, by)
                yield from _scopes(connection, name, chosen, by)
        except duckdb.Error as error:
            raise LakeError(
                f"the pair judgments could not be read: {str(error).splitlines()[0]}",
                hint="`batchpond doctor` names a damaged file; the others are not affected",
            ) from error


def _studies(connection: duckdb.DuckDBPyConnection, study: str | None, asked: What) -> list[tuple[str, What]]:
    """Return each study with pair judgments and what to rank in it."""
    where = "" if study is None else "WHERE study = $study"
    found = connection.execute(
        f"SELECT study, count(*), count(*) FILTER (WHERE candidate_first IS NOT NULL AND candidate_second IS NOT NULL)"
        f" FROM pair_judgments {where} GROUP BY study ORDER BY study",
        {} if study is None else {"study": study},
    ).fetchall()
    studies = []
    for name, n_rows, n_of_candidates in found:
        what = asked
        if what is What.AUTO:
            what = What.CANDIDATES if n_of_candidates == n_rows else What.ITEMS
        elif what is What.CANDIDATES and n_of_candidates == 0:
            raise UsageError(f"study {name!r} does not say which model wrote what", hint="rank items instead")
        studies.append((name, what))
    return studies


def _count(connection: duckdb.DuckDBPyConnection, study: str, what: What, by: Sequence[str]) -> None:
    """Count one study's judgments into `rank_counts`, a row per scope, unit and pair, items as numbers by name."""
    first, second = (
        ("candidate_first", "candidate_second") if what is What.CANDIDATES else ("item_first", "item_second")
    )
    scope = "".join(f"{name}, " for name in by)
    connection.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE rank_named AS
        SELECT {scope} unit_id, least({first}, {second}) AS lo_name, greatest({first}, {second}) AS hi_name,
          count(*) FILTER (WHERE {first} < {second} AND verdict = 'first') AS lo_won_lo_first,
          count(*) FILTER (WHERE {first} < {second} AND verdict = 'second') AS hi_won_lo_first,
          count(*) FILTER (WHERE {first} < {second} AND verdict = 'tie') AS tied_lo_first,
          count(*) FILTER (WHERE {first} > {second} AND verdict = 'second') AS lo_won_hi_first,
          count(*) FILTER (WHERE {first} > {second} AND verdict = 'first') AS hi_won_hi_first,
          count(*) FILTER (WHERE {first} > {second} AND verdict = 'tie') AS tied_hi_first,
          count(*) FILTER (WHERE outcome IS NOT NULL AND verdict IS NULL) AS n_without_verdict,
          count(*) FILTER (WHERE outcome IS NULL) AS n_pending
        FROM pair_judgments
        WHERE study = $study AND {first} <> {second}
        GROUP BY {scope} unit_id, lo_name, hi_name
        """,
        {"study": study},
    )


_COUNT_COLUMNS: Final = (
    "lo_won_lo_first", "hi_won_lo_first", "tied_lo_first", "lo_won_hi_first", "hi_won_hi_first", "tied_hi_first",
    "n_without_verdict", "n_pending",
)  # fmt: skip


def _scopes(connection: duckdb.DuckDBPyConnection, study: str, what: What, by: Sequence[str]) -> Iterator[Counts]:
    keys = ", ".join(by) or "NULL"
    scopes = connection.execute(f"SELECT DISTINCT {keys} FROM rank_named ORDER BY ALL").fetchall()
    if len(scopes) > RANKINGS_MAX:
        raise UsageError(f"there are more than {RANKINGS_MAX:,} rankings in {study!r}", hint="name fewer columns")
    for values in scopes:
        where = " AND ".join(f"{name} IS NOT DISTINCT FROM ${name}" for name in by) or "true"
        parameters = dict(zip(by, values, strict=False))
        place = {name: parameters.get(name) for name in CELL}
        yield _scope(connection, (study, *place.values()), what, where, parameters)


def _scope(
    connection: duckdb.DuckDBPyConnection, scope: tuple[str | None, ...], what: What, where: str, values: dict[str, Any]
) -> Counts:
    names = [
        row[0]
        for row in connection.execute(
            f"SELECT DISTINCT unnest([lo_name, hi_name]) AS name FROM rank_named WHERE {where} ORDER BY name", values
        ).fetchall()
    ]
    if len(names) > ITEMS_MAX:
        raise UsageError(
            f"a ranking of {len(names):,} items is more than the {ITEMS_MAX:,} whose intervals fit in memory",
            hint="`--by` tells cells apart; SQL over pair_status counts wins for any number of items",
        )
    connection.execute("CREATE OR REPLACE TEMP TABLE rank_names AS SELECT unnest($names) AS name, "
                       "unnest(range(len($names))) AS code", {"names": names})  # fmt: skip
    table = connection.sql(
        f"""
        SELECT
          lo.code AS lo, hi.code AS hi, dense_rank() OVER (ORDER BY unit_id) - 1 AS unit, {", ".join(_COUNT_COLUMNS)}
        FROM (SELECT * FROM rank_named WHERE {where}) AS counted
        JOIN rank_names AS lo ON lo.name = lo_name JOIN rank_names AS hi ON hi.name = hi_name
        ORDER BY unit, lo, hi
        """,
        params=values,
    ).to_arrow_table()
    column = {name: table[name].to_numpy() for name in table.column_names}
    lo, hi, unit = (column[name].astype(np.int64) for name in ("lo", "hi", "unit"))
    counts = np.array([column[name] for name in _COUNT_COLUMNS[:6]], dtype=np.float64).reshape(2, 3, len(lo))
    asides = [np.rint(_per_item(len(names), lo, hi, column[name])).astype(int).tolist() for name in _COUNT_COLUMNS[6:]]
    return Counts(scope, what, names, Votes(len(names), lo, hi, unit, counts), *asides)


def _per_item(n_items: int, lo: Ints, hi: Ints, weight: Any) -> Any:
    return np.bincount(lo, weights=weight, minlength=n_items) + np.bincount(hi, weights=weight, minlength=n_items)
