"""`browse` and `label`: a page of this machine to look at answers and label them, and a sheet of them for others."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchpond.api import Lake
from batchpond.cli import output
from batchpond.cli.frame import Invocation, pond_command
from batchpond.cli.simulate import stopped_by_signals
from batchpond.errors import UsageError
from batchpond.text import plural, shown

if TYPE_CHECKING:
    from batchpond.interop.labels import Sheet


@pond_command("browse")
def command(
    invocation: Invocation,
    port: int,
    rater: str,
    is_shown: bool,
    folder: Path | None,
    study: str | None,
    n_cases: int,
    is_json: bool,
) -> None:
    """Show a lake on a page of this machine: studies, pairs, texts, answers and why, until Ctrl-C."""
    store = invocation.store()
    lake = Lake(store.path)
    if folder is not None:
        n_files = lake.bundle(folder, study=study, n_cases=n_cases)
        if is_json:
            output.document({"path": folder, "n_files": n_files})
        return invocation.diagnostics.note(
            f"wrote {plural(n_files, 'file')}", hint=f"open {shown(folder / 'index.html')}"
        )
    if study is not None:
        raise UsageError("--study is for --bundle", hint="the page has all studies")
    with lake.browse(port=port, rater=rater) as pages:
        stopped = stopped_by_signals()
        if is_json:
            output.document({"address": pages.address})
        invocation.diagnostics.note(f"looking at {store.place}: {pages.address}", hint="Ctrl-C stops it")
        if is_shown:
            click.launch(pages.address)
        stopped.wait()
    if n_waiting := pages.n_waiting():
        invocation.diagnostics.note(f"{plural(n_waiting, 'label')} not handed in", hint="the next `browse` does that")


@pond_command("label")
def label(
    invocation: Invocation,
    study: str,
    n: int,
    by: str,
    seed: int,
    path: Path | None,
    force: bool,
    is_json: bool,
) -> None:
    """Draw pairs or items that judges judged, for people to label."""
    from batchpond.interop import labels

    path = path or Path(f"{study.replace('/', '-')}-labels.csv")
    sheet = labels.draw(invocation.store().path, study, n, by=labels.By(by), seed=seed)
    labels.write(sheet, path, force=force)
    if is_json:
        output.document(label_document(sheet, path))
    tasks = {one.task for one in sheet.strata}
    shares = ", ".join(
        f"{one.n_drawn:,} of {one.n_units - one.n_labelled:,} {f'{one.task} ' if len(tasks) > 1 else ''}{one.standing}"
        for one in sheet.strata
    )
    labelled = f"; {sheet.n_labelled:,} are labelled already" if sheet.n_labelled else ""
    invocation.diagnostics.note(
        f"wrote {plural(len(sheet.questions), 'row')} of {sheet.n_units:,} to {shown(path)} ({shares}){labelled}",
        hint="fill in the column label, or the page, then `batchpond import labels FILE`; rater by rater: --rater NAME",
    )


def label_document(sheet: Sheet, path: Path) -> dict[str, Any]:
    """Return what `--json` prints."""
    return {
        "study": sheet.study, "path": path, "n_drawn": len(sheet.questions), "n_unlabelled": sheet.n_units,
        "n_labelled": sheet.n_labelled, "standings": sheet.standings, "strata": list(map(asdict, sheet.strata)),
    }  # fmt: skip
