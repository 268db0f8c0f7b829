"""What a large lake in a bucket costs whom, and what a hundred million requests would: bytes, objects, calls, CPU.

    python -m tests.bench.bucket                          # 1,000,000 requests: 10 studies, 4 hosts
    python -m tests.bench.bucket 100000 --studies 4 --hosts 2

Hosts with mirrors of their own plan, submit and sync one lake, several processes at once, through a simulated provider,
in a bucket of the tests' S3 on loopback. Each stage ends before the next begins. Who comes while another
writes (exit 75) comes again. At the end a host that has no mirror yet looks at it. Everything is counted per request
and held against a hundred million. Exits 1 where a process takes more than 500 MB, a look more than DuckDB's limit and
these, a batch was bought twice, or an answer is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from batchpond.errors import ExitCode
from batchpond_sim.host import server
from batchpond_sim.world.world import Settings
from tests.bench.scale import write_study
from tests.rigs import s3

N_REQUESTS = 1_000_000
GOAL = 100_000_000
RSS_MAX_MB = 500
LOOK_MAX_MB = RSS_MAX_MB + 1_000
LOOKS = ("status, new", "results")
"""They join all requests there are, within DuckDB's own limit."""
BUSY_WAIT_S = 0.5
PASSES_MAX = 2_000
PRICES_USD = {"PUT": 5e-6, "LIST": 5e-6, "POST": 0.0, "GET": 4e-7, "HEAD": 4e-7}
"""Of one call at Amazon S3 Standard, us-east-1; deleting is free (https://aws.amazon.com/s3/pricing/)."""
STORED_USD_PER_GB_MONTH = 0.023


@dataclass
class Stage:
    """What the processes of one stage took together, and the store's calls meanwhile."""

    cpu_s: float = 0.0
    busy_cpu_s: float = 0.0
    wall_s: float = 0.0
    peak_mb: float = 0.0
    n_runs: int = 0
    n_busy: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def line(self, name: str, n_requests: int) -> str:
        calls = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self.calls.items()))
        return (
            f"{name:12} {self.cpu_s:8.1f} CPU s {self.wall_s:8.1f} wall s {self.peak_mb:6.0f} MB"
            f" {self.n_runs:5} processes ({self.n_busy} came while another wrote, {self.busy_cpu_s:.1f} s)"
            f" {1e6 * self.cpu_s / n_requests:7.1f} CPU us a request; {calls}"
        )


@dataclass(frozen=True)
class Cluster:
    """Hosts by number, their lake and their provider."""

    folder: Path
    simulator: server.Running
    shop: s3.Shop

    def environment(self, host: int) -> dict[str, str]:
        return {
            **os.environ,
            **self.shop.environ,
            "BATCHPOND_LAKE": "s3://bucket-one/lake",
            "BATCHPOND_MIRRORS": f"{self.folder}/host-{host}",
            "OPENAI_BASE_URL": self.simulator.base_url,
            "OPENAI_API_KEY": "simulated",
        }

    def run(self, stage: Stage, host: int, *arguments: str) -> ExitCode:
        """Run one command of a host, and count what it took."""
        command = [sys.executable, "-m", "batchpond", *arguments]
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                command, env=self.environment(host), stdout=subprocess.DEVNULL, stderr=said, cwd=self.folder
            )
            _, status, usage = os.wait4(process.pid, 0)
            said.seek(0)
            errors = said.read().decode()
        code = ExitCode(os.waitstatus_to_exitcode(status))
        if code not in (ExitCode.DONE, ExitCode.PENDING, ExitCode.BUSY):
            raise SystemExit(f"batchpond {' '.join(arguments)} on host {host} ended with {code}:\n{errors}")
        with stage.lock:
            stage.cpu_s += usage.ru_utime + usage.ru_stime
            stage.peak_mb = max(stage.peak_mb, usage.ru_maxrss / 1024)
            stage.n_runs += 1
            if code is ExitCode.BUSY:
                stage.n_busy += 1
                stage.busy_cpu_s += usage.ru_utime + usage.ru_stime
        return code

    def until(self, stage: Stage, wanted: ExitCode, host: int, *arguments: str) -> None:
        """Run a command again until it ends as wanted."""
        for _ in range(PASSES_MAX):
            if self.run(stage, host, *arguments) is wanted:
                return
            time.sleep(BUSY_WAIT_S)
        raise SystemExit(f"batchpond {' '.join(arguments)} did not end in {PASSES_MAX} passes")

    def stage(self, n_hosts: int, n_works: int, work: Callable[[Stage, int, int], None]) -> Stage:
        """Do pieces of work, given by number, each on a host that is free."""
        stage, started, before = Stage(), time.perf_counter(), Counter(self.shop.calls)
        hosts = list(range(n_hosts))

        def one(number: int) -> None:
            host = hosts.pop()
            try:
                work(stage, host, number)
            finally:
                hosts.append(host)

        with ThreadPoolExecutor(n_hosts) as pool:
            list(pool.map(one, range(n_works)))
        stage.wall_s = time.perf_counter() - started
        stage.calls = self.shop.calls - before
        return stage


def names_of(folder: Path, n_requests: int, n_studies: int) -> list[str]:
    """Write studies of as many requests each, and return their names."""
    names = [f"part-{number}" for number in range(n_studies)]
    for name in names:
        (folder / name).mkdir()
        path = write_study(folder / name, n_requests // n_studies)
        path.write_text(path.read_text("utf-8").replace('study = "scale"', f'study = "{name}"'), "utf-8")
        items = folder / name / "items.jsonl"
        items.write_text(items.read_text("utf-8").replace('"text": "', f'"text": "{name} '), "utf-8")
    return names


def measure(n_requests: int, n_studies: int, n_hosts: int, folder: Path) -> tuple[dict[str, Stage], s3.Shop, list[str]]:
    """Bring the studies to their end; returns each stage, the bucket, and what did not hold."""
    names = names_of(folder, n_requests, n_studies)
    n_asked = n_studies * (n_requests // n_studies)
    settings = Settings(seed=1, latency_s=(0.1, 0.2))
    with s3.served() as shop, server.running(settings, folder / "world") as simulator:
        made = Cluster(folder, simulator, shop)
        stages = {
            "plan": made.stage(
                n_hosts,
                n_studies,
                lambda stage, host, number: made.until(
                    stage, ExitCode.DONE, host, "plan", f"{names[number]}/study.toml"
                ),
            ),
            "submit": made.stage(
                n_hosts,
                n_studies,
                lambda stage, host, number: made.until(stage, ExitCode.DONE, host, "submit", names[number], "--yes"),
            ),
            "sync": made.stage(n_hosts, n_hosts, lambda stage, host, _: made.until(stage, ExitCode.DONE, host, "sync")),
            "idle sync": made.stage(1, 1, lambda stage, host, _: made.until(stage, ExitCode.DONE, host, "sync")),
            "status, new": made.stage(1, 1, lambda stage, *_: made.until(stage, ExitCode.DONE, n_hosts, "status")),
            "results": made.stage(
                1, 1, lambda stage, *_: made.until(stage, ExitCode.DONE, n_hosts, "results", "--limit", "10")
            ),
        }
        count = (
            "SELECT (SELECT count(*) FROM results WHERE outcome IS NOT NULL) AS n_answered,"
            " (SELECT count(*) FROM attempts WHERE attempt_state = 'verified') AS n_verified"
        )
        command = [sys.executable, "-m", "batchpond", "query", count, "--format", "json"]
        said = subprocess.run(command, env=made.environment(n_hosts), capture_output=True, check=True, cwd=folder)
        found = json.loads(said.stdout)[0]
        n_bought = len(simulator.world.ledger.batches)
    problems = [f"{found['n_answered']:,} of {n_asked:,} requests have an answer"] * (found["n_answered"] != n_asked)
    problems += [f"{n_bought} batches were bought, {found['n_verified']} are verified"] * (
        n_bought != found["n_verified"]
    )
    problems += [
        f"{name}: a process takes {stage.peak_mb:.0f} MB"
        for name, stage in stages.items()
        if stage.peak_mb > (LOOK_MAX_MB if name in LOOKS else RSS_MAX_MB)
    ]
    print(f"{n_asked:,} requests in {n_bought} batches, {n_studies} studies, {n_hosts} hosts")
    return stages, shop, problems


def print_goal(stages: dict[str, Stage], shop: s3.Shop, n_requests: int) -> None:
    """Print what stands in the bucket, and what a hundred million requests would take at these costs."""
    stored: dict[str, list[int]] = defaultdict(list)
    for key, (data, _) in shop.objects.items():
        stored[key.split("/")[2]].append(len(data))
    for name, sizes in sorted(stored.items(), key=lambda one: -sum(one[1])):
        n_bytes = sum(sizes)
        print(f"  {name:28} {len(sizes):6} objects {n_bytes / 1e6:9.1f} MB {n_bytes / n_requests:8.1f} bytes a request")
    factor = GOAL / n_requests
    n_bytes, n_objects = sum(map(sum, stored.values())), sum(map(len, stored.values()))
    calls = sum((stage.calls for stage in stages.values()), Counter())
    usd = sum(PRICES_USD[kind] * count for kind, count in calls.items())
    cpu_s = sum(stage.cpu_s for stage in stages.values())
    print(
        f"at {GOAL:,} requests: {factor * n_bytes / 1e9:.0f} GB in {factor * n_objects:,.0f} objects"
        f" (${factor * n_bytes / 1e9 * STORED_USD_PER_GB_MONTH:.2f} a month), {factor * sum(calls.values()):,.0f} calls"
        f" (${factor * usd:.2f}), {factor * cpu_s / 3600:.1f} CPU hours"
    )


def main() -> int:
    """Run it once and print what it cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("requests", type=int, nargs="?", default=N_REQUESTS)
    parser.add_argument("--studies", type=int, default=10)
    parser.add_argument("--hosts", type=int, default=4)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="batchpond-bucket-") as name:
        stages, shop, problems = measure(asked.requests, asked.studies, asked.hosts, Path(name))
    sys.stdout.writelines(f"{stage.line(name, asked.requests)}\n" for name, stage in stages.items())
    print_goal(stages, shop, asked.requests)
    sys.stdout.writelines(f"OVER: {problem}\n" for problem in problems)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
