"""The verb `rank`: pair judgments through the lens, counted in SQL, to rankings with intervals.

One ranking per cell, or per what is asked for; candidates (models) are ranked where a study compares
their outputs, items otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from batchpond.errors import UsageError
from batchpond.model import CELL_COLUMNS
from batchpond.results.rank.counts import Counts, What, counted
from batchpond.results.rank.rows import EXTRA_COLUMNS, ITEM_SCHEMA, RANKING_SCHEMA, item_rows, notes, ranking_rows
from batchpond.stats import ranking
from batchpond.stats.bradley_terry import Ties
from batchpond.stats.ranking import Cluster, Extra, Options
from batchpond.views import database

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True, slots=True)
class Request:
    """What to rank and how. `by` names the columns of the cell that tell rankings apart; () pools a whole study."""

    study: str | None = None
    by: tuple[str, ...] = CELL_COLUMNS
    what: What = What.AUTO
    options: Options = field(default_factory=Options)


@dataclass(frozen=True, slots=True)
class Report:
    """`items`: a row per item and ranking; `rankings`: a row per component of each ranking; `notes` on both."""

    items: pa.Table
    rankings: pa.Table
    notes: tuple[str, ...]


_Word = TypeVar("_Word", bound=StrEnum)


def chosen(words: type[_Word], word: str) -> _Word:
    """Return the member of an enumeration; raises UsageError that lists them."""
    try:
        return words(word)
    except ValueError:
        raise UsageError(f"{word!r} is none of {', '.join(words)}") from None


def options(*, ties: str, position: bool, extras: Iterable[str], seed: int, is_full: bool) -> Options:
    """Return options from their words; raises UsageError for a word that is none."""
    return Options(
        ties=chosen(Ties, ties),
        has_position=position,
        seed=seed,
        extras=frozenset(chosen(Extra, name) for name in extras),
        is_full=is_full,
    )


def rank(lake_path: Path, request: Request) -> Report:
    """Rank what a lake's pair judgments compare.

    Raises UsageError when there is nothing to rank or a ranking has more than ITEMS_MAX items, and
    LakeError when the judgments cannot be read.
    """
    with closing(database.connect(lake_path)) as connection:
        return ranked(connection, request)


def ranked(connection: duckdb.DuckDBPyConnection, request: Request) -> Report:
    """Rank what the view `pair_judgments` of an open connection compares; raises as `rank`."""
    unknown = set(request.by) - set(CELL_COLUMNS)
    if unknown:
        hint = f"use {', '.join(CELL_COLUMNS)}"
        raise UsageError(f"rankings cannot be told apart by {sorted(unknown)[0]!r}", hint=hint)
    items: list[dict[str, Any]] = []
    rankings: list[dict[str, Any]] = []
    for counts in counted(connection, request.study, request.what, request.by):
        settings = replace(request.options, cluster=_cluster(counts))
        found = ranking.rank(counts.votes, settings)
        items.extend(item_rows(counts, found, settings))
        rankings.extend(ranking_rows(counts, found, settings))
    if not items:
        whose = "there are no" if request.study is None else f"study {request.study!r} has no"
        raise UsageError(f"{whose} pair judgments to rank", hint="`batchpond query pair_status` shows what there is")
    extras = [name for name in EXTRA_COLUMNS if any(name in row for row in items)]
    schema = pa.schema([*ITEM_SCHEMA, *(pa.field(name, pa.float64()) for name in extras)])
    return Report(
        pa.Table.from_pylist(items, schema=schema),
        pa.Table.from_pylist(rankings, schema=RANKING_SCHEMA),
        tuple(notes(rankings, request.options)),
    )


def _cluster(counts: Counts) -> Cluster:
    """Return how votes are clustered: by unit for candidates and where a pair met in several units, else by pair."""
    votes = counts.votes
    if not votes.unit.any():
        return Cluster.PAIR
    meets_again = len(np.unique(votes.lo * votes.n_items + votes.hi)) < len(votes.lo)
    return Cluster.UNIT if meets_again or counts.what is What.CANDIDATES else Cluster.PAIR
