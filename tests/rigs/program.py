"""A folder with a small study and a lake, and the program run in it: nothing of batchpond is imported."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.rigs import forked
from tests.rigs.clock import ClockFile

OTHER_PROGRAM = "BATCHPOND_TEST_PYTHON"
"""Names the Python of another version, whose program is run in place of this one."""
STUDY = "small"
N = 12
STUDY_TOML = """
study = "small"
[items]
path = "samples.csv"
[shards]
max_requests = {max_requests}
[[rubrics]]
use = "overall_quality"
[[templates]]
use = "plain"
[[models]]
provider = "openai"
model = "gpt-4.1-mini"
max_output_tokens = 200
"""


@dataclass
class Program:
    """What a user has: a folder, and an environment that names the provider."""

    folder: Path
    base_url: str
    settle_s: str = "0"
    lake: str = "lake"
    more: dict[str, str] = field(default_factory=dict)

    def write(self, *, n_items: int = 4, max_requests: int = 1000) -> None:
        """Write the study; four items make twelve requests."""
        (self.folder / "study.toml").write_text(STUDY_TOML.format(max_requests=max_requests))
        rows = [f"s{n},sample number {n}" for n in range(n_items)]
        (self.folder / "samples.csv").write_text("\n".join(["id,text", *rows]) + "\n")

    def prepare(self, *, n_items: int = 4, max_requests: int = 1000) -> None:
        """Write the study and plan it."""
        self.write(n_items=n_items, max_requests=max_requests)
        done = self.run("plan", "study.toml")
        assert done.returncode == 0, done.stderr

    @property
    def environment(self) -> dict[str, str]:
        """The program's environment."""
        own = {"OPENAI_BASE_URL": self.base_url, "OPENAI_API_KEY": "sk-fake", "BATCHPOND_LAKE": self.lake}
        return os.environ | own | {"BATCHPOND_TEST_SETTLE_S": self.settle_s} | self.more

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one command in a process of its own."""
        if OTHER_PROGRAM in os.environ:
            return subprocess.run(
                [os.environ[OTHER_PROGRAM], "-m", "batchpond", *arguments],
                capture_output=True, text=True, cwd=self.folder, env=self.environment, timeout=120, check=False,
            )  # fmt: skip
        return forked.run_text(*arguments, env=self.environment, cwd=self.folder)

    def wait(self, seconds: float) -> None:
        """Let time pass for the program: by its clock, or for real where an earlier version has none that moves."""
        if OTHER_PROGRAM in os.environ:
            time.sleep(seconds)
        else:
            clock = ClockFile(self.folder / "clock", seconds)
            self.more = {**self.more, "BATCHPOND_TEST_CLOCK": os.fspath(clock.path)}

    def submit(self) -> subprocess.CompletedProcess[str]:
        """Run `submit --yes`."""
        return self.run("submit", STUDY, "--yes")

    def sync(self) -> subprocess.CompletedProcess[str]:
        """Run `sync`."""
        return self.run("sync")

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """Return what a query says."""
        done = self.run("query", sql, "--json")
        assert done.returncode == 0, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    def outcomes(self) -> dict[str | None, int]:
        """Return how many results have each outcome."""
        found = self.rows("select outcome, count(*) as n from results group by outcome")
        return {row["outcome"]: row["n"] for row in found}
