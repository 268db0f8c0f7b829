"""Pair judgments counted in SQL, a row per pair and unit, as the win tables that rankings start from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from batchpond.errors import UsageError
from batchpond.lake import tables
from batchpond.lake.tables import reading
from batchpond.model import CELL_COLUMNS
from batchpond.stats import dawid_skene
from batchpond.stats.votes import Votes
from batchpond.views.read import check_study

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
    connection: duckdb.DuckDBPyConnection, study: str | None, what: What, by: Sequence[str], jury: Jury | None = None
) -> Iterator[Counts]:
    """Yield the counts of every ranking asked for, in order of study and cell, from `pair_judgments` or a jury's.

    Raises UsageError for a study that is not there, and LakeError when the judgments cannot be read.
    """
    with reading("the pair judgments"):
        check_study(connection, study)
        source = "pair_judgments" if jury is None else _gathered(connection, study, jury)
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
