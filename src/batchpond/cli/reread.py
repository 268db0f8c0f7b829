"""`reread`: a study's answers are read by the newest reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from batchpond.cli import formats, output
from batchpond.cli.formats import plural
from batchpond.cli.frame import (
    Invocation,
    json_option,
    pass_invocation,
    pond_command,
    providers,
    show_note,
    yes_option,
)
from batchpond.errors import UsageError

if TYPE_CHECKING:
    from batchpond.run.reread import Readings


@pond_command("reread", "batchpond reread my-study --dry-run", "batchpond reread my-study --yes --json")
@click.argument("study")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Show what would change, and change nothing.")
@yes_option
@json_option
@pass_invocation
def command(invocation: Invocation, study: str, is_dry_run: bool, is_yes: bool, is_json: bool) -> None:
    """Read the answers of a STUDY by this version's rules, after showing what that changes.

    A study goes on with the rules that it was planned under, also after an upgrade. Nothing is asked again: answers
    are read from what the lake has. What later rounds chose by earlier readings stays chosen.
    """
    from batchpond.run.reread import preview, reread

    diagnostics, store = invocation.diagnostics, invocation.store()
    found = preview(store, study)
    if not is_json:
        diagnostics.say(text_of(found))
    n_read_again = 0
    is_done = found.reader_before == found.reader
    if not is_dry_run and not is_done:
        if not is_yes and not diagnostics.confirm(f"Read by reader {found.reader} from now on?", flag="--yes"):
            raise UsageError("not confirmed; the study is read as before")
        with providers(store) as connected:
            n_read_again, notes = reread(store, study, providers=connected)
        for note in notes:
            show_note(diagnostics, note)
        diagnostics.note(f"the answers of {plural(n_read_again, 'batch')} were read by reader {found.reader}")
    if is_json:
        output.document(document(found, n_read_again))


def text_of(found: Readings) -> str:
    """Return what would change, or that nothing would, as a person decides upon it."""
    if found.reader_before == found.reader:
        return f"study {found.study} is read by the newest reader, {found.reader}"
    changed = [change for change in found.changes if not change.is_same]
    n_all = sum(change.n_answers for change in found.changes)
    rows = [(change.task, change.before, change.after, f"{change.n_answers:,}") for change in changed]
    n_changed = sum(change.n_answers for change in changed)
    head = f"study {found.study}: of {plural(n_all, 'answer')} {n_changed:,} will be read otherwise"
    names = ("task", f"reader {found.reader_before}", f"reader {found.reader}", "answers")
    return "\n".join([head, *(["", *formats.aligned(names, rows, n_text_columns=3)] if rows else [])])


def document(found: Readings, n_read_again: int) -> dict[str, Any]:
    """Return the JSON shape of a rereading."""
    return {
        "study": found.study,
        "reader_before": found.reader_before,
        "reader": found.reader,
        "n_answers": sum(change.n_answers for change in found.changes),
        "n_changed": sum(change.n_answers for change in found.changes if not change.is_same),
        "n_read_again": n_read_again,
        "changes": [
            {"task": one.task, "before": one.before, "after": one.after, "n_answers": one.n_answers}
            for one in found.changes
        ],
    }
