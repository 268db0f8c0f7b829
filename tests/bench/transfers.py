"""What a pass waits for files on their way: those of several batches at once, beside one after the other.

    python -m tests.bench.transfers [BATCHES MS]        # default 12 batches, 200 ms for each file

The same requests are bought in fresh lakes of a loopback simulator whose uploads begin that much later, or whose
result files come at so many bytes a second that each takes that long. `submit` sends them, one pass collects them: in
turns as the program does it, and with one file at a time. Printed are seconds on the wall, the least of some rounds,
and their ratio. Limit: 0.6 times; ends with 1 where it is passed.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

import httpx

from batchpond.api import Lake
from batchpond.lake.events import read
from batchpond.lake.records import Downloaded
from batchpond.lake.store import Store
from batchpond.model import RemoteFile
from batchpond.providers.shared.batches import FilesClient
from batchpond.run import collect, dispatch
from tests.bench.growth import PLAIN, place
from tests.rigs.sim_providers import SIMULATED

ROUNDS = 3
N_EACH = 10
LIMIT = 0.6


def collected(folder: Path, n: int, at_once: int, bytes_per_s: int | None) -> tuple[float, int]:
    """Buy and collect so many batches; return the seconds of the pass that collects, and the bytes of a result file."""
    with place(folder, 0, 0) as one:
        lake = Lake(one.folder / "lake")
        lake.plan(one.write(PLAIN, "bought", n * N_EACH, N_EACH))
        lake.submit("bought", confirm=lambda _: True)
        if bytes_per_s is not None:
            root = one.environ[SIMULATED["openai"].url_env].removesuffix(SIMULATED["openai"].path)
            spec = f"files.content@*:slow={bytes_per_s}"
            httpx.post(f"{root}/_sim/faults", json={"spec": spec}).raise_for_status()
        with patch.object(collect, "AT_ONCE", at_once):
            began_s = time.monotonic()
            report = lake.sync()
            took_s = time.monotonic() - began_s
        if report.counts.n_verified != n:
            raise SystemExit(f"{report.counts.n_verified} of {n} batches came: {report.notes}")
        sizes = [event.size_bytes for event in read(Store.open(one.folder / "lake")) if isinstance(event, Downloaded)]
        return took_s, sum(sizes) // n


def sent(folder: Path, n: int, ahead: int, each_ms: int) -> float:
    """Send so many batches, so many files travelling ahead; return the seconds that `submit` takes."""
    with place(folder, 0, 0) as one:
        lake = Lake(one.folder / "lake")
        lake.plan(one.write(PLAIN, "bought", n * N_EACH, N_EACH))
        upload = FilesClient.upload

        def slow(self: FilesClient, path: Path, name: str) -> RemoteFile:
            time.sleep(each_ms / 1_000)
            return upload(self, path, name)

        with patch.object(FilesClient, "upload", slow), patch.object(dispatch, "UPLOADS_MAX", ahead):
            began_s = time.monotonic()
            report = lake.submit("bought", confirm=lambda _: True)
            took_s = time.monotonic() - began_s
        if report.counts is None or report.counts.n_created != n:
            raise SystemExit(f"not all of {n} batches were created: {report.notes}")
        return took_s


def uploads(n: int, each_ms: int) -> float:
    """Measure and print what uploads take; return the ratio."""
    found: dict[int, list[float]] = {0: [], dispatch.UPLOADS_MAX: []}
    with tempfile.TemporaryDirectory(prefix="batchpond-transfers-") as name:
        free_s = sent(Path(name) / "free", n, 0, 0)
        for number in range(ROUNDS):
            for ahead, runs in found.items():
                runs.append(sent(Path(name) / f"{ahead}-{number}", n, ahead, each_ms))
    before_s, now_s = map(min, found.values())
    sys.stdout.write(
        f"{n} batches, {each_ms} ms for each input file: {now_s:.2f} s, {dispatch.UPLOADS_MAX} ahead; {before_s:.2f} s,"
        f" one after the other; {free_s:.2f} s where no file takes any; ratio {now_s / before_s:.2f} (limit {LIMIT})\n"
    )
    return now_s / before_s


def main() -> None:
    """Measure, print, and end with 1 where the limit is passed."""
    n, each_ms = [int(word) for word in sys.argv[1:]] or [12, 200]
    found: dict[int, list[float]] = {1: [], collect.AT_ONCE: []}
    with tempfile.TemporaryDirectory(prefix="batchpond-transfers-") as name:
        free_s, size_bytes = collected(Path(name) / "free", n, 1, None)
        for number in range(ROUNDS):
            for at_once, runs in found.items():
                folder = Path(name) / f"{at_once}-{number}"
                runs.append(collected(folder, n, at_once, size_bytes * 1_000 // each_ms)[0])
    before_s, now_s = map(min, found.values())
    sys.stdout.write(
        f"{n} batches, {each_ms} ms for each result file: {now_s:.2f} s, {collect.AT_ONCE} at once; {before_s:.2f} s,"
        f" one after the other; {free_s:.2f} s where no file takes any; ratio {now_s / before_s:.2f} (limit {LIMIT})\n"
    )
    sys.exit(max(now_s / before_s, uploads(n, each_ms)) > LIMIT)


if __name__ == "__main__":
    main()
