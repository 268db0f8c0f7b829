"""SIGKILL at every failpoint at every provider, and at every point of a round change, as processes.

`python -m tests.sweeps.kills [pytest options]`
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.process.test_kill_sweep import EVERYTHING
from tests.sweeps import played

if __name__ == "__main__":
    os.environ[EVERYTHING] = "all"
    tests = [
        os.fspath(Path(__file__).parents[1] / "process" / f"test_{name}.py") for name in ("kill_sweep", "stages_kills")
    ]
    sys.exit(played(*tests, *sys.argv[1:]))
