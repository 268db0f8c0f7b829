"""CPU and peak memory of plan, submit and sync at two sizes, against the simulator.

    python -m tests.bench.scale                    # 10,000 and 100,000 requests
    python -m tests.bench.scale 100000 1000000     # two other sizes
    python -m tests.bench.scale 10000              # one size
    python -m tests.bench.scale --lakes A B        # looks alone, at two lakes that there are, the smaller one first

Each verb is a process of its own, measured by the operating system from start to end. The simulator is
another process and does not count. Limits: ten times the work for at most 10.5 times the CPU of each verb,
peak memory at most 1.2 times as high, and under 400 MB. Looks at what came of it may grow by a share of what the lake
grows by, so that one at a hundred times as many requests costs ten times as much (`status`) or three (`results
--limit`), and take so much memory at most. Exits 1 where a limit is passed.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from batchpond_sim.host import server
from batchpond_sim.world.world import Settings

SIZES = (10_000, 100_000)
RSS_MAX_MB = 400
RSS_RATIO_MAX = 1.2
RATIO_MAX_OF_TEN = 10.5
WORK = ("plan", "submit", "sync")
LOOKS = {
    "status": ["status"],
    "results": ["results", "--limit", "10"],
    "consistency": ["query", "from metric_consistency"],
}
LOOKS_MAX = {"status": (0.09, 500), "results": (0.03, 250), "consistency": (0.12, 1_100)}
"""How much of a lake's growth a look may grow by (0.09: ten times the CPU at a hundred times the requests), and MB."""
SENTENCE = "the school should start later because students who sleep longer learn more and argue less about it"
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


def run(arguments: list[str], environ: Mapping[str, str], python: str = sys.executable) -> Usage:
    """Run batchpond once and return what the operating system counted."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [python, "-m", "batchpond", *arguments], env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
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
            out.write(
                json.dumps({"id": f"i{number:05d}", "text": " ".join(draw.choices(SENTENCE.split(), k=130))}) + "\n"
            )
    path = folder / "study.toml"
    path.write_text(STUDY.format(n_pairs=n_pairs))
    return path


def finished(folder: Path, n_requests: int) -> Path:
    """Run a study of `n_requests` against the simulator, and return its lake."""
    lake, study = folder / "lake", write_study(folder, n_requests)
    with server.running(Settings(seed=1, latency_s=(0.1, 0.2)), folder / "world") as simulator:
        environ = os.environ | {"OPENAI_BASE_URL": simulator.base_url, "OPENAI_API_KEY": "simulated"}
        environ["BATCHPOND_LAKE"] = str(lake)
        for command in (["plan", str(study)], ["submit", "scale", "--yes"], ["sync", "--watch", "--interval", "1"]):
            run(command, environ)
    return lake


def measure(n_requests: int, python: str = sys.executable) -> dict[str, Usage]:
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
            usage = {
                "plan": run(["plan", str(study)], environ, python),
                "submit": run(["submit", "scale", "--yes"], environ, python),
                "sync": run(["sync", "--watch", "--interval", "1", "--timeout", "900"], environ, python),
                "second sync": run(["sync"], environ, python),
            }
            usage |= looked(folder / "lake", python)
            query = "select count(*) as n from results where outcome is not null"
            command = [python, "-m", "batchpond", "query", query, "--format", "json"]
            counted = subprocess.run(command, env=environ, capture_output=True, check=True)
        assert json.loads(counted.stdout)[0]["n"] == n_requests, "every request is answered and judged"
        return usage


def grown(times: float, few: Mapping[str, Usage], many: Mapping[str, Usage]) -> list[str]:
    """Print how looks grew in a lake that is so many times as large; return which limits are passed."""
    over = []
    for look, (share, most_mb) in LOOKS_MAX.items():
        most, ratio = 1 + share * (times - 1), many[look].cpu_s / few[look].cpu_s
        said = f"{look} takes {ratio:.2f} times the CPU (limit {most:.2f}), {many[look].rss_mb:.0f} MB ({most_mb})"
        sys.stdout.write(f"{said}, {few[look].rss_mb:.0f} MB in the smaller lake\n")
        over += [said] if ratio > most or many[look].rss_mb > most_mb else []
    return over


def looked(lake: Path, python: str = sys.executable) -> dict[str, Usage]:
    """Return what looks at a lake cost, the best of three each."""
    environ = {**os.environ, "BATCHPOND_LAKE": str(lake)}
    taken = {name: [run(look, environ, python) for _ in range(3)] for name, look in LOOKS.items()}
    return {name: min(usages, key=lambda usage: usage.cpu_s) for name, usages in taken.items()}


def n_planned(lake: Path) -> int:
    """Return how many rows a lake plans."""
    environ = {**os.environ, "BATCHPOND_LAKE": str(lake)}
    command = [sys.executable, "-m", "batchpond", "query", "select count(*) as n from plan", "--format", "json"]
    return int(json.loads(subprocess.run(command, env=environ, capture_output=True, check=True).stdout)[0]["n"])


def broken(small: int, large: int, results: Mapping[int, Mapping[str, Usage]]) -> list[str]:
    """Return which limits are passed between two sizes."""
    few, many = results[small], results[large]
    most = RATIO_MAX_OF_TEN * large / small / 10
    ratios = {verb: many[verb].cpu_s / few[verb].cpu_s for verb in WORK}
    peaks = [max(one[verb].rss_mb for verb in WORK) for one in (few, many)]
    said = [f"{verb} takes {ratio:.2f} times the CPU (limit {most:.2f})" for verb, ratio in ratios.items()]
    said += [f"peak {peaks[1]:.0f} MB (limit {RSS_MAX_MB})"]
    said += [f"peak {peaks[1] / peaks[0]:.2f} times as high (limit {RSS_RATIO_MAX})"]
    is_over = [ratio > most for ratio in ratios.values()] + [peaks[1] > RSS_MAX_MB, peaks[1] > RSS_RATIO_MAX * peaks[0]]
    sys.stdout.writelines(f"{line}\n" for line in said)
    return [line for line, over in zip(said, is_over, strict=True) if over]


def main() -> int:
    """Print the table, and the ratios when there are two sizes."""
    if sys.argv[1:2] == ["--lakes"]:
        lakes = [Path(name).resolve() for name in sys.argv[2:]]
        found, (few, many) = [looked(lake) for lake in lakes], map(n_planned, lakes)
        for size, looks in zip((few, many), found, strict=True):
            costs = (f"{name} {usage.cpu_s:.2f} cpu s, {usage.rss_mb:.0f} MB" for name, usage in looks.items())
            print(f"{size:,}: {'; '.join(costs)}")
        return 1 if grown(many / few, *found) else 0
    sizes = [int(argument) for argument in sys.argv[1:]] or list(SIZES)
    results = {size: measure(size) for size in sizes}
    heads = [f"{size:,} cpu s / wall s / peak MB" for size in sizes]
    print(f"{'verb':12} " + " ".join(f"{head:>36}" for head in heads))
    for verb in results[sizes[0]]:
        usages = [results[size][verb] for size in sizes]
        cells = [f"{usage.cpu_s:.1f} / {usage.wall_s:.1f} / {usage.rss_mb:.0f}" for usage in usages]
        print(f"{verb:12} " + " ".join(f"{cell:>36}" for cell in cells))
    print("total cpu s  " + " ".join(f"{sum(results[size][verb].cpu_s for verb in WORK):>36.1f}" for size in sizes))
    over = []
    if len(sizes) == 2:
        small, large = sizes
        over = broken(small, large, results) + grown(large / small, results[small], results[large])
    sys.stdout.writelines(f"OVER: {line}\n" for line in over)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
