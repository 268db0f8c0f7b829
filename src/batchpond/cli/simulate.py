"""`simulate`, `demo`, `work`: the other side: providers on this machine, the whole flow with them, and workers.

Simulated providers are to try things out without an account; a worker answers a folder of mode `files`, beside any
number of others that do.
"""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from batchpond.cli import formats, output
from batchpond.cli.frame import Invocation, pond_command
from batchpond.errors import BatchpondError, ExitCode, UsageError
from batchpond.model import CELL_COLUMNS
from batchpond.text import plural
from batchpond_work import WorkError
from batchpond_work.settings import OPTIONS
from batchpond_work.settings import Settings as WorkSettings

if TYPE_CHECKING:
    from batchpond.clock import SystemClock
    from batchpond_sim.host.server import Running
    from batchpond_sim.world import world


PORT: Final = "port.txt"


def _list_faults(ctx: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if is_asked:
        from batchpond_sim.world.faults import describe_faults

        heads = ("fault", "argument", "where", "what happens")
        output.text("\n".join(formats.aligned(heads, describe_faults(), n_text_columns=len(heads))))
        ctx.exit()


@pond_command("simulate")
@click.option("--faults", "is_listing", is_flag=True, is_eager=True, expose_value=False, callback=_list_faults,
              help="List the faults that --fault takes, and stop.")  # fmt: skip
def command(
    invocation: Invocation,
    program: tuple[str, ...],
    port: int,
    state: Path,
    seed: int | None,
    faults: tuple[str, ...],
    judges: tuple[str, ...],
    limits: tuple[str, ...],
    latency_s: tuple[float, float],
    speed: float,
) -> int:
    """Run the providers' APIs, batch and live, on this machine until Ctrl-C; answers are marked simulated."""
    from batchpond.clock import SystemClock
    from batchpond.demo import environment
    from batchpond_sim import SimulatorError
    from batchpond_sim.world import world

    clock = SystemClock(is_set=False)
    settings = world.Settings(
        seed=seed, latency_s=latency_s, speed=speed, faults=faults, judges=judges, live_limits=limits
    )

    def announce(simulator: Running) -> None:
        output.text("\n".join(f"export {name}={value}" for name, value in environment(simulator).items()))
        invocation.diagnostics.note(
            f"simulating with {plural(len(faults), 'fault')}, state in {state}; Ctrl-C stops it",
            hint="run those lines in another terminal, then `batchpond submit` and `batchpond sync`",
        )

    try:
        with _running(settings, state, port, clock) as simulator:
            if program:
                return _run(program, environment(simulator))
            stopped = stopped_by_signals()
            announce(simulator)
            stopped.wait()
    except SimulatorError as error:
        raise UsageError(error.message, hint=error.hint) from error
    return ExitCode.DONE


@contextmanager
def _running(settings: world.Settings, state: Path, port: int, clock: SystemClock) -> Iterator[Running]:
    """Run a simulator, where it can be at the port at which it left this state: batches are known by their address."""
    from batchpond_sim import SimulatorError
    from batchpond_sim.host import server

    kept = state / PORT
    text = kept.read_text("utf-8", "replace") if kept.is_file() and not port else ""
    # A process that is killed while it writes leaves a part of it.
    before = int(text) if re.fullmatch(r"[1-9]\d{3,4}", text, re.ASCII) and int(text) < 1 << 16 else 0
    with ExitStack() as stack:
        try:
            simulator = stack.enter_context(server.running(settings, state, port or before, clock))
        except SimulatorError:
            if not before:
                raise
            simulator = stack.enter_context(server.running(settings, state, 0, clock))
        kept.write_text(f"{simulator.port}")
        yield simulator


def _run(program: tuple[str, ...], variables: Mapping[str, str]) -> int:
    """Run a program with variables added to the environment and return its exit code; Ctrl-C is the program's own."""
    try:
        process = subprocess.Popen(program, env=os.environ | variables)
    except OSError as error:
        raise UsageError(f"{program[0]} cannot be run: {error.strerror}") from None
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    code = process.wait()
    signal.signal(signal.SIGINT, before)
    return code if code >= 0 else 128 - code


def stopped_by_signals() -> threading.Event:
    """Return what is set once Ctrl-C or whoever runs the program has asked it to end."""
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: stopped.set())
    return stopped


OUTCOME_HEADS = ("model", "all", "answered", "decided", "tie", "ambiguous", "unparsed", "refused", "other")
CELL_HEADS = ("", "pairs", "consistent", "95 %", "log-odds", "95 %", "q")
DEMO_ORDER = ("request_model", *(name for name in CELL_COLUMNS if name != "request_model"))
DEMO_REPORT = "demo-report.html"
EXPLORE = (
    "status",
    "results --limit 10",
    'query "from report_consistency"',
    'query "select outcome, count(*) as n from results group by all"',
    "views",
    "audit",
)


@pond_command("demo")
def demo(invocation: Invocation, is_json: bool) -> None:
    """Judge 20 essays with a simulated model of each of three providers, over real HTTP on this machine."""
    from batchpond import demo as flow
    from batchpond.views.read import rows

    report = flow.run(invocation.lake_path, invocation.diagnostics.note)
    lake = invocation.lake_path
    if is_json:
        completion = rows(lake, "metric_completion", order=DEMO_ORDER, study=flow.STUDY)
        cells = rows(lake, "report_consistency", order=DEMO_ORDER, study=flow.STUDY)
        counts = {"n_requests": report.n_requests, "n_batches": report.n_batches, "n_syncs": report.n_syncs}
        page = _report(invocation)
        output.document({**counts, "completion": completion, "consistency": cells, "report": page})
        return
    output.text("\n".join(tables(lake)))
    place = invocation.store().place
    option = f"--lake {place} " if invocation.is_lake_given else ""
    explore = "\n".join(f"  batchpond {option}{words}" for words in EXPLORE)
    shell = f"  duckdb -readonly {lake}/batchpond.duckdb"
    invocation.diagnostics.note(f"all of it is in {place}; go on with\n{explore}\n{shell}")
    _report(invocation)


def _report(invocation: Invocation) -> Path | None:
    """Write the demo's report beside its lake, where the packages are there that draw it, and say where it is."""
    from batchpond import demo as flow
    from batchpond_report import build

    if build.missing_packages():
        hint = "pip install 'batchpond[report]'; `batchpond report` then writes all of it on one page"
        invocation.diagnostics.note("there is no report yet", hint=hint)
        return None
    path = invocation.lake_path.absolute().parent / DEMO_REPORT
    content = build.text(build.build(invocation.lake_path, flow.STUDY), build.ReportFormat.HTML)
    build.write(content, path, force=True)
    invocation.diagnostics.note(f"the report, a page to open in a browser: {path}")
    return path


def tables(lake_path: Path) -> Iterator[str]:
    """Yield the demo's two tables: what came back, and what it says about the judges."""
    from batchpond import demo as flow
    from batchpond.views.read import run_query

    def table(heads: tuple[str, ...], query: str) -> list[str]:
        found = run_query(lake_path, (flow.DATA / query).read_text("utf-8"))
        rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
        return formats.aligned(heads, rows, n_text_columns=1)

    yield "What came back (simulated)"
    yield from table(OUTCOME_HEADS, "came_back.sql")
    yield ""
    yield "Is the same winner named when the two essays swap places, and which place is favoured?"
    yield from table(CELL_HEADS, "favoured.sql")
    yield ""
    yield "log-odds: above 0, the essay shown first is favoured"
    yield "q: test of that for essays in general, corrected over the cells"


@pond_command("work")
def work(invocation: Invocation, folder: Path, is_json: bool, **settings: Any) -> int:
    """Answer the requests in a folder of mode `files`, or at its address: as many as you like, anywhere."""
    from batchpond_work import work as worker

    try:
        with worker.stopped_by_signals() as stop:
            tally = worker.work(folder, WorkSettings(**settings), invocation.diagnostics.note, stop)
    except WorkError as error:
        ended = BatchpondError(error.message, hint=error.hint)
        ended.exit_code = ExitCode(error.exit_code)
        raise ended from error
    if is_json:
        output.document(dataclasses.asdict(tally))
    invocation.diagnostics.note(tally.text)
    return tally.exit_code


work.params[1:1] = [
    click.Option(
        [f"--{option.name.replace('_', '-')}"],
        type=type(option.default),
        is_flag=isinstance(option.default, bool),
        default=option.default,
        show_default=bool(option.default),
        metavar=None if isinstance(option.default, bool) else option.metadata["metavar"],
        help=option.metadata["help"],
    )
    for option in OPTIONS
]
