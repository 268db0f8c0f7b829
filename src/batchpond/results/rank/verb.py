"""The verb `rank`: pair judgments through the lens, counted in SQL, to rankings with intervals.

One ranking per cell, or per what is asked for; candidates (models) are ranked where a study compares
their outputs, items otherwise.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson
import pyarrow as pa

from batchpond.errors import UsageError
from batchpond.lake.tables import reading
from batchpond.model import CELL_COLUMNS
from batchpond.results.rank.counts import SCOPE, Counts, Jury, What, counted, estimate
from batchpond.stats import adaptive, ranking
from batchpond.stats.adaptive import Prediction
from batchpond.stats.bradley_terry import Ties
from batchpond.stats.ranking import Cluster, Component, Extra, Flag, Options, Ranking
from batchpond.stats.votes import Votes, p_position, per_item
from batchpond.text import one_of
from batchpond.views import database
from batchpond.views.read import check_study

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True, slots=True)
class Request:
    """What to rank and how. `by` names the columns of the cell that tell rankings apart; () pools a whole study.

    With the word for a jury in `by`, the verdict of all judges together on each pair is what is ranked by.
    """

    study: str | None = None
    by: tuple[str, ...] = CELL_COLUMNS
    what: What = What.AUTO
    options: Options = field(default_factory=Options)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of `by`, in their own order; raises UsageError for a word that is none, or two juries."""
        juries = [*Jury]
        unknown = sorted(set(self.by) - {"study", *CELL_COLUMNS, *juries})
        if unknown or len(set(juries) & set(self.by)) > 1:
            problem = f"rankings cannot be told apart by {unknown[0]!r}" if unknown else "one jury ranks at a time"
            raise UsageError(problem, hint=f"use {', '.join(CELL_COLUMNS)}, and majority, weighted or dawid-skene")
        shown = set(self.by) | ({"provider", "request_model"} if self.jury else set())  # which jury it is
        return tuple(name for name in CELL_COLUMNS if name in shown)

    @property
    def jury(self) -> Jury | None:
        """How the words of all judges are taken as one, if they are."""
        return next((one for one in Jury if one in self.by), None)


@dataclass(frozen=True, slots=True)
class Report:
    """`items`: a row per item and ranking; `rankings`: a row per component of each ranking; `notes` on both."""

    items: pa.Table
    rankings: pa.Table
    notes: tuple[str, ...]


def options(*, ties: str, position: bool, extras: Iterable[str], seed: int, is_full: bool) -> Options:
    """Return options from their words; raises UsageError for a word that is none."""
    return Options(
        ties=one_of(Ties, ties, "way to count ties"),
        has_position=position,
        seed=seed,
        extras=frozenset(one_of(Extra, name, "further estimate") for name in extras),
        is_full=is_full,
    )


def rank(lake_path: Path, request: Request) -> Report:
    """Rank what a lake's pair judgments compare.

    Raises UsageError when there is nothing to rank or a ranking has more than ITEMS_MAX items, and
    LakeError when the judgments cannot be read.
    """
    with closing(database.connect(lake_path)) as connection:
        items, rankings, said = ranked(connection, request)
    return Report(pa.Table.from_pylist(*items), pa.Table.from_pylist(*rankings), said)


def jury(lake_path: Path, study: str | None = None) -> dict[str, pa.Table]:
    """Return how often `judges` say a word of what is another, and how likely each word is of `units`.

    That is by Dawid and Skene's model. Raises as `rank`, and where no unit was asked of two judges.
    """
    with closing(database.connect(lake_path)) as connection, reading("the juries"):
        check_study(connection, study)
        estimate(connection, study)
        return {of: connection.sql(f"FROM rank_{of}").to_arrow_table() for of in ("judges", "units")}


def ranked(connection: duckdb.DuckDBPyConnection, request: Request) -> tuple[Rows, Rows, tuple[str, ...]]:
    """Rank what `pair_judgments` of an open connection compares, as rows; raises as `rank`."""
    columns = request.columns
    if request.jury is not None and request.options.has_position:
        raise UsageError(
            "a jury's verdict on a pair is of both orders, so no position is in it",
            hint="leave out the position, or the jury",
        )
    items: list[dict[str, Any]] = []
    rankings: list[dict[str, Any]] = []
    for counts in counted(connection, request.study, request.what, columns, request.jury):
        settings = replace(request.options, cluster=_cluster(counts))
        found = ranking.rank(counts.votes, settings)
        items.extend(item_rows(counts, found, settings))
        rankings.extend(ranking_rows(counts, found, settings))
    open_juries = "SELECT count(DISTINCT (study, rubric_id)) FROM rank_units WHERE NOT is_converged"
    n_open = connection.execute(open_juries).fetchall()[0][0] if request.jury is Jury.DAWID_SKENE else 0
    if not items:
        whose = "there are no" if request.study is None else f"study {request.study!r} has no"
        raise UsageError(f"{whose} pair judgments to rank", hint="`batchpond query pair_status` shows what there is")
    extras = [name for name in EXTRA_COLUMNS if any(name in row for row in items)]
    # No tables: whoever needs none does without pandas, which Arrow loads to make them where that is installed.
    schema = pa.schema([*ITEM_SCHEMA, *(pa.field(name, pa.float64()) for name in extras)])
    return (items, schema), (rankings, RANKING_SCHEMA), tuple(notes(rankings, request.options, n_open))


def _cluster(counts: Counts) -> Cluster:
    """Return how votes are clustered: by unit for candidates, or items of several units as in lists, else by pair."""
    votes = counts.votes
    if not votes.unit.any():
        return Cluster.PAIR
    items, units = np.r_[votes.lo, votes.hi], np.r_[votes.unit, votes.unit]
    is_again = len(np.unique(items + votes.n_items * units)) > len(np.unique(items))
    return Cluster.UNIT if is_again or counts.what is What.CANDIDATES else Cluster.PAIR


def _schema(groups: Iterable[tuple[str, str]]) -> pa.Schema:
    lists = {"list": pa.list_(pa.string())}
    return pa.schema([(name, lists.get(kind) or kind) for kind, names in groups for name in names.split()])


ITEM_SCHEMA, RANKING_SCHEMA = map(_schema, orjson.loads(Path(__file__).with_name("columns.json").read_bytes()).values())
Rows = tuple[list[dict[str, Any]], pa.Schema]
EXTRA_COLUMNS: Final = ("theta_ml", "se_ml", "elo", "elo_sd", "elochoice", "trueskill_mu", "trueskill_sigma")

# Below this, a ranking without the term is said to be moved by the position.
_MOVED_P_MAX: Final = 0.05


def _scope(counts: Counts, options: Options) -> dict[str, Any]:
    is_moved = None if options.has_position else p_position(counts.votes) < _MOVED_P_MAX
    shared = {"item_kind": str(counts.what)[:-1], "is_moved_by_position": is_moved}
    return dict(zip(SCOPE, counts.scope, strict=True)) | shared


def item_rows(counts: Counts, found: Ranking, options: Options) -> Iterator[dict[str, Any]]:
    """Yield a ranking's items, best first, component by component, those without votes at the end."""
    votes = counts.votes.without_units()
    lo_won, hi_won, tied = votes.results
    has_met = np.asarray(votes.total > 0, dtype=np.float64)
    sides = (
        per_item(votes, lo_won, hi_won), per_item(votes, hi_won, lo_won), per_item(votes, tied, tied),
        per_item(votes, has_met, has_met),
    )  # fmt: skip
    scope = _scope(counts, options)
    for item in np.lexsort((found.component_rank, found.component == 0, found.component)).tolist():
        wins, losses, ties, opponents = (int(values[item]) for values in sides)
        n_comparisons = wins + losses + ties
        theta = _known(found.theta[item])
        yield scope | {
            "item": counts.names[item],
            **_ranks(found, item),
            "theta": theta,
            **{name: _known(getattr(found, name)[item]) for name in ("se", "theta_lo", "theta_hi")},
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


def _ranks(found: Ranking, item: int) -> dict[str, int | None]:
    ends = ("rank", "rank_lo", "rank_hi", "rank_lo_joint", "rank_hi_joint")
    places = {name: int(getattr(found, f"component_{name}")[item]) or None for name in ends}
    overall = places if found.is_comparable else {}
    group = {"tied_group": int(found.tied_group[item]) or None}
    return overall | {f"component_{name}": place for name, place in places.items()} | group


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def ranking_rows(counts: Counts, found: Ranking, options: Options) -> Iterator[dict[str, Any]]:
    """Yield a row per component, or a single one where no item has votes."""
    shared = _scope(counts, options) | {
        "n_components": len(found.components),
        "n_items_without_votes": int(np.sum(found.component == 0)),
        # Every judgment stands at two items.
        "n_without_verdict": sum(counts.n_without_verdict) // 2,
        "n_pending": sum(counts.n_pending) // 2,
        "is_comparable": found.is_comparable,
        "cluster": str(options.cluster),
        **_held_out(counts),
    }
    if not found.components:
        yield shared | {"n_items": 0, "n_comparisons": 0}
    for component in found.components:
        yield shared | _component_row(component, found)


def _held_out(counts: Counts) -> dict[str, Any]:
    """Return what adaptive rounds held out says of a ranking: there, it stands for reliability."""
    if counts.held_out is None:
        return {"is_reliability_valid": True}
    found = _foretold(counts.votes, counts.held_out)
    told = {"held_out_accuracy": found.accuracy, "held_out_log_loss": found.log_loss} if found else {}
    return {"is_reliability_valid": False, "n_held_out": found.n_votes if found else 0, **told}


def _foretold(everything: Votes, kept: Votes) -> Prediction | None:
    """Return how well a ranking's other votes foretell those that were held out; None without any decided."""
    if not len(kept.lo):
        return None
    whole = everything.without_units()
    counts = whole.counts.copy()
    place = np.searchsorted(whole.lo * whole.n_items + whole.hi, kept.lo * kept.n_items + kept.hi)
    counts[:, :, place] -= kept.counts
    others = Votes(whole.n_items, whole.lo, whole.hi, whole.unit, counts)
    return adaptive.predict(adaptive.fit(others), kept)


def _component_row(component: Component, found: Ranking) -> dict[str, Any]:
    flags = [set(found.flags[item]) for item in component.items]
    row = {name: getattr(component, name) for name in RANKING_SCHEMA.names if hasattr(component, name)}
    row |= {"n_items": len(component.items), **asdict(component.separation)}
    row |= {
        name: sum(flag in one for one in flags)
        for name, flag in (
            ("n_unbeaten", Flag.UNBEATEN), ("n_winless", Flag.WINLESS), ("n_few_comparisons", Flag.FEW_COMPARISONS),
            ("n_at_bridges", Flag.BRIDGE),
        )
    }  # fmt: skip
    return row if component.triads is None else row | asdict(component.triads)


def notes(rankings: Sequence[dict[str, Any]], options: Options, n_open: int = 0) -> Iterator[str]:
    """Yield what somebody who reads the numbers alone would get wrong; `n_open` estimates did not converge."""
    known = [row for row in rankings if row.get("component_id")]
    chosen = [row for row in rankings if not row["is_reliability_valid"] and row.get("component_id") in {None, 1}]
    judged = [row for row in chosen if row.get("held_out_accuracy") is not None]
    n_held_out = sum(row["n_held_out"] for row in judged)
    right = sum(row["held_out_accuracy"] * row["n_held_out"] for row in judged) / max(n_held_out, 1)
    counts = {
        "moved": sum(row["component_id"] == 1 and bool(row["is_moved_by_position"]) for row in known),
        "reliability": options.is_full and any(row.get("reliability") is not None for row in rankings),
        "adaptive": len(chosen),
        "held_out": n_held_out,
        "jury": n_open,
        "apart": sum(row["component_id"] == 1 and not row["is_comparable"] for row in known),
        "open": sum(not row["mle_exists"] for row in known),
        "unbalanced": not options.has_position and sum(row["n_pairs_unbalanced"] > 0 for row in known),
    }
    yield from (text.format(n=counts[key], right=right) for key, text in _NOTES.items() if counts[key])


_NOTES: Final = tomllib.loads(Path(__file__).with_name("notes.toml").read_text("utf-8"))
