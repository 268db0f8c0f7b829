"""How many doors one act goes through: `pytest -s tests/house/test_walk.py` prints them.

A module is counted when a function of it is called; what runs while modules are loaded is left out. The provider is
the simulator on a loopback port.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from batchpond_sim.host import server
from batchpond_sim.world.world import Settings
from tests.rigs.sim_inputs import STUDY, write_study
from tests.rigs.sim_providers import SIMULATED

ROOT = Path(__file__).parents[2]
LIFE_MAX = 66
IDLE_MAX = 22


def test_a_requests_life_is_a_short_walk(tmp_path: Path) -> None:
    """Plan, submit, sync and query of one pairwise study, and a sync with nothing new."""
    openai = SIMULATED["openai"]
    with server.running(Settings(seed=1, latency_s=(5.0, 10.0)), tmp_path / "world") as simulator:
        environment = os.environ | {
            openai.url_env: simulator.base_url_of("openai"),
            openai.key_env: "sk-simulated",
            "BATCHPOND_LAKE": str(tmp_path / "lake"),
        }

        def entered(*arguments: str) -> set[str]:
            command = [sys.executable, "-m", "tests.rigs.walk", str(tmp_path / "entered"), *arguments]
            subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
            return set((tmp_path / "entered").read_text().splitlines())

        walks = {
            "plan": entered("plan", str(write_study(tmp_path))),
            "submit": entered("submit", STUDY, "--yes"),
        }
        simulator.world.advance(20.0)
        walks["sync"] = entered("sync")
        walks["query"] = entered("query", "select * from metric_position_bias")
        life = set[str]().union(*walks.values())
        idle = entered("sync")
    for name, modules in {**walks, "life": life, "idle sync": idle}.items():
        sys.stdout.write(f"{name}: {len(modules)} modules: {' '.join(sorted(modules))}\n")
    assert len(life) <= LIFE_MAX
    assert len(idle) <= IDLE_MAX
