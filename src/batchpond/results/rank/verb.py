"""The verb `rank`: pair judgments counted in SQL, a row per pair and unit, to rankings with intervals.

One ranking per cell, or per what is asked for; candidates (models) are ranked where a study compares
their outputs, items otherwise.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb
import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from batchpond.errors import UsageError
from batchpond.lake import tables
from batchpond.lake.tables import reading
from batchpond.model import CELL_COLUMNS
from batchpond.stats import adaptive, dawid_skene, ranking
from batchpond.stats.adaptive import Prediction
from batchpond.stats.bradley_terry import Ties
from batchpond.stats.ranking import Cluster, Component, Extra, Flag, Options, Ranking
from batchpond.stats.votes import Votes, p_position, per_item
from batchpond.text import one_of
from batchpond.views import database
from batchpond.views.read import check_study

if TYPE_CHECKING:
    import duckdb

SCOPE: Final = ("study", *CELL_COLUMNS)
ITEMS_MAX: Final = 5_000
RANKINGS_MAX: Final = 10_000
WORDS_MAX: Final = 50


class What(StrEnum):
    """What is ranked."""

    AUTO = "auto"
    ITEMS = "items"
    CANDIDATES = "candidates"


class Jury(StrEnum):
    """How the words of all judges are taken as one verdict on a pair, by `jury_verdicts` or by `estimate`."""

    MAJORITY = "majority"
    WEIGHTED = "weighted"
    DAWID_SKENE = "dawid-skene"


@dataclass(frozen=True, slots=True)
class Counts:
    """One scope's votes: counts per item of judgments without verdict and of those still out, beside the votes.

    `held_out` are those of the votes that adaptive rounds held out, None where pairs were chosen otherwise.
    """

    scope: tuple[str | None, ...]
    what: What
    names: list[str]
    votes: Votes
    n_without_verdict: list[int]
    n_pending: list[int]
    held_out: Votes | None = None


@dataclass(frozen=True, slots=True)
class _Study:
    """What a study's judgments differ in: its scopes by the columns asked for, and whether units differ in one.

    `has_rounds` says that some of its pairs were chosen by adaptive rounds; `who` is a condition on whose words count.
    """

    name: str
    what: What
    by: tuple[str, ...]
    scopes: list[tuple[str | None, ...]]
    has_units: bool
    has_rounds: bool
    source: str
    who: str

    @property
    def compared(self) -> tuple[str, str]:
        """The columns that name what was compared."""
        if self.what is What.CANDIDATES:
            return "candidate_first", "candidate_second"
        return "item_first", "item_second"

    @property
    def varying(self) -> list[str]:
        """The columns with several values: grouping by the others would only take time."""
        return [name for name, values in zip(self.by, zip(*self.scopes, strict=True), strict=False)
                if len(set(values)) > 1]  # fmt: skip


def counted(
    connection: duckdb.DuckDBPyConnection,
    study: str | None,
    what: What,
    by: Sequence[str],
    jury: Jury | None = None,
    source: str = "pair_judgments",
) -> Iterator[Counts]:
    """Yield the counts of every ranking asked for, in order of study and cell, from `pair_judgments` or a jury's.

    Raises UsageError for a study that is not there, and LakeError when the judgments cannot be read.
    """
    with reading("the pair judgments"):
        if source == "pair_judgments":
            check_study(connection, study)
        source = source if jury is None else _gathered(connection, study, jury)
        for found in _studies(connection, study, what, tuple(by), source):
            _count(connection, found, "rank_counts", found.who, [*found.varying, *["unit_id"] * found.has_units])
            if found.has_rounds:
                _count(connection, found, "rank_held_out", f"purpose = 'holdout' AND {found.who}", found.varying)
            yield from _scopes(connection, found)


def _gathered(connection: duckdb.DuckDBPyConnection, study: str | None, jury: Jury) -> str:
    """Make a table of what a jury holds of each pair, and return its name."""
    of_study = "" if study is None else "AND jury.study = $study"
    source = "jury_verdicts"
    if jury is Jury.DAWID_SKENE:
        estimate(connection, study, "pair")
        source = "rank_posteriors"
    gathering = tables.query(__package__, "jury", word=jury.replace("-", "_"), source=source, of_study=of_study)
    connection.execute(gathering, {"jury": str(jury)} | ({} if study is None else {"study": study}))
    return "rank_jury"


def estimate(connection: duckdb.DuckDBPyConnection, study: str | None, task: str | None = None) -> None:
    """Make the tables `rank_judges` and `rank_units` of what Dawid and Skene's model says of juries (of a task).

    Raises UsageError where no unit has two judges, and for more than WORDS_MAX words.
    """
    connection.execute(tables.query(__package__, "ballots"), {"study": study, "task": task})
    votes = connection.execute("SELECT unit_no, judge_no, word_no, jury_no FROM rank_ballots").fetchnumpy()
    if not 0 < len({*votes["word_no"].tolist()}) <= WORDS_MAX:
        problem = f"no unit was asked of two judges, or they say more than {WORDS_MAX} words"
        raise UsageError(problem, hint="`batchpond query jury_verdicts` shows what there is")
    found = dawid_skene.fit(*votes.values())
    told = {"iterations": str(found.iterations), "is_converged": str(found.is_converged.tolist())}
    for name, values in (("units", found.posterior), ("judges", found.confusion)):
        places = np.indices(values.shape).reshape(values.ndim, -1)
        names = [f"{name[:-1]}_no", "word_no", "said_no"][: values.ndim]
        connection.register("estimated", pa.table([*places, values.ravel()], [*names, "probability"]))
        connection.execute(tables.query(__package__, name, **told))


def _studies(
    connection: duckdb.DuckDBPyConnection, study: str | None, asked: What, by: tuple[str, ...], source: str
) -> Iterator[_Study]:
    where = "" if study is None else "WHERE study = $study"
    scope = "".join(f", {name}" for name in by)
    counting = tables.query(__package__, "studies", scope=scope, where=where, source=source)
    rows = connection.execute(counting, {} if study is None else {"study": study}).fetchall()
    for name in dict.fromkeys(row[0] for row in rows):
        own = [row for row in rows if row[0] == name]
        what, n_of_candidates = asked, sum(row[2] for row in own)
        if what is What.AUTO:
            what = What.CANDIDATES if n_of_candidates == sum(row[1] for row in own) else What.ITEMS
        elif what is What.CANDIDATES and n_of_candidates == 0:
            raise UsageError(f"study {name!r} does not say which model wrote what", hint="rank items instead")
        if len(own) > RANKINGS_MAX:
            raise UsageError(f"there are more than {RANKINGS_MAX:,} rankings in {name!r}", hint="name fewer columns")
        has_units, has_rounds = (any(row[place] for row in own) for place in (3, 4))
        # Where judges are pooled, people's labels stay out: they are what judges are held against.
        are_pooled = "provider" not in by and any(row[1] > row[5] for row in own)
        who = "provider <> 'human'" if are_pooled else "true"
        scopes = [row[6:] for row in own if not are_pooled or row[1] > row[5]]
        yield _Study(name, what, by, scopes, has_units, has_rounds, source, who)


def _count(connection: duckdb.DuckDBPyConnection, study: _Study, table: str, where: str, keys: Sequence[str]) -> None:
    first, second = study.compared
    pieces = {"keys": "".join(f"{name}, " for name in keys), "first": first, "second": second, "source": study.source}
    connection.execute(tables.query(__package__, "counts", table=table, where=where, **pieces), {"study": study.name})


def _scopes(connection: duckdb.DuckDBPyConnection, study: _Study) -> Iterator[Counts]:
    where = " AND ".join(f"{name} IS NOT DISTINCT FROM ${name}" for name in study.varying) or "true"
    numbering, listing = tables.query(__package__, "items", where=where), "FROM rank_items ORDER BY item_no"
    unit_no = "dense_rank() OVER (ORDER BY unit_id NULLS LAST) - 1" if study.has_units else "0"  # a missing one last
    voting = tables.query(__package__, "votes", counts="rank_counts", where=where, unit=unit_no)
    voting_held_out = tables.query(__package__, "votes", counts="rank_held_out", where=where, unit="0")
    for values in study.scopes:
        place = dict(zip(study.by, values, strict=True))
        parameters = {name: place[name] for name in study.varying}
        items = connection.execute(numbering, parameters).execute(listing).fetchmany(ITEMS_MAX + 1)
        if len(items) > ITEMS_MAX:
            raise UsageError(
                f"a ranking of more than {ITEMS_MAX:,} items has no intervals that fit in memory",
                hint="`--by` tells cells apart; SQL over pair_status counts wins for any number of items",
            )
        if items:
            names, _, n_without_verdict, n_pending, n_chosen = map(list, zip(*items, strict=True))
            votes = _votes(len(names), connection.execute(voting, parameters).fetchnumpy())
            held_out = None
            if any(n_chosen):
                held_out = _votes(len(names), connection.execute(voting_held_out, parameters).fetchnumpy()).decided()
            scope = (study.name, *(place.get(name) for name in CELL_COLUMNS))
            yield Counts(scope, study.what, names, votes, n_without_verdict, n_pending, held_out)


def _votes(n_items: int, found: Mapping[str, npt.NDArray[Any]]) -> Votes:
    counts = [[found[f"{won}_with_{first}_first"] for won in ("lo", "hi", "tied")] for first in ("lo", "hi")]
    lo, hi, unit = (found[name].astype(np.int64) for name in ("lo", "hi", "unit"))
    return Votes(n_items, lo, hi, unit, np.array(counts, dtype=np.float64))


@dataclass(frozen=True, slots=True)
class Request:
    """What to rank and how. `by` names the columns of the cell that tell rankings apart; () pools a whole study.

    With the word for a jury in `by`, the verdict of all judges together on each pair is what is ranked by. Several
    studies are ranked as one.
    """

    study: str | Sequence[str] | None = None
    by: tuple[str, ...] = CELL_COLUMNS
    what: What = What.AUTO
    options: Options = field(default_factory=lambda: Options(has_position=None))

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


def options(*, ties: str, position: bool | None, extras: Iterable[str], seed: int, is_full: bool) -> Options:
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
    named = [request.study] if isinstance(request.study, str) else [*dict.fromkeys(request.study or ())]
    study, source = next(iter(named), None), "pair_judgments"
    if len(named) > 1:
        study, source = _together(connection, named, request)
    for counts in counted(connection, study, request.what, columns, request.jury, source):
        settings = replace(request.options, cluster=_cluster(counts))
        found = ranking.rank(counts.votes, settings)
        items.extend(item_rows(counts, found))
        rankings.extend(ranking_rows(counts, found, settings))
    open_juries = "SELECT count(DISTINCT (study, rubric_id)) FROM rank_units WHERE NOT is_converged"
    n_open = connection.execute(open_juries).fetchall()[0][0] if request.jury is Jury.DAWID_SKENE else 0
    if not items:
        whose = "there are no" if study is None else f"study {study!r} has no"
        if request.jury is not None:
            alone = f"leave out `--by {request.jury}`: `rank` then takes the votes of each judge, or of the only one"
            raise UsageError(f"{whose} pairs that two judges were asked about, and one judge is no jury", hint=alone)
        raise UsageError(f"{whose} pair judgments to rank", hint="`batchpond query pair_status` shows what there is")
    extras = [name for name in EXTRA_COLUMNS if any(name in row for row in items)]
    # No tables: whoever needs none does without pandas, which Arrow loads to make them where that is installed.
    schema = pa.schema([*ITEM_SCHEMA, *(pa.field(name, pa.float64()) for name in extras)])
    return (items, schema), (rankings, RANKING_SCHEMA), tuple(notes(rankings, request.options, n_open))


def _together(connection: duckdb.DuckDBPyConnection, studies: Sequence[str], request: Request) -> tuple[str, str]:
    """Make a table of the judgments of several studies as of one, and return the name of that and of the table.

    Raises UsageError for a jury, which is of one study, a study without pairs, and answers that two of them share.
    """
    if request.jury is not None:
        raise UsageError("a jury is of one study", hint=f"leave out `--by {request.jury}`, or name one study")
    name, values = ", ".join(studies), {"studies": [*studies]}
    with reading("the pair judgments"):
        for study in studies:
            check_study(connection, study)
        connection.execute(tables.query(__package__, "together"), values | {"name": name})
        held = {name for (name,) in connection.execute("SELECT DISTINCT of_study FROM rank_together").fetchall()}
        ((n_shared,),) = connection.execute(tables.query(__package__, "shared"), values).fetchall()
    if lacking := [study for study in studies if study not in held]:
        raise UsageError(f"study {lacking[0]!r} has no pair judgments to rank", hint="leave it out")
    if n_shared:
        text = f"{n_shared:,} of the answers are of several of these studies, and each would count for each"
        raise UsageError(text, hint="rank one of them, or ask again with `repeats` in one study")
    return name, "rank_together"


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


def _scope(counts: Counts, found: Ranking) -> dict[str, Any]:
    has_position = any(component.has_position for component in found.components)
    is_moved = None if has_position else p_position(counts.votes) < _MOVED_P_MAX
    shared = {"item_kind": str(counts.what)[:-1], "has_position": has_position, "is_moved_by_position": is_moved}
    return dict(zip(SCOPE, counts.scope, strict=True)) | shared


def item_rows(counts: Counts, found: Ranking) -> Iterator[dict[str, Any]]:
    """Yield a ranking's items, best first, component by component, those without votes at the end."""
    votes = counts.votes.without_units()
    lo_won, hi_won, tied = votes.results
    has_met = np.asarray(votes.total > 0, dtype=np.float64)
    sides = (
        per_item(votes, lo_won, hi_won), per_item(votes, hi_won, lo_won), per_item(votes, tied, tied),
        per_item(votes, has_met, has_met),
    )  # fmt: skip
    scope = _scope(counts, found)
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
    shared = _scope(counts, found) | {
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
    del row["has_position"]  # of the whole ranking
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
        "position": sum(row["component_id"] == 1 and row["has_position"] for row in known),
        "moved": sum(row["component_id"] == 1 and bool(row["is_moved_by_position"]) for row in known),
        "reliability": options.is_full and any(row.get("reliability") is not None for row in rankings),
        "adaptive": len(chosen),
        "held_out": n_held_out,
        "jury": n_open,
        "apart": sum(row["component_id"] == 1 and not row["is_comparable"] for row in known),
        "open": sum(not row["mle_exists"] for row in known),
        ("confounded" if options.has_position else "unbalanced"): sum(
            row["n_pairs_unbalanced"] > 0 and not row["has_position"] and row.get("request_model") not in [*Jury]
            for row in known
        ),
    }
    yield from (text.format(n=counts[key], right=right) for key, text in _NOTES.items() if counts.get(key))


_NOTES: Final = tomllib.loads(Path(__file__).with_name("notes.toml").read_text("utf-8"))
