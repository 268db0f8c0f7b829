"""CPU and peak memory of plan, submit and sync at 10,000 and 100,000 requests, against the simulator.

    python -m tests.bench.scale            # both sizes, and the ratio of their CPU times
    python -m tests.bench.scale 10000      # one size

Each verb is a process of its own, measured by the operating system from start to end. The simulator is
another process and does not count. Targets: peak under 600 MB, and ten times the work for at most 10.5
times the CPU. The floor is what the same bytes cost to encode, write and fsync once.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from batchpond_sim.host import server
from batchpond_sim.world.world import Settings

SIZES = (10_000, 100_000)
RSS_MAX_MB = 600
RATIO_MAX = 10.5
WORDS = [
    "the",
    "school",
    "should",
    "start",
    "later",
    "because",
    "students",
    "who",
    "sleep",
    "longer",
    "learn",
    "more",
    "and",
    "argue",
    "less",
    "about",
    "it",
]
STUDY = """
study = "scale"
[items]
path = "items.jsonl"
[pairs]
count = {n_pairs}
order = "random"
reverse = 1.0
[[rubrics]]
use = "overall_quality"
[[templates]]
use = "plain"
[[models]]
provider = "openai"
model = "gpt-4.1-mini"
max_output_tokens = 200
"""


@dataclass(frozen=True, slots=True)
class Usage:
    """What one process took."""

    cpu_s: float
    wall_s: float
    rss_mb: float


def run(arguments: list[str], environ: dict[str, str]) -> Usage:
    """Run batchpond once and return what the operating system counted."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "batchpond", *arguments], env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"batchpond {' '.join(arguments)} failed:\n{errors.decode()}")
    return Usage(usage.ru_utime + usage.ru_stime, time.perf_counter() - started, usage.ru_maxrss / 1024)


def write_study(folder: Path, n_requests: int) -> Path:
    """Write items of about 700 bytes and a study of `n_requests`."""
    n_pairs = n_requests // 2
    n_items = 2
    while n_items * (n_items - 1) // 2 < n_pairs:
        n_items += 1
    draw = random.Random(1)
    with (folder / "items.jsonl").open("w") as out:
        for number in range(n_items):
            out.write(json.dumps({"id": f"i{number:05d}", "text": " ".join(draw.choices(WORDS, k=130))}) + "\n")
    path = folder / "study.toml"
    path.write_text(STUDY.format(n_pairs=n_pairs))
    return path


def measure(n_requests: int) -> dict[str, Usage]:
    """Run the whole flow once at a size and return the usage of each verb."""
    with tempfile.TemporaryDirectory(prefix="batchpond-scale-") as name:
        folder = Path(name)
        study = write_study(folder, n_requests)
        with server.running(Settings(seed=1, latency_s=(0.1, 0.2)), folder / "world") as simulator:
            environ = {
                **os.environ,
                "BATCHPOND_LAKE": str(folder / "lake"),
                "OPENAI_BASE_URL": simulator.base_url,
                "OPENAI_API_KEY": "simulated",
            }
            usage = {"plan": run(["plan", str(study)], environ), "submit": run(["submit", "scale", "--yes"], environ)}
            usage["sync"] = run(["sync", "--watch", "--interval", "1", "--timeout", "900"], environ)
            usage["second sync"] = run(["sync"], environ)
            query = "select count(*) as n from results where outcome is not null"
            command = [sys.executable, "-m", "batchpond", "query", query, "--format", "json"]
            counted = subprocess.run(command, env=environ, capture_output=True, check=True)
        assert json.loads(counted.stdout)[0]["n"] == n_requests, "every request is answered and judged"
        return usage


def main() -> None:
    """Print the table, and the ratios when there are two sizes."""
    sizes = [int(argument) for argument in sys.argv[1:]] or list(SIZES)
    results = {size: measure(size) for size in sizes}
    heads = [f"{size:,} cpu s / wall s / peak MB" for size in sizes]
    print(f"{'verb':12} " + " ".join(f"{head:>36}" for head in heads))
    for verb in results[sizes[0]]:
        usages = [results[size][verb] for size in sizes]
        cells = [f"{usage.cpu_s:.1f} / {usage.wall_s:.1f} / {usage.rss_mb:.0f}" for usage in usages]
        print(f"{verb:12} " + " ".join(f"{cell:>36}" for cell in cells))
    work = ("plan", "submit", "sync")
    totals = {size: sum(results[size][verb].cpu_s for verb in work) for size in sizes}
    peak = max(u.rss_mb for size in sizes for u in results[size].values())
    print("total cpu s  " + " ".join(f"{totals[size]:>36.1f}" for size in sizes))
    print(f"peak {peak:.0f} MB (target under {RSS_MAX_MB})")
    if len(sizes) == 2:
        print(f"cpu ratio {totals[sizes[1]] / totals[sizes[0]]:.2f} (target at most {RATIO_MAX})")


if __name__ == "__main__":
    main()
