"""What a batch costs besides its lines: CPU of `submit` and of the `sync` that collects, for each batch.

    python -m tests.bench.batches [BATCHES]        # default 200 batches of one request

The same requests are bought twice, as whole processes against a simulator: as one batch, and as a batch each. What the
second takes more, by batches, is the figure (CPU seconds, least of some rounds), beside the files that were published
for it. Limit: 20 ms for both commands together; ends with 1 where it is passed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from batchpond.lake.disk import parquet_files
from tests.bench.growth import PLAIN, Place, place

ROUNDS = 3
LIMIT_MS = 20.0


def bought(one: Place, name: str, n: int, n_each: int) -> tuple[float, float, int]:
    """Buy so many requests and collect their answers: CPU seconds of either, and the files published meanwhile."""
    one.run("plan", str(one.write(PLAIN, name, n, n_each)))
    before = len(list(parquet_files(one.folder / "lake")))
    sent_s, collected_s = one.run("submit", name, "--yes"), one.run("sync")
    return sent_s, collected_s, len(list(parquet_files(one.folder / "lake"))) - before


def measure(folder: Path, n: int) -> tuple[float, float, float]:
    """Return what each batch more costs: milliseconds to send, to collect, and files."""
    found: dict[int, list[tuple[float, float, int]]] = {n: [], 1: []}
    for at in range(ROUNDS):
        for n_each, runs in found.items():
            with place(folder / f"of{n_each}-{at}", 0, 0) as fresh:
                runs.append(bought(fresh, "bought", n, n_each))
    whole, single = ([min(column) for column in zip(*runs, strict=True)] for runs in found.values())
    more = [(one - all_) / (n - 1) for one, all_ in zip(single, whole, strict=True)]
    return more[0] * 1e3, more[1] * 1e3, more[2]


def main() -> None:
    """Measure, print, and end with 1 where the limit is passed."""
    n = int(sys.argv[1]) if sys.argv[1:] else 200
    with tempfile.TemporaryDirectory(prefix="batchpond-batches-") as name:
        sent_ms, collected_ms, files = measure(Path(name), n)
    total_ms = sent_ms + collected_ms
    sys.stdout.write(
        f"{n} batches: {total_ms:.1f} ms CPU each ({sent_ms:.1f} to send, {collected_ms:.1f} to collect),"
        f" {files:.1f} files; ratio {total_ms / LIMIT_MS:.2f} (limit {LIMIT_MS:.0f} ms)\n"
    )
    sys.exit(total_ms > LIMIT_MS)


if __name__ == "__main__":
    main()
