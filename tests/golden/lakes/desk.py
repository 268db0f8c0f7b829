"""A lake of commit cc06c86 with the simulated provider that it was sent to, brought to its end by public doors alone.

A lake knows the address of its batches, so each has a port of its own. The simulator's time stands still (`--speed 0`)
but for what is asked of it: an old batch ends, and keeps its results, whenever its lake is unpacked.
"""

from __future__ import annotations

import gc
import gzip
import io
import json
import tarfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

import batchpond
from tests.golden import doors
from tests.golden.bought.record import table

HERE = Path(__file__).parent
STEP_S = 1_000
OPTIONS = ("--speed", "0", "--latency", "60", "600", "--seed", "3")
PORTS = {"plain_open": 28_471, "staged": 28_472, "adaptive": 28_473, "pressure": 28_474, "finished": 28_475}
"""By lake; below the ports that a kernel gives away."""
PLACE = (
    "stage", "round_no", "template_id", "rubric_id", "provider", "request_model", "thinking", "unit_id", "item_first",
    "item_second", "candidate_first", "candidate_second", "turn_no", "direction", "repeat_no", "request_id",
)  # fmt: skip
SAID = ("outcome", "verdict", "label", "score")
CELL = ("template_id", "rubric_id", "provider", "request_model", "thinking")


@dataclass(frozen=True)
class Desk:
    """A folder with `lake`, `world` (the simulator's state) and the study's files, and the way to the simulator."""

    folder: Path
    environment: Mapping[str, str]

    @property
    def lake(self) -> batchpond.Lake:
        """The lake."""
        return batchpond.Lake(self.folder / "lake")

    @property
    def study(self) -> str:
        """The study's name."""
        return str(table(self.lake.path, "studies")["study"][0])

    def pass_time(self, seconds: float) -> None:
        """Move the provider's time on."""
        doors.steer(self.environment, "advance", {"seconds": seconds})

    def ledger(self) -> dict[str, Any]:
        """Return the provider's own record of all that it created and billed."""
        return doors.steer(self.environment, "ledger")

    def submit(self) -> None:
        """Run `submit --yes`."""
        self.lake.submit(self.study, confirm=lambda _: True)

    def sync(self, *, submit_due: bool = True) -> bool:
        """Run `sync` when some time has passed; returns whether there is more to come."""
        self.pass_time(STEP_S)
        report = self.lake.sync(submit_due=submit_due)
        assert not report.n_attention
        return bool(report.n_pending or report.counts.n_created or report.counts.n_lines)

    def settle(self) -> None:
        """Collect what ended, catch up with the time of day, and go on until all is asked and answered."""
        self.sync(submit_due=False)
        self.pass_time(max(0.0, time.time() - self.ledger()["now"]))
        for _ in doors.deadline():
            self.submit()  # renews an approval that has ended, as far as anything is due
            if not self.sync():
                return

    def results(self) -> list[str]:
        """Return each plan row's place and what came of it, as text."""
        found = self.lake.results().select(*PLACE, *SAID).collect()
        return sorted(json.dumps(row, ensure_ascii=False) for row in found.rows())

    def cells(self) -> dict[str, int]:
        """Return how many cell ids there are for each combination of template, rubric and model."""
        counts = table(self.lake.path, "plan").group_by(CELL).agg(pl.col("cell_id").n_unique())
        return {" ".join(map(str, cell)): n for *cell, n in sorted(counts.rows())}

    def sent(self) -> Counter[str]:
        """Return in how many batches each request was sent, by the custom_ids in what the provider has of them."""
        files = (path for path in (self.folder / "world").rglob("*") if path.is_file())
        custom_ids = {name for path in files for name in _custom_ids(path.read_bytes())}
        return Counter(name.partition("-")[2] for name in custom_ids)


def _custom_ids(data: bytes) -> Iterator[str]:
    """Yield the custom_id of each line of a file of requests or results; nothing of any other file."""
    for line in data.splitlines():
        try:
            document = json.loads(line)
        except ValueError:
            return
        if not isinstance(document, dict):
            return
        name = document.get("custom_id") or document.get("key")
        if isinstance(name, str) and "-" in name:
            yield name


@contextmanager
def desk_at(folder: Path, name: str) -> Iterator[Desk]:
    """Run the simulator of a lake that lies in `folder`, or will."""
    options = (*OPTIONS, "--port", str(PORTS[name]))
    with (
        warnings.catch_warnings(),
        doors.simulating(folder / "world", *options) as values,
        doors.environment(values),
    ):
        # A lake leaves its connections to the collector of garbage, which here comes before the simulator stops.
        warnings.simplefilter("ignore", ResourceWarning)
        yield Desk(folder, values)
        gc.collect()


def pack(folder: Path, path: Path) -> None:
    """Write a folder as a .tar.gz that depends on its files alone."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for file in sorted(folder.rglob("*")):
            info = archive.gettarinfo(file, str(file.relative_to(folder)))
            info.mtime = info.uid = info.gid = 0
            info.uname = info.gname = ""
            with file.open("rb") if file.is_file() else io.BytesIO() as content:
                archive.addfile(info, content if file.is_file() else None)
    path.write_bytes(gzip.compress(tar.getvalue(), mtime=0))


def unpack(name: str, folder: Path) -> None:
    """Lay out a lake as it was."""
    with tarfile.open(HERE / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")


def expected(name: str) -> dict[str, Any]:
    """Return what commit cc06c86 made of a lake."""
    found: dict[str, Any] = json.loads((HERE / f"{name}.json").read_bytes())
    return found
