"""`simulate`: the providers on this machine, for trying things out without an account."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from batchpond.cli import formats, output
from batchpond.cli.formats import plural
from batchpond.cli.frame import Invocation, pass_invocation, pond_command
from batchpond.errors import UsageError

if TYPE_CHECKING:
    from batchpond_sim.host.server import Running


@pond_command(
    "simulate",
    "batchpond simulate --port 8787 --state sim",
    "batchpond simulate --state sim --latency 5 60 --fault 'batches.create@1:reset_after'",
    "batchpond simulate --state sim --limit '*:rpm=600' --fault 'live@100-200:status=529'",
    "batchpond simulate --state sim --judge 'gpt-5.4-mini:sharpness=9,position_bias=0.9'",
)
@click.option("--port", type=click.IntRange(0, 65_535), default=0, metavar="P", help="0 takes a free one.")
@click.option("--state", "state", type=click.Path(file_okay=False, path_type=Path), default=Path("simulator"),
              show_default=True, metavar="DIR", help="Files, batches and the ledger; kept over restarts.")  # fmt: skip
@click.option("--seed", type=int, help="What its judges draw from; a new folder's default is 0.")
@click.option("--fault", "faults", multiple=True, metavar="SPEC",
              help="OPERATION[@CALLS[/EVERY]]:KIND[=ARGUMENT]; may be repeated; --faults lists the kinds.")  # fmt: skip
@click.option("--judge", "judges", multiple=True, metavar="SPEC",
              help="MODEL:NAME=VALUE,...: how a model judges; may be repeated.")  # fmt: skip
@click.option("--limit", "limits", multiple=True, metavar="SPEC",
              help="MODEL:rpm=60,tpm=9000,rps=,concurrent=,burst=: limits of live calls; may be repeated.")  # fmt: skip
@click.option("--latency", "latency_s", type=(float, float), default=(0.2, 2.0), show_default=True,
              metavar="MIN MAX", help="Seconds a batch takes.")  # fmt: skip
@click.option(
    "--speed", type=click.FloatRange(min=0), default=1.0, show_default=True, help="Its seconds in one of yours."
)
@click.option("--faults", "is_listing", is_flag=True, help="List the faults that --fault takes, and stop.")
@pass_invocation
def command(
    invocation: Invocation,
    port: int,
    state: Path,
    seed: int | None,
    faults: tuple[str, ...],
    judges: tuple[str, ...],
    limits: tuple[str, ...],
    latency_s: tuple[float, float],
    speed: float,
    is_listing: bool,
) -> None:
    """Run the providers' APIs, batch and live, on this machine until Ctrl-C; answers are marked simulated.

    Prints the lines that point other terminals at it. Its ledger in DIR shows every batch
    created and every token billed.
    """
    from batchpond.demo import environment
    from batchpond_sim import SimulatorError
    from batchpond_sim.host import server
    from batchpond_sim.world.faults import describe_faults
    from batchpond_sim.world.world import Settings

    if is_listing:
        heads = ("fault", "argument", "where", "what happens")
        output.text("\n".join(formats.aligned(heads, describe_faults(), n_text_columns=len(heads))))
        return
    settings = Settings(seed=seed, latency_s=latency_s, speed=speed, faults=faults, judges=judges, live_limits=limits)

    def announce(simulator: Running) -> None:
        output.text("\n".join(f"export {name}={value}" for name, value in environment(simulator).items()))
        invocation.diagnostics.note(
            f"simulating with {plural(len(faults), 'fault')}, state in {state}; Ctrl-C stops it",
            hint="run those lines in another terminal, then `batchpond submit` and `batchpond sync`",
        )

    try:
        server.serve(port, state, settings, on_ready=announce, until=_stopped_by_signals())
    except SimulatorError as error:
        raise UsageError(error.message, hint=error.hint) from error


def _stopped_by_signals() -> threading.Event:
    stopped = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopped.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    return stopped
