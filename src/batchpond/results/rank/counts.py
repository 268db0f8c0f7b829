"""Pair judgments counted in SQL, a row per pair and unit, as the win tables that rankings start from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from batchpond.stats.arrays import Ints
from batchpond.stats.votes import Votes, of_rows
from batchpond.views.read import check_study

SCOPE: Final = ("study", *CELL_COLUMNS)
ITEMS_MAX: Final = 5_000
RANKINGS_MAX: Final = 10_000
WORDS_MAX: Final = 50
_BATCH_ROWS: Final = 100_000

# Rows are many, and numbers that fit in 32 bits move in half the time.
_Column = npt.NDArray[np.int32]


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

    `has_rounds` says that some of its pairs were chosen by adaptive rounds.
    """

    name: str
    what: What
    by: tuple[str, ...]
    scopes: list[tuple[str | None, ...]]
    has_units: bool
    has_rounds: bool
    source: str

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
        if study is not None:
            check_study(connection, study)
        source = "pair_judgments" if jury is None else _gathered(connection, study, jury)
        for found in _studies(connection, study, what, tuple(by), source):
            _count(connection, found, "counts", [*found.varying, *["unit_id"] * found.has_units])
            if found.has_rounds:
                _count(connection, found, "adaptive", found.varying)
            yield from _scopes(connection, found)


def _gathered(connection: duckdb.DuckDBPyConnection, study: str | None, jury: Jury) -> str:
    """Make a table of what a jury holds of each pair, and return its name."""
    of_study = "" if study is None else "AND jury.study = $study"
    source = "jury_verdicts"
    if jury is Jury.DAWID_SKENE:
        estimate(connection, study)
        source = "rank_posteriors"
    gathering = tables.query(__package__, "jury", word=jury.replace("-", "_"), source=source, of_study=of_study)
    connection.execute(gathering, {"jury": str(jury)} | ({} if study is None else {"study": study}))
    return "rank_jury"


def estimate(connection: duckdb.DuckDBPyConnection, study: str | None) -> None:
    """Make the tables `rank_judges` and `rank_units` of what Dawid and Skene's model says of each jury.

    Raises UsageError where no unit has two judges, and for more than WORDS_MAX words.
    """
    connection.execute(tables.query(__package__, "ballots"), {"study": study})
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
        yield _Study(name, what, by, [row[5:] for row in own], has_units, has_rounds, source)


def _count(connection: duckdb.DuckDBPyConnection, study: _Study, table: str, keys: Sequence[str]) -> None:
    first, second = study.compared
    pieces = {"keys": "".join(f"{name}, " for name in keys), "first": first, "second": second, "source": study.source}
    connection.execute(tables.query(__package__, table, **pieces), {"study": study.name})


_COUNT_COLUMNS: Final = ("n_first", "n_second", "n_tied", "n_without_verdict", "n_pending")


def _scopes(connection: duckdb.DuckDBPyConnection, study: _Study) -> Iterator[Counts]:
    where = " AND ".join(f"{name} IS NOT DISTINCT FROM ${name}" for name in study.varying) or "true"
    texts = ["first", "second", *(["unit_id"] if study.has_units else [])]
    numbers = (f"{name}::INTEGER AS {name}" for name in _COUNT_COLUMNS)
    sql = f"SELECT {', '.join([*texts, *numbers])} FROM rank_counts WHERE {where}"
    for values in study.scopes:
        place = dict(zip(study.by, values, strict=True))
        parameters = {name: place[name] for name in study.varying}
        reader = connection.sql(sql, params=parameters).to_arrow_reader(_BATCH_ROWS)
        table = _Table()
        for batch in reader:
            table.add(batch)
        if table.names:
            found = table.counts((study.name, *(place.get(name) for name in CELL_COLUMNS)), study.what)
            if study.has_rounds:
                held_out = _held_out(connection, where, parameters, found.names)
                found = replace(found, held_out=held_out)
            yield found


def _held_out(
    connection: duckdb.DuckDBPyConnection, where: str, values: Mapping[str, Any], names: Sequence[str]
) -> Votes | None:
    """Return the votes of one scope that were held out, None where its pairs were not chosen adaptively."""
    rows = connection.execute(
        f"SELECT first_name, second_name, verdict, sum(n)::BIGINT FROM rank_adaptive WHERE {where} AND is_held_out"
        " GROUP BY ALL ORDER BY ALL",
        values,
    ).fetchall()
    is_any = connection.execute(f"SELECT count(*) FROM rank_adaptive WHERE {where}", values).fetchall()[0][0]
    if not is_any:
        return None
    place = {name: code for code, name in enumerate(names)}
    singly = [(place[first], place[second], verdict) for first, second, verdict, n in rows for _ in range(n)]
    firsts, seconds = ([row[at] for row in singly] for at in (0, 1))
    return of_rows(len(names), firsts, seconds, [row[2] for row in singly])


@dataclass(slots=True)
class _Table:
    """One scope's rows, items and units as numbers in the order in which they turned up."""

    names: dict[str, int] = field(default_factory=dict)
    units: dict[str | None, int] = field(default_factory=dict)
    columns: list[list[_Column]] = field(default_factory=list)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take a batch; raises UsageError when there are more items than a ranking can hold."""
        known: list[dict[Any, int]] = [self.names, self.names, self.units]
        n_texts = batch.num_columns - len(_COUNT_COLUMNS)
        texts = [_numbers(batch.column(place), known[place]) for place in range(n_texts)]
        if len(self.names) > ITEMS_MAX:
            raise UsageError(
                f"a ranking of more than {ITEMS_MAX:,} items has no intervals that fit in memory",
                hint="`--by` tells cells apart; SQL over pair_status counts wins for any number of items",
            )
        self.columns.append(texts + [_integers(column) for column in batch.columns[n_texts:]])

    def counts(self, scope: tuple[str | None, ...], what: What) -> Counts:
        """Add both orders of a pair up, items and units numbered in order of their names."""
        first, second, *rest = (np.concatenate(parts) for parts in zip(*self.columns, strict=True))
        names, code = _ordered(self.names)
        first, second, n_items = code[first], code[second], len(names)
        key = np.minimum(first, second) * n_items + np.maximum(first, second)
        if self.units:
            key += _ordered(self.units)[1][rest.pop(0)] * n_items**2
        found, place = np.unique(key, return_inverse=True)
        rows = len(found)
        # The first shown is the lower item or the higher one, and `won` means accordingly.
        place += rows * (first > second)
        shown = [np.bincount(place, weights=one, minlength=2 * rows) for one in rest[:3]]
        counts = np.array([[one[:rows] for one in shown], [shown[at][rows:] for at in (1, 0, 2)]])
        n_without_verdict, n_pending = (_per_item(n_items, first, second, one) for one in rest[3:])
        lo, hi = found // n_items % n_items, found % n_items
        votes = Votes(n_items, lo, hi, found // n_items**2, counts)
        return Counts(scope, what, names, votes, n_without_verdict, n_pending)


def _integers(column: pa.Array) -> _Column:
    return np.asarray(np.from_dlpack(column), np.int32)  # `to_numpy` imports pandas where that is installed


def _numbers(column: pa.Array, known: dict[Any, int]) -> _Column:
    """Return a text column as numbers, adding texts that are new to those known."""
    encoded = column.dictionary_encode("encode")
    own = np.array([known.setdefault(text, len(known)) for text in encoded.dictionary.to_pylist()], dtype=np.int32)
    return np.asarray(own[_integers(encoded.indices)])


def _ordered(known: dict[Any, int]) -> tuple[list[Any], Ints]:
    """Return texts in order, a missing one last, and each number's place in it."""
    texts = sorted(known, key=lambda text: (text is None, text))
    code = np.empty(len(texts), dtype=np.int64)
    code[[known[text] for text in texts]] = np.arange(len(texts))
    return texts, code


def _per_item(n_items: int, one: Ints, other: Ints, weight: _Column) -> list[int]:
    at = np.flatnonzero(weight)
    sides = [np.bincount(side[at], weights=weight[at], minlength=n_items) for side in (one, other)]
    return [round(value) for value in (sides[0] + sides[1]).tolist()]
