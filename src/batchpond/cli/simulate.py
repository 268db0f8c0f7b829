"""`simulate`: the providers on this machine, for trying things out without an account."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchpond.cli import formats, output
from batchpond.cli.frame import Invocation, pond_command
from batchpond.errors import ExitCode, UsageError
from batchpond.text import plural

if TYPE_CHECKING:
    from batchpond_sim.host.server import Running


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
    from batchpond_sim.host import server
    from batchpond_sim.world.world import Settings

    clock = SystemClock(is_set=False)
    settings = Settings(seed=seed, latency_s=latency_s, speed=speed, faults=faults, judges=judges, live_limits=limits)

    def announce(simulator: Running) -> None:
        output.text("\n".join(f"export {name}={value}" for name, value in environment(simulator).items()))
        invocation.diagnostics.note(
            f"simulating with {plural(len(faults), 'fault')}, state in {state}; Ctrl-C stops it",
            hint="run those lines in another terminal, then `batchpond submit` and `batchpond sync`",
        )

    try:
        if program:
            with server.running(settings, state, port, clock) as simulator:
                return _run(program, environment(simulator))
        server.serve(port, state, settings, on_ready=announce, until=stopped_by_signals(), clock=clock)
    except SimulatorError as error:
        raise UsageError(error.message, hint=error.hint) from error
    return ExitCode.DONE


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
