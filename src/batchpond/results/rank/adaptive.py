"""What adaptive rounds held out, and how well the other judgments foretell it: the honest word on such a ranking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from batchpond.lake import tables
from batchpond.stats import adaptive, votes
from batchpond.stats.adaptive import Prediction
from batchpond.stats.votes import Votes

if TYPE_CHECKING:
    import duckdb


def count(
    connection: duckdb.DuckDBPyConnection, study: str | None, columns: tuple[str, str], by: Sequence[str]
) -> None:
    """Count one study's judgments of adaptive rounds into `rank_adaptive`; `columns` name what is compared.

    Without a study, which has no such rounds, the table is empty.
    """
    first, second = columns
    scope = "".join(f"{name}, " for name in by)
    counting = tables.query(__package__, "adaptive", scope=scope, first=first, second=second)
    connection.execute(counting, {"study": study})


def held_out(
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
    return votes.of_rows(len(names), firsts, seconds, [row[2] for row in singly])


def foretold(everything: Votes, kept: Votes) -> Prediction | None:
    """Return how well a ranking's other votes foretell those that were held out; None without any decided."""
    if not len(kept.lo):
        return None
    whole = everything.without_units()
    counts = whole.counts.copy()
    place = np.searchsorted(whole.lo * whole.n_items + whole.hi, kept.lo * kept.n_items + kept.hi)
    counts[:, :, place] -= kept.counts
    others = Votes(whole.n_items, whole.lo, whole.hi, whole.unit, counts)
    return adaptive.predict(adaptive.fit(others), kept)
