"""`report`: what a study found, on one page for co-authors and in figures for the paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from batchpond.cli import output
from batchpond.cli.frame import Invocation, pond_command
from batchpond.errors import UsageError
from batchpond.text import address, plural, shown

if TYPE_CHECKING:
    from batchpond.results.report.parts import Report


@pond_command("report")
def command(
    invocation: Invocation,
    study: str | None,
    path: Path | None,
    form: str | None,
    folder: Path | None,
    beside: str | None,
    is_methods: bool,
    is_shown: bool,
    force: bool,
    is_json: bool,
) -> None:
    """Write all that a study found as one HTML file: no script, no network, readable for years."""
    # Before the store, which would hold linear algebra to one thread.
    from batchpond.lake.disk import refuse_existing
    from batchpond.results.report import build, markdown

    if is_methods and (path or form or folder or beside or is_shown or is_json):
        raise UsageError("--claims prints the methods alone", hint="leave the other options out")
    if is_methods:
        return output.text(markdown.methods(build.build(invocation.store().path, study)))
    chosen = build.ReportFormat(form or ("md" if path is not None and path.suffix.lower() == ".md" else "html"))
    is_page = chosen is build.ReportFormat.HTML
    if is_page or folder is not None:
        build.require_extra()
    if is_shown and (not is_page or (path is not None and address(path) is not None)):
        raise UsageError("--open shows a page of this machine, and Markdown is none", hint="leave --open out")
    if is_json and path is None and not is_page:
        raise UsageError("Markdown and --json cannot both be printed", hint="write the report to a file: -o report.md")
    path = path or (Path("report.html") if is_page else None)
    if path is not None and not force:
        refuse_existing(path)
    found = build.build(invocation.store().path, study, beside)
    content = build.text(found, chosen)
    written = [] if folder is None else build.write_figures(found, folder, force=force)
    if path is None:
        output.text(content)
    else:
        build.write(content, path, force=force)
    _say(invocation, found, path, written, folder, is_json=is_json)
    if is_shown and path is not None:
        import webbrowser

        if not webbrowser.open(path.absolute().as_uri()):
            invocation.diagnostics.warning("no browser could be started", hint=f"open {path} yourself")


def _say(
    invocation: Invocation, found: Report, path: Path | None, written: list[Path], folder: Path | None, *, is_json: bool
) -> None:
    if is_json:
        output.document(
            {"study": found.study, "path": path, "sections": [section.key for section in found.sections],
             "fingerprint": found.fingerprint, "figures": written}
        )  # fmt: skip
    if folder is not None:
        invocation.diagnostics.note(f"wrote {plural(len(written), 'file')} of figures: {shown(folder)}")
    if path is not None:
        invocation.diagnostics.note(f"wrote the report on {found.study}: {shown(path)}")
