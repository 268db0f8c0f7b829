"""`simulate`: a provider on this machine, for trying things out without an account."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType

import click

from batchpond.cli import output
from batchpond.cli.frame import Invocation, pass_invocation, pond_command
from batchpond.cli.text import plural

KEY = "simulated-key"
WAIT_S = 0.5


@pond_command(
    "simulate",
    "batchpond simulate --port 8787 --state sim",
    "batchpond simulate --state sim --latency 5 60 --fault 'batches.create@1:reset_after'",
    "batchpond simulate --state sim --judge 'gpt-5.4-mini:sharpness=9,position_bias=0.9'",
)
@click.option("--port", type=click.IntRange(0, 65_535), default=0, metavar="P", help="0 takes a free one.")
@click.option("--state", "state", type=click.Path(file_okay=False, path_type=Path), default=Path("simulator"),
              show_default=True, metavar="DIR", help="Files, batches and the ledger; kept over restarts.")  # fmt: skip
@click.option("--seed", type=int, help="What its judges draw from; a new folder's default is 0.")
@click.option("--fault", "faults", multiple=True, metavar="SPEC",
              help="OPERATION[@CALLS]:KIND[=ARGUMENT]; may be repeated; --faults lists the kinds.")  # fmt: skip
@click.option("--judge", "judges", multiple=True, metavar="SPEC",
              help="MODEL:NAME=VALUE,...: how a model judges; may be repeated.")  # fmt: skip
@click.option("--latency", "latency_s", type=(float, float), default=(0.2, 2.0), show_default=True,
              metavar="MIN MAX", help="Seconds a batch takes.")  # fmt: skip
@click.option("--faults", "is_listing", is_flag=True, help="List the faults that --fault takes, and stop.")
@pass_invocation
def command(
    invocation: Invocation,
    port: int,
    state: Path,
    seed: int | None,
    faults: tuple[str, ...],
    judges: tuple[str, ...],
    latency_s: tuple[float, float],
    is_listing: bool,
) -> None:
    """Run OpenAI's batch API on this machine until Ctrl-C; its answers are marked as simulated.

    Prints the two lines that point other terminals at it. Its ledger in DIR shows every batch
    created and every token billed.
    """
    from batchpond.simulators import server
    from batchpond.simulators.faults import describe_faults
    from batchpond.simulators.world import Settings

    if is_listing:
        output.text("\n".join("  ".join(filter(None, row)) for row in describe_faults()))
        return
    settings = Settings(seed=seed, latency_s=latency_s, faults=faults, judges=judges)
    with server.running(state, settings=settings, port=port) as simulator:
        output.text(f"export OPENAI_BASE_URL={simulator.base_url}\nexport OPENAI_API_KEY={KEY}")
        invocation.diagnostics.note(
            f"simulating with {plural(len(faults), 'fault')}, state in {state}; Ctrl-C stops it",
            hint="run those two lines in another terminal, then `batchpond submit` and `batchpond sync`",
        )
        _wait_for_a_signal()


def _wait_for_a_signal() -> None:
    import threading

    stopped = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopped.set()

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    while not stopped.wait(WAIT_S):
        pass
