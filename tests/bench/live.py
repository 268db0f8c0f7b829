"""How fast live calls are made, beside a bare httpx thread pool and beside what a provider's limits allow.

    python -m tests.bench.live [--requests 10000] [--threads 8 32 64] [--latency 0.0] [--runs 3]
    python -m tests.bench.live --limits "*:rpm=12000,burst=200" [--threads 16]

Without limits: a whole run of `live` (open, ask, seal, verify) over the study's requests, and the same
bodies sent by a bare `httpx.Client` from as many threads, in turn, each in a process of its own, against a
server in a process of its own. Target: at least 0.7 of the bare pool's throughput.
With limits: a run against the simulator, which tells them in its headers and refuses what is above them.
Target: at most 1.3 times what the limits allow. Always: each body asked once, each answer in the lake.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from batchpond.lake import tables
from batchpond.lake.store import Store
from batchpond.plan import verb as plan
from batchpond.providers import registry
from batchpond.run import submit
from batchpond.run.live import run
from batchpond.run.session import Providers
from batchpond.study import file as study
from batchpond_sim.host import server
from batchpond_sim.world.limits import parse_limit
from batchpond_sim.world.world import Settings
from tests.rigs.live_study import Asked, LiveRig, settings_of, write_live_study

LAB = (Asked("compatible", "bench"),)


def environ(port: int) -> dict[str, str]:
    """Return the variables of the fast server."""
    return {"LAB_BASE_URL": f"http://127.0.0.1:{port}/v1"}


@contextmanager
def fast_server(latency_s: float) -> Iterator[int]:
    """Run the fast server in a process of its own; gives its port."""
    command = [sys.executable, "-m", "tests.bench.fast_server", str(latency_s)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def bare(bodies: Path, port: int, n_threads: int) -> float:
    """Send all bodies from a bare thread pool; returns the seconds that took."""
    lines = bodies.read_bytes().splitlines()
    limits = httpx.Limits(max_connections=n_threads, max_keepalive_connections=n_threads)
    headers = {"content-type": "application/json", "authorization": "Bearer sk-bench"}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}/v1", limits=limits, timeout=600, headers=headers) as client:

        def post(body: bytes) -> int:
            answer = client.post("/chat/completions", content=body)
            answer.json()
            return answer.status_code

        start = time.perf_counter()
        with ThreadPoolExecutor(n_threads) as pool:
            assert set(pool.map(post, lines)) == {200}
        return time.perf_counter() - start


def ours(lake: Path, port: int, n_threads: int) -> float:
    """Make one run of `live` over a lake; returns the seconds that took, the sealing included."""
    store, variables = Store.open(lake), environ(port)
    options = run.LiveOptions(
        studies=(),
        settings=settings_of(concurrency=n_threads),
        connect=lambda name, n: registry.connect_live(name, store.clock, environ=variables, max_connections=n),
    )
    start = time.perf_counter()
    report = run.run(store, options)
    took_s = time.perf_counter() - start
    assert report.n_left == 0, report
    return took_s


def alone(*arguments: object) -> float:
    """Make a measurement in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.live", "--measure", *map(str, arguments)]
    return float(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)


def approve(lake: Path, name: str) -> None:
    """Approve a study of a server that nobody bills for."""
    store = Store.open(lake)
    providers = Providers(lambda wanted: registry.connect(wanted, environ={}))
    submit.submit(store, name, confirm=lambda _: True, providers=providers)


def counts(port: int) -> dict[str, Any]:
    """Return the fast server's ledger."""
    found: dict[str, Any] = httpx.get(f"http://127.0.0.1:{port}/counts").json()
    return found


def compare(folder: Path, n_requests: int, n_threads: int, latency_s: float, n_runs: int) -> None:
    """Print how `live` stands beside the bare pool."""
    path = write_live_study(folder, n_requests, LAB)
    pairs = []
    for number in range(n_runs):
        lake = folder / f"lake-{n_threads}-{number}"
        store = Store.init(lake)
        found = study.load(path)
        plan.plan_study(store, found)
        with tables.connect(store, ["requests"]) as connection:
            rows = connection.execute("select body from requests").fetchall()
        bodies = folder / "bodies.jsonl"
        bodies.write_text("".join(f"{body}\n" for (body,) in rows))
        approve(lake, "live")
        with fast_server(latency_s) as port:
            bare_s = alone("bare", bodies, port, n_threads)
        with fast_server(latency_s) as port:
            ours_s = alone("ours", lake, port, n_threads)
            told = counts(port)
        assert told == {"n_asked": n_requests, "n_bodies": n_requests, "n_most": 1}, told
        with tables.connect(Store.open(lake), ["responses"]) as connection:
            sql = "select count(*), count(distinct request_id) from responses where status = 'succeeded'"
            assert connection.execute(sql).fetchall() == [(n_requests, n_requests)]
        pairs.append((bare_s, ours_s))
    ratio = median(bare_s / ours_s for bare_s, ours_s in pairs)
    bare_s, ours_s = (median(values) for values in zip(*pairs, strict=True))
    print(
        f"{n_threads:4} threads: bare {n_requests / bare_s:7,.0f}/s, live {n_requests / ours_s:7,.0f}/s,"
        f" ratio {ratio:.2f} (each run: {', '.join(f'{a / b:.2f}' for a, b in pairs)})",
        flush=True,
    )


def allowed_s(n_requests: int, spec: str, tokens: int) -> float:
    """Return the least time in which limits let so many requests and tokens through, from full buckets."""
    limit = parse_limit(spec)
    per_s = [rate / window_s for rate, window_s in ((limit.rpm, 60.0), (limit.rps, 1.0)) if rate]
    burst = limit.burst or max(1.0, limit.rpm, limit.rps)
    times = [(n_requests - burst) / rate for rate in per_s]
    if limit.tpm:
        times.append((tokens - limit.tpm) / (limit.tpm / 60))
    return max(0.0, *times)


def limited(folder: Path, n_requests: int, n_threads: int, spec: str, latency_s: float) -> None:
    """Print how long a run takes beside what the limits allow."""
    settings = Settings(seed=1, live_limits=(spec,), live_latency_s=(latency_s, latency_s))
    with server.running(settings, folder / "world") as simulator:
        rig = LiveRig(folder, simulator)
        rig.begin(n_requests)
        command = [sys.executable, "-m", "batchpond", "live", "--json", "--concurrency", str(n_threads)]
        variables = os.environ | rig.environ | {"BATCHPOND_LAKE": os.fspath(rig.lake)}
        start = time.perf_counter()
        done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, check=True)
        took_s = time.perf_counter() - start
        (model,) = json.loads(done.stdout)["models"]
        summary = simulator.world.ledger.live_summary()
        rig.check_complete(n_requests)
    floor_s = allowed_s(n_requests, spec, summary["input_tokens"] + summary["output_tokens"])
    assert (summary["n_billed"], summary["n_duplicates"], model["n_doubts"]) == (n_requests, 0, 0), summary
    print(
        f"{spec}, {n_threads} threads: {took_s:.1f} s, the limits allow {floor_s:.1f} s, ratio {took_s / floor_s:.2f};"
        f" {model['n_deferred']} refused, {summary['n_duplicates']} duplicates",
        flush=True,
    )


def main(arguments: Sequence[str]) -> None:
    """Measure what was asked for."""
    if arguments[:1] == ["--measure"]:
        what, path, port, n_threads = arguments[1:]
        took_s = (bare if what == "bare" else ours)(Path(path), int(port), int(n_threads))
        print(took_s)
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--threads", type=int, nargs="+", default=None)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds that an answer takes")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--limits", help="as `batchpond simulate --limit` takes them")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="batchpond-live-") as name:
        for n_threads in asked.threads or ([16] if asked.limits else [8, 32, 64]):
            if asked.limits:
                limited(Path(name), asked.requests, n_threads, asked.limits, asked.latency)
            else:
                compare(Path(name), asked.requests, n_threads, asked.latency, asked.runs)


if __name__ == "__main__":
    main(sys.argv[1:])
