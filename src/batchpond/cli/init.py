"""`init`, `templates`, `guide`: a study to start from, with texts and a lake, the prompts there are, and the guides."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from batchpond.cli import output
from batchpond.cli.formats import Format
from batchpond.cli.frame import GUIDES, Invocation, pond_command
from batchpond.errors import UsageError
from batchpond.text import did_you_mean

STUDY = "study.toml"
TEMPLATE = "prompts/mine.txt"
TEMPLATE_FROM = "plain"
EXAMPLES = ("pairwise", "stages", "adaptive", "compliance", "cascade", "live")
COMMENTED = {"pairwise": "commented.toml", "stages": "commented_stages.toml"}
FOLDER = Path(__file__).parent / "examples"
_PATH = re.compile(r'^path = "([^"]+)"', re.MULTILINE)
_PROVIDER = re.compile(r'^provider = "([^"]+)"', re.MULTILINE)
IGNORED = "lake/\ntrial/\nsimulator/\n.env\n"


@pond_command("init")
def command(
    invocation: Invocation,
    folder: Path,
    example: str | None,
    is_commented: bool,
    has_notebook: bool,
    is_schema: bool,
    is_json: bool,
) -> None:
    """Write a study with sample texts into FOLDER, ready to `plan`, and make the lake."""
    from batchpond.lake.store import Store
    from batchpond.providers import base
    from batchpond.study.file import schema

    if is_schema:
        output.document(schema())
        return
    if is_commented and example not in {None, *COMMENTED}:
        raise UsageError(f"no commented study of {example}", hint="there are: " + ", ".join(COMMENTED))
    names = tuple(COMMENTED) if is_commented else EXAMPLES
    chosen = example or invocation.diagnostics.choose("Which study to begin with?", names)
    lake = invocation.lake_path if invocation.is_lake_given else folder / invocation.lake_path
    written, kept = list[str](), list[str]()
    contents = _contents(chosen, is_commented, has_notebook)
    for name, text in contents:
        (written if _write(folder / name, text) else kept).append(str(folder / name))
    store = Store.init(lake)
    if is_json:
        output.document({"lake": store.place, "lake_id": store.lake_id, "written": written, "kept": kept})
    if kept:
        invocation.diagnostics.note("left as they are: " + ", ".join(kept))
    providers = dict.fromkeys(_PROVIDER.findall(contents[0][1]))
    keys = ", ".join(base.table(name, "limits")["key_env"][0] for name in providers)
    go_there = "" if folder == Path() else f"cd {folder} && "
    invocation.diagnostics.note(
        "wrote " + ", ".join([*written, f"lake {store.place}"]),
        hint=f"`{go_there}batchpond plan` shows what it asks and what that costs; "
        "`batchpond simulate -- batchpond --lake trial run --yes` tries all of it on this machine, "
        f"without an account or a bill; with {keys} set, `batchpond run` asks the providers themselves",
    )


def example(name: str = EXAMPLES[0], *, is_commented: bool = False) -> str:
    """Return a study that `init` writes, by its name in `EXAMPLES`; commented, one that explains every key there is."""
    return (FOLDER / (COMMENTED[name] if is_commented else f"{name}.toml")).read_text("utf-8")


def example_data(text: str) -> dict[str, str]:
    """Return what an example asks about: the files that its `path`s name, by their names."""
    return {name: (FOLDER / "data" / name).read_text("utf-8") for name in dict.fromkeys(_PATH.findall(text))}


def _contents(name: str, is_commented: bool, has_notebook: bool) -> list[tuple[str, str]]:
    from batchpond.tasks.templates import builtin

    study = example(name, is_commented=is_commented)
    prompt = [(TEMPLATE, builtin()[TEMPLATE_FROM].text + "\n")] if is_commented else []
    page = [("notebook.py", (FOLDER / "notebook.txt").read_text("utf-8"))] if has_notebook else []
    return [(STUDY, study), *example_data(study).items(), *prompt, *page, (".gitignore", IGNORED)]


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


@pond_command("templates")
def templates(invocation: Invocation, name: str | None, is_rubrics: bool, task: str | None, form: Format) -> None:
    """List the built-in prompt templates by task with their hashes, or show the text of one."""
    from batchpond.tasks import templates

    if is_rubrics and task is not None:
        raise UsageError("--task and --rubrics exclude each other: rubrics belong to no task")
    if name is not None:
        output.script(_text_of(name, is_rubrics, task))
        return
    if is_rubrics:
        names: tuple[str, ...] = ("rubric_id", "rubric_hash", "name", "description")
        rows = [(r.rubric_id, r.rubric_hash, r.name, r.description) for r in templates.builtin_rubrics().values()]
    else:
        names = ("template_id", "template_hash", "task", "text")
        rows = [
            (t.template_id, t.template_hash, of, t.text) for of in _tasks(task) for t in templates.builtin(of).values()
        ]
    if form is Format.TABLE:
        names, rows = names[:3], [row[:3] for row in rows]  # type: ignore[misc]
        invocation.diagnostics.note("`batchpond templates NAME` shows the text of one")
    output.records(names, rows, form, has_color=invocation.color_stdout())


def _tasks(task: str | None) -> list[str]:
    from batchpond.tasks import templates

    names = templates.tasks()
    if task is not None:
        _check("task", task, names)
    return names if task is None else [task]


def _text_of(name: str, is_rubric: bool, task: str | None) -> str:
    from batchpond.tasks import templates

    texts = (
        {rubric.rubric_id: rubric.description for rubric in templates.builtin_rubrics().values()}
        if is_rubric
        else {one.template_id: one.text for of in _tasks(task) for one in templates.builtin(of).values()}
    )
    _check(f"built-in {'rubric' if is_rubric else 'template'}", name, texts)
    return texts[name]


def _check(what: str, name: str, known: Collection[str]) -> None:
    """Raise UsageError for a name that is none, with the nearest that there is."""
    if name not in known:
        raise UsageError(f"no {what} {name!r}", hint=did_you_mean(name, known, "there are: " + ", ".join(known)))


@pond_command("guide")
def guide(invocation: Invocation, name: str | None, form: Format) -> None:
    """List the guides in the order in which to read them, or print the one called NAME."""
    texts = {one: Path(__file__).parents[1] / "guides" / f"{one}.md" for one in GUIDES}
    if name is not None:
        _check("guide", name, texts)
        return output.script(texts[name].read_text("utf-8"))
    # The line below its title says what a page is about.
    rows = [(one, path.read_text("utf-8").splitlines()[2]) for one, path in texts.items()]
    if form is Format.TABLE:
        invocation.diagnostics.note("`batchpond guide NAME` prints one")
    output.records(("guide", "about"), rows, form, has_color=invocation.color_stdout())
