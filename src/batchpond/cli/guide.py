"""`guide`: the documentation, pages of the package."""

from __future__ import annotations

from pathlib import Path

import click

from batchpond.cli import output
from batchpond.cli.formats import Format
from batchpond.cli.frame import GUIDES, Invocation, format_option, pond_command
from batchpond.errors import UsageError
from batchpond.text import did_you_mean

FOLDER = Path(__file__).parents[1] / "guides"


@pond_command("guide")
@click.argument("name", required=False)
@format_option
def command(invocation: Invocation, name: str | None, form: Format) -> None:
    """List the guides in the order in which to read them, or print the one called NAME."""
    if name is None:
        # The line below its title says what a page is about.
        rows = [(guide, _text(guide).splitlines()[2]) for guide in GUIDES]
        if form is Format.TABLE:
            invocation.diagnostics.note("`batchpond guide NAME` prints one")
        output.records(("guide", "about"), rows, form, has_color=invocation.color_stdout())
    elif name in GUIDES:
        output.script(_text(name))
    else:
        raise UsageError(f"no guide {name!r}", hint=did_you_mean(name, GUIDES, "there are: " + ", ".join(GUIDES)))


def _text(name: str) -> str:
    return (FOLDER / f"{name}.md").read_text("utf-8")
