"""The verb `rank`: pair judgments through the lens, counted in SQL, to rankings with intervals.

One ranking per cell, or per what is asked for; candidates (models) are ranked where a study compares
their outputs, items otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

import duckdb
import numpy as np
import pyarrow as pa

from batchpond import lens
from batchpond.errors import LakeError, UsageError
from batchpond.stats import ranking
from batchpond.stats.bradley_terry import Ties
from batchpond.stats.ranking import Cluster, Component, Extra, Flag, Options, Ranking
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


class ClusterChoice(StrEnum):
    """How votes are clustered; AUTO is by unit for candidates and where a pair met in several units, else by pair."""

    AUTO = "auto"
    PAIR = "pair"
    UNIT = "unit"


@dataclass(frozen=True, slots=True)
class Request:
    """What to rank and how. `by` names the columns of the cell that tell rankings apart; () pools a whole study."""

    study: str | None = None
    by: tuple[str, ...] = CELL
    what: What = What.AUTO
    cluster: ClusterChoice = ClusterChoice.AUTO
    options: Options = field(default_factory=Options)


@dataclass(frozen=True, slots=True)
class Report:
    """`items`: a row per item and ranking; `rankings`: a row per component of each ranking; with what to say of them."""

    items: pa.Table
    rankings: pa.Table
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Counts:
    """One scope's votes: counts per item of judgments without verdict and of those still out, beside the votes."""

    scope: tuple[str | None, ...]
    what: What
    names: list[str]
    votes: Votes
    n_without_verdict: list[int]
    n_pending: list[int]


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
    unknown = set(request.by) - set(CELL)
    if unknown:
        raise UsageError(f"rankings cannot be told apart by {sorted(unknown)[0]!r}", hint=f"use {', '.join(CELL)}")
    items: list[dict[str, Any]] = []
    rankings: list[dict[str, Any]] = []
    for counts in counted(lake_path, request):
        settings = replace(request.options, cluster=_cluster(counts, request.cluster))
        found = ranking.rank(counts.votes, settings)
        items.extend(_item_rows(counts, found))
        rankings.extend(_ranking_rows(counts, found, settings))
    if not items:
        raise UsageError(_nothing(request), hint="`batchpond query pair_status` shows what there is")
    extras = [name for name in _EXTRA_COLUMNS if any(name in row for row in items)]
    schema = pa.schema([*_ITEM_SCHEMA, *(pa.field(name, pa.float64()) for name in extras)])
    return Report(
        pa.Table.from_pylist(items, schema=schema),
        pa.Table.from_pylist(rankings, schema=_RANKING_SCHEMA),
        tuple(_notes(rankings, request.options)),
    )


def _nothing(request: Request) -> str:
    if request.study is not None:
        return f"study {request.study!r} has no pair judgments to rank"
    return "there are no pair judgments to rank"


def counted(lake_path: Path, request: Request) -> Iterator[Counts]:
    """Yield the counts of every ranking asked for, in order of study and cell."""
    with closing(lens.connect(lake_path)) as connection:
        try:
            for study, what in _studies(connection, request):
                _count(connection, study, what, request.by)
                yield from _scopes(connection, study, what, request.by)
        except duckdb.Error as error:
            raise LakeError(
                f"the pair judgments could not be read: {str(error).splitlines()[0]}",
                hint="`batchpond doctor` names a damaged file; the others are not affected",
            ) from error


def _studies(connection: duckdb.DuckDBPyConnection, request: Request) -> list[tuple[str, What]]:
    """Return each study with pair judgments and what to rank in it."""
    where = "" if request.study is None else "WHERE study = $study"
    found = connection.execute(
        f"SELECT study, count(*), count(*) FILTER (WHERE candidate_first IS NOT NULL AND candidate_second IS NOT NULL)"
        f" FROM pair_judgments {where} GROUP BY study ORDER BY study",
        {} if request.study is None else {"study": request.study},
    ).fetchall()
    studies = []
    for study, n_rows, n_of_candidates in found:
        what = request.what
        if what is What.AUTO:
            what = What.CANDIDATES if n_of_candidates == n_rows else What.ITEMS
        elif what is What.CANDIDATES and n_of_candidates == 0:
            raise UsageError(f"study {study!r} does not say which model wrote what", hint="rank items instead")
        studies.append((study, what))
    return studies


def _count(connection: duckdb.DuckDBPyConnection, study: str, what: What, by: Sequence[str]) -> None:
    """Count one study's judgments into `rank_counts`, a row per scope, unit and pair, items as numbers by name."""
    first, second = ("candidate_first", "candidate_second") if what is What.CANDIDATES else ("item_first", "item_second")
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


def _scopes(
    connection: duckdb.DuckDBPyConnection, study: str, what: What, by: Sequence[str]
) -> Iterator[Counts]:
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
        SELECT lo.code AS lo, hi.code AS hi, dense_rank() OVER (ORDER BY unit_id) - 1 AS unit, {", ".join(_COUNT_COLUMNS)}
        FROM (SELECT * FROM rank_named WHERE {where}) AS counted
        JOIN rank_names AS lo ON lo.name = lo_name JOIN rank_names AS hi ON hi.name = hi_name
        ORDER BY unit, lo, hi
        """,
        params=values,
    ).to_arrow_table()
    column = {name: table[name].to_numpy() for name in table.column_names}
    lo, hi, unit = (column[name].astype(np.int64) for name in ("lo", "hi", "unit"))
    counts = np.array([column[name] for name in _COUNT_COLUMNS[:6]], dtype=np.float64).reshape(2, 3, len(lo))
    asides = [
        np.rint(_per_item(len(names), lo, hi, column[name])).astype(int).tolist() for name in _COUNT_COLUMNS[6:]
    ]
    return Counts(scope, what, names, Votes(len(names), lo, hi, unit, counts), *asides)


def _per_item(n_items: int, lo: Any, hi: Any, weight: Any) -> Any:
    return np.bincount(lo, weights=weight, minlength=n_items) + np.bincount(hi, weights=weight, minlength=n_items)


def _cluster(counts: Counts, choice: ClusterChoice) -> Cluster:
    match choice:
        case ClusterChoice.PAIR:
            return Cluster.PAIR
        case ClusterChoice.UNIT:
            return Cluster.UNIT
        case ClusterChoice.AUTO:
            votes = counts.votes
            if not votes.unit.any():
                return Cluster.PAIR
            n_pairs = len(np.unique(votes.lo * votes.n_items + votes.hi))
            meets_again = n_pairs < len(votes.lo)
            return Cluster.UNIT if meets_again or counts.what is What.CANDIDATES else Cluster.PAIR


_TEXTS: Final = [pa.field(name, pa.string()) for name in SCOPE]
_ITEM_SCHEMA: Final = pa.schema(
    [
        *_TEXTS,
        pa.field("item", pa.string()),
        pa.field("item_kind", pa.string()),
        *(pa.field(name, pa.int64()) for name in ("rank", "rank_lo", "rank_hi", "tied_group")),
        *(pa.field(name, pa.float64()) for name in ("theta", "se", "theta_lo", "theta_hi", "elo_scale")),
        *(
            pa.field(name, pa.int64())
            for name in (
                "component_id", "component_rank", "component_rank_lo", "component_rank_hi", "n_comparisons", "n_wins",
                "n_losses", "n_ties", "n_opponents", "n_without_verdict", "n_pending",
            )
        ),
        pa.field("win_rate", pa.float64()),
        pa.field("flags", pa.list_(pa.string())),
    ]
)  # fmt: skip
_EXTRA_COLUMNS: Final = ("theta_ml", "se_ml", "elo", "elo_sd", "elochoice", "trueskill_mu", "trueskill_sigma")
_RANKING_SCHEMA: Final = pa.schema(
    [
        *_TEXTS,
        pa.field("item_kind", pa.string()),
        *(
            pa.field(name, pa.int64())
            for name in (
                "component_id", "n_components", "n_items", "n_items_without_votes", "n_pairs", "n_pairs_unbalanced",
                "n_comparisons", "n_ties", "n_without_verdict", "n_pending", "n_strong_groups",
            )
        ),
        pa.field("is_comparable", pa.bool_()),
        pa.field("mle_exists", pa.bool_()),
        *(pa.field(name, pa.int64()) for name in ("n_unbeaten", "n_winless", "n_few_comparisons", "n_at_bridges")),
        pa.field("cluster", pa.string()),
        pa.field("n_clusters", pa.int64()),
        *(
            pa.field(name, pa.float64())
            for name in ("reliability", "strata", "eta", "eta_se", "eta_p", "eta_lr", "eta_lr_p")
        ),
        pa.field("is_eta_lr_penalised", pa.bool_()),
        pa.field("nu", pa.float64()),
        *(pa.field(name, pa.int64()) for name in ("rank_change_ties_dropped", "rank_change_ties_davidson")),
        *(pa.field(name, pa.int64()) for name in ("n_triads", "n_cyclic")),
        *(pa.field(name, pa.float64()) for name in ("n_cyclic_expected", "p_cyclic_excess", "zeta")),
        pa.field("iterations", pa.int64()),
        pa.field("score_max", pa.float64()),
    ]
)  # fmt: skip


def _item_rows(counts: Counts, found: Ranking) -> Iterator[dict[str, Any]]:
    votes, n = counts.votes.without_units(), found.n_items
    lo_won, hi_won, tied = votes.results
    per_item = (
        _per_side(n, votes, lo_won, hi_won), _per_side(n, votes, hi_won, lo_won), _per_side(n, votes, tied, tied),
        _per_side(n, votes, (votes.total > 0) * 1.0, (votes.total > 0) * 1.0),
    )  # fmt: skip
    scope = dict(zip(SCOPE, counts.scope, strict=True)) | {"item_kind": str(counts.what)[:-1]}
    for item in np.lexsort((found.component_rank, found.component == 0, found.component)).tolist():
        wins, losses, ties, opponents = (int(values[item]) for values in per_item)
        n_comparisons = wins + losses + ties
        theta = _known(found.theta[item])
        yield scope | {
            "item": counts.names[item],
            **_ranks(found, item),
            "theta": theta,
            "se": _known(found.se[item]),
            "theta_lo": _known(found.theta_lo[item]),
            "theta_hi": _known(found.theta_hi[item]),
            "elo_scale": None if theta is None else ranking.ELO_CENTRE + ranking.ELO_PER_THETA * theta,
            "component_id": int(found.component[item]) or None,
            "n_comparisons": n_comparisons,
            "n_wins": wins,
            "n_losses": losses,
            "n_ties": ties,
            "n_opponents": opponents,
            "n_without_verdict": counts.n_without_verdict[item],
            "n_pending": counts.n_pending[item],
            "win_rate": (wins + ties / 2) / n_comparisons if n_comparisons else None,
            "flags": [str(flag) for flag in found.flags[item]],
            **{name: _known(values[item]) for name, values in found.extras.items()},
        }


def _per_side(n_items: int, votes: Votes, lo: Any, hi: Any) -> Any:
    return np.bincount(votes.lo, weights=lo, minlength=n_items) + np.bincount(votes.hi, weights=hi, minlength=n_items)


def _ranks(found: Ranking, item: int) -> dict[str, int | None]:
    places = {
        "component_rank": int(found.component_rank[item]) or None,
        "component_rank_lo": int(found.component_rank_lo[item]) or None,
        "component_rank_hi": int(found.component_rank_hi[item]) or None,
    }
    overall = {name.removeprefix("component_"): place if found.is_comparable else None for name, place in places.items()}
    return places | overall | {"tied_group": int(found.tied_group[item]) or None}


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _ranking_rows(counts: Counts, found: Ranking, options: Options) -> Iterator[dict[str, Any]]:
    shared = dict(zip(SCOPE, counts.scope, strict=True)) | {
        "item_kind": str(counts.what)[:-1],
        "n_components": len(found.components),
        "n_items_without_votes": int(np.sum(found.component == 0)),
        # Every judgment stands at two items.
        "n_without_verdict": sum(counts.n_without_verdict) // 2,
        "n_pending": sum(counts.n_pending) // 2,
        "is_comparable": found.is_comparable,
        "cluster": str(options.cluster),
    }
    if not found.components:
        yield shared | {"n_items": 0, "n_comparisons": 0}
    for component in found.components:
        yield shared | _component_row(component, found)


def _component_row(component: Component, found: Ranking) -> dict[str, Any]:
    flags = [set(found.flags[item]) for item in component.items]
    same = (
        "component_id", "n_pairs", "n_pairs_unbalanced", "n_comparisons", "n_ties", "n_strong_groups", "mle_exists",
        "n_clusters", "eta", "eta_se", "eta_p", "eta_lr", "eta_lr_p", "is_eta_lr_penalised", "nu",
        "rank_change_ties_dropped", "rank_change_ties_davidson", "iterations", "score_max",
    )  # fmt: skip
    row = {name: getattr(component, name) for name in same}
    row |= {"n_items": len(component.items)}
    row |= {"reliability": component.separation.reliability, "strata": component.separation.strata}
    row |= {
        name: sum(flag in one for one in flags)
        for name, flag in (
            ("n_unbeaten", Flag.UNBEATEN), ("n_winless", Flag.WINLESS), ("n_few_comparisons", Flag.FEW_COMPARISONS),
            ("n_at_bridges", Flag.BRIDGE),
        )
    }  # fmt: skip
    if component.triads is not None:
        circles = component.triads
        row |= {"n_triads": circles.n_triads, "n_cyclic": circles.n_cyclic, "zeta": circles.zeta}
        row |= {"n_cyclic_expected": circles.n_cyclic_expected, "p_cyclic_excess": circles.p_excess}
    return row


def _notes(rankings: Sequence[dict[str, Any]], options: Options) -> Iterator[str]:
    """Yield what somebody who reads the numbers alone would get wrong."""
    if options.is_full and any(row.get("reliability") is not None for row in rankings):
        yield "reliability holds for pairs chosen without looking at answers; adaptive rounds raise it even among equals"
    apart = sum(row["component_id"] == 1 and not row["is_comparable"] for row in rankings if row.get("component_id"))
    if apart:
        yield (
            f"{apart:,} of the rankings fall into parts that no judgment connects: ranks across parts do not exist, "
            "component_rank is the place inside a part"
        )
    n_open = sum(not row["mle_exists"] for row in rankings if row.get("component_id"))
    if n_open:
        yield (
            f"in {n_open:,} of the rankings some items only won or only lost against the rest: nothing bounds how far "
            "away they are, and their intervals are open at that end"
        )
    unbalanced = sum(row["n_pairs_unbalanced"] > 0 for row in rankings if row.get("component_id"))
    if unbalanced and not options.has_position:
        yield (
            f"in {unbalanced:,} of the rankings some pairs were not judged equally often in both orders, so a position "
            "effect moves theta: --position takes it out"
        )
