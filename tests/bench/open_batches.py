"""What a pass with nothing new costs while many batches are open: calls by kind, and CPU beside `import openai`.

    python -m tests.bench.open_batches [N ...]         # default 100 and 2000 open batches
    python -m tests.bench.open_batches --mixed         # spread over OpenAI, Anthropic and Gemini

Every request is a batch of its own, and none ends. Target: list pages only, and less CPU in all than
a process that only imports the openai package.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from batchpond_sim.host import server
from batchpond_sim.world.world import Settings, World
from tests.rigs.sim_providers import SIMULATED

STUDY = """
study = "open"
[items]
path = "items.csv"
[pairs]
count = {n_pairs}
reverse = 0.0
[shards]
max_requests = 1
[[rubrics]]
use = "overall_quality"
[[templates]]
use = "plain"
"""
MODEL = '[[models]]\nprovider = "{0}"\nmodel = "{1}"\nmax_output_tokens = 200\n'
N_RUNS = 3


@dataclass(frozen=True)
class Opened:
    """A lake with open batches, and the providers that have them."""

    submitted_s: float
    environ: dict[str, str]
    world: World


def cpu_s(command: Sequence[str], environ: dict[str, str]) -> float:
    """Run a command and return its CPU seconds."""
    process = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{errors.decode()}")
    return usage.ru_utime + usage.ru_stime


@contextmanager
def opened(n_batches: int, providers: Sequence[str], program: Sequence[str]) -> Iterator[Opened]:
    """Open the batches in a lake of their own, and look at them once."""
    with tempfile.TemporaryDirectory(prefix="batchpond-open-") as name:
        folder = Path(name)
        n_items = 2
        while n_items * (n_items - 1) // 2 * len(providers) < n_batches:
            n_items += 1
        (folder / "items.csv").write_text("id,text\n" + "".join(f"i{n},text {n}\n" for n in range(n_items)))
        models = "".join(MODEL.format(name, SIMULATED[name].models[0]) for name in providers)
        (folder / "study.toml").write_text(STUDY.format(n_pairs=n_batches // len(providers)) + models)
        with server.running(Settings(seed=1, latency_s=(50_000.0, 60_000.0)), folder / "world") as simulator:
            environ = {**os.environ, "BATCHPOND_LAKE": str(folder / "lake")}
            for provider in SIMULATED.values():
                environ[provider.url_env] = simulator.base_url_of(provider.name)
                environ[provider.key_env] = "simulated"
            cpu_s([*program, "plan", str(folder / "study.toml")], environ)
            submitted_s = cpu_s([*program, "submit", "open", "--yes"], environ)
            cpu_s([*program, "sync"], environ)
            yield Opened(submitted_s, environ, simulator.world)


def measure(n_batches: int, providers: Sequence[str]) -> None:
    """Open the batches, then print what the second of two idle passes took."""
    program = [sys.executable, "-m", "batchpond"]
    with opened(n_batches, providers, program) as one:
        before = Counter(one.world.ledger.calls)
        idle_s = min(cpu_s([*program, "sync"], one.environ) for _ in range(N_RUNS))
        calls = {op: n // N_RUNS for op, n in (Counter(one.world.ledger.calls) - before).items()}
    floor_s = min(cpu_s([sys.executable, "-c", "import openai"], dict(os.environ)) for _ in range(N_RUNS))
    start_s = min(cpu_s([*program, "--help"], dict(os.environ)) for _ in range(N_RUNS))
    sys.stdout.write(
        f"{n_batches} open at {', '.join(providers)}: submitted in {one.submitted_s:.1f} CPU s; idle pass {idle_s:.2f}"
        f" CPU s, `import openai` {floor_s:.2f}, ratio {idle_s / floor_s:.2f} (limit 1); `--help` {start_s:.2f};"
        f" calls {calls}\n"
    )


def main() -> None:
    """Measure every size asked for."""
    arguments = sys.argv[1:]
    providers = tuple(SIMULATED) if "--mixed" in arguments else ("openai",)
    for size in [int(word) for word in arguments if word.isdigit()] or [100, 2_000]:
        measure(size, providers)


if __name__ == "__main__":
    main()
