"""`adopt`: take batches that the lake does not know into it."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchpond.cli import output
from batchpond.cli.formats import Format, plural
from batchpond.cli.frame import (
    Invocation,
    format_option,
    pass_invocation,
    pond_command,
    providers,
    show_note,
    yes_option,
)
from batchpond.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from batchpond.lake.store import Store
    from batchpond.run.adopt import Adoption, AdoptPreview, MapOrder

LISTED_DAYS = 30
COLUMNS = (
    "provider", "batch_id", "state", "created_at", "n_requests", "n_completed", "n_failed", "endpoint", "name",
    "ownership", "attempt_id",
)  # fmt: skip
HEADS = ("provider", "batch", "state", "created", "of", "done", "failed", "endpoint", "name", "whose", "attempt")


@pond_command(
    "adopt",
    "batchpond adopt --list",
    "batchpond adopt --list --provider openai --since 2026-10-01 --json",
    "batchpond adopt batch_6920a1",
    "batchpond adopt batch_6920a1 --study my-study --map ids.csv",
)
@click.argument("batch", required=False)
@click.option("--list", "is_list", is_flag=True, help="Show the accounts' batches that the lake does not know.")
@click.option("--provider", metavar="NAME", help="Whose batch.  [default: every provider whose key is set]")
@click.option("--since", metavar="DATE", type=click.DateTime(["%Y-%m-%d"]),
              help=f"With --list: made since that day (UTC).  [default: {LISTED_DAYS} days ago]")  # fmt: skip
@click.option("--study", help="With --map: the planned study that the batch belongs to.")
@click.option("--map", "map_path", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Which planned request each custom_id is: .csv, .jsonl or .parquet.")  # fmt: skip
@click.option("--force", "is_forced", is_flag=True,
              help="With --map: even if its requests were asked before; the first answer stays.")  # fmt: skip
@yes_option
@format_option
@pass_invocation
def command(
    invocation: Invocation,
    batch: str | None,
    is_list: bool,
    provider: str | None,
    since: datetime | None,
    study: str | None,
    map_path: Path | None,
    is_forced: bool,
    is_yes: bool,
    form: Format,
) -> ExitCode:
    """Take a BATCH that the lake does not know into it; `sync` then collects it.

    A batch that this lake sent and lost sight of is known by its token or its
    results. One that another tool or another lake made needs --map: a file with
    custom_id and what names its planned request, which is request_id, or slot,
    or as many of the plan's own columns as tell the study's requests apart:
    item_first and item_second (in the order shown), template_id, rubric_id,
    request_model, thinking, unit_id, direction, repeat_no. An empty field fits
    anything; every request of the batch needs a row. `batchpond query "select *
    from plan_current"` shows what is planned.

    The map is believed: nothing in a result shows the prompt that was asked,
    and what is taken in cannot be taken out again.
    """
    store = invocation.store()
    _check_usage(batch, is_list, since, study, map_path, is_forced)
    if is_list:
        return _list(invocation, store, provider, since, form)
    batch_id, name = batch or "", provider or _only_provider()
    if map_path is not None:
        from batchpond.run.adopt import MapOrder

        order = MapOrder(batch_id, name, study or "", map_path, is_forced)
        adoption = _by_map(invocation, store, order, is_yes=is_yes)
    else:
        from batchpond.run.adopt import adopt_own

        with providers(store) as connected:
            adoption = adopt_own(store, batch_id, provider_name=name, providers=connected)
    if form is Format.JSON:
        output.document(document(adoption))
    attempt = adoption.attempt
    verb = "is now" if adoption.is_new else "was already"
    invocation.diagnostics.note(
        f"batch {attempt.batch_id} {verb} attempt {attempt.attempt_id} ({attempt.phase})",
        hint="`batchpond sync` collects it",
    )
    return ExitCode.DONE


def _check_usage(
    batch: str | None, is_list: bool, since: datetime | None, study: str | None, map_path: Path | None, is_forced: bool
) -> None:
    if is_list == (batch is not None):
        raise UsageError("say one of the two: a BATCH to adopt, or --list")
    if is_list and (study or map_path or is_forced):
        raise UsageError("--study, --map and --force are for adopting a BATCH, not for --list")
    if since is not None and not is_list:
        raise UsageError("--since is for --list")
    if (study is None) != (map_path is None):
        raise UsageError("--study and --map go together: the map's requests are those of the study")
    if is_forced and map_path is None:
        raise UsageError("--force is for --map")


def _only_provider() -> str:
    from batchpond.run.account import providers_with_keys

    names = providers_with_keys(os.environ)
    if len(names) != 1:
        found = f"keys of {', '.join(names)} are set" if names else "no key is set"
        raise UsageError(f"whose batch is it? {found}", hint="say `--provider NAME`")
    return names[0]


def _list(invocation: Invocation, store: Store, provider: str | None, since: datetime | None, form: Format) -> ExitCode:
    from batchpond.run.account import providers_with_keys, unknown_batches

    start = store.clock.now() - timedelta(days=LISTED_DAYS) if since is None else since.replace(tzinfo=UTC)
    names = [provider] if provider else providers_with_keys(os.environ)
    if not names:
        raise UsageError("no key is set, so there is no account to look into", hint="`batchpond keys` shows them")
    with providers(store) as connected:
        report = unknown_batches(store, names, start, providers=connected)
    rows = [tuple(getattr(unknown, name) for name in COLUMNS) for unknown in report.unknown_batches]
    is_shown = form is Format.TABLE and output.is_terminal()
    n_left_out = output.records(HEADS if is_shown else COLUMNS, rows, form, has_color=invocation.color_stdout())
    invocation.note_left_out(n_left_out)
    for note in report.notes:
        show_note(invocation.diagnostics, note)
    invocation.diagnostics.note(
        f"{plural(len(rows), 'batch')} since {start:%Y-%m-%d} at {', '.join(names)} that this lake does not know",
        hint="`batchpond adopt BATCH` takes one in" if rows else None,
    )
    return report.exit_code


def _by_map(invocation: Invocation, store: Store, order: MapOrder, *, is_yes: bool) -> Adoption:
    from batchpond.run.adopt import adopt_mapped

    def confirm(preview: AdoptPreview) -> bool:
        invocation.diagnostics.say(preview_text(preview))
        return is_yes or invocation.diagnostics.confirm("Is the map right?", flag="--yes")

    with providers(store) as connected:
        adoption = adopt_mapped(store, order, providers=connected, confirm=confirm)
    if adoption is None:
        raise UsageError("not confirmed; nothing was recorded")
    return adoption


def preview_text(preview: AdoptPreview) -> str:
    """Return what would be taken in, for a person to compare with what they know."""
    batch, order = preview.batch, preview.order
    return (
        f"batch {batch.batch_id} ({batch.state}) becomes {plural(preview.n_requests, 'request')} of study"
        f" {order.study} at {order.provider}.\nFor one: {preview.example}\n"
        "The map is believed: no result shows its prompt, and what is taken in cannot be taken out again."
    )


def document(adoption: Adoption) -> dict[str, Any]:
    """Return the JSON shape of an adoption."""
    attempt = adoption.attempt
    return {
        "attempt_id": attempt.attempt_id,
        "phase": attempt.phase,
        "batch_id": attempt.batch_id,
        "study": attempt.intent.study,
        "n_requests": attempt.intent.n_requests,
        "is_new": adoption.is_new,
    }
