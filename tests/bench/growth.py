"""What a pass costs in a lake with a long past, beside the same pass in an empty one.

    python -m tests.bench.growth [STUDIES BATCHES]        # default 200 finished studies, 5,000 settled batches
    python -m tests.bench.growth 60 600                   # a short form
    python -m tests.bench.growth --passes 500             # a batch ends in each of so many passes

Half of the past studies are plain, half have a stage, and their batches hold one request each: one of either is run
to its end, and its files are written again under other ids and earlier times. Then, in turns, one study more of ten
requests in one batch is submitted to both lakes. Measured, as whole processes by CPU seconds: the pass in which that
batch ends (limit 1.5 times the same in the empty lake), and an idle pass after it (limit 1.2 times).

With `--passes`, a lake grows by a batch of one request a pass, in one process; the last tenth of the passes may take
1.2 times the CPU of the first tenth (medians: in the very first, what all need is still being loaded).
"""

from __future__ import annotations

import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from batchpond import ids
from batchpond.api import Lake
from batchpond.lake.disk import read_rows
from batchpond.lake.store import Store
from batchpond_sim.host import server
from batchpond_sim.world.world import Settings
from tests.bench.open_batches import cpu_s
from tests.rigs.sim_providers import SIMULATED

N_RUNS = 5
APART_S = 600
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


COPIED = ("studies", "plan", "requests", "shard_requests", "events", "raw", "responses", "judgments")
IDS = frozenset(
    {"study", "study_version", "approval_id", "shard_id", "attempt_id", "token", "batch_id", "file_id", "request_id"}
    | {"event_id", "file_sha256", "custom_id", "provider_request_id", "requests_file"}
)
WITH_IDS = IDS | {"line", "config"}


def fill(place: Place, n_studies: int, n_batches: int) -> None:
    """Give the lake its past: a study of each kind, and copies of both."""
    lake = Lake(place.folder / "lake")
    n_pairs = n_studies // 2
    for number, template in enumerate((PLAIN, STAGED) if n_pairs else ()):
        lake.plan(place.write(template, f"past{number}", max(1, n_batches // n_studies), 1))
        lake.submit(f"past{number}", confirm=lambda _: True)
        lake.sync()
    if n_pairs:
        copy(place.folder / "lake", n_pairs - 1)
        lake.sync()


def copy(lake: Path, n: int) -> None:
    """Write every file of a lake so many times again, as of other studies that ended before."""
    store = Store.open(lake)
    files = {path: read_rows(path) for table in COPIED for path in store.files(table)}
    found = {value for rows in files.values() for name in IDS & {*rows.column_names} for value in values(rows, name)}
    found |= {path.stem for path in files if path.parent.name in {"requests", "events"}}
    known = re.compile("|".join(map(re.escape, sorted(found - {None}, key=len, reverse=True))))
    for number in range(1, n + 1):
        cache: dict[str, str] = {}

        def other(match: re.Match[str], number: int = number, cache: dict[str, str] = cache) -> str:
            return cache.setdefault(match[0], _other(match[0], number))

        merged = []
        for path, rows in files.items():
            moved = _moved(rows, known, other, APART_S * number)
            if path.parent.name == "events":
                merged.append(moved)
                continue
            target = lake / known.sub(other, str(path.relative_to(lake)))
            target.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(moved, target, compression="zstd")
        pq.write_table(pa.concat_tables(merged), lake / f"events/e-{ids.digest('past', number)}.parquet")


def values(rows: pa.Table, name: str) -> list[str | None]:
    """Return a column's values."""
    return rows.column(name).to_pylist()


def _other(known: str, number: int) -> str:
    """Return another id of the same form."""
    if known.startswith("past"):
        return f"{known}x{number}"
    prefix = "e-" if known.startswith("e-") else ""
    return prefix + ids.digest("copy", known, number, length=min(len(known) - len(prefix), 26))


def _moved(rows: pa.Table, known: re.Pattern[str], other: object, earlier_s: int) -> pa.Table:
    """Return rows with other ids, so many seconds earlier."""
    columns = []
    for name, kind in zip(rows.schema.names, rows.schema.types, strict=True):
        column = rows.column(name)
        if name in WITH_IDS:
            column = pa.array([None if v is None else known.sub(other, v) for v in values(rows, name)], kind)
        elif pa.types.is_timestamp(kind):
            column = pc.subtract(column, pa.scalar(timedelta(seconds=earlier_s))).cast(kind)
        elif name == "ord":
            column = pc.subtract(column, earlier_s * 1_000_000)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=rows.schema.remove_metadata())


@contextmanager
def place(folder: Path, n_studies: int, n_batches: int) -> Iterator[Place]:
    """Make a lake with a past, beside a simulator of its own."""
    folder.mkdir()
    with server.running(Settings(seed=1, latency_s=(0.0, 0.0)), folder / "world") as simulator:
        openai = SIMULATED["openai"]
        own = {openai.url_env: simulator.base_url_of("openai"), openai.key_env: "simulated"}
        environ = {**os.environ, "BATCHPOND_LAKE": str(folder / "lake"), **own}
        os.environ.update(environ)
        made = Place(folder, environ)
        fill(made, n_studies, n_batches)
        yield made


def measure(places: list[Place]) -> list[tuple[float, float]]:
    """Return, by lake, the CPU seconds of the pass in which a batch ends and of an idle one after it: least of some."""
    ending: dict[Path, list[float]] = {one.folder: [] for one in places}
    idle: dict[Path, list[float]] = {one.folder: [] for one in places}
    for number in range(N_RUNS):
        for one in places:
            one.run("plan", str(one.write(PLAIN, f"new{number}", 10, 10)))
            one.run("submit", f"new{number}", "--yes")
            ending[one.folder].append(one.run("sync"))
            idle[one.folder].append(one.run("sync"))
    return [(min(ending[one.folder]), min(idle[one.folder])) for one in places]


def passes(n: int) -> list[float]:
    """Return what each of so many passes takes in which a batch ends, in CPU seconds of this thread."""
    taken = []
    with tempfile.TemporaryDirectory(prefix="batchpond-passes-") as name, place(Path(name) / "one", 0, 0) as one:
        lake = Lake(one.folder / "lake")
        lake.plan(one.write(PLAIN, "long", n, 1))
        for number in range(n):
            lake.submit("long", confirm=lambda _: True, limit=number + 1)
            before = time.thread_time()
            lake.sync()
            taken.append(time.thread_time() - before)
    return taken


def tell_passes(n: int) -> bool:
    """Measure and print so many passes; returns whether the limit is passed."""
    taken = passes(n)
    share = n // 10
    old, new = (statistics.median(part) for part in (taken[:share], taken[-share:]))
    sys.stdout.write(
        f"{n} passes: the last {share} take {new * 1e3:.0f} ms CPU, the first {share} {old * 1e3:.0f},"
        f" ratio {new / old:.2f} (limit {IDLE_MAX})\n"
    )
    return new / old > IDLE_MAX


def main() -> None:
    """Measure both lakes, or many passes over one."""
    if "--passes" in sys.argv:
        sys.exit(tell_passes(int(sys.argv[-1])))
    n_studies, n_batches = [int(word) for word in sys.argv[1:]] or [200, 5_000]
    with tempfile.TemporaryDirectory(prefix="batchpond-growth-") as name, ExitStack() as stack:
        empty = stack.enter_context(place(Path(name) / "empty", 0, 0))
        full = stack.enter_context(place(Path(name) / "full", n_studies, n_batches))
        before, after = measure([empty, full])
    is_over = False
    for what, old, new, limit in zip(("a batch ends", "idle"), before, after, (ENDING_MAX, IDLE_MAX), strict=True):
        is_over = is_over or new / old > limit
        sys.stdout.write(
            f"{what}: {new:.2f} CPU s with {n_studies} studies and {n_batches} batches, {old:.2f} in an empty lake,"
            f" ratio {new / old:.2f} (limit {limit})\n"
        )
    sys.exit(is_over)


if __name__ == "__main__":
    main()
