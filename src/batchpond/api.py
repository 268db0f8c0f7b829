"""The Python door: a lake, its verbs, and its tables as polars frames.

Each verb loads what it needs when it is called: to open a lake takes no engine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

from batchpond.errors import UsageError, needed
from batchpond.model import CELL_COLUMNS
from batchpond.text import one_of

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from batchpond.clock import Clock, Work
    from batchpond.doctor import Finding
    from batchpond.interop.imports import ForeignReport, ImportReport
    from batchpond.interop.labels import Sheet
    from batchpond.lake.attempts import Attempt
    from batchpond.lake.store import Store
    from batchpond.plan.report import PlanReport
    from batchpond.run.adopt import Adoption
    from batchpond.run.due import FailureCount
    from batchpond.run.live.run import LiveReport
    from batchpond.run.recover import RecoverReport
    from batchpond.run.resolve import CancelReport
    from batchpond.run.session import Providers
    from batchpond.run.submit import RetryReport, SubmitPreview, SubmitReport
    from batchpond.run.sync import SyncReport
    from batchpond.study.objects import Frame, Study
    from batchpond_browse.spool import Spool
    from batchpond_report.page import LinkTo
    from batchpond_report.parts import Report

_NOBODY_AGREED = "pass max_cost_usd=..., or confirm=... to be asked, or dry_run=True"


class Lake:
    """A lake folder; nothing on disk is touched before a method needs it.

    `plan`, `recover` and `import_judgments` make the folder when there is none; every other method raises UsageError
    then. Any thread may call any method: nothing is held open between two calls, and a verb that writes raises
    BusyError while another writes.
    """

    def __init__(self, path: str | os.PathLike[str] = "lake", *, clock: Clock | None = None) -> None:
        self.path = Path(path)
        self._clock = clock

    def __repr__(self) -> str:
        return f"Lake({str(self.path)!r})"

    def plan(self, study: str | os.PathLike[str] | Study) -> PlanReport:
        """Expand a study, a file or objects, into requests and an estimate; talks to no provider."""
        from batchpond.plan.verb import plan_file
        from batchpond.study.objects import file_of

        with file_of(study) as path:
            return plan_file(self.path, path, clock=self._clock)

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
        from batchpond.run.submit import Bounds, submit
        from batchpond.run.unknown import waive

        if confirm is None and max_cost_usd is None and not dry_run:
            raise UsageError("submit spends money: nobody has agreed to an amount", hint=_NOBODY_AGREED)
        with self._connected() as (store, providers):

            def agreed(preview: SubmitPreview) -> bool:
                is_agreed = confirm is None or confirm(preview)
                if is_agreed and fresh:
                    waive(store, study)
                return is_agreed

            return submit(
                store,
                study,
                Bounds(max_cost_usd, limit),
                confirm=None if dry_run else agreed,
                providers=providers,
            )

    def retry(
        self,
        study: str,
        *,
        classes: Iterable[str] = (),
        max_attempts: int | None = None,
        max_cost_usd: float | None = None,
        dry_run: bool = False,
        confirm: Callable[[SubmitPreview, tuple[FailureCount, ...]], bool] | None = None,
    ) -> RetryReport:
        """Ask the failed requests of a submitted study once more; consent as for `submit`.

        Only what failed in one of `classes` (such as `transient` or `expired`), if any are given, and what was in
        fewer than `max_attempts` batches. Raises UsageError for a plan that was never submitted.
        """
        from batchpond.model import ErrorClass
        from batchpond.run.submit import retry

        if confirm is None and max_cost_usd is None and not dry_run:
            raise UsageError("retry spends money: nobody has agreed to an amount", hint=_NOBODY_AGREED)
        chosen = [one_of(ErrorClass, name, "class of failures") for name in classes]
        with self._connected() as (store, providers):
            return retry(
                store,
                study,
                classes=chosen,
                max_attempts=max_attempts,
                max_cost_usd=max_cost_usd,
                confirm=None if dry_run else confirm or (lambda *_: True),
                providers=providers,
            )

    def live(
        self, *studies: str, concurrency: int | None = None, qps: float | None = None, on_doubt: str | None = None
    ) -> LiveReport:
        """Ask what is due of live models, in all approved studies or in those named, and return when all is asked.

        The settings go before those of the lake's config.toml; `on_doubt` is again or hold.
        """
        from batchpond.providers import registry
        from batchpond.run.live import run
        from batchpond.run.live.calls import OnDoubt

        store = self._store()
        run.check_studies(store, studies)
        doubt = None if on_doubt is None else one_of(OnDoubt, on_doubt, "way to treat a doubt")
        options = run.LiveOptions(
            studies=studies,
            settings=run.load(store.path).over(concurrency=concurrency, qps=qps, on_doubt=doubt),
            connect=lambda name, n_calls: registry.connect_live(name, store.clock, max_connections=n_calls),
        )
        return run.run(store, options)

    def recover(self, study: str | os.PathLike[str] | Study, *, limit: int | None = None) -> RecoverReport:
        """Plan a study and take in every batch of it that its providers have; buys nothing.

        `limit` is the one that the study was submitted with, if any.
        """
        from batchpond.plan.verb import plan_file
        from batchpond.run.recover import recover
        from batchpond.study.objects import file_of

        with file_of(study) as path:
            planned = plan_file(self.path, path, clock=self._clock, is_bought=True)
        with self._connected() as (store, providers):
            return recover(store, planned.study, providers=providers, sample=limit)

    def sync(self, *, submit_due: bool = True) -> SyncReport:
        """Reconcile lake and providers once; safe to repeat, and a no-op with nothing new."""
        from batchpond.run.sync import sync_once

        with self._connected() as (store, providers):
            return sync_once(store, providers=providers, submit_due=submit_due)

    def status(self, study: str | None = None) -> pl.DataFrame:
        """Return one row per study and model: how many of its requests stand where, and what they cost."""
        return self._lazy("report_status", study).collect()

    def waits(self, study: str) -> list[dict[str, Any]]:
        """Return why the unsent requests of a study are not sent: a row per reason, with a sentence as `text`."""
        from batchpond.run.told import looking, waits

        with self._connected() as (store, providers):
            return waits(looking(store, providers), study)

    def audit(self, study: str | None = None) -> pl.DataFrame:
        """Return one row per batch: whether what was sent is what succeeded, failed, was cancelled or is missing."""
        return self._lazy("audit", study).collect()

    def doctor(self, *, deep: bool = False) -> list[Finding]:
        """Check the lake's files, views, rights and disk, and what waits for a person; `deep` reads every byte."""
        from batchpond.doctor import examine

        return examine(self._store(), is_deep=deep)

    def cancel(self, *batches: str, study: str | None = None) -> CancelReport:
        """Ask the providers to stop batches, named by a batch or attempt id; `sync` collects what they finished.

        Of a `study` all is stopped that runs, and its approval ends: nothing more of it is sent.
        """
        from batchpond.run.resolve import cancel

        with self._connected() as (store, providers):
            return cancel(store, batches, providers=providers, study=study)

    def resolve(self, attempt: str, resolution: str, *, batch_id: str | None = None) -> Attempt:
        """Say what became of an attempt, as the options of `batchpond resolve` do.

        `resolution` is adopt (with `batch_id`), absent, lost, refetch, known, take_first, take_second or take_none.
        Raises UsageError where it cannot be so.
        """
        from batchpond.lake.records import Resolution
        from batchpond.run.resolve import resolve

        chosen = one_of(Resolution, resolution, "resolution")
        if chosen is Resolution.FOUND:
            raise UsageError("'found' is what batchpond says of a batch that it saw again, and nobody else")
        with self._connected() as (store, providers):
            return resolve(store, attempt, chosen, providers=providers, batch_id=batch_id)

    def adopt(self, batch_id: str, *, provider: str, study: str | None = None) -> Adoption:
        """Take a batch that the lake does not know into it: one it sent, or one of a planned study's requests."""
        from batchpond.run.adopt import adopt_own
        from batchpond.run.recover import adopt_by_lines

        with self._connected() as (store, providers):
            if study is None:
                return adopt_own(store, batch_id, provider_name=provider, providers=providers)
            return adopt_by_lines(store, batch_id, study, provider_name=provider, providers=providers)

    def import_judgments(self, judgments: str | os.PathLike[str] | Frame, *, study: str | None = None) -> ImportReport:
        """Import judgments from a CSV, TSV or Parquet file, or a frame with its columns; all of them, or none.

        A frame is one of polars, pandas or Arrow, or of whatever gives its rows to Arrow.

        `study` is for rows that name none. Raises UsageError that lists the rows that cannot be used.
        """
        from batchpond.interop.imports import import_judgments
        from batchpond.lake.store import Store
        from batchpond.study.objects import to_polars

        if isinstance(judgments, str | os.PathLike):
            return import_judgments(Store.init(self.path, self._clock), Path(judgments), study=study)
        frame = to_polars(judgments)
        with TemporaryDirectory() as folder:
            path = Path(folder, "frame.parquet")
            frame.write_parquet(path)
            return import_judgments(Store.init(self.path, self._clock), path, study=study)

    def label(
        self, study: str, path: str | os.PathLike[str], *, n: int = 100, by: str = "strata", seed: int = 0
    ) -> Sheet:
        """Draw `n` pairs or items that judges judged, for people to label, and write them as a table or an HTML page.

        `by` is strata, random or doubt. Raises UsageError when the path is taken or nothing is left to label.
        """
        from batchpond.interop import labels

        sheet = labels.draw(self._store().path, study, n, by=one_of(labels.By, by, "way to draw"), seed=seed)
        labels.write(sheet, Path(path))
        return sheet

    def import_labels(
        self, *paths: str | os.PathLike[str], rater: str | None = None, study: str | None = None
    ) -> ForeignReport:
        """Import what people wrote in sheets that `label` drew, or tables of a data set's labels of a `study`.

        `rater` is who said so, where a file does not say. What they said of the same before is counted no more.
        """
        from batchpond.interop.labels import import_labels

        return import_labels(self._store(), list(map(Path, paths)), rater=rater, study=study)

    def import_(
        self,
        tool: str,
        *paths: str | os.PathLike[str],
        study: str | None = None,
        defaults: Mapping[str, str] | None = None,
        accept: Iterable[str] = (),
        strict: bool = False,
    ) -> ForeignReport:
        """Import what another tool left in files and folders, as `batchpond import TOOL` does; all of it, or nothing.

        `study` and `defaults` (such as `{"direction": "reverse"}`) say what the files do not, `accept` names doubts
        that you answer for, and `strict` refuses any. Raises UsageError that lists the rows that cannot be used.
        """
        from batchpond.interop.foreign import Defaults, acceptable, reader_of
        from batchpond.interop.imports import import_foreign
        from batchpond.lake.store import Store

        read, known = reader_of(tool), Defaults.given(study, (defaults or {}).items())
        doubts, store = acceptable(accept), Store.init(self.path, self._clock)
        return import_foreign(store, read, list(map(Path, paths)), defaults=known, accepted=doubts, is_strict=strict)

    def export(self, destination: str | os.PathLike[str], *, view: str = "results", force: bool = False) -> list[Path]:
        """Write a view to a .parquet, .csv or .jsonl file, here or at an address, and return the files written."""
        from batchpond.results.export import ExportFormat, export

        path = Path(destination)
        form = one_of(ExportFormat, path.suffix.removeprefix(".").lower(), "format of a file")
        return export(self._store().path, path, format=form, view=view, force=force)

    def report(
        self,
        study: str | None = None,
        path: str | os.PathLike[str] | None = None,
        *,
        beside: str | Sequence[str] = (),
        force: bool = False,
    ) -> Report:
        """Return the report on a study, and write it to a path ending in .html or .md where one is given.

        `beside` is a side of `compare`, such as another study, or several: the report then says how they differ.
        """
        from batchpond_report import build

        found = build.build(self._store().path, study, [beside] if isinstance(beside, str) else beside)
        if path is not None:
            build.write(build.text(found, build.form_of(Path(path))), Path(path), force=force)
        return found

    def browse(self, *, port: int = 0, rater: str = "") -> Browsing:
        """Serve the lake's pages on this machine until what is returned is closed; port 0 is a free one.

        `rater` is under whose name labels are given. Raises UsageError without the extra `browse`, and where the port
        is taken.
        """
        from batchpond_report.build import missing_packages

        path = self._store().path
        with needed("browse", "browse"):
            from batchpond_browse.server import running
        make_report = partial(_report_page, path) if not missing_packages() else None
        return Browsing(running(path, port=port, rater=rater, make_report=make_report))

    def bundle(self, folder: str | os.PathLike[str], *, study: str | None = None, n_cases: int = 500) -> int:
        """Write the pages of `browse` as files into a new folder, and return how many files; raises UsageError."""
        path = self._store().path
        with needed("browse", "browse"):
            from batchpond.lake.disk import destined
            from batchpond_browse import bundle
        with destined(Path(folder), force=False) as here:
            return bundle.write(path, here, study=study, n_cases=n_cases)

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
        store = self._store()
        files = store.files(table)
        for name in manifest.missing(store.path, {table} & manifest.GUARDED):
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
        study: str | Sequence[str] | None = None,
        *,
        by: Sequence[str] = CELL_COLUMNS,
        ties: str = "half",
        position: bool | None = None,
        what: str = "auto",
        extras: Iterable[str] = (),
        seed: int = 0,
        summary: bool = False,
    ) -> pl.DataFrame:
        """Return one row per item and ranking, or with `summary` one per ranking, as `batchpond rank` prints them.

        Several studies are ranked as one. `by` names the columns of the cell that tell rankings apart; () pools all.
        `ties` is half, davidson or drop; `position` takes the effect of being shown first out (None: where pairs were
        judged in both orders); `what` is auto, items or candidates; `extras` of ml, elo, elochoice, trueskill adds
        columns. With `majority`, `weighted` or `dawid-skene` in `by`, the verdict of all judges together is what is
        ranked by. Raises UsageError when there is nothing to rank.
        """
        from batchpond.results.rank import verb as rank

        options = rank.options(ties=ties, position=position, extras=extras, seed=seed, is_full=summary)
        request = rank.Request(study, tuple(by), one_of(rank.What, what, "kind of thing to rank"), options=options)
        report = rank.rank(self._store().path, request)
        return _frame(report.rankings if summary else report.items)

    def jury(self, study: str | None = None) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return how judges confuse words, and how likely each is of a unit, as `rank --judges` and `--units` do."""
        from batchpond.results.rank import verb as rank

        found = rank.jury(self._store().path, study)
        return _frame(found["judges"]), _frame(found["units"])

    def compare(self, a: str, b: str, *others: str) -> pl.DataFrame:
        """Return one row per comparison and metric of what two sides, or more, say of the same items.

        A side is `study`, `study@version`, or some of its cells, `study:template=v2`. Each of the others (`side` b, c,
        ...) is compared with a; differences are that side's value less a's, in the metric's own unit. Raises UsageError
        when a side is not there or nothing is in both.
        """
        from batchpond.results.compare import verb

        return _frame(verb.compare(self._store().path, a, b, *others).differences)

    def _lazy(self, view: str, study: str | None) -> pl.LazyFrame:
        from polars.io.plugins import register_io_source

        from batchpond.views.read import arrow, stream

        path = self._store().path
        with stream(path, view, arrow, limit=0) as rows:
            schema = _frame(rows.schema.empty_table()).schema
        return register_io_source(partial(_batches, path, view, study), schema=schema)

    @contextmanager
    def _connected(self) -> Iterator[tuple[Store, Providers]]:
        from batchpond.run.session import Providers

        store = self._store()
        with Providers.of_environment(store.clock, store.path) as providers:
            yield store, providers

    def _store(self) -> Store:
        from batchpond.lake.store import Store

        return Store.open(self.path, self._clock)


class Browsing:
    """A lake's pages, served until `close`: a context manager, and a link in a notebook."""

    def __init__(self, serving: AbstractContextManager[tuple[str, Spool]]) -> None:
        self._serving = ExitStack()
        self.address, self._spool = self._serving.enter_context(serving)

    def n_waiting(self) -> int:
        """Return how many labels were given and are not handed in."""
        return len(self._spool.waiting())

    def close(self) -> None:
        """Stop serving; safe to repeat."""
        self._serving.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        return f'<a href="{self.address}" target="_blank">{self.address}</a>'


@contextmanager
def progress() -> Iterator[None]:
    """Show how far long work inside the block is, as bars in a notebook or a terminal.

    Raises UsageError without the extra `notebook`.
    """
    from batchpond.clock import heard_by

    with needed("notebook", "notebook"):
        from tqdm.auto import tqdm
    with heard_by(_Bars(tqdm)):
        yield


class _Bars:
    """A bar for each work under way that takes longer than a second."""

    def __init__(self, bar: Callable[..., Any]) -> None:
        self._bar = bar
        self._shown: dict[Work, Any] = {}

    def moved(self, work: Work) -> None:
        if work not in self._shown:
            self._shown[work] = self._bar(
                desc=work.what, unit=f" {work.unit}", total=work.n_total, unit_scale=True, delay=1, leave=False
            )
        self._shown[work].update(work.n_done - self._shown[work].n)

    def ended(self, work: Work) -> None:
        if work in self._shown:
            self._shown.pop(work).close()


def _report_page(path: Path, study: str, link_to: LinkTo) -> str:
    from batchpond_report import build, page

    return page.render(build.build(path, study), link_to)


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
