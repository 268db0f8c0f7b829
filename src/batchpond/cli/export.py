"""`export`: copies of a view for other programs."""

from __future__ import annotations

from pathlib import Path

from batchpond.cli import output
from batchpond.cli.frame import Invocation, pond_command
from batchpond.errors import UsageError
from batchpond.text import plural, shown

LAKE = "lake"
KINDS = ("parquet", "csv", "jsonl")


@pond_command("export")
def command(
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
        if kind or view or per_batch or keep_formulas or (layout == LAKE and (study or force)):
            raise UsageError("--layout decides on files and formats: it goes with --study, --force and --json alone")
        if layout == LAKE:
            n_files = invocation.store().copy_to(destination)
            if is_json:
                output.document({"layout": layout, "n_files": n_files})
            invocation.diagnostics.note(f"copied {plural(n_files, 'file')}, and read them there")
            return
        _layout(invocation, destination, layout, study, force=force, is_json=is_json)
        return
    if study is not None:
        from batchpond.views.read import rows

        rows(invocation.store().path, "studies_current", order=("study",), study=study)  # an unknown one is said first
        raise UsageError("--study is for --layout", hint="`batchpond query ... --format csv` writes part of a view")
    from batchpond.results.export import ExportFormat, export

    lake_path = invocation.store().path
    view, named = view or "results", destination.suffix.removeprefix(".").lower()
    if not kind and (per_batch or named not in KINDS):
        raise UsageError(
            f"{shown(destination)} does not say in which format", hint="add `--format parquet`, csv or jsonl"
        )
    written = export(
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
