"""`keys`: which key is found where, and whether its provider takes it."""

from __future__ import annotations

import os

import click

from batchpond.cli import output
from batchpond.cli.formats import Format
from batchpond.cli.frame import Invocation, format_option, pass_invocation, pond_command
from batchpond.errors import ExitCode

NAMES = ("provider", "variable", "is_found", "host", "scope", "problem")


@pond_command("keys", "batchpond keys", "batchpond keys --check --json")
@click.option("--check", "is_check", is_flag=True, help="One free call to each provider whose key is set.")
@format_option
@pass_invocation
def command(invocation: Invocation, is_check: bool, form: Format) -> ExitCode:
    """Show for each provider which variable holds its key and which host it goes to.

    Keys come from the variables of the providers' own SDKs, from nowhere else, and are never
    shown or stored. Exit code 4 when a key that is set cannot be used.
    """
    from batchpond.providers import registry
    from batchpond.providers.http.keys import listing

    if is_check:
        checks = list(registry.check_keys())
        found = [(check.row, check.scope, check.problem if check.row.is_found else None) for check in checks]
    else:
        found = [(row, None, None) for row in listing(registry.all_descriptors(), os.environ)]
    rows = [
        (row.provider, row.key_env, row.is_found, row.base_url_host, scope, problem or row.problem)
        for row, scope, problem in found
    ]
    output.records(NAMES, rows, form, has_color=invocation.color_stdout())
    if not any(row.is_found for row, _, _ in found):
        invocation.diagnostics.note("no key is set", hint="export one, or run `batchpond simulate`, which takes any")
    return ExitCode.ACCESS if any(row[-1] for row in rows) else ExitCode.DONE
