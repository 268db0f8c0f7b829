"""A key is found nowhere but in the environment and in requests to its own host."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from batchpond_sim.host import server
from batchpond_sim.world.world import Settings
from tests.rigs import forked
from tests.rigs.swept import some

CANARY = "sk-CANARYkey0123456789abcdefCANARY"
CANARY_TEXT = "a confidential sample text that no log may repeat"
STUDY = """
study = "canary"
[items]
path = "items.csv"
[[rubrics]]
use = "overall_quality"
[[templates]]
use = "plain"
[[models]]
provider = "openai"
model = "gpt-4.1-mini"
max_output_tokens = 50
"""


def _run(folder: Path, base_url: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    environ = {
        **os.environ, "OPENAI_API_KEY": CANARY, "OPENAI_BASE_URL": base_url,
        "BATCHPOND_LAKE": str(folder / "lake"),
        "BATCHPOND_TEST_SETTLE_S": "0",
    }  # fmt: skip
    return forked.run("-v", *arguments, env=environ, cwd=folder)


@pytest.mark.parametrize(
    "fault",
    some(
        "files.create@1:status=401",
        "batches.list@*:redirect=http://127.0.0.1:9/elsewhere",
        swept=["batches.create@1:reset_after", "batches.create@1:html"],
    ),
)
def test_a_canary_key_is_found_nowhere(tmp_path: Path, fault: str) -> None:
    """Whatever fails, however verbose, neither the lake nor the output nor the simulator holds the key."""
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "items.csv").write_text(f"id,text\na,{CANARY_TEXT} one\nb,two\nc,three\n")
    said = b""
    settings = Settings(seed=1, latency_s=(0.05, 0.1), faults=(fault,))
    with server.running(settings, tmp_path / "world") as simulator:
        for arguments in (
            ["plan", "study.toml"], ["submit", "canary", "--yes"], ["sync"], ["status"], ["keys", "--check"],
            ["doctor"],
        ):  # fmt: skip
            done = _run(tmp_path, simulator.base_url, *arguments)
            said += done.stdout + done.stderr
            time.sleep(0.1)
        n_requests = simulator.world.ledger.summary()["n_requests"]
    assert n_requests > 0, "the key was used"
    assert CANARY.encode() not in said
    assert CANARY_TEXT.encode() not in said
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert CANARY.encode() not in path.read_bytes(), path
