"""`init`: a lake, a commented study file and a prompt to start from."""

from __future__ import annotations

from pathlib import Path

import click

from batchpond.cli import output
from batchpond.cli.frame import Invocation, json_option, pass_invocation, pond_command
from batchpond.errors import UsageError

STUDY = "study.toml"
TEMPLATE = "prompts/mine.txt"
TEMPLATE_FROM = "plain"
EXAMPLES = ("study", "stages")


@pond_command("init", "batchpond init", "batchpond init my-study && cd my-study", "batchpond init --example stages",
              "batchpond init --schema > study.schema.json")  # fmt: skip
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path())
@click.option("--example", type=click.Choice(EXAMPLES), default=EXAMPLES[0], show_default=True,
              help="A pairwise study, or one of several stages.")  # fmt: skip
@click.option("--schema", "is_schema", is_flag=True, help="Print the JSON Schema of study files; write nothing.")
@json_option
@pass_invocation
def command(invocation: Invocation, folder: Path, example: str, is_schema: bool, is_json: bool) -> None:
    """Write study.toml and a prompt template, both commented, into FOLDER, and make the lake.

    A file that is there already is left as it is. Editors that know TOML complete and check a study file whose first
    line is `#:schema study.schema.json`, where `batchpond init --schema > study.schema.json` wrote that.
    """
    from batchpond.lake.store import Store
    from batchpond.study.file import schema

    if is_schema:
        output.document(schema())
        return

    lake = invocation.lake_path if invocation.is_lake_given else folder / invocation.lake_path
    written: list[str] = []
    kept: list[str] = []
    for name, text in _contents(example):
        (written if _write(folder / name, text) else kept).append(str(folder / name))
    store = Store.init(lake)
    if is_json:
        output.document({"lake": store.path, "lake_id": store.lake_id, "written": written, "kept": kept})
    if kept:
        invocation.diagnostics.note("left as they are: " + ", ".join(kept))
    invocation.diagnostics.note(
        "wrote " + ", ".join([*written, f"lake {store.path}"]),
        hint=f"put your texts where {STUDY} says, then run `batchpond plan {folder / STUDY}`",
    )


def _contents(name: str) -> list[tuple[str, str]]:
    from batchpond.study.file import example
    from batchpond.tasks.templates import builtin

    return [(STUDY, example(name)), (TEMPLATE, builtin()[TEMPLATE_FROM].text + "\n")]


def _write(path: Path, text: str) -> bool:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return False
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    return True
