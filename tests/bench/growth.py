"""What a pass costs in a lake with a long past, beside the same pass in an empty one.

    python -m tests.bench.growth [STUDIES BATCHES]        # default 200 finished studies, 5,000 settled batches

Half of the past studies are plain, half have a stage, and their batches hold one request each. Then one study more,
of ten requests in one batch, is submitted to both lakes. Measured, as whole processes by CPU seconds: the pass in
which that batch ends (limit 1.5 times the same in the empty lake), and an idle pass after it (limit 1.2 times).
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from batchpond.api import Lake
from batchpond_sim.host import server
from batchpond_sim.world.world import Settings
from tests.bench.open_batches import cpu_s
from tests.rigs.sim_providers import SIMULATED

N_RUNS = 5
ENDING_MAX = 1.5
IDLE_MAX = 1.2
MODEL = '[[models]]\nprovider = "openai"\nmodel = "gpt-4.1-mini"\nmax_output_tokens = 200\n'
PLAIN = """
study = "{name}"
[items]
path = "{name}.csv"
[pairs]
count = {n}
reverse = 0.0
[shards]
max_requests = {n_each}
[[rubrics]]
use = "overall_quality"
[[templates]]
use = "plain"
"""
STAGED = """
study = "{name}"
[shards]
max_requests = {n_each}
[[stages]]
name = "ask"
task = "prompts"
[stages.items]
path = "{name}.csv"
[[stages.templates]]
id = "t"
text = "How good is this? {INPUT} Answer in JSON with a score."
[stages.answer]
form = "json"
fields = { score = "/score" }
[[stages.models]]
provider = "openai"
model = "gpt-4.1-mini"
max_output_tokens = 200
"""


@dataclass(frozen=True)
class Place:
    """A folder with a lake, and what the program finds of the simulator in its environment."""

    folder: Path
    environ: dict[str, str]

    def run(self, *arguments: str) -> float:
        """Run the program and return its CPU seconds."""
        return cpu_s([sys.executable, "-m", "batchpond", *arguments], self.environ)

    def write(self, template: str, name: str, n: int, n_each: int) -> Path:
        """Write a study of `n` requests, `n_each` to a batch."""
        n_items = n if template is STAGED else next(k for k in range(2, 10_000) if k * (k - 1) // 2 >= n)
        rows = "".join(f"i{k},text {k} of {name}\n" for k in range(n_items))
        (self.folder / f"{name}.csv").write_text("id,text\n" + rows)
        file = self.folder / f"{name}.toml"
        text = template.replace("{name}", name).replace("{n}", str(n)).replace("{n_each}", str(n_each))
        file.write_text(text if template is STAGED else text + MODEL)
        return file


def fill(place: Place, n_studies: int, n_batches: int) -> None:
    """Give the lake its past."""
    lake = Lake(place.folder / "lake")
    for number in range(n_studies):
        template = STAGED if number % 2 else PLAIN
        lake.plan(place.write(template, f"past{number}", max(1, n_batches // n_studies), 1))
        lake.submit(f"past{number}", confirm=lambda _: True)
        lake.sync()


def measure(folder: Path, n_studies: int, n_batches: int) -> tuple[float, float]:
    """Return the CPU seconds of the pass in which a batch ends, and of an idle one after it."""
    folder.mkdir()
    with server.running(Settings(seed=1, latency_s=(0.0, 0.0)), folder / "world") as simulator:
        openai = SIMULATED["openai"]
        environ = {
            **os.environ,
            "BATCHPOND_LAKE": str(folder / "lake"),
            openai.url_env: simulator.base_url_of("openai"),
            openai.key_env: "simulated",
        }
        os.environ.update(environ)
        place = Place(folder, environ)
        fill(place, n_studies, n_batches)
        ending = []
        for number in range(N_RUNS):
            place.run("plan", str(place.write(PLAIN, f"new{number}", 10, 10)))
            place.run("submit", f"new{number}", "--yes")
            ending.append(place.run("sync"))
        idle = [place.run("sync") for _ in range(N_RUNS)]
    return min(ending), min(idle)


def main() -> None:
    """Measure both lakes."""
    n_studies, n_batches = [int(word) for word in sys.argv[1:]] or [200, 5_000]
    with tempfile.TemporaryDirectory(prefix="batchpond-growth-") as name:
        empty = measure(Path(name) / "empty", 0, 0)
        full = measure(Path(name) / "full", n_studies, n_batches)
    is_over = False
    for what, old, new, limit in zip(("a batch ends", "idle"), empty, full, (ENDING_MAX, IDLE_MAX), strict=True):
        is_over = is_over or new / old > limit
        sys.stdout.write(
            f"{what}: {new:.2f} CPU s with {n_studies} studies and {n_batches} batches, {old:.2f} in an empty lake,"
            f" ratio {new / old:.2f} (limit {limit})\n"
        )
    sys.exit(is_over)


if __name__ == "__main__":
    main()
