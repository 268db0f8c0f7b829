"""What commands that call providers share: connecting, and saying what a pass noted."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from batchpond.cli.diagnostics import Diagnostics

if TYPE_CHECKING:
    from batchpond.lake.store import Store
    from batchpond.run.session import Counts, Note, Providers


def providers(store: Store) -> Providers:
    """Return the providers, each connected with the environment's key when first needed; to be closed by `with`."""
    from batchpond.run.session import Providers

    return Providers.of_environment(store.clock, store.path)


def show_note(diagnostics: Diagnostics, note: Note) -> None:
    """Say one note of a pass when it comes up."""
    from batchpond.run.session import Severity

    match note.severity:
        case Severity.INFO:
            diagnostics.note(note.message, hint=note.hint)
        case Severity.WARNING:
            diagnostics.warning(note.message, hint=note.hint)
        case Severity.ERROR:
            diagnostics.problem(note.message, hint=note.hint)


def counts_document(counts: Counts | None) -> dict[str, int] | None:
    """Return a pass's counts as JSON; null when there was no pass."""
    return None if counts is None else dataclasses.asdict(counts)


def notes_documents(notes: Sequence[Note]) -> list[dict[str, Any]]:
    """Return a pass's notes as JSON."""
    return [{"severity": note.severity, "message": note.message, "hint": note.hint} for note in notes]
