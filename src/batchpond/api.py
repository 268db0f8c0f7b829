"""The Python door: a lake, its verbs, and its tables as polars frames.

Each verb loads what it needs when it is called: to open a lake takes no engine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from batchpond.errors import UsageError
from batchpond.model import CELL_COLUMNS

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from batchpond.clock import Clock
    from batchpond.lake.store import Store
    from batchpond.plan.report import PlanReport
    from batchpond.run.recover import RecoverReport
    from batchpond.run.submit import SubmitPreview, SubmitReport
    from batchpond.run.sync import SyncReport


class Lake:
    """A lake folder; nothing on disk is touched before a method needs it.

    `plan` and `recover` make the folder when there is none; every other method raises UsageError then.
    """

    def __init__(self, path: str | os.PathLike[str] = "lake", *, clock: Clock | None = None) -> None:
        self.path = Path(path)
        self._clock = clock

    def __repr__(self) -> str:
        return f"Lake({str(self.path)!r})"

    def plan(self, study_path: str | os.PathLike[str]) -> PlanReport:
        """Expand a study file into requests and an estimate; talks to no provider."""
        from batchpond.lake.store import Store
        from batchpond.plan.verb import plan_study
        from batchpond.study import file as study_files

        loaded = study_files.load(Path(study_path))
        return plan_study(Store.init(self.path, self._clock), loaded)

    def submit(
        self,
        study: str,
        *,
        max_cost_usd: float | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        fresh: bool = False,
        confirm: Callable[[SubmitPreview], bool] | None = None,
    ) -> SubmitReport:
        """Send what is due of a planned study, spending at most `max_cost_usd`.

        Consent is explicit: give `max_cost_usd`, or a `confirm` that is shown the preview and
        returns whether to go on. `fresh` buys anew what another lake bought already. Raises UsageError when nobody
        agreed and it is no dry run, AttentionError when the study was bought from another lake.
        """
        from batchpond.run.session import Providers
        from batchpond.run.submit import submit
        from batchpond.run.unknown import waive

        if confirm is None and max_cost_usd is None and not dry_run:
            raise UsageError(
                "submit spends money: nobody has agreed to an amount",
                hint="pass max_cost_usd=..., or confirm=... to be asked, or dry_run=True",
            )
        store = self._store()

        def agreed(preview: SubmitPreview) -> bool:
            is_agreed = confirm is None or confirm(preview)
            if is_agreed and fresh:
                waive(store, study)
            return is_agreed

        with Providers.of_environment(store.clock, store.path) as providers:
            return submit(
                store,
                study,
                max_cost_usd=max_cost_usd,
                limit=limit,
                confirm=None if dry_run else agreed,
                providers=providers,
            )

    def recover(self, study_path: str | os.PathLike[str], *, limit: int | None = None) -> RecoverReport:
        """Plan a study file and take in every batch of it that its providers have; buys nothing.

        `limit` is the one that the study was submitted with, if any.
        """
        from batchpond.lake.store import Store
        from batchpond.plan.verb import plan_study
        from batchpond.run.recover import recover
        from batchpond.run.session import Providers
        from batchpond.study import file as study_files

        store = Store.init(self.path, self._clock)
        planned = plan_study(store, study_files.load(Path(study_path)), is_bought=True)
        with Providers.of_environment(store.clock, store.path) as providers:
            return recover(store, planned.study, providers=providers, sample=limit)

    def sync(self, *, submit_due: bool = True) -> SyncReport:
        """Reconcile lake and providers once; safe to repeat, and a no-op with nothing new."""
        from batchpond.run.session import Providers
        from batchpond.run.sync import sync_once

        store = self._store()
        with Providers.of_environment(store.clock, store.path) as providers:
            return sync_once(store, providers=providers, submit_due=submit_due)

    def sql(self, query: str) -> pl.DataFrame:
        """Run one SELECT over the views, in the sandbox of `batchpond query`.

        Its time and memory are DuckDB's to keep, inside this process: an expression such as `repeat('a', 2000000000)`
        heeds neither, and only `batchpond query`, which is a process of its own, ends it whatever it is.
        """
        import pyarrow as pa

        from batchpond.views import read

        found = read.run_query(self._store().path, query)
        for column in found.schema:
            if pa.types.is_interval(column.type):
                raise UsageError(
                    f"column {column.name} is an INTERVAL, and polars has no type for one",
                    hint="date_diff('second', BEGIN, END) is a number",
                )
        return _frame(found)

    def scan(self, table: str) -> pl.LazyFrame:
        """Return a table's published files as a lazy frame; a snapshot of the list of files.

        Warns of a file that was published and is not there.
        """
        import polars as pl

        from batchpond.lake import manifest
        from batchpond.lake.schemas import TABLES

        if table not in TABLES:
            raise UsageError(f"no table {table!r}", hint="tables: " + ", ".join(TABLES))
        empty = _frame(TABLES[table].schema.empty_table())
        files = self._store().files(table)
        for name in manifest.missing(self.path, {table} & manifest.GUARDED):
            manifest.Damage(name, manifest.GONE).warn()
        if not files:
            return empty.lazy()
        return pl.scan_parquet(files, hive_partitioning=False, schema=empty.schema)

    def results(self, study: str | None = None) -> pl.LazyFrame:
        """Return one row per planned request, of one study or of all; streams when collected."""
        return self._lazy("results", study)

    def view(self, name: str) -> pl.LazyFrame:
        """Return a view as a lazy frame that reads only the columns and rows it is asked for."""
        return self._lazy(name, None)

    def rank(
        self,
        study: str | None = None,
        *,
        by: Sequence[str] = CELL_COLUMNS,
        ties: str = "half",
        position: bool = False,
        what: str = "auto",
        extras: Iterable[str] = (),
        seed: int = 0,
        summary: bool = False,
    ) -> pl.DataFrame:
        """Return one row per item and ranking, or with `summary` one per ranking, as `batchpond rank` prints them.

        `by` names the columns of the cell that tell rankings apart; () pools a whole study. `ties` is half, davidson or
        drop; `position` takes the effect of being shown first out; `what` is auto, items or candidates; `extras` of ml,
        elo, elochoice, trueskill adds columns. Raises UsageError when there is nothing to rank.
        """
        from batchpond.results.rank import verb as rank
        from batchpond.results.rank.counts import What

        options = rank.options(ties=ties, position=position, extras=extras, seed=seed, is_full=summary)
        request = rank.Request(study, tuple(by), rank.chosen(What, what), options=options)
        report = rank.rank(self._store().path, request)
        return _frame(report.rankings if summary else report.items)

    def compare(self, a: str, b: str) -> pl.DataFrame:
        """Return one row per comparison and metric of what two sides say of the same items.

        A side is `study`, `study@version`, or some of its cells, `study:template=v2`. Differences are b - a, in the
        metric's own unit. Raises UsageError when a side is not there or nothing is in both.
        """
        from batchpond.results.compare import verb

        return _frame(verb.compare(self._store().path, a, b).differences)

    def _lazy(self, view: str, study: str | None) -> pl.LazyFrame:
        from polars.io.plugins import register_io_source

        from batchpond.views.read import arrow, stream

        path = self._store().path
        with stream(path, view, arrow, limit=0) as rows:
            schema = _frame(rows.schema.empty_table()).schema
        return register_io_source(partial(_batches, path, view, study), schema=schema)

    def _store(self) -> Store:
        from batchpond.lake.store import Store

        return Store.open(self.path, self._clock)


def _batches(
    path: Path, view: str, study: str | None, columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None,
    batch_rows: int | None,
) -> Iterator[pl.DataFrame]:  # fmt: skip
    """Yield what polars asks of a view's rows."""
    from batchpond.views.read import BATCH_ROWS, arrow, stream

    # A connection per scan, unlike DuckDB's own lazy frames: those cannot be joined with themselves.
    # With a predicate, the row limit counts rows that pass it.
    limit = n_rows if predicate is None else None
    read = partial(arrow, batch_rows=batch_rows or BATCH_ROWS)
    with stream(path, view, read, columns=columns, study=study, limit=limit) as rows:
        for frame in map(_frame, rows):
            yield frame if predicate is None else frame.filter(predicate)


def _frame(data: pa.Table | pa.RecordBatch) -> pl.DataFrame:
    import polars as pl

    frame = pl.from_arrow(data)
    if isinstance(frame, pl.Series):
        raise TypeError("a table became a series")
    return frame
