"""The verbs against a simulated provider over real HTTP: plan, submit, sync, what they print and exit with."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchpond_sim.host import server
from batchpond_sim.world.world import Settings
from tests.rigs import forked

STUDY = """
study = "small"
[items]
path = "samples.csv"
[[rubrics]]
use = "overall_quality"
[[templates]]
use = "plain"
[[models]]
provider = "openai"
model = "gpt-4.1-mini"
max_output_tokens = 200
"""


class Rig:
    """A folder with a study, a lake beside it, and a simulated provider to talk to."""

    def __init__(self, folder: Path, base_url: str) -> None:
        self.folder = folder
        self.environment = os.environ | {"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": "simulated-key"}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one command in a process of its own."""
        return forked.run_text(*arguments, env=self.environment, cwd=self.folder)

    def json(self, *arguments: str) -> dict[str, object]:
        """Run one command and return its document."""
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        loaded: dict[str, object] = json.loads(done.stdout)
        return loaded


def _prepare(folder: Path) -> None:
    (folder / "study.toml").write_text(STUDY)
    with (folder / "samples.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("id", "text"), *((f"s{i}", f"sample number {i}") for i in range(4))])


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """One planned study; the tests below take it through its life in order."""
    folder = tmp_path_factory.mktemp("rig")
    _prepare(folder)
    with server.running(Settings(seed=1, latency_s=(0.2, 0.5))) as simulator:
        yield Rig(folder, simulator.base_url)


def test_1_plan_shows_counts_and_rough_cost(rig: Rig) -> None:
    """plan prints to stdout, sends nothing, and planning again changes nothing."""
    done = rig.run("plan")
    assert done.returncode == 0, done.stderr
    assert "to ask: 12 in 1 batch" in done.stdout
    assert "rough estimate" in done.stdout
    again = rig.json("plan")
    assert (again["is_new_version"], again["n_to_ask"], again["n_new"]) == (False, 12, 0)


def test_2_submit_needs_a_yes(rig: Rig) -> None:
    """Without a terminal, submit stops with 2, names the flag, and leaves stdout empty."""
    done = rig.run("submit", "small")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--yes" in done.stderr
    assert "gpt-4.1-mini" in done.stderr


def test_3_a_dry_run_and_a_low_limit_send_nothing(rig: Rig) -> None:
    """--dry-run shows what would go; --max-cost below the estimate is a refusal with 2."""
    assert rig.json("submit", "small", "--dry-run")["n_requests"] == 12
    done = rig.run("submit", "small", "--yes", "--max-cost", "0.0000001")
    assert (done.returncode, done.stdout) == (2, "")
    assert rig.json("status")["batches"] == []


def test_4_a_sample_goes_first(rig: Rig) -> None:
    """--limit sends so many; a script sees that something is pending."""
    sent = rig.json("submit", "small", "--yes", "--limit", "4")
    assert (sent["is_approved"], sent["n_requests"], sent["n_batches"]) == (True, 4, 1)
    assert rig.run("status", "--exit-code").returncode == 8


def test_5_watch_ends_with_the_batches_and_tells_a_command(rig: Rig) -> None:
    """--watch goes on until nothing is pending, then --on-done gets the counts and none of stdout."""
    command = 'echo "$BATCHPOND_N_LINES lines, $BATCHPOND_N_PENDING pending" > told; echo chatter'
    done = rig.run("sync", "--watch", "--interval", "1", "--timeout", "60", "--on-done", command, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["n_pending"], document["counts"]["n_lines"]) == (0, 4)
    assert (rig.folder / "told").read_text() == "4 lines, 0 pending\n"
    assert "chatter" in done.stderr


def test_6_the_rest_follows_and_nothing_is_asked_twice(rig: Rig) -> None:
    """A second submit sends what the sample left, a third finds nothing due."""
    assert rig.json("submit", "small", "--yes")["n_requests"] == 8
    assert rig.run("sync", "--watch", "--interval", "1", "--timeout", "60").returncode == 0
    assert rig.json("submit", "small", "--yes")["n_requests"] == 0


def test_7_results_and_audit_agree(rig: Rig) -> None:
    """Every planned request has one row, and every batch is in balance."""
    rows = json.loads(rig.run("results", "--json").stdout)
    assert len(rows) == 12
    assert {row["origin"] for row in rows} == {"simulated"}
    done = rig.run("audit", "--json")
    assert done.returncode == 0
    assert [row["is_balanced"] for row in json.loads(done.stdout)] == [True, True]


def test_8_a_pass_with_nothing_new_writes_nothing(rig: Rig) -> None:
    """sync again leaves the lake's tree as it is, and says so."""
    before = {path: path.stat().st_mtime_ns for path in (rig.folder / "lake").rglob("*.parquet")}
    done = rig.run("sync")
    assert "nothing new; nothing pending" in done.stderr
    assert {path: path.stat().st_mtime_ns for path in (rig.folder / "lake").rglob("*.parquet")} == before
    assert rig.run("doctor").returncode == 0


def test_9_keys_are_checked_and_never_shown(rig: Rig) -> None:
    """keys --check calls the provider and prints no key."""
    done = rig.run("keys", "--check")
    assert done.returncode == 0, done.stderr
    assert "OPENAI_API_KEY" in done.stdout
    assert "simulated-key" not in done.stdout + done.stderr


def test_a_pass_that_finds_open_batches_unchanged_loads_no_engine(tmp_path: Path) -> None:
    """What a scheduler runs every few minutes lists and compares; Arrow, DuckDB, polars and numpy stay unloaded."""
    _prepare(tmp_path)
    with server.running(Settings(seed=1, latency_s=(50_000.0, 60_000.0))) as simulator:
        rig = Rig(tmp_path, simulator.base_url)
        rig.json("plan")
        rig.json("submit", "small", "--yes")
        rig.json("sync")
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "batchpond", "sync", "--json"],
            capture_output=True, text=True, cwd=rig.folder, env=rig.environment, timeout=120, check=False,
        )  # fmt: skip
        assert json.loads(done.stdout)["n_pending"] == 1
        loaded = {
            line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time")
        }
        assert "httpx" in loaded
        assert loaded.isdisjoint({"pyarrow", "numpy", "duckdb", "polars", "rich", "genai_prices"})
        assert loaded.isdisjoint({"batchpond.study.typed", "batchpond.study.config_file", "batchpond.study.spec"})
        assert "nothing new; 1 batch pending" in done.stderr
