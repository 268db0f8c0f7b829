"""Run the simulators alone: `python -m batchpond.simulators --port P --state DIR`."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path

from batchpond.errors import BatchpondError, ExitCode
from batchpond.simulators.faults import describe_faults
from batchpond.simulators.server import Running, serve
from batchpond.simulators.world import Settings


def _parser() -> argparse.ArgumentParser:
    faults = "\n".join(f"  {name}{arg}: {text} [{ops}]" for name, arg, ops, text in describe_faults())
    parser = argparse.ArgumentParser(
        prog="python -m batchpond.simulators",
        description="Local simulators of the providers' batch APIs, on loopback only.",
        epilog=f"fault kinds, written <operation>@<calls>:<kind>[=argument]:\n{faults}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 picks a free one")
    parser.add_argument("--state", type=Path, required=True, help="folder that keeps the state")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--latency", type=float, nargs=2, default=(0.2, 2.0), metavar=("MIN_S", "MAX_S"))
    parser.add_argument("--speed", type=float, default=1.0, help="virtual seconds in a real one")
    parser.add_argument("--fault", action="append", default=[], metavar="SPEC")
    parser.add_argument("--judge", action="append", default=[], metavar="MODEL:name=value,...")
    parser.add_argument("--enqueued-limit", action="append", default=[], metavar="MODEL=TOKENS")
    return parser


def _limits(pairs: list[str]) -> dict[str, int]:
    return {model: int(tokens) for model, _, tokens in (pair.rpartition("=") for pair in pairs)}


def _announce(sim: Running) -> None:
    sys.stdout.write(f"{sim.base_url}\n")
    sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    """Serve until interrupted; the first line of stdout is the base URL."""
    options = _parser().parse_args(arguments)
    stop = threading.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: stop.set())
    try:
        settings = Settings(
            seed=options.seed,
            latency_s=(options.latency[0], options.latency[1]),
            speed=options.speed,
            faults=tuple(options.fault),
            judges=tuple(options.judge),
            enqueued_limits=_limits(options.enqueued_limit),
        )
        serve(options.port, options.state, settings, on_ready=_announce, until=stop)
    except BatchpondError as error:
        sys.stderr.write(f"{error.message}\n{error.hint or ''}\n")
        return int(error.exit_code)
    return int(ExitCode.DONE)


if __name__ == "__main__":
    raise SystemExit(main())
