"""`query`, `views`, `results`: rows of the lake, by SQL in a sandbox; `export`: copies of a view for other programs."""

from __future__ import annotations

import os
import resource
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from batchpond.cli import output, unspare
from batchpond.cli.formats import Format
from batchpond.cli.frame import Invocation, pond_command
from batchpond.errors import ExitCode, UsageError, needed
from batchpond.model import CELL_COLUMNS
from batchpond.text import did_you_mean, plural, shown

if TYPE_CHECKING:
    from batchpond.views.database import Connect

SQL_BYTES_MAX = 1_000_000
GRACE_S = 3.0
DATA_BYTES = 4 << 30  # of a gigabyte that the engine holds, what allocators keep beside it is up to twice as much


@pond_command("query")
def command(invocation: Invocation, sql: str, timeout_s: float, is_far: bool, engine: str | None, form: Format) -> None:
    """Run one SELECT over the lake's views and print its rows."""
    from batchpond.lake.store import whole
    from batchpond.views import database, read, refresh

    store = invocation.store()
    if sql == "-":
        sql = sys.stdin.read(SQL_BYTES_MAX + 1)
        if len(sql) > SQL_BYTES_MAX:
            raise UsageError(f"the query on standard input is longer than {SQL_BYTES_MAX:,} characters")
    if database.is_view(sql):
        sql = f'select * from "{sql}"'  # a name from our own list
    elif sql.isidentifier():
        views = [view.name for view in database.views()]
        raise UsageError(f"there is no view {sql!r}", hint=did_you_mean(sql, views, "`batchpond views` lists them"))
    if engine and is_far:
        raise UsageError("an engine reads the lake's mirror", hint="give --engine or --at-store")
    if store.mirror and not is_far:  # now: once the query runs, so does its time
        whole(store.path, refresh.reads(sql))
    is_arrow, limits = form is Format.PARQUET, read.Limits(timeout_s)
    with made_by(invocation, sql, engine) as connect:
        of = partial(database.at_store, store) if is_far else connect
        opened = read.shown_query(store.path, sql, limits, is_arrow=is_arrow, connect=of)
        with _bounded(invocation, timeout_s), opened as rows:
            prepared = output.prepared(rows, form, has_color=invocation.color_stdout())
        invocation.note_left_out(output.show(prepared))


@contextmanager
def made_by(invocation: Invocation, sql: str, engine: str | None, study: str | None = None) -> Iterator[Connect]:
    """Yield what opens the lake's views: the lens, or, where an engine is named, views over what that has made."""
    from batchpond.views import database, read

    if engine is None:
        yield database.connect
        return
    store = invocation.store()
    if study is not None:
        with read.asked(store.path, lambda lens: read.check_study(lens, study)):
            pass
    unspare("pandas")  # Spark's client asks for it
    with needed("--engine", "cluster"):
        from batchpond_spark.engine import levels
    with levels(
        store, sql, engine, study, lambda name: invocation.diagnostics.progress(f"{engine} makes {name}")
    ) as connect:
        invocation.diagnostics.end_progress()
        yield connect


@contextmanager
def _bounded(invocation: Invocation, timeout_s: float) -> Iterator[None]:
    """Hold a query to its time and memory whatever it is: some expressions heed neither DuckDB's limit nor its stop.

    This process is the query's alone, so that it can end with it.
    """

    def end() -> None:
        invocation.diagnostics.error(
            f"the query ran longer than {timeout_s:g} s and did not stop",
            "narrow it with WHERE, or allow more with --timeout",
            ExitCode.USAGE,
        )
        os._exit(ExitCode.USAGE)

    watchdog = threading.Timer(timeout_s + GRACE_S, end)
    watchdog.daemon = True
    limits = resource.getrlimit(resource.RLIMIT_DATA)  # not of addresses, which allocators reserve by the gigabyte
    taken = _data_bytes()
    if taken is not None:
        most = taken + DATA_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (most if limits[1] < 0 else min(most, limits[1]), limits[1]))
    watchdog.start()
    try:
        yield
    except MemoryError:
        raise UsageError("the query needs too much memory", hint="narrow it with WHERE") from None
    finally:
        watchdog.cancel()
        resource.setrlimit(resource.RLIMIT_DATA, limits)


def _data_bytes() -> int | None:
    """Return how much data this process has by now, where the system says it."""
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[5]) * resource.getpagesize()
    except OSError:
        return None


WIDE = 160


@pond_command("views")
def views(invocation: Invocation, is_ddl: bool, is_far: bool, dialect: str | None, form: Format) -> None:
    """List the views that SQL can ask, in the order in which they build on each other."""
    from batchpond.views import database

    if dialect and is_far:
        raise UsageError("a script for an engine reads the lake's mirror", hint="give --dialect or --at-store")
    if dialect:
        with needed("--dialect", "cluster"):
            from batchpond_spark.dialect import script
        store = invocation.store()
        output.script(script(store.path, database.listed(store.path)))
        return
    if is_ddl or is_far:
        store = invocation.store()
        made = database.ddl_at_store(store) if is_far else database.ddl(store.path, database.listed(store.path))
        output.script(made)
        return
    names: tuple[str, ...] = ("view", "stage", "grain", "question")
    rows = [(view.name, view.stage, view.grain, view.question) for view in database.views()]
    if form is Format.TABLE and output.width() < WIDE:
        names, rows = ("view", "question"), [(row[0], row[3]) for row in rows]  # type: ignore[misc]
    output.records(names, rows, form, has_color=invocation.color_stdout())


ORDER = ("study", "slot")
# What fits a terminal and answers "who won"; every other form prints all columns.
_OF_A_CELL = (name for name in CELL_COLUMNS if name != "provider")
TERMINAL_COLUMNS = (*_OF_A_CELL, "item_first", "item_second", "verdict", "outcome")
LEFT_OUT_BELOW = 100
LEFT_OUT = frozenset({"rubric_id", "thinking"})


@pond_command("results")
def results(
    invocation: Invocation,
    study: str | None,
    limit: int | None,
    all_columns: bool,
    engine: str | None,
    form: Format,
) -> None:
    """Print one row per planned request: who won, or why nobody did."""
    from batchpond.views.read import answer, arrow, carried, stream

    store = invocation.store()
    is_short = form is Format.TABLE and not all_columns
    left_out = LEFT_OUT if output.width() < LEFT_OUT_BELOW else ()
    whole = carried() if engine is None else None  # an engine has made the view alone
    columns = [name for name in TERMINAL_COLUMNS if name not in left_out] if is_short else whole
    read = arrow if form is Format.PARQUET else answer
    with made_by(invocation, "FROM results", engine, study) as connect:
        of_study = study if engine is None else None  # of another an engine has made nothing
        opened = stream(
            store.path, "results", read, columns=columns, study=of_study, order=ORDER, limit=limit, connect=connect
        )
        with opened as rows:
            prepared = output.prepared(rows, form, has_color=invocation.color_stdout())
        invocation.note_left_out(output.show(prepared))


KINDS = ("parquet", "csv", "jsonl")
WHOLE = ("lake", "delta", "iceberg")


@pond_command("export")
def export(
    invocation: Invocation,
    destination: Path,
    kind: str | None,
    view: str | None,
    per_batch: bool,
    layout: str | None,
    study: str | None,
    keep_formulas: bool,
    force: bool,
    is_json: bool,
) -> None:
    """Write a view to DESTINATION as parquet, csv or jsonl; any size, one file or one per batch."""
    if layout is not None:
        if kind or view or per_batch or keep_formulas or (layout in WHOLE and (study or force)):
            raise UsageError("--layout decides on files and formats: it goes with --study, --force and --json alone")
        if layout in WHOLE:
            from batchpond.interop.layouts import export_tables

            store = invocation.store()
            n_files = store.copy_to(destination) if layout == "lake" else export_tables(store, destination, layout)
            if is_json:
                output.document({"layout": layout, "n_files": n_files})
            text = f"{plural(n_files, 'file')} came or went; what stands at {shown(destination)} is as the lake is now"
            invocation.diagnostics.note(text)
            return
        _layout(invocation, destination, layout, study, force=force, is_json=is_json)
        return
    if study is not None:
        from batchpond.views.read import rows

        rows(invocation.store().path, "studies_current", order=("study",), study=study)  # an unknown one is said first
        raise UsageError("--study is for --layout", hint="`batchpond query ... --format csv` writes part of a view")
    from batchpond.results.export import ExportFormat
    from batchpond.results.export import export as exported

    lake_path = invocation.store().path
    view, named = view or "results", destination.suffix.removeprefix(".").lower()
    if not kind and (per_batch or named not in KINDS):
        raise UsageError(
            f"{shown(destination)} does not say in which format", hint="add `--format parquet`, csv or jsonl"
        )
    written = exported(
        lake_path,
        destination,
        format=ExportFormat(kind or named),
        per_batch=per_batch,
        view=view,
        defuse_formulas=not keep_formulas,
        force=force,
    )
    if is_json:
        output.document({"view": view, "files": written})
    invocation.diagnostics.note(f"wrote {plural(len(written), 'file')}: {shown(destination)}")


def _layout(
    invocation: Invocation, destination: Path, layout: str, study: str | None, *, force: bool, is_json: bool
) -> None:
    from batchpond.interop.layouts import Layout, export_layout

    report = export_layout(invocation.store().path, destination, Layout(layout), study=study, force=force)
    if is_json:
        output.document({"layout": layout, "files": report.files, "left_out": report.left_out})
    for why, n in report.left_out.items():
        invocation.diagnostics.warning(f"left out {n:,} {why}")
    invocation.diagnostics.note(f"wrote {plural(len(report.files), 'file')} below {shown(destination)}")
