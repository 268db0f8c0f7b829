"""How fast and in how much memory `plan` works, beside the floor of writing the same bytes with orjson.

    python -m tests.bench.plan [REQUESTS ...]

For each size it plans a study of about that many requests of 2 KB (five templates, two models, both
directions) into a fresh lake, in a process of its own, and prints requests per CPU second, the peak
memory, the growth of CPU time from size to size, and the ratio to serialising and writing the same
bodies as JSON lines. From 100,000 requests on, where what a start costs is little, ends with 1 where the ratio passes
its limit.
"""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import orjson

from batchpond.lake.store import Store
from batchpond.plan.verb import plan_study
from batchpond.study.file import load

N_CELLS = 10
RATIO_MAX = 3.0
HELD_FROM = 100_000
TEXT_BYTES = 650
STUDY = """\
study = "bench"
rubrics = ["overall_quality"]
templates = ["plain", "concise", "rubric_first", "step_by_step", "order_warned"]
items = { path = "samples.csv" }
[[models]]
provider = "openai"
model = "gpt-5.4-mini"
max_output_tokens = 500
[[models]]
provider = "openai"
model = "gpt-5.4-nano"
max_output_tokens = 500
"""


def n_items_for(n_requests: int) -> int:
    """Return how many items make about that many requests: n (n - 1) per cell, both directions."""
    return max(2, round((1 + math.sqrt(1 + 4 * n_requests / N_CELLS)) / 2))


def write_study(folder: Path, n_requests: int) -> None:
    """Write a study of about that many requests, and its samples."""
    words = "a quick study of how water finds its own level in every vessel "
    samples = (f"s{k},{str(k) + ' ' + (words * 20)[k % 60 :][:TEXT_BYTES]}\n" for k in range(n_items_for(n_requests)))
    (folder / "samples.csv").write_text("id,text\n" + "".join(samples))
    (folder / "study.toml").write_text(STUDY)


def measure(n_requests: int) -> dict[str, float]:
    """Plan once in this process and return the numbers."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_study(folder, n_requests)
        store, study = Store.init(folder / "lake"), load(folder / "study.toml")
        start = time.process_time()
        report = plan_study(store, study)
        cpu_s = time.process_time() - start
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        start = time.process_time()
        again = plan_study(store, study)
        return {
            "requests": report.n_new,
            "again_new": again.n_new,
            "cpu_s": cpu_s,
            "again_cpu_s": time.process_time() - start,
            "peak_mb": peak_mb,
            "floor_cpu_s": floor_s(folder / "floor.jsonl", report.n_new),
        }


def floor_s(path: Path, n_requests: int) -> float:
    """Return the CPU seconds of serialising and writing that many bodies of 2 KB with nothing else."""
    prompt = "x" * 1_900
    start = time.process_time()
    with path.open("wb") as file:
        for number in range(n_requests):
            body = {"messages": [{"content": f"{prompt}{number}", "role": "user"}], "model": "gpt-5.4-mini"}
            file.write(orjson.dumps(body, option=orjson.OPT_SORT_KEYS))
            file.write(b"\n")
    return time.process_time() - start


def main(sizes: list[int]) -> None:
    """Measure each size in a fresh process and print a line for it."""
    before: dict[str, float] | None = None
    is_over = False
    for size in sizes:
        done = subprocess.run([sys.executable, __file__, "--one", str(size)], capture_output=True, check=True)
        now = json.loads(done.stdout)
        ratio = now["cpu_s"] / now["floor_cpu_s"]
        is_over = is_over or (size >= HELD_FROM and ratio > RATIO_MAX)
        line = (
            f"{now['requests']:>9,} requests  {now['requests'] / now['cpu_s']:>8,.0f} per CPU-s  "
            f"{now['peak_mb']:>5.0f} MB peak  {ratio:>5.1f} x floor (limit {RATIO_MAX})  "
            f"again {now['again_cpu_s']:.2f} s"
        )
        if before is not None:
            growth = (now["cpu_s"] / before["cpu_s"]) / (now["requests"] / before["requests"])
            line += f"  CPU per request {growth:.2f} x the size before"
        sys.stdout.write(line + "\n")
        before = now
    sys.exit(is_over)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        sys.stdout.write(json.dumps(measure(int(sys.argv[2]))))
    else:
        main([int(argument) for argument in sys.argv[1:]] or [10_000, 100_000])
