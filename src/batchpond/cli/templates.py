"""`templates`: the prompts and rubrics that come with batchpond."""

from __future__ import annotations

import difflib

import click

from batchpond.cli import output
from batchpond.cli.formats import Format
from batchpond.cli.frame import Invocation, format_option, pass_invocation, pond_command
from batchpond.errors import UsageError


@pond_command(
    "templates",
    "batchpond templates",
    "batchpond templates plain > my_template.txt",
    "batchpond templates --task compliance",
    "batchpond templates --rubrics --json",
)
@click.argument("name", required=False)
@click.option("--rubrics", "is_rubrics", is_flag=True, help="The built-in rubrics instead.")
@click.option("--task", "task", metavar="TASK", help="Only the templates of a task, such as ranking.")
@format_option
@pass_invocation
def command(invocation: Invocation, name: str | None, is_rubrics: bool, task: str | None, form: Format) -> None:
    """List the built-in prompt templates by task with their hashes, or show the text of one.

    A study names them by id, and knows each text by its hash: editing one is another template.
    """
    from batchpond.tasks import rubrics, templates

    if is_rubrics and task is not None:
        raise UsageError("--task and --rubrics exclude each other: rubrics belong to no task")
    if name is not None:
        output.script(_text_of(name, is_rubrics, task))
        return
    if is_rubrics:
        names: tuple[str, ...] = ("rubric_id", "rubric_hash", "name", "description")
        rows = [(r.rubric_id, r.rubric_hash, r.name, r.description) for r in rubrics.listing()]
    else:
        names = ("template_id", "template_hash", "task", "text")
        rows = [(t.template_id, t.template_hash, of, t.text) for of in _tasks(task) for t in templates.listing(of)]
    if form is Format.TABLE and output.is_terminal():
        names, rows = names[:3], [row[:3] for row in rows]  # type: ignore[misc]
        invocation.diagnostics.note("`batchpond templates NAME` shows the text of one")
    output.records(names, rows, form, has_color=invocation.color_stdout())


def _tasks(task: str | None) -> list[str]:
    from batchpond.tasks import templates

    names = templates.tasks()
    if task is None:
        return names
    if task not in names:
        near = difflib.get_close_matches(task, names, n=1)
        raise UsageError(
            f"no task {task!r}", hint=f"did you mean {near[0]}?" if near else "there are: " + ", ".join(names)
        )
    return [task]


def _text_of(name: str, is_rubric: bool, task: str | None) -> str:
    from batchpond.tasks import rubrics, templates

    texts = (
        {rubric.rubric_id: rubric.description for rubric in rubrics.listing()}
        if is_rubric
        else {one.template_id: one.text for of in _tasks(task) for one in templates.listing(of)}
    )
    if name not in texts:
        near = difflib.get_close_matches(name, texts, n=1)
        hint = f"did you mean {near[0]}?" if near else "there are: " + ", ".join(texts)
        raise UsageError(f"no built-in {'rubric' if is_rubric else 'template'} {name!r}", hint=hint)
    return texts[name]
