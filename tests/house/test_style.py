"""The house numbers, and that nothing is half-added."""

from __future__ import annotations

import ast
import inspect
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

import click
import orjson
import pytest
from click.testing import CliRunner

import batchpond
from batchpond.cli.frame import COMMANDS, PondCommand, root
from batchpond.cli.import_ import READERS
from batchpond.providers import registry
from batchpond.tasks import registry as tasks

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "batchpond"
SIMULATORS = ROOT / "src" / "batchpond_sim"
BROWSER = ROOT / "src" / "batchpond_browse"
IMPORTERS = ROOT / "src" / "batchpond_importers"
ENGINES = ROOT / "src" / "batchpond_spark"
REMOTE = ROOT / "src" / "batchpond_remote"
REPORT = ROOT / "src" / "batchpond_report"
WORKER = ROOT / "src" / "batchpond_work"
ROOMS = (PACKAGE, SIMULATORS, BROWSER, IMPORTERS, ENGINES, REMOTE, REPORT, WORKER)
MODULES = sorted(path for folder in ROOMS for path in folder.rglob("*.py"))
LINES_MAX = 45_260  # of the package; what stands beside it counts for itself
REPORT_LINES_MAX = 3_050
REMOTE_LINES_MAX = 951
BROWSER_LINES_MAX = 1_185
WORKER_LINES_MAX = 1_806
MODULES_MAX = 230
MODULE_LINES_MAX = 600
MODULE_LINES_USUAL = 250
FUNCTION_LINES_MAX = 70
NESTING_MAX = 4
PARAMETERS_MAX = 8
CALLBACK_PARAMETERS_MAX = 10
WRITERS = {"batchpond/cli/output.py": ("sys.stdout", "sys.stderr"), "batchpond_work/__main__.py": ("sys.stderr",)}

# The names that every provider's folder uses, `live` in the place of `batch` where there is none.
PROVIDER_MODULES = {"__init__", "batch", "live", "dialect"}
PROVIDER_EXTRAS = {
    "vertex": {"auth"},
}

Function = ast.FunctionDef | ast.AsyncFunctionDef
_DEEPENING = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match, ast.AsyncFor, ast.AsyncWith)


@cache
def trees() -> dict[str, ast.Module]:
    """Return every module's syntax tree, by its path; parsing them all is most of what these tests take."""
    return {path.relative_to(PACKAGE.parent).as_posix(): ast.parse(path.read_text()) for path in MODULES}


def functions(tree: ast.AST) -> Iterator[Function]:
    """Yield every function of a module."""
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def body_lines(function: Function) -> int:
    """Return a function's lines without its signature and docstring."""
    body = function.body
    start = body[1].lineno if ast.get_docstring(function) and len(body) > 1 else body[0].lineno
    return (function.end_lineno or start) - start + 1


def depth(node: ast.AST, level: int = 0) -> int:
    """Return how deep statements nest; an elif does not deepen."""
    deepest = level
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.Lambda):
            continue
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        deepens = isinstance(child, _DEEPENING) and not is_elif
        deepest = max(deepest, depth(child, level + deepens))
    return deepest


def test_modules_can_be_held_in_the_head() -> None:
    """No module is longer than 600 lines, and most are under 250."""
    lines = {path: len(path.read_text().splitlines()) for path in MODULES}
    assert not {path: n for path, n in lines.items() if n > MODULE_LINES_MAX}
    assert sum(n > MODULE_LINES_USUAL for n in lines.values()) < 9 / 20 * len(lines)


def _named(path: Path) -> Iterator[str]:
    """Yield where a module asks for one task or provider by its name, as `task == "likert"` or `case "likert":`."""
    names = {*tasks.NAMES, *registry.NAMES}
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Compare(left=(ast.Name(id=what) | ast.Attribute(attr=what)), comparators=[known]):
                said = ast.unparse(known)
                is_one = said[0] in "'{(" or (said[-4:].isupper() and not said.endswith("NAMES"))
                if what in {"task", "provider"} and is_one:
                    yield f"{path.relative_to(PACKAGE)}: {ast.unparse(node)}"
            case ast.MatchValue(value=ast.Constant(value=str(word))) if word in names:
                yield f"{path.relative_to(PACKAGE)}: case {word}"


def test_nobody_asks_for_a_task_or_a_provider_by_its_name_outside_its_folder() -> None:
    """What differs is said by the rule or the descriptor; two words of the study file stand for several stages."""
    folders = {"tasks", "providers"}
    asked = (path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] not in folders)
    assert sorted(one for path in asked for one in _named(path)) == [
        "interop/labels.py: case compliance",
        "interop/labels.py: case likert",
        "interop/labels.py: task == 'prompts'",
        "study/file.py: task == spec.CONVERSATION",
        "study/file.py: written.task == inputs.TASK",
        "study/spec.py: self.task == CONVERSATION",
    ]


def test_the_house_does_not_grow() -> None:
    """The package and its report have a bounded number of lines, and all packages together of modules."""
    n_lines = sum(len(path.read_text().splitlines()) for path in MODULES if path.is_relative_to(PACKAGE))
    assert n_lines <= LINES_MAX
    assert sum(len(path.read_text().splitlines()) for path in REPORT.rglob("*.py")) <= REPORT_LINES_MAX
    assert sum(path.name != "__init__.py" for path in MODULES) <= MODULES_MAX


@pytest.mark.parametrize(
    ("folder", "most"), [(BROWSER, BROWSER_LINES_MAX), (REMOTE, REMOTE_LINES_MAX), (WORKER, WORKER_LINES_MAX)]
)
def test_what_stands_beside_the_package_stays_small(folder: Path, most: int) -> None:
    """The pages to browse, lakes in buckets and the worker: few lines, in modules that are held in the head."""
    lines = [len(path.read_text().splitlines()) for path in folder.rglob("*.py")]
    assert sum(lines) <= most
    assert max(lines) <= MODULE_LINES_USUAL


def test_three_of_a_prefix_are_a_package() -> None:
    """A folder holds at most two modules of one prefix: three are a package of their own."""
    families: dict[tuple[Path, str], list[str]] = {}
    for path in MODULES:
        if not path.stem.startswith("_"):
            families.setdefault((path.parent, path.stem.partition("_")[0]), []).append(path.name)
    assert not {key: names for key, names in families.items() if len(names) > 2}


def test_the_listing_is_the_architecture() -> None:
    """The package's own folder is a page one reads at a glance: few rooms, few modules beside them."""
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    assert len(rooms) <= 13
    assert len(modules) <= 10


def test_functions_are_short_flat_and_narrow() -> None:
    """No function is long, deep or wide."""
    offenders = []
    for path, function in ((path, one) for path, tree in trees().items() for one in functions(tree)):
        arguments = function.args
        n_parameters = len(arguments.posonlyargs + arguments.args + arguments.kwonlyargs)
        n_parameters -= bool(arguments.args and arguments.args[0].arg in {"self", "cls"})
        is_callback = any("pond_command" in ast.unparse(d) for d in function.decorator_list)
        limit = CALLBACK_PARAMETERS_MAX if is_callback else PARAMETERS_MAX
        if body_lines(function) > FUNCTION_LINES_MAX or depth(function) > NESTING_MAX or n_parameters > limit:
            size = f"{body_lines(function)} lines, depth {depth(function)}, {n_parameters} parameters"
            offenders.append(f"{path}: {function.name}: {size}")
    assert not offenders


def test_only_one_module_speaks() -> None:
    """stdout and stderr have one owner."""
    for path, tree in trees().items():
        nodes = list(ast.walk(tree))
        spoken = {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)}
        spoken &= {"sys.stdout.buffer", "sys.stdout.write", "sys.stderr.write"}
        assert all(word.startswith(WRITERS.get(path, ())) for word in spoken), path
        calls = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
        assert not calls & {"print", "click.echo", "click.secho"}, path


def test_public_things_are_documented() -> None:
    """Modules, public classes and public functions say what they are in a first sentence."""
    bare = [path for path, tree in trees().items() if tree.body and not ast.get_docstring(tree)]
    bare += [
        f"{path}: {node.name}"
        for path, tree in trees().items()
        for node in public_definitions(tree)
        if not ast.get_docstring(node)
    ]
    assert not bare


def public_definitions(tree: ast.Module) -> Iterator[Function | ast.ClassDef]:
    """Yield public functions and classes, and public methods of public classes."""
    for node in tree.body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from (m for m in node.body if isinstance(m, Function) and not m.name.startswith("_"))


def test_no_exception_is_swallowed() -> None:
    """No bare except, and no broad one that says nothing to anybody."""
    nodes = ((path, node) for path, tree in trees().items() for node in ast.walk(tree))
    for path, node in nodes:
        if not isinstance(node, ast.ExceptHandler):
            continue
        assert node.type is not None, path
        is_broad = ast.unparse(node.type) in {"Exception", "BaseException"}
        speaks = any(isinstance(child, ast.Raise | ast.Call) for child in ast.walk(node))
        assert not is_broad or speaks, f"{path}:{node.lineno}"


def test_every_provider_has_a_simulator() -> None:
    """A provider is a folder here and one of the same name in the simulators, and both hold what the others hold."""
    names = {*registry.NAMES, *registry.LIVE_ONLY, "compatible"}
    folders = {path.parent.name for path in (PACKAGE / "providers").glob("*/__init__.py")}
    assert folders - {"http", "shared"} == names
    assert names <= {path.parent.name for path in SIMULATORS.glob("*/api.py")}
    for name in names:
        stems = {path.stem for path in (PACKAGE / "providers" / name).glob("*.py")}
        assert stems >= ({"batch", "dialect"} if name in registry.NAMES else {"live"}), name
        assert stems <= PROVIDER_MODULES | PROVIDER_EXTRAS.get(name, set()), name


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command, and those inside a command group, by its full name."""
    context = click.Context(root)
    for name in COMMANDS:
        found = root.get_command(context, name)
        assert found is not None
        yield name, found
        if isinstance(found, click.Group):
            for inner in found.list_commands(context):
                child = found.get_command(context, inner)
                assert child is not None
                yield f"{name} {inner}", child


def test_every_command_has_help_and_examples() -> None:
    """Each command says what it does in a line, and ends with commands to copy."""
    for name, command in commands():
        assert command.help, name
        assert len(command.get_short_help_str(limit=200)) <= 100, name
        if not isinstance(command, click.Group):
            assert isinstance(command, PondCommand), name
            assert command.examples, name
            assert all(example.startswith(f"batchpond {name}") for example in command.examples), name


def test_every_command_takes_what_is_declared_of_it() -> None:
    """The functions have the parameters of options.json by name, and nothing is declared that no command takes."""
    declared = orjson.loads((PACKAGE / "cli" / "options.json").read_bytes())
    shared = declared.pop("shared")
    named = {one for takes in declared.values() for one in takes if isinstance(one, str)}
    own = {name.rpartition(" ")[2] for name, command in commands() if not isinstance(command, click.Group)}
    assert set(declared) == own - set(entry_points(group=READERS).names) | {"everywhere", "TOOL"}
    assert named == set(shared)
    for name, command in commands():
        if isinstance(command, PondCommand) and command.callback is not None:
            taken = inspect.signature(command.callback).parameters
            given = {one.name for one in command.params if one.expose_value}
            is_open = any(one.kind is one.VAR_KEYWORD for one in taken.values())
            asked = {one.name for one in taken.values() if one.kind is not one.VAR_KEYWORD} - {"invocation"}
            assert asked <= given if is_open else asked == given, name


def test_what_is_told_of_a_command_stands_in_its_help() -> None:
    """Each section of help.md is of a command, and its help prints all of it."""
    known = {name.rpartition(" ")[2]: name for name, _ in commands()}
    for page in (PACKAGE / "cli" / "help.md").read_text("utf-8").split("\n## ")[1:]:
        name, *paragraphs = page.split("\n\n")
        shown = "".join(CliRunner().invoke(root, [*known[name].split(), "--help"]).stdout.split())
        assert paragraphs, name
        assert all("".join(paragraph.split()) in shown for paragraph in paragraphs), name


def test_the_list_of_commands_says_each_in_a_line_that_ends() -> None:
    """On a terminal of 80 columns: no sentence is cut off there."""
    lines = CliRunner().invoke(root, ["--help"], terminal_width=80).stdout.splitlines()
    for name, about in COMMANDS.items():
        assert any(line.split(maxsplit=1) == [name, about["says"]] for line in lines), name


def test_every_option_has_help() -> None:
    """No option is left unexplained."""
    for name, command in commands():
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, (name, parameter.name)


def test_no_two_options_of_a_command_are_one_parameter() -> None:
    """Where two share a name, one is read as the other; words for one choice, each with its value, may."""
    for name, command in commands():
        names = [one.name for one in command.params if not isinstance(getattr(one, "flag_value", None), str)]
        assert len(names) == len(set(names)), name


def test_every_command_file_is_a_command() -> None:
    """No command file is left out of the list, and none is missing."""
    frame = {"__init", "frame", "formats", "output"}
    files = {path.stem.rstrip("_") for path in (PACKAGE / "cli").glob("*.py")} - frame
    assert files == {about.get("file", name) for name, about in COMMANDS.items()}


def test_version_is_the_project_version() -> None:
    """The package and pyproject.toml agree."""
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == batchpond.__version__
