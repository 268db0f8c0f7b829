"""What all commands share: lazy loading in flow order, global options, Ctrl-C, and errors to exit codes."""

from __future__ import annotations

import dataclasses
import difflib
import errno
import importlib
import mmap
import os
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click
import orjson

from batchpond import __version__
from batchpond.cli import linear_algebra
from batchpond.cli.formats import Format
from batchpond.cli.output import Diagnostics, Meter, ReaderGoneError
from batchpond.clock import heard_by
from batchpond.errors import BatchpondError, ExitCode, LakeWarning
from batchpond.model import CELL_COLUMNS, ErrorClass

if TYPE_CHECKING:
    from batchpond.lake.store import Store
    from batchpond.run.session import Note, Providers

PROGRAM = "batchpond"
DEFAULT_LAKE = Path("lake")
# By what one wants to do, and within each group in the order in which a study flows through them: a few words on each
# command, which take no import to show, the file that it stands in where that has another's name, and its guide.
_KNOWN = orjson.loads((Path(__file__).parent / "commands.json").read_bytes())
_OPTIONS: dict[str, Any] = orjson.loads((Path(__file__).parent / "options.json").read_bytes())
GROUPS: dict[str, dict[str, dict[str, str]]] = _KNOWN["groups"]
COMMANDS = {name: about for group in GROUPS.values() for name, about in group.items()}
IMPORTERS: dict[str, str] = _KNOWN["importers"]
GUIDES: list[str] = _KNOWN["guides"]
"""In the order in which to read them."""
GUIDE_OF = {name: about["guide"] for name, about in COMMANDS.items()} | _KNOWN["guides_of_subcommands"]
JSON_FLAGS = ("--json", "--format json", "--format=json", "--format jsonl", "--format=jsonl")
SAFE_TO_STOP = (
    "interrupted. What was recorded is safe, and batches that were sent go on at the providers; "
    "`batchpond sync` collects them and settles any send that was cut off; a live call that was cut off is in `doubts`"
)

PARAGRAPHS = {ExitCode.ATTENTION: "trouble", ExitCode.LAKE: "trouble", ExitCode.ACCESS: "providers"}
"""Errors that need more than a line, and the guide that has it."""

GRACE_S = 5.0
IMPATIENT_GRACE_S = 0.5

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass
class Invocation:
    """One invocation: where the lake is, and how to speak on stderr."""

    lake_path: Path = DEFAULT_LAKE
    is_lake_given: bool = False
    diagnostics: Diagnostics = field(default_factory=Diagnostics)

    def store(self) -> Store:
        """Open the lake."""
        with linear_algebra(threads=1):
            from batchpond.lake.store import Store

        return Store.open(self.lake_path)

    def note_left_out(self, n_rows: int) -> None:
        """Say that a terminal table was cut, and how to see the rest."""
        if n_rows:
            self.diagnostics.note(
                f"{n_rows:,} more rows are not shown", hint="`--format csv > FILE` writes all of them"
            )

    def tell(self, notes: Sequence[Note]) -> None:
        """Say what a verb had to say."""
        for note in notes:
            self.diagnostics.told(note)

    def color_stdout(self) -> bool:
        """Return whether tables on stdout are coloured."""
        return self.diagnostics.has_color(sys.stdout.isatty())


_pass_invocation = click.make_pass_decorator(Invocation, ensure=True)


def _set_diagnostics(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is not None and value is not False:
        setattr(ctx.ensure_object(Invocation).diagnostics, str(parameter.name), value)


def _set_lake(ctx: click.Context, _parameter: click.Parameter, path: Path | None) -> None:
    if path is not None:
        from batchpond.lake import disk

        invocation = ctx.ensure_object(Invocation)
        invocation.lake_path, invocation.is_lake_given = disk.local_folder(path), True


def _set_environment(_ctx: click.Context, _parameter: click.Parameter, path: Path | None) -> None:
    if path is not None:
        from batchpond.files import variables

        for name, value in variables(path).items():
            os.environ.setdefault(name, value)


def _remember_json(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    ctx.meta["batchpond.is_json"] = value


def _pick_format(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> Format:
    if ctx.meta.get("batchpond.is_json"):
        if value not in (None, Format.JSON):
            raise click.UsageError("--json and --format ask for different things", ctx)
        return Format.JSON
    return Format(value or (Format.TABLE if sys.stdout.isatty() else Format.TSV))


_LIBRARIES_BYTES = 256 << 20
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def guide_line(name: str | None) -> str:
    """Return the line that ends a command's help: which guide to read, if there is one."""
    guide = GUIDE_OF.get(name)
    return f"Guide: batchpond guide {guide}" if guide else ""


class PondCommand(click.Command):
    """A command that also takes the global options, wherever they are typed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("context_settings", CONTEXT)
        super().__init__(*args, **kwargs)
        self.examples: list[str] = _KNOWN["examples"].get(self.name, [])
        shown = "\n".join(f"  {example}" for example in self.examples)
        self.epilog = f"\b\nExamples:\n{shown}\n\n{guide_line(self.name)}" if shown else None
        lake, *others = _OPTIONS["everywhere"]
        self.params += _parameters([lake | {"envvar": None}, *(one | {"hidden": True} for one in others)])

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's first sentence, and what `help.md` says below it."""
        super().format_help_text(ctx, formatter)
        pages = (Path(__file__).parent / "help.md").read_text("utf-8").split("\n## ")
        for paragraph in next((page.split("\n\n")[1:] for page in pages if page.startswith(f"{self.name}\n")), []):
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(paragraph)


# What `options.json` calls a type; there, choices are a list, and ends of a range stand with its kind of numbers.
_TYPES: dict[str, Any] = {
    "path": click.Path(path_type=Path),
    "existing path": click.Path(path_type=Path, exists=True),
    "file": click.Path(path_type=Path, dir_okay=False),
    "existing file": click.Path(path_type=Path, dir_okay=False, exists=True),
    "folder": click.Path(path_type=Path, file_okay=False),
    "day": click.DateTime(["%Y-%m-%d"]),
    "integer": int,
    "two numbers": (float, float),
    "as typed": click.UNPROCESSED,
    "failure": click.Choice([str(name) for name in ErrorClass]),
    "format": click.Choice([form.value for form in Format]),
    "cell column": click.Choice(["study", *CELL_COLUMNS, "majority", "weighted", "dawid-skene"]),
}
_CALLBACKS = {
    "lake": _set_lake, "environment": _set_environment, "diagnostics": _set_diagnostics, "json": _remember_json,
    "format": _pick_format,
}  # fmt: skip


def _parameter(names: str, type: Any = None, **settings: Any) -> click.Parameter:
    """Return an argument or, by how its names begin, an option; its help may name its {choices}."""
    match type:
        case list():
            kind: Any = click.Choice(type)
        case {"integer": ends}:
            kind = click.IntRange(**ends)
        case {"number": ends}:
            kind = click.FloatRange(**ends)
        case _:
            kind = None if type is None else _TYPES[type]
    if isinstance(kind, click.Choice) and "help" in settings:
        settings["help"] = settings["help"].replace("{choices}", ", ".join(kind.choices))
    if "callback" in settings:
        settings["callback"] = _CALLBACKS[settings["callback"]]
    made = click.Option if names.startswith("-") else click.Argument
    return made(names.split(), type=kind, **settings)


def _parameters(declared: Sequence[str | dict[str, Any]]) -> list[click.Parameter]:
    """Return what `options.json` declares: each as it stands there, or by the name of what several share."""
    return [_parameter(**(_OPTIONS["shared"][one] if isinstance(one, str) else one)) for one in declared]


def pond_command(name: str, takes: str = "") -> Callable[[_F], PondCommand]:
    """Make a function of an invocation a command, which takes what `options.json` says; its examples end its help."""

    def decorate(function: _F) -> PondCommand:
        params = _parameters(_OPTIONS[takes or name])
        decorated = click.command(name, cls=PondCommand, params=params)(_pass_invocation(function))
        assert isinstance(decorated, PondCommand)  # noqa: S101 - tells the type checker what cls= made
        return decorated

    return decorate


class LazyGroup(click.Group):
    """A group whose commands are modules, imported when asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the commands in flow order."""
        return list(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write a section for each group of commands, all as wide as the widest name."""
        width = max(map(len, COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), about["says"]) for name, about in commands.items()])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return one command."""
        if cmd_name not in COMMANDS:
            return None
        file = COMMANDS[cmd_name].get("file")
        module = importlib.import_module(f"batchpond.cli.{file or cmd_name}{'_' if cmd_name == 'import' else ''}")
        loaded: click.Command = getattr(module, cmd_name if file else "command")
        return loaded

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which one was probably meant."""
        name = args[0]
        if not name.startswith("-") and name not in COMMANDS:
            near = difflib.get_close_matches(name, COMMANDS, n=1)
            meant = f"did you mean `{near[0]}`?" if near else "`batchpond --help` lists the commands"
            raise click.UsageError(f"no command {name!r}; {meant}", ctx)
        return super().resolve_command(ctx, args)


@click.group(PROGRAM, cls=LazyGroup, context_settings=CONTEXT)
@click.version_option(__version__, prog_name=PROGRAM)
def root() -> None:
    """Run LLM judge studies through the providers' batch APIs, into a lake you can query.

    A study flows through the commands in the order below. Nothing is sent, and nothing is
    spent, before `submit` has shown the cost and been told yes.
    """


root.params += _parameters(_OPTIONS["everywhere"])


class Interrupts:
    """Listens for Ctrl-C for the length of a with block, and has it honoured; only the main thread can.

    Python runs a signal handler between two of its own instructions, and a database engine may turn the
    KeyboardInterrupt into an error that means something else to its caller. So a watcher thread ends the process when
    the command has not ended by itself soon after, sooner when Ctrl-C is pressed again; every step of batchpond
    survives that, as it survives a power cut. A process that was started with Ctrl-C ignored, as shells start
    background jobs, goes on ignoring it.
    """

    def __init__(self, last_words: str) -> None:
        self.was_asked = False
        self._last_words = last_words
        self._is_over = False
        is_main = threading.current_thread() is threading.main_thread()
        self._is_listening = is_main and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN

    def __enter__(self) -> Interrupts:
        if self._is_listening:
            self._read_end, self._write_end = os.pipe()
            os.set_blocking(self._write_end, False)
            self._wakeup_before = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
            self._watcher = threading.Thread(target=self._watch, daemon=True)
            self._watcher.start()
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_listening:
            self._is_over = True
            signal.set_wakeup_fd(self._wakeup_before)
            # Whoever was told to stop is leaving: a second Ctrl-C must not tear a traceback out of that.
            signal.signal(signal.SIGINT, signal.SIG_IGN if self.was_asked else self._before)
            os.close(self._write_end)
            self._watcher.join()
            os.close(self._read_end)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if not self.was_asked and not self._is_over:
            self.was_asked = True
            raise KeyboardInterrupt

    def _watch(self) -> None:
        """End the process some time after the first signal; the pipe is closed when the command has ended."""
        deadline_s: float | None = None
        while True:
            left_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
            ready, _, _ = select.select([self._read_end], [], [], left_s)
            if not ready:
                os.write(2, f"\n{self._last_words}\n".encode())
                os._exit(ExitCode.INTERRUPTED)
            numbers = os.read(self._read_end, 64)
            if not numbers:
                return
            for _ in range(numbers.count(signal.SIGINT)):
                until_s = time.monotonic() + (GRACE_S if deadline_s is None else IMPATIENT_GRACE_S)
                deadline_s = until_s if deadline_s is None else min(deadline_s, until_s)


def run(arguments: Sequence[str] | None) -> int:
    """Run the command line and turn every way it can end into an exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    invocation = Invocation()
    invocation.diagnostics.is_json = any(f"{flag} " in f"{' '.join(arguments)} " for flag in JSON_FLAGS)
    heard = heard_by(Meter(invocation.diagnostics))
    with Interrupts(f"error: {SAFE_TO_STOP}") as interrupts, _lake_warnings(invocation.diagnostics) as warned, heard:
        try:
            result = root.main(args=list(arguments), prog_name=PROGRAM, standalone_mode=False, obj=invocation)
            invocation.diagnostics.end_progress()
            if warned:
                return ExitCode.LAKE
            return int(result) if isinstance(result, int) else ExitCode.DONE
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - no traceback unless asked for
            code = _end(invocation.diagnostics, error, was_interrupted=interrupts.was_asked)
            return ExitCode.LAKE if warned and code is ExitCode.USAGE else code  # what is asked for may be in that file


@contextmanager
def _lake_warnings(diagnostics: Diagnostics) -> Iterator[set[str]]:
    """Say each file of the lake that is gone or damaged once, on stderr; yields those that were said."""
    said: set[str] = set()

    def show(
        message: Warning | str, category: type[Warning], filename: str, lineno: int,
        file: TextIO | None = None, line: str | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(message, LakeWarning):
            others(message, category, filename, lineno, file, line)
        elif message.message not in said:
            said.add(message.message)
            diagnostics.warning(f"the lake is damaged: {message.message}", hint=message.hint)

    with warnings.catch_warnings():
        warnings.simplefilter("always", LakeWarning)
        others, warnings.showwarning = warnings.showwarning, show
        yield said


def _is_of_memory(error: BaseException) -> bool:
    """Whether it is for want of memory; Python may say that as an error of its own or of loading: none is left then."""
    cause: BaseException | None = error
    while cause is not None:
        # Arrow has no number of the system's for what its libraries could not allocate, only ZSTD's words.
        is_said = isinstance(cause, OSError) and (cause.errno == errno.ENOMEM or "not enough memory" in str(cause))
        if is_said or isinstance(cause, MemoryError):
            return True
        cause = cause.__cause__
    if not isinstance(error, SystemError | ImportError):
        return False
    try:
        mmap.mmap(-1, _LIBRARIES_BYTES).close()
    except (OSError, MemoryError):
        return True
    return False


def _nearest(error: click.ClickException) -> str | None:
    """Return a hint with the nearest of the words that an option takes, for one that is none of them."""
    kind = getattr(getattr(error, "param", None), "type", None)
    said = error.message.split("'")[1:2] if isinstance(kind, click.Choice) else []
    near = difflib.get_close_matches(said[0], [str(word) for word in kind.choices], 1) if kind and said else []
    return f"did you mean {near[0]!r}?" if near else None


def _end(diagnostics: Diagnostics, error: BaseException, *, was_interrupted: bool) -> ExitCode:
    """Say what ended the command, and return what that is to a script."""
    code, hint, message = ExitCode.FAILED, None, str(error)
    match error:
        case ReaderGoneError():
            # The rest of the pipeline has what it wanted; keep the interpreter from complaining at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return ExitCode.DONE
        case _ if was_interrupted or isinstance(error, KeyboardInterrupt | click.Abort):
            code, message = ExitCode.INTERRUPTED, SAFE_TO_STOP
        case _ if _is_of_memory(error):
            message = "the machine has no memory left for this"
            hint = "what was recorded before is intact: end other programs, or allow more, and run it again"
        case BatchpondError():
            code, hint = error.exit_code, error.hint
            if code in PARAGRAPHS and "guide `" not in (hint or ""):
                hint = "; ".join(filter(None, (hint, f"`batchpond guide {PARAGRAPHS[code]}` says more")))
        case click.ClickException():
            code, message, ctx = ExitCode.USAGE, error.format_message(), getattr(error, "ctx", None)
            hint = f"`{ctx.command_path} --help` shows its options" if ctx is not None else None
            hint = _nearest(error) or hint
        case _:
            message = f"unexpected {type(error).__name__}: {error}"
            hint = "this is a defect; `batchpond -v ...` shows where. What was recorded before is intact"
    diagnostics.error(message, hint, code)
    diagnostics.trace(error)
    return code


def providers(store: Store) -> Providers:
    """Return the providers, each connected with the environment's key when first needed; to be closed by `with`."""
    from batchpond.run.session import Providers

    return Providers.of_environment(store.clock, store.path)


def picked(report: Any, *names: str) -> dict[str, Any]:
    """Return attributes of a report as JSON has them, by their names, or all of its fields."""
    found = {name: getattr(report, name) for name in names or [key.name for key in dataclasses.fields(report)]}
    if "notes" in found:
        found["notes"] = [picked(note, "severity", "message", "hint") for note in found["notes"]]
    return found
